//! cuSPARSE handles and descriptors with descriptive errors.

use std::ffi::c_void;

use cudarc::cusparse::sys::{self, cusparseHandle_t, cusparseStatus_t};

use super::{Csr, FloatType, Index};
use crate::element::code;
use crate::error::LibraryError;
use crate::handles::{HandlePool, LibraryHandle};
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Device, DevicePtr, Result};

/// A device's state for sparse matrices.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) handles: HandlePool<Handle>,
}

impl State {
    /// Returns the device's state.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }
}

#[derive(Debug)]
pub(super) struct Handle(pub cusparseHandle_t);

// SAFETY: a cuSPARSE handle may be used by any thread, but only by one at a time.
unsafe impl Send for Handle {}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is loaded, and the pointer refers to a local variable.
        check("cusparseCreate", unsafe { sys::cusparseCreate(&mut handle) }, String::new)?;
        Ok(Self(handle))
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        let status = unsafe { sys::cusparseSetStream(self.0, stream.0 as *mut _) };
        check("cusparseSetStream", status, String::new)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle and is being dropped.
        unsafe { sys::cusparseDestroy(self.0) };
    }
}

/// Descriptor of a sparse matrix.
#[derive(Debug)]
pub(super) struct Matrix(pub sys::cusparseSpMatDescr_t);

impl Matrix {
    pub fn new<T: FloatType, I: Index>(matrix: &Csr<T, I>) -> Result<Self> {
        let mut descriptor = std::ptr::null_mut();
        let number = |length| i64::try_from(length).unwrap_or(i64::MAX);
        // SAFETY: the first pointer refers to a local variable, and the others refer to this number of elements of
        // these types.
        let status = unsafe {
            sys::cusparseCreateCsr(
                &mut descriptor,
                number(matrix.rows()),
                number(matrix.columns()),
                number(matrix.nonzeros()),
                pointer(matrix.offsets().as_device_ptr()),
                pointer(matrix.indices().as_device_ptr()),
                pointer(matrix.values().as_device_ptr()),
                I::INDEX,
                I::INDEX,
                sys::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO,
                code::cusparse(T::TYPE),
            )
        };
        check("cusparseCreateCsr", status, || format!("{} x {}", matrix.rows(), matrix.columns()))?;
        Ok(Self(descriptor))
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor and is being dropped.
        unsafe { sys::cusparseDestroySpMat(self.0) };
    }
}

/// Descriptor of a vector or of a row-major matrix.
#[derive(Debug)]
pub(super) enum Operand {
    Vector(sys::cusparseDnVecDescr_t),
    Matrix(sys::cusparseDnMatDescr_t),
}

impl Operand {
    pub fn vector<T: FloatType>(len: usize, at: DevicePtr) -> Result<Self> {
        let mut descriptor = std::ptr::null_mut();
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        // SAFETY: the first pointer refers to a local variable, and the other one is only used when a product is
        // enqueued.
        let status =
            unsafe { sys::cusparseCreateDnVec(&mut descriptor, len, pointer(at), code::cusparse(T::TYPE)) };
        check("cusparseCreateDnVec", status, || format!("{len} elements"))?;
        Ok(Self::Vector(descriptor))
    }

    pub fn matrix<T: FloatType>(rows: usize, columns: usize, stride: usize, at: DevicePtr) -> Result<Self> {
        let mut descriptor = std::ptr::null_mut();
        let [rows, columns, stride] =
            [rows, columns, stride].map(|length| i64::try_from(length).unwrap_or(i64::MAX));
        let order = sys::cusparseOrder_t::CUSPARSE_ORDER_ROW;
        // SAFETY: as in `vector`.
        let status = unsafe {
            sys::cusparseCreateDnMat(
                &mut descriptor,
                rows,
                columns,
                stride,
                pointer(at),
                code::cusparse(T::TYPE),
                order,
            )
        };
        check("cusparseCreateDnMat", status, || format!("{rows} x {columns}, {stride} apart"))?;
        Ok(Self::Matrix(descriptor))
    }

    /// Sets the address of the data.
    pub fn set(&self, at: DevicePtr) -> Result<()> {
        match self {
            Self::Vector(descriptor) => {
                // SAFETY: the descriptor is alive.
                let status = unsafe { sys::cusparseDnVecSetValues(*descriptor, pointer(at)) };
                check("cusparseDnVecSetValues", status, String::new)
            }
            Self::Matrix(descriptor) => {
                // SAFETY: the descriptor is alive.
                let status = unsafe { sys::cusparseDnMatSetValues(*descriptor, pointer(at)) };
                check("cusparseDnMatSetValues", status, String::new)
            }
        }
    }
}

impl Drop for Operand {
    fn drop(&mut self) {
        match self {
            // SAFETY: this value owns the descriptor and is being dropped.
            Self::Vector(descriptor) => unsafe { sys::cusparseDestroyDnVec(*descriptor) },
            // SAFETY: as above.
            Self::Matrix(descriptor) => unsafe { sys::cusparseDestroyDnMat(*descriptor) },
        };
    }
}

pub(super) fn pointer(ptr: DevicePtr) -> *mut c_void {
    ptr.0 as *mut c_void
}

pub(super) fn check(
    call: &'static str,
    status: cusparseStatus_t,
    context: impl FnOnce() -> String,
) -> Result<()> {
    if status == cusparseStatus_t::CUSPARSE_STATUS_SUCCESS {
        return Ok(());
    }
    Err(LibraryError::of_call("cuSPARSE", call, status, context()))
}
