//! Device memory, page-locked host memory, and memory that host and device share.
//!
//! | type | location | access |
//! | --- | --- | --- |
//! | [`DeviceBuffer`], [`DeviceBox`], [`DeviceVariable`] | on the device | the host copies data to and from it |
//! | [`UnifiedBuffer`] | page-locked, on the host | host and device access it; data does not migrate, so keep data that kernels read often on the device |
//! | [`LockedBuffer`] | page-locked, on the host | copies to and from the device are faster, and do not block |
//!
//! Device memory is allocated from the runtime's caching allocator. Freeing it first waits for all work on the device,
//! because a kernel may still be using it through a pointer; `drop_async` waits in a stream instead.
//!
//! # Safety of kernels
//! Safe code can access device memory only through copies, and these wait for other work. Memory to which a kernel
//! writes must not be accessed between the launch and the wait for the kernel; this is the reason why launches are
//! `unsafe`.

mod copy;
mod device_box;
mod device_buffer;
mod device_slice;
mod device_variable;
mod host_buffers;
mod malloc;
mod pointer;

pub use crate::DeviceCopy;
pub(crate) use copy::Transfer;
pub use copy::{AsyncCopyDestination, CopyDestination};
pub use device_box::DeviceBox;
pub use device_buffer::DeviceBuffer;
pub use device_slice::DeviceSlice;
pub use device_variable::DeviceVariable;
pub use host_buffers::{LockedBuffer, UnifiedBuffer};
pub use malloc::{
    cuda_free, cuda_free_async, cuda_free_locked, cuda_free_unified, cuda_malloc, cuda_malloc_async,
    cuda_malloc_locked, cuda_malloc_unified,
};
pub use pointer::{DevicePointer, UnifiedPointer};

use std::ffi::c_void;

use crate::context;
use crate::error::CudaResult;

/// Copies bytes from the host.
///
/// # Errors
/// Returns the same errors as [`CopyDestination::copy_from`].
///
/// # Safety
/// Both memory ranges must have `size` bytes. During the call, nothing else may access them, except for reads of
/// `source`.
pub unsafe fn memcpy_htod(to: u64, source: *const c_void, size: usize) -> CudaResult<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { Transfer::ToDevice { from: source, to }.run(size) }
}

/// Copies bytes to the host.
///
/// # Errors
/// Returns the same errors as [`CopyDestination::copy_to`].
///
/// # Safety
/// The caller must uphold the safety contract of [`memcpy_htod`].
pub unsafe fn memcpy_dtoh(to: *mut c_void, source: u64, size: usize) -> CudaResult<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { Transfer::ToHost { from: source, to }.run(size) }
}

/// Returns the free and the total device memory, in bytes.
///
/// # Errors
/// Returns [`CudaError::InvalidContext`](crate::error::CudaError::InvalidContext) if there is no current context.
pub fn mem_get_info() -> CudaResult<(usize, usize)> {
    let info = context::current()?.memory_info()?;
    Ok((info.free as usize, info.total as usize))
}
