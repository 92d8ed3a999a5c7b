//! Tensor-core products: `mma` for compute capability 8.0 and later; `TensorMap`, `mbarrier` and `wgmma` for 9.0.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`TensorMap`] | a tensor in device memory, as a kernel parameter; TMA copies transfer its boxes to and from shared memory |
//! | [`Barrier`] | an `mbarrier`, which counts arrivals and transaction bytes per phase |
//! | [`PipelineState`] | pipeline state: the position in a circular buffer of stages, and its phase |
//! | [`SharedTile`], [`SharedMemory`] | a box in shared memory, and the allocator of boxes and barriers |
//! | [`Accumulator`] | the result of `wgmma`, which nothing can read while a product is in flight |
//! | [`Fragments`] | the left operand of `wgmma`, in registers |
//! | [`MatrixTile`] | a matrix in shared memory, for `cp.async` and `ldmatrix` |
//! | [`mma`](mod@mma) | warp-level products |
//! | [`warpgroup`] | operations of a warpgroup (128 threads): registers and barriers |
//!
//! For [`mma`](mod@mma) and [`MatrixTile`], `arch = 80` is sufficient. For all other items, a kernel must declare
//! `arch = "90a"` and a fixed block size, such as `block(384)`. The kernel must not call functions that are not
//! inlined, and must not panic. A single such call makes every `wgmma` of the kernel wait for the preceding one, which
//! the builder reports as an error.
//!
//! On the emulated device, a copy takes effect only when a thread waits for its barrier. Until then, the destination is
//! poisoned. The emulated device computes the products of a batch when a thread waits for the batch, and supports at
//! most 64 products in flight per accumulator.

pub mod barrier;
pub mod copy;
pub mod matrix_tile;
pub mod mma;
pub mod shared;
pub mod warpgroup;
pub mod wgmma;

pub use barrier::{Barrier, Barriers, PipelineState};
pub use copy::TensorMap;
pub use float8::{F8E4M3, F8E5M2};
pub use gpu_spec::Swizzle;
pub use matrix_tile::{MatrixLoads, MatrixTile, MatrixTiles};
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
            // SAFETY: guaranteed by the caller of the enclosing function.
            unsafe { core::arch::asm!($($asm)*) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $host
        }
    }};
}
use gpu_asm;
