//! Clock, debugger and profiler.

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

/// Increments hardware counter `counter` by one per warp. On the emulated device, it has no effect.
///
/// # Panics
///
/// Panics if `counter` is above 7.
#[inline(always)]
#[track_caller]
pub fn profiler_counter(counter: u32) {
    assert!(counter <= 7, "the profiler counters are 0 to 7");
    #[cfg(target_arch = "nvptx64")]
    {
        macro_rules! events {
            ($($number:literal)*) => {
                match counter {
                    // SAFETY: the only operand of the instruction is the index of the counter, which must be a
                    // constant.
                    $($number => unsafe { core::arch::asm!(concat!("pmevent ", $number, ";")) },)*
                    _ => {}
                }
            };
        }
        events!(0 1 2 3 4 5 6 7);
    }
}
