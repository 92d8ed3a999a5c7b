//! [`Recording`]: state shared by the parts of a running profiler.

pub(crate) mod log;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use gpu_spec::KernelSpec;
use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::driver::activity::{ActivityOptions, nanoseconds};
use warpsmith_runtime::extension::{GraphNodes, open_devices};
use warpsmith_trace::{Counter, CounterId, Definitions, Name, Names};

use self::log::{CHUNK_BYTES, Local, Log, Taken};
use crate::error::{ProfilerError, Result};
use crate::raw::{DriverIndex, Raw};

/// Number of strings above which similar strings of the program are merged.
const MAX_TEXTS: usize = 1 << 18;

/// Driver that is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) driver: Arc<dyn Driver>,
    /// Ordinal that the driver's device 0 has in the trace.
    pub(crate) first_ordinal: u32,
    pub(crate) devices: u32,
}

/// A running profiler. See the [module documentation](self).
pub(crate) struct Recording {
    /// ID of the recording, unique within the process.
    pub(crate) id: u64,
    /// True if the clock is simulated. The first driver determines this.
    simulated: OnceLock<bool>,
    /// Drivers to record. If the list is empty, all drivers are recorded.
    pub(crate) only: Vec<Arc<dyn Driver>>,
    pub(crate) activity: ActivityOptions,
    drivers: RwLock<Vec<Recorded>>,
    /// True if no more drivers can be added. The lock is held while a driver is being started.
    starting: Mutex<bool>,
    logs: Mutex<Vec<Arc<Log>>>,
    /// States of exiting threads, whose thread-local state no longer exists.
    ending: Mutex<Vec<Local>>,
    texts: Mutex<Names>,
    counters: Mutex<Definitions>,
    kernels: Mutex<HashMap<&'static str, &'static KernelSpec>>,
    /// Node lists of launched executables that have not been taken yet.
    nodes: Mutex<Vec<Arc<GraphNodes>>>,
    /// Number of times that the joiner has removed node lists. A list must be added again before its next use.
    pub(crate) forgotten: AtomicU64,
    /// Total size of all chunks, in bytes.
    held: AtomicUsize,
    /// Number of records that were dropped because the memory was full, counted separately for work and for other
    /// records.
    pub(crate) dropped_work: AtomicU64,
    pub(crate) dropped_others: AtomicU64,
    /// Facts about the recording, for [`Definitions::about`], with the number of facts per key. For each key, only the
    /// first fact is kept.
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
            starting: Mutex::default(),
            logs: Mutex::default(),
            ending: Mutex::default(),
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

    /// Returns true if the clock is simulated.
    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated.get().copied().unwrap_or(false)
    }

    /// Returns the current time, by the clock that the records use.
    pub(crate) fn now(&self) -> u64 {
        if self.is_simulated() {
            let drivers = self.drivers.read().unwrap_or_else(PoisonError::into_inner);
            return drivers.first().map_or(0, |recorded| recorded.driver.activity_now());
        }
        nanoseconds(SystemTime::now())
    }

    /// Returns the recorded drivers.
    pub(crate) fn drivers(&self) -> Vec<Recorded> {
        self.drivers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the driver at this address if the driver is being recorded.
    pub(crate) fn driver_at(&self, address: usize) -> Option<DriverIndex> {
        let drivers = self.drivers.read().unwrap_or_else(PoisonError::into_inner);
        drivers
            .iter()
            .position(|recorded| address_of(&recorded.driver) == address)
            .map(|index| index as DriverIndex)
    }

    /// Returns true if a driver should be recorded.
    fn wants(&self, driver: &Arc<dyn Driver>) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| address_of(only) == address_of(driver))
    }

    /// Starts adding a driver, and prevents other drivers from being started. Returns `None` if no more drivers can be
    /// added.
    pub(crate) fn begin_starting(&self) -> Option<MutexGuard<'_, bool>> {
        Some(lock(&self.starting)).filter(|has_ended| !**has_ended)
    }

    /// Waits until a driver that is being started has started. Afterwards, no other driver can be started.
    pub(crate) fn end_starting(&self) {
        *lock(&self.starting) = true;
    }

    /// Adds a driver, which is recorded from now on. Returns `None` if the driver is already being recorded or is
    /// excluded.
    pub(crate) fn add_driver(&self, driver: &Arc<dyn Driver>) -> Result<Option<DriverIndex>> {
        if !self.wants(driver) || self.driver_at(address_of(driver)).is_some() {
            return Ok(None);
        }
        let is_simulated = driver.activity_is_simulated();
        if *self.simulated.get_or_init(|| is_simulated) != is_simulated {
            return Err(ProfilerError::MixedClocks.into());
        }
        let devices = driver
            .device_count()
            .map_err(|error| ProfilerError::Driver { driver: driver.name(), error: error.into() })?;
        let mut drivers = self.drivers.write().unwrap_or_else(PoisonError::into_inner);
        let first_ordinal = drivers.last().map_or(0, |last| last.first_ordinal + last.devices);
        drivers.push(Recorded { driver: Arc::clone(driver), first_ordinal, devices });
        Ok(Some((drivers.len() - 1) as DriverIndex))
    }

    /// Adds a fact about the recording. For each key, only the first fact is kept; later ones are only counted.
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

    /// Takes the contents of the logs. Removes the logs of threads that have exited.
    pub(crate) fn take_logs(&self) -> Vec<Taken> {
        lock(&self.ending).retain(Local::is_in_operation);
        let mut taken = Vec::new();
        lock(&self.logs).retain(|log| {
            // This must be checked before the log is taken, so that the last record of a thread that has exited is
            // included.
            let is_alive = Arc::strong_count(log) > 1;
            fence(Ordering::Acquire);
            taken.push(log.take());
            is_alive
        });
        taken
    }

    /// Takes the stored state of this exiting thread, if any.
    pub(crate) fn take_ending(&self, thread: u64) -> Option<Local> {
        let mut ending = lock(&self.ending);
        let place = ending.iter().position(|local| local.thread() == thread)?;
        Some(ending.swap_remove(place))
    }

    /// Stores the state of this exiting thread.
    pub(crate) fn keep_ending(&self, local: Local) {
        lock(&self.ending).push(local);
    }

    pub(crate) fn intern(&self, text: &str) -> Name {
        lock(&self.texts).intern(text)
    }

    /// Interns the name or the category of a range or mark, like [`Self::intern`]. The number of strings is bounded,
    /// because the program can create any number of them. Above [`MAX_TEXTS`] strings, new strings that differ only in
    /// digits are merged. Above twice this number, all new strings are merged.
    pub(crate) fn intern_of_program(&self, text: &str) -> Name {
        let mut texts = lock(&self.texts);
        if texts.len() < MAX_TEXTS {
            return texts.intern(text);
        }
        if let Some(known) = texts.find(text) {
            return known;
        }
        let common = text.replace(|c: char| c.is_ascii_digit(), "#");
        let name = match texts.find(&common) {
            Some(known) => known,
            None if texts.len() < 2 * MAX_TEXTS => texts.intern(&common),
            None => texts.intern("#"),
        };
        drop(texts);
        let fact =
            format!("more than {MAX_TEXTS}: in further names, # replaces the digits or the whole name");
        self.note("names of ranges", fact);
        name
    }

    /// Returns the string of a name.
    pub(crate) fn text(&self, name: Name) -> String {
        lock(&self.texts).text(name).to_owned()
    }

    /// Returns the counter for samples of this kind on a device.
    pub(crate) fn counter(&self, device: u32, name: &str, unit: &str) -> CounterId {
        lock(&self.counters).counter(Some(device), name, unit)
    }

    pub(crate) fn counters(&self) -> Vec<Counter> {
        lock(&self.counters).counters().to_vec()
    }

    /// Registers a kernel, so that its name can be found.
    pub(crate) fn add_kernel(&self, spec: &'static KernelSpec) {
        lock(&self.kernels).insert(spec.symbol, spec);
    }

    pub(crate) fn kernel(&self, symbol: &str) -> Option<&'static KernelSpec> {
        lock(&self.kernels).get(symbol).copied()
    }

    /// Stores the node list of a launched executable.
    pub(crate) fn add_nodes(&self, nodes: &Arc<GraphNodes>) {
        lock(&self.nodes).push(Arc::clone(nodes));
    }

    pub(crate) fn take_nodes(&self) -> Vec<Arc<GraphNodes>> {
        std::mem::take(&mut *lock(&self.nodes))
    }

    /// Reserves memory for another chunk. Returns true if the memory is available. When a quarter of the memory is
    /// used, wakes the draining thread.
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

    /// Releases the memory of chunks that have been freed.
    pub(crate) fn freed(&self, chunks: usize) {
        self.held.fetch_sub(chunks * CHUNK_BYTES, Ordering::Relaxed);
    }

    /// Counts a record that has been dropped.
    #[cold]
    pub(crate) fn dropped(&self, raw: &Raw) {
        let count = if raw.is_work() { &self.dropped_work } else { &self.dropped_others };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wake(&self) {
        *lock(&self.wake.0) = true;
        self.wake.1.notify_all();
    }

    /// Waits until [`Self::wake`] is called or the time has passed. Returns true if the recording continues.
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

    /// Waits for all work on the recorded devices. If this fails or a device is lost, adds a fact to the recording.
    pub(crate) fn synchronize(&self) {
        for device in open_devices() {
            // SAFETY: the device is alive, and nothing is released.
            let (driver, context) = unsafe { device.driver() };
            if self.driver_at(address_of(driver)).is_none() {
                continue;
            }
            // This call fails on a lost device, and while a stream is being captured. In any case, work that has
            // finished is recorded.
            let waited = driver.context_synchronize(context);
            if device.is_lost() {
                self.note(&format!("device {}", device.id()), "lost: a fault stopped it".to_owned());
            } else if let Err(error) = waited {
                self.note(&format!("device {}", device.id()), format!("not waited for: {error}"));
            }
        }
    }
}

/// Returns the address that identifies a driver.
pub(crate) fn address_of(driver: &Arc<dyn Driver>) -> usize {
    Arc::as_ptr(driver).cast::<()>().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_program_are_bounded() {
        let recording = Recording::new(Vec::new(), ActivityOptions::default());
        let first = recording.intern_of_program("step 0");
        (1..MAX_TEXTS + 10).for_each(|step| {
            recording.intern_of_program(&format!("step {step}"));
        });
        let late = [1, 2].map(|step| recording.intern_of_program(&format!("step {}", MAX_TEXTS + step)));
        assert_eq!((recording.text(late[0]).as_str(), late[0]), ("step ######", late[1]));
        assert_eq!(recording.intern_of_program("step 0"), first);
        assert_eq!(recording.text(recording.intern("kernel_1")), "kernel_1");
        assert!(lock(&recording.texts).len() < MAX_TEXTS + 10);
        let [(_, fact)] = &recording.take_facts()[..] else { panic!("one fact") };
        assert!(fact.starts_with("more than 262144") && fact.ends_with("more)"), "{fact}");
    }
}
