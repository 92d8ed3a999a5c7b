//! [`gemv`]: matrix-vector products.

use cudarc::cublas::sys;

use super::gemm::{Gemm, gemm, operation};
use super::handle::{self, Handle, check};
use super::matrix::{Layout, Matrix, MatrixMut};
use super::types::{Scale, VectorType};
use super::vector_view::{Vector, VectorMut};
use crate::element::DataType;
use crate::error::{LibraryError, check_devices};
use warpsmith_runtime::extension::{Access, site};
use warpsmith_runtime::{Result, Stream};

/// Enqueues `y = alpha * a * x + beta * y`.
///
/// If `beta` is 0, `y` is not read. If `a` has no columns, the product is 0. The call can be captured in a graph.
///
/// ```
/// use warpsmith_libraries::blas::{self, Gemm};
/// # use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::from_host(&stream, &[1f64, 2.0, 3.0, 4.0])?;
/// let x = DeviceBuffer::from_host(&stream, &[1f64, 10.0])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// blas::gemv(&stream, Gemm::default(), a.as_2d(2, 2)?, &x, &mut y)?;
/// assert_eq!(y.to_host()?, [21.0, 43.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`LibraryError::Shape`] if lengths do not match or `a` is a batch. Also returns the other errors that
/// [`gemm`](super::gemm) returns.
#[track_caller]
pub fn gemv<'a, 'x, 'y, T: VectorType>(
    stream: &Stream,
    options: Gemm<Scale<T>>,
    a: impl Into<Matrix<'a, T>>,
    x: impl Into<Vector<'x, T>>,
    y: impl Into<VectorMut<'y, T>>,
) -> Result<()> {
    let _site = site();
    let (a, x, y) = (a.into(), x.into(), y.into());
    let (rows, cols, count) = (a.rows(), a.columns(), a.layout.count());
    if count != 1 || x.len() != cols || y.len() != rows {
        let problem = format!(
            "a is a batch of {count} matrices of {rows} x {cols}, x has {} elements and y has {}; a must be a single m \
             x n matrix, x must have n elements, and y must have m",
            x.len(),
            y.len()
        );
        return Err(LibraryError::shape("gemv", problem));
    }
    let is_wide = matches!(T::TYPE, DataType::F32 | DataType::F64);
    if stream.device().is_emulated() || !is_wide || rows == 0 || cols == 0 {
        let column = |len, stride| Layout::new(len, 1).with_row_stride(stride);
        let x = Matrix { slice: x.slice, layout: column(cols, x.stride) };
        let y = MatrixMut { slice: y.slice, layout: column(rows, y.stride) };
        return gemm(stream, options, a, x, y);
    }
    let used = [(a.slice.device(), "a"), (x.slice.device(), "x"), (y.slice.device(), "y")];
    check_devices(stream, "multiplying a matrix and a vector", used)?;
    let parts = [a.slice.used(Access::Read), x.slice.used(Access::Read), y.slice.used()];
    let (layout, at_a) = (a.layout, a.slice.as_device_ptr().0);
    let [at_x, at_y] = [x.slice.as_device_ptr().0, y.slice.as_device_ptr().0];
    let Gemm { alpha, beta, .. } = &options;
    macro_rules! call {
        ($function:ident, $type:ty, $handle:expr) => {
            // SAFETY: the handle is alive and used only here. Matrix and vectors lie inside memory that is recorded as
            // used. They and the scalars have this element type.
            unsafe {
                sys::$function(
                    $handle.raw(),
                    // cuBLAS treats a row-major matrix as its transpose.
                    operation(!layout.is_transposed),
                    layout.stored_cols as i64,
                    layout.stored_rows as i64,
                    std::ptr::from_ref(alpha).cast::<$type>(),
                    at_a as *const $type,
                    layout.leading(),
                    at_x as *const $type,
                    x.stride as i64,
                    std::ptr::from_ref(beta).cast::<$type>(),
                    at_y as *mut $type,
                    y.stride as i64,
                )
            }
        };
    }
    handle::enqueue_gpu(stream, "blas::gemv", &parts, |handle: &mut Handle| match T::TYPE {
        DataType::F64 => check("cublasDgemv", call!(cublasDgemv_v2_64, f64, handle)),
        _ => check("cublasSgemv", call!(cublasSgemv_v2_64, f32, handle)),
    })
}
