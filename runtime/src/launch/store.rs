//! [`LaunchStore`]: which block and grid were fastest, by kernel, kind of device and size, kept between runs.
//!
//! A file of JSON lines that only grows. It is read once, when the store is opened; looking something up is a hash and a
//! read of memory. A line that cannot be used is skipped and counted. Where the file cannot be read or written, the
//! program goes on with what it measures itself, and [`LaunchStore::problem`] says why.
//!
//! The file is `launches.jsonl` in the directory `WARPSMITH_CACHE_DIR`, or else in `warpsmith` in the user's directory
//! for caches (`XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::heuristic::GridChoice;
use super::resolve::Source;
use crate::driver::DeviceProperties;

/// The version of a line's form. Lines of others are skipped.
const VERSION: u32 = 1;
/// The most entries that are kept in memory.
const MOST: usize = 1 << 16;
/// The most of a file that is read.
const MOST_BYTES: u64 = 64 << 20;
const FILE: &str = "launches.jsonl";

/// The block and the rule for the grid that were fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Winner {
    pub block: u32,
    pub grid: GridChoice,
}

/// What a winner is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub device: &'a DeviceProperties,
    pub package: &'a str,
    pub symbol: &'a str,
    /// Of the code that was loaded; 0 for none.
    pub image: u64,
    /// Whether the kernel loops over the items.
    pub is_loop: bool,
    pub n: u64,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    device: String,
    capability: (u32, u32),
    multiprocessors: u32,
    package: String,
    symbol: String,
    image: String,
    is_loop: bool,
    /// See [`bucket`].
    bucket: u32,
    block: u32,
    /// `all`, `balanced` or `waves:N`.
    grid: String,
    /// The median of what was measured, in microseconds.
    us: f64,
}

/// Sizes that are measured together: two for each power of two.
pub(super) fn bucket(n: u64) -> u32 {
    let log = n.max(1).ilog2();
    2 * log + u32::from(log > 0 && n >> (log - 1) & 1 == 1)
}

/// What tells one subject from another, so that it can be looked up without making a text.
#[allow(clippy::too_many_arguments, reason = "the fields of a line")]
fn key(
    device: &str,
    capability: (u32, u32),
    multiprocessors: u32,
    package: &str,
    symbol: &str,
    image: u64,
    is_loop: bool,
    bucket: u32,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    (device, capability, multiprocessors, package, symbol, image, is_loop, bucket).hash(&mut hasher);
    hasher.finish()
}

impl Subject<'_> {
    pub fn key(&self) -> u64 {
        let Subject { device, package, symbol, image, is_loop, n } = *self;
        let DeviceProperties { name, capability, multiprocessors, .. } = device;
        key(name, *capability, *multiprocessors, package, symbol, image, is_loop, bucket(n))
    }

    fn line(&self, winner: Winner, us: f64) -> Line {
        Line {
            version: VERSION,
            device: self.device.name.clone(),
            capability: self.device.capability,
            multiprocessors: self.device.multiprocessors,
            package: self.package.to_owned(),
            symbol: self.symbol.to_owned(),
            image: format!("{:016x}", self.image),
            is_loop: self.is_loop,
            bucket: bucket(self.n),
            block: winner.block,
            grid: match winner.grid {
                GridChoice::All => "all".to_owned(),
                GridChoice::Balanced => "balanced".to_owned(),
                GridChoice::Waves(waves) => format!("waves:{waves}"),
            },
            us,
        }
    }
}

impl Line {
    /// The key and what was fastest; `None` if this is no line of ours.
    fn entry(&self) -> Option<(u64, Winner)> {
        let grid = match self.grid.as_str() {
            "all" => GridChoice::All,
            "balanced" => GridChoice::Balanced,
            other => {
                GridChoice::Waves(other.strip_prefix("waves:")?.parse().ok().filter(|waves| *waves > 0)?)
            }
        };
        let image = u64::from_str_radix(&self.image, 16).ok()?;
        let Line { device, capability, multiprocessors, package, symbol, is_loop, bucket, .. } = self;
        let key = key(device, *capability, *multiprocessors, package, symbol, image, *is_loop, *bucket);
        let is_usable = self.version == VERSION && self.block > 0;
        is_usable.then_some((key, Winner { block: self.block, grid }))
    }
}

/// The fastest launches that are known. Cheap to clone; clones are one store.
///
/// ```
/// use warpsmith_runtime::launch::LaunchStore;
///
/// let directory = std::env::temp_dir().join(format!("warpsmith-doc-{}", std::process::id()));
/// let store = LaunchStore::open(&directory);
/// assert_eq!((store.len(), store.skipped_lines(), store.problem()), (0, 0, None));
/// ```
#[derive(Clone)]
pub struct LaunchStore(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    known: RwLock<HashMap<u64, (Winner, Source)>>,
    skipped: usize,
    /// Whether the file's last line was not finished.
    is_ragged: AtomicBool,
    problem: Mutex<Option<String>>,
}

impl LaunchStore {
    /// The store in a directory, which is made when something is written.
    pub fn open(directory: impl AsRef<Path>) -> Self {
        let path = directory.as_ref().join(FILE);
        let mut read = Read::default();
        let problem = match File::open(&path) {
            Ok(file) => read.lines(BufReader::new(file.take(MOST_BYTES))).err(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error),
        };
        let problem = problem.map(|error| cannot("read", &path, &error));
        Self::of(Some(path), read, problem)
    }

    /// A store without a file: what is measured is known until the program ends.
    pub fn in_memory() -> Self {
        Self::of(None, Read::default(), None)
    }

    /// The process's store: see the [module's documentation](self) for its file.
    pub fn shared() -> Self {
        static SHARED: OnceLock<LaunchStore> = OnceLock::new();
        let open = || match directory(|name| std::env::var_os(name)) {
            Some(directory) => Self::open(directory),
            None => {
                let problem = "there is no directory for caches; set WARPSMITH_CACHE_DIR to one";
                Self::of(None, Read::default(), Some(problem.to_owned()))
            }
        };
        SHARED.get_or_init(open).clone()
    }

    fn of(path: Option<PathBuf>, read: Read, problem: Option<String>) -> Self {
        Self(Arc::new(Inner {
            path,
            known: RwLock::new(read.known),
            skipped: read.skipped,
            is_ragged: AtomicBool::new(read.is_ragged),
            problem: Mutex::new(problem),
        }))
    }

    /// The file; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of lines that could not be used when the file was read: damaged ones, and those of another version.
    pub fn skipped_lines(&self) -> usize {
        self.0.skipped
    }

    /// Why the file is not read or written, if it is not. The program goes on without it.
    pub fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    pub(super) fn get(&self, subject: &Subject<'_>) -> Option<(Winner, Source)> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).get(&subject.key()).copied()
    }

    /// Keeps a winner, and writes it to the file with its median time unless it was not measured.
    pub(super) fn put(&self, subject: &Subject<'_>, winner: Winner, us: Option<f64>) {
        {
            let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST {
                return;
            }
            known.insert(subject.key(), (winner, Source::Measured));
        }
        let (Some(path), Some(us)) = (&self.0.path, us) else { return };
        let mut problem = self.0.problem.lock().unwrap_or_else(PoisonError::into_inner);
        // What failed once is not tried again and again.
        if problem.is_none()
            && let Err(error) = self.append(path, &subject.line(winner, us))
        {
            *problem = Some(cannot("write", path, &error));
        }
    }

    /// Writes a line with one call, so that lines of two processes do not mix.
    fn append(&self, path: &Path, line: &Line) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut text = if self.0.is_ragged.swap(false, Ordering::Relaxed) { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        OpenOptions::new().append(true).create(true).open(path)?.write_all(&text)
    }
}

impl fmt::Debug for LaunchStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => write!(f, "LaunchStore({} entries, {})", self.len(), path.display()),
            None => write!(f, "LaunchStore({} entries, in memory)", self.len()),
        }
    }
}

/// What was read of a file.
#[derive(Default)]
struct Read {
    known: HashMap<u64, (Winner, Source)>,
    skipped: usize,
    is_ragged: bool,
}

impl Read {
    fn lines(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            self.is_ragged = line.last() != Some(&b'\n');
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            match serde_json::from_slice::<Line>(text).ok().and_then(|line| line.entry()) {
                // Of two lines for one thing, the later one holds.
                Some((key, winner)) if self.known.len() < MOST || self.known.contains_key(&key) => {
                    self.known.insert(key, (winner, Source::Tuned));
                }
                _ => self.skipped += 1,
            }
        }
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {what} {}: {error}; set WARPSMITH_CACHE_DIR to a directory that can be written",
        path.display()
    )
}

/// The directory of the process's store, from its environment.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("WARPSMITH_CACHE_DIR") {
        return Some(directory);
    }
    let caches = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        set("HOME").map(|home| home.join("Library").join("Caches"))
    } else {
        set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join("warpsmith"))
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::tests::gpu;
    use super::*;

    fn subject(device: &DeviceProperties, n: u64) -> Subject<'_> {
        Subject { device, package: "test", symbol: "axpy", image: 7, is_loop: false, n }
    }

    /// A directory of its own, which is not there yet.
    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("warpsmith-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    const WINNER: Winner = Winner { block: 128, grid: GridChoice::Waves(2) };

    #[test]
    fn sizes_share_a_bucket_within_half_a_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(bucket), [0, 0, 2, 3, 4, 4, 5, 5, 6]);
        assert_eq!(
            [bucket(1 << 20), bucket((3 << 19) - 1), bucket(3 << 19), bucket(u64::MAX)],
            [40, 40, 41, 127]
        );
    }

    #[test]
    fn a_winner_is_found_by_the_next_process_for_the_same_thing_only() {
        let directory = fresh("store");
        let (h200, a100) = (gpu((9, 0)), gpu((8, 0)));
        let store = LaunchStore::open(&directory);
        store.put(&subject(&h200, 1000), WINNER, Some(3.5));
        assert_eq!(store.get(&subject(&h200, 1000)), Some((WINNER, Source::Measured)));
        let later = LaunchStore::open(&directory);
        assert_eq!((later.len(), later.skipped_lines(), later.problem()), (1, 0, None));
        assert_eq!(later.get(&subject(&h200, 800)), Some((WINNER, Source::Tuned)), "of the same bucket");
        let others = [
            subject(&h200, 700),
            subject(&a100, 1000),
            Subject { symbol: "axpx", ..subject(&h200, 1000) },
            Subject { image: 8, ..subject(&h200, 1000) },
            Subject { is_loop: true, ..subject(&h200, 1000) },
        ];
        assert!(others.iter().all(|other| later.get(other).is_none()));
        later.put(&subject(&h200, 1000), Winner { block: 64, ..WINNER }, Some(3.0));
        let last = LaunchStore::open(&directory);
        assert_eq!(last.get(&subject(&h200, 1000)).unwrap().0.block, 64, "the later line holds");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn damaged_lines_are_skipped_and_what_follows_is_kept() {
        let directory = fresh("damaged");
        let device = gpu((9, 0));
        let line = |winner| serde_json::to_string(&subject(&device, 1000).line(winner, 1.0)).unwrap();
        let good = line(WINNER);
        let bad = [
            "{".to_owned(),
            "\u{fffd}\0".to_owned(),
            good.replace("\"version\":1", "\"version\":2"),
            good.replace("waves:2", "waves:0"),
            good.replace("waves:2", "sometimes"),
            line(Winner { block: 0, ..WINNER }),
            "[1, 2]".to_owned(),
        ];
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(FILE);
        // The last line was cut off when a process was killed.
        fs::write(&file, format!("{}\n\n{good}\n{}", bad.join("\n"), &good[..20])).unwrap();
        let store = LaunchStore::open(&directory);
        assert_eq!((store.len(), store.skipped_lines(), store.problem()), (1, bad.len() + 1, None));
        store.put(&subject(&device, 5), WINNER, Some(1.0));
        let later = LaunchStore::open(&directory);
        assert_eq!((later.len(), later.skipped_lines()), (2, bad.len() + 1), "a new line was begun");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn without_a_file_it_goes_on_and_says_why() {
        let directory = fresh("blocked");
        fs::write(&directory, "no directory").unwrap();
        let store = LaunchStore::open(&directory);
        let device = gpu((9, 0));
        store.put(&subject(&device, 1000), WINNER, Some(3.5));
        assert!(store.get(&subject(&device, 1000)).is_some());
        let problem = store.problem().unwrap();
        assert!(problem.contains(FILE) && problem.contains("WARPSMITH_CACHE_DIR"), "{problem}");
        fs::remove_file(&directory).unwrap();
        assert_eq!((LaunchStore::in_memory().path(), LaunchStore::in_memory().problem()), (None, None));
    }

    #[test]
    #[cfg(all(unix, not(target_os = "macos")))]
    fn the_directory_is_the_one_that_is_set_or_the_users() {
        let of = |set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            directory(value)
        };
        let all = [("WARPSMITH_CACHE_DIR", "/w"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(of(&all), Some("/w".into()));
        assert_eq!(of(&all[1..]), Some("/x/warpsmith".into()));
        assert_eq!(of(&all[2..]), Some("/h/.cache/warpsmith".into()));
        assert_eq!(of(&[("WARPSMITH_CACHE_DIR", ""), ("HOME", "/h")]), Some("/h/.cache/warpsmith".into()));
        assert_eq!(of(&[]), None);
    }
}
