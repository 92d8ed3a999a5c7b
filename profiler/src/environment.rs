//! `WARPSMITH_PROFILE=FILE` records an unchanged program. Recording starts when the program opens its first device and
//! stops when the program ends.
//!
//! This works for every program that links the profiler, with one exception. A program with elevated privileges
//! (set-user-ID) ignores the variable, because its environment must not select the file that it writes. In the file
//! name, `%p` is replaced by the process ID, for programs that start other programs. Forked processes are not recorded.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};

use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::driver::process::{at_exit, is_privileged};
use warpsmith_runtime::extension::DRIVER_HOOKS;

use crate::error::ProfilerError;
use crate::profiler::{FileProfiler, Profiler, driver_opens};

const PROFILE: &str = "WARPSMITH_PROFILE";

/// Active recorder of the process.
static STARTED: Mutex<Option<FileProfiler>> = Mutex::new(None);

#[linkme::distributed_slice(DRIVER_HOOKS)]
static HOOK: fn(&Arc<dyn Driver>) = hook;

fn hook(driver: &Arc<dyn Driver>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(start);
    driver_opens(driver);
    // `driver_opens` loads CUPTI. Exit handlers run in reverse order of their registration, and the destructors of
    // CUPTI must run after `finish`, which still calls its functions. A handler for each driver is harmless, because
    // only the first one finds a recorder.
    let is_started = STARTED.lock().is_ok_and(|kept| kept.is_some());
    if is_started && !finish_at_exit() {
        eprintln!(
            "warpsmith: no exit handler could be registered: the last records will be missing in the file"
        );
    }
}

/// Returns the file that the variable specifies.
fn file() -> Option<PathBuf> {
    let name = std::env::var_os(PROFILE).filter(|name| !name.is_empty() && !is_privileged())?;
    let Some(text) = name.to_str() else { return Some(name.into()) };
    Some(text.replace("%p", &std::process::id().to_string()).into())
}

fn start() {
    let Some(path) = file() else { return };
    match Profiler::to_file(&path) {
        Ok(started) => {
            if let Ok(mut kept) = STARTED.lock() {
                *kept = Some(started);
            }
        }
        Err(error) => eprintln!("warpsmith: {PROFILE}: {error}"),
    }
}

fn finish_at_exit() -> bool {
    extern "C" fn finish_quietly() {
        // A panic must not unwind out of this function.
        let _ = std::panic::catch_unwind(finish);
    }
    at_exit(finish_quietly)
}

fn finish() {
    // In a forked process, the lock may never be released.
    let Some(profiler) = STARTED.try_lock().ok().and_then(|mut kept| kept.take()) else { return };
    match profiler.finish() {
        Ok(written) if written.loss.lost() > 0 => {
            let (lost, path) = (written.loss.lost(), written.path.display());
            eprintln!("warpsmith: {PROFILE}: {lost} operations have no record in {path}");
        }
        Ok(_) => {}
        Err(error) if ProfilerError::is_forked(&error) => {}
        Err(error) => eprintln!("warpsmith: {PROFILE}: {error}"),
    }
}
