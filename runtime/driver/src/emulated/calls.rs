//! The emulated driver's calls: [`Driver`] for [`EmulatedDriver`].
//!
//! Each is counted and may be told to fail before it does anything; those that wait do so first, so that when
//! they return nothing runs any more, whatever the result.

use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

use gpu_spec::KernelSpec;

use super::EmulatedDriver;
use super::action::Action;
use super::capture::NOTHING_RUNS;
use super::control::Call;
use super::control::{driver_error, not_shared};
use super::graph::{Home, NO_POOL};
use super::kernel::{KernelCall, function_of};
use super::limits::{MAX_THREADS, SHARED_BYTES, occupancy};
use super::rows::Rows;
use super::simulated::Timeline;
use super::stream::{Mark, Newest, Queue, Work};
use super::touched::{Access, Touched};
use crate::error::{Result, code};
use crate::host_function::HostCall;
use crate::{
    Context, DeviceProperties, DevicePtr, Driver, EventHandle, Fault, FunctionAttributes, FunctionHandle,
    HostFunction, HostWork, LaunchConfig, LinkKind, ModuleHandle, ModuleSource, PhysicalHandle, RowsCopy,
    StreamHandle, Telemetry,
};

/// The ends of the range of priorities, as GPUs of today have them.
const LEAST_URGENT: i32 = 0;
const MOST_URGENT: i32 = -5;

/// The module of the kernels' host entries.
const HOST_ENTRIES: ModuleHandle = ModuleHandle(0);

// SAFETY: blocks are of the process's heap or reserved pages, which are freed by the calls that say so only; without memory behind
// them, work that names them is refused. Handles are never used again. Streams run their tasks in order, a wait blocks until
// its mark is reached, and calls that wait return when the tasks have run.
unsafe impl Driver for EmulatedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.devices.len() as u32)
    }

    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties> {
        self.primary(ordinal)?;
        Ok(self.properties(ordinal))
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
        // There is no way to report that it failed. A host function can release nothing: it would wait for itself.
        if self.control.enter_to_wait(Call::ContextRelease).is_err() {
            return;
        }
        let Ok(primary) = self.primary(ordinal) else { return };
        let mut primary = primary.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = primary.retained.saturating_sub(1);
        if primary.retained == 0
            && let Some(context) = primary.context.take().and_then(|context| self.contexts.remove(context.0))
        {
            self.captures.context_released(&context);
            context.streams().iter().for_each(|stream| stream.close());
        }
    }

    fn context_synchronize(&self, context: Context) -> Result<()> {
        let ordered = self.control.enter_to_wait(Call::ContextSynchronize)?;
        let enqueued = self.races.of_context(context.0);
        let context = self.contexts.get(Call::ContextSynchronize, context.0)?;
        self.captures.refuse_context(Call::ContextSynchronize, &context)?;
        let wait = |stream: &Arc<Queue>| stream.wait(Call::ContextSynchronize);
        context.streams().iter().map(wait).fold(Ok(()), Result::and)?;
        self.races.host_saw(enqueued.as_ref());
        ordered?;
        context.check(Call::ContextSynchronize.name())
    }

    fn context_stack_limit(&self, context: Context) -> Result<usize> {
        Ok(self.enter(Call::ContextStackLimit, context)?.stack_limit())
    }

    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()> {
        let context = self.enter(Call::ContextSetStackLimit, context)?;
        self.captures.check_none(Call::ContextSetStackLimit, &context)?;
        context.set_stack_limit(Call::ContextSetStackLimit, bytes)
    }

    fn take_fault(&self, context: Context) -> Option<Fault> {
        self.contexts.get(Call::ContextSynchronize, context.0).ok()?.take_fault()
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        Ok(self.enter(Call::MemoryInfo, context)?.heap.info())
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let ptr = self.enter(Call::MemoryAllocate, context)?.heap.allocate(Call::MemoryAllocate, bytes)?;
        self.races.allocated(Call::MemoryAllocate, ptr.0, bytes, None);
        Ok(ptr)
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        let context = self.enter_to_free(Call::MemoryFree, context)?;
        // SAFETY: passed on from the caller.
        unsafe {
            context.heap.free(Call::MemoryFree, ptr, |start, end| self.frees(Call::MemoryFree, start, end))
        }?;
        context.check(Call::MemoryFree.name())
    }

    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void> {
        self.enter(Call::PinnedAllocate, context)?;
        let ptr = self.pinned.allocate(Call::PinnedAllocate, bytes)?;
        self.races.allocated(Call::PinnedAllocate, ptr.0, bytes, None);
        Ok(std::ptr::with_exposed_provenance_mut(ptr.0 as usize))
    }

    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        let context = self.enter_to_free(Call::PinnedFree, context)?;
        let used = |start, end| {
            self.races.host_frees(Call::PinnedFree, start..end, true);
            false
        };
        // SAFETY: passed on from the caller.
        unsafe { self.pinned.free(Call::PinnedFree, DevicePtr(ptr.addr() as u64), used) }?;
        context.check(Call::PinnedFree.name())
    }

    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        self.enter(Call::HostRegister, context)?;
        self.registered.add(ptr.expose_provenance() as u64, bytes)?;
        self.races.allocated(Call::HostRegister, ptr.addr() as u64, bytes, None);
        Ok(())
    }

    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        let context = self.enter_to_free(Call::HostUnregister, context)?;
        self.registered
            .remove(ptr.addr() as u64, |start, end| self.frees(Call::HostUnregister, start, end))?;
        context.check(Call::HostUnregister.name())
    }

    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr> {
        self.enter(Call::HostAddress, context)?;
        let address = DevicePtr(ptr.addr() as u64);
        if self.is_page_locked(address, 1) {
            return Ok(address);
        }
        let text = format!("{:#x} is not in page-locked memory, allocated or registered", address.0);
        Err(driver_error(Call::HostAddress.name(), code::INVALID_VALUE, text))
    }

    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>> {
        self.enter(Call::MemoryDevice, context)?;
        match self.home(&(ptr.0..ptr.0.saturating_add(1))) {
            Home::Device(ordinal) => Ok(Some(ordinal)),
            Home::PageLocked => Ok(None),
            Home::Elsewhere => {
                let text = format!("no memory of a device or page-locked memory is at {:#x}", ptr.0);
                Err(driver_error(Call::MemoryDevice.name(), code::INVALID_VALUE, text))
            }
        }
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
        let busy = |start, end| self.frees(Call::VirtualUnmap, start, end);
        // SAFETY: passed on from the caller.
        unsafe { context.space.unmap(ptr, bytes, &context.heap, busy) }?;
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
            self.reaches(Call::VirtualSetAccess, *ordinal, context.ordinal)?;
        }
        context.space.set_access(ptr, bytes, ordinals)
    }

    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr> {
        let context = self.enter(Call::StreamAllocate, context)?;
        self.streams.get(Call::StreamAllocate, stream.0)?;
        self.captures.refuse(Call::StreamAllocate, stream.0, NO_POOL)?;
        let ptr = context.heap.allocate(Call::StreamAllocate, bytes)?;
        self.races.allocated(Call::StreamAllocate, ptr.0, bytes, Some(stream.0));
        Ok(ptr)
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
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
        // Freed memory goes back to the heap at once: there is nothing to trim.
        self.enter(Call::StreamPoolTrim, context).map(|_| ())
    }

    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool> {
        self.control.enter(Call::PeerCanAccess)?;
        self.known(Call::PeerCanAccess, ordinal)?;
        self.known(Call::PeerCanAccess, peer)?;
        Ok(self.peers && ordinal != peer)
    }

    fn peer_enable(&self, context: Context, peer: Context) -> Result<()> {
        let call = Call::PeerEnable;
        let (context, peer) = (self.enter(call, context)?, self.contexts.get(call, peer.0)?);
        if Arc::ptr_eq(&context, &peer) {
            let text = "a context is no peer of itself";
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        self.reaches(call, context.ordinal, peer.ordinal)?;
        context.add_peer(&peer);
        Ok(())
    }

    fn peer_link(&self, ordinal: u32, peer: u32) -> LinkKind {
        let count = self.devices.len();
        match (ordinal as usize) < count && (peer as usize) < count {
            true if ordinal == peer => LinkKind::Same,
            true => LinkKind::Emulated,
            false => LinkKind::Unknown,
        }
    }

    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)> {
        let told = self.control.enter(Call::ProcessMemory);
        match told.and_then(|()| self.known(Call::ProcessMemory, ordinal)) {
            Ok(()) => self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Err(_) => Vec::new(),
        }
    }

    fn telemetry(&self, ordinal: u32) -> Result<Telemetry> {
        Ok(self.sensors.read(ordinal))
    }

    fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.sensors.sm_clock_mhz(ordinal)
    }

    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)> {
        self.enter(Call::StreamPriorities, context).map(|_| (LEAST_URGENT, MOST_URGENT))
    }

    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle> {
        let handle = context;
        let context = self.enter(Call::StreamCreate, context)?;
        let priority = priority.clamp(MOST_URGENT, LEAST_URGENT);
        let (own, control, stepper) = (Arc::clone(&context), Arc::clone(&self.control), self.stepper.clone());
        let queue = Queue::new(own, control, priority, Timeline::new(self.time.clone()), stepper);
        context.add_stream(&queue);
        Ok(self.add_stream(handle, queue))
    }

    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64> {
        let context = self.enter(Call::StreamUniqueId, context)?;
        self.stream_of(Call::StreamUniqueId, &context, stream)?;
        // No handle is given out twice.
        Ok(stream.0)
    }

    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32> {
        let context = self.enter(Call::StreamPriority, context)?;
        Ok(self.stream_of(Call::StreamPriority, &context, stream)?.priority())
    }

    unsafe fn stream_destroy(&self, _context: Context, stream: StreamHandle) {
        // There is no way to report that it failed. A host function can destroy nothing: it would wait for itself.
        if self.control.enter_to_wait(Call::StreamDestroy).is_err() {
            return;
        }
        if let Some(queue) = self.streams.remove(stream.0) {
            self.captures.stream_destroyed(stream.0);
            self.races.stream_destroyed(stream.0);
            queue.close();
        }
    }

    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool> {
        self.enter(Call::StreamQuery, context)?;
        self.captures.refuse(Call::StreamQuery, stream.0, NOTHING_RUNS)?;
        let enqueued = self.races.of_stream(stream.0);
        let idle = self.streams.get(Call::StreamQuery, stream.0)?.is_idle();
        self.races.host_saw(enqueued.as_ref().filter(|_| idle));
        Ok(idle)
    }

    fn stream_synchronize(&self, _context: Context, stream: StreamHandle) -> Result<()> {
        let ordered = self.control.enter_to_wait(Call::StreamSynchronize)?;
        let queue = self.streams.get(Call::StreamSynchronize, stream.0)?;
        self.captures.refuse(Call::StreamSynchronize, stream.0, NOTHING_RUNS)?;
        let enqueued = self.races.of_stream(stream.0);
        queue.wait(Call::StreamSynchronize)?;
        self.races.host_saw(enqueued.as_ref());
        ordered?;
        queue.context().check(Call::StreamSynchronize.name())
    }

    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let (call, skip) = (Call::StreamWaitEvent, self.control.skips_wait());
        self.enter(call, context)?;
        let newest = self.events.get(call, event.0)?.newest();
        if skip || self.captures_wait(call, stream, &newest)? {
            return Ok(());
        }
        match newest {
            Newest::Mark(mark) => self.push(call, stream, Work::Wait(mark), Touched::new()),
            Newest::Never | Newest::Captured(_) => Ok(()),
        }
    }

    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()> {
        self.enter(Call::HostFunction, context)?;
        let work = Work::Host(HostCall::new(function));
        self.push(Call::HostFunction, stream, work, Touched::new())
    }

    unsafe fn host_work(&self, context: Context, stream: StreamHandle, work: HostWork) -> Result<()> {
        let context = self.enter(Call::HostWork, context)?;
        let touched = self.check_uses(Call::HostWork, &context, work.uses())?;
        self.push(Call::HostWork, stream, Work::Act(Action::HostWork(Arc::new(work))), touched)
    }

    fn event_create(&self, context: Context, _timing: bool) -> Result<EventHandle> {
        self.enter(Call::EventCreate, context)?;
        Ok(EventHandle(self.events.insert(Arc::default())))
    }

    fn event_create_shared(&self, context: Context) -> Result<EventHandle> {
        self.enter(Call::EventCreateShared, context)?;
        Err(not_shared(Call::EventCreateShared))
    }

    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; 64]> {
        self.enter(Call::EventExport, context)?;
        self.events.get(Call::EventExport, event.0)?;
        Err(not_shared(Call::EventExport))
    }

    fn event_import(&self, context: Context, _exported: [u8; 64]) -> Result<EventHandle> {
        self.enter(Call::EventImport, context)?;
        Err(not_shared(Call::EventImport))
    }

    unsafe fn event_destroy(&self, _context: Context, event: EventHandle) {
        // There is no way to report that it failed. A host function can destroy nothing.
        if self.control.enter_to_wait(Call::EventDestroy).is_err() {
            return;
        }
        self.events.remove(event.0);
    }

    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter(Call::EventRecord, context)?;
        let event = self.events.get(Call::EventRecord, event.0)?;
        if let Some(captured) = self.captures.record(Call::EventRecord, stream.0)? {
            event.set_newest(Newest::Captured(captured));
            return Ok(());
        }
        let mark = Arc::new(Mark::default());
        // A capture that another thread begins from here on comes after the record.
        let (queue, record) =
            (self.streams.get(Call::EventRecord, stream.0)?, Work::Record(Arc::clone(&mark)));
        self.push_to_run(Call::EventRecord, stream, &queue, record, Touched::new())?;
        // Not before: nobody can wait for what is not enqueued.
        event.set_newest(Newest::Mark(mark));
        Ok(())
    }

    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool> {
        self.enter(Call::EventQuery, context)?;
        let Some(mark) = self.newest_mark(Call::EventQuery, event)? else { return Ok(true) };
        let reached = mark.time().is_some();
        self.races.host_saw(mark.clock().filter(|_| reached));
        Ok(reached)
    }

    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()> {
        let ordered = self.control.enter_to_wait(Call::EventSynchronize)?;
        if let Some(mark) = self.newest_mark(Call::EventSynchronize, event)? {
            match &self.stepper {
                Some(stepper) => stepper.run_until(Call::EventSynchronize, || mark.time().is_some())?,
                None => drop(mark.wait()),
            }
            self.races.host_saw(mark.clock());
        }
        ordered?;
        self.contexts.get(Call::EventSynchronize, context.0)?.check(Call::EventSynchronize.name())
    }

    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64> {
        self.enter(Call::EventElapsed, context)?;
        let time = |event: EventHandle| {
            let missing = || driver_error("event_elapsed", code::NOT_READY, "an event is not complete");
            let newest = self.newest_mark(Call::EventElapsed, event)?;
            newest.and_then(|mark| mark.time()).ok_or_else(missing)
        };
        let (start, end) = (time(start)?, time(end)?);
        Ok(match self.time {
            Some(_) => end.simulated_us - start.simulated_us,
            None => end.us_since(start),
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
        self.copy(Call::CopyToDevice, stream, dst.0, src.expose_provenance() as u64, bytes)
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
        self.copy(Call::CopyToHost, stream, dst.expose_provenance() as u64, src.0, bytes)
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
        self.copy(Call::CopyDevice, stream, dst.0, src.0, bytes)
    }

    unsafe fn copy_peer(
        &self,
        context: Context,
        dst: (Context, DevicePtr),
        src: (Context, DevicePtr),
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::CopyPeer;
        let here = self.enter(call, context)?;
        if context != dst.0 && context != src.0 {
            let text = "the copy is neither to nor from the device of its stream";
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        self.stream_of(call, &here, stream)?;
        let mut touched = Touched::new();
        for (side, ptr) in [dst, src] {
            let side = self.contexts.get(call, side.0)?;
            side.check(call.name())?;
            self.check_range(call, &side, ptr, bytes)?;
            let access = if ptr == dst.1 { Access::write } else { Access::read };
            touched.push(access(ptr.0, bytes));
            if !Arc::ptr_eq(&side, &here) {
                side.add_visitor(&here);
            }
        }
        let copy = Action::Copy { dst: dst.1.0, src: src.1.0, bytes };
        self.push(call, stream, Work::Act(copy), touched)
    }

    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()> {
        let context = self.enter(Call::CopyRows, context)?;
        let rows = Rows::check(rows, |ptr, bytes| self.check_range(Call::CopyRows, &context, ptr, bytes))?;
        let touched = rows.touched();
        self.push(Call::CopyRows, stream, Work::Act(Action::Rows(rows)), touched)
    }

    unsafe fn memset(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::Memset, context)?;
        let written = self.check_fill(Call::Memset, &context, dst, bytes)?;
        let work = Work::Act(Action::Set { dst: dst.0, value, bytes: written });
        self.push(Call::Memset, stream, work, vec![Access::write(dst.0, bytes)])
    }

    fn max_ptx_version(&self) -> Option<u32> {
        None
    }

    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle> {
        let context = self.enter(Call::ModuleLoad, context)?;
        match source {
            ModuleSource::HostEntries => Ok(HOST_ENTRIES),
            ModuleSource::Ptx(_) | ModuleSource::Cubin(_) | ModuleSource::Linked { .. } => {
                self.code.load(&context)
            }
        }
    }

    unsafe fn module_unload(&self, context: Context, module: ModuleHandle) {
        // There is no way to report that it failed.
        if let Ok(context) = self.enter_to_free(Call::ModuleUnload, context)
            && module != HOST_ENTRIES
        {
            // SAFETY: passed on from the caller.
            unsafe { self.code.unload(&context, module) };
        }
    }

    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        self.enter(Call::ModuleFunction, context)?;
        if module == HOST_ENTRIES { Ok(function_of(spec)) } else { self.code.function(module, spec.symbol) }
    }

    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes> {
        self.enter(Call::FunctionAttributes, context)?;
        let (kernel, _) = self.code.kernel_of(Call::FunctionAttributes, function)?;
        let bounds = kernel.launch_bounds.map_or(MAX_THREADS, |bounds| bounds.max_threads);
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
        Ok(occupancy(block_threads, shared_bytes))
    }

    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        _config: LaunchConfig,
    ) -> Result<u32> {
        self.enter(Call::FunctionMaxCluster, context)?;
        Ok(self.largest_cluster(function))
    }

    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        self.enter(Call::FunctionResidentClusters, context)?;
        self.resident_clusters(Call::FunctionResidentClusters, function, &config)
    }

    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()> {
        self.enter(Call::FunctionAllowLargeClusters, context)?;
        self.allow_large_clusters(function);
        Ok(())
    }

    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.enter(Call::Launch, context)?;
        self.check_config(Call::Launch, function, config)?;
        if self.idle && !self.captures.holds(stream.0) {
            if self.time.is_none() && !self.races.is_on() {
                return Ok(());
            }
            let kernel = self.code.kernel_of(Call::Launch, function)?;
            // SAFETY: the caller vouches for the arguments.
            let touched = unsafe { KernelCall::new(kernel, *config, self.order, args) }.touched();
            return self.push(Call::Launch, stream, Work::Idle(kernel.0, *config), touched);
        }
        // SAFETY: the caller vouches for the arguments.
        let call = unsafe {
            KernelCall::new(self.code.kernel_of(Call::Launch, function)?, *config, self.order, args)
        };
        let touched = call.touched();
        self.check_launch(Call::Launch, &context, &call, &touched)?;
        self.push(Call::Launch, stream, Work::Act(Action::Launch(call)), touched)
    }
}
