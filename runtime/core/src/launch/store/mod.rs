//! [`LaunchStore`]: what was fastest, by kernel, kind of device and size.
//!
//! It knows the block and grid of open launches, which the [adaptive launcher](super::adaptive) finds, and whole
//! configurations with the instance that they name, which a tuner finds ([`LaunchStore::keep_tuned`]). Block and grid of
//! such a configuration hold for open launches of its instance too.
//!
//! A store is a table in memory: looking something up is a hash and a read. What keeps its records between runs, and in
//! which form, is for others: whoever opens a store adds the records that were kept ([`LaunchStore::add`]) and gives it a
//! [`Keeper`] for new ones. The stores of CUDA devices come from [`STORES`]; the crate `warpsmith-store`, a part of
//! `warpsmith`, puts the user's file there.

mod key;
mod tuned;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use self::key::ByKey;
pub use self::key::{Code, DeviceClass, LaunchSubject, TunedFor, TunedSubject};
pub use self::tuned::TunedConfiguration;
pub use super::heuristic::GridChoice;
use super::resolve::Source;
use crate::error::StoreProblem;

/// The most entries of a kind that are known.
const MOST: usize = 1 << 16;

/// What opens the store of the program's CUDA devices; the first one counts. Without any, what is measured is known until the
/// program ends.
#[linkme::distributed_slice]
pub static STORES: [fn() -> LaunchStore];

/// The block and the rule for the grid that were fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Winner {
    /// Threads of a block, above 0.
    pub block: u32,
    /// How many blocks.
    pub grid: GridChoice,
}

/// Something that a store knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<'a> {
    /// The block and grid of open launches of an instance.
    Launch {
        /// What they are for.
        subject: LaunchSubject<'a>,
        /// What was fastest.
        winner: Winner,
        /// The median of what was measured, in microseconds.
        median_us: f64,
    },
    /// The configuration of a kernel.
    Tuned {
        /// What it is for.
        subject: TunedSubject<'a>,
        /// What was fastest.
        configuration: TunedConfiguration,
    },
}

/// Keeps the records of a store for later processes.
pub trait Keeper: Send + Sync {
    /// The file in which they are kept.
    fn path(&self) -> &Path;

    /// Keeps a record. One thread at a time calls it, in the order in which the store learns.
    ///
    /// # Errors
    /// What failed with which file, why, and what to do. It is not called again after that.
    fn keep(&self, record: &Record<'_>) -> Result<(), String>;
}

impl Record<'_> {
    /// Whether a launch or a tuner can come to such a record.
    ///
    /// # Errors
    /// [`StoreProblem::Configuration`] with what is wrong with it.
    pub fn check(&self) -> Result<(), StoreProblem> {
        let wrong = |what: String| Err(StoreProblem::Configuration { what });
        match self {
            Record::Launch { subject, winner: Winner { block, grid }, median_us } => match () {
                () if !subject.is_possible() => wrong("there is no such bucket".to_owned()),
                () if *block == 0 || matches!(grid, GridChoice::Waves(0) | GridChoice::Blocks(0)) => {
                    wrong(format!("block {block} and grid {grid:?} are no launch"))
                }
                () if !(median_us.is_finite() && *median_us >= 0.0) => wrong("the time is none".to_owned()),
                () => Ok(()),
            },
            Record::Tuned { subject, .. } if !subject.is_possible() => {
                wrong("there is no such bucket or alignment".to_owned())
            }
            Record::Tuned { configuration, .. } => configuration.check(),
        }
    }
}

/// The fastest launches and configurations that are known. Cheap to clone; clones are one store.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::launch::{LaunchStore, TunedConfiguration, TunedFor};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let (store, device) = (LaunchStore::in_memory(), Device::emulated(0)?);
/// let subject = TunedFor {
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
/// store.keep_tuned(&subject, TunedConfiguration { values, symbol: None, median_us: 6.3, toolchain })?;
///
/// // It holds for sizes about as large.
/// let found = store.tuned(&TunedFor { n: 1_200_000, ..subject });
/// assert_eq!(found.and_then(|found| found.value("block").map(str::to_owned)), Some("256".to_owned()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LaunchStore(Arc<Inner>);

struct Inner {
    keeper: Option<Box<dyn Keeper>>,
    known: RwLock<Known>,
    /// Whether there is a tuned configuration: most programs have none, and need not look.
    has_tuned: AtomicBool,
    problem: Mutex<Option<String>>,
    /// Counters of devices that use the store: one more says that launches may become something else.
    watchers: Mutex<Vec<Weak<AtomicU64>>>,
}

/// What is known.
#[derive(Default)]
struct Known {
    launches: ByKey<(Winner, Source)>,
    tuned: ByKey<Arc<TunedConfiguration>>,
}

impl Known {
    /// Takes in what a record says; false if there is no room. Of two for one thing, the later one holds.
    fn add(&mut self, record: &Record<'_>, source: Source) -> bool {
        match record {
            Record::Launch { subject, winner, .. } => {
                insert(&mut self.launches, subject.key(), (*winner, source))
            }
            Record::Tuned { subject, configuration } => {
                if !insert(&mut self.tuned, subject.key(), Arc::new(configuration.clone())) {
                    return false;
                }
                if let (Some(symbol), Some(winner)) = (&configuration.symbol, configuration.winner()) {
                    let winner = (winner, Source::Tuned);
                    insert(&mut self.launches, subject.launches(symbol, true).key(), winner);
                    // One thread an element: as many blocks as there is work for, or some of it is left undone.
                    if winner.0.grid == GridChoice::All {
                        insert(&mut self.launches, subject.launches(symbol, false).key(), winner);
                    }
                }
                true
            }
        }
    }
}

/// False if there is no room.
fn insert<T>(known: &mut ByKey<T>, key: u64, value: T) -> bool {
    let has_room = known.len() < MOST || known.contains_key(&key);
    if has_room {
        known.insert(key, value);
    }
    has_room
}

impl LaunchStore {
    /// A store without a keeper: what is measured is known until the program ends.
    pub fn in_memory() -> Self {
        Self::new(None, None)
    }

    /// A store whose new records a keeper keeps, unless there is a problem with that from the start: what failed, why, and
    /// what to do.
    pub fn new(keeper: Option<Box<dyn Keeper>>, problem: Option<String>) -> Self {
        if let Some(problem) = &problem {
            tracing::warn!(
                problem,
                "the launch store keeps nothing: what is measured is forgotten when the program ends"
            );
        }
        Self(Arc::new(Inner {
            keeper,
            known: RwLock::default(),
            has_tuned: AtomicBool::new(false),
            problem: Mutex::new(problem),
            watchers: Mutex::default(),
        }))
    }

    /// The store of the program's CUDA devices.
    pub(super) fn of_program() -> Self {
        STORES.first().map_or_else(Self::in_memory, |open| open())
    }

    /// Takes in a record that was kept earlier; of two for one thing the later one holds. False if there is no room.
    ///
    /// # Errors
    /// As [`Record::check`].
    pub fn add(&self, record: &Record<'_>) -> Result<bool, StoreProblem> {
        record.check()?;
        Ok(self.learn(record, Source::Tuned))
    }

    /// The file in which a keeper keeps it.
    pub fn path(&self) -> Option<&Path> {
        Some(self.0.keeper.as_ref()?.path())
    }

    /// The number of launches whose block and grid are known.
    pub fn len(&self) -> usize {
        self.known().launches.len()
    }

    /// The number of tuned configurations.
    pub fn tuned_len(&self) -> usize {
        self.known().tuned.len()
    }

    /// Whether there is a tuned configuration. It costs one read of memory.
    pub fn has_tuned(&self) -> bool {
        self.0.has_tuned.load(Ordering::Acquire)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        let known = self.known();
        known.launches.is_empty() && known.tuned.is_empty()
    }

    /// Why nothing is kept or read, if there is a keeper and that is so. The program goes on without it.
    pub fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fastest configuration that is known for something. Takes less than a microsecond, and reads no file.
    pub fn tuned(&self, subject: &TunedFor<'_>) -> Option<Arc<TunedConfiguration>> {
        if !self.has_tuned() {
            return None;
        }
        let key = TunedSubject::of(subject)?.key();
        self.known().tuned.get(&key).cloned()
    }

    /// Keeps the fastest configuration for something, instead of the one before.
    ///
    /// If it names an instance and has a value for `block`, and neither dynamic shared memory nor clusters, open launches
    /// of that instance for such sizes get its block and grid too: loops over items
    /// ([`Launch::for_bandwidth`](super::Launch::for_bandwidth)) always, launches of so many threads
    /// ([`Launch::auto`](super::Launch::auto), [`Launch::for_occupancy`](super::Launch::for_occupancy)) where the grid is
    /// `auto`, as it is where none is said. That holds at once, for launches that were made before as well. An alignment makes no difference to them:
    /// the last that was kept holds.
    ///
    /// # Errors
    /// [`StoreProblem::File`] where the keeper cannot keep it: it is known in this process all the same.
    /// [`StoreProblem::Configuration`] and [`StoreProblem::Full`]: it is not kept.
    pub fn keep_tuned(
        &self,
        subject: &TunedFor<'_>,
        configuration: TunedConfiguration,
    ) -> Result<(), StoreProblem> {
        configuration.check()?;
        let subject = TunedSubject::of(subject).ok_or_else(|| StoreProblem::Configuration {
            what: format!("the alignment {} is no power of two", subject.alignment),
        })?;
        self.take(&Record::Tuned { subject, configuration }, Source::Tuned, true)
    }

    /// Has a device's counter count the changes from now on.
    pub(super) fn watch(&self, counter: &Arc<AtomicU64>) {
        let mut watchers = self.watchers();
        watchers.retain(|known| known.strong_count() > 0);
        if !watchers.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(counter))) {
            watchers.push(Arc::downgrade(counter));
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    pub(super) fn get(&self, subject: &LaunchSubject<'_>) -> Option<(Winner, Source)> {
        self.known().launches.get(&subject.key()).copied()
    }

    /// Takes in a winner, which is kept with its median time unless it was not measured.
    pub(super) fn put(&self, subject: &LaunchSubject<'_>, winner: Winner, us: Option<f64>) {
        let record = Record::Launch { subject: subject.clone(), winner, median_us: us.unwrap_or(0.0) };
        // What is wrong with the keeper can be asked for.
        let _ = self.take(&record, Source::Measured, us.is_some());
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        for counter in self.watchers().iter().filter_map(Weak::upgrade) {
            counter.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record in, and tells those who watch; false if there is no room.
    fn learn(&self, record: &Record<'_>, source: Source) -> bool {
        if !self.0.known.write().unwrap_or_else(PoisonError::into_inner).add(record, source) {
            return false;
        }
        if matches!(record, Record::Tuned { .. }) {
            self.0.has_tuned.store(true, Ordering::Release);
        }
        self.notify();
        true
    }

    /// Takes a record in, and has it kept if it is to be. One thread at a time does so: memory and file agree on which of two
    /// is the later.
    fn take(&self, record: &Record<'_>, source: Source, is_kept: bool) -> Result<(), StoreProblem> {
        let mut problem = self.0.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.learn(record, source) {
            return Err(StoreProblem::Full { most: MOST });
        }
        if !is_kept {
            return Ok(());
        }
        // What failed once is not tried again and again.
        if let (None, Some(keeper)) = (&*problem, &self.0.keeper) {
            *problem = keeper.keep(record).err();
            if let Some(problem) = &*problem {
                tracing::warn!(problem, "the launch store keeps nothing from now on");
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
    use std::sync::atomic::AtomicUsize;

    use super::super::occupancy::tests::gpu;
    use super::tuned::tests::tuned;
    use super::*;
    use crate::driver::DeviceProperties;

    fn subject(device: &DeviceProperties, is_loop: bool, n: u64) -> LaunchSubject<'_> {
        LaunchSubject::of(device, ("test", "axpy__f32_8_16"), 7, is_loop, n)
    }

    fn tuned_for(device: &DeviceProperties, n: u64) -> TunedFor<'_> {
        TunedFor { device, package: "test", kernel: "axpy", types: "f32", image: 7, n, alignment: 16 }
    }

    /// Counts its calls, and fails from the given one on.
    struct Counter(Arc<AtomicUsize>, usize);

    impl Keeper for Counter {
        fn path(&self) -> &Path {
            Path::new("kept")
        }

        fn keep(&self, _: &Record<'_>) -> Result<(), String> {
            let is_well = self.0.fetch_add(1, Ordering::Relaxed) < self.1;
            if is_well { Ok(()) } else { Err("the disk is full; make room".to_owned()) }
        }
    }

    fn counted(most: usize) -> (LaunchStore, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        (LaunchStore::new(Some(Box::new(Counter(calls.clone(), most))), None), calls)
    }

    const WINNER: Winner = Winner { block: 128, grid: GridChoice::Waves(2) };

    #[test]
    fn a_winner_is_found_for_the_same_thing_only() {
        let (h200, a100) = (gpu((9, 0)), gpu((8, 0)));
        let (store, calls) = counted(9);
        store.put(&subject(&h200, false, 1000), WINNER, Some(3.5));
        store.put(&subject(&h200, false, 5000), WINNER, None);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "what was not measured is not kept");
        assert_eq!(store.get(&subject(&h200, false, 1000)), Some((WINNER, Source::Measured)));
        let later = LaunchStore::in_memory();
        let record = |block| Record::Launch {
            subject: subject(&h200, false, 1000),
            winner: Winner { block, ..WINNER },
            median_us: 3.5,
        };
        assert_eq!(later.add(&record(128)), Ok(true));
        let found = later.get(&subject(&h200, false, 800));
        assert_eq!(found, Some((WINNER, Source::Tuned)), "of the same bucket");
        let others = [subject(&h200, false, 700), subject(&a100, false, 1000), subject(&h200, true, 1000)];
        assert!(others.iter().all(|other| later.get(other).is_none()));
        assert_eq!(later.add(&record(64)), Ok(true));
        assert_eq!(later.get(&subject(&h200, false, 1000)).unwrap().0.block, 64, "the later one holds");
        assert!(later.add(&record(0)).is_err() && later.len() == 1);
    }

    #[test]
    fn open_launches_find_block_and_grid_of_a_tuned_configuration() {
        let device = gpu((9, 0));
        let (store, calls) = counted(9);
        let winner = |block, grid| Some((Winner { block, grid }, Source::Tuned));
        let both = |n| [false, true].map(|is_loop| store.get(&subject(&device, is_loop, n)));
        store.keep_tuned(&tuned_for(&device, 1000), tuned(&[("block", "96"), ("grid", "auto")])).unwrap();
        store.keep_tuned(&tuned_for(&device, 90), tuned(&[("block", "96")])).unwrap();
        let waves = tuned(&[("block", "64"), ("grid", "waves:4"), ("items", "8")]);
        store.keep_tuned(&tuned_for(&device, 5000), waves).unwrap();
        let all = winner(96, GridChoice::All);
        assert_eq!(both(900), [all, all], "as many blocks as there is work for");
        let waves = winner(64, GridChoice::Waves(4));
        assert_eq!(both(5001), [None, waves], "too few threads, but for a loop");
        assert_eq!(both(100), [None, None]);
        assert_eq!(both(90), [all, all], "without a grid it is the same");
        assert_eq!((store.len(), store.tuned_len(), calls.load(Ordering::Relaxed)), (5, 3, 3));
    }

    #[test]
    fn a_keeper_that_fails_is_not_asked_again() {
        let device = gpu((9, 0));
        let (store, calls) = counted(1);
        let keep = |n| store.keep_tuned(&tuned_for(&device, n), tuned(&[]));
        assert_eq!((keep(1000), store.problem()), (Ok(()), None));
        for n in [2000, 4000] {
            let what = "the disk is full; make room".to_owned();
            assert_eq!(keep(n), Err(StoreProblem::File { what: what.clone() }));
            assert_eq!(store.problem(), Some(what));
            assert!(store.tuned(&tuned_for(&device, n)).is_some(), "it is known all the same");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn those_who_watch_are_told_of_every_change() {
        let (device, store) = (gpu((9, 0)), LaunchStore::in_memory());
        let counters = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(10))];
        counters.iter().chain(&counters).for_each(|counter| store.watch(counter));
        store.put(&subject(&device, false, 1000), WINNER, None);
        store.keep_tuned(&tuned_for(&device, 1000), tuned(&[])).unwrap();
        assert_eq!(counters.each_ref().map(|counter| counter.load(Ordering::Relaxed)), [2, 12]);
        drop(counters);
        store.watch(&Arc::default());
        assert_eq!(store.0.watchers.lock().unwrap().len(), 1, "who went is forgotten");
    }
}
