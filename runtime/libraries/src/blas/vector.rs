//! [`gemv`], [`axpy`], [`scal`], [`dot`], [`nrm2`]: products of a matrix and a vector, and operations on vectors.
//!
//! Results that are one number go to device memory, so that nothing waits and everything may be captured.

use std::ffi::c_void;

use cudarc::cublas::sys;

use super::gemm::{Gemm, code, gemm};
use super::handle::{self, Handle, check};
use super::host::HostMatrix;
use super::matrix::{Layout, Matrix, MatrixMut};
use super::types::sealed::Sum;
use super::types::{DataType, Float, Scale};
use super::vector_view::{Vector, VectorMut};
use crate::error::LibraryError;
use crate::work::HostWork;
use warpsmith_core::error::Result;
use warpsmith_core::memory::{DeviceCopy, DeviceSliceMut};
use warpsmith_core::seam::Access;
use warpsmith_core::stream::Stream;

/// The type in which a type of floating point is summed.
fn sum_of(data: DataType) -> DataType {
    if data == DataType::F64 { DataType::F64 } else { DataType::F32 }
}

/// A vector as a matrix of one column.
fn column(len: usize, stride: usize) -> Layout {
    Layout::new(len, 1).with_stride(stride)
}

fn misfit(operation: &'static str, problem: String) -> warpsmith_core::error::Error {
    LibraryError::Shape { operation, problem }.into()
}

/// Enqueues `y = alpha * a * x + beta * y`.
///
/// With a `beta` of 0, `y` is not read. Without columns the product is 0. It may be captured.
///
/// ```
/// use warpsmith_runtime::library::blas::{self, Gemm, Matrix};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::from_host(&stream, &[1f64, 2.0, 3.0, 4.0])?;
/// let x = DeviceBuffer::from_host(&stream, &[1f64, 10.0])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// blas::gemv(&stream, Gemm::default(), Matrix::new(&a, 2, 2)?, &x, &mut y)?;
/// assert_eq!(y.to_host()?, [21.0, 43.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`LibraryError::Shape`] for lengths that do not fit, and batches; else as [`gemm`](super::gemm).
pub fn gemv<'x, 'y, T: Float>(
    stream: &Stream,
    options: Gemm<Scale<T>>,
    a: Matrix<'_, T>,
    x: impl Into<Vector<'x, T>>,
    y: impl Into<VectorMut<'y, T>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    let (rows, cols) = (a.rows(), a.cols());
    if a.layout.count() != 1 || x.len() != cols || y.len() != rows {
        return Err(misfit(
            "gemv",
            format!(
                "a is {} of {rows} x {cols}, x has {} elements and y {}: they must be one of m x n, n and m",
                a.layout.count(),
                x.len(),
                y.len()
            ),
        ));
    }
    let (x_layout, y_layout) = (column(x.len(), x.stride), column(y.len(), y.stride));
    let is_wide = matches!(T::TYPE, DataType::F32 | DataType::F64);
    if stream.device().is_emulated() || !is_wide || rows == 0 || cols == 0 {
        let x = Matrix { slice: x.slice, layout: x_layout };
        let y = MatrixMut { slice: y.slice, layout: y_layout };
        return gemm(stream, options, a, x, y);
    }
    for (device, name) in [(a.slice.device(), "a"), (x.slice.device(), "x"), (y.slice.device(), "y")] {
        stream.check_device(device, || ("multiplying a matrix and a vector".to_owned(), name.to_owned()))?;
    }
    let parts = [a.slice.used(Access::Read), x.slice.used(Access::Read), y.slice.used()];
    let pointers = (a.slice.as_device_ptr().0, x.slice.as_device_ptr().0, y.slice.as_device_ptr().0);
    let Gemm { alpha, beta, .. } = options;
    let (x_stride, y_stride) = (x.stride as i64, y.stride as i64);
    let layout = a.layout;
    // For cuBLAS a row-major matrix is its transpose.
    let operation = match layout.is_transposed {
        true => sys::cublasOperation_t::CUBLAS_OP_N,
        false => sys::cublasOperation_t::CUBLAS_OP_T,
    };
    let (alpha, beta) = (&alpha, &beta);
    macro_rules! call {
        ($function:ident, $type:ty, $handle:expr) => {
            // SAFETY: the handle is alive and ours; matrix and vectors lie inside of memory that is noted as used, and
            // are of this type, which is that of the scalars.
            unsafe {
                sys::$function(
                    $handle.raw(),
                    operation,
                    layout.stored_cols as i64,
                    layout.stored_rows as i64,
                    std::ptr::from_ref(alpha).cast::<$type>(),
                    pointers.0 as *const $type,
                    layout.leading(),
                    pointers.1 as *const $type,
                    x_stride,
                    std::ptr::from_ref(beta).cast::<$type>(),
                    pointers.2 as *mut $type,
                    y_stride,
                )
            }
        };
    }
    let call = |handle: &mut Handle| match T::TYPE {
        DataType::F64 => check("cublasDgemv", call!(cublasDgemv_v2_64, f64, handle)),
        _ => check("cublasSgemv", call!(cublasSgemv_v2_64, f32, handle)),
    };
    handle::enqueue(stream, &parts, call, || Err(LibraryError::NeedsGpu { operation: "gemv" }.into()))
}

/// A vector of the emulated device.
#[derive(Clone, Copy)]
struct HostVector(HostMatrix);

impl HostVector {
    fn new(ptr: u64, len: usize, stride: usize) -> Self {
        Self(HostMatrix { ptr, layout: column(len, stride) })
    }

    fn len(&self) -> usize {
        self.0.layout.rows()
    }

    /// # Safety
    /// As [`HostMatrix::get`].
    unsafe fn get<T: Float>(&self, index: usize) -> T::Sum {
        // SAFETY: passed on from the caller.
        unsafe { self.0.get::<T>(0, index, 0) }
    }

    /// # Safety
    /// As [`HostMatrix::set`].
    unsafe fn set<T: Float>(&self, index: usize, value: T::Sum) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.set::<T>(0, index, 0, value) }
    }
}

fn check_devices<T: DeviceCopy>(
    stream: &Stream,
    operation: &'static str,
    vectors: &[(warpsmith_core::memory::DeviceSlice<'_, T>, &'static str)],
) -> Result<()> {
    vectors.iter().try_for_each(|(vector, name)| {
        stream.check_device(vector.device(), || (operation.to_owned(), (*name).to_owned()))
    })
}

fn check_lengths(operation: &'static str, x: usize, y: usize) -> Result<()> {
    if x == y {
        return Ok(());
    }
    Err(misfit(operation, format!("x has {x} elements and y {y}: they must have as many")))
}

/// Enqueues `y = alpha * x + y`. It may be captured.
///
/// ```
/// # use warpsmith_runtime::{Device, DeviceBuffer, library::blas};
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[1f32, 2.0])?;
/// let mut y = DeviceBuffer::from_host(&stream, &[10f32, 20.0])?;
/// blas::axpy(&stream, 2.0, &x, &mut y)?;
/// assert_eq!(y.to_host()?, [12.0, 24.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`LibraryError::Shape`] for vectors of two lengths; [`LibraryError::Missing`];
/// [`Error::DifferentDevices`](warpsmith_core::Error::DifferentDevices); whatever the library or the driver reports.
pub fn axpy<'x, 'y, T: Float>(
    stream: &Stream,
    alpha: Scale<T>,
    x: impl Into<Vector<'x, T>>,
    y: impl Into<VectorMut<'y, T>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    check_lengths("axpy", x.len(), y.len())?;
    check_devices(stream, "axpy", &[(x.slice, "x"), (y.slice.as_slice(), "y")])?;
    if x.is_empty() {
        return Ok(());
    }
    let parts = [x.slice.used(Access::Read), y.slice.used()];
    let (x_ptr, y_ptr) = (x.slice.as_device_ptr().0, y.slice.as_device_ptr().0);
    let (len, x_stride, y_stride) = (x.len(), x.stride, y.stride);
    let data = T::TYPE;
    let call = |handle: &mut Handle| {
        // SAFETY: the handle is alive and ours; the vectors lie inside of memory that is noted as used, of this type;
        // the scalar is of the type that is said.
        let status = unsafe {
            sys::cublasAxpyEx_64(
                handle.raw(),
                len as i64,
                std::ptr::from_ref(&alpha).cast(),
                code(sum_of(data)),
                x_ptr as *const c_void,
                code(data),
                x_stride as i64,
                y_ptr as *mut c_void,
                code(data),
                y_stride as i64,
                code(sum_of(data)),
            )
        };
        check("cublasAxpyEx", status)
    };
    let host = || {
        let (x, y) = (HostVector::new(x_ptr, len, x_stride), HostVector::new(y_ptr, len, y_stride));
        let work: HostWork = Box::new(move || {
            for index in 0..len {
                // SAFETY: the vectors lie inside of memory that is noted as used by this work.
                unsafe { y.set::<T>(index, alpha.mul(x.get::<T>(index)).add(y.get::<T>(index))) }
            }
        });
        Ok(work)
    };
    handle::enqueue(stream, &parts, call, host)
}

/// Enqueues `x = alpha * x`. It may be captured.
///
/// # Errors
/// As [`axpy`].
pub fn scal<'x, T: Float>(stream: &Stream, alpha: Scale<T>, x: impl Into<VectorMut<'x, T>>) -> Result<()> {
    let x = x.into();
    check_devices(stream, "scal", &[(x.slice.as_slice(), "x")])?;
    if x.is_empty() {
        return Ok(());
    }
    let (ptr, len, stride, data) = (x.slice.as_device_ptr().0, x.len(), x.stride, T::TYPE);
    let call = |handle: &mut Handle| {
        // SAFETY: the handle is alive and ours; the vector lies inside of memory that is noted as used, of this type;
        // the scalar is of the type that is said.
        let status = unsafe {
            sys::cublasScalEx_64(
                handle.raw(),
                len as i64,
                std::ptr::from_ref(&alpha).cast(),
                code(sum_of(data)),
                ptr as *mut c_void,
                code(data),
                stride as i64,
                code(sum_of(data)),
            )
        };
        check("cublasScalEx", status)
    };
    let host = || {
        let x = HostVector::new(ptr, len, stride);
        let work: HostWork = Box::new(move || {
            for index in 0..len {
                // SAFETY: the vector lies inside of memory that is noted as used by this work.
                unsafe { x.set::<T>(index, alpha.mul(x.get::<T>(index))) }
            }
        });
        Ok(work)
    };
    handle::enqueue(stream, &[x.slice.used()], call, host)
}

/// The one element to which a result goes.
fn one<T: DeviceCopy>(operation: &'static str, result: &DeviceSliceMut<'_, T>) -> Result<()> {
    if result.len() == 1 {
        return Ok(());
    }
    let problem = format!("the result is one element, but there are {} for it", result.len());
    Err(misfit(operation, problem))
}

/// Enqueues the inner product of two vectors, into the one element of `result`: 0 for empty ones. It may be captured.
///
/// ```
/// # use warpsmith_runtime::{Device, DeviceBuffer, library::blas};
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[3f32, 4.0])?;
/// let mut results = DeviceBuffer::zeros(&stream, 2)?;
/// blas::dot(&stream, &x, &x, results.slice_mut(..1))?;
/// blas::nrm2(&stream, &x, results.slice_mut(1..))?;
/// assert_eq!(results.to_host()?, [25.0, 5.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`axpy`]; [`LibraryError::Shape`] when `result` is not one element.
pub fn dot<'x, 'y, 'r, T: Float>(
    stream: &Stream,
    x: impl Into<Vector<'x, T>>,
    y: impl Into<Vector<'y, T>>,
    result: impl Into<DeviceSliceMut<'r, T>>,
) -> Result<()> {
    let (x, y, result) = (x.into(), y.into(), result.into());
    check_lengths("dot", x.len(), y.len())?;
    one("dot", &result)?;
    check_devices(stream, "dot", &[(x.slice, "x"), (y.slice, "y"), (result.as_slice(), "the result")])?;
    if x.is_empty() {
        return stream.memset(result, 0);
    }
    let parts = [x.slice.used(Access::Read), y.slice.used(Access::Read), result.used()];
    let pointers = [x.slice.as_device_ptr().0, y.slice.as_device_ptr().0, result.as_device_ptr().0];
    let (len, x_stride, y_stride, data) = (x.len(), x.stride, y.stride, T::TYPE);
    let call = |handle: &mut Handle| {
        handle.set_device_scalars(true)?;
        // SAFETY: the handle is alive and ours; the vectors and the result lie inside of memory that is noted as used,
        // of this type.
        let status = unsafe {
            sys::cublasDotEx_64(
                handle.raw(),
                len as i64,
                pointers[0] as *const c_void,
                code(data),
                x_stride as i64,
                pointers[1] as *const c_void,
                code(data),
                y_stride as i64,
                pointers[2] as *mut c_void,
                code(data),
                code(sum_of(data)),
            )
        };
        check("cublasDotEx", status)
    };
    let host = || {
        let (x, y) =
            (HostVector::new(pointers[0], len, x_stride), HostVector::new(pointers[1], len, y_stride));
        let result = HostVector::new(pointers[2], 1, 1);
        let work: HostWork = Box::new(move || {
            // SAFETY: all lie inside of memory that is noted as used by this work.
            let product = |index| unsafe { x.get::<T>(index).to_f64() * y.get::<T>(index).to_f64() };
            let sum = (0..x.len()).map(product).sum();
            // SAFETY: as above.
            unsafe { result.set::<T>(0, T::Sum::from_f64(sum)) }
        });
        Ok(work)
    };
    handle::enqueue(stream, &parts, call, host)
}

/// Enqueues the Euclidean norm of a vector, into the one element of `result`: 0 for an empty one. Squares do not
/// overflow. It may be captured.
///
/// # Errors
/// As [`dot`].
pub fn nrm2<'x, 'r, T: Float>(
    stream: &Stream,
    x: impl Into<Vector<'x, T>>,
    result: impl Into<DeviceSliceMut<'r, T>>,
) -> Result<()> {
    let (x, result) = (x.into(), result.into());
    one("nrm2", &result)?;
    check_devices(stream, "nrm2", &[(x.slice, "x"), (result.as_slice(), "the result")])?;
    if x.is_empty() {
        return stream.memset(result, 0);
    }
    let parts = [x.slice.used(Access::Read), result.used()];
    let (x_ptr, result_ptr) = (x.slice.as_device_ptr().0, result.as_device_ptr().0);
    let (len, stride, data) = (x.len(), x.stride, T::TYPE);
    let call = |handle: &mut Handle| {
        handle.set_device_scalars(true)?;
        // SAFETY: the handle is alive and ours; the vector and the result lie inside of memory that is noted as used, of
        // this type.
        let status = unsafe {
            sys::cublasNrm2Ex_64(
                handle.raw(),
                len as i64,
                x_ptr as *const c_void,
                code(data),
                stride as i64,
                result_ptr as *mut c_void,
                code(data),
                code(sum_of(data)),
            )
        };
        check("cublasNrm2Ex", status)
    };
    let host = || {
        let (x, result) = (HostVector::new(x_ptr, len, stride), HostVector::new(result_ptr, 1, 1));
        let work: HostWork = Box::new(move || {
            // SAFETY: both lie inside of memory that is noted as used by this work.
            let sizes = || (0..x.len()).map(|index| unsafe { x.get::<T>(index).to_f64().abs() });
            let largest = sizes().fold(0.0, |largest: f64, size| if size > largest { size } else { largest });
            let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
            let norm = sizes().map(|size| (size / scale) * (size / scale)).sum::<f64>().sqrt() * scale;
            // SAFETY: as above.
            unsafe { result.set::<T>(0, T::Sum::from_f64(norm)) }
        });
        Ok(work)
    };
    handle::enqueue(stream, &parts, call, host)
}
