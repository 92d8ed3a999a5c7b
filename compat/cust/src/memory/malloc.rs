//! Allocates and frees memory by pointer; the buffers and boxes build on these functions.
//!
//! Each allocation is a buffer of the runtime, which a table keeps by address until it is freed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use warpsmith_runtime::{self as runtime, DeviceBuffer};

use super::{DevicePointer, UnifiedPointer};
use crate::context;
use crate::error::{CudaError, CudaResult, explained};
use crate::stream::Stream;

type Table<V> = LazyLock<Mutex<HashMap<u64, V>>>;

static DEVICE: Table<DeviceBuffer<u8>> = LazyLock::new(Mutex::default);
static PINNED: Table<runtime::Device> = LazyLock::new(Mutex::default);

fn locked<V>(table: &Table<V>) -> MutexGuard<'_, HashMap<u64, V>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the total size of `count` values, in bytes.
pub(super) fn size_of_values<T>(count: usize) -> CudaResult<usize> {
    let limit = isize::MAX as usize;
    count.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= limit).ok_or_else(|| {
        explained(
            CudaError::InvalidMemoryAllocation,
            format!("{count} elements of {} bytes exceed the address space", size_of::<T>()),
        )
    })
}

/// Returns the total size of `count` values, in bytes, or an error if the size is 0.
fn some_bytes<T>(count: usize) -> CudaResult<usize> {
    match size_of_values::<T>(count)? {
        0 => Err(explained(CudaError::InvalidMemoryAllocation, "cannot allocate 0 bytes")),
        bytes => Ok(bytes),
    }
}

/// Allocates uninitialized device memory for `count` values.
///
/// # Errors
/// Returns [`CudaError::OutOfMemory`]; [`CudaError::InvalidMemoryAllocation`] if the size is zero or too large;
/// [`CudaError::InvalidContext`] if there is no current context.
///
/// # Safety
/// The memory must be freed with [`cuda_free`] and must be written before it is read.
pub unsafe fn cuda_malloc<T>(count: usize) -> CudaResult<DevicePointer<T>> {
    let device = context::current()?;
    allocate(&device.default_stream(), count)
}

/// Allocates device memory that work in a stream can use immediately.
///
/// # Errors
/// Returns the same errors as [`cuda_malloc`].
///
/// # Safety
/// The caller must uphold the safety contract of [`cuda_malloc`]. Other streams may use the memory only after the work
/// already enqueued in `stream`.
pub unsafe fn cuda_malloc_async<T>(stream: &Stream, count: usize) -> CudaResult<DevicePointer<T>> {
    allocate(stream.runtime(), count)
}

fn allocate<T>(stream: &runtime::Stream, count: usize) -> CudaResult<DevicePointer<T>> {
    let buffer = DeviceBuffer::uninit(stream, some_bytes::<T>(count)?)?;
    let address = buffer.as_device_ptr().0;
    locked(&DEVICE).insert(address, buffer);
    Ok(DevicePointer::from_raw(address))
}

fn taken<V>(table: &Table<V>, address: u64) -> CudaResult<V> {
    locked(table).remove(&address).ok_or_else(|| {
        explained(CudaError::InvalidValue, format!("{address:#x} was not allocated by this crate"))
    })
}

/// Frees device memory after all work on the device.
///
/// # Errors
/// Returns [`CudaError::InvalidValue`] if the pointer does not come from this module. Returns a fault in earlier work,
/// in which case the memory is freed nevertheless.
///
/// # Safety
/// Nothing may use the memory, except for work that has already been enqueued.
pub unsafe fn cuda_free<T>(pointer: DevicePointer<T>) -> CudaResult<()> {
    let buffer = taken(&DEVICE, pointer.as_raw())?;
    let waited = buffer.device().synchronize();
    drop(buffer);
    Ok(waited?)
}

/// Frees device memory after the work already enqueued in `stream`.
///
/// # Errors
/// Returns [`CudaError::InvalidValue`] if the pointer does not come from this module, or a driver error.
///
/// # Safety
/// Nothing may use the memory, except for work that has already been enqueued in `stream`.
pub unsafe fn cuda_free_async<T>(stream: &Stream, pointer: DevicePointer<T>) -> CudaResult<()> {
    let buffer = taken(&DEVICE, pointer.as_raw())?;
    Ok(buffer.record_stream(stream.runtime())?)
}

/// Allocates page-locked memory for `count` values that host and device access at the same address.
///
/// # Errors
/// Returns the same errors as [`cuda_malloc`].
///
/// # Safety
/// The memory must be freed with [`cuda_free_unified`] and must be written before it is read.
pub unsafe fn cuda_malloc_unified<T>(count: usize) -> CudaResult<UnifiedPointer<T>> {
    let pointer = pinned::<T>(count)?;
    let device = context::current()?;
    // SAFETY: this is only a query.
    let reached = unsafe {
        let (driver, context) = device.driver();
        driver.host_address(context, pointer.cast())
    };
    match reached {
        // SAFETY: host and device can access the memory.
        Ok(address) if address.0 == pointer.addr() as u64 => Ok(unsafe { UnifiedPointer::wrap(pointer) }),
        other => {
            // SAFETY: the memory has just been allocated.
            unsafe { cuda_free_locked(pointer)? };
            match other {
                Err(error) => Err(error.into()),
                Ok(_) => Err(explained(
                    CudaError::NotSupported,
                    "this device accesses host memory at different addresses: use DeviceBuffer and copies",
                )),
            }
        }
    }
}

/// Frees unified memory after all work on the device.
///
/// # Errors
/// Returns the same errors as [`cuda_free`].
///
/// # Safety
/// The caller must uphold the safety contract of [`cuda_free`].
pub unsafe fn cuda_free_unified<T>(pointer: UnifiedPointer<T>) -> CudaResult<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { cuda_free_locked(pointer.as_mut_ptr()) }
}

/// Allocates uninitialized page-locked host memory for `count` values.
///
/// # Errors
/// Returns the same errors as [`cuda_malloc`].
///
/// # Safety
/// The memory must be freed with [`cuda_free_locked`] and must be written before it is read.
pub unsafe fn cuda_malloc_locked<T>(count: usize) -> CudaResult<*mut T> {
    pinned(count)
}

fn pinned<T>(count: usize) -> CudaResult<*mut T> {
    let bytes = some_bytes::<T>(count)?;
    let device = context::current()?;
    device.check()?;
    // SAFETY: the context belongs to a live device.
    let pointer: *mut c_void = unsafe {
        let (driver, context) = device.driver();
        driver.pinned_allocate(context, bytes)?
    };
    locked(&PINNED).insert(pointer.addr() as u64, device);
    Ok(pointer.cast())
}

/// Frees page-locked memory after all work on the device.
///
/// # Errors
/// Returns the same errors as [`cuda_free`].
///
/// # Safety
/// The caller must uphold the safety contract of [`cuda_free`].
pub unsafe fn cuda_free_locked<T>(pointer: *mut T) -> CudaResult<()> {
    let device = taken(&PINNED, pointer.addr() as u64)?;
    let waited = device.synchronize();
    // SAFETY: this driver and this context have allocated the memory. No remaining work can use the memory, because all
    // work is complete or the device is lost.
    let freed = unsafe {
        let (driver, context) = device.driver();
        driver.pinned_free(context, pointer.cast())
    };
    waited?;
    Ok(freed?)
}
