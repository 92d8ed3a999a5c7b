//! Reserved addresses and the device memory mapped into them. A context is current in every function here but
//! [`granularity`].
//!
//! None of these calls waits for work, and all may run while another thread captures a graph.

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;

use super::call::{self, Feature, RelaxedCapture, check};
use super::properties::read_attribute;
use crate::error::Result;
use crate::{DevicePtr, PhysicalHandle};

/// A device as the place of memory.
pub(super) fn location(ordinal: u32) -> Result<sys::CUmemLocation> {
    let device = call::device(ordinal)?;
    Ok(sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device })
}

/// Reading and writing by each of these devices.
pub(super) fn access(ordinals: &[u32]) -> Result<Vec<sys::CUmemAccessDesc>> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let describe = |ordinal: &u32| Ok(sys::CUmemAccessDesc { location: location(*ordinal)?, flags });
    ordinals.iter().map(describe).collect()
}

/// Memory of a device that no other process can be given.
fn allocation(ordinal: u32) -> Result<sys::CUmemAllocationProp> {
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(ordinal)?,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    })
}

/// The unit of mapped memory; `None` where the driver or the device cannot map.
pub(super) fn granularity(ordinal: u32) -> Result<Option<usize>> {
    let attribute = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if !Feature::VirtualMemory.is_there() || read_attribute(call::device(ordinal)?, attribute)? == 0 {
        return Ok(None);
    }
    let allocation = allocation(ordinal)?;
    let which = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let mut bytes = 0;
    // SAFETY: the pointers are to local variables.
    let result = unsafe { sys::cuMemGetAllocationGranularity(&mut bytes, &allocation, which) };
    check("cuMemGetAllocationGranularity", result)?;
    Ok((bytes > 0).then_some(bytes))
}

/// Reserves addresses.
pub(super) fn reserve(bytes: usize) -> Result<DevicePtr> {
    Feature::VirtualMemory.need("cuMemAddressReserve")?;
    let _relaxed = RelaxedCapture::enter();
    let mut ptr = 0;
    // SAFETY: the pointer is to a local variable; the driver chooses the address and its alignment.
    unsafe { check("cuMemAddressReserve", sys::cuMemAddressReserve(&mut ptr, bytes, 0, 0, 0)) }?;
    Ok(DevicePtr(ptr))
}

/// Gives a reservation back.
///
/// # Safety
/// `ptr` and `bytes` are those of a [`reserve`], and nothing is mapped there.
pub(super) unsafe fn release(ptr: DevicePtr, bytes: usize) -> Result<()> {
    Feature::VirtualMemory.need("cuMemAddressFree")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemAddressFree", sys::cuMemAddressFree(ptr.0, bytes)) }
}

/// Makes memory of a device.
pub(super) fn create(ordinal: u32, bytes: usize) -> Result<PhysicalHandle> {
    Feature::VirtualMemory.need("cuMemCreate")?;
    let allocation = allocation(ordinal)?;
    let _relaxed = RelaxedCapture::enter();
    let mut handle = 0;
    // SAFETY: the pointers are to local variables.
    unsafe { check("cuMemCreate", sys::cuMemCreate(&mut handle, bytes, &allocation, 0)) }?;
    Ok(PhysicalHandle(handle))
}

/// Gives a handle back.
///
/// # Safety
/// The handle came from [`create`] and is not used again.
pub(super) unsafe fn release_handle(handle: PhysicalHandle) -> Result<()> {
    Feature::VirtualMemory.need("cuMemRelease")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemRelease", sys::cuMemRelease(handle.0)) }
}

/// Maps all of a handle's memory.
///
/// # Safety
/// The range is reserved, nothing is mapped there, and it is as long as the handle's memory.
pub(super) unsafe fn map(ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> Result<()> {
    Feature::VirtualMemory.need("cuMemMap")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemMap", sys::cuMemMap(ptr.0, bytes, 0, handle.0, 0)) }
}

/// Unmaps whole mappings.
///
/// # Safety
/// No enqueued work uses the range.
pub(super) unsafe fn unmap(ptr: DevicePtr, bytes: usize) -> Result<()> {
    Feature::VirtualMemory.need("cuMemUnmap")?;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: passed on from the caller.
    unsafe { check("cuMemUnmap", sys::cuMemUnmap(ptr.0, bytes)) }
}

/// Lets devices use whole mappings.
///
/// # Safety
/// The range is mapped.
pub(super) unsafe fn set_access(ptr: DevicePtr, bytes: usize, ordinals: &[u32]) -> Result<()> {
    Feature::VirtualMemory.need("cuMemSetAccess")?;
    let access = access(ordinals)?;
    if access.is_empty() {
        return Ok(());
    }
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: the descriptions are as many as said; the range is passed on from the caller.
    let result = unsafe { sys::cuMemSetAccess(ptr.0, bytes, access.as_ptr(), access.len()) };
    check("cuMemSetAccess", result)
}
