//! Driver calls for device memory and page-locked host memory.

use std::ffi::c_void;

use warpsmith_emulator::check;

use super::EmulatedDriver;
use super::control::{Call, driver_error};
use super::graph::{Home, NO_POOL};
use super::pages::{Backing, GRANULARITY};
use super::stream::Work;
use super::touched::Access;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{Context, DevicePtr, ExportedMemory, MemoryDriver, PhysicalHandle, StreamHandle};

// SAFETY: as for `Driver`.
unsafe impl MemoryDriver for EmulatedDriver {
    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        let _called = self.called_aside(Call::MemoryInfo);
        Ok(self.enter(Call::MemoryInfo, context)?.heap.info())
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let _called = self.called_aside(Call::MemoryAllocate);
        let ptr = self.enter(Call::MemoryAllocate, context)?.heap.allocate(Call::MemoryAllocate, bytes)?;
        self.races.allocated(Call::MemoryAllocate, ptr.0, bytes, None);
        Ok(ptr)
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        let _called = self.called_aside(Call::MemoryFree);
        let context = self.enter_to_free(Call::MemoryFree, context)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            context.heap.free(Call::MemoryFree, ptr, |start, end| self.frees(Call::MemoryFree, start, end))
        }?;
        context.report_damage(context.heap.take_damage());
        context.check(Call::MemoryFree.name())
    }

    fn watches_buffers(&self) -> bool {
        check::is_on() && matches!(self.backing, Backing::Host)
    }

    fn buffer_allocated(&self, ptr: DevicePtr, bytes: usize) {
        check::allocated(ptr.0 as usize, bytes);
    }

    fn buffer_freed(&self, ptr: DevicePtr, bytes: usize) {
        check::freed(ptr.0 as usize, bytes);
    }

    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void> {
        let _called = self.called_aside(Call::PinnedAllocate);
        self.enter(Call::PinnedAllocate, context)?;
        let ptr = self.pinned.allocate(Call::PinnedAllocate, bytes)?;
        self.races.allocated(Call::PinnedAllocate, ptr.0, bytes, None);
        Ok(std::ptr::with_exposed_provenance_mut(ptr.0 as usize))
    }

    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        let _called = self.called_aside(Call::PinnedFree);
        let context = self.enter_to_free(Call::PinnedFree, context)?;
        let used = |start, end| {
            self.races.host_frees(Call::PinnedFree, start..end, true);
            false
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.pinned.free(Call::PinnedFree, DevicePtr(ptr.addr() as u64), used) }?;
        context.report_damage(self.pinned.take_damage());
        context.check(Call::PinnedFree.name())
    }

    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::HostRegister);
        self.enter(Call::HostRegister, context)?;
        self.registered.add(ptr.expose_provenance() as u64, bytes)?;
        self.races.allocated(Call::HostRegister, ptr.addr() as u64, bytes, None);
        Ok(())
    }

    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        let _called = self.called_aside(Call::HostUnregister);
        let context = self.enter_to_free(Call::HostUnregister, context)?;
        self.registered
            .remove(ptr.addr() as u64, |start, end| self.frees(Call::HostUnregister, start, end))?;
        context.check(Call::HostUnregister.name())
    }

    unsafe fn host_expose(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::HostExpose);
        self.enter(Call::HostExpose, context)?;
        self.exposed.add(ptr.expose_provenance() as u64, bytes)
    }

    unsafe fn host_conceal(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::HostConceal);
        let context = self.enter_to_free(Call::HostConceal, context)?;
        self.exposed
            .remove(ptr.addr() as u64, bytes, |start, end| self.frees(Call::HostConceal, start, end))?;
        context.check(Call::HostConceal.name())
    }

    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr> {
        self.enter(Call::HostAddress, context)?;
        let address = DevicePtr(ptr.addr() as u64);
        if self.is_page_locked(address, 1) {
            return Ok(address);
        }
        let text = format!("{:#x} is not in allocated or registered page-locked memory", address.0);
        Err(driver_error(Call::HostAddress.name(), code::INVALID_VALUE, text))
    }

    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>> {
        self.enter(Call::MemoryDevice, context)?;
        match self.home(&(ptr.0..ptr.0.saturating_add(1))) {
            Home::Device(ordinal) => Ok(Some(ordinal)),
            Home::PageLocked => Ok(None),
            Home::Elsewhere => {
                let text = format!("{:#x} is neither in device memory nor in page-locked memory", ptr.0);
                Err(driver_error(Call::MemoryDevice.name(), code::INVALID_VALUE, text))
            }
        }
    }

    fn accesses_pageable(&self, context: Context) -> Result<bool> {
        self.enter(Call::AccessesPageable, context)?;
        Ok(self.accesses_pageable)
    }

    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>> {
        self.enter(Call::VirtualGranularity, context)?;
        Ok(self.maps.then_some(GRANULARITY))
    }

    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let _called = self.called_aside(Call::VirtualReserve);
        self.enter(Call::VirtualReserve, context)?.space.reserve(bytes)
    }

    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::VirtualRelease);
        let context = self.enter_to_free(Call::VirtualRelease, context)?;
        context.space.release(ptr, bytes)?;
        context.check(Call::VirtualRelease.name())
    }

    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let _called = self.called_aside(Call::PhysicalCreate);
        let context = self.enter(Call::PhysicalCreate, context)?;
        context.space.create(bytes, &context.heap)
    }

    fn physical_create_shareable(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let _called = self.called_aside(Call::PhysicalCreateShareable);
        let context = self.enter(Call::PhysicalCreateShareable, context)?;
        context.space.create_shareable(bytes, &context.heap)
    }

    fn physical_export(&self, context: Context, handle: PhysicalHandle) -> Result<ExportedMemory> {
        let _called = self.called_aside(Call::PhysicalExport);
        self.enter(Call::PhysicalExport, context)?.space.export(handle)
    }

    unsafe fn physical_import(
        &self,
        context: Context,
        memory: &ExportedMemory,
        bytes: usize,
    ) -> Result<PhysicalHandle> {
        let _called = self.called_aside(Call::PhysicalImport);
        self.enter(Call::PhysicalImport, context)?.space.import(memory, bytes)
    }

    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()> {
        let _called = self.called_aside(Call::PhysicalRelease);
        let context = self.enter_to_free(Call::PhysicalRelease, context)?;
        context.space.release_handle(handle, &context.heap)?;
        context.check(Call::PhysicalRelease.name())
    }

    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let _called = self.called_aside(Call::VirtualMap);
        let context = self.enter(Call::VirtualMap, context)?;
        // SAFETY: guaranteed by the caller.
        unsafe { context.space.map(ptr, bytes, handle) }
    }

    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::VirtualUnmap);
        let context = self.enter_to_free(Call::VirtualUnmap, context)?;
        let busy = |start, end| self.frees(Call::VirtualUnmap, start, end);
        // SAFETY: guaranteed by the caller.
        unsafe { context.space.unmap(ptr, bytes, &context.heap, busy) }?;
        check::released(ptr.0 as usize, bytes);
        context.check(Call::VirtualUnmap.name())
    }

    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()> {
        let _called = self.called_aside(Call::VirtualSetAccess);
        let context = self.enter(Call::VirtualSetAccess, context)?;
        for ordinal in ordinals {
            self.known(Call::VirtualSetAccess, *ordinal)?;
            self.reaches(Call::VirtualSetAccess, *ordinal, context.ordinal)?;
        }
        context.space.set_access(ptr, bytes, ordinals)
    }

    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr> {
        let _called = self.called_aside(Call::StreamAllocate);
        let context = self.enter(Call::StreamAllocate, context)?;
        self.streams.get(Call::StreamAllocate, stream.0)?;
        self.captures.refuse(Call::StreamAllocate, stream.0, NO_POOL)?;
        let ptr = context.heap.allocate(Call::StreamAllocate, bytes)?;
        self.races.allocated(Call::StreamAllocate, ptr.0, bytes, Some(stream.0));
        Ok(ptr)
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        let _called = self.called(Call::StreamFree);
        let context = self.enter_to_free(Call::StreamFree, context)?;
        self.captures.refuse(Call::StreamFree, stream.0, NO_POOL)?;
        let bytes = context.heap.leave(ptr)?;
        self.push(Call::StreamFree, stream, Work::Free(ptr), vec![Access::write(ptr.0, bytes)])
            .inspect_err(|_| context.heap.stay(ptr))?;
        context.check(Call::StreamFree.name())
    }

    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)> {
        let used = self.enter(Call::StreamPoolInfo, context)?.heap.pooled();
        Ok((used, used))
    }

    fn stream_pool_trim(&self, context: Context, _keep: u64) -> Result<()> {
        // Freed memory is returned to the heap immediately, so there is nothing to trim.
        self.enter(Call::StreamPoolTrim, context).map(|_| ())
    }
}
