//! The emulated driver: any number of devices on the CPU, asynchronous as a GPU is.
//!
//! Work goes to streams and comes back later: each stream has a worker thread that runs its tasks in order, and
//! kernels run through `warpsmith_emulator`. A kernel that panics or deadlocks stops its context exactly as on
//! a GPU: later calls fail, [`Driver::take_fault`](super::Driver::take_fault) tells what happened, and retaining the primary context again
//! after the last release gives a fresh one. Calls from inside a host function fail with
//! `CUDA_ERROR_NOT_PERMITTED`, or do nothing where they cannot fail.
//!
//! For tests, a driver can be told to fail ([`EmulatedDriver::fail_call`]), to be slow
//! ([`EmulatedDriver::set_delay`]), to stand still ([`EmulatedDriver::hold`]) or to lose a context
//! ([`EmulatedDriver::poison`]), and it counts its calls ([`EmulatedDriver::calls`]). It refuses to free memory
//! that enqueued work still names, and to copy to or from memory that is not allocated, mapped and accessible.
//! Streams keep their priorities, which change nothing. The stack
//! limit is compared with what kernels declare (`stack = BYTES`): how much stack a thread uses on a GPU is not seen here. Events belong to the process: none is shared with others.
//!
//! With the feature `testing`, for tests of ordering, it can run without worker threads, in an order that a [`Schedule`] decides
//! ([`EmulatedDriverBuilder::stepped`]), look for work that nothing orders
//! ([`EmulatedDriverBuilder::check_races`]), and leave a wait out ([`EmulatedDriver::skip_wait`]).
//!
//! Captures and graphs follow CUDA's rules and report their breach with CUDA's codes. A graph that is launched is one
//! task of its stream, whose nodes run one after the other.
//!
//! With that feature, for tests of what measures, its time can come from a model ([`EmulatedDriverBuilder::simulated_time`]), and it tells
//! what clocks and temperatures it is told ([`EmulatedDriver::set_telemetry`], [`EmulatedDriver::on_sm_clock`]).
//!
//! With [`EmulatedDriverBuilder::unbacked`] it hands out addresses of any number without memory behind them.

mod action;
mod address_space;
mod calls;
mod capture;
mod clock;
mod context;
mod control;
mod graph;
mod heap;
mod history;
mod kernel;
mod limits;
mod loaded;
mod pages;
mod race;
mod range;
mod registered;
mod rows;
mod schedule;
mod simulated;
mod stream;
#[cfg(feature = "testing")]
mod telemetry;
mod testing;
mod touched;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gpu_spec::KernelSpec;
use warpsmith_emulator::Order;

use self::action::Action;
use self::capture::Captures;
use self::context::EmulatedContext;
pub use self::control::Call;
use self::control::{Control, driver_error};
use self::graph::{Executable, Store};
use self::heap::Heap;
use self::loaded::LoadedCode;
use self::pages::{Backing, Numbers};
use self::race::Races;
use self::registered::Registered;
pub use self::schedule::Schedule;
use self::schedule::Stepping;
pub use self::simulated::SimulatedWork;
use self::simulated::TimeModel;
use self::stream::{EventState, Queue, Work};
#[cfg(feature = "testing")]
use self::telemetry::Sensors;
use self::testing::Testing;
use self::touched::{Access, Touched};
use super::{Context, DevicePtr, Fault, FunctionHandle, StreamHandle};
use crate::error::{Result, code};

const DEFAULT_MEMORY: u64 = 8 << 30;

/// How an [`EmulatedDriver`] is to be.
#[derive(Debug, Clone)]
pub struct EmulatedDriverBuilder {
    devices: u32,
    memory: u64,
    order: Order,
    unbacked: bool,
    maps: bool,
    peers: bool,
    idle: bool,
    schedule: Option<(Schedule, Testing)>,
    races: Option<Testing>,
    time: Option<TimeModel>,
    code: Vec<&'static KernelSpec>,
}

impl EmulatedDriverBuilder {
    /// The number of devices; 1 unless said.
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    /// Memory of each device in bytes; 8 GiB unless said. An allocation beyond it fails.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Runs GPU threads in an order drawn from `seed`, instead of one after the other.
    pub fn seed(mut self, seed: u64) -> Self {
        self.order = Order::Seeded(seed);
        self
    }

    /// Hands out addresses of device memory with nothing behind them, so that more can be allocated than the
    /// machine has. Copies, fills and launches that name such memory are refused; with [`Self::idle`] fills and launches
    /// are accepted, and write nothing.
    pub fn unbacked(mut self) -> Self {
        self.unbacked = true;
        self
    }

    /// Has devices that cannot map memory behind reserved addresses.
    pub fn without_mapping(mut self) -> Self {
        self.maps = false;
        self
    }

    /// Accepts launches, of graphs too, and runs none of them: for benchmarks of what enqueueing costs the host. With
    /// [`Self::simulated_time`] they take their time all the same; bodies of `while` nodes run once then.
    pub fn idle(mut self) -> Self {
        self.idle = true;
        self
    }

    /// Has devices that cannot reach each other's memory. Copies between them work all the same.
    pub fn without_peer_access(mut self) -> Self {
        self.peers = false;
        self
    }

    /// Takes any PTX, cubin or fatbin for a module of these kernels, which are found by their symbols. Otherwise there are
    /// none on the emulated device. Unloading a module that work still uses stops the context.
    pub fn code(mut self, kernels: impl IntoIterator<Item = &'static KernelSpec>) -> Self {
        self.code.extend(kernels);
        self
    }

    /// Starts no worker threads: tasks run on the host thread that waits for a stream, an event or a context, or
    /// that destroys a stream, one at a time, in the order that the schedule decides among all streams of all
    /// devices, until what is waited for is reached. Of several threads that wait, one runs tasks at a time.
    ///
    /// Nothing runs otherwise: [`Driver::stream_query`](super::Driver::stream_query) and
    /// [`Driver::event_query`](super::Driver::event_query) only look, so a loop around them never ends. Holds and
    /// delays have no effect, for a thread that waits would never go on.
    ///
    /// ```
    /// use warpsmith_driver::emulated::{EmulatedDriver, Schedule};
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let driver = EmulatedDriver::builder().stepped(Schedule::Random(1)).check_races().build();
    /// let device = Device::with_driver(driver.clone(), 0)?;
    /// let [first, second] = [Stream::new(&device)?, Stream::new(&device)?];
    /// let x = DeviceBuffer::from_host(&first, &[1u32, 2, 3])?;
    /// let mut y = DeviceBuffer::zeros(&second, 3)?;
    /// y.copy_from(&x)?;
    /// assert!(!second.query()?);
    /// assert_eq!(y.to_host()?, [1, 2, 3]);
    /// assert!(driver.take_races().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "testing")]
    pub fn stepped(mut self, schedule: Schedule) -> Self {
        self.schedule = Some((schedule, ()));
        self
    }

    /// Looks for races: two tasks of different streams, or two nodes of a graph, that touch a common byte, of which
    /// one or the other writes, and that no event, no stream, no edge and no wait of the host orders.
    /// [`EmulatedDriver::take_races`] has them; those within a graph come with its first launch, which is one task.
    ///
    /// A copy reads its source and writes its target, on the host too; a kernel reads its slices and writes its
    /// views and slices of atomics, while what its raw pointers reach is not known. An allocation and a free in
    /// stream order are writes. Freeing or unmapping memory, page-locked memory too, is a race when the host has
    /// not seen that the work that uses it is done: by waiting for, or a query that said so of, a stream, an event
    /// or a context.
    #[cfg(feature = "testing")]
    pub fn check_races(mut self) -> Self {
        self.races = Some(());
        self
    }

    /// Takes time from a model instead of the machine: events tell simulated time, for tests of what measures.
    ///
    /// The model says how many microseconds a piece of work takes on the device. Every stream has a clock of its own,
    /// which work moves on; a wait for an event takes the later of both times; nodes of a graph take their time one
    /// after the other. What the host does takes none, and what it waits for orders no clocks. Work runs all the
    /// same, but with [`Self::idle`] kernels do not. The model is asked when the work has run, on the thread that ran
    /// it; it must not call the driver, and stops the context when it panics.
    ///
    /// ```
    /// use warpsmith_driver::emulated::{EmulatedDriver, SimulatedWork};
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let model = |work: &SimulatedWork<'_>| match work {
    ///     SimulatedWork::Copy { bytes } => *bytes as f64 / 1e3, // 1 GB/s
    ///     SimulatedWork::Set { .. } | SimulatedWork::Kernel { .. } => 5.0,
    /// };
    /// let device = Device::with_driver(EmulatedDriver::builder().simulated_time(model).build(), 0)?;
    /// let stream = device.default_stream();
    /// let x = DeviceBuffer::<u8>::zeros(&stream, 4000)?;
    /// let mut y = DeviceBuffer::<u8>::zeros(&stream, 4000)?;
    /// let start = stream.record_timed_event()?;
    /// y.copy_from(&x)?;
    /// let end = stream.record_timed_event()?;
    /// end.synchronize()?;
    /// assert_eq!(end.elapsed_us(&start)?, 4.0);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "testing")]
    pub fn simulated_time(
        mut self,
        model: impl Fn(&SimulatedWork<'_>) -> f64 + Send + Sync + 'static,
    ) -> Self {
        self.time = Some(TimeModel::new(model));
        self
    }

    /// Makes the driver.
    pub fn build(self) -> Arc<EmulatedDriver> {
        let backing = if self.unbacked { Backing::Numbers(Arc::new(Numbers::new())) } else { Backing::Host };
        let time = self.time.map(|time| time.idle(self.idle));
        Arc::new(EmulatedDriver {
            devices: (0..self.devices).map(|_| Mutex::default()).collect(),
            memory: self.memory,
            order: self.order,
            backing,
            maps: self.maps,
            peers: self.peers,
            idle: self.idle,
            control: Arc::new(Control::new()),
            time,
            #[cfg(feature = "testing")]
            sensors: Sensors::new(self.devices),
            stepper: self.schedule.map(|(schedule, testing)| Stepping::new(schedule, testing)),
            races: Races::new(self.races),
            contexts: Table::new("context", code::INVALID_VALUE),
            streams: Table::new("stream", code::INVALID_HANDLE),
            events: Table::new("event", code::INVALID_HANDLE),
            executables: Table::new("executable", code::INVALID_VALUE),
            graphs: Mutex::default(),
            captures: Captures::default(),
            large_clusters: Mutex::default(),
            code: LoadedCode::new(self.code),
            pinned: Heap::new(u64::MAX, Backing::Host),
            registered: Registered::default(),
            processes: Mutex::default(),
        })
    }
}

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

/// The primary context of a device while somebody retains it.
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
    /// What says how long work takes, if not the machine.
    time: Option<TimeModel>,
    #[cfg(feature = "testing")]
    sensors: Sensors,
    /// Who has the tasks run, if not worker threads.
    stepper: Option<Stepping>,
    races: Races,
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
    /// What [`Self::set_process_memory`] said.
    processes: Mutex<Vec<(u32, u64)>>,
}

impl EmulatedDriver {
    /// A builder with one device of 8 GiB, or half of the machine's memory if that is less.
    pub fn builder() -> EmulatedDriverBuilder {
        let memory = machine_memory().map_or(DEFAULT_MEMORY, |bytes| DEFAULT_MEMORY.min(bytes / 2));
        EmulatedDriverBuilder {
            devices: 1,
            memory,
            order: Order::Sequential,
            unbacked: false,
            maps: true,
            peers: true,
            idle: false,
            schedule: None,
            races: None,
            time: None,
            code: Vec::new(),
        }
    }

    /// The driver that the environment asks for: `WARPSMITH_EMULATED_DEVICES` is the number of devices (1
    /// unless said), `WARPSMITH_EMULATOR_SEED` a seed for the order of GPU threads. Values that are not numbers
    /// count as not set.
    pub fn from_environment() -> Arc<Self> {
        let number = |name| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let mut builder = Self::builder();
        if let Some(devices) = number("WARPSMITH_EMULATED_DEVICES") {
            builder = builder.devices(devices.min(1024) as u32);
        }
        if let Some(seed) = number("WARPSMITH_EMULATOR_SEED") {
            builder = builder.seed(seed);
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

    /// What [`Driver::process_memory`](super::Driver::process_memory) says from now on, of every device.
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

    /// Counts a call that gives something back and finds its context, which may have been stopped.
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
        let push = |work, touched| queue.push(work, touched);
        self.races.enqueue(stream.0, call, work, touched, push).map_err(no_thread)
    }

    /// Enqueues a copy between any two places.
    fn copy(&self, call: Call, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()> {
        let touched = vec![Access::read(src, bytes), Access::write(dst, bytes)];
        self.push(call, stream, Work::Act(Action::Copy { dst, src, bytes }), touched)
    }

    /// Gives a new stream its handle.
    fn add_stream(&self, context: Context, queue: Arc<Queue>) -> StreamHandle {
        let stream = StreamHandle(self.streams.insert(Arc::clone(&queue)));
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

/// The machine's memory in bytes, where the system tells.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

impl Drop for EmulatedDriver {
    fn drop(&mut self) {
        let streams = std::mem::take(self.streams.entries.get_mut().unwrap_or_else(PoisonError::into_inner));
        streams.into_values().for_each(|stream| stream.close());
    }
}
