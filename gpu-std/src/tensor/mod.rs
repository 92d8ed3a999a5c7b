//! Asynchronous copies of tensors and matrix products of compute capability 9.0: `TensorMap`, `mbarrier`, `wgmma`.
//!
//! | type | what it is |
//! | --- | --- |
//! | [`TensorMap`] | a tensor in device memory, a kernel's parameter; copies its boxes to and from shared memory |
//! | [`Barrier`] | arrivals and bytes to wait for, by phases |
//! | [`Slot`] | the position in a ring of stages, with its phase |
//! | [`SharedTile`], [`SharedMemory`] | a box in shared memory, and where boxes and barriers lie |
//! | [`Accumulator`] | the result of `wgmma`, which nothing can read while a product is under way |
//! | [`Fragments`] | the left operand of `wgmma` in registers |
//! | [`mma`](mod@mma) | products by one warp, of compute capability 8.0 too |
//! | [`warp_group`] | 128 threads: their registers, their barrier |
//!
//! But for [`mma`](mod@mma), for which `arch = 80` is enough, a kernel that uses them says `arch = "90a"` and the size of its
//! block, `block(384)`. It may not call anything that is not inlined, nor panic: one such call anywhere makes every `wgmma` wait
//! for the one before, and the builder fails then.
//!
//! On the emulated device a copy arrives when its barrier is waited for, and no earlier: until then its destination is
//! poison. The products of a batch are computed when it is waited for; an accumulator has at most 64 under way.

pub mod barrier;
pub mod copy;
pub mod mma;
pub mod shared;
pub mod warp_group;
pub mod wgmma;

pub use barrier::{Barrier, Barriers, Slot};
pub use copy::TensorMap;
pub use float8::{F8E4M3, F8E5M2};
pub use gpu_spec::Swizzle;
pub use shared::{SharedMemory, SharedTile, SharedTiles};
pub use wgmma::{
    Accumulator, Batch, Columns, Fragments, Half, KMajor, Major, MnMajor, Multiply, Operand, Output, Pending,
    Sum, Width,
};

/// Inline assembly on the GPU, a call on the emulated device.
macro_rules! gpu_asm {
    ([$($asm:tt)*], $host:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            // SAFETY: the promise of the function that this is the body of.
            unsafe { core::arch::asm!($($asm)*) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $host
        }
    }};
}
use gpu_asm;
