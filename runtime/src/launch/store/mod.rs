//! The user's file of tuned launches.
//!
//! A program opens the file at its first launch on a CUDA device. The [`LaunchStore`] stores tuned configurations in
//! it. The file is `launches.jsonl` in the directory `WARPSMITH_CACHE_DIR` or, if the variable is not set, in
//! `warpsmith` in the user's cache directory (`XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).
//!
//! The append-only file contains JSON lines. It is read only when the store is opened; records that another process
//! appends later are not seen. Damaged lines and lines of other versions are skipped. If the file cannot be read or
//! written, the program continues without it, and [`LaunchStore::problem`] returns the reason.
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
use std::sync::OnceLock;

use crate::Device;
use crate::driver::process::is_privileged;

pub use self::problem::StoreProblem;
use self::record::from_line;
pub use self::subject::TuningKey;
pub use self::table::LaunchStore;
pub use self::tuned::TunedConfiguration;

const FILE: &str = "launches.jsonl";
/// Maximum number of bytes read from the end of the file.
const MAX_BYTES: u64 = 64 << 20;

/// Opens the store in a directory, which is created on the first write.
///
/// ```
/// let directory = std::env::temp_dir().join(format!("warpsmith-doc-{}", std::process::id()));
/// let store = warpsmith_runtime::store::open(&directory);
/// assert_eq!((store.len(), store.problem()), (0, None));
/// ```
pub fn open(directory: impl AsRef<Path>) -> LaunchStore {
    let path = directory.as_ref().join(FILE);
    let (mut skipped, mut records) = (0, Vec::new());
    let outcome = lines::read(&path, MAX_BYTES, |line| match line.and_then(from_line) {
        Some(record) => records.push(record),
        None => skipped += 1,
    });
    let problem = outcome.err().map(|error| cannot("read", &path, &error));
    let store = LaunchStore::new(Some(path), problem);
    skipped += records.iter().filter(|record| !store.add(record)).count();
    if skipped > 0 {
        let path = store.path();
        tracing::debug!(
            skipped,
            ?path,
            "the launch store skipped lines that are damaged, of another version, or beyond its capacity"
        );
    }
    store
}

/// Returns the user's store. Without a cache directory, returns an in-memory store that reports this as its problem.
pub fn shared() -> LaunchStore {
    static SHARED: OnceLock<LaunchStore> = OnceLock::new();
    let store = SHARED.get_or_init(|| match user_directory() {
        Some(directory) => open(directory),
        None => {
            let problem =
                "there is no cache directory; set WARPSMITH_CACHE_DIR to a writable directory".to_owned();
            LaunchStore::new(None, Some(problem))
        }
    });
    store.clone()
}

/// Returns the directory of the user's store; see the [module's documentation](self). Returns `None` for a set-user-ID
/// program, because the environment must not determine which files it writes.
pub fn user_directory() -> Option<PathBuf> {
    directory(|name| if is_privileged() { None } else { env::var_os(name) })
}

/// Returns the store of a device on which none is installed. CUDA devices use the user's store. An emulated device uses
/// an in-memory store, because its times are CPU times.
pub(super) fn default_of(device: &Device) -> LaunchStore {
    if device.is_emulated() { LaunchStore::in_memory() } else { shared() }
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
