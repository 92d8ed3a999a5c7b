//! The emulated driver: any number of devices on the CPU, asynchronous as a GPU is.
//!
//! Work on streams is asynchronous: each stream has a worker thread that runs its tasks in order, and
//! kernels run through `warpsmith_emulator`. A kernel that panics or deadlocks stops its context exactly as on
//! a GPU: later calls fail, [`Driver::take_fault`] reports what happened, and retaining the
//! primary context again after the last release gives a fresh one. Calls from inside a host function fail with
//! `CUDA_ERROR_NOT_PERMITTED`, or do nothing where they cannot fail.
//!
//! For tests, a driver can fail on request ([`EmulatedDriver::fail_call`]), be slow
//! ([`EmulatedDriver::set_delay`]), stall ([`EmulatedDriver::hold`]) or lose a context
//! ([`EmulatedDriver::poison`]), and it counts its calls ([`EmulatedDriver::calls`]). It refuses to free memory
//! that enqueued work still names, and to copy to or from memory that is not allocated, mapped and accessible.
//! Streams keep their priorities, which change nothing. The stack
//! limit is compared with what kernels declare (`stack = BYTES`): how much stack a thread uses on a GPU is not seen here. Events of several processes lie in a file.
//!
//! With the feature `testing`, for tests of ordering, it can run without worker threads, in an order that a [`Schedule`] decides
//! ([`EmulatedDriverBuilder::stepped`]), look for work that nothing orders
//! ([`EmulatedDriverBuilder::check_races`]), and leave a wait out ([`EmulatedDriver::skip_wait`]).
//!
//! Captures and graphs follow CUDA's rules and report their breach with CUDA's codes. A graph that is launched is one
//! task of its stream, whose nodes run one after the other.
//!
//! With that feature, for tests of code that measures, its time can come from a model
//! ([`EmulatedDriverBuilder::simulated_time`]), and it reports the clocks and temperatures that a test sets
//! ([`EmulatedDriver::set_telemetry`], [`EmulatedDriver::on_sm_clock`]).
//!
//! With [`EmulatedDriverBuilder::unbacked`] it allocates any amount of addresses without backing memory.

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
mod counters;
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
use self::registered::Registered;
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

/// Handles of one kind and what they stand for. No handle is given out twice.
#[derive(Debug)]
struct Table<T> {
    kind: &'static str,
    /// The error code for a handle that stands for nothing.
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

/// The primary context of a device while it is retained.
#[derive(Debug, Default)]
struct Primary {
    retained: u32,
    context: Option<Context>,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub struct EmulatedDriver {
    devices: Vec<Mutex<Primary>>,
    memory: u64,
    order: Order,
    backing: Backing,
    maps: bool,
    peers: bool,
    idle: bool,
    control: Arc<Control>,
    /// The model of how long work takes, if not the machine.
    time: Option<TimeModel>,
    #[cfg(feature = "testing")]
    sensors: Sensors,
    recorder: Arc<Recorder>,
    /// The stepper that runs the tasks, if not worker threads.
    stepper: Option<Stepping>,
    races: Arc<Races>,
    contexts: Table<EmulatedContext>,
    streams: Table<Queue>,
    events: Table<EventState>,
    executables: Table<Executable>,
    graphs: Mutex<Store>,
    captures: Captures,
    /// The kernels that can have clusters larger than those that every kernel can have.
    large_clusters: Mutex<HashSet<FunctionHandle>>,
    code: LoadedCode,
    pinned: Heap,
    registered: Registered,
    /// The argument of [`Self::set_process_memory`].
    processes: Mutex<Vec<(u32, u64)>>,
}

/// The driver of `Device::emulated`, made at its first use.
#[linkme::distributed_slice(warpsmith_driver::EMULATED)]
static REGISTERED: fn() -> Arc<dyn Driver> = || {
    static DRIVER: OnceLock<Arc<EmulatedDriver>> = OnceLock::new();
    DRIVER.get_or_init(EmulatedDriver::from_environment).clone()
};

impl EmulatedDriver {
    /// The driver that the environment selects: `WARPSMITH_EMULATED_DEVICES` is the number of devices (1
    /// by default; a value that is no number counts as not set), `WARPSMITH_EMULATOR_SEED` a seed for the order of GPU
    /// threads, or `off`. Without it each process draws a seed, which faults name.
    pub fn from_environment() -> Arc<Self> {
        let number = |name| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let mut builder = Self::builder().order(settings::order());
        if let Some(devices) = number("WARPSMITH_EMULATED_DEVICES") {
            builder = builder.devices(devices.min(1024) as u32);
        }
        builder.build()
    }

    /// How often `call` was made since the driver was built or [`Self::reset_calls`].
    pub fn calls(&self, call: Call) -> u64 {
        self.control.count(call)
    }

    /// Sets every count to zero.
    pub fn reset_calls(&self) {
        self.control.reset_counts();
    }

    /// Lets `after` more calls of `call` succeed and makes the next one fail with `CUDA_ERROR_UNKNOWN`
    /// (allocations with `CUDA_ERROR_OUT_OF_MEMORY`). Calls that wait do so before they fail.
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

    /// As [`Self::fail_call`], with a code of CUDA's.
    pub fn fail_call_with(&self, call: Call, after: u64, code: u32) {
        self.control.fail(call, after, code);
    }

    /// Cancels the failures that [`Self::fail_call`] ordered and that have not come.
    pub fn cancel_failures(&self) {
        self.control.forget();
    }

    /// The calls that failed because [`Self::fail_call`] ordered it, in order.
    pub fn failed_calls(&self) -> Vec<Call> {
        self.control.failed()
    }

    /// Makes every task of every stream wait this long before it starts.
    pub fn set_delay(&self, delay: Duration) {
        self.control.set_delay(delay);
    }

    /// Makes every task of one stream wait this long before it starts.
    pub fn set_stream_delay(&self, stream: StreamHandle, delay: Duration) {
        if let Ok(queue) = self.streams.get(Call::StreamQuery, stream.0) {
            queue.set_delay(delay);
        }
    }

    /// Keeps all streams from starting tasks until the result is dropped.
    pub fn hold(&self) -> Hold {
        self.control.hold();
        Hold { control: Arc::clone(&self.control) }
    }

    /// Goes on by another schedule, from its start. Nothing on a driver with worker threads.
    #[cfg(feature = "testing")]
    pub fn set_schedule(&self, schedule: Schedule) {
        if let Some(stepper) = &self.stepper {
            stepper.set_schedule(schedule);
        }
    }

    /// The races found since the last call, each with both uses: what it was, on which stream ([`StreamHandle`]),
    /// and the range. None unless the driver was built to look for them
    /// ([`check_races`](EmulatedDriverBuilder::check_races)).
    #[cfg(feature = "testing")]
    pub fn take_races(&self) -> Vec<String> {
        self.races.take()
    }

    /// Lets `after` more calls of [`Call::StreamWaitEvent`] do what they should, and makes the next one succeed
    /// without doing anything: what a program that forgets this wait does.
    ///
    /// # Safety
    /// The memory of work that the wait would have ordered is not freed before that work has run, and tasks run one at a
    /// time ([`EmulatedDriverBuilder::stepped`]), or none of those on both sides of the wait touches what the other writes.
    #[cfg(feature = "testing")]
    pub unsafe fn skip_wait(&self, after: u64) {
        self.control.skip_wait(after);
    }

    /// Stops the primary context of a device as if a kernel had left `fault`. Nothing if it is not retained.
    pub fn poison(&self, ordinal: u32, fault: Fault) {
        if let Some(context) = self.primary_context(ordinal) {
            context.poison(fault);
        }
    }

    /// The number of device allocations of a device that are not freed: blocks, and memory without an address
    /// until it is neither held nor mapped.
    pub fn live_allocations(&self, ordinal: u32) -> usize {
        self.primary_context(ordinal).map_or(0, |context| context.heap.live() + context.space.live())
    }

    /// The number of page-locked host allocations, of any device, that are not freed.
    pub fn live_pinned(&self) -> usize {
        self.pinned.live()
    }

    /// The number of ranges of the process's memory that are registered.
    pub fn live_registered(&self) -> usize {
        self.registered.live()
    }

    /// The number of address reservations of a device that are not released.
    pub fn live_reservations(&self, ordinal: u32) -> usize {
        self.primary_context(ordinal).map_or(0, |context| context.space.reservations())
    }

    /// The devices that may use the memory mapped at an address, in rising order; none if nothing is mapped.
    pub fn accessible_from(&self, ptr: DevicePtr) -> Vec<u32> {
        self.contexts.all().iter().find_map(|context| context.space.accessible_from(ptr)).unwrap_or_default()
    }

    /// Sets the result of [`Driver::process_memory`], of every device.
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

    /// Counts a call and finds its context, which must not have been stopped.
    fn enter(&self, call: Call, context: Context) -> Result<Arc<EmulatedContext>> {
        self.control.enter(call)?;
        let context = self.contexts.get(call, context.0)?;
        context.check(call.name())?;
        Ok(context)
    }

    /// Counts a call that releases something and finds its context, which may have been stopped.
    fn enter_to_free(&self, call: Call, context: Context) -> Result<Arc<EmulatedContext>> {
        self.control.enter(call)?;
        self.contexts.get(call, context.0)
    }

    /// A stream of a context.
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
        let text = format!("stream {} is of device {}", stream.0, queue.context().ordinal);
        Err(driver_error(call.name(), code::INVALID_HANDLE, text))
    }

    /// Enqueues work on a stream, or makes it part of a graph if the stream is being captured.
    fn push(&self, call: Call, stream: StreamHandle, work: Work, touched: Touched) -> Result<()> {
        let queue = self.streams.get(call, stream.0)?;
        if self.captures.holds(stream.0) {
            return self.capture(call, stream, &queue, work, touched);
        }
        self.push_to_run(call, stream, &queue, work, touched)
    }

    /// Enqueues work to run on a stream.
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

    /// Enqueues a copy between any two places.
    fn copy(&self, call: Call, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()> {
        let kind = match call {
            Call::CopyToDevice => ActivityTransfer::HostToDevice,
            Call::CopyToHost => ActivityTransfer::DeviceToHost,
            _ => ActivityTransfer::DeviceToDevice,
        };
        let touched = vec![Access::read(src, bytes), Access::write(dst, bytes)];
        self.push(call, stream, Work::Act(Action::Copy { dst, src, bytes, kind }), touched)
    }

    /// Gives a new stream its handle.
    fn add_stream(&self, context: Context, queue: Arc<Queue>) -> StreamHandle {
        let stream = StreamHandle(self.streams.insert(Arc::clone(&queue)));
        queue.set_number(stream.0 as u32);
        self.races.stream_created(stream.0, context.0);
        if let Some(stepper) = &self.stepper {
            stepper.add(stream, &queue);
        }
        stream
    }

    /// Whether work that has not run yet keeps the host from freeing addresses from `start` to `end`.
    fn frees(&self, call: Call, start: u64, end: u64) -> bool {
        let busy = self.is_busy(start, end);
        self.races.host_frees(call, start..end, !busy);
        busy
    }
}

/// Keeps an emulated driver's streams from starting tasks until it is dropped.
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
