//! [`OrderedDriver`]: a driver on which nothing runs by itself, and that knows what is ordered before what.
//!
//! Memory comes from an emulated driver without memory behind it. Streams and events are its own: work is done
//! when a test says so by [`OrderedDriver::complete`], or when the host waits for it. Every stream has a vector
//! clock, so a use of memory that is not ordered after an earlier use of the same bytes is found, whatever the
//! timing would have been. Handing memory back while work may use it is found too. Both are kept for the test to
//! look at ([`OrderedDriver::violation`]). Any call can be told to fail.
#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_spec::KernelSpec;
use warpsmith_runtime::driver::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::driver::{
    Context, DeviceProperties, DevicePtr, Driver, EventHandle, Fault, FunctionAttributes, FunctionHandle,
    GraphDriver, HostFunction, LaunchConfig, LinkKind, ModuleHandle, ModuleSource, PhysicalHandle, RowsCopy,
    StreamHandle,
};
use warpsmith_runtime::driver::{DriverError as Error, Result};

const OUT_OF_MEMORY: u32 = 2;
const NOT_SUPPORTED: u32 = 801;
const UNKNOWN: u32 = 999;

/// For each stream how far it has come.
type Clock = BTreeMap<u64, u64>;

fn join(clock: &mut Clock, other: &Clock) {
    for (stream, tick) in other {
        let known = clock.entry(*stream).or_default();
        *known = (*known).max(*tick);
    }
}

fn covers(clock: &Clock, other: &Clock) -> bool {
    other.iter().all(|(stream, tick)| clock.get(stream).is_some_and(|known| known >= tick))
}

/// Work on a stream that uses memory.
#[derive(Debug)]
struct Use {
    start: u64,
    end: u64,
    stream: u64,
    tick: u64,
}

#[derive(Debug, Default)]
struct State {
    handles: u64,
    /// What is ordered before the next work on each stream, its own work included.
    streams: BTreeMap<u64, Clock>,
    live_streams: usize,
    /// What an event waits for; none before it is recorded.
    events: BTreeMap<u64, Option<Clock>>,
    /// What is known to have run.
    done: Clock,
    uses: Vec<Use>,
    /// Bytes of each block of the driver.
    blocks: BTreeMap<u64, u64>,
    /// The start and the size of every block and reservation there ever was, in order.
    segments: Vec<(u64, u64)>,
    violation: Option<String>,
    orders: Vec<(Call, u64, u32)>,
    fired: Vec<Call>,
}

impl State {
    /// The first earlier use of a range that `clock` and what has run do not cover.
    fn unordered(&self, start: u64, end: u64, clock: &Clock) -> Option<&Use> {
        let known = |use_: &Use, clock: &Clock| clock.get(&use_.stream).is_some_and(|t| *t >= use_.tick);
        let mut overlapping = self.uses.iter().filter(|use_| use_.start < end && start < use_.end);
        overlapping.find(|use_| !known(use_, clock) && !known(use_, &self.done))
    }

    /// Work of a stream that must come after all earlier uses of a range.
    fn exclusive(&mut self, what: &str, start: u64, end: u64, stream: u64) {
        let clock = self.streams.get(&stream).cloned().unwrap_or_default();
        if let Some(other) = self.unordered(start, end, &clock) {
            let text =
                format!("{what} {start:#x}..{end:#x} on stream {stream} is not ordered after {other:?}");
            self.violation.get_or_insert(text);
        }
        self.uses.retain(|use_| use_.end <= start || end <= use_.start);
        self.shared(start, end, stream);
    }

    fn shared(&mut self, start: u64, end: u64, stream: u64) {
        let tick = self.tick(stream);
        self.uses.push(Use { start, end, stream, tick });
    }

    fn tick(&mut self, stream: u64) -> u64 {
        let tick = self.streams.entry(stream).or_default().entry(stream).or_default();
        *tick += 1;
        *tick
    }

    /// Memory goes away, when all that uses it must have run.
    fn gone(&mut self, what: &str, start: u64, end: u64) {
        if let Some(running) = self.unordered(start, end, &Clock::new()) {
            let text = format!("{what} {start:#x}..{end:#x} while {running:?} may run");
            self.violation.get_or_insert(text);
        }
        self.uses.retain(|use_| use_.end <= start || end <= use_.start);
    }

    fn finish(&mut self, clock: &Clock) {
        join(&mut self.done, clock);
    }
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub struct OrderedDriver {
    memory: Arc<EmulatedDriver>,
    state: Mutex<State>,
}

fn error(call: Call, code: u32, text: &str) -> Error {
    Error::Call { call: call.name(), code, name: "CUDA_ERROR".to_owned(), text: text.to_owned() }
}

impl OrderedDriver {
    /// A driver of one device with so many bytes.
    pub fn new(capacity: u64) -> Arc<Self> {
        let memory = EmulatedDriver::builder().devices(1).memory(capacity).unbacked().build();
        Arc::new(Self { memory, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All work given to a stream until now has run, and what that work waited for.
    pub fn complete(&self, stream: StreamHandle) {
        let mut state = self.state();
        let clock = state.streams.get(&stream.0).cloned().unwrap_or_default();
        state.finish(&clock);
    }

    /// All work given to any stream has run.
    pub fn complete_all(&self) {
        let mut state = self.state();
        let clocks: Vec<Clock> = state.streams.values().cloned().collect();
        clocks.iter().for_each(|clock| state.finish(clock));
    }

    /// The first use of memory that was not ordered, if there was one.
    pub fn violation(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// Memory was handed out for work on a stream, which begins now.
    pub fn handed_out(&self, ptr: DevicePtr, bytes: u64, stream: StreamHandle) {
        self.state().exclusive("the block", ptr.0, ptr.0 + bytes, stream.0);
    }

    /// Work on another stream uses memory that was handed out for `home`, and that stream waited for `home` first.
    pub fn used(&self, ptr: DevicePtr, bytes: u64, home: StreamHandle, stream: StreamHandle) {
        let mut state = self.state();
        let clock = state.streams.get(&home.0).cloned().unwrap_or_default();
        join(state.streams.entry(stream.0).or_default(), &clock);
        state.shared(ptr.0, ptr.0 + bytes, stream.0);
    }

    /// Lets `after` more calls of `call` succeed and makes the next one fail. Calls that wait do so first.
    pub fn fail(&self, call: Call, after: u64, code: u32) {
        self.state().orders.push((call, after, code));
    }

    /// Forgets the failures that were ordered and did not come.
    pub fn forget_failures(&self) {
        self.state().orders.clear();
    }

    /// The calls that failed because they were told to, in order.
    pub fn fired(&self) -> Vec<Call> {
        self.state().fired.clone()
    }

    /// How many calls failed because they were told to.
    pub fn fired_count(&self) -> usize {
        self.state().fired.len()
    }

    /// Streams and events that were not destroyed.
    pub fn live_handles(&self) -> (usize, usize) {
        let state = self.state();
        (state.live_streams, state.events.len())
    }

    /// Blocks of the driver that are not freed, and reservations that are not released.
    pub fn live_memory(&self) -> (usize, usize) {
        (self.memory.live_allocations(0), self.memory.live_reservations(0))
    }

    /// Which of all the blocks and reservations there ever were an address lies in, and how far from its start.
    pub fn place(&self, address: u64) -> Option<(usize, u64)> {
        let state = self.state();
        let next = state.segments.partition_point(|(start, _)| *start <= address);
        let index = next.checked_sub(1)?;
        let (start, bytes) = state.segments[index];
        (address < start + bytes).then_some((index, address - start))
    }

    fn enter(&self, call: Call) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let mut due = None;
        for (index, (of, after, _)) in state.orders.iter_mut().enumerate() {
            if *of != call {
                continue;
            }
            match after.checked_sub(1) {
                Some(left) => *after = left,
                None => due = due.or(Some(index)),
            }
        }
        let Some(index) = due else { return Ok(state) };
        let (_, _, code) = state.orders.remove(index);
        state.fired.push(call);
        Err(error(call, code, "this failure was ordered by the test"))
    }

    fn unsupported<T>(&self, call: Call) -> Result<T> {
        Err(error(call, NOT_SUPPORTED, "this driver has memory and streams only"))
    }
}

/// Failures of these calls mean that there is no memory.
pub fn failure_code(call: Call) -> u32 {
    match call {
        Call::MemoryAllocate | Call::StreamAllocate | Call::PhysicalCreate | Call::VirtualReserve => {
            OUT_OF_MEMORY
        }
        _ => UNKNOWN,
    }
}

/// The calls that need memory with something behind it.
macro_rules! unsupported {
    ($($name:ident($($argument:ty),*) = $call:ident;)*) => {
        $(unsafe fn $name(&self, _context: Context, $(_: $argument),*) -> Result<()> {
            self.unsupported(Call::$call)
        })*
    };
}

// SAFETY: addresses and handles are those of an emulated driver, and nothing runs.
unsafe impl Driver for OrderedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn device_count(&self) -> Result<u32> {
        self.memory.device_count()
    }

    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties> {
        self.memory.device_properties(ordinal)
    }

    fn context_retain(&self, ordinal: u32) -> Result<Context> {
        self.memory.context_retain(ordinal)
    }

    fn context_release(&self, ordinal: u32) {
        self.memory.context_release(ordinal);
    }

    fn context_synchronize(&self, _context: Context) -> Result<()> {
        self.complete_all();
        self.enter(Call::ContextSynchronize).map(drop)
    }

    fn take_fault(&self, _context: Context) -> Option<Fault> {
        None
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        self.memory.memory_info(context)
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let mut state = self.enter(Call::MemoryAllocate)?;
        let ptr = self.memory.memory_allocate(context, bytes)?;
        state.blocks.insert(ptr.0, bytes as u64);
        state.segments.push((ptr.0, bytes as u64));
        Ok(ptr)
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        let mut state = self.enter(Call::MemoryFree)?;
        let bytes = state.blocks.remove(&ptr.0).unwrap_or(0);
        state.gone("freed", ptr.0, ptr.0 + bytes);
        // SAFETY: passed on from the caller; nothing is behind the address.
        unsafe { self.memory.memory_free(context, ptr) }
    }

    fn pinned_allocate(&self, _context: Context, _bytes: usize) -> Result<*mut c_void> {
        self.unsupported(Call::PinnedAllocate)
    }

    unsafe fn pinned_free(&self, _context: Context, _ptr: *mut c_void) -> Result<()> {
        self.unsupported(Call::PinnedFree)
    }

    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>> {
        let _state = self.enter(Call::VirtualGranularity)?;
        self.memory.virtual_granularity(context)
    }

    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        let mut state = self.enter(Call::VirtualReserve)?;
        let ptr = self.memory.virtual_reserve(context, bytes)?;
        state.segments.push((ptr.0, bytes as u64));
        Ok(ptr)
    }

    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let _state = self.enter(Call::VirtualRelease)?;
        // SAFETY: passed on from the caller.
        unsafe { self.memory.virtual_release(context, ptr, bytes) }
    }

    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        let _state = self.enter(Call::PhysicalCreate)?;
        self.memory.physical_create(context, bytes)
    }

    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()> {
        let _state = self.enter(Call::PhysicalRelease)?;
        // SAFETY: passed on from the caller.
        unsafe { self.memory.physical_release(context, handle) }
    }

    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let _state = self.enter(Call::VirtualMap)?;
        // SAFETY: passed on from the caller.
        unsafe { self.memory.virtual_map(context, ptr, bytes, handle) }
    }

    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let mut state = self.enter(Call::VirtualUnmap)?;
        state.gone("unmapped", ptr.0, ptr.0 + bytes as u64);
        // SAFETY: passed on from the caller.
        unsafe { self.memory.virtual_unmap(context, ptr, bytes) }
    }

    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()> {
        let _state = self.enter(Call::VirtualSetAccess)?;
        // SAFETY: passed on from the caller.
        unsafe { self.memory.virtual_set_access(context, ptr, bytes, ordinals) }
    }

    fn stream_allocate(&self, context: Context, bytes: usize, _stream: StreamHandle) -> Result<DevicePtr> {
        let mut state = self.enter(Call::StreamAllocate)?;
        let ptr = self.memory.memory_allocate(context, bytes)?;
        state.blocks.insert(ptr.0, bytes as u64);
        Ok(ptr)
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        let mut state = self.enter(Call::StreamFree)?;
        let end = ptr.0 + state.blocks.remove(&ptr.0).unwrap_or(0);
        state.exclusive("the free of", ptr.0, end, stream.0);
        state.uses.retain(|use_| use_.end <= ptr.0 || end <= use_.start);
        // SAFETY: passed on from the caller; nothing is behind the address.
        unsafe { self.memory.memory_free(context, ptr) }
    }

    fn stream_pool_info(&self, _context: Context) -> Result<(u64, u64)> {
        Ok((0, 0))
    }

    fn stream_pool_trim(&self, _context: Context, _keep: u64) -> Result<()> {
        Ok(())
    }

    fn peer_can_access(&self, _ordinal: u32, _peer: u32) -> Result<bool> {
        Ok(false)
    }

    fn peer_enable(&self, _context: Context, _peer: Context) -> Result<()> {
        self.unsupported(Call::PeerEnable)
    }

    fn peer_link(&self, ordinal: u32, peer: u32) -> LinkKind {
        self.memory.peer_link(ordinal, peer)
    }

    fn process_memory(&self, _ordinal: u32) -> Vec<(u32, u64)> {
        Vec::new()
    }

    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)> {
        let _state = self.enter(Call::StreamPriorities)?;
        self.memory.stream_priorities(context)
    }

    fn stream_create(&self, _context: Context, _priority: i32) -> Result<StreamHandle> {
        let mut state = self.enter(Call::StreamCreate)?;
        state.handles += 1;
        state.live_streams += 1;
        let handle = state.handles;
        state.streams.insert(handle, Clock::new());
        Ok(StreamHandle(handle))
    }

    fn stream_unique_id(&self, _context: Context, stream: StreamHandle) -> Result<u64> {
        // Handles are not used again.
        self.enter(Call::StreamUniqueId).map(|_| stream.0)
    }

    fn stream_priority(&self, _context: Context, _stream: StreamHandle) -> Result<i32> {
        self.enter(Call::StreamPriority).map(|_| 0)
    }

    unsafe fn stream_destroy(&self, _context: Context, _stream: StreamHandle) {
        // Its clock stays: what was enqueued still runs.
        self.state().live_streams -= 1;
    }

    fn stream_query(&self, _context: Context, stream: StreamHandle) -> Result<bool> {
        let state = self.enter(Call::StreamQuery)?;
        Ok(state.streams.get(&stream.0).is_none_or(|clock| covers(&state.done, clock)))
    }

    fn stream_synchronize(&self, _context: Context, stream: StreamHandle) -> Result<()> {
        self.complete(stream);
        self.enter(Call::StreamSynchronize).map(drop)
    }

    fn stream_wait_event(&self, _context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let mut state = self.enter(Call::StreamWaitEvent)?;
        let mark = state.events.get(&event.0).cloned().flatten().unwrap_or_default();
        join(state.streams.entry(stream.0).or_default(), &mark);
        Ok(())
    }

    fn host_function(&self, _context: Context, _stream: StreamHandle, _function: HostFunction) -> Result<()> {
        self.unsupported(Call::HostFunction)
    }

    fn event_create(&self, _context: Context, _timing: bool) -> Result<EventHandle> {
        let mut state = self.enter(Call::EventCreate)?;
        state.handles += 1;
        let handle = state.handles;
        state.events.insert(handle, None);
        Ok(EventHandle(handle))
    }

    fn event_create_shared(&self, context: Context) -> Result<EventHandle> {
        self.memory.event_create_shared(context)
    }

    fn event_export(&self, _context: Context, _event: EventHandle) -> Result<[u8; 64]> {
        self.unsupported(Call::EventExport)
    }

    fn event_import(&self, context: Context, exported: [u8; 64]) -> Result<EventHandle> {
        self.memory.event_import(context, exported)
    }

    unsafe fn event_destroy(&self, _context: Context, event: EventHandle) {
        if self.state().events.remove(&event.0).is_none() {
            self.state().violation.get_or_insert(format!("{event:?} was destroyed twice"));
        }
    }

    fn event_record(&self, _context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let mut state = self.enter(Call::EventRecord)?;
        state.tick(stream.0);
        let clock = state.streams.get(&stream.0).cloned().unwrap_or_default();
        match state.events.get_mut(&event.0) {
            Some(mark) => *mark = Some(clock),
            None => _ = state.violation.get_or_insert(format!("{event:?} was recorded after its end")),
        }
        Ok(())
    }

    fn event_query(&self, _context: Context, event: EventHandle) -> Result<bool> {
        let state = self.enter(Call::EventQuery)?;
        let mark = state.events.get(&event.0).and_then(Option::as_ref);
        Ok(mark.is_none_or(|mark| covers(&state.done, mark)))
    }

    fn event_synchronize(&self, _context: Context, event: EventHandle) -> Result<()> {
        {
            let mut state = self.state();
            let mark = state.events.get(&event.0).cloned().flatten().unwrap_or_default();
            state.finish(&mark);
        }
        self.enter(Call::EventSynchronize).map(drop)
    }

    fn event_elapsed(&self, _context: Context, _start: EventHandle, _end: EventHandle) -> Result<f64> {
        self.unsupported(Call::EventElapsed)
    }

    unsupported! {
        copy_to_device(DevicePtr, *const c_void, usize, StreamHandle) = CopyToDevice;
        copy_to_host(*mut c_void, DevicePtr, usize, StreamHandle) = CopyToHost;
        copy_device(DevicePtr, DevicePtr, usize, StreamHandle) = CopyDevice;
        copy_peer((Context, DevicePtr), (Context, DevicePtr), usize, StreamHandle) = CopyPeer;
        copy_rows(RowsCopy, StreamHandle) = CopyRows;
        launch(FunctionHandle, LaunchConfig, &[*const c_void], StreamHandle) = Launch;
    }

    unsafe fn set_bytes(
        &self,
        _context: Context,
        dst: DevicePtr,
        _value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let mut state = self.enter(Call::SetBytes)?;
        state.exclusive("setting", dst.0, dst.0 + bytes as u64, stream.0);
        Ok(())
    }

    fn max_ptx_version(&self) -> Option<u32> {
        None
    }

    fn module_load(&self, _context: Context, _source: ModuleSource<'_>) -> Result<ModuleHandle> {
        self.unsupported(Call::ModuleLoad)
    }

    unsafe fn module_unload(&self, _context: Context, _module: ModuleHandle) {}

    fn module_function(
        &self,
        _context: Context,
        _module: ModuleHandle,
        _spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        self.unsupported(Call::ModuleFunction)
    }

    fn function_attributes(
        &self,
        _context: Context,
        _function: FunctionHandle,
    ) -> Result<FunctionAttributes> {
        self.unsupported(Call::FunctionAttributes)
    }

    fn function_allow_shared(&self, _context: Context, _function: FunctionHandle, _bytes: u32) -> Result<()> {
        self.unsupported(Call::FunctionAllowShared)
    }

    fn function_occupancy(
        &self,
        _context: Context,
        _function: FunctionHandle,
        _block_threads: u32,
        _shared_bytes: u32,
    ) -> Result<u32> {
        self.unsupported(Call::FunctionOccupancy)
    }

    fn function_max_cluster(
        &self,
        _context: Context,
        _function: FunctionHandle,
        _config: LaunchConfig,
    ) -> Result<u32> {
        self.unsupported(Call::FunctionOccupancy)
    }

    fn function_resident_clusters(
        &self,
        _context: Context,
        _function: FunctionHandle,
        _config: LaunchConfig,
    ) -> Result<u32> {
        self.unsupported(Call::FunctionOccupancy)
    }

    fn function_allow_large_clusters(&self, _context: Context, _function: FunctionHandle) -> Result<()> {
        self.unsupported(Call::FunctionOccupancy)
    }
}

// SAFETY: it has no graphs.
unsafe impl GraphDriver for OrderedDriver {}
