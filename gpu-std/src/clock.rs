//! Clocks for timing and waiting inside a kernel.

#[cfg(target_arch = "nvptx64")]
use crate::nvvm;

/// Returns the cycle count of the multiprocessor's (SM's) clock since an arbitrary starting point. Each SM has its own
/// starting point, and the rate follows the clock frequency. On the emulated device, the unit is nanoseconds instead.
#[inline(always)]
pub fn cycles() -> u64 {
    gpu_or_host!(nvvm::clock64(), nanoseconds())
}

/// Returns the nanoseconds since an arbitrary starting point that is the same for all threads of the device. The
/// counter may advance in steps of up to a microsecond.
#[inline(always)]
pub fn nanoseconds() -> u64 {
    #[cfg(target_arch = "nvptx64")]
    {
        nvvm::globaltimer()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}
