//! Reading files of bounded size, and writing whole ones.
//!
//! Guarantees: what is written is either the whole new file or what was there before; no link is followed to write it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// How often another name is tried for a file or folder that must be new.
const TRIES: usize = 16;

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// [`Error::Read`] for a file that is not there, is larger, or is no UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let fail = |reason: String| Error::Read { path: path.to_path_buf(), reason };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    read.map_err(|error| fail(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(fail(format!("it has more than {}, which is the most", crate::size::format_bytes(most))));
    }
    Ok(text)
}

/// Writes a text to `path`, creating the folders above it: whole or not at all.
///
/// # Errors
/// [`Error::Write`] with the path and the system's reason.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_partial(path, text, |partial| fs::rename(partial, path))
}

/// Finds out whether [`write_text`] can write `path`, before there is anything to lose. Creates the folders above it.
///
/// # Errors
/// [`Error::Write`] with the path and the system's reason.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(Error::Write { path: path.to_path_buf(), source });
    }
    write_partial(path, "", |partial| fs::remove_file(partial))
}

/// Writes a new file beside `path` and hands it to `finish`; removes it when that fails.
fn write_partial(path: &Path, text: &str, finish: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let fail = |source| Error::Write { path: path.to_path_buf(), source };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    let name = |number: u64| {
        let mut partial = path.as_os_str().to_os_string();
        partial.push(format!(".{number:016x}.partial"));
        PathBuf::from(partial)
    };
    // A name that no one can foresee and that is not taken: whatever waits at such a place is left alone.
    let create = |partial: &PathBuf| OpenOptions::new().write(true).create_new(true).open(partial);
    let (partial, mut file) = new(name, create).map_err(fail)?;
    let written = file.write_all(text.as_bytes());
    drop(file);
    written.and_then(|()| finish(&partial)).map_err(|source| {
        // The message is about the first failure; a leftover partial file is only untidy.
        let _ = fs::remove_file(&partial);
        fail(source)
    })
}

/// Makes something at a place that is not taken.
fn new<T>(
    name: impl Fn(u64) -> PathBuf,
    make: impl Fn(&PathBuf) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let mut tries = 0;
    loop {
        let path = name(fastrand::u64(..));
        tries += 1;
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

/// Where results go when nobody says: `target/warpsmith/` in a cargo project (a `Cargo.toml` in the current folder), else
/// the folder of the launch store's file (`WARPSMITH_CACHE_DIR`, or `warpsmith` in the user's folder for caches), else
/// a new folder for this user alone in the folder for temporary files. The file is named for the command, the time in
/// seconds since 1970 and the process.
pub fn default_path(command: &str) -> PathBuf {
    let folder = if Path::new("Cargo.toml").is_file() {
        Path::new("target").join("warpsmith")
    } else {
        warpsmith_store::user_directory().unwrap_or_else(|| private_folder(&std::env::temp_dir()))
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    folder.join(format!("{command}-{seconds}-{}.json", std::process::id()))
}

/// A new folder that no other user can read or write; one that is to be made, where that fails: writing says why.
fn private_folder(parent: &Path) -> PathBuf {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let name = |number: u64| parent.join(format!("warpsmith-{number:016x}"));
    new(name, |path| builder.create(path)).map_or_else(|_| name(fastrand::u64(..)), |(path, ())| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warpsmith-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn files_above_the_bound_are_refused() {
        let folder = folder("bound");
        let path = folder.join("file.json");
        fs::write(&path, "x".repeat(100)).unwrap();
        assert_eq!(read_text(&path, 100).unwrap().len(), 100);
        let message = read_text(&path, 99).unwrap_err().to_string();
        assert!(message.contains("file.json") && message.contains("99 B"), "{message}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_without_an_end_are_refused() {
        let message = read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert!(message.contains("1 MiB"), "{message}");
    }

    #[test]
    #[cfg(unix)]
    fn links_at_the_place_of_a_partial_file_are_not_followed() {
        let folder = folder("links");
        let (path, other) = (folder.join("a.json"), folder.join("other"));
        fs::write(&other, "not ours").unwrap();
        // Where an earlier version wrote, and what is to be replaced.
        let partial = folder.join(format!("a.json.{}.partial", std::process::id()));
        std::os::unix::fs::symlink(&other, &partial).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_text(&path, "ours").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "not ours");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_taken_name_is_left_alone() {
        let folder = folder("taken");
        let (taken, free) = (folder.join("taken"), folder.join("free"));
        fs::write(&taken, "not ours").unwrap();
        let next = std::cell::Cell::new(0);
        let name = |_| {
            next.set(next.get() + 1);
            if next.get() < 3 { taken.clone() } else { free.clone() }
        };
        let create = |path: &PathBuf| OpenOptions::new().write(true).create_new(true).open(path);
        assert_eq!(new(name, create).unwrap().0, free);
        assert!(new(|_| taken.clone(), create).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn the_folder_for_temporary_files_is_not_shared() {
        use std::os::unix::fs::PermissionsExt as _;

        let parent = folder("private");
        let [first, second] = [0, 1].map(|_| private_folder(&parent));
        assert_ne!(first, second);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(parent).unwrap();
    }
}
