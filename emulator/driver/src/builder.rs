//! [`EmulatedDriverBuilder`]: options of an emulated driver.

use std::sync::{Arc, Mutex};

use gpu_spec::KernelSpec;
use warpsmith_emulator::{Order, machine};

use super::capture::Captures;
use super::control::Control;
use super::heap::Heap;
use super::loaded::LoadedCode;
use super::pages::{Backing, Numbers};
use super::race::{Races, Way};
use super::registered::{Exposed, Registered};
use super::schedule::{Schedule, Stepping};
#[cfg(feature = "testing")]
use super::simulated::SimulatedWork;
use super::simulated::TimeModel;
#[cfg(feature = "testing")]
use super::telemetry::Sensors;
use super::testing::Testing;
use super::{EmulatedDriver, Table};
use warpsmith_driver::error::code;

const DEFAULT_MEMORY: u64 = 8 << 30;

/// Options of an [`EmulatedDriver`].
#[derive(Debug, Clone)]
pub struct EmulatedDriverBuilder {
    devices: u32,
    memory: u64,
    order: Order,
    unbacked: bool,
    maps: bool,
    peers: bool,
    accesses_pageable: bool,
    idle: bool,
    schedule: Option<(Schedule, Testing)>,
    races: bool,
    time: Option<TimeModel>,
    code: Vec<&'static KernelSpec>,
}

impl EmulatedDriverBuilder {
    /// Sets the number of devices; the default is 1.
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    /// Sets the memory of each device in bytes; the default is 8 GiB. Allocations that exceed this amount fail.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Runs GPU threads in a random order that is derived from `seed`, instead of in ascending order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.order = Order::Seeded(seed);
        self
    }

    pub(super) fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Makes the driver allocate device addresses without backing memory, so that allocations can exceed the machine's
    /// memory. Copies, memsets and launches that use such memory fail. With [`Self::idle`], memsets and launches are
    /// accepted without effect.
    pub fn unbacked(mut self) -> Self {
        self.unbacked = true;
        self
    }

    /// Disables virtual memory management, that is, mapping memory to reserved addresses.
    pub fn without_mapping(mut self) -> Self {
        self.maps = false;
        self
    }

    /// Makes the driver accept launches, including graph launches, without running them, for benchmarks of enqueue
    /// overhead. With [`Self::simulated_time`], launches still take their simulated time. The body of a `while` node is
    /// assumed to run once.
    pub fn idle(mut self) -> Self {
        self.idle = true;
        self
    }

    /// Disables peer access between the devices. Copies between the devices still work.
    pub fn without_peer_access(mut self) -> Self {
        self.peers = false;
        self
    }

    /// Makes the driver accept addresses of all host memory of the process, as a GPU with address translation services
    /// (ATS) does.
    pub fn pageable_access(mut self) -> Self {
        self.accesses_pageable = true;
        self
    }

    /// Makes the driver accept any PTX, cubin or fatbin as a module that contains `kernels`, which can be looked up by
    /// symbol. By default, the emulated device rejects such code. Every module has one global variable,
    /// `module_memory`, of 256 bytes. Unloading a module that pending work still uses makes the context unusable.
    pub fn code(mut self, kernels: impl IntoIterator<Item = &'static KernelSpec>) -> Self {
        self.code.extend(kernels);
        self
    }

    /// Makes the driver run without worker threads. Tasks run on a host thread that waits for a stream, an event or a
    /// context, or that destroys a stream. One task runs at a time, in the order that the schedule selects among all
    /// streams of all devices, until the wait is over. If several threads wait, only one of them runs tasks at a time.
    ///
    /// Tasks do not run at any other time. In particular,
    /// [`Driver::stream_query`](warpsmith_driver::StreamDriver::stream_query) and
    /// [`Driver::event_query`](warpsmith_driver::StreamDriver::event_query) do not run tasks, so a polling loop never
    /// ends. Holds and delays have no effect, because a waiting thread would hang.
    ///
    /// ```
    /// use warpsmith_emulated::{EmulatedDriver, Schedule};
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let driver = EmulatedDriver::builder().stepped(Schedule::Random(1)).check_races().build();
    /// let device = Device::with_driver(driver.clone(), 0)?;
    /// let [first, second] = [Stream::new(&device)?, Stream::new(&device)?];
    /// let x = DeviceBuffer::from_host(&first, &[1u32, 2, 3])?;
    /// let mut y = DeviceBuffer::zeros(&second, 3)?;
    /// second.copy(&x, &mut y)?;
    /// assert!(!second.query()?);
    /// assert_eq!(y.to_host()?, [1, 2, 3]);
    /// assert!(driver.take_races().is_empty());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    #[cfg(feature = "testing")]
    pub fn stepped(mut self, schedule: Schedule) -> Self {
        self.schedule = Some((schedule, ()));
        self
    }

    /// Enables the race check. Two tasks on different streams, or two nodes of a graph, race if they access the same
    /// byte, at least one of them writes it, and no event, stream, edge or host wait orders them.
    /// [`EmulatedDriver::take_races`] returns the races. Races within a graph are reported at its first launch, which
    /// is one task.
    ///
    /// A copy reads its source and writes its destination, even in host memory. A kernel is assumed to read its slices
    /// and to write its views and slices of atomics; accesses through raw pointers are not checked. Stream-ordered
    /// allocations and frees are writes. Freeing or unmapping memory, including page-locked memory, is a race unless
    /// the host has observed the completion of the work that uses it. The host observes this by waiting for a stream,
    /// an event or a context, or by a query that reports completion.
    ///
    /// Under `warpsmith check`, every driver that was built without this option detects races from the recorded
    /// accesses of kernels and reports them as findings.
    #[cfg(feature = "testing")]
    pub fn check_races(mut self) -> Self {
        self.races = true;
        self
    }

    /// Makes the driver take times from a model instead of the machine's clock. Events then measure simulated time, for
    /// tests of measuring code.
    ///
    /// The model returns the microseconds that a piece of work takes on the device. Every stream has its own clock,
    /// which its work advances. A wait for an event advances the clock to the later of the two times. The nodes of a
    /// graph run one after another in simulated time. The host also has a clock. The host's own work takes no time, and
    /// a wait advances the clock to the time at which the awaited work finished. Work does not start before the time,
    /// on the host's clock, at which it was enqueued.
    ///
    /// Work still runs, except for kernels with [`Self::idle`]. The model is called after the work has run, on the
    /// thread that ran it. The model must not call the driver, and a panic in the model makes the context unusable.
    ///
    /// ```
    /// use warpsmith_emulated::{EmulatedDriver, SimulatedWork};
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let model = |work: &SimulatedWork<'_>| match work {
    ///     SimulatedWork::Copy { bytes } => *bytes as f64 / 1e3, // 1 GB/s
    ///     SimulatedWork::Set { .. } | SimulatedWork::Kernel { .. } => 5.0,
    /// };
    /// let device = Device::with_driver(EmulatedDriver::builder().simulated_time(model).build(), 0)?;
    /// let stream = device.default_stream();
    /// let x = DeviceBuffer::<u8>::zeros(&stream, 4000)?;
    /// let mut y = DeviceBuffer::<u8>::zeros(&stream, 4000)?;
    /// let start = stream.record_timed_event()?;
    /// stream.copy(&x, &mut y)?;
    /// let end = stream.record_timed_event()?;
    /// end.synchronize()?;
    /// assert_eq!(end.elapsed_us(&start)?, 4.0);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    #[cfg(feature = "testing")]
    pub fn simulated_time(
        mut self,
        model: impl Fn(&SimulatedWork<'_>) -> f64 + Send + Sync + 'static,
    ) -> Self {
        self.time = Some(TimeModel::new(model));
        self
    }

    /// Builds the driver.
    pub fn build(self) -> Arc<EmulatedDriver> {
        let backing = if self.unbacked { Backing::Numbers(Arc::new(Numbers::new())) } else { Backing::Host };
        let time = self.time.map(|time| time.started(self.idle));
        Arc::new(EmulatedDriver {
            devices: (0..self.devices).map(|_| Mutex::default()).collect(),
            memory: self.memory,
            order: self.order,
            backing,
            maps: self.maps,
            peers: self.peers,
            accesses_pageable: self.accesses_pageable,
            idle: self.idle,
            control: Arc::new(Control::new()),
            time,
            #[cfg(feature = "testing")]
            sensors: Sensors::new(self.devices),
            recorder: Arc::default(),
            stepper: self.schedule.map(|(schedule, testing)| Stepping::new(schedule, testing)),
            races: Arc::new(Races::new(match self.races {
                true => Some(Way::Arguments),
                false => warpsmith_emulator::check::is_on().then_some(Way::Accesses),
            })),
            contexts: Table::new("context", code::INVALID_VALUE),
            streams: Table::new("stream", code::INVALID_HANDLE),
            events: Table::new("event", code::INVALID_HANDLE),
            executables: Table::new("executable", code::INVALID_VALUE),
            graphs: Mutex::default(),
            captures: Captures::default(),
            large_clusters: Mutex::default(),
            code: LoadedCode::new(self.code),
            pinned: Heap::new("page-locked memory", u64::MAX, Backing::Host),
            registered: Registered::default(),
            exposed: Exposed::default(),
            processes: Mutex::default(),
        })
    }
}

impl EmulatedDriver {
    /// Returns a builder for one device with 8 GiB of memory, or with half of the machine's memory if that is less.
    pub fn builder() -> EmulatedDriverBuilder {
        let memory = machine::memory().map_or(DEFAULT_MEMORY, |memory| DEFAULT_MEMORY.min(memory.total / 2));
        EmulatedDriverBuilder {
            devices: 1,
            memory,
            order: Order::Sequential,
            unbacked: false,
            maps: true,
            peers: true,
            accesses_pageable: false,
            idle: false,
            schedule: None,
            races: false,
            time: None,
            code: Vec::new(),
        }
    }
}
