//! [`Recording`]: what the parts of a running profiler share.

pub(crate) mod log;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use gpu_spec::KernelSpec;
use warpsmith_core::driver::Driver;
use warpsmith_core::driver::activity::{ActivityOptions, nanoseconds};
use warpsmith_core::seam::{GraphNodes, open_devices};
use warpsmith_trace::{Counter, CounterId, Definitions, Name, Names};

use self::log::{CHUNK_BYTES, Log};
use crate::error::{ProfilerError, Result};

use crate::raw::{DriverIndex, Raw};

/// A driver that is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) driver: Arc<dyn Driver>,
    /// The ordinal in the trace of its device 0.
    pub(crate) first_ordinal: u32,
    pub(crate) devices: u32,
}

/// A running profiler. See the [module's documentation](self).
pub(crate) struct Recording {
    /// No other recording of the process has it.
    pub(crate) id: u64,
    /// Whether the clock is of simulated time; the first driver decides.
    simulated: OnceLock<bool>,
    /// The drivers to record; empty for all.
    pub(crate) only: Vec<Arc<dyn Driver>>,
    pub(crate) activity: ActivityOptions,
    drivers: RwLock<Vec<Recorded>>,
    logs: Mutex<Vec<Arc<Log>>>,
    texts: Mutex<Names>,
    counters: Mutex<Definitions>,
    kernels: Mutex<HashMap<&'static str, &'static KernelSpec>>,
    /// The nodes of executables that were launched, until they are taken.
    nodes: Mutex<Vec<Arc<GraphNodes>>>,
    /// How often lists were forgotten that had been taken.
    pub(crate) forgotten: AtomicU64,
    /// Bytes of chunks.
    held: AtomicUsize,
    /// Records of work, and others, that were dropped because the memory was used up.
    pub(crate) dropped_work: AtomicU64,
    pub(crate) dropped_others: AtomicU64,
    /// Facts about the recording, for [`Definitions::about`], and how many there were under each key; the first is kept.
    about: Mutex<BTreeMap<String, (String, u64)>>,
    stopping: AtomicBool,
    wake: (Mutex<bool>, Condvar),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    pub(crate) fn new(only: Vec<Arc<dyn Driver>>, activity: ActivityOptions) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            simulated: OnceLock::new(),
            only,
            activity,
            drivers: RwLock::default(),
            logs: Mutex::default(),
            texts: Mutex::default(),
            counters: Mutex::default(),
            kernels: Mutex::default(),
            nodes: Mutex::default(),
            forgotten: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            dropped_work: AtomicU64::new(0),
            dropped_others: AtomicU64::new(0),
            about: Mutex::default(),
            stopping: AtomicBool::new(false),
            wake: Default::default(),
        })
    }

    /// Whether the clock is of simulated time.
    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated.get().copied().unwrap_or(false)
    }

    /// Now, by the clock of the records.
    pub(crate) fn now(&self) -> u64 {
        if self.is_simulated() {
            let drivers = self.drivers.read().unwrap_or_else(PoisonError::into_inner);
            return drivers.first().map_or(0, |recorded| recorded.driver.activity_now());
        }
        nanoseconds(SystemTime::now())
    }

    /// The drivers.
    pub(crate) fn drivers(&self) -> Vec<Recorded> {
        self.drivers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The driver at this address, if it is recorded.
    pub(crate) fn driver_at(&self, address: usize) -> Option<DriverIndex> {
        let drivers = self.drivers.read().unwrap_or_else(PoisonError::into_inner);
        drivers
            .iter()
            .position(|recorded| address_of(&recorded.driver) == address)
            .map(|index| index as DriverIndex)
    }

    /// Whether a driver is to be recorded.
    fn wants(&self, driver: &Arc<dyn Driver>) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| address_of(only) == address_of(driver))
    }

    /// Adds a driver that is recorded from now on, unless it is there already or is not to be recorded.
    pub(crate) fn add_driver(&self, driver: &Arc<dyn Driver>) -> Result<Option<DriverIndex>> {
        if !self.wants(driver) || self.driver_at(address_of(driver)).is_some() {
            return Ok(None);
        }
        let is_simulated = driver.activity_is_simulated();
        if *self.simulated.get_or_init(|| is_simulated) != is_simulated {
            return Err(ProfilerError::MixedClocks);
        }
        let devices = driver
            .device_count()
            .map_err(|error| ProfilerError::Driver { driver: driver.name(), error: error.into() })?;
        let mut drivers = self.drivers.write().unwrap_or_else(PoisonError::into_inner);
        let first_ordinal = drivers.last().map_or(0, |last| last.first_ordinal + last.devices);
        drivers.push(Recorded { driver: Arc::clone(driver), first_ordinal, devices });
        Ok(Some((drivers.len() - 1) as DriverIndex))
    }

    /// Notes a fact about the recording. Of several under one key the first is kept, and the others are counted.
    pub(crate) fn note(&self, key: &str, fact: String) {
        lock(&self.about).entry(key.to_owned()).or_insert((fact, 0)).1 += 1;
    }

    /// Takes the facts.
    pub(crate) fn take_facts(&self) -> Vec<(String, String)> {
        let facts = std::mem::take(&mut *lock(&self.about));
        let counted = |(key, (fact, count)): (String, (String, u64))| match count {
            1 => (key, fact),
            _ => (key, format!("{fact} (and {} more)", count - 1)),
        };
        facts.into_iter().map(counted).collect()
    }

    pub(crate) fn add_log(&self, log: Arc<Log>) {
        lock(&self.logs).push(log);
    }

    pub(crate) fn logs(&self) -> Vec<Arc<Log>> {
        lock(&self.logs).clone()
    }

    pub(crate) fn intern(&self, text: &str) -> Name {
        lock(&self.texts).intern(text)
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: Name) -> String {
        lock(&self.texts).text(name).to_owned()
    }

    /// A counter of a device, for its samples.
    pub(crate) fn counter(&self, device: u32, name: &str, unit: &str) -> CounterId {
        lock(&self.counters).counter(Some(device), name, unit)
    }

    pub(crate) fn counters(&self) -> Vec<Counter> {
        lock(&self.counters).counters().to_vec()
    }

    /// Notes a kernel, for its name.
    pub(crate) fn add_kernel(&self, spec: &'static KernelSpec) {
        lock(&self.kernels).insert(spec.symbol, spec);
    }

    pub(crate) fn kernel(&self, symbol: &str) -> Option<&'static KernelSpec> {
        lock(&self.kernels).get(symbol).copied()
    }

    /// Keeps the nodes of an executable that is launched.
    pub(crate) fn add_nodes(&self, nodes: &Arc<GraphNodes>) {
        lock(&self.nodes).push(Arc::clone(nodes));
    }

    pub(crate) fn take_nodes(&self) -> Vec<Arc<GraphNodes>> {
        std::mem::take(&mut *lock(&self.nodes))
    }

    /// Whether there is memory for another chunk. Wakes who takes records when a quarter is used.
    pub(crate) fn claim(&self, bytes: usize) -> bool {
        let limit = self.activity.memory;
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > limit {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        if held > limit / 4 {
            self.wake();
        }
        true
    }

    /// Chunks were freed.
    pub(crate) fn freed(&self, chunks: usize) {
        self.held.fetch_sub(chunks * CHUNK_BYTES, Ordering::Relaxed);
    }

    /// Counts a record that was dropped.
    #[cold]
    pub(crate) fn dropped(&self, raw: &Raw) {
        let count = if raw.is_work() { &self.dropped_work } else { &self.dropped_others };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wake(&self) {
        *lock(&self.wake.0) = true;
        self.wake.1.notify_all();
    }

    /// Waits until somebody wakes, or this time has passed. Whether the recording goes on.
    pub(crate) fn sleep(&self, time: std::time::Duration) -> bool {
        let mut woken = lock(&self.wake.0);
        if !*woken && !self.is_stopping() {
            woken = self.wake.1.wait_timeout(woken, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        *woken = false;
        !self.is_stopping()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends the threads of the recording.
    pub(crate) fn stop_threads(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Waits for what runs on the recorded devices; notes those that are lost.
    pub(crate) fn synchronize(&self) {
        for device in open_devices() {
            // SAFETY: the device is held, and nothing is released.
            let (driver, context) = unsafe { device.driver() };
            if self.driver_at(address_of(driver)).is_none() {
                continue;
            }
            // Fails on a lost device, and while a stream is captured: then what has run is recorded.
            let waited = driver.context_synchronize(context);
            if device.is_lost() {
                self.note(&format!("device {}", device.id()), "lost: a fault stopped it".to_owned());
            } else if let Err(error) = waited {
                self.note(&format!("device {}", device.id()), format!("not waited for: {error}"));
            }
        }
    }
}

/// The address that identifies a driver.
pub(crate) fn address_of(driver: &Arc<dyn Driver>) -> usize {
    Arc::as_ptr(driver).cast::<()>().addr()
}
