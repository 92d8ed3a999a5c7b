//! Line-based files to which several processes append.
//!
//! Appended lines never interleave: each is a single write at the end of the file, under a lock if the file system
//! supports locks. If a process is killed or the disk is full, a line may be truncated, but the next writer starts a
//! new line. Reading uses a bounded amount of memory, regardless of the file's contents.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Maximum length of an input line, in bytes.
pub const LONGEST: usize = 64 << 10;
/// Number of attempts, one millisecond apart, to acquire a lock that another process holds.
const TRIES: usize = 100;

/// Passes each line in the last `most` bytes of a file to `each`, trimmed; `None` stands for a line that is too long.
/// Empty lines are skipped; a missing file has no lines.
///
/// # Errors
/// Returns any I/O error. Lines before the error have already been passed to `each`.
pub fn read(path: &Path, most: u64, each: impl FnMut(Option<&[u8]>)) -> io::Result<()> {
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

fn lines(mut file: impl BufRead, mut each: impl FnMut(Option<&[u8]>)) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut file).take(LONGEST as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() > LONGEST {
            if !line.ends_with(b"\n") {
                file.skip_until(b'\n')?;
            }
            each(None);
            continue;
        }
        match line.trim_ascii() {
            [] => {}
            text => each(Some(text)),
        }
    }
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

    #[test]
    fn lines_are_trimmed_and_long_ones_are_skipped() {
        let longest = [b"x".repeat(LONGEST - 1), b"\n".to_vec()].concat();
        let long = [b"y".repeat(LONGEST), b"\n".to_vec()].concat();
        let longer = [b"z".repeat(3 * LONGEST), b"\n".to_vec()].concat();
        let text = [b" a \r\n\n", &longest[..], &long, &longer, b"b"].concat();
        let mut found = Vec::new();
        lines(&text[..], |line| found.push(line.map(<[u8]>::to_vec))).unwrap();
        let longest = longest.trim_ascii().to_vec();
        assert_eq!(found, [Some(b"a".to_vec()), Some(longest), None, None, Some(b"b".to_vec())]);
    }

    #[test]
    fn the_end_of_long_files_is_read() {
        let path = std::env::temp_dir().join(format!("warpsmith-lines-{}", std::process::id()));
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let read = |most| {
            let mut all = Vec::new();
            super::read(&path, most, |line| all.push(String::from_utf8_lossy(line.unwrap()).into_owned()))
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
