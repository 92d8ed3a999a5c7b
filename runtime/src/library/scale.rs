//! Multiplying elements by a number, with cuBLAS: for libraries that leave that to their callers.

use std::ffi::c_void;

use cudarc::cublas::sys::{self, cublasHandle_t, cublasStatus_t, cudaDataType};

use super::Vendor;
use super::handles::{HandlePool, LibraryHandle};
use crate::device::Device;
use crate::driver::{DevicePtr, StreamHandle};
use crate::error::{LibraryError, Result};
use crate::memory::DeviceCopy;
use crate::stream::Stream;

/// Types that can be scaled.
#[doc(hidden)]
pub trait Scalar: DeviceCopy {
    /// CUDA's number of the type.
    const TYPE: cudaDataType;
    /// Whether it is computed with in double precision.
    const DOUBLE: bool = false;
}

impl Scalar for f32 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_32F;
}

impl Scalar for f64 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_64F;
    const DOUBLE: bool = true;
}

impl Scalar for half::f16 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_16F;
}

impl Scalar for half::bf16 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_16BF;
}

/// What a device keeps for it.
#[derive(Debug, Default)]
pub(crate) struct State {
    handles: HandlePool<Handle>,
}

#[derive(Debug)]
struct Handle(cublasHandle_t);

// SAFETY: a handle of cuBLAS may be used by any thread, by one at a time.
unsafe impl Send for Handle {}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is loaded; the pointer is to a local variable.
        check("cublasCreate", unsafe { sys::cublasCreate_v2(&mut handle) })?;
        Ok(Self(handle))
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("cublasSetStream", unsafe { sys::cublasSetStream_v2(self.0, stream.0 as *mut _) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's and goes away.
        unsafe { sys::cublasDestroy_v2(self.0) };
    }
}

/// Fails if there is no cuBLAS where it is needed.
pub(super) fn check_library(device: &Device) -> Result<()> {
    if device.is_emulated() { Ok(()) } else { Vendor::Cublas.version().map(|_| ()) }
}

/// Enqueues the multiplication of `len` elements on a GPU's stream. [`check_library`] has succeeded, and the device's
/// context is current.
///
/// # Safety
/// There are as many elements at the address, whose use is ordered.
pub(super) unsafe fn enqueue<T: Scalar>(
    stream: &Stream,
    at: DevicePtr,
    len: usize,
    factor: f64,
) -> Result<()> {
    let handle = stream.device().0.libraries.scale.handles.acquire(stream)?;
    let single = factor as f32;
    let (factor, computed): (*const c_void, _) = match T::DOUBLE {
        true => ((&raw const factor).cast(), cudaDataType::CUDA_R_64F),
        false => ((&raw const single).cast(), cudaDataType::CUDA_R_32F),
    };
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    // SAFETY: the factor is a local variable of the type it is said to be, which is read before the call returns; the
    // elements are as the caller says.
    let status = unsafe {
        sys::cublasScalEx_64(handle.0, len, factor, computed, at.0 as *mut c_void, T::TYPE, 1, computed)
    };
    check("cublasScalEx_64", status)
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(LibraryError::Call { library: "cuBLAS", call, status: format!("{status:?}"), context: None }.into())
}
