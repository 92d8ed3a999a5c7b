//! Reads files of bounded size, and writes files atomically.
//!
//! After a write, the path contains either the whole new file or the previous file. Writing does not follow symbolic
//! links.

#[cfg(any(test, feature = "command"))]
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
#[cfg(any(test, feature = "command"))]
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// Reads the text of a file whose size is at most `most` bytes.
///
/// # Errors
/// Returns [`Error::Read`] if the file does not exist, is too large, or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    let fail = |reason: String| Error::Read { path: path.to_path_buf(), reason };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    read.map_err(|error| fail(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(fail(format!("it is larger than the maximum of {}", crate::size::format_bytes(most))));
    }
    Ok(text)
}

/// Writes `text` to `path` atomically, creating missing parent folders.
///
/// # Errors
/// Returns [`Error::Write`], which contains the path and the system's error.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_partial(path, text, |partial| fs::rename(partial, path))
}

/// Checks in advance whether [`write_text`] can write to `path`. Creates missing parent folders.
///
/// # Errors
/// Returns [`Error::Write`], which contains the path and the system's error.
#[cfg(any(test, feature = "command"))]
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(Error::Write { path: path.to_path_buf(), source });
    }
    write_partial(path, "", |partial| fs::remove_file(partial))
}

/// Writes a new file next to `path` and passes it to `finish`. If this fails, the new file is removed.
fn write_partial(path: &Path, text: &str, finish: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let fail = |source| Error::Write { path: path.to_path_buf(), source };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    // The file is new and has an unpredictable name, so no existing file or link is touched.
    let mut partial = path.as_os_str().to_os_string();
    partial.push(format!(".{:016x}.partial", fastrand::u64(..)));
    let partial = PathBuf::from(partial);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(fail)?;
    let written = file.write_all(text.as_bytes());
    drop(file);
    written.and_then(|()| finish(&partial)).map_err(|source| {
        // The returned error describes the first failure. A leftover partial file does no harm.
        let _ = fs::remove_file(&partial);
        fail(source)
    })
}

/// Returns the default path of the results file. In a cargo project (if the current folder contains a `Cargo.toml`),
/// the file is in the folder `warpsmith/` of cargo's target folder. Otherwise, it is in the folder of the launch
/// store's file: `WARPSMITH_CACHE_DIR`, or `warpsmith` in the user's cache folder. If there is no such folder, returns
/// `None`. The file name consists of the command, the time in seconds since 1970, and the process ID.
#[cfg(any(test, feature = "command"))]
pub fn default_path(command: &str) -> Option<PathBuf> {
    let folder = match Path::new("Cargo.toml").is_file() {
        true => target_folder().join("warpsmith"),
        false => warpsmith_runtime::store::user_directory()?,
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Some(folder.join(format!("{command}-{seconds}-{}.json", std::process::id())))
}

/// Returns cargo's target folder. The folder is determined from cargo's environment variables or, failing that, from
/// the path of the running program; the last resort is `target`.
#[cfg(any(test, feature = "command"))]
fn target_folder() -> PathBuf {
    let [program, here] = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    target_folder_by(|name| std::env::var_os(name), program.as_deref(), here.as_deref())
}

#[cfg(any(test, feature = "command"))]
fn target_folder_by(
    read: impl Fn(&str) -> Option<OsString>,
    program: Option<&Path>,
    here: Option<&Path>,
) -> PathBuf {
    let set = |name| read(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // Cargo marks its target folder with a `CACHEDIR.TAG` file, even if its configuration moves the folder.
    let of_program = || {
        set("CARGO_MANIFEST_DIR")?;
        let folder = program?.ancestors().filter(|folder| folder.join("CACHEDIR.TAG").is_file()).last()?;
        Some(here.and_then(|here| folder.strip_prefix(here).ok()).unwrap_or(folder).to_path_buf())
    };
    let named = set("CARGO_TARGET_DIR").or_else(|| set("CARGO_BUILD_TARGET_DIR"));
    named.or_else(of_program).unwrap_or_else(|| PathBuf::from("target"))
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
    fn results_go_into_cargos_target_folder() {
        let project = folder("project");
        let of = |set: &[(&str, &str)], program: &Path| {
            let read = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into());
            target_folder_by(read, Some(program), Some(&project))
        };
        for (target, is_marked, expected) in
            [("shared", true, Path::new("shared")), ("other", false, Path::new("target"))]
        {
            let program = project.join(target).join("release/deps/tune");
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            if is_marked {
                fs::write(project.join(target).join("CACHEDIR.TAG"), "").unwrap();
            }
            assert_eq!(of(&[("CARGO_MANIFEST_DIR", "/p")], &program), expected);
            // In this case, the program was not run by cargo.
            assert_eq!(of(&[], &program), Path::new("target"));
            let named =
                [("CARGO_MANIFEST_DIR", "/p"), ("CARGO_TARGET_DIR", "/t"), ("CARGO_BUILD_TARGET_DIR", "/b")];
            assert_eq!(of(&named, &program), Path::new("/t"));
            assert_eq!(of(&named[2..], &program), Path::new("/b"));
        }
        fs::remove_dir_all(project).unwrap();
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
    fn links_are_not_followed() {
        let folder = folder("links");
        let (path, other) = (folder.join("a.json"), folder.join("other"));
        fs::write(&other, "not ours").unwrap();
        // There are symbolic links at a predictable partial path and at the path to be replaced.
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
}
