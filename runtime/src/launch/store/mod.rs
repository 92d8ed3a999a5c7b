//! The user's file of tuned launches.
//!
//! A program opens the file at its first launch on a CUDA device. The [`LaunchStore`] stores tuned configurations in
//! it. The file is `launches.jsonl` in the directory `WARPSMITH_CACHE_DIR` or, if the variable is not set, in
//! `warpsmith` in the user's cache directory (`XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).
//!
//! The append-only file contains JSON lines. It is read only when the store is opened; records that another process
//! appends later are not seen. Invalid lines are skipped and reported by [`Opened::damaged`]; lines of other versions
//! are ignored. If the file cannot be read or written, the program continues without it, and [`LaunchStore::problem`]
//! returns the reason.
//!
//! | module | contents |
//! | --- | --- |
//! | `lines` | line-based files to which several processes append |
//! | `table`, `tuned`, `subject` | [`LaunchStore`]; the tuned configurations in it, and their keys |
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
use crate::driver::process::is_privileged;
use crate::launch::policy::LaunchPolicy;

pub use self::lines::{DamagedLine, DamagedLines};
pub use self::problem::StoreProblem;
pub use self::record::check_line;
use self::record::{Unusable, from_line};
pub use self::subject::TuningKey;
pub use self::table::LaunchStore;
pub use self::tuned::TunedConfiguration;

const FILE: &str = "launches.jsonl";
/// Maximum number of bytes read from the end of the file.
const MAX_BYTES: u64 = 64 << 20;

/// A store that was opened, and the state of its file.
///
/// See the example of [`open`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Opened {
    /// The store.
    pub store: LaunchStore,
    /// Invalid lines of this version. One invalid line is normal if a process was killed during a write.
    pub damaged: DamagedLines,
    /// Number of lines ignored because of another version or a full store.
    pub passed_over: usize,
}

/// Opens the store in a directory, which is created on the first write.
///
/// ```
/// let directory = std::env::temp_dir().join(format!("warpsmith-doc-{}", std::process::id()));
/// let opened = warpsmith_runtime::store::open(&directory);
/// assert_eq!((opened.store.len(), opened.damaged.number, opened.store.problem()), (0, 0, None));
/// ```
pub fn open(directory: impl AsRef<Path>) -> Opened {
    let path = directory.as_ref().join(FILE);
    let (mut damaged, mut passed_over, mut records) = (DamagedLines::default(), 0, Vec::new());
    let outcome = lines::read(&path, MAX_BYTES, |number, line| match line.map(from_line) {
        Ok(Ok(record)) => records.push(record),
        Ok(Err(Unusable::OtherVersion)) => passed_over += 1,
        Ok(Err(Unusable::Damaged(what))) | Err(what) => damaged.add(number, what),
    });
    let problem = outcome.err().map(|error| cannot("read", &path, &error));
    let store = LaunchStore::new(Some(path), problem);
    passed_over += records.iter().filter(|record| !store.add(record)).count();
    Opened { store, damaged, passed_over }
}

/// Returns the user's store. Without a cache directory, returns an in-memory store that reports this as its problem.
pub fn shared() -> &'static Opened {
    static SHARED: OnceLock<Opened> = OnceLock::new();
    SHARED.get_or_init(|| match user_directory() {
        Some(directory) => open(directory),
        None => {
            let problem =
                "there is no cache directory; set WARPSMITH_CACHE_DIR to a writable directory".to_owned();
            let store = LaunchStore::new(None, Some(problem));
            Opened { store, damaged: DamagedLines::default(), passed_over: 0 }
        }
    })
}

/// Returns the directory of the user's store; see the [module's documentation](self). Returns `None` for a set-user-ID
/// program, because the environment must not determine which files it writes.
pub fn user_directory() -> Option<PathBuf> {
    directory(|name| if is_privileged() { None } else { env::var_os(name) })
}

/// Returns the policy of a device. CUDA devices use the user's store. An emulated device uses an in-memory store,
/// because its times are CPU times.
pub(super) fn policy(device: &Device) -> Arc<dyn LaunchPolicy> {
    if device.is_emulated() { LaunchStore::in_memory().policy() } else { shared().store.policy() }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    format!("cannot {what} {path}: {error}; set WARPSMITH_CACHE_DIR to a writable directory")
}

fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("WARPSMITH_CACHE_DIR") {
        return Some(directory);
    }
    // Ignore relative paths, which depend on the working directory.
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
