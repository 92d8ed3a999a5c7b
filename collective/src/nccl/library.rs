//! The NCCL library: location, version check and error explanations.
//!
//! The library is located on first use and stays loaded. If loading fails, the next call tries again.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use libloading::Library;
use warpsmith_runtime::driver::library_paths::LibraryPaths;

use super::sys::{Comm, Nccl, Status, status};
use crate::error::CollectiveError;

/// File name of the NCCL library in NVIDIA's packages and wheels.
const FILE: &str = "libnccl.so.2";
/// Oldest version that can end a communicator without blocking while operations of the communicator hang.
const MIN: i32 = 21_800;

/// NCCL library that this process uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NcclLibrary {
    /// Major, minor and patch version.
    pub version: (u32, u32, u32),
    /// Path of the library file, if the system can determine it.
    pub path: Option<PathBuf>,
}

impl fmt::Display for NcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "{major}.{minor}.{patch}")?;
        match &self.path {
            Some(path) => write!(f, " at {}", path.display()),
            None => Ok(()),
        }
    }
}

/// Returns the NCCL library that communicators on GPUs use. The library is loaded by the first successful call in a
/// process.
///
/// ```
/// match warpsmith_collective::nccl_library() {
///     Ok(library) => println!("NCCL {library}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
/// Returns [`CollectiveError::NcclMissing`] or [`CollectiveError::NcclTooOld`].
pub fn nccl_library() -> warpsmith_runtime::Result<NcclLibrary> {
    Ok(nccl()?.library())
}

/// Returns the library's functions.
pub(crate) fn nccl() -> Result<&'static Nccl, CollectiveError> {
    static LOADED: Mutex<Option<&'static Nccl>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(nccl) = *loaded {
        return Ok(nccl);
    }
    let nccl = load(&LibraryPaths::of_process(), FILE)?;
    Ok(*loaded.insert(Box::leak(Box::new(nccl))))
}

/// Loads the first usable library. If no candidate is usable, the error describes the first one found.
fn load(paths: &LibraryPaths, name: &str) -> Result<Nccl, CollectiveError> {
    let (mut unusable, mut reason) = (None, String::new());
    for file in paths.candidates(&[name.to_owned()]) {
        // SAFETY: this loads NCCL, whose initializers can run safely at any time.
        let library = match unsafe { Library::new(&file) } {
            Ok(library) => library,
            Err(error) => {
                if reason.is_empty() || file.is_absolute() {
                    reason = error.to_string();
                }
                continue;
            }
        };
        match usable(&library) {
            Ok(nccl) => {
                // The library is never unloaded, because the function table points into it.
                std::mem::forget(library);
                return Ok(nccl);
            }
            Err(error) => unusable = unusable.or(Some(error)),
        }
        // A rejected library is not unloaded either, because other code in the process may be using it.
        std::mem::forget(library);
    }
    Err(unusable.unwrap_or_else(|| CollectiveError::NcclMissing { reason, searched: paths.searched() }))
}

/// Returns the functions of a library if it exports all of them and is new enough.
fn usable(library: &Library) -> Result<Nccl, CollectiveError> {
    let mut nccl = Nccl::of(library).map_err(|symbol| {
        let version = version_of(library).map_or("an NCCL of unknown version".to_owned(), |version| {
            format!("NCCL {}", version_text(version))
        });
        CollectiveError::NcclTooOld { found: version, lacks: format!("it has no `{symbol}`") }
    })?;
    // SAFETY: the pointer points to a field of the table.
    unsafe { (nccl.get_version)(&mut nccl.version) };
    nccl.new_enough()
}

/// Returns the version of a library that may lack other functions.
fn version_of(library: &Library) -> Option<i32> {
    let mut version = 0;
    // SAFETY: NCCL's function has this signature; the pointer points to a local variable.
    let status = unsafe {
        let function = library.get::<unsafe extern "C" fn(*mut i32) -> Status>(b"ncclGetVersion").ok()?;
        function(&mut version)
    };
    (status == status::SUCCESS).then_some(version)
}

/// Splits an `NCCL_VERSION_CODE` into major, minor and patch version.
pub(super) fn parts(version: i32) -> (u32, u32, u32) {
    let version = version.max(0) as u32;
    // Up to version 2.8, a version code has only one digit for the minor version.
    match version {
        ..10_000 => (version / 1000, version % 1000 / 100, version % 100),
        _ => (version / 10_000, version % 10_000 / 100, version % 100),
    }
}

/// Formats a version code, for example 22809 as `2.28.9`.
pub(crate) fn version_text(version: i32) -> String {
    let (major, minor, patch) = parts(version);
    format!("{major}.{minor}.{patch}")
}

impl Nccl {
    /// Returns the library, or an error if its version is too old.
    pub(super) fn new_enough(self) -> Result<Self, CollectiveError> {
        let comparable = if self.version < 10_000 { 0 } else { self.version };
        if comparable >= MIN {
            return Ok(self);
        }
        let lacks = "its communicators cannot be aborted safely while an operation hangs".to_owned();
        Err(CollectiveError::NcclTooOld { found: format!("NCCL {}", self.library()), lacks })
    }

    /// Returns the public description of the library.
    pub(super) fn library(&self) -> NcclLibrary {
        NcclLibrary { version: parts(self.version), path: file_of(self.get_version as usize) }
    }

    /// Describes a status other than success, with NCCL's own messages and an explanation.
    pub(super) fn explain(&self, call: &str, code: Status, comm: Comm) -> String {
        // SAFETY: NCCL returns its own C strings. The communicator is alive or null; the function allows both.
        let (text, last) =
            unsafe { (c_text((self.get_error_string)(code)), c_text((self.get_last_error)(comm))) };
        let meaning = match code {
            status::CUDA => "a CUDA call inside NCCL failed",
            status::SYSTEM => {
                "an operating system call failed: sockets, files, or shared memory (is /dev/shm too small?)"
            }
            status::INTERNAL => {
                "NCCL found its internal state corrupted: memory was overwritten, or NCCL has a bug"
            }
            status::INVALID_ARGUMENT => "NCCL rejected an argument",
            status::INVALID_USAGE => {
                "NCCL rejected the call: its settings differ between ranks or are incompatible"
            }
            status::REMOTE => "another rank or the connection to it failed",
            status::IN_PROGRESS => "NCCL does not wait for the call to end: unset NCCL_COMM_BLOCKING",
            status::TIMEOUT => "NCCL's own timeout expired",
            _ => "the error code is unknown to this version of Warpsmith",
        };
        let mut explained = format!("{call} failed with {code} ({text}): {meaning}");
        if !last.is_empty() {
            explained.push_str(&format!("; NCCL's last error: {last}"));
        }
        explained.push_str("; NCCL_DEBUG=INFO in the environment shows more");
        explained
    }
}

/// # Safety
/// The pointer must be null or point to a C string.
unsafe fn c_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

/// Returns the file mapped at an address of this process. Linux only.
fn file_of(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let path = &rest[rest.find('/')?..];
        (bound(start)?..bound(end)?).contains(&address).then(|| path.into())
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    #[test]
    fn versions_are_read_in_both_forms() {
        assert_eq!(parts(22_809), (2, 28, 9));
        assert_eq!(parts(21_805), (2, 18, 5));
        assert_eq!(parts(2_708), (2, 7, 8));
    }

    #[test]
    fn an_old_library_is_refused() {
        for version in [2_708, 21_405] {
            let nccl = Nccl { version, ..fake::table() };
            let error = nccl.new_enough().expect_err("too old").to_string();
            for part in ["is too old", "version 2.18 or later is required", "nvidia-nccl-cu13", "libnccl2"] {
                assert!(error.contains(part), "{error}");
            }
        }
        assert!(Nccl { version: 21_800, ..fake::table() }.new_enough().is_ok());
    }

    #[test]
    fn a_missing_library_names_folders_and_packages() {
        let paths =
            LibraryPaths { named: vec!["/no/such/folder".into()], installed: vec!["/nor/this".into()] };
        let text = load(&paths, "libnccl-of-no-system.so").expect_err("there is none").to_string();
        for part in ["/no/such/folder", "/nor/this", "nvidia-nccl-cu13", "WARPSMITH_LIBRARY_PATH"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_named() {
        let paths = LibraryPaths::default();
        let error = load(&paths, "libc.so.6").expect_err("it is no NCCL");
        assert!(matches!(error, CollectiveError::NcclTooOld { .. }), "{error}");
        assert!(error.to_string().contains("`ncclGetVersion`"), "{error}");
    }

    #[test]
    fn the_library_is_used_or_named_as_missing() {
        match nccl_library() {
            Ok(library) => {
                assert!(library.version >= (2, 18, 0), "{library}");
                assert!(library.to_string().contains("libnccl"), "{library}");
            }
            Err(error) => assert!(error.to_string().contains("install"), "{error}"),
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_file_of_a_function_is_known() {
        let file = file_of(parts as *const () as usize).expect("this program is mapped");
        assert_eq!(file, std::env::current_exe().expect("its path"));
    }

    #[test]
    fn errors_have_the_code_and_the_meaning() {
        let text = fake::table().explain("ncclAllReduce", status::SYSTEM, std::ptr::null_mut());
        assert!(text.contains("ncclAllReduce failed with 2") && text.contains("/dev/shm"), "{text}");
        assert!(text.contains("NCCL's last error: the fake's last error"), "{text}");
        let text = fake::table().explain("ncclAllReduce", status::IN_PROGRESS, std::ptr::null_mut());
        assert!(text.contains("failed with 7") && text.contains("unset NCCL_COMM_BLOCKING"), "{text}");
    }
}
