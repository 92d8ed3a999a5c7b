//! The user's file of tuned launches.
//!
//! A program opens the file when it first launches on a CUDA device, and its [`LaunchStore`] keeps there what is measured. The file is `launches.jsonl` in the directory `WARPSMITH_CACHE_DIR`, or
//! else in `warpsmith` in the user's directory for caches (`XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`,
//! `%LOCALAPPDATA%`).
//!
//! A file of JSON lines that only grows. It is read once, when the store is opened. A record that another process
//! appends meanwhile is seen by the next one that opens the file. A line that cannot be used is skipped, and
//! [`Opened::damaged`] says which and why; lines of another version are passed over. Where the file cannot be read or
//! written, the program continues with what it measures itself, and [`LaunchStore::problem`] says why.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `lines` | files of lines that several processes append to |
//! | `table`, `tuned`, `subject` | [`LaunchStore`]; what a tuner keeps in it, and for what |
//! | `record` | a record and its line |

mod lines;
mod problem;
mod record;
mod subject;
mod table;
mod tuned;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::Device;
use crate::driver::library_paths::is_privileged;
use crate::launch::policy::LaunchPolicy;

pub use self::lines::{DamagedLine, DamagedLines};
pub use self::problem::StoreProblem;
pub use self::record::check_line;
use self::record::{Unusable, from_line};
pub use self::subject::TuningKey;
pub use self::table::LaunchStore;
pub use self::tuned::TunedConfiguration;

const FILE: &str = "launches.jsonl";
/// The most of the file that is read: its end.
const MOST_BYTES: u64 = 64 << 20;

/// A store that was opened, and what its file is like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Opened {
    /// The store.
    pub store: LaunchStore,
    /// The lines of this version that could not be used when the file was read. One is usual after a process was killed
    /// while it wrote.
    pub damaged: DamagedLines,
    /// Lines of another version, and those for which there was no room.
    pub passed_over: usize,
}

/// The store in a directory, which is made when something is written.
///
/// ```
/// let directory = std::env::temp_dir().join(format!("warpsmith-doc-{}", std::process::id()));
/// let opened = warpsmith_runtime::store::open(&directory);
/// assert_eq!((opened.store.len(), opened.damaged.number, opened.store.problem()), (0, 0, None));
/// ```
pub fn open(directory: impl AsRef<Path>) -> Opened {
    let path = directory.as_ref().join(FILE);
    let (mut damaged, mut passed_over, mut records) = (DamagedLines::default(), 0, Vec::new());
    let outcome = lines::read(&path, MOST_BYTES, |number, line| match line.map(from_line) {
        Ok(Ok(record)) => records.push(record),
        Ok(Err(Unusable::OtherVersion)) => passed_over += 1,
        Ok(Err(Unusable::Damaged(what))) | Err(what) => damaged.add(number, what),
    });
    let problem = outcome.err().map(|error| cannot("read", &path, &error));
    let store = LaunchStore::new(Some(path), problem);
    passed_over += records.iter().filter(|record| !store.add(record)).count();
    Opened { store, damaged, passed_over }
}

/// The user's store; one in memory, with a problem, where there is no directory for it.
pub fn shared() -> &'static Opened {
    static SHARED: OnceLock<Opened> = OnceLock::new();
    SHARED.get_or_init(|| match user_directory() {
        Some(directory) => open(directory),
        None => {
            let problem = "there is no directory for caches; set WARPSMITH_CACHE_DIR to one".to_owned();
            let store = LaunchStore::new(None, Some(problem));
            Opened { store, damaged: DamagedLines::default(), passed_over: 0 }
        }
    })
}

/// The directory of the user's store: see the [module's documentation](self). `None` in a program with rights that the user who
/// started it does not have (set-user-id): the environment must not choose which files it writes.
pub fn user_directory() -> Option<PathBuf> {
    directory(|name| if is_privileged() { None } else { env::var_os(name) })
}

/// CUDA devices have the user's store. An emulated device has one in memory, because its times are those of the CPU.
pub(super) fn policy(device: &Device) -> Arc<dyn LaunchPolicy> {
    if device.is_emulated() { LaunchStore::in_memory().policy() } else { shared().store.policy() }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!("cannot {what} {path}: {error}; set WARPSMITH_CACHE_DIR to a directory that can be written")
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
    fn the_directory_is_the_set_or_users_one() {
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
    fn devices_have_a_store() {
        let device = Device::emulated(0).unwrap();
        assert!(!LaunchStore::of(&device).has_tuned());
        let store = LaunchStore::in_memory();
        store.install(&device);
        let subject = TuningKey {
            device: device.properties(),
            package: "test",
            kernel: "axpy",
            types: "f32",
            image: 0,
            n: 1,
            alignment: 16,
        };
        store.store_tuned(&subject, tuned::tests::tuned(&[])).unwrap();
        assert!(LaunchStore::of(&device).has_tuned());
    }
}
