//! The CUPTI library: search, loading, and function tables.
//!
//! Status codes and kinds are plain numbers, because newer libraries may return values that these bindings do not
//! define. The library is loaded when recording is first requested, and stays loaded.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{CUcontext, CUgraphExec, CUgraphNode, CUstream};
use libloading::Library;

use crate::activity::{ActivityError, ActivityResult};
use crate::library_paths::{self, LibraryPaths};

/// `CUptiResult`.
pub(super) type Status = u32;
/// `CUpti_SubscriberHandle`.
pub(super) type Subscriber = *mut c_void;
/// `CUpti_CallbackFunc`.
pub(super) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
/// `CUpti_BuffersCallbackRequestFunc`.
pub(super) type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(super) type BufferCompleted = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// Values of [`Status`].
pub(super) mod status {
    pub const SUCCESS: u32 = 0;
    pub const MAX_LIMIT_REACHED: u32 = 12;
    pub const NOT_INITIALIZED: u32 = 15;
    pub const INSUFFICIENT_PRIVILEGES: u32 = 35;
    pub const MULTIPLE_SUBSCRIBERS: u32 = 39;
    pub const VIRTUALIZED_INSUFFICIENT_PRIVILEGES: u32 = 40;
}

/// `CUpti_SubscriberParams`.
#[repr(C)]
pub(super) struct SubscriberParams {
    pub size: usize,
    pub name: *const c_char,
    pub old_name: *mut c_char,
    pub old_name_size: usize,
}

/// Minimum `CUPTI_API_VERSION` whose records can be read (CUDA 12.0).
const MIN_VERSION: u32 = 18;
/// Oldest CUDA major version whose CUPTI library is searched for.
const MIN_MAJOR: u32 = 12;

/// Defines [`Cupti`], and `of`, which looks up its functions. The library must stay loaded, and the signatures must match
/// CUPTI's functions with these names.
macro_rules! table {
    (
        required { $($name:ident = $symbol:literal($($argument:ty),*);)* }
        optional { $($other:ident = $other_symbol:literal($($other_argument:ty),*);)* }
    ) => {
        /// CUPTI's functions. The library documents their contracts.
        #[derive(Debug, Clone)]
        pub(super) struct Cupti {
            /// `CUPTI_API_VERSION` of the library.
            pub version: u32,
            $(pub $name: unsafe extern "C" fn($($argument),*) -> Status,)*
            $(pub $other: Option<unsafe extern "C" fn($($other_argument),*) -> Status>,)*
        }

        impl Cupti {
            /// Looks up the functions of a library. If a function is missing, returns its name as the error.
            fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: CUPTI's functions with these names have these signatures.
                unsafe {
                    Ok(Self {
                        version: 0,
                        $($name: *library.get($symbol.as_bytes()).map_err(|_| $symbol)?,)*
                        $($other: library.get($other_symbol.as_bytes()).ok().map(|function| *function),)*
                    })
                }
            }
        }
    };
}

table! {
    required {
        get_version = "cuptiGetVersion"(*mut u32);
        get_result_string = "cuptiGetResultString"(Status, *mut *const c_char);
        subscribe = "cuptiSubscribe"(*mut Subscriber, Callback, *mut c_void);
        unsubscribe = "cuptiUnsubscribe"(Subscriber);
        register_callbacks = "cuptiActivityRegisterCallbacks"(BufferRequested, BufferCompleted);
        set_attribute = "cuptiActivitySetAttribute"(u32, *mut usize, *mut c_void);
        set_thread_id_type = "cuptiSetThreadIdType"(u32);
        enable = "cuptiActivityEnable"(u32);
        disable = "cuptiActivityDisable"(u32);
        flush_all = "cuptiActivityFlushAll"(u32);
        get_next_record = "cuptiActivityGetNextRecord"(*mut u8, usize, *mut *mut u8);
        get_num_dropped = "cuptiActivityGetNumDroppedRecords"(CUcontext, u32, *mut usize);
        get_timestamp = "cuptiGetTimestamp"(*mut u64);
        get_callback_name = "cuptiGetCallbackName"(u32, u32, *mut *const c_char);
        get_context_id = "cuptiGetContextId"(CUcontext, *mut u32);
        get_stream_id = "cuptiGetStreamIdEx"(CUcontext, CUstream, u8, *mut u32);
        push_external_id = "cuptiActivityPushExternalCorrelationId"(u32, u64);
        pop_external_id = "cuptiActivityPopExternalCorrelationId"(u32, *mut u64);
    }
    optional {
        enable_driver_api = "cuptiActivityEnableDriverApi"(u32, u8);
        get_graph_node_id = "cuptiGetGraphNodeId"(CUgraphNode, *mut u64);
        get_graph_exec_id = "cuptiGetGraphExecId"(CUgraphExec, *mut u32);
        subscribe_v2 = "cuptiSubscribe_v2"(*mut Subscriber, Callback, *mut c_void, *mut SubscriberParams);
        get_error_message = "cuptiGetErrorMessage"(Status, *mut *const c_char);
    }
}

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER_DOMAIN: u32 = 1;

impl Cupti {
    /// Returns the library's public version, for example `CUPTI 13.0`, or its API version number before version 13.
    pub(super) fn name(&self) -> String {
        match self.version {
            version @ 0..100_000 => format!("CUPTI 12 (API version {version})"),
            version => format!("CUPTI {}.{}", version / 10_000, version % 10_000 / 100),
        }
    }

    /// Converts a status to an error that names the call and the remedy.
    pub(super) fn check(&self, call: &'static str, status: Status, cuda: i32) -> ActivityResult<()> {
        let text = || self.text(status);
        Err(match status {
            status::SUCCESS => return Ok(()),
            status::MULTIPLE_SUBSCRIBERS => ActivityError::CuptiInUse { by: self.other_subscriber() },
            status::NOT_INITIALIZED => ActivityError::CuptiTooNew {
                version: self.name(),
                driver: cuda_version(cuda),
                package: package(cuda),
            },
            status::INSUFFICIENT_PRIVILEGES | status::VIRTUALIZED_INSUFFICIENT_PRIVILEGES => {
                ActivityError::NotPermitted { call, text: text() }
            }
            code => ActivityError::Cupti { call, code, text: text() },
        })
    }

    /// Returns CUPTI's explanation of a status.
    pub(super) fn text(&self, status: Status) -> String {
        let get = |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the pointer is to a local variable.
            let result = unsafe { function(status, &mut text) };
            // SAFETY: CUPTI's text is a static C string.
            (result == status::SUCCESS).then(|| unsafe { c_text(text) }).flatten()
        };
        let text = self.get_error_message.and_then(get).or_else(|| get(self.get_result_string));
        text.unwrap_or("unknown error").to_owned()
    }

    /// Returns the name of the other tool that uses CUPTI, as reported by the library or, failing that, by the
    /// environment.
    pub(super) fn other_subscriber(&self) -> String {
        let mut name = [0; 128];
        if let Some(subscribe) = self.subscribe_v2 {
            let mut params = SubscriberParams {
                size: size_of::<SubscriberParams>(),
                name: c"warpsmith".as_ptr(),
                old_name: name.as_mut_ptr(),
                old_name_size: name.len() - 1,
            };
            let mut subscriber = std::ptr::null_mut();
            // SAFETY: the structure's size field is correct, and its pointers are to local variables and a C string.
            let result = unsafe { subscribe(&mut subscriber, ignore, std::ptr::null_mut(), &mut params) };
            if result == status::SUCCESS {
                // The other tool has detached. SAFETY: the subscriber was just created.
                unsafe { (self.unsubscribe)(subscriber) };
            }
        }
        // SAFETY: the last byte is zero, regardless of what the library wrote before it.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().trim().to_owned();
        let known = if name.is_empty() { None } else { Some(format!("`{name}`")) };
        let by = [known, attached_tool(|name| std::env::var(name).ok())].into_iter().flatten();
        let by = by.collect::<Vec<_>>().join(", ");
        if by.is_empty() { "another profiler".to_owned() } else { by }
    }

    /// Returns the name of the driver function with this ID, if known.
    pub(super) fn driver_function(&self, number: u32) -> Option<&'static str> {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local variable.
        let result = unsafe { (self.get_callback_name)(DRIVER_DOMAIN, number, &mut name) };
        // SAFETY: CUPTI's name is a C string of the library, which is never unloaded.
        if result == status::SUCCESS { unsafe { c_text(name) } } else { None }
    }
}

/// Callback that is never enabled.
pub(super) unsafe extern "C" fn ignore(_data: *mut c_void, _domain: u32, _id: u32, _info: *const c_void) {}

/// # Safety
/// The pointer must be null or point to a C string that lives as long as the process.
pub(super) unsafe fn c_text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().ok().filter(|text| !text.is_empty())
}

/// Returns the tool that NVIDIA's environment variables attach to this process.
fn attached_tool(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("NSYS_PROFILING_SESSION_ID").is_some() {
        return Some("Nsight Systems (NSYS_PROFILING_SESSION_ID is set)".to_owned());
    }
    let injected = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];
    let injected = injected.into_iter().find_map(|name| set(name).map(|path| (name, path)));
    injected.map(|(name, path)| format!("the tool injected by {name}={path}"))
}

/// Formats a CUDA version, for example 13000 as `13.0`.
pub(super) fn cuda_version(cuda: i32) -> String {
    format!("{}.{}", cuda / 1000, cuda % 1000 / 10)
}

/// Returns the PyPI package that contains the CUPTI for a driver with this CUDA version.
pub(super) fn package(cuda: i32) -> String {
    match cuda / 1000 {
        ..=12 => format!("nvidia-cuda-cupti-cu12=={}.*", cuda_version(cuda.max(12_010))),
        _ => format!("nvidia-cuda-cupti=={}.*", cuda_version(cuda)),
    }
}

/// Returns the process's CUPTI, loading it on first use. After a failure, the next call tries again.
///
/// # Errors
/// Returns [`ActivityError::NoCupti`], [`ActivityError::CuptiTooOld`], or [`ActivityError::CuptiTooNew`].
pub(super) fn cupti(cuda: i32) -> ActivityResult<&'static Cupti> {
    static LOADED: Mutex<Option<&'static Cupti>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cupti) = *loaded {
        return Ok(cupti);
    }
    let paths = LibraryPaths::of_process();
    let cupti = load(candidates(&paths, cuda), &paths, cuda)?;
    Ok(*loaded.insert(Box::leak(Box::new(cupti))))
}

/// Returns the possible names of the library, starting with the driver's own CUDA version. An older library works with
/// a newer driver, but not always vice versa. On Windows, the name contains the release month, so the library is found
/// only by searching directories.
fn names(cuda: i32) -> Vec<String> {
    if cfg!(windows) {
        return vec!["cupti64_*.dll".to_owned()];
    }
    let newest = (cuda / 1000).max(MIN_MAJOR as i32) as u32;
    let mut names: Vec<String> =
        (MIN_MAJOR..=newest).rev().map(|major| format!("libcupti.so.{major}")).collect();
    names.push("libcupti.so".to_owned());
    names
}

/// Returns the files in a directory that may be the library, in the order of [`names`], newest first.
fn files(folder: &Path, names: &[String]) -> Vec<PathBuf> {
    if cfg!(windows) {
        let mut files = library_paths::inside(folder);
        files.retain(|file| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("cupti64_") && name.ends_with(".dll"))
        });
        files.reverse();
        return files;
    }
    names.iter().map(|name| folder.join(name)).filter(|file| file.exists()).collect()
}

/// Returns the candidate paths of the library: in the user's directories, then by the system's search, then in the
/// directories of installed libraries.
fn candidates(paths: &LibraryPaths, cuda: i32) -> Vec<PathBuf> {
    let names = names(cuda);
    paths.candidates_in(&names, |folder| files(folder, &names))
}

/// Loads the first usable library. If none is usable, returns the error for the first one found.
fn load(candidates: Vec<PathBuf>, paths: &LibraryPaths, cuda: i32) -> ActivityResult<Cupti> {
    let (mut unusable, mut reason) = (None, String::new());
    for file in candidates {
        // SAFETY: this loads CUPTI, whose initializers may run at any time.
        let library = match unsafe { Library::new(&file) } {
            Ok(library) => library,
            Err(error) => {
                if file.is_absolute() {
                    reason = format!("{} cannot be loaded: {error}", file.display());
                }
                continue;
            }
        };
        match usable(&library, cuda) {
            Ok(cupti) => {
                // The library is never unloaded, because the table contains pointers to it.
                std::mem::forget(library);
                return Ok(cupti);
            }
            Err(error) => unusable = unusable.or(Some(error)),
        }
        // An unusable library is not unloaded either, because other code may use it.
        std::mem::forget(library);
    }
    Err(unusable.unwrap_or_else(|| ActivityError::NoCupti {
        searched: searched(paths, cuda),
        reason,
        package: package(cuda),
    }))
}

/// Returns the functions of a library if it provides all of them and is not newer than the driver.
fn usable(library: &Library, cuda: i32) -> ActivityResult<Cupti> {
    let lacks = |version: String, lacks: String| ActivityError::CuptiTooOld {
        version,
        lacks,
        package: package(cuda),
    };
    let mut cupti = Cupti::of(library)
        .map_err(|symbol| lacks("CUPTI of an unknown version".to_owned(), format!("`{symbol}`")))?;
    // SAFETY: the pointer is to the table's own field.
    let result = unsafe { (cupti.get_version)(&mut cupti.version) };
    cupti.check("cuptiGetVersion", result, cuda)?;
    fitting(cupti, cuda)
}

/// Rejects a library that is too old for its records to be read, or whose CUDA major version is newer than the
/// driver's.
fn fitting(cupti: Cupti, cuda: i32) -> ActivityResult<Cupti> {
    if cupti.version < MIN_VERSION {
        let lacks = format!("the records of CUDA {MIN_MAJOR}");
        return Err(ActivityError::CuptiTooOld { version: cupti.name(), lacks, package: package(cuda) });
    }
    if cupti.version >= 100_000 && cupti.version / 10_000 > (cuda / 1000).max(0) as u32 {
        let (version, driver) = (cupti.name(), cuda_version(cuda));
        return Err(ActivityError::CuptiTooNew { version, driver, package: package(cuda) });
    }
    Ok(cupti)
}

/// Lists the searched locations, for error messages.
fn searched(paths: &LibraryPaths, cuda: i32) -> String {
    format!("{} in the system's search path and in {}", names(cuda).join(", "), paths.searched())
}

#[cfg(test)]
mod tests {
    use super::super::activity::fake;
    use super::*;

    #[test]
    fn packages_fit_the_driver() {
        for (cuda, wanted) in [
            (13_000, "nvidia-cuda-cupti==13.0.*"),
            (13_020, "nvidia-cuda-cupti==13.2.*"),
            (12_080, "nvidia-cuda-cupti-cu12==12.8.*"),
            (12_000, "nvidia-cuda-cupti-cu12==12.1.*"),
        ] {
            assert_eq!(package(cuda), wanted, "{cuda}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_missing_library_names_folders_and_package() {
        let paths =
            LibraryPaths { named: vec!["/no/such/folder".into()], installed: vec!["/nor/this".into()] };
        let text = match load(vec!["libcupti-of-no-system.so".into()], &paths, 12_000) {
            Err(error @ ActivityError::NoCupti { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
        for part in
            ["libcupti.so.12", "/no/such/folder", "/nor/this", "cupti-cu12==12.1.*", "WARPSMITH_LIBRARY_PATH"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_is_no_library_is_named() {
        let folder = std::env::temp_dir().join(format!("warpsmith-cupti-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcupti.so.13"), b"no library").unwrap();
        let paths = LibraryPaths { named: vec![folder.clone()], installed: Vec::new() };
        let tried = candidates(&paths, 13_000);
        assert_eq!(tried[0], folder.join("libcupti.so.13"));
        let text = load(vec![tried[0].clone()], &paths, 13_000).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("libcupti.so.13 cannot be loaded"), "{text}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_too_old() {
        // SAFETY: this is the C library, which is already loaded.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        let text = usable(&library, 13_000).unwrap_err().to_string();
        assert!(text.contains("too old") && text.contains("`cuptiGetVersion`"), "{text}");
        assert!(text.contains("pip install 'nvidia-cuda-cupti==13.0.*'"), "{text}");
    }

    #[test]
    fn versions_that_do_not_fit_are_refused() {
        let of = |version, cuda| fitting(Cupti { version, ..fake::table() }, cuda);
        assert!(of(130_001, 13_000).is_ok() && of(28, 13_000).is_ok() && of(130_500, 13_000).is_ok());
        let text = of(130_000, 12_090).unwrap_err().to_string();
        assert!(text.contains("CUPTI 13.0 requires an NVIDIA driver for the same or a newer CUDA version, but the driver is for CUDA 12.9"), "{text}");
        let text = of(17, 12_000).unwrap_err().to_string();
        assert!(text.contains("API version 17") && text.contains("too old"), "{text}");
    }

    #[test]
    fn codes_become_errors_with_a_remedy() {
        let cupti = fake::table();
        let text = |code| cupti.check("cuptiSubscribe", code, 13_000).unwrap_err().to_string();
        assert!(
            text(15).contains("nvidia-cuda-cupti==13.0.*") && text(15).contains("CUDA 13.0"),
            "{}",
            text(15)
        );
        assert!(text(35).contains("NVreg_RestrictProfilingToAdminUsers=0"), "{}", text(35));
        assert!(text(40).contains("CAP_SYS_ADMIN"), "{}", text(40));
        assert!(
            text(999).contains("cuptiSubscribe failed with CUPTI error 999: fake text of 999"),
            "{}",
            text(999)
        );
    }

    #[test]
    fn attached_tools_are_named_by_the_environment() {
        let of = |set: &[(&str, &str)]| {
            attached_tool(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("CUDA_INJECTION64_PATH", "")]), None);
        assert!(of(&[("NSYS_PROFILING_SESSION_ID", "7")]).unwrap().contains("Nsight Systems"));
        let injected = of(&[("CUDA_INJECTION64_PATH", "/opt/tool.so")]).unwrap();
        assert!(injected.contains("CUDA_INJECTION64_PATH=/opt/tool.so"), "{injected}");
    }
}
