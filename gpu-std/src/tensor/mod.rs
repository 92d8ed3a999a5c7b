//! TMA copies and tensor-core products of compute capability 9.0: `TensorMap`, `mbarrier`, `wgmma`.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`TensorMap`] | a tensor in device memory, as a kernel parameter; TMA copies move its boxes to and from shared memory |
//! | [`Barrier`] | an `mbarrier`: arrivals and transaction bytes, by phases |
//! | [`PipelineState`] | pipeline state: the position in a circular buffer of stages, with its phase |
//! | [`SharedTile`], [`SharedMemory`] | a box in shared memory, and the allocation of boxes and barriers |
//! | [`Accumulator`] | the result of `wgmma`, which nothing can read while a product is in flight |
//! | [`Fragments`] | the left operand of `wgmma` in registers |
//! | [`mma`](mod@mma) | warp-level products, also for compute capability 8.0 |
//! | [`warpgroup`] | a warpgroup of 128 threads: its registers and barriers |
//!
//! For [`mma`](mod@mma), `arch = 80` is sufficient. For all other items, a kernel must declare `arch = "90a"` and its
//! block size, such as `block(384)`. It must not call a function that is not inlined, nor panic. One such call anywhere
//! makes every `wgmma` wait for the preceding one, which the builder reports as an error.
//!
//! On the emulated device, a copy arrives only when its barrier is waited for, and until then its destination is
//! poisoned. The products of a batch are computed when the batch is waited for, and an accumulator can have at most 64
//! products in flight.

pub mod barrier;
pub mod copy;
pub mod mma;
pub mod shared;
pub mod warpgroup;
pub mod wgmma;

pub use barrier::{Barrier, Barriers, PipelineState};
pub use copy::TensorMap;
pub use float8::{F8E4M3, F8E5M2};
pub use gpu_spec::Swizzle;
pub use shared::{SharedMemory, SharedTile, SharedTiles};
pub use wgmma::{
    Accumulator, Batch, Columns, Fragments, Half, KMajor, Major, MnMajor, Multiply, Operand, Output, Pending,
    Sum, Width,
};

/// Emits inline assembly on the GPU, and a call on the emulated device.
macro_rules! gpu_asm {
    ([$($asm:tt)*], $host:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            // SAFETY: guaranteed by the function whose body this is.
            unsafe { core::arch::asm!($($asm)*) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $host
        }
    }};
}
use gpu_asm;
