//! `WARPSMITH_PROFILE=FILE` records an unchanged program, and `WARPSMITH_COUNTERS=FILE` reads the hardware counters of
//! its kernels. Recording starts when the program opens its first device and stops when the program ends.
//!
//! This works for every program that links the profiler, with one exception. A program with elevated privileges
//! (set-user-ID) ignores the variables, because its environment must not select the files that it writes. In the file
//! name, `%p` is replaced by the process ID, for programs that start other programs. `WARPSMITH_COUNTERS_LAUNCHES`
//! specifies the number of launches that are counted per kernel, or `all`. `WARPSMITH_COUNTERS_KERNELS` is a list of
//! substrings, separated by `;`; only kernels whose names contain one of them are counted. Forked processes are not
//! recorded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};

use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::driver::process::{at_exit, is_privileged};
use warpsmith_runtime::extension::DRIVER_HOOKS;

use crate::counters::{CounterOptions, Counters};
use crate::error::ProfilerError;
use crate::profiler::{FileProfiler, Profiler, driver_opens};

const PROFILE: &str = "WARPSMITH_PROFILE";
const COUNTERS: &str = "WARPSMITH_COUNTERS";
const LAUNCHES: &str = "WARPSMITH_COUNTERS_LAUNCHES";
const KERNELS: &str = "WARPSMITH_COUNTERS_KERNELS";

/// Recorder that the environment requested.
enum Started {
    Profiler(FileProfiler),
    Counters(Counters, PathBuf),
}

/// Active recorder of the process.
static STARTED: Mutex<Option<Started>> = Mutex::new(None);

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

/// Returns the file that a variable specifies.
fn file(variable: &str) -> Option<PathBuf> {
    let name = std::env::var_os(variable).filter(|name| !name.is_empty() && !is_privileged())?;
    let Some(text) = name.to_str() else { return Some(name.into()) };
    Some(text.replace("%p", &std::process::id().to_string()).into())
}

/// Returns the number of launches to be counted, if the variable is set.
fn launches() -> Result<Option<u64>, String> {
    let Some(value) = std::env::var_os(LAUNCHES).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy();
    if value == "all" {
        return Ok(Some(u64::MAX));
    }
    let number = value.parse().ok().filter(|number| *number > 0);
    number.map(Some).ok_or(format!(
        "{LAUNCHES}={value} is not a number of launches; give a number of at least 1, or `all`"
    ))
}

/// Returns the substrings that select the kernels to count: a kernel's name must contain one of them.
fn kernels() -> Vec<String> {
    let value = std::env::var_os(KERNELS).unwrap_or_default();
    value.to_string_lossy().split(';').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn start() {
    let started = match (file(PROFILE), file(COUNTERS)) {
        (None, None) => return,
        (Some(_), Some(_)) => {
            let reason = "hardware counters and a profile exclude each other; set only one of the two";
            return eprintln!("warpsmith: {PROFILE} and {COUNTERS}: {reason}");
        }
        (Some(path), None) => {
            Profiler::to_file(&path).map(Started::Profiler).map_err(|error| format!("{PROFILE}: {error}"))
        }
        (None, Some(path)) => launches()
            .and_then(|launches| {
                let options = CounterOptions::default();
                let options = launches.map_or(options.clone(), |launches| options.launches(launches));
                kernels()
                    .iter()
                    .fold(options, |options, name| options.kernel(name))
                    .start()
                    .map_err(|error| error.to_string())
            })
            .map(|counters| Started::Counters(counters, path))
            .map_err(|error| format!("{COUNTERS}: {error}")),
    };
    match started {
        Ok(started) => {
            if let Ok(mut kept) = STARTED.lock() {
                *kept = Some(started);
            }
        }
        Err(error) => eprintln!("warpsmith: {error}"),
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
    match STARTED.try_lock().ok().and_then(|mut kept| kept.take()) {
        None => {}
        Some(Started::Profiler(profiler)) => finish_profile(profiler),
        Some(Started::Counters(counters, path)) => finish_counters(counters, &path),
    }
}

fn finish_profile(profiler: FileProfiler) {
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

fn finish_counters(counters: Counters, path: &Path) {
    match counters.finish() {
        Ok(report) => {
            if let Err(error) = report.write(path) {
                eprintln!("warpsmith: {COUNTERS}: {error}");
            }
        }
        Err(error) if ProfilerError::is_forked(&error) => {}
        Err(error) => eprintln!("warpsmith: {COUNTERS}: {error}"),
    }
}
