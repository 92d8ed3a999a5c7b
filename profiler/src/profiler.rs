//! [`Profiler`] and [`FileProfiler`], which start and stop a recording.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::extension::{Observation, observe, open_devices};
use warpsmith_runtime::ranges::{Listening, listen};
use warpsmith_trace::{Device, Loss, Trace};

use crate::error::{ProfilerError, Result};
use crate::inlet;
use crate::join::Joiner;
use crate::observer::HostObserver;
use crate::options::ProfilerOptions;
use crate::output::Output;
use crate::ranges::RangeInlet;
use crate::recording::{Recording, address_of};
use crate::samples;

/// Interval at which records are written to the file.
const PERIOD: Duration = Duration::from_millis(500);

/// ID of the process that is recording; 0 if no process is.
static RECORDING_IN: AtomicU32 = AtomicU32::new(0);

/// Exclusive right of one recorder to record activity in this process.
#[derive(Debug)]
pub(crate) struct Claim(u32);

impl Claim {
    pub(crate) fn take() -> Result<Self> {
        let process = std::process::id();
        match RECORDING_IN.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Self(process)),
            Err(of) if of == process => Err(ProfilerError::Recording.into()),
            Err(_) => Err(ProfilerError::Forked.into()),
        }
    }

    /// Returns true if the claim was taken in this process, and not in a parent process from which this one was forked.
    pub(crate) fn is_own(&self) -> bool {
        self.0 == std::process::id()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_own() {
            RECORDING_IN.store(0, Ordering::Release);
        }
    }
}

/// Current recording, to which drivers that are opened later are added.
static CURRENT: Mutex<Option<Arc<Recording>>> = Mutex::new(None);

/// Records devices and the host until it is stopped, and keeps the trace in memory. Only one profiler can run per
/// process.
///
/// ```
/// use warpsmith_profiler::{Profiler, ProfilerOptions};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let profiler = Profiler::start(ProfilerOptions::default())?;
/// let x = DeviceBuffer::from_host(&device.default_stream(), &[1.0f32; 1000])?;
/// let trace = profiler.stop()?;
/// assert_eq!(trace.transfers[0].bytes, 4000);
/// assert_eq!(trace.definitions.loss.unaccounted(), 0);
/// println!("{}", trace.summary().text(10));
/// # drop(x);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it stops when it is dropped"]
#[derive(Debug)]
pub struct Profiler(Running);

/// Records devices and the host until it is finished or dropped, and writes a file in the meantime. Records that have
/// not been written yet use at most [`ProfilerOptions::memory`] bytes. Each track and each distinct string uses some
/// additional memory; the number of distinct range names is bounded.
///
/// ```
/// use warpsmith_profiler::Profiler;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # let folder = std::env::temp_dir().join(format!("profiler-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let file = folder.join("trace.json.gz");
/// let device = Device::emulated(0)?;
/// let profiler = Profiler::to_file(&file)?;
/// let x = DeviceBuffer::from_host(&device.default_stream(), &[1.0f32; 1000])?;
/// let written = profiler.finish()?;
/// assert_eq!(written.loss.unaccounted(), 0);
/// assert_eq!(warpsmith_trace::Trace::read(&file)?.trace.transfers.len(), 1);
/// # drop(x);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it finishes when it is dropped"]
#[derive(Debug)]
pub struct FileProfiler {
    running: Running,
    path: PathBuf,
}

/// Description of a completed trace file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of records in the file.
    pub records: u64,
    /// Counts of recorded and lost operations.
    pub loss: Loss,
}

impl Profiler {
    /// Starts recording.
    ///
    /// # Errors
    /// Returns [`ProfilerError::Recording`] if another profiler in the process is recording. Returns
    /// [`ProfilerError::Forked`] in a process that was forked from one that is recording. Returns
    /// [`ProfilerError::Driver`] if an open device cannot be recorded. Returns [`ProfilerError::MixedClocks`] if only
    /// some of the devices have simulated time.
    pub fn start(options: ProfilerOptions) -> Result<Self> {
        Running::start(options, || Ok(Output::Memory(Box::default()))).map(Self)
    }

    /// Starts recording all devices to a file. The file is JSON in PyTorch's format, is compressed if its name ends in
    /// `.gz`, and is created immediately. If the program is killed, the file is readable up to the last half second.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::start`], or [`ProfilerError::File`] if the file cannot be created or its name
    /// ends in `.pftrace`.
    pub fn to_file(path: impl AsRef<Path>) -> Result<FileProfiler> {
        FileProfiler::start(ProfilerOptions::default(), path.as_ref())
    }

    /// Waits for running device work, stops recording, and returns the trace.
    ///
    /// # Errors
    /// Returns [`ProfilerError::Forked`] in a forked process, because the recording belongs to its parent.
    pub fn stop(mut self) -> Result<Trace> {
        let (trace, _) = self.0.stop(true)?;
        Ok(trace.unwrap_or_default())
    }
}

impl ProfilerOptions {
    /// Starts a profiler that uses these options and keeps the trace in memory.
    ///
    /// # Errors
    /// Returns the same errors as [`Profiler::start`].
    pub fn start(self) -> Result<Profiler> {
        Profiler::start(self)
    }

    /// Starts a profiler that uses these options and writes a file.
    ///
    /// # Errors
    /// Returns the same errors as [`Profiler::to_file`].
    pub fn to_file(self, path: impl AsRef<Path>) -> Result<FileProfiler> {
        FileProfiler::start(self, path.as_ref())
    }
}

impl FileProfiler {
    fn start(options: ProfilerOptions, path: &Path) -> Result<Self> {
        let running = Running::start(options, || Output::file(path))?;
        Ok(Self { running, path: path.to_path_buf() })
    }

    /// Waits for running device work, stops recording, and completes the file.
    ///
    /// # Errors
    /// Returns [`ProfilerError::File`] if the file could not be written completely; data that had been written before
    /// is kept. Returns [`ProfilerError::Forked`] in a forked process, because the recording belongs to its parent.
    pub fn finish(mut self) -> Result<Written> {
        self.end()
    }

    fn end(&mut self) -> Result<Written> {
        let (_, (finished, loss, records)) = self.running.stop(true)?;
        finished.map_err(|error| ProfilerError::file(&self.path, &error))?;
        Ok(Written { path: self.path.clone(), records, loss })
    }
}

impl Drop for FileProfiler {
    fn drop(&mut self) {
        if self.running.is_running()
            && let Err(error) = self.end()
        {
            tracing::error!("{error}");
        }
    }
}

/// Recording with its resources.
#[derive(Debug)]
struct Running {
    parts: Option<Parts>,
    /// Claim that is held for as long as the recording lasts.
    claim: Option<Claim>,
}

struct Parts {
    recording: Arc<Recording>,
    joiner: Arc<Mutex<Joiner>>,
    observation: Observation,
    listening: Listening,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("recording", &self.recording.id).finish_non_exhaustive()
    }
}

/// Outcome of ending an output: the result of the write, the losses, and the number of records.
type Ended = (std::io::Result<()>, Loss, u64);

impl Running {
    fn start(options: ProfilerOptions, output: impl FnOnce() -> Result<Output>) -> Result<Self> {
        let claim = Claim::take()?;
        let started = output().and_then(|output| Parts::start(options, output));
        match started {
            Ok(parts) => Ok(Self { parts: Some(parts), claim: Some(claim) }),
            Err(error) => {
                *lock(&CURRENT) = None;
                Err(error)
            }
        }
    }

    fn is_running(&self) -> bool {
        self.parts.is_some()
    }

    /// Stops the recording. If `waits` is true, waits for the devices first.
    fn stop(&mut self, waits: bool) -> Result<(Option<Trace>, Ended)> {
        let Some(parts) = self.parts.take() else {
            return Ok((None, (Ok(()), Loss::default(), 0)));
        };
        let claim = self.claim.take();
        if !claim.as_ref().is_some_and(Claim::is_own) {
            // The threads and the file belong to the parent process.
            std::mem::forget(parts);
            return Err(ProfilerError::Forked.into());
        }
        // Drivers that are opened from now on are not recorded.
        *lock(&CURRENT) = None;
        let stopped = parts.stop(waits);
        drop(claim);
        Ok(stopped)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The recorded data is discarded.
        let _ = self.stop(false);
    }
}

impl Parts {
    fn start(options: ProfilerOptions, output: Output) -> Result<Self> {
        let open = open_devices();
        let mut only: Vec<Arc<dyn Driver>> = Vec::new();
        for device in &options.devices {
            // SAFETY: the driver is used only for recording and is kept alive.
            let (driver, _) = unsafe { device.driver() };
            if !only.iter().any(|known| address_of(known) == address_of(driver)) {
                only.push(Arc::clone(driver));
            }
        }
        let mut drivers: Vec<Arc<dyn Driver>> = only.clone();
        if only.is_empty() {
            for device in &open {
                // SAFETY: as above.
                let (driver, _) = unsafe { device.driver() };
                if !drivers.iter().any(|known| address_of(known) == address_of(driver)) {
                    drivers.push(Arc::clone(driver));
                }
            }
        }
        let streams = !matches!(output, Output::Memory(_));
        let joiner = Arc::new(Mutex::new(Joiner::new(output)));
        let recording = Recording::new(only, options.activity);
        *lock(&CURRENT) = Some(Arc::clone(&recording));
        for driver in &drivers {
            if let Err(error) = inlet::start(&recording, driver) {
                stop_drivers(&recording);
                return Err(error);
            }
        }
        describe(&recording, &joiner, true);
        let observation = observe(HostObserver(Arc::clone(&recording)));
        let listening = listen(RangeInlet(Arc::clone(&recording)));
        let mut parts = Self { recording, joiner, observation, listening, threads: Vec::new() };
        let spawned = parts.spawn(streams, options.samples_hz);
        if let Err(error) = spawned {
            // The output contains no data that still has to be written.
            let _ = parts.stop(false);
            return Err(ProfilerError::Thread { reason: error.to_string() }.into());
        }
        Ok(parts)
    }

    fn spawn(&mut self, streams: bool, samples_hz: u32) -> std::io::Result<()> {
        let (recording, joiner) = (Arc::clone(&self.recording), Arc::clone(&self.joiner));
        let name = |name: &str| std::thread::Builder::new().name(name.to_owned());
        self.threads.push(name("warpsmith-profile").spawn(move || drain(&recording, &joiner, streams))?);
        if samples_hz > 0 && !self.recording.is_simulated() {
            let recording = Arc::clone(&self.recording);
            self.threads
                .push(name("warpsmith-sample").spawn(move || samples::sample(&recording, samples_hz))?);
        }
        Ok(())
    }

    fn stop(self, waits: bool) -> (Option<Trace>, Ended) {
        let Self { recording, joiner, observation, listening, threads } = self;
        if waits {
            recording.synchronize();
        }
        recording.stop_threads();
        drop((observation, listening));
        let mut loss = stop_drivers(&recording);
        for thread in threads {
            if thread.join().is_err() {
                recording.note("profiler", "one of its threads panicked".to_owned());
            }
        }
        describe(&recording, &joiner, false);
        let mut joiner = lock(&joiner);
        joiner.settle(&recording, true);
        loss.dropped += recording.dropped_work.load(Ordering::Relaxed);
        let others = recording.dropped_others.load(Ordering::Relaxed);
        if others > 0 {
            let fact = format!("{others}, because the memory for records was full; allow more");
            recording.note("host records dropped", fact);
        }
        let mut facts = recording.take_facts();
        facts.extend(about(&recording));
        let (finished, loss, records) = joiner.finish(facts, loss);
        match finished {
            Ok(trace) => (trace, (Ok(()), loss, records)),
            Err(error) => (None, (Err(error), loss, records)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns facts that do not depend on the recorded data.
fn about(recording: &Recording) -> Vec<(String, String)> {
    let mut facts =
        vec![("recorder".to_owned(), concat!("warpsmith ", env!("CARGO_PKG_VERSION")).to_owned())];
    if recording.is_simulated() {
        facts.push(("clock".to_owned(), "simulated".to_owned()));
        return facts;
    }
    let program = std::env::args_os().next();
    let name = program.as_ref().and_then(|program| Path::new(program).file_name());
    if let Some(name) = name {
        facts.push(("program".to_owned(), name.to_string_lossy().into_owned()));
    }
    facts.push(("process".to_owned(), std::process::id().to_string()));
    facts
}

/// Stops recording on all drivers and returns their losses.
fn stop_drivers(recording: &Recording) -> Loss {
    let mut loss = Loss::default();
    recording.end_starting();
    for recorded in recording.drivers() {
        // Stopping also flushes. The errors of both calls are reported.
        let flushed = recorded.driver.activity_flush();
        let stopped = recorded.driver.activity_stop();
        if let Err(error) = flushed {
            recording.note(&format!("{} lost records", recorded.driver.name()), error.to_string());
        }
        match stopped {
            Ok(of_driver) => {
                loss.dropped += of_driver.dropped;
                loss.zero_time += of_driver.zero_time;
                loss.refused += of_driver.refused_buffers;
            }
            Err(error) => {
                recording.note(&format!("{} lost records", recorded.driver.name()), error.to_string());
            }
        }
    }
    loss
}

/// Describes new devices. The description includes memory that their allocators had allocated before the recording;
/// later allocations are recorded.
fn describe(recording: &Recording, joiner: &Mutex<Joiner>, is_before: bool) {
    let open = if is_before { open_devices() } else { Vec::new() };
    let mut joiner = lock(joiner);
    for recorded in recording.drivers() {
        for ordinal in 0..recorded.devices {
            let shown = recorded.first_ordinal + ordinal;
            if joiner.has_device(shown) {
                continue;
            }
            let Ok(properties) = recorded.driver.device_properties(ordinal) else { continue };
            let of_open = open.iter().find(|device| {
                // SAFETY: only the address of the driver is used.
                let (driver, _) = unsafe { device.driver() };
                device.id().ordinal() == ordinal && address_of(driver) == address_of(&recorded.driver)
            });
            let (allocated, reserved) = of_open.map_or((0, 0), |device| {
                let statistics = device.memory().statistics();
                (statistics.requested_bytes.all.current, statistics.reserved_bytes.all.current)
            });
            let device = Device {
                name: properties.name,
                memory: properties.total_memory,
                bandwidth: properties.memory_bandwidth,
                multiprocessors: properties.multiprocessors,
                capability: properties.capability,
            };
            joiner.device(shown, device, allocated, reserved);
        }
    }
}

/// Drains the records: periodically if they are written to a file, and otherwise when their memory fills up.
fn drain(recording: &Recording, joiner: &Mutex<Joiner>, streams: bool) {
    while recording.sleep(if streams { PERIOD } else { Duration::from_secs(3600) }) {
        for recorded in recording.drivers() {
            // If this fails, the same error occurs again when the driver stops recording.
            let _ = recorded.driver.activity_flush();
        }
        describe(recording, joiner, false);
        let mut joiner = lock(joiner);
        joiner.settle(recording, false);
        if streams {
            joiner.flush();
        }
    }
}

fn current() -> Option<Arc<Recording>> {
    if RECORDING_IN.load(Ordering::Acquire) != std::process::id() {
        return None;
    }
    lock(&CURRENT).clone()
}

/// Starts recording a driver. Called while the driver opens a device.
pub(crate) fn driver_opens(driver: &Arc<dyn Driver>) {
    if let Some(recording) = current()
        && let Err(error) = inlet::start(&recording, driver)
    {
        recording.note("not recorded", format!("{}: {error}", driver.name()));
        tracing::error!("{error}");
    }
}
