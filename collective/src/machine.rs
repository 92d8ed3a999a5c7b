//! This host, as other hosts and processes can know it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::OnceLock;

/// What distinguishes this host, or its container, from others: the system's boot and its namespaces. Processes with
/// the same identity can share memory and local sockets. Empty where the system has none of it.
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

/// The name of this host, for people.
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

/// How many file descriptors this process may have at once, by `RLIMIT_NOFILE`.
#[cfg(unix)]
pub fn most_descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local variable of this type.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// There is no such limit on this system.
#[cfg(not(unix))]
pub fn most_descriptors() -> usize {
    usize::MAX
}

/// The address of this host on the network by which it reaches another.
pub fn address_towards(other: SocketAddr) -> Option<IpAddr> {
    let any = if other.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // It sends nothing, but chooses the route.
    socket.connect(other).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// The address of this host on the network that its default route leads to.
pub fn outward_address() -> Option<IpAddr> {
    // One for documentation, which no host has.
    address_towards((Ipv4Addr::new(192, 0, 2, 1), 9).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reaches_itself_by_loopback() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))] {
            let towards = address_towards((ip, 9).into()).expect("a route");
            assert!(towards.is_loopback(), "{towards}");
        }
    }
}
