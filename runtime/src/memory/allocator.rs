//! Where buffers get their memory: the seam behind which a caching allocator belongs.
//!
//! Today every block is an allocation of the driver. A block is aligned to at least 256 bytes; it is freed when
//! no work uses it, which [`Storage`](super::storage::Storage) sees to.

use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::{Error, Result, code};

/// Allocates `bytes` of device memory. Zero bytes need no driver call and have the null address.
///
/// Errors with [`Error::OutOfMemory`] when the device has not enough.
pub(super) fn allocate(device: &Device, bytes: usize) -> Result<DevicePtr> {
    if bytes == 0 {
        return Ok(DevicePtr::NULL);
    }
    device.call(|driver, context| {
        driver.memory_allocate(context, bytes).map_err(|error| match error.driver_code() {
            Some(code::OUT_OF_MEMORY) => {
                let (free, total) =
                    driver.memory_info(context).unwrap_or((0, device.properties().total_memory));
                Error::OutOfMemory { device: device.id(), asked: bytes as u64, free, total }
            }
            _ => error,
        })
    })
}

/// Gives memory back. A lost device takes it too, though it then reports its fault again.
///
/// # Safety
/// `ptr` came from [`allocate`] on this device, and no work uses it.
pub(super) unsafe fn free(device: &Device, ptr: DevicePtr) -> Result<()> {
    if ptr == DevicePtr::NULL {
        return Ok(());
    }
    let (driver, context) = device.driver();
    // SAFETY: passed on from the caller.
    unsafe { driver.memory_free(context, ptr) }
}
