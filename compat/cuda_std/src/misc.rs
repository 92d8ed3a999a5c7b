//! Clock and debugger.

pub use gpu_std::clock::cycles as clock;

/// Triggers a debugger breakpoint. On the emulated device, it has no effect.
#[inline(always)]
pub fn breakpoint() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the instruction has no operands.
    unsafe {
        core::arch::asm!("brkpt;");
    }
}
