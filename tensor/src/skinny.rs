//! Skinny GEMM (M ≤ 16) with 16-bit operands for [`matmul()`](crate::matmul()) and [`quantized`](crate::quantized).

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::Access;
use warpsmith_runtime::{Device, DeviceCopy, DeviceSliceMut, Launch, Result, Stream};
use warpsmith_tensor_kernels::dequantize::dequantize;
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::mixed::matmul_mixed;
use warpsmith_tensor_kernels::number4::Number4;
use warpsmith_tensor_kernels::skinny::{
    self as kernels, GROUP_K, GROUP_M, MAX_M, MAX_WARPS, SkinnySizes, TILE_N, matmul_row_fp4,
    matmul_row_quantized,
};

use crate::IMAGE;
use crate::epilogue::{Activation, Epilogue};
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut};
use crate::mixed::{self, MixedPlan, Quantized};
use crate::schedule::{Schedule, multiprocessors};

/// Maximum number of blocks per grid.
const MAX_BLOCKS: u32 = i32::MAX as u32;

/// Dynamic shared memory that a block can have on all GPUs of compute capability 8.0 and later, in bytes.
const MAX_SHARED: u32 = 99 << 10;

/// Fails on a device without `mma.m16n8k16`.
pub(crate) fn check_device(operation: &'static str, device: &Device) -> Result<()> {
    if device.is_emulated() || device.properties().capability >= (8, 0) {
        return Ok(());
    }
    Err(TensorError::device(operation, device, "8.0 or later"))
}

/// Returns whether a GEMM is skinny and whether its operands have the layout that these kernels require.
pub(crate) fn is_product<T: DeviceCopy>(a: &Matrix<'_, T>, b: &Matrix<'_, T>) -> bool {
    a.rows() <= MAX_M as usize && !a.is_transposed && b.is_transposed
}

/// Element types of skinny GEMMs, also with quantized weights: `bf16` and `f16`.
pub trait Element4: Number4 + DeviceCopy {
    #[doc(hidden)]
    fn launch_skinny(product: Product<'_, '_, Self, Self>) -> Result<()>;
    #[doc(hidden)]
    fn launch_quantized(product: Quantized<'_, '_, Self>) -> Result<()>;
    #[doc(hidden)]
    fn launch_mixed(product: Quantized<'_, '_, Self>) -> Result<()>;
    /// Kernels that dequantize weights.
    #[doc(hidden)]
    type DequantizeInt4: Kernel<Params = Dequantize<Self>>;
    #[doc(hidden)]
    type DequantizeInt8: Kernel<Params = Dequantize<Self>>;
    #[doc(hidden)]
    type DequantizeFp8: Kernel<Params = Dequantize<Self>>;
    #[doc(hidden)]
    type DequantizeFp4: Kernel<Params = Dequantize<Self>>;
}

/// Kernel parameters for dequantization.
#[doc(hidden)]
pub type Dequantize<T> = (
    param::Slice<u8>,
    param::Slice<u8>,
    param::Optional<param::Slice<T>>,
    param::SliceMut<T>,
    param::Value<u32>,
    param::Value<u32>,
);

/// Selects the kernel instance for the number of row groups and column tiles.
macro_rules! instance {
    ($blocks:expr, $launch:ident::<$kernel:ident<$ty:ty $(, $const:literal)*>>($($argument:expr),*)) => {
        match ($blocks.groups, $blocks.tiles) {
            (1, 1) => $launch::<kernels::$kernel<$ty, 1, 1 $(, $const)*>, $ty>($($argument,)* $blocks),
            (1, _) => $launch::<kernels::$kernel<$ty, 1, 2 $(, $const)*>, $ty>($($argument,)* $blocks),
            (_, 1) => $launch::<kernels::$kernel<$ty, 2, 1 $(, $const)*>, $ty>($($argument,)* $blocks),
            (_, _) => $launch::<kernels::$kernel<$ty, 2, 2 $(, $const)*>, $ty>($($argument,)* $blocks),
        }
    };
}

macro_rules! quantized {
    ($ty:ty, $product:ident, $sizes:ident, $blocks:ident, $codes:literal) => {
        if $product.group < GROUP_K {
            instance!($blocks, launch_quantized::<matmul_skinny_quantized<$ty, $codes, 1>>($product, $sizes))
        } else {
            instance!($blocks, launch_quantized::<matmul_skinny_quantized<$ty, $codes, 0>>($product, $sizes))
        }
    };
}

/// Selects the kernel instance for one row.
macro_rules! row {
    ($ty:ty, $product:ident, $sizes:ident, $blocks:ident, $codes:literal) => {
        match ($blocks.tiles, $product.group < GROUP_K) {
            (1, false) => {
                launch_quantized::<matmul_row_quantized<$ty, 1, $codes, 0>, $ty>($product, $sizes, $blocks)
            }
            (1, true) => {
                launch_quantized::<matmul_row_quantized<$ty, 1, $codes, 1>, $ty>($product, $sizes, $blocks)
            }
            (_, false) => {
                launch_quantized::<matmul_row_quantized<$ty, 2, $codes, 0>, $ty>($product, $sizes, $blocks)
            }
            (_, true) => {
                launch_quantized::<matmul_row_quantized<$ty, 2, $codes, 1>, $ty>($product, $sizes, $blocks)
            }
        }
    };
}

/// Selects the kernel instance for the tile of a mixed-input GEMM.
macro_rules! mixed {
    ($plan:ident, $product:ident, $sizes:ident, $ty:ty, $codes:expr) => {
        match $plan.tile {
            [32, 128] => {
                mixed::launch::<matmul_mixed<$ty, 32, 128, { $codes }>, $ty>($product, $sizes, $plan)
            }
            [32, _] => mixed::launch::<matmul_mixed<$ty, 32, 256, { $codes }>, $ty>($product, $sizes, $plan),
            [64, 128] => {
                mixed::launch::<matmul_mixed<$ty, 64, 128, { $codes }>, $ty>($product, $sizes, $plan)
            }
            [64, _] => mixed::launch::<matmul_mixed<$ty, 64, 256, { $codes }>, $ty>($product, $sizes, $plan),
            [_, 128] => {
                mixed::launch::<matmul_mixed<$ty, 128, 128, { $codes }>, $ty>($product, $sizes, $plan)
            }
            _ => mixed::launch::<matmul_mixed<$ty, 128, 256, { $codes }>, $ty>($product, $sizes, $plan),
        }
    };
}

macro_rules! elements {
    ($($ty:ident),*) => { $(
        impl Element4 for $ty {
            type DequantizeInt4 = dequantize<Self, { kernels::INT4 }>;
            type DequantizeInt8 = dequantize<Self, { kernels::INT8 }>;
            type DequantizeFp8 = dequantize<Self, { kernels::FP8 }>;
            type DequantizeFp4 = dequantize<Self, { kernels::FP4 }>;

            fn launch_skinny(product: Product<'_, '_, Self, Self>) -> Result<()> {
                let reads_early = product.b.elements.used(Access::Read).is_settled(product.stream);
                let sizes = sizes(&product.a, Some(&product.b), &product.c, &product.epilogue, reads_early);
                let blocks = Blocks::new(&sizes, product.stream.device(), 16);
                instance!(blocks, launch::<matmul_skinny<$ty>>(product, sizes))
            }

            fn launch_quantized(product: Quantized<'_, '_, Self>) -> Result<()> {
                let sizes = sizes(&product.a, None, &product.c, &product.epilogue, product.reads_early());
                let blocks = Blocks::new(&sizes, product.stream.device(), product.bits());
                match product.codes_kind {
                    kernels::FP4 if blocks.is_row => match blocks.tiles {
                        1 => launch_fp4::<matmul_row_fp4<$ty, 1>, $ty>(product, sizes, blocks),
                        _ => launch_fp4::<matmul_row_fp4<$ty, 2>, $ty>(product, sizes, blocks),
                    },
                    kernels::INT4 if blocks.is_row => row!($ty, product, sizes, blocks, 0),
                    kernels::INT4_ZEROS if blocks.is_row => row!($ty, product, sizes, blocks, 1),
                    kernels::INT4 => quantized!($ty, product, sizes, blocks, 0),
                    kernels::INT4_ZEROS => quantized!($ty, product, sizes, blocks, 1),
                    kernels::INT8 => quantized!($ty, product, sizes, blocks, 2),
                    kernels::FP8 => quantized!($ty, product, sizes, blocks, 3),
                    _ => instance!(blocks, launch_fp4::<matmul_skinny_fp4<$ty>>(product, sizes)),
                }
            }

            fn launch_mixed(product: Quantized<'_, '_, Self>) -> Result<()> {
                let sizes = sizes(&product.a, None, &product.c, &product.epilogue, false);
                let plan = MixedPlan::new(&sizes, multiprocessors(product.stream.device()));
                match product.codes_kind {
                    kernels::INT8 => mixed!(plan, product, sizes, $ty, kernels::INT8),
                    kernels::FP8 => mixed!(plan, product, sizes, $ty, kernels::FP8),
                    kernels::FP4 => mixed!(plan, product, sizes, $ty, kernels::FP4),
                    _ => mixed!(plan, product, sizes, $ty, kernels::INT4),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Validated arguments for a skinny GEMM with 16-bit operands.
#[doc(hidden)]
pub struct Product<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    pub(crate) operation: &'static str,
    pub(crate) stream: &'a Stream,
    /// Schedule of the `mma.sync` kernels; `None` selects the default schedule.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) epilogue: Epilogue<'a, C>,
    pub(crate) a: Matrix<'a, T>,
    pub(crate) b: Matrix<'a, T>,
    pub(crate) c: MatrixMut<'c, C>,
}

/// Function that enqueues a GEMM.
#[doc(hidden)]
pub type Enqueue<T, C> = fn(Product<'_, '_, T, C>) -> Result<()>;

/// Enqueues a skinny GEMM, for the element types that have kernels.
pub(crate) fn product<T: Element4>(product: Product<'_, '_, T, T>) -> Result<()> {
    T::launch_skinny(product)
}

fn sizes<T: DeviceCopy>(
    a: &Matrix<'_, T>,
    b: Option<&Matrix<'_, T>>,
    c: &MatrixMut<'_, T>,
    epilogue: &Epilogue<'_, T>,
    reads_early: bool,
) -> SkinnySizes {
    let plane =
        |matrix: &Matrix<'_, T>| if matrix.planes() == 1 { 0 } else { matrix.stored.plane_stride as u64 };
    SkinnySizes {
        m: c.rows() as u32,
        n: c.columns() as u32,
        k: a.columns() as u32,
        gate: if epilogue.activation == Activation::SwiGlu { c.columns() as u32 } else { 0 },
        reads_early: reads_early.into(),
        a_pitch: a.stored.row_stride as u64,
        b_pitch: b.map_or(0, |b| b.stored.row_stride as u64),
        c_pitch: c.stored.row_stride as u64,
        a_plane: plane(a),
        b_plane: b.map_or(0, plane),
        c_plane: c.stored.plane_stride as u64,
    }
}

/// Block tile of a skinny GEMM.
#[derive(Clone, Copy)]
struct Blocks {
    /// Number of row groups of A per block.
    groups: u32,
    /// Number of column tiles of B per block.
    tiles: u32,
    /// Number of warps per block. Each processes a part of K.
    warps: u32,
    /// The block stores the only row of A in shared memory.
    is_row: bool,
}

impl Blocks {
    /// Selects two column tiles per block for SwiGLU, and if the grid still has enough blocks: then A is read half as
    /// often. With 8-bit weights and few rows, more warps per SM are faster. Selects as few warps per block as keep the
    /// memory busy, because their sums are added at the end.
    fn new(sizes: &SkinnySizes, device: &Device, bits: u32) -> Self {
        let multiprocessors = device.properties().multiprocessors;
        let groups = if sizes.m > GROUP_M { 2 } else { 1 };
        let enough = if groups == 2 { 1 } else { 5 };
        let can_have_two = groups == 2 || bits != 8;
        let has_two =
            sizes.gate > 0 || can_have_two && sizes.n.div_ceil(2 * TILE_N) >= enough * multiprocessors;
        let (tiles, width) = match (has_two, sizes.gate) {
            (false, _) => (1, TILE_N),
            (true, 0) => (2, 2 * TILE_N),
            (true, _) => (2, TILE_N),
        };
        // Warps with quantized weights compute more per byte.
        let needed = multiprocessors.saturating_mul(if has_two && bits < 16 { 20 } else { 10 });
        let has_enough = |warps: &u32| sizes.n.div_ceil(width).saturating_mul(*warps) >= needed;
        let can_have_fewer = groups == 1 && (has_two || bits < 16);
        let warps =
            [2, 4].into_iter().filter(|_| can_have_fewer).find(has_enough).unwrap_or(MAX_WARPS as u32);
        // With weights of 16 or 8 bits, fewer instructions do not save time.
        let is_row = sizes.m == 1
            && bits == 4
            && sizes.k <= MAX_SHARED
            && kernels::shared_bytes(warps, tiles, true) + kernels::row_bytes(sizes.k) <= MAX_SHARED;
        Self { groups, tiles, warps, is_row }
    }

    /// Returns the launch configuration that covers C.
    fn launch(
        self,
        operation: &'static str,
        sizes: &SkinnySizes,
        planes: usize,
        bits: u32,
        device: &Device,
    ) -> Result<Launch> {
        let width = if sizes.gate > 0 { TILE_N } else { TILE_N * self.tiles };
        let columns = u64::from(sizes.n.div_ceil(width));
        let blocks = columns * u64::from(sizes.m.div_ceil(GROUP_M * self.groups)) * planes as u64;
        match u32::try_from(blocks) {
            Ok(blocks) if blocks <= MAX_BLOCKS => {
                let of_row = if self.is_row { kernels::row_bytes(sizes.k) } else { 0 };
                let shared = kernels::shared_bytes(self.warps, self.tiles, bits == 4) + of_row;
                let shared = spread(blocks, shared, device);
                Ok(Launch::grid_block(blocks, 32 * self.warps).shared(shared).dependent())
            }
            _ => {
                let what = format!("c requires {blocks} blocks, more than the maximum of {MAX_BLOCKS}");
                Err(TensorError::Shape { operation, what }.into())
            }
        }
    }
}

/// Returns the dynamic shared memory per block, in bytes, with which an SM can have only an equal share of the blocks.
///
/// Blocks start while the blocks of the preceding launch end. Without the limit, the first SMs that are free would get
/// more blocks than the others. With several blocks per SM, each requests just enough that one more does not fit, so
/// that blocks of the preceding launch can be on the same SM. With one block per SM, the block requests all shared memory,
/// so that it shares its SM with no block of the preceding launch.
fn spread(blocks: u32, needed: u32, device: &Device) -> u32 {
    let properties = device.properties();
    if device.is_emulated() {
        return needed;
    }
    let per_multiprocessor = blocks.div_ceil(properties.multiprocessors.max(1)).max(1);
    let (all, reserved) =
        (properties.shared_memory_per_multiprocessor, properties.reserved_shared_memory_per_block);
    let most = (all / per_multiprocessor).saturating_sub(reserved) & !127;
    let least = (all / (per_multiprocessor + 1)).saturating_sub(reserved).next_multiple_of(128) + 128;
    let share = if per_multiprocessor > 1 { least.min(most) } else { most };
    share.min(properties.shared_memory_per_block_optin).max(needed)
}

/// Kernel parameters for 16-bit operands.
type Plain<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Value<f32>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

/// Kernel parameters for quantized weights.
type Coded<T> = (
    param::Slice<T>,
    param::Slice<u8>,
    param::Slice<T>,
    param::Optional<param::Slice<T>>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Value<f32>,
    param::Value<u32>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

/// Kernel parameters for FP4 weights.
type CodedFp4<T> = (
    param::Slice<T>,
    param::Slice<u8>,
    param::Slice<u8>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Value<f32>,
    param::Value<u32>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

fn launch<K: Kernel<Params = Plain<T>>, T: Element4>(
    product: Product<'_, '_, T, T>,
    sizes: SkinnySizes,
    blocks: Blocks,
) -> Result<()> {
    let Product { operation, stream, epilogue, a, b, c, .. } = product;
    let launch = blocks.launch(operation, &sizes, c.planes(), 16, stream.device())?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let c: DeviceSliceMut<'_, T> = c.elements;
    let (norm, epsilon) = epilogue.norm();
    let arguments = (a.elements, b.elements, c, epilogue.bias, norm, epsilon, sizes, epilogue.finish());
    // SAFETY: the sizes describe the matrices, whose rows start on 16-byte boundaries. `c` is borrowed exclusively, the
    // bias has an element per column of `b`, the norm has one per column of `a`, and the grid covers C.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}

fn launch_quantized<K: Kernel<Params = Coded<T>>, T: Element4>(
    product: Quantized<'_, '_, T>,
    sizes: SkinnySizes,
    blocks: Blocks,
) -> Result<()> {
    let bits = product.bits();
    let Quantized { operation, stream, epilogue, a, group, codes, scales, zeros, c, .. } = product;
    let launch = blocks.launch(operation, &sizes, 1, bits, stream.device())?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let c: DeviceSliceMut<'_, T> = c.elements;
    let ((norm, epsilon), finish) = (epilogue.norm(), epilogue.finish());
    let scales = scales.cast::<T>()?;
    let arguments = (a.elements, codes, scales, zeros, c, epilogue.bias, norm, epsilon, group, sizes, finish);
    // SAFETY: as above; the lengths and addresses of the codes, scales and zero points have been checked.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}

fn launch_fp4<K: Kernel<Params = CodedFp4<T>>, T: Element4>(
    product: Quantized<'_, '_, T>,
    sizes: SkinnySizes,
    blocks: Blocks,
) -> Result<()> {
    let bits = product.bits();
    let Quantized { operation, stream, epilogue, a, group, codes, scales, c, .. } = product;
    let launch = blocks.launch(operation, &sizes, 1, bits, stream.device())?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let c: DeviceSliceMut<'_, T> = c.elements;
    let ((norm, epsilon), finish) = (epilogue.norm(), epilogue.finish());
    let arguments = (a.elements, codes, scales, c, epilogue.bias, norm, epsilon, group, sizes, finish);
    // SAFETY: as above.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}
