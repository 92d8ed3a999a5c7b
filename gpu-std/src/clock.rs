//! Clocks, for measuring and waiting inside a kernel.

#[cfg(target_arch = "nvptx64")]
use crate::nvvm;

/// Cycles of the multiprocessor (SM) clock since an arbitrary start. The start differs between SMs, and the rate varies
/// with the clock frequency. On the emulated device, the unit is nanoseconds.
#[inline(always)]
pub fn cycles() -> u64 {
    gpu_or_host!(nvvm::clock64(), nanoseconds())
}

/// Nanoseconds since an arbitrary start, the same for all threads of the device. It may advance in steps of up to a
/// microsecond.
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
