//! Memory of this machine, according to the operating system.

/// Sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Installed memory.
    pub total: u64,
    /// Memory that programs can still allocate. On macOS, the installed memory.
    pub available: u64,
}

/// Returns the machine's memory, if the system reports it.
#[cfg(target_os = "linux")]
pub fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Memory { total: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
}

/// Returns the machine's memory, if the system reports it.
#[cfg(windows)]
pub fn memory() -> Option<Memory> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: the pointer is to a local variable that states its size.
    let is_known = unsafe { GlobalMemoryStatusEx(&mut status) } != 0;
    is_known.then_some(Memory { total: status.ullTotalPhys, available: status.ullAvailPhys })
}

/// Returns the machine's memory, if the system reports it.
#[cfg(target_os = "macos")]
pub fn memory() -> Option<Memory> {
    let (mut total, mut len) = (0_u64, size_of::<u64>());
    // SAFETY: the name is a C string, and the other pointers are to local variables of the stated size.
    let result = unsafe {
        libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut total).cast(), &mut len, std::ptr::null_mut(), 0)
    };
    (result == 0).then_some(Memory { total, available: total })
}

/// Returns `None`, because this system is not supported.
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
pub fn memory() -> Option<Memory> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_plausible() {
        let memory = memory().unwrap();
        assert!(
            memory.total >= 1 << 28 && (1 << 20..=memory.total).contains(&memory.available),
            "{memory:?}"
        );
    }
}
