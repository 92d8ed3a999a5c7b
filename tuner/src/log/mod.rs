//! [`Log`]: every measurement that a tuning run makes, kept between runs.
//!
//! Guarantees: a measurement is a line of JSON, appended with one call under a lock of the file, so lines of two processes
//! never mix, and killing a process loses at most the measurement in progress. A line that cannot be read is skipped and
//! described; one that was cut off does not spoil the next. A measurement is found again only for the same of everything
//! in its [`Subject`]. Where the file cannot be read or written the run goes on without it, and [`Log::problem`] says why.
//!
//! The file is `measurements.jsonl`, beside the launch store's `launches.jsonl`.

mod line;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

pub use line::{Entry, Subject, check_line};
use line::{Line, Unread};
use warpsmith_store::lines::{self, DamagedLines};

use crate::document::Outcome;
use crate::value::Configuration;

/// The file's name in its directory.
pub const FILE: &str = "measurements.jsonl";
/// The most of a file that is read: its end.
const MOST_BYTES: u64 = 128 << 20;

/// The measurements of earlier runs, and where those of this run go.
///
/// ```
/// use warpsmith_tuner::log::Log;
///
/// let directory = std::env::temp_dir().join(format!("warpsmith-log-{}", std::process::id()));
/// let log = Log::open(&directory);
/// assert_eq!((log.len(), log.damaged().number, log.problem()), (0, 0, None));
/// ```
#[derive(Debug, Default)]
pub struct Log {
    path: Option<PathBuf>,
    known: HashMap<(Subject, Configuration), VecDeque<Entry>>,
    len: usize,
    damaged: DamagedLines,
    other_versions: usize,
    problem: Option<String>,
    /// What this run has measured so far, if it uses nothing earlier.
    anew: Option<HashSet<(Subject, Configuration)>>,
}

impl Log {
    /// The log in a directory, which is made when something is written.
    pub fn open(directory: impl AsRef<Path>) -> Self {
        let path = directory.as_ref().join(FILE);
        let mut log = Self::default();
        let mut damaged = DamagedLines::default();
        let outcome = lines::read(&path, MOST_BYTES, |number, line| {
            if let Err(reason) = line.and_then(|line| log.read(line)) {
                damaged.add(number, reason);
            }
        });
        log.damaged = damaged;
        log.problem = outcome.err().map(|error| cannot("read", &path, &error));
        log.path = Some(path);
        log
    }

    /// The log in a directory, of which nothing earlier is used; what is measured is appended all the same, and later runs
    /// use it instead of what there was of the same configurations.
    pub fn fresh(directory: impl AsRef<Path>) -> Self {
        let anew = Some(HashSet::new());
        Self { path: Some(directory.as_ref().join(FILE)), anew, ..Self::default() }
    }

    /// A log without a file.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// The file; `None` for a log in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The measurements that were read.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none were read.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lines of this version that could not be used.
    pub fn damaged(&self) -> &DamagedLines {
        &self.damaged
    }

    /// Lines of other versions, which were skipped.
    pub fn other_versions(&self) -> usize {
        self.other_versions
    }

    /// Why the file is not read or written, if it is not.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Takes the next measurement of an earlier run, in the order in which they were made. Each is given once; those of a
    /// slowed device are not.
    pub fn take(&mut self, subject: &Subject, configuration: &Configuration) -> Option<Entry> {
        // The key holds both, so that the usual look-up of a new configuration costs two clones at most.
        let known = self.known.get_mut(&(subject.clone(), configuration.clone()))?;
        while known.front()?.throttled {
            known.pop_front();
        }
        known.pop_front()
    }

    /// Whether [`Self::take`] would give one.
    pub fn has(&self, subject: &Subject, configuration: &Configuration) -> bool {
        let known = self.known.get(&(subject.clone(), configuration.clone()));
        known.is_some_and(|entries| entries.iter().any(|entry| !entry.throttled))
    }

    /// The last measurement of an earlier run, if it says that the configuration is wrong, fails or crashes: whatever others
    /// said before. Only of what was not taken yet.
    pub fn refuted(&self, subject: &Subject, configuration: &Configuration) -> Option<&Entry> {
        let known = self.known.get(&(subject.clone(), configuration.clone()))?;
        known.back().filter(|entry| entry.outcome != Outcome::Correct)
    }

    /// Appends a measurement of this run. Returns what is wrong with the file when that is found out now; later calls say
    /// nothing again.
    pub fn keep(
        &mut self,
        subject: &Subject,
        configuration: &Configuration,
        entry: &Entry,
    ) -> Option<String> {
        let path = self.path.as_ref().filter(|_| self.problem.is_none())?;
        let is_first = |anew: &mut HashSet<_>| anew.insert((subject.clone(), configuration.clone()));
        let line = Line::of(subject, configuration, entry, self.anew.as_mut().is_some_and(is_first));
        match lines::append(path, line.to_text().as_bytes()) {
            Ok(()) => None,
            Err(error) => {
                self.problem = Some(cannot("write", path, &error));
                self.problem.clone()
            }
        }
    }

    fn read(&mut self, text: &[u8]) -> Result<(), String> {
        match Line::read(text) {
            Ok(line) => {
                let is_anew = line.is_anew();
                let (subject, configuration, entry) = line.parts();
                let known = self.known.entry((subject, configuration)).or_default();
                if is_anew {
                    known.clear();
                }
                known.push_back(entry);
                self.len += 1;
            }
            Err(Unread::OtherVersion) => self.other_versions += 1,
            Err(Unread::Damaged(reason)) => return Err(reason),
        }
        Ok(())
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {what} {}: {error}; measurements are not kept. Set WARPSMITH_CACHE_DIR to a directory that can be written",
        path.display()
    )
}
