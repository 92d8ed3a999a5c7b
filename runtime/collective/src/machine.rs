//! This host, as other hosts and processes can know it.

use std::fs;
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
