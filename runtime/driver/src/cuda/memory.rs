//! Device memory, page-locked host memory, and device memory mapped to reserved addresses.
//!
//! These calls do not wait for work, and may run while another thread captures a graph.

use std::ffi::c_void;

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;
use sys::CUpointer_attribute as PointerAttribute;

use super::call::{self, Feature, RelaxedCapture, check, not_supported};
use super::context::bind;
use super::properties::read_attribute;
use super::{CudaDriver, mailbox, stream_of};
use crate::error::Result;
use crate::{Context, DevicePtr, ExportedMemory, MemoryDriver, PhysicalHandle, StreamHandle};

#[cfg(unix)]
const FILE_DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

pub(super) fn location(ordinal: u32) -> Result<sys::CUmemLocation> {
    let device = call::device(ordinal)?;
    Ok(sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device })
}

/// Returns descriptors that grant these devices read and write access.
pub(super) fn access(ordinals: &[u32]) -> Result<Vec<sys::CUmemAccessDesc>> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let describe = |ordinal: &u32| Ok(sys::CUmemAccessDesc { location: location(*ordinal)?, flags });
    ordinals.iter().map(describe).collect()
}

/// Returns allocation properties of device memory that cannot be exported to other processes.
fn allocation(ordinal: u32) -> Result<sys::CUmemAllocationProp> {
    allocation_for(ordinal, sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)
}

/// Returns allocation properties of device memory that can be exported in this form.
fn allocation_for(
    ordinal: u32,
    requested: sys::CUmemAllocationHandleType,
) -> Result<sys::CUmemAllocationProp> {
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: requested,
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

fn device_address(ptr: *mut c_void) -> Result<DevicePtr> {
    let mut device = 0;
    // SAFETY: the driver writes to a local variable and rejects an address that is not page-locked.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut device, ptr, 0) };
    check("cuMemHostGetDevicePointer", result)?;
    Ok(DevicePtr(device))
}

/// Returns a 32-bit attribute of an address.
fn pointer_attribute(attribute: PointerAttribute, ptr: DevicePtr) -> Result<i32> {
    let mut value = 0i32;
    // SAFETY: the requested attributes have 32 bits and are written to a local variable. The address is only looked up.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, ptr.0) };
    check("cuPointerGetAttribute", result).map(|()| value)
}

/// Makes the context current for a call about mapped memory.
fn bind_virtual(context: Context, call: &'static str) -> Result<RelaxedCapture> {
    bind(context)?;
    Feature::VirtualMemory.need(call)?;
    Ok(RelaxedCapture::enter())
}

// SAFETY: CUDA's driver upholds this contract; each method forwards its arguments to the driver and returns its result.
unsafe impl MemoryDriver for CudaDriver {
    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to local variables.
        unsafe { check("cuMemGetInfo", sys::cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free as u64, total as u64))
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let mut ptr = 0;
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuMemAlloc", sys::cuMemAlloc_v2(&mut ptr, bytes)) }?;
        Ok(DevicePtr(ptr))
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemFree", sys::cuMemFree_v2(ptr.0)) }
    }

    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void> {
        bind(context)?;
        mailbox::allocate_mapped(bytes)
    }

    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemFreeHost", sys::cuMemFreeHost(ptr)) }
    }

    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemHostRegister", sys::cuMemHostRegister_v2(ptr, bytes, flags)) }
    }

    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemHostUnregister", sys::cuMemHostUnregister(ptr)) }
    }

    unsafe fn host_expose(&self, context: Context, ptr: *mut c_void, _: usize) -> Result<()> {
        if self.accesses_pageable(context)? {
            return Ok(());
        }
        let text = format!("{ptr:p} is pageable host memory; page-lock it, or copy it to the device");
        Err(not_supported("host_expose", text))
    }

    unsafe fn host_conceal(&self, _: Context, _: *mut c_void, _: usize) -> Result<()> {
        Ok(())
    }

    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr> {
        bind(context)?;
        device_address(ptr)
    }

    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>> {
        bind(context)?;
        let kind = pointer_attribute(PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr)?;
        let is_device = kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as i32;
        let managed = PointerAttribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
        if !is_device || pointer_attribute(managed, ptr)? & 0xFF != 0 {
            return Ok(None);
        }
        let ordinal = pointer_attribute(PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr)?;
        Ok(u32::try_from(ordinal).ok())
    }

    fn accesses_pageable(&self, context: Context) -> Result<bool> {
        let device = call::device(self.contexts.ordinal(context)?)?;
        Ok(read_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0)
    }

    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>> {
        let ordinal = self.contexts.ordinal(context)?;
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

    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let _relaxed = bind_virtual(context, "cuMemAddressReserve")?;
        let mut ptr = 0;
        // SAFETY: the pointer is to a local variable; the driver chooses the address and its alignment.
        unsafe { check("cuMemAddressReserve", sys::cuMemAddressReserve(&mut ptr, bytes, 0, 0, 0)) }?;
        Ok(DevicePtr(ptr))
    }

    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let _relaxed = bind_virtual(context, "cuMemAddressFree")?;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemAddressFree", sys::cuMemAddressFree(ptr.0, bytes)) }
    }

    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let _relaxed = bind_virtual(context, "cuMemCreate")?;
        let allocation = allocation(self.contexts.ordinal(context)?)?;
        let mut handle = 0;
        // SAFETY: the pointers are to local variables.
        unsafe { check("cuMemCreate", sys::cuMemCreate(&mut handle, bytes, &allocation, 0)) }?;
        Ok(PhysicalHandle(handle))
    }

    #[cfg(unix)]
    fn physical_create_shareable(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let _relaxed = bind_virtual(context, "cuMemCreate")?;
        Feature::SharedMemory.need("cuMemExportToShareableHandle")?;
        let ordinal = self.contexts.ordinal(context)?;
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        if read_attribute(call::device(ordinal)?, attribute)? == 0 {
            let text = "the device does not support exporting memory as file descriptors".to_owned();
            return Err(call::not_supported("cuMemCreate", text));
        }
        let allocation = allocation_for(ordinal, FILE_DESCRIPTOR)?;
        let mut handle = 0;
        // SAFETY: the pointers are to local variables.
        unsafe { check("cuMemCreate", sys::cuMemCreate(&mut handle, bytes, &allocation, 0)) }?;
        Ok(PhysicalHandle(handle))
    }

    #[cfg(unix)]
    fn physical_export(&self, context: Context, handle: PhysicalHandle) -> Result<ExportedMemory> {
        use std::os::fd::{FromRawFd, OwnedFd};
        let _relaxed = bind_virtual(context, "cuMemExportToShareableHandle")?;
        Feature::SharedMemory.need("cuMemExportToShareableHandle")?;
        let mut descriptor: std::ffi::c_int = -1;
        // SAFETY: the handle is alive, by the trait's contract; a file descriptor is written to a local variable.
        let result = unsafe {
            let target = (&raw mut descriptor).cast();
            sys::cuMemExportToShareableHandle(target, handle.0, FILE_DESCRIPTOR, 0)
        };
        check("cuMemExportToShareableHandle", result)?;
        // SAFETY: the driver has opened the descriptor for the caller.
        Ok(ExportedMemory(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    #[cfg(unix)]
    unsafe fn physical_import(
        &self,
        context: Context,
        memory: &ExportedMemory,
        _bytes: usize,
    ) -> Result<PhysicalHandle> {
        use std::os::fd::AsRawFd;
        let _relaxed = bind_virtual(context, "cuMemImportFromShareableHandle")?;
        Feature::SharedMemory.need("cuMemImportFromShareableHandle")?;
        let mut handle = 0;
        let descriptor = std::ptr::without_provenance_mut(memory.0.as_raw_fd() as usize);
        // SAFETY: the driver takes the file descriptor in place of a pointer and leaves it open. The pointer is to a
        // local variable.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&mut handle, descriptor, FILE_DESCRIPTOR) };
        check("cuMemImportFromShareableHandle", result)?;
        Ok(PhysicalHandle(handle))
    }

    #[cfg(not(unix))]
    fn physical_create_shareable(&self, _context: Context, _bytes: usize) -> Result<PhysicalHandle> {
        let text = "this system does not support file descriptors".to_owned();
        Err(call::not_supported("cuMemCreate", text))
    }

    #[cfg(not(unix))]
    fn physical_export(&self, _context: Context, _handle: PhysicalHandle) -> Result<ExportedMemory> {
        let text = "this system does not support file descriptors".to_owned();
        Err(call::not_supported("cuMemExportToShareableHandle", text))
    }

    #[cfg(not(unix))]
    unsafe fn physical_import(
        &self,
        _context: Context,
        memory: &ExportedMemory,
        _bytes: usize,
    ) -> Result<PhysicalHandle> {
        match memory.0 {}
    }

    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()> {
        let _relaxed = bind_virtual(context, "cuMemRelease")?;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemRelease", sys::cuMemRelease(handle.0)) }
    }

    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let _relaxed = bind_virtual(context, "cuMemMap")?;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemMap", sys::cuMemMap(ptr.0, bytes, 0, handle.0, 0)) }
    }

    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let _relaxed = bind_virtual(context, "cuMemUnmap")?;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemUnmap", sys::cuMemUnmap(ptr.0, bytes)) }
    }

    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()> {
        let _relaxed = bind_virtual(context, "cuMemSetAccess")?;
        let access = access(ordinals)?;
        if access.is_empty() {
            return Ok(());
        }
        // SAFETY: the description count matches; the caller guarantees the range.
        let result = unsafe { sys::cuMemSetAccess(ptr.0, bytes, access.as_ptr(), access.len()) };
        check("cuMemSetAccess", result)
    }

    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr> {
        bind(context)?;
        self.contexts.pool(context)?.allocate(bytes, stream_of(stream))
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        Feature::Pools.need("cuMemFreeAsync")?;
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemFreeAsync", sys::cuMemFreeAsync(ptr.0, stream_of(stream))) }
    }

    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)> {
        bind(context)?;
        self.contexts.pool(context)?.info()
    }

    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()> {
        bind(context)?;
        self.contexts.pool(context)?.trim(keep)
    }
}
