//! [`LaunchStore`]: what was fastest, by kernel, kind of device and size, kept between runs.
//!
//! It keeps the block and grid of open launches, which the [adaptive launcher](super::adaptive) finds, and whole
//! configurations with the instance that they name, which a tuner finds ([`LaunchStore::keep_tuned`]). Block and grid of
//! such a configuration hold for open launches of its instance too.
//!
//! A file of JSON lines that only grows. It is read once, when the store is opened; looking something up is a hash and a
//! read of memory. What another process appends meanwhile is seen by the next one that opens the file. Each line is
//! appended with one call, so that lines of several processes do not mix. A line that cannot be used is skipped, and
//! [`LaunchStore::damaged_lines`] says which and why; lines of another version are passed over. Where the file cannot be
//! read or written, the program goes on with what it measures itself, and [`LaunchStore::problem`] says why.
//!
//! The file is `launches.jsonl` in the directory `WARPSMITH_CACHE_DIR`, or else in `warpsmith` in the user's directory
//! for caches (`XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).

mod file;
mod key;
mod line;
mod tuned;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

use self::file::{Contents, Known, cannot};
pub use self::file::{DamagedLine, DamagedLines};
pub(super) use self::key::Subject;
pub use self::key::TunedFor;
use self::key::TunedSubject;
use self::line::Entry;
pub use self::tuned::TunedConfiguration;
use super::heuristic::GridChoice;
use super::resolve::Source;
use crate::error::Error;

/// The most entries of a kind that are kept in memory.
const MOST: usize = 1 << 16;
const FILE: &str = "launches.jsonl";

/// The block and the rule for the grid that were fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Winner {
    pub block: u32,
    pub grid: GridChoice,
}

/// Why something is not kept, or not kept for later processes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The file cannot be read or written.
    #[error("{what}")]
    File {
        /// What failed with which file, why, and what to do.
        what: String,
    },
    /// This is no configuration that can be kept.
    #[error("a tuned configuration cannot be kept: {what}")]
    Configuration {
        /// What is wrong with it.
        what: String,
    },
    /// There is no room in memory for more.
    #[error("a tuned configuration is not kept: the store has {most} of them; remove its file to begin anew")]
    Full {
        /// The most entries there can be.
        most: usize,
    },
}

impl From<StoreProblem> for Error {
    fn from(problem: StoreProblem) -> Self {
        Error::Store(problem)
    }
}

/// The fastest launches and configurations that are known. Cheap to clone; clones are one store.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::launch::{LaunchStore, TunedConfiguration, TunedFor};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let directory = std::env::temp_dir().join(format!("warpsmith-doc-{}", std::process::id()));
/// let store = LaunchStore::open(&directory);
/// assert_eq!((store.len(), store.damaged_lines().number, store.problem()), (0, 0, None));
///
/// let device = Device::emulated(0)?;
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
/// // Another process finds it, for sizes about as large.
/// let later = LaunchStore::open(&directory);
/// let found = later.tuned(&TunedFor { n: 1_200_000, ..subject });
/// assert_eq!(found.and_then(|found| found.value("block").map(str::to_owned)), Some("256".to_owned()));
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LaunchStore(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    known: RwLock<Known>,
    /// Whether there is a tuned configuration: most programs have none, and need not look.
    has_tuned: AtomicBool,
    passed_over: usize,
    damaged: DamagedLines,
    problem: Mutex<Option<String>>,
    /// Counters of devices that use the store: one more says that launches may become something else.
    watchers: Mutex<Vec<Weak<AtomicU64>>>,
}

impl LaunchStore {
    /// The store in a directory, which is made when something is written.
    pub fn open(directory: impl AsRef<Path>) -> Self {
        let path = directory.as_ref().join(FILE);
        let (contents, outcome) = Contents::read(&path);
        let problem = outcome.err().map(|error| cannot("read", &path, &error));
        Self::of(Some(path), contents, problem)
    }

    /// A store without a file: what is measured is known until the program ends.
    pub fn in_memory() -> Self {
        Self::of(None, Contents::default(), None)
    }

    /// The process's store: see the [module's documentation](self) for its file.
    pub fn shared() -> Self {
        static SHARED: OnceLock<LaunchStore> = OnceLock::new();
        let open = || match file::user_directory() {
            Some(directory) => Self::open(directory),
            None => {
                let problem = "there is no directory for caches; set WARPSMITH_CACHE_DIR to one";
                Self::of(None, Contents::default(), Some(problem.to_owned()))
            }
        };
        SHARED.get_or_init(open).clone()
    }

    fn of(path: Option<PathBuf>, contents: Contents, problem: Option<String>) -> Self {
        let Contents { known, passed_over, damaged } = contents;
        Self(Arc::new(Inner {
            path,
            has_tuned: AtomicBool::new(!known.tuned.is_empty()),
            known: RwLock::new(known),
            passed_over,
            damaged,
            problem: Mutex::new(problem),
            watchers: Mutex::default(),
        }))
    }

    /// The file; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
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

    /// The number of lines that were not used when the file was read: damaged ones, those of another version, and those
    /// for which there was no room.
    pub fn skipped_lines(&self) -> usize {
        self.0.damaged.number + self.0.passed_over
    }

    /// The lines of this version that could not be used when the file was read: how many, and what is wrong with the
    /// first of them. One is usual after a process was killed while it wrote.
    pub fn damaged_lines(&self) -> &DamagedLines {
        &self.0.damaged
    }

    /// Why the file is not read or written, if it is not. The program goes on without it.
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

    /// Keeps the fastest configuration for something, instead of the one before, and appends it to the file.
    ///
    /// If it names an instance and has a value for `block`, and neither dynamic shared memory nor clusters, open launches
    /// of that instance for such sizes get its block and grid too: loops over items
    /// ([`Launch::for_bandwidth`](super::Launch::for_bandwidth)) always, launches of so many threads
    /// ([`Launch::auto`](super::Launch::auto), [`Launch::for_occupancy`](super::Launch::for_occupancy)) where the grid is
    /// `auto`, as it is where none is said. That holds at once, for launches that were made before as well. An alignment makes no difference to them:
    /// the last that was kept holds.
    ///
    /// # Errors
    /// [`StoreProblem::File`] where it cannot be written: it is known in this process all the same.
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
        self.take(&Entry::Tuned { subject, configuration }, Source::Tuned, true)
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

    pub(super) fn get(&self, subject: &Subject<'_>) -> Option<(Winner, Source)> {
        self.known().launches.get(&subject.key()).copied()
    }

    /// Keeps a winner, and writes it to the file with its median time unless it was not measured.
    pub(super) fn put(&self, subject: &Subject<'_>, winner: Winner, us: Option<f64>) {
        let entry = Entry::launch(subject.clone(), winner, us.unwrap_or(0.0));
        // What is wrong with the file is kept, and can be asked for.
        let _ = self.take(&entry, Source::Measured, us.is_some());
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

    /// Takes something in, tells those who watch, and writes it to the file if it is to be. One thread at a time does so:
    /// memory and file agree on which of two is the later.
    fn take(&self, entry: &Entry<'_>, source: Source, is_written: bool) -> Result<(), StoreProblem> {
        let mut problem = self.0.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.0.known.write().unwrap_or_else(PoisonError::into_inner).add(entry, source) {
            return Err(StoreProblem::Full { most: MOST });
        }
        if matches!(entry, Entry::Tuned { .. }) {
            self.0.has_tuned.store(true, Ordering::Release);
        }
        self.notify();
        if !is_written {
            return Ok(());
        }
        // What failed once is not tried again and again.
        if let (None, Some(path)) = (&*problem, &self.0.path) {
            let line = entry.to_line().map_err(std::io::Error::from);
            if let Err(error) = line.and_then(|line| file::append(path, &line)) {
                *problem = Some(cannot("write", path, &error));
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
    use std::fs;

    use super::super::occupancy::tests::gpu;
    use super::tuned::tests::tuned;
    use super::*;
    use crate::driver::DeviceProperties;

    fn subject(device: &DeviceProperties, is_loop: bool, n: u64) -> Subject<'_> {
        Subject::of(device, ("test", "axpy__f32_8_16"), 7, is_loop, n)
    }

    fn tuned_for(device: &DeviceProperties, n: u64) -> TunedFor<'_> {
        TunedFor { device, package: "test", kernel: "axpy", types: "f32", image: 7, n, alignment: 16 }
    }

    /// A directory of its own, which is not there yet.
    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("warpsmith-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    const WINNER: Winner = Winner { block: 128, grid: GridChoice::Waves(2) };

    #[test]
    fn a_winner_is_found_by_the_next_process_for_the_same_thing_only() {
        let directory = fresh("store");
        let (h200, a100) = (gpu((9, 0)), gpu((8, 0)));
        let store = LaunchStore::open(&directory);
        store.put(&subject(&h200, false, 1000), WINNER, Some(3.5));
        assert_eq!(store.get(&subject(&h200, false, 1000)), Some((WINNER, Source::Measured)));
        let later = LaunchStore::open(&directory);
        assert_eq!((later.len(), later.skipped_lines(), later.problem()), (1, 0, None));
        assert_eq!(
            later.get(&subject(&h200, false, 800)),
            Some((WINNER, Source::Tuned)),
            "of the same bucket"
        );
        let others = [subject(&h200, false, 700), subject(&a100, false, 1000), subject(&h200, true, 1000)];
        assert!(others.iter().all(|other| later.get(other).is_none()));
        later.put(&subject(&h200, false, 1000), Winner { block: 64, ..WINNER }, Some(3.0));
        let last = LaunchStore::open(&directory);
        assert_eq!(last.get(&subject(&h200, false, 1000)).unwrap().0.block, 64, "the later line holds");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn open_launches_find_block_and_grid_of_a_tuned_configuration() {
        let directory = fresh("derived");
        let device = gpu((9, 0));
        let store = LaunchStore::open(&directory);
        let winner = |block, grid| Some((Winner { block, grid }, Source::Tuned));
        let both =
            |store: &LaunchStore, n| [false, true].map(|is_loop| store.get(&subject(&device, is_loop, n)));
        store.keep_tuned(&tuned_for(&device, 1000), tuned(&[("block", "96"), ("grid", "auto")])).unwrap();
        store.keep_tuned(&tuned_for(&device, 90), tuned(&[("block", "96")])).unwrap();
        let waves = tuned(&[("block", "64"), ("grid", "waves:4"), ("items", "8")]);
        store.keep_tuned(&tuned_for(&device, 5000), waves).unwrap();
        for store in [store, LaunchStore::open(&directory)] {
            let all = winner(96, GridChoice::All);
            assert_eq!(both(&store, 900), [all, all], "as many blocks as there is work for");
            let waves = winner(64, GridChoice::Waves(4));
            assert_eq!(both(&store, 5001), [None, waves], "too few threads, but for a loop");
            assert_eq!(both(&store, 100), [None, None]);
            assert_eq!(both(&store, 90), [all, all], "without a grid it is the same");
            assert_eq!((store.len(), store.tuned_len()), (5, 3));
        }
        fs::remove_dir_all(&directory).unwrap();
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
