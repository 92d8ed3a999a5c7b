//! Matrix products, by the fastest that the device and the matrices allow.

use warpsmith_runtime::{DeviceSlice2, DeviceSliceMut2, Result, Stream};
use warpsmith_tensor::TensorError;

#[cfg(feature = "blas")]
use warpsmith_runtime::library::blas;

/// The types of [`matmul_tn()`]: `bf16` and `f16`.
#[cfg(feature = "blas")]
pub trait MatrixNumber: warpsmith_tensor::Element + blas::Float {}
/// The types of [`matmul_tn()`]: `bf16` and `f16`.
#[cfg(not(feature = "blas"))]
pub trait MatrixNumber: warpsmith_tensor::Element {}

impl MatrixNumber for half::bf16 {}
impl MatrixNumber for half::f16 {}

/// `c = a * b^T`, with `a` of m rows of k, `b` of n rows of k and `c` of m rows of n elements, in sums of `f32` that are rounded
/// once.
///
/// On GPUs of compute capability 9.0 and on the emulated device kernels in Rust multiply, when address and pitch of each
/// matrix are multiples of 16 bytes. Other matrices and other GPUs take cuBLAS, with the feature `blas`; without it they are
/// errors.
///
/// # Errors
/// [`TensorError::Shape`]; without the feature `blas` [`TensorError::Alignment`] and [`TensorError::Device`]; whatever the
/// runtime or cuBLAS reports.
///
/// ```
/// # use warpsmith::{bf16, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let numbers = |count| (0..count).map(|i| bf16::from_f32((i % 5) as f32)).collect::<Vec<_>>();
/// let a = DeviceBuffer::from_host(&stream, &numbers(2 * 8))?;
/// let b = DeviceBuffer::from_host(&stream, &numbers(16 * 8))?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 2 * 16)?;
/// ops::matmul_tn(&stream, &a.as_2d(8, 2)?, &b.as_2d(8, 16)?, &mut c.as_2d_mut(16, 2)?)?;
/// // The first row is 0 1 2 3 4 0 1 2, in both.
/// assert_eq!(c.to_host()?[0].to_f32(), 35.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn matmul_tn<T: MatrixNumber>(
    stream: &Stream,
    a: &DeviceSlice2<'_, T>,
    b: &DeviceSlice2<'_, T>,
    c: &mut DeviceSliceMut2<'_, T>,
) -> Result<()> {
    match warpsmith_tensor::matmul_tn(stream, a, b, c) {
        Err(error) if is_for_a_library(error.downcast_ref()) => by_library(stream, a, b, c, error),
        result => result,
    }
}

/// Whether cuBLAS multiplies what our kernels do not.
fn is_for_a_library(error: Option<&TensorError>) -> bool {
    matches!(error, Some(TensorError::Alignment { .. } | TensorError::Device { .. }))
}

#[cfg(feature = "blas")]
fn by_library<T: MatrixNumber>(
    stream: &Stream,
    a: &DeviceSlice2<'_, T>,
    b: &DeviceSlice2<'_, T>,
    c: &mut DeviceSliceMut2<'_, T>,
    _error: warpsmith_runtime::Error,
) -> Result<()> {
    let layout =
        |rows: &DeviceSlice2<'_, T>| blas::Layout::new(rows.height(), rows.width()).with_stride(rows.pitch());
    let c_layout = layout(&c.as_slice());
    let a = blas::Matrix::with_layout(a.elements(), layout(a))?;
    let b = blas::Matrix::with_layout(b.elements(), layout(b).transposed())?;
    let c = blas::MatrixMut::with_layout(c.reborrow().into_elements(), c_layout)?;
    blas::gemm(stream, blas::Gemm::default(), a, b, c)
}

#[cfg(not(feature = "blas"))]
fn by_library<T: MatrixNumber>(
    _stream: &Stream,
    _a: &DeviceSlice2<'_, T>,
    _b: &DeviceSlice2<'_, T>,
    _c: &mut DeviceSliceMut2<'_, T>,
    error: warpsmith_runtime::Error,
) -> Result<()> {
    Err(error)
}
