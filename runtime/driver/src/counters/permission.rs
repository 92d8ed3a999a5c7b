//! [`CounterPermission`]: this process's permission to read hardware counters, as far as the system reports it.

use std::fmt;

/// Linux capability `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// This process's permission to read the hardware counters of NVIDIA devices, as far as the system reports it. Only an
/// attempt to read counters through CUPTI is conclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterPermission {
    /// True if the NVIDIA kernel module restricts counters to administrators; `None` if the module does not report
    /// this.
    pub is_restricted: Option<bool>,
    /// True if this process has `CAP_SYS_ADMIN`; `None` if the system does not report it.
    pub is_administrator: Option<bool>,
}

impl CounterPermission {
    /// Remedy: allow counters for all users, which requires a reboot, or run the program as an administrator.
    pub const REMEDY: &str = "write `options nvidia NVreg_RestrictProfilingToAdminUsers=0` to /etc/modprobe.d/nvidia.conf and \
                              restart; or run as root, or with CAP_SYS_ADMIN";

    /// Returns this process's permission.
    pub fn of_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
    }

    /// Derives the permission from the parameters of the NVIDIA kernel module and the status of a process.
    fn of(params: &str, status: &str) -> Self {
        let value = params.lines().find_map(|line| line.trim().strip_prefix("RmProfilingAdminOnly:"));
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self {
            is_restricted: value.and_then(|value| value.trim().parse::<u32>().ok()).map(|value| value != 0),
            is_administrator: mask.map(|mask| mask >> SYS_ADMIN & 1 == 1),
        }
    }

    /// Returns true if the process may read counters; `None` if the system does not report enough information.
    pub fn is_granted(self) -> Option<bool> {
        match (self.is_restricted, self.is_administrator) {
            (Some(false), _) | (_, Some(true)) => Some(true),
            (Some(true), Some(false)) => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for CounterPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_restricted {
            Some(true) => "the NVIDIA module restricts counters to administrators: RmProfilingAdminOnly is 1",
            Some(false) => "the NVIDIA module allows counters for all users: RmProfilingAdminOnly is 0",
            None => "/proc/driver/nvidia/params does not state who may use counters",
        })?;
        f.write_str(match self.is_administrator {
            Some(true) => "; this process has CAP_SYS_ADMIN",
            Some(false) => "; this process lacks CAP_SYS_ADMIN",
            None => "; whether this process has CAP_SYS_ADMIN is unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_and_process_decide() {
        let params = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nTCEBypassMode: 0\n";
        let (user, root) = ("Name:\tx\nCapEff:\t00000000a80425fb\n", "CapEff:\t000001ffffffffff");
        let refused = CounterPermission::of(params, user);
        let text = refused.to_string();
        assert!(text.contains("RmProfilingAdminOnly is 1") && text.contains("lacks CAP_SYS_ADMIN"), "{text}");
        assert_eq!(refused.is_granted(), Some(false));
        assert_eq!(CounterPermission::of(params, root).is_granted(), Some(true));
        let open = CounterPermission::of("RmProfilingAdminOnly: 0", user);
        assert!(
            open.to_string().contains("allows counters for all users") && open.is_granted() == Some(true),
            "{open}"
        );
        let unknown = CounterPermission::of("", "CapEff: none");
        let text = unknown.to_string();
        assert!(text.contains("does not state") && text.contains("is unknown"), "{text}");
        assert_eq!((unknown.is_granted(), CounterPermission::of(params, "").is_granted()), (None, None));
    }
}
