//! For `warpsmith doctor`: finds the network interfaces through which ranks on several hosts can connect.

use crate::doctor::{Check, Status};

/// Variable that selects NCCL's interfaces.
const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

/// Checks the network interfaces named by [`VARIABLE`], or all that are up and have an address.
pub fn check() -> Option<Check> {
    let chosen = std::env::var(VARIABLE).ok().filter(|chosen| !chosen.is_empty());
    Some(describe(&interfaces()?, chosen.as_deref()))
}

/// A network interface and its address.
type Interface = (String, String);

fn describe(interfaces: &[Interface], chosen: Option<&str>) -> Check {
    let what = "network";
    let names: Vec<_> = interfaces.iter().map(|(name, address)| format!("{name} {address}")).collect();
    let all = if names.is_empty() { "no interface is up".to_owned() } else { names.join(", ") };
    let Some(chosen) = chosen else {
        let status = if names.is_empty() { Status::Note } else { Status::Ok };
        return Check::new(what, status, all, &[]);
    };
    let detail = format!("{all}; {VARIABLE}={chosen}");
    if interfaces.iter().any(|(name, _)| is_chosen(name, chosen)) {
        return Check::ok(what, detail);
    }
    let fix = [format!("unset {VARIABLE}, or set it to one of these names")];
    Check::new(what, Status::Note, format!("{detail} selects none of them, so NCCL fails"), &fix)
}

/// Returns true if NCCL uses an interface. The list contains name prefixes, or whole names if it starts with `=`; a
/// list that starts with `^` excludes the interfaces.
fn is_chosen(name: &str, chosen: &str) -> bool {
    let (is_excluded, list) = chosen.strip_prefix('^').map_or((false, chosen), |list| (true, list));
    let (is_whole, list) = list.strip_prefix('=').map_or((false, list), |list| (true, list));
    let mut names = list.split(',').map(|entry| entry.split(':').next().unwrap_or_default());
    let is_listed = names.any(|entry| if is_whole { name == entry } else { name.starts_with(entry) });
    is_listed != is_excluded
}

/// Returns the interfaces that are up, with their addresses, or `None` if the system does not list them.
#[cfg(unix)]
fn interfaces() -> Option<Vec<Interface>> {
    use std::ffi::CStr;
    use std::net::{Ipv4Addr, Ipv6Addr};
    let mut first = std::ptr::null_mut();
    // SAFETY: the pointer is to a local variable.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return None;
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is the system's until it is freed below. An address has the structure of its family.
        let (name, address) = unsafe {
            let entry = &*next;
            next = entry.ifa_next;
            if entry.ifa_flags & libc::IFF_UP as u32 == 0 || entry.ifa_addr.is_null() {
                continue;
            }
            let address = match libc::c_int::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned().sin_addr;
                    Ipv4Addr::from(address.s_addr.to_ne_bytes()).to_string()
                }
                libc::AF_INET6 => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr;
                    Ipv6Addr::from(address.s6_addr).to_string()
                }
                _ => continue,
            };
            (CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned(), address)
        };
        // The first address of each interface is used, because the system lists IPv4 addresses first.
        if found.iter().all(|(other, _)| *other != name) {
            found.push((name, address));
        }
    }
    // SAFETY: the list is not used afterwards.
    unsafe { libc::freeifaddrs(first) };
    Some(found)
}

#[cfg(not(unix))]
fn interfaces() -> Option<Vec<Interface>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_as_nccl_does() {
        for (chosen, expected) in [
            ("eth", [true, true, false]),
            ("=eth", [false, false, false]),
            ("=eth1,lo:5", [false, true, true]),
            ("^lo", [true, true, false]),
            ("^=eth0", [false, true, true]),
        ] {
            assert_eq!(["eth0", "eth1", "lo"].map(|name| is_chosen(name, chosen)), expected, "{chosen}");
        }
    }

    #[test]
    fn a_choice_of_no_interface_is_noted() {
        let interfaces = [("lo".to_owned(), "127.0.0.1".to_owned())];
        assert_eq!(describe(&interfaces, None).status, Status::Ok);
        assert_eq!(describe(&interfaces, Some("lo")).status, Status::Ok);
        let wrong = describe(&interfaces, Some("ib0"));
        assert_eq!(wrong.status, Status::Note);
        assert!(wrong.detail.contains("lo 127.0.0.1") && wrong.detail.contains("ib0"), "{wrong:?}");
        assert_eq!(describe(&[], None).status, Status::Note);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn interfaces_are_those_of_the_system() {
        let system = std::fs::read_dir("/sys/class/net").expect("the system's list");
        let system: Vec<_> = system.flatten().map(|entry| entry.file_name()).collect();
        let found = interfaces().expect("they are known");
        assert!(
            found.iter().all(|(name, _)| system.iter().any(|of_system| *of_system == **name)),
            "{found:?}"
        );
    }
}
