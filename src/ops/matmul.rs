//! GEMM with the fastest implementation that supports the device and the matrices.

use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{Error, Result, Stream};
use warpsmith_tensor::{GemmElement, TensorError};

pub use warpsmith_tensor::{
    Activation, BlockScales, Epilogue, F8E4M3, Fp8Weights, GroupedElement, Int4Buffer, Int4Host, Int4Weights,
    Int8Buffer, Int8Host, Int8Weights, Matrix, MatrixMut, Mxfp4Weights, Nvfp4Weights, PackedWords, RmsNorm,
    Routing, RoutingElement, Weights4Bit, Weights8Bit, matmul_4bit, matmul_8bit, matmul_f32, matmul_grouped,
    matmul_scaled, matmul_tf32x3,
};

/// An element type of [`matmul()`], with the output type in parentheses if it differs: `bf16`, `f16`, `i8` (to `i32`)
/// or [`F8E4M3`] (to `bf16`). The trait is sealed.
///
/// ```
/// # use warpsmith::{bf16, prelude::*};
/// use warpsmith::ops::{self, Float, MatrixNumber};
///
/// /// Sum of the elements of `x * x`, for a square matrix with this number of rows.
/// fn sum_of_square<T: Float + MatrixNumber<Output = T>>(
///     stream: &Stream,
///     x: &DeviceBuffer<T>,
///     rows: usize,
/// ) -> Result<T, Error> {
///     let mut square = DeviceBuffer::<T>::uninit(stream, x.len())?;
///     let matrix = x.as_2d(rows, rows)?;
///     ops::matmul(stream, matrix, matrix, square.as_2d_mut(rows, rows)?)?;
///     ops::sum(stream, &square)
/// }
///
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[bf16::ONE; 64])?;
/// assert_eq!(sum_of_square(&stream, &x, 8)?.to_f32(), 512.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub trait MatrixNumber: GemmElement {
    /// True if [`Self::by_library`] computes GEMMs.
    #[doc(hidden)]
    const HAS_LIBRARY: bool = false;
    /// Runs the GEMM with cuBLAS, for operands that this crate's kernels do not support. `error` states the reason.
    #[doc(hidden)]
    fn by_library(product: Product<'_, '_, Self>, error: Error) -> Result<()> {
        let _ = product;
        Err(error)
    }
}

/// The operands of a GEMM.
#[doc(hidden)]
pub struct Product<'a, 'c, T: GemmElement> {
    stream: &'a Stream,
    epilogue: Epilogue<'a, T::Output>,
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: MatrixMut<'c, T::Output>,
}

/// True if cuBLAS can be used.
const HAS_BLAS: bool = cfg!(feature = "blas");

impl MatrixNumber for F8E4M3 {}

macro_rules! by_library {
    ($($ty:ident),*) => { $(
        impl MatrixNumber for $ty {
            const HAS_LIBRARY: bool = HAS_BLAS;
            #[cfg(feature = "blas")]
            fn by_library(product: Product<'_, '_, Self>, _error: Error) -> Result<()> {
                library::$ty(product)
            }
        }
    )* };
}

by_library!(bf16, f16, i8);

/// GEMM: `c = a * b`, where `a` is m×k, `b` is k×n and `c` is m×n. Each operand is a 2-D view or a 3-D view, which is a
/// batch. `a` and `b` can be transposed (see [`Matrix::transposed`]). An unbatched `a` or `b` is broadcast over the
/// batch. Sums are accumulated in `f32` (for `i8`, in `i32`) and rounded once. For [`F8E4M3`], Hopper's tensor cores
/// add products with about 14 mantissa bits.
///
/// Rust kernels run on GPUs with compute capability 8.0 or later and on the emulated device, for all layouts and
/// alignments. They are slow if the address, row stride or plane stride of `a` or `b` is not a multiple of 16 bytes, or
/// for 8-bit types, if `a` is transposed or `b` is not. With the feature `blas`, cuBLAS multiplies such matrices,
/// except for [`F8E4M3`]. On GPUs other than Hopper, they are also slow if the length of a row of `a` or `b` is not a
/// multiple of 16 bytes; cuBLAS is not used in this case.
///
/// # Errors
/// Returns [`TensorError::Shape`], the [enqueue errors](crate::Error#enqueue-errors) and cuBLAS errors. Without cuBLAS,
/// also returns [`TensorError::Device`] for a compute capability below 8.0.
///
/// ```
/// # use warpsmith::{bf16, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let numbers = |count| (0..count).map(|i| bf16::from_f32((i % 5) as f32)).collect::<Vec<_>>();
/// let a = DeviceBuffer::from_host(&stream, &numbers(2 * 8))?;
/// let b = DeviceBuffer::from_host(&stream, &numbers(16 * 8))?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 2 * 16)?;
/// // 16 rows of 8, read as 8 x 16.
/// let columns = ops::Matrix::from(b.as_2d(16, 8)?).transposed();
/// ops::matmul(&stream, a.as_2d(2, 8)?, columns, c.as_2d_mut(2, 16)?)?;
/// // The first row of both is 0 1 2 3 4 0 1 2.
/// assert_eq!(c.to_host()?[0].to_f32(), 35.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn matmul<'a, 'b, 'c, T: MatrixNumber>(
    stream: &Stream,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    let epilogue = Epilogue::default();
    Product { stream, epilogue, a: a.into(), b: b.into(), c: c.into() }.run(T::HAS_LIBRARY, T::by_library)
}

/// Computes `c = activation(scale * a * b + bias)`. The [`Epilogue`] is fused into the GEMM, so there is no separate
/// pass over `c`. Otherwise like [`matmul()`].
///
/// # Errors
/// Returns the same errors as [`matmul()`], and [`TensorError::Shape`] if the length of the bias differs from the
/// number of columns of `c`.
///
/// ```
/// # use warpsmith::{bf16, ops, prelude::*};
/// use warpsmith::ops::{Activation, Epilogue};
///
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let ones = |count| vec![bf16::ONE; count];
/// let x = DeviceBuffer::from_host(&stream, &ones(2 * 8))?;
/// let weights = DeviceBuffer::from_host(&stream, &ones(8 * 16))?;
/// let bias = DeviceBuffer::from_host(&stream, &vec![bf16::from_f32(-10.0); 16])?;
/// let mut y = DeviceBuffer::<bf16>::uninit(&stream, 2 * 16)?;
/// let epilogue = Epilogue { bias: Some(bias.as_slice()), activation: Activation::Relu, ..Epilogue::default() };
/// ops::matmul_fused(&stream, &epilogue, x.as_2d(2, 8)?, weights.as_2d(8, 16)?, y.as_2d_mut(2, 16)?)?;
/// assert_eq!(y.to_host()?, [bf16::ZERO; 32]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn matmul_fused<'a, 'b, 'c, T: MatrixNumber<Sum = f32>>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    Product { stream, epilogue: *epilogue, a: a.into(), b: b.into(), c: c.into() }
        .run(T::HAS_LIBRARY, T::by_library)
}

/// Like [`matmul_fused()`], but for `f32` operands in TF32. Only their upper 19 bits (sign, 8 exponent bits, 10
/// mantissa bits) are multiplied. The other bits are truncated, so the product of two elements has a relative error of
/// up to 2^-9. The GEMM is slow if `a` is transposed, `b` is not, or `a` or `b` is not aligned to 16
/// bytes; with the feature `blas`, cuBLAS computes it.
///
/// # Errors
/// Returns the same errors as [`matmul_fused()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let a = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
/// // Two rows of 4, read as 4 x 2.
/// let b = DeviceBuffer::from_host(&stream, &[1.0f32, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0])?;
/// let mut c = DeviceBuffer::uninit(&stream, 2)?;
/// let columns = ops::Matrix::from(b.as_2d(2, 4)?).transposed();
/// let epilogue = ops::Epilogue::default();
/// ops::matmul_tf32(&stream, &epilogue, a.as_2d(1, 4)?, columns, c.as_2d_mut(1, 2)?)?;
/// assert_eq!(c.to_host()?, [10.0, 0.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn matmul_tf32<'a, 'b, 'c>(
    stream: &Stream,
    epilogue: &Epilogue<'_, f32>,
    a: impl Into<Matrix<'a, f32>>,
    b: impl Into<Matrix<'b, f32>>,
    c: impl Into<MatrixMut<'c, f32>>,
) -> Result<()> {
    let _site = site();
    Product { stream, epilogue: *epilogue, a: a.into(), b: b.into(), c: c.into() }.run(
        HAS_BLAS,
        |product, error| {
            #[cfg(feature = "blas")]
            {
                let _ = error;
                library::tf32(product)
            }
            #[cfg(not(feature = "blas"))]
            {
                let _ = product;
                Err(error)
            }
        },
    )
}

impl<T: GemmElement> Product<'_, '_, T> {
    /// Runs the GEMM with our kernels, or with `library` if they do not support the device. If `has_library` is true,
    /// the library also multiplies matrices for which our kernels are slow.
    fn run(mut self, has_library: bool, library: impl FnOnce(Self, Error) -> Result<()>) -> Result<()> {
        let Self { stream, ref epilogue, a, b, ref mut c } = self;
        let result = warpsmith_tensor::matmul_or_library(stream, has_library, epilogue, a, b, c.reborrow());
        let Err(error) = result else { return Ok(()) };
        match error.downcast_ref() {
            Some(TensorError::Alignment { .. } | TensorError::Layout { .. } | TensorError::Device { .. })
                if epilogue.activation != Activation::SwiGlu && !epilogue.accumulate =>
            {
                library(self, error)
            }
            _ => Err(error),
        }
    }
}

#[cfg(feature = "blas")]
mod library {
    use warpsmith_libraries::blas::{self, Layout, Math};
    use warpsmith_runtime::{DeviceCopy, Result};
    use warpsmith_tensor::{Activation, Matrix, MatrixMut};

    use super::{Product, bf16, f16};

    fn matrix<T: DeviceCopy>(matrix: Matrix<'_, T>) -> Result<blas::Matrix<'_, T>> {
        let stored = if matrix.is_transposed() { matrix.transposed() } else { matrix };
        let layout = Layout::new(stored.rows(), stored.columns()).with_row_stride(stored.row_stride());
        let layout = layout.with_batch(stored.planes(), stored.plane_stride());
        let layout = if matrix.is_transposed() { layout.transposed() } else { layout };
        blas::Matrix::with_layout(matrix.elements(), layout)
    }

    fn matrix_mut<T: DeviceCopy>(matrix: MatrixMut<'_, T>) -> Result<blas::MatrixMut<'_, T>> {
        let layout = Layout::new(matrix.rows(), matrix.columns()).with_row_stride(matrix.row_stride());
        let layout = layout.with_batch(matrix.planes(), matrix.plane_stride());
        blas::MatrixMut::with_layout(matrix.into_elements(), layout)
    }

    macro_rules! floats {
        ($($name:ident: $ty:ty, $math:expr;)*) => { $(
            pub fn $name(product: Product<'_, '_, $ty>) -> Result<()> {
                let Product { stream, epilogue, a, b, c } = product;
                let activation = match epilogue.activation {
                    // SwiGLU is not computed by the library.
                    Activation::None | Activation::SwiGlu => blas::Activation::None,
                    Activation::Relu => blas::Activation::Relu,
                    Activation::Gelu => blas::Activation::Gelu,
                };
                let math: Option<Math> = $math(blas::math(stream.device()));
                let (alpha, bias) = (epilogue.scale, epilogue.bias);
                let options = blas::Matmul { alpha, bias, activation, math, ..blas::Matmul::default() };
                blas::matmul(stream, &options, matrix(a)?, matrix(b)?, matrix_mut(c)?)
            }
        )* };
    }

    floats! {
        bf16: bf16, |_| None;
        f16: f16, |_| None;
        tf32: f32, |math| Some(Math { allow_tf32: true, ..math });
    }

    pub fn i8(Product { stream, a, b, c, .. }: Product<'_, '_, i8>) -> Result<()> {
        blas::gemm(stream, blas::Gemm::default(), matrix(a)?, matrix(b)?, matrix_mut(c)?)
    }
}
