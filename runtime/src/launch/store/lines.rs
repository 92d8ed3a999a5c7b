//! Line-based files to which several processes append.
//!
//! Appended lines never interleave: each is a single write at the end of the file, under a lock if the file system
//! supports locks. If a process is killed or the disk is full, a line may be truncated, but the next writer starts a
//! new line. Reading uses a bounded amount of memory, regardless of the file's contents.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Maximum length of an input line, in bytes.
pub const LONGEST: usize = 64 << 10;
/// Maximum number of damaged lines described.
const MAX_DESCRIBED: usize = 16;
/// Number of attempts, one millisecond apart, to acquire a lock that another process holds.
const TRIES: usize = 100;

/// Lines that cannot be used.
///
/// The example of [`open`](super::open) reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedLines {
    /// Number of damaged lines.
    pub number: usize,
    /// Descriptions of the first sixteen damaged lines.
    pub first: Vec<DamagedLine>,
}

/// A line that cannot be used. `Display` prints, for example, `line 7: expected value at line 1 column 1`.
///
/// See [`open`](super::open).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedLine {
    /// Line number, starting at 1. If only the end of a file is read, counting starts there.
    pub line: usize,
    /// Reason why the line is damaged.
    pub what: String,
}

impl fmt::Display for DamagedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl DamagedLines {
    /// Counts another damaged line, and describes it if it is among the first.
    pub fn add(&mut self, line: usize, what: String) {
        self.number += 1;
        if self.first.len() < MAX_DESCRIBED {
            self.first.push(DamagedLine { line, what });
        }
    }
}

/// Passes each line in the last `most` bytes of a file to `each`, trimmed and with its line number. A line that is too
/// long is passed as an error. Empty lines are skipped; a missing file has no lines.
///
/// # Errors
/// Returns any I/O error. Lines before the error have already been passed to `each`.
pub fn read(path: &Path, most: u64, each: impl FnMut(usize, Result<&[u8], String>)) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => {
            locked(|| file.try_lock_shared());
            lines(end_of(file, most)?, each)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns a reader of the last `most` bytes of a file, starting at the first line that begins within them.
fn end_of(mut file: File, most: u64) -> io::Result<impl BufRead> {
    let len = file.metadata()?.len();
    if len <= most {
        return Ok(BufReader::new(file.take(most)));
    }
    // Start one byte earlier, so that a line that starts exactly there is not lost.
    file.seek(SeekFrom::Start(len - most - 1))?;
    let mut file = BufReader::new(file.take(most + 1));
    file.skip_until(b'\n')?;
    Ok(file)
}

fn lines(mut file: impl BufRead, mut each: impl FnMut(usize, Result<&[u8], String>)) -> io::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if (&mut file).take(LONGEST as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() > LONGEST {
            if !line.ends_with(b"\n") {
                file.skip_until(b'\n')?;
            }
            each(number, Err(format!("it has more than {LONGEST} bytes")));
            continue;
        }
        match line.trim_ascii() {
            [] => {}
            text => each(number, Ok(text)),
        }
    }
    Ok(())
}

/// Appends a line with one write. The line must include its newline. Creates the parent directories of the file.
///
/// # Errors
/// Returns any I/O error, including an incomplete write of the line.
pub fn append(path: &Path, line: &[u8]) -> io::Result<()> {
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
                let part = format!("only {written} of {} bytes could be written", text.len());
                Err(io::Error::new(io::ErrorKind::WriteZero, part))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// Returns true if the last line does not end with a newline.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(len - 1))?;
    let mut last = [0];
    // If another process has truncated the file meanwhile, nothing is read, and an extra newline is harmless.
    let read = file.read(&mut last)?;
    Ok(read == 0 || last != [b'\n'])
}

/// Retries a lock until it is acquired, for up to a tenth of a second. Without the lock, a write is still atomic,
/// except on network file systems. Closing the file releases the lock.
fn locked(ask: impl Fn() -> Result<(), TryLockError>) {
    for _ in 0..TRIES {
        match ask() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            // An error may mean that the file system does not support locks.
            Ok(()) | Err(TryLockError::Error(_)) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Vec<(usize, Result<Vec<u8>, String>)> {
        let mut all = Vec::new();
        lines(bytes, |number, line| all.push((number, line.map(<[u8]>::to_vec)))).unwrap();
        all
    }

    #[test]
    fn lines_have_numbers_and_long_ones_are_skipped() {
        let longest = [b"x".repeat(LONGEST - 1), b"\n".to_vec()].concat();
        let long = [b"y".repeat(LONGEST), b"\n".to_vec()].concat();
        let longer = [b"z".repeat(3 * LONGEST), b"\n".to_vec()].concat();
        let found = of(&[b" a \r\n\n", &longest[..], &long, &longer, b"b"].concat());
        let good: Vec<usize> =
            found.iter().filter(|(_, line)| line.is_ok()).map(|(number, _)| *number).collect();
        assert_eq!((good, found.len()), (vec![1, 3, 6], 5));
        assert_eq!((found[0].1.as_deref(), found[4].1.as_deref()), (Ok(&b"a"[..]), Ok(&b"b"[..])));
        assert!(found[2].1.as_ref().unwrap_err().contains("more than 65536 bytes"));
    }

    #[test]
    fn few_of_many_damaged_lines_are_described() {
        let mut damaged = DamagedLines::default();
        (1..=1000).for_each(|line| damaged.add(line, "EOF".to_owned()));
        assert_eq!((damaged.number, damaged.first.len()), (1000, MAX_DESCRIBED));
        assert_eq!(damaged.first[1].to_string(), "line 2: EOF");
    }

    #[test]
    fn the_end_of_long_files_is_read() {
        let path = std::env::temp_dir().join(format!("warpsmith-lines-{}", std::process::id()));
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let read = |most| {
            let mut all = Vec::new();
            super::read(&path, most, |_, line| all.push(String::from_utf8_lossy(line.unwrap()).into_owned()))
                .unwrap();
            all
        };
        assert_eq!(read(14), ["one", "two", "three"]);
        assert_eq!(read(10), ["two", "three"], "a line that begins just there is read");
        assert_eq!(read(9), ["three"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(9), Vec::<String>::new(), "a file that is not there has no lines");
    }
}
