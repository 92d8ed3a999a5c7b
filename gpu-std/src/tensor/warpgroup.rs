//! Warpgroups: 128 consecutive threads of a block, starting at a multiple of 128, that issue matrix products together.
//!
//! # Example
//! A warpgroup that only starts copies gives its registers to the warpgroup that multiplies:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::tensor::warpgroup;
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
//!
//! #[kernel(arch = "90a", block(256))]
//! fn specialize(mut out: DisjointMut<u32>) {
//!     let mut work = 0;
//!     // SAFETY: the block has a fixed size. All threads of a warpgroup take the same branch, and the
//!     // acquired registers are the released ones.
//!     unsafe {
//!         if warpgroup::warp_index() < 4 {
//!             warpgroup::release_registers::<40>();
//!             if warpgroup::warp_index() == 0 && warpgroup::elect() {
//!                 work = 1; // Start TMA copies.
//!             }
//!         } else {
//!             warpgroup::acquire_registers::<208>();
//!             warpgroup::sync(1, warpgroup::THREADS);
//!             work = 2; // Multiply.
//!         }
//!     }
//!     if let Some(out) = out.get_mut(thread::unique_index()) {
//!         *out = work;
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let mut out = DeviceBuffer::<u32>::zeros(&stream, 256)?;
//! module.kernel::<specialize>()?.launch(&stream, Launch::linear(256, 256), (&mut out,))?;
//! let out = out.to_host()?;
//! assert_eq!((out[..128].iter().sum::<u32>(), out[128..].iter().sum::<u32>()), (1, 256));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use super::gpu_asm;
use crate::{thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::collective;

/// Number of threads in a warpgroup.
pub const THREADS: u32 = 128;

/// Returns the index of the calling thread's warp in its block, in a form that the compiler treats as uniform across
/// the warp. All threads of a warp must call this function together.
#[inline(always)]
#[track_caller]
pub fn warp_index() -> u32 {
    warp::shuffle(!0, thread::linear_in_block() / 32, 0)
}

/// Releases registers (`setmaxnreg.dec`). Afterwards, each thread of the calling warpgroup has `COUNT` registers, a
/// multiple of 8 from 24 to 256. All threads of the warpgroup must call this function.
///
/// See the [example](self#example).
///
/// # Safety
/// The block must have a fixed size (`block(…)`), and each thread of the warpgroup must currently have at least `COUNT`
/// registers.
#[inline(always)]
pub unsafe fn release_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "the registers per thread must be a multiple of 8, from 24 to 256") };
    gpu_asm!(["setmaxnreg.dec.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

/// Acquires registers that other warpgroups have released (`setmaxnreg.inc`). Waits until `COUNT` registers per thread
/// of the calling warpgroup are available. `COUNT` must be a multiple of 8 from 24 to 256. All threads of the warpgroup
/// must call this function.
///
/// See the [example](self#example).
///
/// # Safety
/// The block must have a fixed size (`block(…)`). Each thread of the warpgroup must currently have at most `COUNT`
/// registers. Other warpgroups must release enough registers that all allocations together fit in the registers with
/// which the block started.
#[inline(always)]
pub unsafe fn acquire_registers<const COUNT: u32>() {
    const { assert!(is_count(COUNT), "the registers per thread must be a multiple of 8, from 24 to 256") };
    gpu_asm!(["setmaxnreg.inc.sync.aligned.u32 {n};", n = const COUNT, options(nostack)], ())
}

const fn is_count(count: u32) -> bool {
    count >= 24 && count <= 256 && count.is_multiple_of(8)
}

/// Returns true in one lane of the calling warp (`elect.sync`), in a form from which the compiler infers that it is a
/// single lane.
///
/// See the [example](self#example).
///
/// # Safety
/// All 32 lanes of the warp must call this function together.
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

/// Waits until `threads` threads of the block have arrived at barrier `number`, which must be from 1 to 15. The
/// kernel's shared arrays use barriers from number 1 upward, so `number` must not be one of these. Memory writes that
/// these threads made before the barrier are visible to all of them after it. All threads of a warp must call this
/// function together.
///
/// See the [example](self#example).
///
/// # Safety
/// `threads` must be a multiple of 32 and the same in all these threads. No other threads may reach the barrier
/// concurrently.
#[inline(always)]
#[track_caller]
pub unsafe fn sync(number: u32, threads: u32) {
    gpu_asm!(
        ["barrier.sync.aligned {i}, {n};", i = in(reg32) number, n = in(reg32) threads, options(nostack)],
        collective::part_barrier(number, threads)
    )
}
