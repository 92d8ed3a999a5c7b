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
//!
//! # Example
//! One warpgroup copies two matrices of 64 x 64 elements to shared memory, and multiplies the first by the
//! transpose of the second:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::tensor::{Accumulator, PipelineState, SharedMemory, SharedTile, TensorMap, barrier};
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Swizzle, TensorLayout};
//!
//! /// # Safety
//! /// The boxes must have 64 rows of 64 elements, and `out` must have 64 x 64 elements. The launch must
//! /// provide shared memory for two boxes and a barrier.
//! #[kernel(arch = "90a", block(128))]
//! unsafe fn multiply(a: &TensorMap<bf16>, b: &TensorMap<bf16>, out: *mut f32) {
//!     // SAFETY: guaranteed by the caller. The barrier is initialized before it is used, and the threads
//!     // wait for the copies and for the product.
//!     unsafe {
//!         let mut memory = SharedMemory::new();
//!         let tiles = memory.tiles::<bf16, 64, 2>();
//!         let (a_tile, b_tile) = (tiles.tile::<0>(), tiles.tile::<1>());
//!         let (barriers, slot) = (memory.barriers::<1>(), PipelineState::new());
//!         let copied = barriers.at(slot);
//!         if thread::linear_in_block() == 0 {
//!             copied.init(1);
//!             barrier::publish();
//!         }
//!         thread::sync_threads();
//!         if thread::linear_in_block() == 0 {
//!             copied.arrive_expecting(2 * SharedTile::<bf16, 64>::BYTES);
//!             a.load(a_tile, [0, 0], copied);
//!             b.load(b_tile, [0, 0], copied);
//!         }
//!         copied.wait(slot.parity());
//!         let mut batch = Accumulator::<64>::new().pending().begin();
//!         batch.mma(a_tile, b_tile, false);
//!         let sums = batch.commit().wait();
//!         let (warp, lane) = (thread::linear_in_block() as usize / 32, thread::linear_in_block() as usize % 32);
//!         for (register, sum) in sums.registers().iter().enumerate() {
//!             let row = 16 * warp + lane / 4 + 8 * (register / 2 % 2);
//!             let column = 8 * (register / 4) + 2 * (lane % 4) + register % 2;
//!             out.add(64 * row + column).write(*sum);
//!         }
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let a: Vec<bf16> = (0..64 * 64).map(|i| bf16::from_f32((i % 7) as f32)).collect();
//! let a = DeviceBuffer::from_host(&stream, &a)?;
//! // The identity matrix.
//! let b: Vec<bf16> = (0..64 * 64).map(|i| bf16::from_f32(f32::from(u8::from(i % 65 == 0)))).collect();
//! let b = DeviceBuffer::from_host(&stream, &b)?;
//! let mut out = DeviceBuffer::<f32>::zeros(&stream, 64 * 64)?;
//! let layout = TensorLayout::packed([64, 64], [64, 64], Swizzle::Bytes128);
//! let (a, b) = (a.as_slice().tensor_map(&layout)?, b.as_slice().tensor_map(&layout)?);
//! let launch = Launch::grid_block(1, 128).shared(SharedMemory::bytes(2 * SharedTile::<bf16, 64>::BYTES, 1));
//! // SAFETY: the boxes, the output and the shared memory have the required sizes.
//! unsafe { module.kernel::<multiply>()?.launch_unsafe(&stream, launch, (&a, &b, &mut out))? };
//! let expected = (0..64 * 64).map(|i| (i % 7) as f32);
//! assert!(out.to_host()?.into_iter().eq(expected));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

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
pub use matrix_tile::{MatrixLoads, MatrixStores, MatrixTile, MatrixTiles};
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
