//! Mixed-input GEMM: quantized weights, converted in registers, for [`quantized`](crate::quantized).

use gpu_std::{Kernel, param};
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::extension::Access;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, Launch, Result, Stream};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::mixed::{THREADS, shared_bytes, step};
use warpsmith_tensor_kernels::mma::workspace_bytes;
use warpsmith_tensor_kernels::skinny::{FP4, GROUP_K, SkinnySizes, bits_of};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut};
use crate::schedule::with_workspace;

/// Minimum number of stages per part of K.
const MIN_STAGES: usize = 4;

/// Validated arguments for a GEMM with quantized weights.
#[doc(hidden)]
pub struct Quantized<'a, 'c, T: DeviceCopy> {
    pub(crate) operation: &'static str,
    pub(crate) stream: &'a Stream,
    pub(crate) epilogue: Epilogue<'a, T>,
    pub(crate) a: Matrix<'a, T>,
    /// [`INT4`](warpsmith_tensor_kernels::skinny::INT4), for example.
    pub(crate) codes_kind: usize,
    pub(crate) group: u32,
    pub(crate) codes: DeviceSlice<'a, u8>,
    /// Bytes of the scales.
    pub(crate) scales: DeviceSlice<'a, u8>,
    pub(crate) zeros: Option<DeviceSlice<'a, T>>,
    pub(crate) c: MatrixMut<'c, T>,
}

impl<T: DeviceCopy> Quantized<'_, '_, T> {
    /// Returns the number of bits per code.
    pub(crate) fn bits(&self) -> u32 {
        bits_of(self.codes_kind) as u32
    }

    /// Returns the number of bytes per scale.
    pub(crate) fn scale_bytes(&self) -> usize {
        if self.codes_kind == FP4 { 1 } else { size_of::<T>() }
    }

    /// Returns whether a kernel may read the weights before the preceding launches have completed.
    pub(crate) fn reads_early(&self) -> bool {
        let (codes, scales) = (self.codes.used(Access::Read), self.scales.used(Access::Read));
        let zeros = self.zeros.map(|zeros| zeros.used(Access::Read));
        [Some(codes), Some(scales), zeros].iter().flatten().all(|part| part.is_settled(self.stream))
    }
}

/// Schedule of a mixed-input GEMM.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixedPlan {
    /// Numbers of rows and columns of a tile.
    pub(crate) tile: [usize; 2],
    /// Number of columns of A per block.
    part_k: usize,
    /// Number of blocks per tile (split-K).
    parts: usize,
}

impl MixedPlan {
    /// Selects wide tiles if there are enough of them, and otherwise a larger split-K. The steps of narrow tiles can be
    /// too long for a k that is no multiple of [`GROUP_K`].
    pub(crate) fn new(sizes: &SkinnySizes, multiprocessors: u32) -> Self {
        let [m, k] = [sizes.m as usize, sizes.k as usize];
        let columns = sizes.n as usize * if sizes.gate > 0 { 2 } else { 1 };
        let multiprocessors = multiprocessors as usize;
        let rows = [32, 64].into_iter().find(|&rows| m <= rows).unwrap_or(128);
        let tiles = |width: usize| m.div_ceil(rows) * columns.div_ceil(width);
        let must_be_wide = !k.is_multiple_of(GROUP_K as usize);
        let width = if must_be_wide || 4 * tiles(256) >= 3 * multiprocessors { 256 } else { 128 };
        let tiles = tiles(width);
        let steps = k / step(rows, width);
        let parts = (multiprocessors / tiles).clamp(1, (steps / MIN_STAGES).max(1));
        let part_k = steps.div_ceil(parts) * step(rows, width);
        Self { tile: [rows, width], part_k, parts: k.div_ceil(part_k) }
    }
}

/// Kernel parameters.
pub(crate) type Params<T> = (
    param::Slice<T>,
    param::Slice<u8>,
    param::Slice<u8>,
    param::Optional<param::Slice<T>>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::PointerMut<u32>,
    param::Value<u32>,
    param::Value<u32>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

/// Enqueues the kernel for the tile of the plan.
pub(crate) fn launch<K: Kernel<Params = Params<T>>, T: DeviceCopy>(
    product: Quantized<'_, '_, T>,
    sizes: SkinnySizes,
    plan: MixedPlan,
) -> Result<()> {
    let bits = product.bits() as usize;
    let Quantized { operation, stream, epilogue, a, group, codes, scales, zeros, c, .. } = product;
    let MixedPlan { tile: [rows, columns], part_k, parts } = plan;
    let width = if sizes.gate > 0 { columns / 2 } else { columns };
    let blocks = c.rows().div_ceil(rows) as u64 * c.columns().div_ceil(width) as u64 * parts as u64;
    let Ok(grid) = i32::try_from(blocks) else {
        let what = format!("c requires {blocks} blocks, more than the maximum of {}", i32::MAX);
        return Err(TensorError::Shape { operation, what }.into());
    };
    let launch =
        Launch::grid_block(grid as u32, THREADS).shared(shared_bytes(rows, columns, bits)).dependent();
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let enqueue = |workspace: DevicePtr| {
        let (bias, finish, part_k) = (epilogue.bias, epilogue.finish(), part_k as u32);
        let arguments =
            (a.elements, codes, scales, zeros, c.elements, bias, workspace, group, part_k, sizes, finish);
        // SAFETY: the sizes describe the matrices; the lengths and addresses of all operands have been checked. `c` is
        // borrowed exclusively, and there is one block per tile and part. The workspace has room for the parts, if
        // there are several.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    };
    if parts == 1 {
        return enqueue(DevicePtr::NULL);
    }
    with_workspace(stream, workspace_bytes(rows, columns, blocks as usize), enqueue)
}
