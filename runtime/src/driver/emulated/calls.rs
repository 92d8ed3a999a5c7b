//! The emulated driver's calls: [`Driver`] for [`EmulatedDriver`].
//!
//! Each is counted and may be told to fail before it does anything; those that wait do so first, so that when
//! they return nothing runs any more, whatever the result.

use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

use gpu_spec::KernelSpec;

use super::control::driver_error;
use super::kernel::KernelCall;
use super::stream::{Queue, Touched, Work};
use super::{Call, EmulatedDriver};
use crate::driver::{
    Context, DeviceProperties, DevicePtr, Driver, EventHandle, Fault, FunctionAttributes, FunctionHandle,
    LaunchConfig, ModuleHandle, ModuleSource, PhysicalHandle, StreamHandle,
};
use crate::error::{Result, code};

const WARP: u32 = 32;
const MAX_THREADS: u32 = 1024;
const SHARED_BYTES: u32 = 48 << 10;
const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = 32;

impl Driver for EmulatedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.devices.len() as u32)
    }

    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties> {
        self.primary(ordinal)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let mut uuid = *b"warpsmith-emul\0\0";
        uuid[14..].copy_from_slice(&(ordinal as u16).to_be_bytes());
        Ok(DeviceProperties {
            name: format!("Emulated GPU ({threads} CPU threads)"),
            uuid,
            capability: (0, 0),
            multiprocessors: threads,
            total_memory: self.memory,
            l2_cache: 0,
            memory_bandwidth: 0,
            max_threads_per_block: MAX_THREADS,
            max_block: [MAX_THREADS, MAX_THREADS, 64],
            max_grid: [i32::MAX as u32, 65535, 65535],
            max_threads_per_multiprocessor: 2048,
            max_blocks_per_multiprocessor: MAX_BLOCKS_PER_MULTIPROCESSOR,
            registers_per_multiprocessor: 65536,
            shared_memory_per_block: SHARED_BYTES,
            shared_memory_per_block_optin: SHARED_BYTES,
            shared_memory_per_multiprocessor: SHARED_BYTES,
            warp_size: WARP,
            driver_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    fn context_retain(&self, ordinal: u32) -> Result<Context> {
        self.control.enter(Call::ContextRetain)?;
        let mut primary = self.primary(ordinal)?.lock().unwrap_or_else(PoisonError::into_inner);
        let context =
            *primary.context.get_or_insert_with(|| Context(self.contexts.insert(self.new_context(ordinal))));
        primary.retained += 1;
        Ok(context)
    }

    fn context_release(&self, ordinal: u32) {
        // The release is only counted: there is no way to report that it failed.
        let _ = self.control.enter(Call::ContextRelease);
        let Ok(primary) = self.primary(ordinal) else { return };
        let mut primary = primary.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = primary.retained.saturating_sub(1);
        if primary.retained == 0
            && let Some(context) = primary.context.take().and_then(|context| self.contexts.remove(context.0))
        {
            context.streams().iter().for_each(|stream| stream.close());
        }
    }

    fn context_synchronize(&self, context: Context) -> Result<()> {
        let ordered = self.control.enter(Call::ContextSynchronize);
        let context = self.contexts.get(Call::ContextSynchronize, context.0)?;
        context.streams().iter().for_each(|stream| stream.wait());
        ordered?;
        context.check(Call::ContextSynchronize.name())
    }

    fn take_fault(&self, context: Context) -> Option<Fault> {
        self.contexts.get(Call::ContextSynchronize, context.0).ok()?.take_fault()
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        Ok(self.enter(Call::MemoryInfo, context)?.heap.info())
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        self.enter(Call::MemoryAllocate, context)?.heap.allocate(Call::MemoryAllocate, bytes)
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        let context = self.enter_to_free(Call::MemoryFree, context)?;
        // SAFETY: passed on from the caller.
        unsafe { context.heap.free(Call::MemoryFree, ptr, |start, end| self.is_busy(start, end)) }?;
        context.check(Call::MemoryFree.name())
    }

    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void> {
        self.enter(Call::PinnedAllocate, context)?;
        Ok(std::ptr::with_exposed_provenance_mut(
            self.pinned.allocate(Call::PinnedAllocate, bytes)?.0 as usize,
        ))
    }

    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        let context = self.enter_to_free(Call::PinnedFree, context)?;
        // SAFETY: passed on from the caller.
        unsafe { self.pinned.free(Call::PinnedFree, DevicePtr(ptr.addr() as u64), |_, _| false) }?;
        context.check(Call::PinnedFree.name())
    }

    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>> {
        let context = self.enter(Call::VirtualGranularity, context)?;
        Ok(context.space.granularity().filter(|_| self.maps))
    }

    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        self.enter(Call::VirtualReserve, context)?.space.reserve(bytes)
    }

    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let context = self.enter_to_free(Call::VirtualRelease, context)?;
        context.space.release(ptr, bytes)?;
        context.check(Call::VirtualRelease.name())
    }

    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let context = self.enter(Call::PhysicalCreate, context)?;
        context.space.create(bytes, &context.heap)
    }

    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()> {
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
        let context = self.enter(Call::VirtualMap, context)?;
        // SAFETY: passed on from the caller.
        unsafe { context.space.map(ptr, bytes, handle) }
    }

    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let context = self.enter_to_free(Call::VirtualUnmap, context)?;
        // SAFETY: passed on from the caller.
        unsafe { context.space.unmap(ptr, bytes, &context.heap, |start, end| self.is_busy(start, end)) }?;
        context.check(Call::VirtualUnmap.name())
    }

    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()> {
        let context = self.enter(Call::VirtualSetAccess, context)?;
        for ordinal in ordinals {
            self.known(Call::VirtualSetAccess, *ordinal)?;
        }
        context.space.set_access(ptr, bytes, ordinals)
    }

    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr> {
        let context = self.enter(Call::StreamAllocate, context)?;
        self.streams.get(Call::StreamAllocate, stream.0)?;
        context.heap.allocate(Call::StreamAllocate, bytes)
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        let context = self.enter_to_free(Call::StreamFree, context)?;
        context.heap.leave(ptr)?;
        self.push(Call::StreamFree, stream, Work::Free(ptr), Touched::new())
            .inspect_err(|_| context.heap.stay(ptr))?;
        context.check(Call::StreamFree.name())
    }

    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)> {
        let used = self.enter(Call::StreamPoolInfo, context)?.heap.pooled();
        Ok((used, used))
    }

    fn stream_pool_trim(&self, context: Context, _keep: u64) -> Result<()> {
        // Freed memory goes back to the heap at once: there is nothing to trim.
        self.enter(Call::StreamPoolTrim, context).map(|_| ())
    }

    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool> {
        self.control.enter(Call::PeerCanAccess)?;
        self.known(Call::PeerCanAccess, ordinal)?;
        self.known(Call::PeerCanAccess, peer)?;
        Ok(ordinal != peer)
    }

    fn peer_enable(&self, context: Context, peer: Context) -> Result<()> {
        let call = Call::PeerEnable;
        let (context, peer) = (self.enter(call, context)?, self.contexts.get(call, peer.0)?);
        if Arc::ptr_eq(&context, &peer) {
            let text = "a context is no peer of itself";
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        context.add_peer(&peer);
        Ok(())
    }

    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)> {
        let told = self.control.enter(Call::ProcessMemory);
        match told.and_then(|()| self.known(Call::ProcessMemory, ordinal)) {
            Ok(()) => self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Err(_) => Vec::new(),
        }
    }

    fn stream_create(&self, context: Context, _priority: i32) -> Result<StreamHandle> {
        let context = self.enter(Call::StreamCreate, context)?;
        let queue = Queue::new(Arc::clone(&context), Arc::clone(&self.control));
        context.add_stream(&queue);
        Ok(StreamHandle(self.streams.insert(queue)))
    }

    unsafe fn stream_destroy(&self, _context: Context, stream: StreamHandle) {
        // The destruction is only counted: there is no way to report that it failed.
        let _ = self.control.enter(Call::StreamDestroy);
        if let Some(queue) = self.streams.remove(stream.0) {
            queue.close();
        }
    }

    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool> {
        self.enter(Call::StreamQuery, context)?;
        Ok(self.streams.get(Call::StreamQuery, stream.0)?.is_idle())
    }

    fn stream_synchronize(&self, _context: Context, stream: StreamHandle) -> Result<()> {
        let ordered = self.control.enter(Call::StreamSynchronize);
        let queue = self.streams.get(Call::StreamSynchronize, stream.0)?;
        queue.wait();
        ordered?;
        queue.context().check(Call::StreamSynchronize.name())
    }

    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.enter(Call::StreamWaitEvent, context)?;
        let event = self.events.get(Call::StreamWaitEvent, event.0)?;
        match event.newest() {
            Some(mark) => self.push(Call::StreamWaitEvent, stream, Work::Wait(mark), Touched::new()),
            None => Ok(()),
        }
    }

    fn event_create(&self, context: Context, _timing: bool) -> Result<EventHandle> {
        self.enter(Call::EventCreate, context)?;
        Ok(EventHandle(self.events.insert(Arc::default())))
    }

    unsafe fn event_destroy(&self, _context: Context, event: EventHandle) {
        // The destruction is only counted: there is no way to report that it failed.
        let _ = self.control.enter(Call::EventDestroy);
        self.events.remove(event.0);
    }

    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter(Call::EventRecord, context)?;
        let mark = self.events.get(Call::EventRecord, event.0)?.record();
        self.push(Call::EventRecord, stream, Work::Record(mark), Touched::new())
    }

    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool> {
        self.enter(Call::EventQuery, context)?;
        let newest = self.events.get(Call::EventQuery, event.0)?.newest();
        Ok(newest.is_none_or(|mark| mark.time().is_some()))
    }

    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()> {
        let ordered = self.control.enter(Call::EventSynchronize);
        let event = self.events.get(Call::EventSynchronize, event.0)?;
        if let Some(mark) = event.newest() {
            mark.wait();
        }
        ordered?;
        self.contexts.get(Call::EventSynchronize, context.0)?.check(Call::EventSynchronize.name())
    }

    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64> {
        self.enter(Call::EventElapsed, context)?;
        let time = |event: EventHandle| {
            let missing = || driver_error("event_elapsed", code::NOT_READY, "an event is not complete");
            let newest = self.events.get(Call::EventElapsed, event.0)?.newest();
            newest.and_then(|mark| mark.time()).ok_or_else(missing)
        };
        let (start, end) = (time(start)?, time(end)?);
        Ok(match end.checked_duration_since(start) {
            Some(after) => after.as_secs_f64() * 1e6,
            None => -(start - end).as_secs_f64() * 1e6,
        })
    }

    unsafe fn copy_to_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: *const c_void,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::CopyToDevice, context)?;
        self.check_range(Call::CopyToDevice, &context, dst, bytes)?;
        let work = Work::Copy { dst: dst.0, src: src.expose_provenance() as u64, bytes };
        self.push(Call::CopyToDevice, stream, work, touches(dst, bytes))
    }

    unsafe fn copy_to_host(
        &self,
        context: Context,
        dst: *mut c_void,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::CopyToHost, context)?;
        self.check_range(Call::CopyToHost, &context, src, bytes)?;
        let work = Work::Copy { dst: dst.expose_provenance() as u64, src: src.0, bytes };
        self.push(Call::CopyToHost, stream, work, touches(src, bytes))
    }

    unsafe fn copy_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::CopyDevice, context)?;
        self.check_range(Call::CopyDevice, &context, dst, bytes)?;
        self.check_range(Call::CopyDevice, &context, src, bytes)?;
        let touched = vec![dst.0..dst.0 + bytes as u64, src.0..src.0 + bytes as u64];
        self.push(Call::CopyDevice, stream, Work::Copy { dst: dst.0, src: src.0, bytes }, touched)
    }

    unsafe fn set_bytes(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::SetBytes, context)?;
        self.check_range(Call::SetBytes, &context, dst, bytes)?;
        let work = Work::Set { dst: dst.0, value, bytes };
        self.push(Call::SetBytes, stream, work, touches(dst, bytes))
    }

    fn max_ptx_version(&self) -> Option<u32> {
        None
    }

    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle> {
        self.enter(Call::ModuleLoad, context)?;
        match source {
            ModuleSource::HostEntries => Ok(ModuleHandle(0)),
            ModuleSource::Ptx(_) | ModuleSource::Cubin(_) => Err(driver_error(
                "module_load",
                code::INVALID_VALUE,
                "the emulated device runs host entries only",
            )),
        }
    }

    unsafe fn module_unload(&self, _context: Context, _module: ModuleHandle) {
        // The unloading is only counted: there is no way to report that it failed.
        let _ = self.control.enter(Call::ModuleUnload);
    }

    fn module_function(
        &self,
        context: Context,
        _module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        self.enter(Call::ModuleFunction, context)?;
        Ok(FunctionHandle(std::ptr::from_ref(spec).expose_provenance() as u64))
    }

    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes> {
        self.enter(Call::FunctionAttributes, context)?;
        let bounds = spec_of(function).launch_bounds.map_or(MAX_THREADS, |bounds| bounds.max_threads);
        Ok(FunctionAttributes { max_threads_per_block: bounds.min(MAX_THREADS), ..Default::default() })
    }

    fn function_allow_shared(&self, context: Context, _function: FunctionHandle, bytes: u32) -> Result<()> {
        self.enter(Call::FunctionAllowShared, context)?;
        if bytes > SHARED_BYTES {
            let text = format!("{bytes} bytes of shared memory are over {SHARED_BYTES}");
            return Err(driver_error("function_allow_shared", code::INVALID_VALUE, text));
        }
        Ok(())
    }

    fn function_occupancy(
        &self,
        context: Context,
        _function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        self.enter(Call::FunctionOccupancy, context)?;
        let by_threads = 2048 / block_threads.max(1);
        let by_shared = SHARED_BYTES.checked_div(shared_bytes).unwrap_or(u32::MAX);
        Ok(by_threads.min(by_shared).min(MAX_BLOCKS_PER_MULTIPROCESSOR))
    }

    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::Launch, context)?;
        // SAFETY: the caller vouches for the arguments.
        let call = unsafe { KernelCall::new(spec_of(function), config, self.order, args) };
        let touched = call.touched();
        self.check_launch(&context, &call, &touched)?;
        self.push(Call::Launch, stream, Work::Launch(call), touched)
    }
}

/// The kernel that a function handle stands for.
fn spec_of(function: FunctionHandle) -> &'static KernelSpec {
    // SAFETY: function handles are made in `module_function` from `&'static KernelSpec`, and nowhere else;
    // the trait's contract forbids other handles.
    unsafe { &*std::ptr::with_exposed_provenance(function.0 as usize) }
}

/// What a copy or a fill touches.
fn touches(ptr: DevicePtr, bytes: usize) -> Touched {
    std::iter::once(ptr.0..ptr.0 + bytes as u64).collect()
}
