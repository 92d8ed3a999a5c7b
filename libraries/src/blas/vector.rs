//! [`gemv`], [`axpy`], [`scal`], [`dot`] and [`nrm2`]: matrix-vector products and vector operations.
//!
//! Scalar results are stored in device memory, so no call waits, and every call can be captured in a graph.

use std::ffi::c_void;
use std::marker::PhantomData;

use cudarc::cublas::sys;

use super::gemm::{Gemm, gemm, operation};
use super::handle::{self, Handle, check};
use super::host::HostMatrix;
use super::matrix::{Layout, Matrix, MatrixMut};
use super::types::{Scale, VectorType};
use super::vector_view::{Vector, VectorMut};
use crate::element::{DataType, LibraryType, code};
use crate::error::{LibraryError, check_devices};
use warpsmith_runtime::error::Result;
use warpsmith_runtime::extension::Access;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::memory::{DeviceCopy, DeviceSliceMut};
use warpsmith_runtime::stream::Stream;

/// Returns the cuBLAS code of the accumulation type.
fn sum_code<T: VectorType>() -> sys::cudaDataType {
    code::cublas(<Scale<T> as LibraryType>::TYPE)
}

fn check_lengths(operation: &'static str, x: usize, y: usize) -> Result<()> {
    if x == y {
        return Ok(());
    }
    Err(LibraryError::shape(
        operation,
        format!("x has {x} elements, but y has {y}: the lengths must be equal"),
    ))
}

/// Returns an error unless `result` has exactly one element.
fn check_result<T: DeviceCopy>(operation: &'static str, result: &DeviceSliceMut<'_, T>) -> Result<()> {
    if result.len() == 1 {
        return Ok(());
    }
    let problem = format!("the result is a single element, but the output has {} elements", result.len());
    Err(LibraryError::shape(operation, problem))
}

/// Addresses of a vector's elements, for work that runs later.
#[derive(Clone, Copy)]
struct Elements<T> {
    ptr: u64,
    len: usize,
    stride: usize,
    of: PhantomData<T>,
}

impl<T: VectorType> Elements<T> {
    fn of_result(result: &DeviceSliceMut<'_, T>) -> Self {
        Self { ptr: result.as_device_ptr().0, len: 1, stride: 1, of: PhantomData }
    }

    fn raw(&self) -> *mut c_void {
        self.ptr as *mut c_void
    }

    fn step(&self) -> i64 {
        self.stride as i64
    }

    fn layout(&self) -> Layout {
        Layout::new(self.len, 1).with_row_stride(self.stride)
    }

    /// # Safety
    /// The vector must be in readable memory of the process, and `index` must be in bounds.
    unsafe fn get(&self, index: usize) -> f64 {
        // SAFETY: guaranteed by the caller.
        unsafe { HostMatrix { ptr: self.ptr, layout: self.layout() }.get::<T>(0, index, 0) }
    }

    /// # Safety
    /// The conditions of [`Self::get`] apply. In addition, nothing else may access the vector.
    unsafe fn set(&self, index: usize, value: f64) {
        // SAFETY: guaranteed by the caller.
        unsafe { HostMatrix { ptr: self.ptr, layout: self.layout() }.set::<T>(0, index, 0, value) }
    }

    /// # Safety
    /// The conditions of [`Self::get`] must hold for all elements.
    unsafe fn values(&self) -> impl Iterator<Item = f64> {
        // SAFETY: guaranteed by the caller.
        (0..self.len).map(|index| unsafe { self.get(index) })
    }
}

impl<T: VectorType> Vector<'_, T> {
    fn elements(&self) -> Elements<T> {
        Elements { ptr: self.slice.as_device_ptr().0, len: self.len(), stride: self.stride, of: PhantomData }
    }
}

impl<T: VectorType> VectorMut<'_, T> {
    fn elements(&self) -> Elements<T> {
        Elements { ptr: self.slice.as_device_ptr().0, len: self.len(), stride: self.stride, of: PhantomData }
    }
}

/// Enqueues `y = alpha * a * x + beta * y`.
///
/// If `beta` is 0, `y` is not read. If `a` has no columns, the product is 0. The call can be captured in a graph.
///
/// ```
/// use warpsmith_libraries::blas::{self, Gemm};
/// # use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::from_host(&stream, &[1f64, 2.0, 3.0, 4.0])?;
/// let x = DeviceBuffer::from_host(&stream, &[1f64, 10.0])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// blas::gemv(&stream, Gemm::default(), a.as_2d(2, 2)?, &x, &mut y)?;
/// assert_eq!(y.to_host()?, [21.0, 43.0]);
/// # Ok(())
/// # }
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
            "a is {count} of {rows} x {cols}, x has {} elements and y {}: they must be one of m x n, n and m",
            x.len(),
            y.len()
        );
        return Err(LibraryError::shape("gemv", problem));
    }
    let (at_x, at_y) = (x.elements(), y.elements());
    let is_wide = matches!(T::TYPE, DataType::F32 | DataType::F64);
    if stream.device().is_emulated() || !is_wide || rows == 0 || cols == 0 {
        let x = Matrix { slice: x.slice, layout: at_x.layout() };
        let y = MatrixMut { slice: y.slice, layout: at_y.layout() };
        return gemm(stream, options, a, x, y);
    }
    let used = [(a.slice.device(), "a"), (x.slice.device(), "x"), (y.slice.device(), "y")];
    check_devices(stream, "multiplying a matrix and a vector", used)?;
    let parts = [a.slice.used(Access::Read), x.slice.used(Access::Read), y.slice.used()];
    let (layout, at_a) = (a.layout, a.slice.as_device_ptr().0);
    let Gemm { alpha, beta, .. } = &options;
    macro_rules! call {
        ($function:ident, $type:ty, $handle:expr) => {
            // SAFETY: the handle is alive and used only here. Matrix and vectors lie inside memory that is recorded as
            // used, and have elements of this type, as do the scalars.
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
                    at_x.ptr as *const $type,
                    at_x.step(),
                    std::ptr::from_ref(beta).cast::<$type>(),
                    at_y.ptr as *mut $type,
                    at_y.step(),
                )
            }
        };
    }
    handle::enqueue_gpu(stream, "blas::gemv", &parts, |handle: &mut Handle| match T::TYPE {
        DataType::F64 => check("cublasDgemv", call!(cublasDgemv_v2_64, f64, handle)),
        _ => check("cublasSgemv", call!(cublasSgemv_v2_64, f32, handle)),
    })
}

/// Enqueues `y = alpha * x + y`. The call can be captured in a graph.
///
/// ```
/// # use warpsmith_libraries::blas;
/// # use warpsmith_runtime::{Device, DeviceBuffer};
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[1f32, 2.0])?;
/// let mut y = DeviceBuffer::from_host(&stream, &[10f32, 20.0])?;
/// blas::axpy(&stream, &x, 2.0, &mut y)?;
/// assert_eq!(y.to_host()?, [12.0, 24.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns [`LibraryError::Shape`] if the vectors have different lengths. Also returns [`LibraryError::Missing`],
/// [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices), any [library
/// error](crate::LibraryError::Call), and the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn axpy<'x, 'y, T: VectorType>(
    stream: &Stream,
    x: impl Into<Vector<'x, T>>,
    alpha: Scale<T>,
    y: impl Into<VectorMut<'y, T>>,
) -> Result<()> {
    let _site = site();
    let (x, y) = (x.into(), y.into());
    check_lengths("axpy", x.len(), y.len())?;
    check_devices(stream, "axpy", [(x.slice.device(), "x"), (y.slice.device(), "y")])?;
    if x.is_empty() {
        return Ok(());
    }
    let parts = [x.slice.used(Access::Read), y.slice.used()];
    let (x, y, data, sum) = (x.elements(), y.elements(), code::cublas(T::TYPE), sum_code::<T>());
    let call = |handle: &mut Handle| {
        let (len, factor) = (x.len as i64, std::ptr::from_ref(&alpha).cast());
        // SAFETY: the handle is alive and used only here; the vectors lie inside memory that is recorded as used, with
        // elements of this type; the scalar has the accumulation type.
        check("cublasAxpyEx", unsafe {
            let (x_step, y_step) = (x.step(), y.step());
            sys::cublasAxpyEx_64(
                handle.raw(),
                len,
                factor,
                sum,
                x.raw(),
                data,
                x_step,
                y.raw(),
                data,
                y_step,
                sum,
            )
        })
    };
    let factor = alpha.to_f64();
    let host = move || {
        for index in 0..x.len {
            // SAFETY: the vectors lie inside memory that is recorded as used by this work.
            unsafe { y.set(index, factor * x.get(index) + y.get(index)) }
        }
    };
    handle::enqueue(stream, "blas::axpy", &parts, call, host)
}

/// Enqueues `x = alpha * x`. The call can be captured in a graph.
///
/// # Errors
/// Returns the same errors as [`axpy`].
#[track_caller]
pub fn scal<'x, T: VectorType>(
    stream: &Stream,
    alpha: Scale<T>,
    x: impl Into<VectorMut<'x, T>>,
) -> Result<()> {
    let _site = site();
    let vector = x.into();
    check_devices(stream, "scal", [(vector.slice.device(), "x")])?;
    if vector.is_empty() {
        return Ok(());
    }
    let (x, data, sum) = (vector.elements(), code::cublas(T::TYPE), sum_code::<T>());
    let call = |handle: &mut Handle| {
        let (len, factor) = (x.len as i64, std::ptr::from_ref(&alpha).cast());
        // SAFETY: the handle is alive and used only here; the vector lies inside memory that is recorded as used, with
        // elements of this type; the scalar has the accumulation type.
        check("cublasScalEx", unsafe {
            sys::cublasScalEx_64(handle.raw(), len, factor, sum, x.raw(), data, x.step(), sum)
        })
    };
    let factor = alpha.to_f64();
    let host = move || {
        for index in 0..x.len {
            // SAFETY: the vector lies inside memory that is recorded as used by this work.
            unsafe { x.set(index, factor * x.get(index)) }
        }
    };
    handle::enqueue(stream, "blas::scal", &[vector.slice.used()], call, host)
}

/// Enqueues the dot product of two vectors. The result is written to the single element of `result`. For empty vectors,
/// the result is 0. The call can be captured in a graph.
///
/// ```
/// # use warpsmith_libraries::blas;
/// # use warpsmith_runtime::{Device, DeviceBuffer};
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
/// Returns the same errors as [`axpy`], and [`LibraryError::Shape`] if `result` does not have exactly one element.
#[track_caller]
pub fn dot<'x, 'y, 'r, T: VectorType>(
    stream: &Stream,
    x: impl Into<Vector<'x, T>>,
    y: impl Into<Vector<'y, T>>,
    result: impl Into<DeviceSliceMut<'r, T>>,
) -> Result<()> {
    let _site = site();
    let (x, y, result) = (x.into(), y.into(), result.into());
    check_lengths("dot", x.len(), y.len())?;
    check_result("dot", &result)?;
    let used = [(x.slice.device(), "x"), (y.slice.device(), "y"), (result.device(), "the result")];
    check_devices(stream, "dot", used)?;
    if x.is_empty() {
        return stream.memset(result, 0);
    }
    let parts = [x.slice.used(Access::Read), y.slice.used(Access::Read), result.used()];
    let (x, y, to) = (x.elements(), y.elements(), Elements::of_result(&result));
    let (data, sum) = (code::cublas(T::TYPE), sum_code::<T>());
    let call = |handle: &mut Handle| {
        handle.set_device_scalars(true)?;
        let (len, x_step, y_step) = (x.len as i64, x.step(), y.step());
        // SAFETY: the handle is alive and used only here; the vectors and the result lie inside memory that is recorded
        // as used, with elements of this type.
        check("cublasDotEx", unsafe {
            let (x, y, to) = (x.raw(), y.raw(), to.raw());
            sys::cublasDotEx_64(handle.raw(), len, x, data, x_step, y, data, y_step, to, data, sum)
        })
    };
    // SAFETY: vectors and result lie inside memory that is recorded as used by this work.
    let host = move || unsafe { to.set(0, x.values().zip(y.values()).map(|(x, y)| x * y).sum()) };
    handle::enqueue(stream, "blas::dot", &parts, call, host)
}

/// Enqueues the Euclidean norm of a vector. The result is written to the single element of `result`. For an empty
/// vector, the result is 0. The squares do not overflow. The call can be captured in a graph.
///
/// # Errors
/// Returns the same errors as [`dot`].
#[track_caller]
pub fn nrm2<'x, 'r, T: VectorType>(
    stream: &Stream,
    x: impl Into<Vector<'x, T>>,
    result: impl Into<DeviceSliceMut<'r, T>>,
) -> Result<()> {
    let _site = site();
    let (x, result) = (x.into(), result.into());
    check_result("nrm2", &result)?;
    check_devices(stream, "nrm2", [(x.slice.device(), "x"), (result.device(), "the result")])?;
    if x.is_empty() {
        return stream.memset(result, 0);
    }
    let parts = [x.slice.used(Access::Read), result.used()];
    let (x, to) = (x.elements(), Elements::of_result(&result));
    let (data, sum) = (code::cublas(T::TYPE), sum_code::<T>());
    let call = |handle: &mut Handle| {
        handle.set_device_scalars(true)?;
        // SAFETY: the handle is alive and used only here; the vector and the result lie inside memory that is recorded
        // as used, with elements of this type.
        check("cublasNrm2Ex", unsafe {
            sys::cublasNrm2Ex_64(handle.raw(), x.len as i64, x.raw(), data, x.step(), to.raw(), data, sum)
        })
    };
    let host = move || {
        // SAFETY: vector and result lie inside memory that is recorded as used by this work.
        let sizes = || unsafe { x.values() }.map(f64::abs);
        let largest = sizes().fold(0.0, f64::max);
        let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let norm = sizes().map(|size| (size / scale) * (size / scale)).sum::<f64>().sqrt() * scale;
        // SAFETY: as above.
        unsafe { to.set(0, norm) }
    };
    handle::enqueue(stream, "blas::nrm2", &parts, call, host)
}
