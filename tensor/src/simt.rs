//! [`matmul_f32()`]: `f32` GEMM in full precision.

use gpu_std::tensor::{KMajor, MnMajor};
use gpu_std::{Kernel, param};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, Launch, Result, Stream};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::matmul::Sizes;
use warpsmith_tensor_kernels::simt::{STEP_K, Strides, THREADS, TILE, matmul_simt};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut, Stored, check_sides};
use crate::skinny::check_device;

const OPERATION: &str = "matmul_f32";
/// Maximum number of tiles per launch.
const MAX_TILES: u64 = i32::MAX as u64;

/// Full-precision `f32` GEMM without tensor cores: `c = activation(scale * a * b + bias)`, with `a` m×k, `b` k×n and
/// `c` m×n, for each matrix of a batch. An unbatched `a` or `b` is broadcast over the batch. The absolute error is at
/// most k * 2^-24 times the sum of the absolute products. The products are added in order of increasing k. `a` and `b`
/// can be transposed. Matrices can have any alignment and stride; accesses are faster if addresses and strides are
/// multiples of 16 bytes. With k = 0 the sums are zero.
///
/// # Errors
/// Returns [`TensorError::Shape`]; [`TensorError::Device`] for a compute capability below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, matmul_f32};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let b = DeviceBuffer::from_host(&stream, &[1.0, 0.5, 0.25])?;
/// let mut c = DeviceBuffer::zeros(&stream, 2)?;
/// matmul_f32(&stream, &Epilogue::default(), a.as_2d(2, 3)?, b.as_2d(3, 1)?, c.as_2d_mut(2, 1)?)?;
/// assert_eq!(c.to_host()?, [2.75, 8.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_f32<'a, 'b, 'c>(
    stream: &Stream,
    epilogue: &Epilogue<'_, f32>,
    a: impl Into<Matrix<'a, f32>>,
    b: impl Into<Matrix<'b, f32>>,
    c: impl Into<MatrixMut<'c, f32>>,
) -> Result<()> {
    let _site = site();
    let (a, b, c) = (a.into(), b.into(), c.into());
    epilogue.check_kernel(OPERATION, false)?;
    check_sides(OPERATION, &a, &b, &c, c.columns())?;
    epilogue.check_bias(OPERATION, c.columns())?;
    check_device(OPERATION, stream.device())?;
    let tiles = (c.rows() as u64).div_ceil(TILE.into())
        * (c.columns() as u64).div_ceil(TILE.into())
        * c.planes() as u64;
    if tiles == 0 {
        return Ok(());
    }
    if tiles > MAX_TILES {
        let what = format!("c has {tiles} tiles of {TILE} x {TILE}, more than {MAX_TILES}");
        return Err(TensorError::Shape { operation: OPERATION, what }.into());
    }
    let product = Product { stream, epilogue, a, b, c, tiles: tiles as u32 };
    match (product.a.is_transposed, product.b.is_transposed) {
        (false, true) => product.launch::<matmul_simt<KMajor, KMajor>>(),
        (false, false) => product.launch::<matmul_simt<KMajor, MnMajor>>(),
        (true, true) => product.launch::<matmul_simt<MnMajor, KMajor>>(),
        (true, false) => product.launch::<matmul_simt<MnMajor, MnMajor>>(),
    }
}

/// Validated arguments for a GEMM.
struct Product<'a, 'c> {
    stream: &'a Stream,
    epilogue: &'a Epilogue<'a, f32>,
    a: Matrix<'a, f32>,
    b: Matrix<'a, f32>,
    c: MatrixMut<'c, f32>,
    tiles: u32,
}

type Params = (
    param::Slice<f32>,
    param::Slice<f32>,
    param::SliceMut<f32>,
    param::Optional<param::Slice<f32>>,
    param::Value<Sizes>,
    param::Value<Strides>,
    param::Value<EpilogueParams>,
);

impl Product<'_, '_> {
    fn launch<K: Kernel<Params = Params>>(self) -> Result<()> {
        let Self { stream, epilogue, a, b, c, tiles } = self;
        let (sizes, strides) = problem(&a, &b, &c, STEP_K);
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments =
            (a.elements, b.elements, c.elements, epilogue.bias, sizes, strides, epilogue.finish());
        // SAFETY: the sizes and strides describe the matrices, in the layouts of the kernel instance; the views check
        // that the dimensions are below 2^31. `c` is borrowed exclusively, the bias has n elements, and there is one
        // block per tile.
        unsafe { kernel.launch_unsafe(stream, Launch::grid_block(tiles, THREADS), arguments) }
    }
}

/// Returns the sizes and strides of a GEMM, with `step` columns of `a` per stage.
pub(crate) fn problem<T: DeviceCopy, C: DeviceCopy>(
    a: &Matrix<'_, T>,
    b: &Matrix<'_, T>,
    c: &MatrixMut<'_, C>,
    step: u32,
) -> (Sizes, Strides) {
    let strides = |stored: Stored| {
        let plane = if stored.planes == 1 { 0 } else { stored.plane_stride };
        [stored.row_stride as u64, plane as u64]
    };
    let sizes = Sizes {
        m: c.rows() as u32,
        n: c.columns() as u32,
        k: a.columns() as u32,
        batches: c.planes() as u32,
        a_planes: a.planes() as u32,
        b_planes: b.planes() as u32,
        split_stages: (a.columns() as u32).div_ceil(step),
    };
    let are_transposed = [u32::from(a.is_transposed), u32::from(!b.is_transposed)];
    (sizes, Strides { a: strides(a.stored), b: strides(b.stored), c: strides(c.stored), are_transposed })
}
