//! Warpgroups: 128 threads of a block, starting at a multiple of 128, which issue matrix products together.

use super::gpu_asm;
use crate::{thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::collective;

/// Number of threads in a warpgroup.
pub const THREADS: u32 = 128;

/// Returns the index of the calling thread's warp in its block, in a form that the compiler treats as warp-uniform. All
/// threads of a warp must call it.
#[inline(always)]
#[track_caller]
pub fn warp_index() -> u32 {
    warp::shuffle(!0, thread::linear_in_block() / 32, 0)
}

/// Releases registers (`setmaxnreg.dec`). From here on, a thread of the calling warpgroup has `COUNT` registers, a
/// multiple of 8 from 24 to 256. All threads of the warpgroup must call it.
///
/// # Safety
///
/// The block must have a fixed size (`block(…)`), and its warpgroups must currently have at least `COUNT` registers per
/// thread.
#[inline(always)]
pub unsafe fn release_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "a thread has 24 to 256 registers, a multiple of 8") };
    gpu_asm!(["setmaxnreg.dec.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

/// Acquires registers that other warpgroups have released (`setmaxnreg.inc`). Waits until `COUNT` registers, a multiple
/// of 8 from 24 to 256, are available per thread of the calling warpgroup. All threads of the warpgroup must call it.
///
/// # Safety
///
/// The block must have a fixed size (`block(…)`). Its warpgroups must currently have at most `COUNT` registers per
/// thread. Other warpgroups must release enough registers that all allocations fit in the registers with which the
/// block started.
#[inline(always)]
pub unsafe fn acquire_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "a thread has 24 to 256 registers, a multiple of 8") };
    gpu_asm!(["setmaxnreg.inc.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

const fn is_count(count: u32) -> bool {
    count >= 24 && count <= 256 && count.is_multiple_of(8)
}

/// Returns true in one lane of the calling warp, in a form from which the compiler infers that it is a single lane
/// (`elect.sync`).
///
/// # Safety
///
/// All 32 lanes of the warp must call it together.
#[inline(always)]
#[track_caller]
pub unsafe fn elect() -> bool {
    #[cfg(target_arch = "nvptx64")]
    {
        let elected: u32;
        // SAFETY: guaranteed by the caller.
        unsafe {
            core::arch::asm!(
                "{{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 {r}, 1, 0, p; }}",
                r = out(reg32) elected, options(nostack)
            );
        }
        elected != 0
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        warp::sync_warp(!0);
        warp::lane_id() == 0
    }
}

/// Waits until `threads` threads of the block are at barrier `number`, from 1 to 15. Shared arrays of the kernel use
/// barriers from 1 on; `number` must not be one of these. Earlier memory writes of these threads are visible to all of
/// them afterwards. Whole warps must call it.
///
/// # Safety
///
/// `threads` must be a multiple of 32 and the same in all these threads, and no other threads may reach the barrier
/// concurrently.
#[inline(always)]
#[track_caller]
pub unsafe fn sync(number: u32, threads: u32) {
    gpu_asm!(
        ["barrier.sync.aligned {i}, {n};", i = in(reg32) number, n = in(reg32) threads, options(nostack)],
        collective::part_barrier(number, threads)
    )
}
