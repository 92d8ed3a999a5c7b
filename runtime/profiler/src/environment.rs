//! `WARPSMITH_PROFILE=FILE`: a program that was not changed is recorded from the moment at which it opens its first device to its
//! end.
//!
//! This happens in every program of which the profiler is a part. `%p` in the name stands for the number of the process, for
//! programs that start others. A forked process is not recorded.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};

use warpsmith_core::driver::Driver;
use warpsmith_core::seam::DRIVER_HOOKS;

use crate::profiler::{FileProfiler, Profiler, driver_opens};

const VARIABLE: &str = "WARPSMITH_PROFILE";

/// The profiler of the process.
static PROFILER: Mutex<Option<FileProfiler>> = Mutex::new(None);

#[linkme::distributed_slice(DRIVER_HOOKS)]
static HOOK: fn(&Arc<dyn Driver>) = hook;

fn hook(driver: &Arc<dyn Driver>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(start);
    driver_opens(driver);
}

/// The file that the environment names.
fn file() -> Option<PathBuf> {
    let name = std::env::var_os(VARIABLE).filter(|name| !name.is_empty())?;
    let Some(text) = name.to_str() else { return Some(name.into()) };
    Some(text.replace("%p", &std::process::id().to_string()).into())
}

fn start() {
    let Some(path) = file() else { return };
    match Profiler::to_file(&path) {
        Ok(profiler) => {
            if let Ok(mut kept) = PROFILER.lock() {
                *kept = Some(profiler);
            }
            if !finish_at_exit() {
                eprintln!(
                    "warpsmith: {VARIABLE}: the end of the program will be missing in {}",
                    path.display()
                );
            }
        }
        Err(error) => eprintln!("warpsmith: {VARIABLE}: {error}"),
    }
}

#[cfg(unix)]
fn finish_at_exit() -> bool {
    extern "C" fn at_exit() {
        // A panic must not leave this function.
        let _ = std::panic::catch_unwind(finish);
    }
    // SAFETY: the function takes nothing, and is there as long as the program.
    unsafe { libc::atexit(at_exit) == 0 }
}

#[cfg(not(unix))]
fn finish_at_exit() -> bool {
    false
}

fn finish() {
    // In a forked process the lock may be held for good.
    let Some(profiler) = PROFILER.try_lock().ok().and_then(|mut kept| kept.take()) else { return };
    match profiler.finish() {
        Ok(written) if written.loss.lost() > 0 => {
            let (lost, path) = (written.loss.lost(), written.path.display());
            eprintln!("warpsmith: {VARIABLE}: {lost} operations have no record in {path}");
        }
        Ok(_) | Err(crate::ProfilerError::Forked) => {}
        Err(error) => eprintln!("warpsmith: {VARIABLE}: {error}"),
    }
}
