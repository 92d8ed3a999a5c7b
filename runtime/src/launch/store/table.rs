//! [`LaunchStore`]: the fastest configurations, by kernel, device class and size.
//!
//! A tuner stores complete configurations ([`LaunchStore::store_tuned`]), which may name a kernel instance. Their block
//! and grid size also apply to open launches of that instance.
//!
//! A store is an in-memory hash table; new records are also appended to the store's file, if any.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use crate::launch::policy::{GridChoice, OpenLaunch, Winner};
use foldhash::fast::FixedState;

use super::problem::StoreProblem;
use super::record::{Record, append};
use super::subject::{LaunchSubject, TunedSubject, TuningKey};
use super::tuned::TunedConfiguration;

/// Maximum number of entries per kind.
const MAX: usize = 1 << 16;

/// The fastest known configurations. Cheap to clone; clones share one store.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::store::{LaunchStore, TunedConfiguration, TuningKey};
///
/// let (store, device) = (LaunchStore::in_memory(), Device::emulated(0)?);
/// let subject = TuningKey {
///     device: device.properties(),
///     package: "my-kernels",
///     kernel: "axpy",
///     types: "f32",
///     image: 0,
///     n: 1 << 20,
///     alignment: 16,
/// };
/// let values = vec![("block".to_owned(), "256".to_owned()), ("grid".to_owned(), "auto".to_owned())];
/// let toolchain = "rustc 1.96.0".to_owned();
/// store.store_tuned(&subject, TunedConfiguration { values, symbol: None, threads: None, median_us: 6.3, toolchain })?;
///
/// // It also applies to similar sizes.
/// let found = store.tuned(&TuningKey { n: 1_200_000, ..subject });
/// assert_eq!(found.and_then(|found| found.value("block").map(str::to_owned)), Some("256".to_owned()));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct LaunchStore(Arc<Inner>);

struct Inner {
    file: Option<PathBuf>,
    known: RwLock<Known>,
    /// True if the store contains a tuned configuration; otherwise, the usual case, the lookup is skipped.
    has_tuned: AtomicBool,
    problem: Mutex<Option<String>>,
    /// Counters of the devices that use the store. They are incremented when launches may resolve to different
    /// configurations.
    watchers: Mutex<Vec<Weak<AtomicU64>>>,
}

#[derive(Default)]
struct Known {
    launches: HashMap<u64, Winner, FixedState>,
    tuned: HashMap<u64, Arc<TunedConfiguration>, FixedState>,
}

impl Known {
    /// Adds a record. Returns false if the store is full. A later record for the same key replaces an earlier one.
    fn add(&mut self, Record { subject, configuration }: &Record<'_>) -> bool {
        if !insert(&mut self.tuned, subject.key(), Arc::new(configuration.clone().into_owned())) {
            return false;
        }
        if let (Some(symbol), Some(winner)) = (&configuration.symbol, configuration.winner()) {
            let threads = configuration.threads;
            insert(&mut self.launches, subject.launches(symbol, true, threads).key(), winner);
            // A kernel without a loop needs a grid that covers all elements.
            if winner.grid == GridChoice::All {
                insert(&mut self.launches, subject.launches(symbol, false, threads).key(), winner);
            }
        }
        true
    }
}

/// Inserts an entry. Returns false if the table is full.
fn insert<T>(known: &mut HashMap<u64, T, FixedState>, key: u64, value: T) -> bool {
    let has_room = known.len() < MAX || known.contains_key(&key);
    if has_room {
        known.insert(key, value);
    }
    has_room
}

impl LaunchStore {
    /// Creates a store without a file. Results are lost when the program ends.
    pub fn in_memory() -> Self {
        Self::new(None, None)
    }

    /// Creates a store that appends new records to a file, unless `problem` contains the reason why the file cannot be
    /// used.
    pub(crate) fn new(file: Option<PathBuf>, problem: Option<String>) -> Self {
        if let Some(problem) = &problem {
            tracing::warn!(
                problem,
                "the launch store cannot save anything: measurements are lost when the program ends"
            );
        }
        Self(Arc::new(Inner {
            file,
            known: RwLock::default(),
            has_tuned: AtomicBool::new(false),
            problem: Mutex::new(problem),
            watchers: Mutex::default(),
        }))
    }

    /// Returns the fastest known block and grid size for an open launch.
    pub(in crate::launch) fn find(&self, launch: &OpenLaunch<'_>) -> Option<Winner> {
        self.0.known().launches.get(&LaunchSubject::of(launch).key()).copied()
    }

    /// Registers a device's counter, which every change of the store increments.
    pub(in crate::launch) fn watch(&self, changes: &Arc<AtomicU64>) {
        let mut watchers = self.0.watchers();
        watchers.retain(|known| known.strong_count() > 0);
        if !watchers.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(changes))) {
            watchers.push(Arc::downgrade(changes));
        }
    }

    /// Adds a record that was read from the file. Returns false if the store is full. A later record for the same key
    /// replaces an earlier one.
    pub(crate) fn add(&self, record: &Record<'_>) -> bool {
        self.0.remember(record)
    }

    /// Returns the file in which records are stored.
    pub fn path(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// Returns the number of launches whose block and grid size are known.
    pub fn len(&self) -> usize {
        self.0.known().launches.len()
    }

    /// Returns the number of tuned configurations.
    pub fn tuned_len(&self) -> usize {
        self.0.known().tuned.len()
    }

    /// Returns true if there is a tuned configuration. Costs one load.
    pub fn has_tuned(&self) -> bool {
        self.0.has_tuned.load(Ordering::Acquire)
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        let known = self.0.known();
        known.launches.is_empty() && known.tuned.is_empty()
    }

    /// Returns the error that disabled the store's file, if any. The program continues without the file.
    pub fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the fastest known configuration for a key. The lookup takes less than a microsecond.
    pub fn tuned(&self, subject: &TuningKey<'_>) -> Option<Arc<TunedConfiguration>> {
        if !self.has_tuned() {
            return None;
        }
        let key = TunedSubject::of(subject)?.key();
        self.0.known().tuned.get(&key).cloned()
    }

    /// Stores the fastest configuration for a key, replacing the previous one.
    ///
    /// If the configuration names its instance, specifies `block`, and uses neither dynamic shared memory nor clusters,
    /// it also applies to open launches of that instance with about as many threads or items
    /// ([`TunedConfiguration::threads`]). `Launch::for_bandwidth` always uses it; `Launch::auto` and
    /// `Launch::for_occupancy` use it if the grid is `auto` or unspecified. It takes effect immediately, even for
    /// kernels launched earlier. Open launches ignore the alignment and use the configuration stored last.
    ///
    /// # Errors
    /// Returns [`StoreProblem::File`] if the file cannot be written; the configuration is then stored only in this
    /// process. Returns [`StoreProblem::Configuration`] or [`StoreProblem::Full`] if the configuration was not stored
    /// at all.
    pub fn store_tuned(
        &self,
        subject: &TuningKey<'_>,
        configuration: TunedConfiguration,
    ) -> crate::Result<()> {
        configuration.check()?;
        let subject = TunedSubject::of(subject).ok_or_else(|| StoreProblem::Configuration {
            what: format!("the alignment {} is not a power of two", subject.alignment),
        })?;
        let configuration = Cow::Owned(configuration);
        Ok(self.0.take(&Record { subject, configuration })?)
    }
}

impl Inner {
    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        for counter in self.watchers().iter().filter_map(Weak::upgrade) {
            counter.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record and notifies the watchers. Returns false if the store is full.
    fn remember(&self, record: &Record<'_>) -> bool {
        if !self.known.write().unwrap_or_else(PoisonError::into_inner).add(record) {
            return false;
        }
        self.has_tuned.store(true, Ordering::Release);
        self.notify();
        true
    }

    /// Adds a record and appends it to the file, under a lock, so that memory and file agree on the order of records.
    fn take(&self, record: &Record<'_>) -> Result<(), StoreProblem> {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.remember(record) {
            return Err(StoreProblem::Full { most: MAX });
        }
        // After a failure, nothing more is written.
        if let (None, Some(file)) = (&*problem, &self.file) {
            *problem = append(file, record).err();
            if let Some(problem) = &*problem {
                tracing::warn!(problem, "the launch store no longer saves anything");
            }
        }
        match &*problem {
            Some(what) => Err(StoreProblem::File { what: what.clone() }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LaunchStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (launches, tuned) = (self.len(), self.tuned_len());
        match self.path() {
            Some(path) => write!(f, "LaunchStore({launches} launches, {tuned} tuned, {})", path.display()),
            None => write!(f, "LaunchStore({launches} launches, {tuned} tuned, in memory)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceProperties;

    use super::*;
    use crate::launch::store::subject::tests::gpu;
    use crate::launch::store::tuned::tests::tuned;

    fn open(device: &DeviceProperties, is_loop: bool, n: u64) -> OpenLaunch<'_> {
        OpenLaunch { device, package: "test", symbol: "axpy__f32_8_16", image: 7, is_loop, n }
    }

    fn tuned_for(device: &DeviceProperties, n: u64) -> TuningKey<'_> {
        TuningKey { device, package: "test", kernel: "axpy", types: "f32", image: 7, n, alignment: 16 }
    }

    #[test]
    fn open_launches_find_block_and_grid_of_a_tuned_configuration() {
        let device = gpu((9, 0));
        let store = LaunchStore::in_memory();
        let winner = |block, grid| Some(Winner { block, grid });
        let both = |n| [false, true].map(|is_loop| store.find(&open(&device, is_loop, n)));
        store.store_tuned(&tuned_for(&device, 1000), tuned(&[("block", "96"), ("grid", "auto")])).unwrap();
        store.store_tuned(&tuned_for(&device, 90), tuned(&[("block", "96")])).unwrap();
        let waves = tuned(&[("block", "64"), ("grid", "waves:4"), ("items", "8")]);
        store.store_tuned(&tuned_for(&device, 5000), waves).unwrap();
        let all = winner(96, GridChoice::All);
        assert_eq!(both(900), [all, all], "one thread for each element");
        let waves = winner(64, GridChoice::Waves(4));
        assert_eq!(both(5001), [None, waves], "too few threads, but for a loop");
        assert_eq!(both(100), [None, None]);
        assert_eq!(both(90), [all, all], "without a grid it is the same");
        let chunks = TunedConfiguration { threads: Some(10_000), ..tuned(&[("block", "32")]) };
        store.store_tuned(&tuned_for(&device, 40_000), chunks).unwrap();
        assert_eq!((both(10_001)[0], both(40_000)[0]), (winner(32, GridChoice::All), None), "by threads");
        let other = gpu((8, 0));
        assert_eq!(store.find(&open(&other, false, 1000)), None, "of another device");
        assert_eq!((store.len(), store.tuned_len()), (7, 4));
    }

    #[test]
    fn every_change_is_counted_for_each_watcher() {
        let (device, store) = (gpu((9, 0)), LaunchStore::in_memory());
        let counters = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(10))];
        counters.iter().chain(&counters).for_each(|counter| store.watch(counter));
        for n in [1000, 2000] {
            store.store_tuned(&tuned_for(&device, n), tuned(&[])).unwrap();
        }
        assert_eq!(counters.each_ref().map(|counter| counter.load(Ordering::Relaxed)), [2, 12]);
        drop(counters);
        store.watch(&Arc::default());
        assert_eq!(store.0.watchers.lock().unwrap().len(), 1, "dropped counters are forgotten");
    }
}
