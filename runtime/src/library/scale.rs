//! Multiplying elements by a number, with cuBLAS: for libraries that leave that to their callers.

use std::ffi::c_void;

use cudarc::cublas::sys::{self, cublasStatus_t, cudaDataType};

use super::Vendor;
use crate::device::Device;
use crate::driver::DevicePtr;
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
    let mut handle = stream.device().0.libraries.blas.acquire(stream)?;
    handle.set_device_scalars(false)?;
    let single = factor as f32;
    let (factor, computed): (*const c_void, _) = match T::DOUBLE {
        true => ((&raw const factor).cast(), cudaDataType::CUDA_R_64F),
        false => ((&raw const single).cast(), cudaDataType::CUDA_R_32F),
    };
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    // Half as many complex numbers would take two thirds of the time (H200), but what stands beside an infinite number
    // comes out wrong.
    // SAFETY: the factor is a local variable of the type it is said to be, which is read before the call returns; the
    // elements are as the caller says.
    let status = unsafe {
        sys::cublasScalEx_64(handle.raw(), len, factor, computed, at.0 as *mut c_void, T::TYPE, 1, computed)
    };
    check("cublasScalEx_64", status)
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(LibraryError::Call { library: "cuBLAS", call, status: format!("{status:?}"), context: None }.into())
}
