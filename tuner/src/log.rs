//! [`Log`]: every measurement that a tuning run makes, kept between runs.
//!
//! Guarantees: a measurement is a line of JSON, appended with one call under a lock of the file, so lines of two processes
//! never mix, and killing a process loses at most the measurement in progress. A line that cannot be read is skipped and
//! described; one that was cut off does not damage the next. A measurement is found again only for the same key, which
//! holds everything that it depends on. Where the file cannot be read or written the run continues without it, and
//! [`Log::problem`] says why.
//!
//! The file is `measurements.jsonl`, beside the launch store's `launches.jsonl`. For a timing it has the median and its
//! interval ([`Timing::logged`](crate::measure::Timing::logged)).

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpsmith_store::lines::{self, DamagedLines};

use crate::document::{Measured, Outcome};
use crate::value::Configuration;

/// The file's name in its directory.
pub const FILE: &str = "measurements.jsonl";
/// The most of a file that is read: its end.
const MOST_BYTES: u64 = 128 << 20;
/// The version of a line's form. Lines of others are skipped.
const VERSION: u32 = 2;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    /// Whether earlier lines of this configuration are not used any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anew: bool,
    key: String,
    configuration: Configuration,
    #[serde(flatten)]
    measured: Measured,
}

impl Line {
    /// `None` for a line of another version.
    fn read(text: &[u8]) -> Result<Option<Self>, String> {
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(_) => return Ok(None),
            None => return Err("it has no version".to_owned()),
        }
        let line: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        match (&line.measured.timing, line.measured.outcome) {
            (Some(timing), _) if timing.impossible().is_some() || timing.samples_us.is_empty() => {
                Err("its median is no time".to_owned())
            }
            (None, Outcome::Correct) => Err("it is of a correct configuration without a time".to_owned()),
            _ => Ok(Some(line)),
        }
    }
}

/// Whether a line of the log can be used.
///
/// # Errors
/// Why it is damaged.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    match Line::read(line)? {
        Some(_) => Ok(()),
        None => Err(format!("it is not of version {VERSION}")),
    }
}

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
    known: HashMap<(String, Configuration), VecDeque<Measured>>,
    len: usize,
    damaged: DamagedLines,
    problem: Option<String>,
    /// The measurements of this run so far, if it uses nothing earlier.
    anew: Option<HashSet<(String, Configuration)>>,
}

impl Log {
    /// The log in a directory, which is made when something is written.
    pub fn open(directory: impl AsRef<Path>) -> Self {
        let path = directory.as_ref().join(FILE);
        let mut log = Self::default();
        let mut damaged = DamagedLines::default();
        let outcome = lines::read(&path, MOST_BYTES, |number, line| match line.and_then(Line::read) {
            Ok(Some(Line { anew, key, configuration, measured, .. })) => {
                let known = log.known.entry((key, configuration)).or_default();
                if anew {
                    known.clear();
                }
                known.push_back(measured);
                log.len += 1;
            }
            Ok(None) => {}
            Err(reason) => damaged.add(number, reason),
        });
        log.damaged = damaged;
        log.problem = outcome.err().map(|error| cannot("read", &path, &error));
        log.path = Some(path);
        log
    }

    /// The log in a directory, of which nothing earlier is used; new measurements are appended all the same, and later runs
    /// use them instead of earlier ones of the same configurations.
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

    /// Why the file is not read or written, if it is not.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Takes the next measurement of an earlier run, in the order in which they were made. Each is returned once; those of a
    /// slowed device are not.
    pub fn take(&mut self, key: &str, configuration: &Configuration) -> Option<Measured> {
        let known = self.known.get_mut(&(key.to_owned(), configuration.clone()))?;
        while known.front()?.timing.as_ref().is_some_and(|timing| timing.throttled) {
            known.pop_front();
        }
        known.pop_front()
    }

    /// The last measurement of an earlier run that was not taken yet, if by it the configuration is wrong, fails or crashes.
    pub fn refuted(&self, key: &str, configuration: &Configuration) -> Option<&Measured> {
        let known = self.known.get(&(key.to_owned(), configuration.clone()))?;
        known.back().filter(|measured| measured.outcome != Outcome::Correct)
    }

    /// Appends a measurement of this run. Returns a problem with the file when it is found; later calls do not repeat it.
    pub fn keep(&mut self, key: &str, configuration: &Configuration, measured: &Measured) -> Option<String> {
        let path = self.path.as_ref().filter(|_| self.problem.is_none())?;
        let is_first = |anew: &mut HashSet<_>| anew.insert((key.to_owned(), configuration.clone()));
        let line = Line {
            version: VERSION,
            anew: self.anew.as_mut().is_some_and(is_first),
            key: key.to_owned(),
            configuration: configuration.clone(),
            measured: measured.without_samples(),
        };
        let text = serde_json::to_string(&line).expect("plain data always becomes JSON") + "\n";
        let error = lines::append(path, text.as_bytes()).err()?;
        self.problem = Some(cannot("write", path, &error));
        self.problem.clone()
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {what} {}: {error}; measurements are not kept. Set WARPSMITH_CACHE_DIR to a directory that can be written",
        path.display()
    )
}
