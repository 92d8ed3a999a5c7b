//! Attention with `mma.sync`, for devices without `wgmma` and for head dimensions without `wgmma` kernels.

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::{Device, DeviceCopy, DeviceSlice, DeviceSliceMut, Launch, Result, Stream};
use warpsmith_tensor_kernels::attention_mma::{self as kernels, MmaShape, THREADS, shared_bytes};

use crate::IMAGE;

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl Plan<'_, '_, $ty> {
            /// Enqueues the kernel.
            pub fn launch(self) -> Result<()> {
                match (self.dim, self.stages.unwrap_or_else(|| stages(self.stream.device(), self.dim))) {
                    (64, 1) => self.run::<kernels::attention_mma<$ty, 64, 1>>(1),
                    (64, _) => self.run::<kernels::attention_mma<$ty, 64, 2>>(2),
                    (96, 1) => self.run::<kernels::attention_mma<$ty, 96, 1>>(1),
                    (96, _) => self.run::<kernels::attention_mma<$ty, 96, 2>>(2),
                    (128, 1) => self.run::<kernels::attention_mma<$ty, 128, 1>>(1),
                    (128, _) => self.run::<kernels::attention_mma<$ty, 128, 2>>(2),
                    (192, _) => self.run::<kernels::attention_mma_wide<$ty, 192>>(1),
                    (_, _) => self.run::<kernels::attention_mma_wide<$ty, 256>>(1),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Returns the number of stages of k and v: two if two blocks with two stages fit on an SM.
fn stages(device: &Device, dim: usize) -> usize {
    /// Shared memory that the driver reserves per block.
    const RESERVED: u32 = 1024;
    let shared = device.properties().shared_memory_per_multiprocessor;
    if shared / (shared_bytes(dim, 2) + RESERVED) >= 2 { 2 } else { 1 }
}

/// Attention of heads that have been checked.
pub(super) struct Plan<'a, 'c, T: DeviceCopy> {
    pub stream: &'a Stream,
    /// Number of stages of k and v; `None` for the default.
    pub stages: Option<usize>,
    /// Number of elements per row.
    pub dim: usize,
    /// Number of tiles of `tile_q(dim)` rows of all heads.
    pub tiles: u32,
    /// q, k and v.
    pub inputs: [DeviceSlice<'a, T>; 3],
    pub out: DeviceSliceMut<'c, T>,
    pub lse: Option<DeviceSliceMut<'c, f32>>,
    /// Offsets of q and of k.
    pub offsets: [Option<DeviceSlice<'a, u32>>; 2],
    pub shape: MmaShape,
}

/// Kernel parameters.
type Params<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::Optional<param::SliceMut<f32>>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<MmaShape>,
);

impl<T: DeviceCopy> Plan<'_, '_, T> {
    fn run<K: Kernel<Params = Params<T>>>(self, stages: usize) -> Result<()> {
        let Self { stream, dim, tiles, inputs: [q, k, v], out, lse, offsets, shape, .. } = self;
        let launch = Launch::grid_block(tiles, THREADS).shared(shared_bytes(dim, stages));
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = (q, k, v, out, lse, offsets[0], offsets[1], shape);
        // SAFETY: the shape describes the heads, whose sizes and alignment have been checked. `out` and `lse` are
        // borrowed exclusively, `lse` has one element per row, both offset arrays have the same length, and there is
        // one block per tile.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }
}
