//! Page-locked memory as the device sees it, and which device has the memory at an address. A context is current.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::call::{RelaxedCapture, check};
use crate::DevicePtr;
use crate::error::Result;

/// # Safety
/// The `bytes` at `ptr` are memory of the process, which stays until [`unregister`].
pub(super) unsafe fn register(ptr: *mut c_void, bytes: usize) -> Result<()> {
    let _relaxed = RelaxedCapture::enter();
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemHostRegister", sys::cuMemHostRegister_v2(ptr, bytes, flags)) }
}

/// # Safety
/// `ptr` was registered, and no enqueued work uses the memory.
pub(super) unsafe fn unregister(ptr: *mut c_void) -> Result<()> {
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemHostUnregister", sys::cuMemHostUnregister(ptr)) }
}

/// The address by which the device reaches page-locked memory.
pub(super) fn device_address(ptr: *mut c_void) -> Result<DevicePtr> {
    let mut device = 0;
    // SAFETY: the pointer to write to is of a local variable; the driver refuses an address that is not page-locked.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut device, ptr, 0) };
    check("cuMemHostGetDevicePointer", result)?;
    Ok(DevicePtr(device))
}

/// The ordinal of the device that has the memory at an address; `None` for memory of the host, and for managed memory.
pub(super) fn device_of(ptr: DevicePtr) -> Result<Option<u32>> {
    use sys::CUpointer_attribute as Attribute;

    let attribute = |attribute: Attribute| {
        let mut value = 0i32;
        // SAFETY: the three attributes asked for are written as 32 bits, to a local variable. The address is only looked
        // up.
        let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, ptr.0) };
        check("cuPointerGetAttribute", result).map(|()| value)
    };
    let kind = attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
    let is_device = kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as i32;
    if !is_device || attribute(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED)? & 0xFF != 0 {
        return Ok(None);
    }
    Ok(u32::try_from(attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?).ok())
}
