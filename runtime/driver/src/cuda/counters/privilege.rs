//! Whether this process may read hardware counters, as far as the system says: for the message of a refusal.

/// `CAP_SYS_ADMIN` of Linux.
const SYS_ADMIN: u32 = 21;

/// What the system says, in words.
pub fn probe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    describe(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
}

fn describe(params: &str, status: &str) -> String {
    let module = match restricted(params) {
        Some(true) => "the NVIDIA module lets administrators alone count: RmProfilingAdminOnly is 1",
        Some(false) => "the NVIDIA module lets all users count: RmProfilingAdminOnly is 0",
        None => "/proc/driver/nvidia/params does not say who may count",
    };
    let process = match has_capability(status) {
        Some(true) => "this process has CAP_SYS_ADMIN",
        Some(false) => "this process lacks CAP_SYS_ADMIN",
        None => "whether this process has CAP_SYS_ADMIN is unknown",
    };
    format!("{module}; {process}")
}

/// Whether administrators alone may count, by the parameters of the NVIDIA module.
fn restricted(params: &str) -> Option<bool> {
    let value = params.lines().find_map(|line| line.trim().strip_prefix("RmProfilingAdminOnly:"))?;
    value.trim().parse::<u32>().ok().map(|value| value != 0)
}

/// Whether the process has the capability, by its status.
fn has_capability(status: &str) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(|mask| mask >> SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_and_process_are_described() {
        let params = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nTCEBypassMode: 0\n";
        let text = describe(params, "Name:\tx\nCapEff:\t00000000a80425fb\n");
        assert!(text.contains("RmProfilingAdminOnly is 1") && text.contains("lacks CAP_SYS_ADMIN"), "{text}");
        let text = describe("RmProfilingAdminOnly: 0", "CapEff:\t000001ffffffffff");
        assert!(text.contains("lets all users count") && text.contains("has CAP_SYS_ADMIN"), "{text}");
        let text = describe("", "CapEff: none");
        assert!(text.contains("does not say") && text.contains("is unknown"), "{text}");
    }
}
