//! Attention backward with `mma.sync`, for devices without `wgmma` and for head dimensions without `wgmma` kernels.

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Launch, Result};
use warpsmith_tensor_kernels::attention_backward_mma::{
    self as kernels, BackwardShape, Tiling, ZERO_ROWS, ZERO_THREADS,
};
use warpsmith_tensor_kernels::sequences::{HeadStrides, Sequences};

use super::{Attended, Call, Gradients, HeadElement, OPERATION};
use crate::IMAGE;
use crate::attention::{MAX_TILES, factor, raster_group, strides};
use crate::error::TensorError;
use crate::heads::Extents;

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl Call<'_, '_, $ty> {
            /// Enqueues the kernels with `mma.sync`. `is_small` selects the small tiling, or `None` the tiling for the
            /// device.
            pub fn launch_mma(self, is_small: Option<bool>, delta: &DeviceBuffer<f32>) -> Result<()> {
                use kernels::{attention_backward_mma as large, attention_backward_mma_small as small};
                use kernels::attention_backward_mma_narrow as narrow;
                type Zero = kernels::attention_backward_zero<$ty>;
                let dim = self.dim();
                let is_small = is_small.unwrap_or_else(|| is_small_for(self.stream.device(), dim));
                match (dim, is_small) {
                    (64, _) => self.run_mma::<large<$ty, 64>, Zero>(is_small, delta),
                    (96, false) => self.run_mma::<large<$ty, 96>, Zero>(is_small, delta),
                    (128, false) => self.run_mma::<large<$ty, 128>, Zero>(is_small, delta),
                    (192, false) => self.run_mma::<large<$ty, 192>, Zero>(is_small, delta),
                    (96, true) => self.run_mma::<small<$ty, 96>, Zero>(is_small, delta),
                    (128, true) => self.run_mma::<small<$ty, 128>, Zero>(is_small, delta),
                    (192, true) => self.run_mma::<small<$ty, 192>, Zero>(is_small, delta),
                    (_, true) => self.run_mma::<narrow<$ty>, Zero>(is_small, delta),
                    (_, false) => self.run_mma::<large<$ty, 256>, Zero>(is_small, delta),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Minimum number of heads of k that are scheduled together.
const MIN_RASTER_GROUP: u32 = 16;

/// Returns whether the large tiling does not fit in the shared memory of the device.
fn is_small_for(device: &Device, dim: usize) -> bool {
    /// Static shared memory of the kernel, and the bytes before the aligned dynamic shared memory.
    const BEFORE: u32 = 1024;
    let needed = Tiling::new(dim, false).shared_bytes(dim) + BEFORE;
    device.properties().shared_memory_per_block_optin < needed
}

/// Parameters of the kernel.
type Params<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::Slice<T>,
    param::Slice<T>,
    param::Slice<f32>,
    param::Slice<f32>,
    param::SliceMut<T>,
    param::SliceMut<T>,
    param::SliceMut<T>,
    param::SliceMut<f32>,
    param::AtomicSlice<u32>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<BackwardShape>,
);
/// Parameters of the kernel that writes zeros.
type Zeros<T> = (
    param::SliceMut<T>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<Sequences>,
    param::Value<HeadStrides>,
    param::Value<u32>,
);

/// Fails if there are too many tiles of `rows` rows.
fn count_tiles(sequences: Sequences, rows: u32, is_packed: bool) -> Result<u32> {
    let tiles = sequences.tiles(rows, is_packed);
    if tiles < MAX_TILES {
        return Ok(tiles as u32);
    }
    let what = format!("there are {tiles} tiles of {rows} rows; the kernel supports fewer than {MAX_TILES}");
    Err(TensorError::Heads { operation: OPERATION, what }.into())
}

impl<T: HeadElement> Call<'_, '_, T> {
    fn run_mma<K, Z>(self, is_small: bool, delta: &DeviceBuffer<f32>) -> Result<()>
    where
        K: Kernel<Params = Params<T>>,
        Z: Kernel<Params = Zeros<T>>,
    {
        let dim = self.dim();
        let tiling = Tiling::new(dim, is_small);
        let (of_q, of_k) = (self.attended.q.extents, self.attended.k.extents);
        let count = self.count();
        if count == 0 {
            return Ok(());
        }
        let group = of_q.heads / of_k.heads;
        // Each block reads q and the gradient of `out`. The more heads are scheduled together, the fewer blocks of a
        // head run concurrently, and the less they wait for each other.
        let read = Extents { rows: of_q.rows * group, ..of_q };
        let all = of_k.heads * count;
        let sequences =
            self.sequences(raster_group::<T>(&read, 1, all).max(MIN_RASTER_GROUP.min(all as u32)));
        let Sequences { q_rows, k_rows, .. } = sequences;
        let of_keys = Sequences { heads: of_k.heads as u32, q_rows: k_rows, k_rows: q_rows, ..sequences };
        let Self { stream, options, scale, attended, dout, gradients, .. } = self;
        let (Attended { q, k, v, lse, .. }, Gradients { q: mut dq, k: dk, v: dv }) = (attended, gradients);
        let offsets: [Option<DeviceSlice<'_, u32>>; 2] =
            [options.offsets.map(|offsets| offsets.q), options.offsets.map(|offsets| offsets.k)];
        let is_packed = options.offsets.is_some();
        let shape = BackwardShape {
            sequences,
            group: group as u32,
            is_causal: options.is_causal.into(),
            scale,
            factor: factor(scale),
            q: strides(&q.extents),
            k: strides(&k.extents),
            v: strides(&v.extents),
            dout: strides(&dout.extents),
            dq: strides(&dq.extents),
            dk: strides(&dk.extents),
            dv: strides(&dv.extents),
        };
        // All fallible operations come before the first launch, so that an error leaves nothing enqueued.
        let tiles = count_tiles(sequences, tiling.rows as u32, is_packed)? as usize;
        let blocks = count_tiles(of_keys, tiling.keys as u32, is_packed)?;
        let zero_blocks = count_tiles(sequences, ZERO_ROWS, is_packed)?;
        // A single tile of k needs no partial sums.
        let elements = if of_k.rows > tiling.keys { tiles * tiling.rows * dim } else { 0 };
        let mut partials = DeviceBuffer::<f32>::uninit(stream, elements)?;
        let mut counters = DeviceBuffer::<u32>::zeros(stream, 1 + tiles)?;
        let module = stream.device().load(&IMAGE)?;
        let (kernel, zero) = (module.kernel::<K>()?, module.kernel::<Z>()?);
        if of_q.rows > 0 && (is_packed || of_k.rows == 0) {
            let launch = Launch::grid_block(zero_blocks, ZERO_THREADS);
            let to: DeviceSliceMut<'_, T> = dq.elements.reborrow();
            let arguments = (to, offsets[0], offsets[1], sequences, shape.dq, dim as u32);
            // SAFETY: the gradient is borrowed exclusively, is aligned, and has as many rows as q. Both offset arrays
            // have the same length.
            unsafe { zero.launch_unsafe(stream, launch, arguments)? };
        }
        if of_k.rows > 0 {
            let launch = Launch::grid_block(blocks, tiling.threads).shared(tiling.shared_bytes(dim));
            let arguments = (
                q.elements,
                k.elements,
                v.elements,
                dout.elements,
                lse,
                delta,
                dq.elements,
                dk.elements,
                dv.elements,
                &mut partials,
                &mut counters,
                offsets[0],
                offsets[1],
                shape,
            );
            // SAFETY: the shape describes the heads, whose sizes and alignment have been checked. The gradients are
            // borrowed exclusively. `lse` and `delta` have one element per row, and both offset arrays have the same
            // length. The tiles of q have zeroed counters and, if there are several tiles of k, partial sums.
            unsafe { kernel.launch_unsafe(stream, launch, arguments)? };
        }
        Ok(())
    }
}
