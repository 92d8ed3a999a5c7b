//! The store's file: read once, then only appended to, a line with one call.
//!
//! Lines of several processes never mix: each is one write at the end of the file, under a lock where the file system has
//! one. A line that was cut off, because a process was killed or the disk was full, spoils none after it: whoever
//! writes next begins a line of its own.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::super::heuristic::GridChoice;
use super::super::resolve::Source;
use super::key::ByKey;
use super::line::{Entry, Unusable};
use super::{MOST, TunedConfiguration, Winner};

/// The most of a file that is read: its end.
const MOST_BYTES: u64 = 64 << 20;
/// The damaged lines that are described.
const MOST_DESCRIBED: usize = 16;
/// How often a lock that another process has is asked for, a millisecond apart.
const TRIES: usize = 100;

/// Lines of the file that are of this version and cannot be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedLines {
    /// How many there are.
    pub number: usize,
    /// The first sixteen of them.
    pub first: Vec<DamagedLine>,
}

/// A line that cannot be used. Its text is `line 7: expected value at line 1 column 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedLine {
    /// Its number, from 1. Of a file over 64 MiB, whose end alone is read, it is counted from where that begins.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for DamagedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub launches: ByKey<(Winner, Source)>,
    pub tuned: ByKey<Arc<TunedConfiguration>>,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub known: Known,
    /// Lines of another version, and those for which there was no room.
    pub passed_over: usize,
    pub damaged: DamagedLines,
}

impl Known {
    /// Takes in what a line says; false if there is no room. Of two for one thing, the later one holds.
    pub fn add(&mut self, entry: &Entry<'_>, source: Source) -> bool {
        match entry {
            Entry::Launch { subject, block, grid, .. } => {
                let winner = Entry::winner(*block, grid);
                winner.is_some_and(|winner| self.add_launch(subject.key(), winner, source))
            }
            Entry::Tuned { subject, configuration } => {
                let key = subject.key();
                if self.tuned.len() >= MOST && !self.tuned.contains_key(&key) {
                    return false;
                }
                self.tuned.insert(key, Arc::new(configuration.clone()));
                if let (Some(symbol), Some(winner)) = (&configuration.symbol, configuration.winner()) {
                    self.add_launch(subject.launches(symbol, true).key(), winner, Source::Tuned);
                    // One thread an element: as many blocks as there is work for, or some of it is left undone.
                    if winner.grid == GridChoice::All {
                        self.add_launch(subject.launches(symbol, false).key(), winner, Source::Tuned);
                    }
                }
                true
            }
        }
    }

    pub fn add_launch(&mut self, key: u64, winner: Winner, source: Source) -> bool {
        let has_room = self.launches.len() < MOST || self.launches.contains_key(&key);
        if has_room {
            self.launches.insert(key, (winner, source));
        }
        has_room
    }
}

impl Contents {
    /// Reads a file. What was read before something failed is there.
    pub fn read(path: &Path) -> (Self, io::Result<()>) {
        let mut contents = Self::default();
        let outcome = match File::open(path) {
            Ok(file) => contents.take(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        (contents, outcome)
    }

    fn take(&mut self, mut file: File) -> io::Result<()> {
        locked(|| file.try_lock_shared());
        let len = file.metadata()?.len();
        let mut skipped = Vec::new();
        if len > MOST_BYTES {
            file.seek(SeekFrom::Start(len - MOST_BYTES))?;
        }
        let mut file = BufReader::new(file.take(MOST_BYTES));
        if len > MOST_BYTES {
            // The rest of a line that began before.
            file.read_until(b'\n', &mut skipped)?;
        }
        self.lines(file)
    }

    fn lines(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            match Entry::from_line(text) {
                Ok(entry) if self.known.add(&entry, Source::Tuned) => {}
                Ok(_) | Err(Unusable::OtherVersion) => self.passed_over += 1,
                Err(Unusable::Damaged(what)) => self.damaged.add(number, what),
            }
        }
        Ok(())
    }
}

impl DamagedLines {
    fn add(&mut self, line: usize, what: String) {
        self.number += 1;
        if self.first.len() < MOST_DESCRIBED {
            self.first.push(DamagedLine { line, what });
        }
    }
}

/// Appends a line, which has its end, with one call.
pub(super) fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    locked(|| file.try_lock());
    let mut text = Vec::with_capacity(line.len() + 1);
    if is_cut_off(&mut file)? {
        text.push(b'\n');
    }
    text.extend_from_slice(line);
    loop {
        return match file.write(&text) {
            Ok(written) if written == text.len() => Ok(()),
            Ok(written) => {
                let part = format!("only {written} of {} bytes were written", text.len());
                Err(io::Error::new(io::ErrorKind::WriteZero, part))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// Whether the last line has no end.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(len - 1))?;
    let mut last = [0];
    // Nothing is read where the file was made shorter meanwhile: a line too many does no harm.
    let read = file.read(&mut last)?;
    Ok(read == 0 || last != [b'\n'])
}

/// Asks for a lock until it is had, or for a tenth of a second: a line is written at once without it, too, on all but
/// file systems of a network.
fn locked(ask: impl Fn() -> Result<(), TryLockError>) {
    for _ in 0..TRIES {
        match ask() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            // A file system that has no locks.
            Ok(()) | Err(TryLockError::Error(_)) => return,
        }
    }
}

/// What is said where the file cannot be used.
pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {what} {}: {error}; set WARPSMITH_CACHE_DIR to a directory that can be written",
        path.display()
    )
}

/// The directory of the process's store.
pub(super) fn user_directory() -> Option<PathBuf> {
    directory(|name| env::var_os(name))
}

fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("WARPSMITH_CACHE_DIR") {
        return Some(directory);
    }
    // A folder of whatever folder the program is started in is not the user's.
    let set = |name| set(name).filter(|path| path.is_absolute());
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
    use super::*;

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
        assert_eq!(of(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), Some("/h/.cache/warpsmith".into()));
        assert_eq!(of(&[("HOME", "h")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn few_of_many_damaged_lines_are_described() {
        let mut contents = Contents::default();
        contents.lines("{\n\n".repeat(1000).as_bytes()).unwrap();
        let DamagedLines { number, first } = contents.damaged;
        assert_eq!((number, first.len()), (1000, MOST_DESCRIBED));
        assert!(first[1].to_string().starts_with("line 3: EOF"), "{}", first[1]);
    }

    #[test]
    fn of_a_file_that_is_too_long_the_end_is_read() {
        let path = std::env::temp_dir().join(format!("warpsmith-long-{}.jsonl", std::process::id()));
        let mut file = File::create(&path).unwrap();
        // Two damaged lines, the first of which goes on to where reading begins, and a hole.
        file.write_all(b"{\n").unwrap();
        file.set_len(MOST_BYTES).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"\n{\n{\"version\":1}\n").unwrap();
        let (contents, outcome) = Contents::read(&path);
        assert!(outcome.is_ok());
        assert_eq!((contents.damaged.number, contents.passed_over), (1, 1));
        fs::remove_file(&path).unwrap();
    }
}
