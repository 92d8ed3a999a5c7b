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
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub use line::{Entry, Subject};
use line::{Line, Unread};

use crate::document::Outcome;
use crate::value::Configuration;

/// The file's name in its directory.
pub const FILE: &str = "measurements.jsonl";
/// How often a lock that another process has is asked for, a millisecond apart.
const TRIES: usize = 100;
/// The most of a file that is read: its end.
const MOST_BYTES: u64 = 256 << 20;
/// The most damaged lines that are described.
const MOST_DESCRIBED: usize = 20;

/// A line that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLine {
    /// Its number, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// The measurements of earlier runs, and where those of this run go.
///
/// ```
/// use warpsmith_tuner::log::Log;
///
/// let directory = std::env::temp_dir().join(format!("warpsmith-log-{}", std::process::id()));
/// let log = Log::open(&directory);
/// assert_eq!((log.len(), log.damaged(), log.problem()), (0, 0, None));
/// ```
#[derive(Debug, Default)]
pub struct Log {
    path: Option<PathBuf>,
    known: HashMap<(Subject, Configuration), VecDeque<Entry>>,
    len: usize,
    damaged: usize,
    described: Vec<DamagedLine>,
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
        match File::open(&path) {
            Ok(file) => {
                if let Err(error) = end_of(file, MOST_BYTES).and_then(|end| log.read(end)) {
                    log.problem = Some(cannot("read", &path, &error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log.problem = Some(cannot("read", &path, &error)),
        }
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
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The first 20 of them.
    pub fn damaged_lines(&self) -> &[DamagedLine] {
        &self.described
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
        match append(path, &line.to_text()) {
            Ok(()) => None,
            Err(error) => {
                self.problem = Some(cannot("write", path, &error));
                self.problem.clone()
            }
        }
    }

    fn read(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if file.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            let text = bytes.trim_ascii();
            if text.is_empty() {
                continue;
            }
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
                Err(Unread::Damaged(reason)) => {
                    self.damaged += 1;
                    if self.described.len() < MOST_DESCRIBED {
                        self.described.push(DamagedLine { number, reason });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The last `most` bytes of a file, from the first line that begins there.
fn end_of(mut file: File, most: u64) -> io::Result<impl BufRead> {
    let len = file.metadata()?.len();
    let mut file = if len > most {
        // From the last byte before, so that a line that begins just there is not lost.
        file.seek(SeekFrom::Start(len - most - 1))?;
        BufReader::new(file.take(most + 1))
    } else {
        BufReader::new(file.take(most))
    };
    if len > most {
        file.read_until(b'\n', &mut Vec::new())?;
    }
    Ok(file)
}

/// Asks for a lock for a bounded time; whether it was given.
fn locked(mut ask: impl FnMut() -> Result<(), TryLockError>) -> bool {
    for _ in 0..TRIES {
        match ask() {
            Ok(()) => return true,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(_)) => return false,
        }
    }
    false
}

/// Appends a line with one call; after one that was cut off, on a line of its own.
fn append(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    // Where files cannot be locked, appending with one call has to do.
    let is_locked = locked(|| file.try_lock());
    let mut bytes = Vec::with_capacity(text.len() + 2);
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [b'\n'];
        file.read_exact(&mut last)?;
        if last != [b'\n'] {
            bytes.push(b'\n');
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(b'\n');
    let written = file.write_all(&bytes);
    if is_locked {
        // Closing the file unlocks it, too.
        let _ = file.unlock();
    }
    written
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {what} {}: {error}; measurements are not kept. Set WARPSMITH_CACHE_DIR to a directory that can be written",
        path.display()
    )
}
