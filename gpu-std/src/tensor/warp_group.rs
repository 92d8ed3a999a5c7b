//! Warp groups: 128 threads of a block, from a multiple of 128 on, which multiply matrices together.

use super::gpu_asm;
use crate::{thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::collective;

/// Threads of a warp group.
pub const THREADS: u32 = 128;

/// The index of the calling thread's warp in its block, the same in the whole warp to the compiler too. Called by all threads
/// of a warp.
#[inline(always)]
#[track_caller]
pub fn warp_index() -> u32 {
    warp::shuffle(!0, thread::linear_in_block() / 32, 0)
}

/// Gives registers back: from here on a thread of the calling warp group has `COUNT`, a multiple of 8 from 24 to 256. Called
/// by all its threads.
///
/// # Safety
///
/// The block has a fixed size (`block(…)`), and its warp groups have at least `COUNT` registers a thread now.
#[inline(always)]
pub unsafe fn release_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "a thread has 24 to 256 registers, a multiple of 8") };
    gpu_asm!(["setmaxnreg.dec.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

/// Takes registers that others have released: waits for `COUNT` a thread of the calling warp group, a multiple of 8 from 24
/// to 256. Called by all its threads.
///
/// # Safety
///
/// The block has a fixed size (`block(…)`). Its warp groups have at most `COUNT` registers a thread now, and other warp groups
/// release enough that all fit into the registers that the block began with.
#[inline(always)]
pub unsafe fn acquire_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "a thread has 24 to 256 registers, a multiple of 8") };
    gpu_asm!(["setmaxnreg.inc.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

const fn is_count(count: u32) -> bool {
    count >= 24 && count <= 256 && count.is_multiple_of(8)
}

/// True in one lane of the calling warp, and the compiler knows that it is one (`elect.sync`).
///
/// # Safety
///
/// All 32 lanes of the warp call it together.
#[inline(always)]
#[track_caller]
pub unsafe fn elect() -> bool {
    #[cfg(target_arch = "nvptx64")]
    {
        let elected: u32;
        // SAFETY: the caller's promise.
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

/// Waits until `threads` threads of the block are at barrier `number`: 1 to 15, of those that no shared array of the kernel
/// has, which take them from 1 on. Memory that they have written before is visible to all of them after it. Called by whole
/// warps.
///
/// # Safety
///
/// `threads` is a multiple of 32, the same in all that meet, and no other threads come to the barrier meanwhile.
#[inline(always)]
#[track_caller]
pub unsafe fn sync(number: u32, threads: u32) {
    gpu_asm!(
        ["barrier.sync.aligned {i}, {n};", i = in(reg32) number, n = in(reg32) threads, options(nostack)],
        collective::part_barrier(number, threads)
    )
}
