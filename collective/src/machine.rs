//! Identity and addresses of this host, as seen by other hosts and processes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::OnceLock;

/// Identifies this host, or the container, by the boot ID and the namespaces. Processes with the same identity can
/// share memory and local sockets. The identity is empty if the system provides neither.
pub fn identity() -> &'static str {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = |name: &str| {
            let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
            link.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>()
        };
        [boot.trim().to_owned(), namespace("ipc"), namespace("mnt"), namespace("net")].join("-")
    })
}

/// Returns the name of this host, for messages.
pub fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let of_kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let of_variable = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
        let name = of_kernel.or_else(of_variable).unwrap_or_default();
        match name.trim() {
            "" => "unknown".to_owned(),
            name => name.to_owned(),
        }
    })
}

/// Returns the maximum number of open file descriptors of this process (`RLIMIT_NOFILE`).
#[cfg(unix)]
pub fn max_descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer points to a local variable of this type.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// Returns the maximum value, because this system does not limit open files.
#[cfg(not(unix))]
pub fn max_descriptors() -> usize {
    usize::MAX
}

/// Returns the local address of the interface that routes to another host.
pub fn address_toward(other: SocketAddr) -> Option<IpAddr> {
    let any = if other.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // Connecting a UDP socket selects the route without sending anything.
    socket.connect(other).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// Returns the local address of the interface that the default route uses.
pub fn outward_address() -> Option<IpAddr> {
    // This address is reserved for documentation, so no host uses it.
    address_toward((Ipv4Addr::new(192, 0, 2, 1), 9).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reaches_itself_by_loopback() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))] {
            let toward = address_toward((ip, 9).into()).expect("a route");
            assert!(toward.is_loopback(), "{toward}");
        }
    }
}
