//! GEMM with `mma.sync`, for devices without `wgmma` and for matrices that TMA cannot copy.

use gpu_std::tensor::mma::WarpOperand;
use gpu_std::tensor::{KMajor, MnMajor};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::{DeviceCopy, Launch, Result};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::matmul::Sizes;
use warpsmith_tensor_kernels::mma::{self as kernels, ROWS, STAGES, STEP, shared_bytes, threads};
use warpsmith_tensor_kernels::simt::Strides;

use crate::IMAGE;
use crate::error::TensorError;
use crate::matrix::{Matrix, check_rows};
use crate::schedule::multiprocessors;
use crate::simt::problem;
use crate::skinny::Product;

/// Maximum number of tiles per launch.
const MAX_TILES: u64 = i32::MAX as u64;

/// Element types with `mma.sync` kernels: `bf16` and `f16`.
pub(crate) trait MmaElement: WarpOperand + DeviceCopy {
    fn launch(product: Product<'_, '_, Self, Self>, width: usize, is_aligned: bool) -> Result<()>;
}

/// Selects the kernel instance for the layouts of `a` and `b`.
macro_rules! by_layout {
    ($product:ident, $width:literal, $kernel:ident<$ty:ty $(, $const:literal)?>) => {
        match ($product.a.is_transposed, $product.b.is_transposed) {
            (false, true) => launch::<kernels::$kernel<$ty, KMajor, KMajor $(, $const)?>, $ty>($product, $width),
            (false, false) => launch::<kernels::$kernel<$ty, KMajor, MnMajor $(, $const)?>, $ty>($product, $width),
            (true, true) => launch::<kernels::$kernel<$ty, MnMajor, KMajor $(, $const)?>, $ty>($product, $width),
            (true, false) => launch::<kernels::$kernel<$ty, MnMajor, MnMajor $(, $const)?>, $ty>($product, $width),
        }
    };
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl MmaElement for $ty {
            fn launch(product: Product<'_, '_, Self, Self>, width: usize, is_aligned: bool) -> Result<()> {
                match (is_aligned, width) {
                    (false, _) => by_layout!(product, 128, matmul_mma_unaligned<$ty>),
                    (true, 128) => by_layout!(product, 128, matmul_mma<$ty, 128>),
                    (true, _) => by_layout!(product, 256, matmul_mma<$ty, 256>),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Enqueues the GEMM of matrices that have been checked.
pub(crate) fn product<T: MmaElement>(product: Product<'_, '_, T, T>) -> Result<()> {
    let is_aligned = |name, matrix: &Matrix<'_, T>| {
        let rows = matrix.stored.columns * size_of::<T>();
        rows.is_multiple_of(16) && check_rows(product.operation, name, matrix.elements, matrix.stored).is_ok()
    };
    let is_aligned = is_aligned("a", &product.a) && is_aligned("b", &product.b);
    // Two blocks with narrow tiles fit on an SM, as does one block with wide tiles.
    let wide = tiles(&product, 256);
    let width = if wide < multiprocessors(product.stream.device()).into() { 128 } else { 256 };
    T::launch(product, width, is_aligned)
}

/// Returns the number of tiles of `c`.
fn tiles<T: DeviceCopy>(product: &Product<'_, '_, T, T>, width: usize) -> u64 {
    let c = &product.c;
    (c.rows().div_ceil(ROWS) * c.columns().div_ceil(width)) as u64 * c.planes() as u64
}

/// Parameters of the kernels.
type Params<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Value<Sizes>,
    param::Value<Strides>,
    param::Value<EpilogueParams>,
);

fn launch<K: Kernel<Params = Params<T>>, T: DeviceCopy>(
    product: Product<'_, '_, T, T>,
    width: usize,
) -> Result<()> {
    let tiles = tiles(&product, width);
    let Product { operation, stream, epilogue, a, b, c } = product;
    if tiles > MAX_TILES {
        let what = format!("c has {tiles} tiles of {ROWS} x {width}, more than {MAX_TILES}");
        return Err(TensorError::Shape { operation, what }.into());
    }
    let (sizes, strides) = problem(&a, &b, &c, STEP as u32);
    let launch = Launch::grid_block(tiles as u32, threads(ROWS, width))
        .shared(shared_bytes(ROWS, width, STEP, STAGES));
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let arguments = (a.elements, b.elements, c.elements, epilogue.bias, sizes, strides, epilogue.finish());
    // SAFETY: the sizes and strides describe the matrices, in the layouts of the kernel instance, which supports their
    // alignment; the views check that the dimensions are below 2^31. `c` is borrowed exclusively, the bias has n
    // elements, and there is one block per tile.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}
