//! The emulated driver: any number of devices, emulated on the CPU, that work asynchronously like a GPU.
//!
//! Each stream has a worker thread that runs its tasks in order; `warpsmith_emulator` runs the kernels. A kernel that
//! panics or deadlocks makes its context unusable, as on a GPU. Later calls fail, and [`Driver::take_fault`] reports
//! the fault. Retaining the primary context again after the last release creates a new context. Calls from inside a
//! host function fail with `CUDA_ERROR_NOT_PERMITTED`, or have no effect if they cannot fail.
//!
//! For tests, a driver can fail on request ([`EmulatedDriver::fail_call`]), be slow ([`EmulatedDriver::set_delay`]),
//! stall ([`EmulatedDriver::hold`]) or make a context unusable ([`EmulatedDriver::poison`]), and it counts its calls
//! ([`EmulatedDriver::calls`]). The driver rejects frees of memory that enqueued work still uses. It also rejects
//! copies to or from memory that is not allocated, mapped and accessible. Stream priorities have no effect. The stack
//! limit is compared with the declared stack of kernels (`stack = BYTES`), because the emulated device cannot determine
//! how much stack a thread would use on a GPU. Interprocess events are stored in a file.
//!
//! The feature `testing` supports tests of ordering. The driver can run without worker threads, in the order of a
//! [`Schedule`] ([`EmulatedDriverBuilder::stepped`]). It can also detect unordered work
//! ([`EmulatedDriverBuilder::check_races`]) and skip a wait ([`EmulatedDriver::skip_wait`]).
//!
//! Captures and graphs follow CUDA's rules and report violations with CUDA's codes. A graph launch is one task of its
//! stream, and its nodes run one after another.
//!
//! The feature `testing` also supports tests of measuring code. Time can come from a model
//! ([`EmulatedDriverBuilder::simulated_time`]), and tests set the reported clocks and temperatures
//! ([`EmulatedDriver::set_telemetry`], [`EmulatedDriver::on_sm_clock`]).
//!
//! With [`EmulatedDriverBuilder::unbacked`], the driver allocates any number of addresses without backing memory.

mod action;
mod activity;
mod address_space;
mod builder;
mod calls;
mod capture;
mod clock;
mod code_calls;
mod context;
mod control;
mod graph;
mod heap;
mod history;
mod kernel;
mod limits;
mod loaded;
mod memory_calls;
mod pages;
mod race;
mod range;
mod recorder;
mod registered;
mod rows;
mod schedule;
mod shared_event;
mod shared_pages;
mod simulated;
mod stream;
mod stream_calls;
#[cfg(feature = "testing")]
mod telemetry;
mod testing;
mod touched;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use warpsmith_emulator::{Order, settings};

use self::action::Action;
pub use self::builder::EmulatedDriverBuilder;
use self::capture::Captures;
use self::context::EmulatedContext;
pub use self::control::Call;
use self::control::{Control, driver_error};
use self::graph::{Executable, Store};
use self::heap::Heap;
use self::loaded::LoadedCode;
use self::pages::Backing;
use self::race::Races;
use self::recorder::Recorder;
use self::registered::{Exposed, Registered};
pub use self::schedule::Schedule;
use self::schedule::Stepping;
pub use self::simulated::SimulatedWork;
use self::simulated::TimeModel;
use self::stream::{EventState, Queue, Work};
#[cfg(feature = "testing")]
use self::telemetry::Sensors;
use self::touched::{Access, Touched};
use warpsmith_driver::activity::ActivityTransfer;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{Context, DevicePtr, Driver, Fault, FunctionHandle, StreamHandle};

/// Table that maps handles of one kind to their objects. Handles are never reused.
#[derive(Debug)]
struct Table<T> {
    kind: &'static str,
    /// Error code for an unknown handle.
    unknown: u32,
    next: AtomicU64,
    entries: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Table<T> {
    fn new(kind: &'static str, unknown: u32) -> Self {
        Self { kind, unknown, next: AtomicU64::new(1), entries: RwLock::default() }
    }

    fn insert(&self, entry: Arc<T>) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(handle, entry);
        handle
    }

    fn get(&self, call: Call, handle: u64) -> Result<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let text = || format!("{} {handle} is unknown or was destroyed", self.kind);
        entries.get(&handle).cloned().ok_or_else(|| driver_error(call.name(), self.unknown, text()))
    }

    fn all(&self) -> Vec<Arc<T>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}

/// Primary context of a device; present while it is retained.
#[derive(Debug, Default)]
struct Primary {
    retained: u32,
    context: Option<Context>,
}

/// The emulated driver; see the [module's documentation](self).
#[derive(Debug)]
pub struct EmulatedDriver {
    devices: Vec<Mutex<Primary>>,
    memory: u64,
    order: Order,
    backing: Backing,
    maps: bool,
    peers: bool,
    accesses_pageable: bool,
    idle: bool,
    control: Arc<Control>,
    /// Time model; `None` if the machine's clock is used.
    time: Option<TimeModel>,
    #[cfg(feature = "testing")]
    sensors: Sensors,
    recorder: Arc<Recorder>,
    /// Stepper that runs the tasks; `None` if worker threads run them.
    stepper: Option<Stepping>,
    races: Arc<Races>,
    contexts: Table<EmulatedContext>,
    streams: Table<Queue>,
    events: Table<EventState>,
    executables: Table<Executable>,
    graphs: Mutex<Store>,
    captures: Captures,
    /// Kernels for which non-portable cluster sizes are permitted.
    large_clusters: Mutex<HashSet<FunctionHandle>>,
    code: LoadedCode,
    pinned: Heap,
    registered: Registered,
    exposed: Exposed,
    /// Memory usage of processes, as set with [`Self::set_process_memory`].
    processes: Mutex<Vec<(u32, u64)>>,
}

/// Returns the driver that `Device::emulated` uses. It is created on first use.
#[linkme::distributed_slice(warpsmith_driver::EMULATED)]
static REGISTERED: fn() -> Arc<dyn Driver> = || {
    static DRIVER: OnceLock<Arc<EmulatedDriver>> = OnceLock::new();
    DRIVER.get_or_init(EmulatedDriver::from_environment).clone()
};

impl EmulatedDriver {
    /// Creates a driver that is configured by environment variables. `WARPSMITH_EMULATED_DEVICES` is the number of
    /// devices; if it is unset or not a number, there is 1 device. `WARPSMITH_EMULATOR_SEED` is a seed for the order of
    /// GPU threads, or `off`. If it is unset, each process draws a random seed, which is named in the messages of
    /// faults.
    pub fn from_environment() -> Arc<Self> {
        let number = |name| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let mut builder = Self::builder().order(settings::order());
        if let Some(devices) = number("WARPSMITH_EMULATED_DEVICES") {
            builder = builder.devices(devices.min(1024) as u32);
        }
        builder.build()
    }

    /// Returns the number of times that `call` was made since the driver was built or [`Self::reset_calls`] was called.
    pub fn calls(&self, call: Call) -> u64 {
        self.control.count(call)
    }

    /// Resets all call counts to zero.
    pub fn reset_calls(&self) {
        self.control.reset_counts();
    }

    /// Lets `after` more calls of `call` succeed and makes the next one fail with `CUDA_ERROR_UNKNOWN` (for
    /// allocations, `CUDA_ERROR_OUT_OF_MEMORY`). Waiting calls wait before they fail.
    pub fn fail_call(&self, call: Call, after: u64) {
        let code = match call {
            Call::MemoryAllocate
            | Call::PinnedAllocate
            | Call::StreamAllocate
            | Call::PhysicalCreate
            | Call::PhysicalCreateShareable
            | Call::VirtualReserve => code::OUT_OF_MEMORY,
            _ => code::UNKNOWN,
        };
        self.fail_call_with(call, after, code);
    }

    /// Like [`Self::fail_call`], but with a given CUDA error code.
    pub fn fail_call_with(&self, call: Call, after: u64, code: u32) {
        self.control.fail(call, after, code);
    }

    /// Cancels pending failures that [`Self::fail_call`] has injected.
    pub fn cancel_failures(&self) {
        self.control.forget();
    }

    /// Returns the calls that failed because of [`Self::fail_call`], in order.
    pub fn failed_calls(&self) -> Vec<Call> {
        self.control.failed()
    }

    /// Delays the start of every task of every stream.
    pub fn set_delay(&self, delay: Duration) {
        self.control.set_delay(delay);
    }

    /// Delays the start of every task of one stream.
    pub fn set_stream_delay(&self, stream: StreamHandle, delay: Duration) {
        if let Ok(queue) = self.streams.get(Call::StreamQuery, stream.0) {
            queue.set_delay(delay);
        }
    }

    /// Keeps all streams from starting tasks until the returned guard is dropped.
    pub fn hold(&self) -> Hold {
        self.control.hold();
        Hold { control: Arc::clone(&self.control) }
    }

    /// Switches to another schedule, from its beginning. This method has no effect on a driver with worker threads.
    #[cfg(feature = "testing")]
    pub fn set_schedule(&self, schedule: Schedule) {
        if let Some(stepper) = &self.stepper {
            stepper.set_schedule(schedule);
        }
    }

    /// Returns the races that were found since the last call. Each description names the operation, stream
    /// ([`StreamHandle`]) and range of both uses. The result is empty unless the driver was built to check for races
    /// ([`check_races`](EmulatedDriverBuilder::check_races)).
    #[cfg(feature = "testing")]
    pub fn take_races(&self) -> Vec<String> {
        self.races.take()
    }

    /// Lets `after` more calls of [`Call::StreamWaitEvent`] take effect and makes the next one succeed without effect,
    /// as if the program had omitted this wait.
    ///
    /// # Safety
    /// The memory of work that the wait would have ordered must not be freed before that work has run. In addition,
    /// tasks must run one at a time ([`EmulatedDriverBuilder::stepped`]), or no task on one side of the wait may access
    /// memory that a task on the other side writes.
    #[cfg(feature = "testing")]
    pub unsafe fn skip_wait(&self, after: u64) {
        self.control.skip_wait(after);
    }

    /// Makes the primary context of a device unusable, as if a kernel had caused `fault`. This method has no effect if
    /// the context is not retained.
    pub fn poison(&self, ordinal: u32, fault: Fault) {
        if let Some(context) = self.primary_context(ordinal) {
            context.poison(fault);
        }
    }

    /// Returns the number of allocations of a device that have not been freed. Physical memory counts until its handle
    /// was released and it was unmapped.
    pub fn live_allocations(&self, ordinal: u32) -> usize {
        self.primary_context(ordinal).map_or(0, |context| context.heap.live() + context.space.live())
    }

    /// Returns the number of page-locked host allocations of all devices that have not been freed.
    pub fn live_pinned(&self) -> usize {
        self.pinned.live()
    }

    /// Returns the number of registered and exposed ranges of process memory.
    pub fn live_registered(&self) -> usize {
        self.registered.live() + self.exposed.live()
    }

    /// Returns the number of address reservations of a device that have not been released.
    pub fn live_reservations(&self, ordinal: u32) -> usize {
        self.primary_context(ordinal).map_or(0, |context| context.space.reservations())
    }

    /// Returns the ordinals of the devices that have access to the memory that is mapped at an address, in ascending
    /// order. The list is empty if no memory is mapped there.
    pub fn accessible_from(&self, ptr: DevicePtr) -> Vec<u32> {
        self.contexts.all().iter().find_map(|context| context.space.accessible_from(ptr)).unwrap_or_default()
    }

    /// Sets the result of [`Driver::process_memory`] for every device.
    pub fn set_process_memory(&self, processes: Vec<(u32, u64)>) {
        *self.processes.lock().unwrap_or_else(PoisonError::into_inner) = processes;
    }

    fn new_context(&self, ordinal: u32) -> Arc<EmulatedContext> {
        EmulatedContext::new(ordinal, self.memory, self.backing.clone())
    }

    fn primary_context(&self, ordinal: u32) -> Option<Arc<EmulatedContext>> {
        let primary = self.devices.get(ordinal as usize)?;
        let context = primary.lock().unwrap_or_else(PoisonError::into_inner).context?;
        self.contexts.get(Call::ContextRetain, context.0).ok()
    }

    fn primary(&self, ordinal: u32) -> Result<&Mutex<Primary>> {
        let unknown = || driver_error("context_retain", code::INVALID_VALUE, format!("no device {ordinal}"));
        self.devices.get(ordinal as usize).ok_or_else(unknown)
    }

    /// Counts a call and returns its context. Returns an error if the context is unusable.
    fn enter(&self, call: Call, context: Context) -> Result<Arc<EmulatedContext>> {
        self.control.enter(call)?;
        let context = self.contexts.get(call, context.0)?;
        context.check(call.name())?;
        Ok(context)
    }

    /// Counts a call that releases resources and returns its context, which may be unusable.
    fn enter_to_free(&self, call: Call, context: Context) -> Result<Arc<EmulatedContext>> {
        self.control.enter(call)?;
        self.contexts.get(call, context.0)
    }

    fn stream_of(
        &self,
        call: Call,
        context: &Arc<EmulatedContext>,
        stream: StreamHandle,
    ) -> Result<Arc<Queue>> {
        let queue = self.streams.get(call, stream.0)?;
        if Arc::ptr_eq(queue.context(), context) {
            return Ok(queue);
        }
        let text = format!("stream {} belongs to device {}", stream.0, queue.context().ordinal);
        Err(driver_error(call.name(), code::INVALID_HANDLE, text))
    }

    /// Enqueues work on a stream, or adds it to a graph if the stream is being captured.
    fn push(&self, call: Call, stream: StreamHandle, work: Work, touched: Touched) -> Result<()> {
        let queue = self.streams.get(call, stream.0)?;
        if self.captures.holds(stream.0) {
            return self.capture(call, stream, &queue, work, touched);
        }
        self.push_to_run(call, stream, &queue, work, touched)
    }

    /// Enqueues work that runs on a stream.
    fn push_to_run(
        &self,
        call: Call,
        stream: StreamHandle,
        queue: &Arc<Queue>,
        work: Work,
        touched: Touched,
    ) -> Result<()> {
        let no_thread = |error| {
            driver_error(call.name(), code::UNKNOWN, format!("cannot start a stream's thread: {error}"))
        };
        let push = |work, touched, place| queue.push(work, touched, place);
        self.races.enqueue(stream.0, call, work, touched, push).map_err(no_thread)
    }

    /// Enqueues a copy between two addresses, each of which may be in host or device memory.
    fn copy(&self, call: Call, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()> {
        let kind = match call {
            Call::CopyToDevice => ActivityTransfer::HostToDevice,
            Call::CopyToHost => ActivityTransfer::DeviceToHost,
            _ => ActivityTransfer::DeviceToDevice,
        };
        let touched = vec![Access::read(src, bytes), Access::write(dst, bytes)];
        self.push(call, stream, Work::Act(Action::Copy { dst, src, bytes, kind }), touched)
    }

    fn add_stream(&self, context: Context, queue: Arc<Queue>) -> StreamHandle {
        let stream = StreamHandle(self.streams.insert(Arc::clone(&queue)));
        queue.set_number(stream.0 as u32);
        self.races.stream_created(stream.0, context.0);
        if let Some(stepper) = &self.stepper {
            stepper.add(stream, &queue);
        }
        stream
    }

    /// Called when the host frees addresses from `start` to `end`. Returns true if pending work prevents this.
    fn frees(&self, call: Call, start: u64, end: u64) -> bool {
        let busy = self.is_busy(start, end);
        self.races.host_frees(call, start..end, !busy);
        busy
    }
}

/// Guard that keeps an emulated driver's streams from starting tasks until it is dropped.
#[derive(Debug)]
pub struct Hold {
    control: Arc<Control>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.control.release();
    }
}

impl Drop for EmulatedDriver {
    fn drop(&mut self) {
        let streams = std::mem::take(self.streams.entries.get_mut().unwrap_or_else(PoisonError::into_inner));
        streams.into_values().for_each(|stream| stream.close());
    }
}
