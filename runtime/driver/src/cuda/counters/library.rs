//! Functions of CUPTI's range profiler, and CUPTI's metrics library.
//!
//! CUPTI opens `libnvperf_host.so` only by name, which fails if both libraries are in a directory that the system does
//! not search, such as a Python environment. This module therefore loads it from CUPTI's directory first; CUPTI then
//! finds it by name.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use super::params::*;
use crate::counters::{CounterError, CounterResult};
use crate::cuda::cupti::{self, Cupti, table};
use crate::library_paths::LibraryPaths;

table! {
    /// Functions of the range profiler, available since CUDA 12.8. The library documents each function's contract.
    RangeProfiler {}
    required {
        initialize = "cuptiProfilerInitialize"(*mut Initialize);
        device_supported = "cuptiProfilerDeviceSupported"(*mut DeviceSupported);
        chip_name = "cuptiDeviceGetChipName"(*mut ChipName);
        availability = "cuptiProfilerGetCounterAvailability"(*mut Availability);
        host_initialize = "cuptiProfilerHostInitialize"(*mut HostInitialize);
        host_deinitialize = "cuptiProfilerHostDeinitialize"(*mut HostDeinitialize);
        base_metrics = "cuptiProfilerHostGetBaseMetrics"(*mut BaseMetrics);
        metric_properties = "cuptiProfilerHostGetMetricProperties"(*mut MetricProperties);
        add_metrics = "cuptiProfilerHostConfigAddMetrics"(*mut AddMetrics);
        config_size = "cuptiProfilerHostGetConfigImageSize"(*mut ConfigSize);
        config_image = "cuptiProfilerHostGetConfigImage"(*mut ConfigImage);
        passes = "cuptiProfilerHostGetNumOfPasses"(*mut Passes);
        evaluate = "cuptiProfilerHostEvaluateToGpuValues"(*mut Evaluate);
        enable = "cuptiRangeProfilerEnable"(*mut Enable);
        data_size = "cuptiRangeProfilerGetCounterDataSize"(*mut DataSize);
        data_initialize = "cuptiRangeProfilerCounterDataImageInitialize"(*mut DataInitialize);
        set_config = "cuptiRangeProfilerSetConfig"(*mut SetConfig);
        start = "cuptiRangeProfilerStart"(*mut Start);
        push_range = "cuptiRangeProfilerPushRange"(*mut PushRange);
        pop_range = "cuptiRangeProfilerPopRange"(*mut PopRange);
        stop = "cuptiRangeProfilerStop"(*mut Stop);
        decode = "cuptiRangeProfilerDecodeData"(*mut Decode);
        data_info = "cuptiRangeProfilerGetCounterDataInfo"(*mut DataInfo);
        disable = "cuptiRangeProfilerDisable"(*mut Disable);
    }
    optional {}
}

/// Name of the metrics library, which has the same version as CUPTI.
const METRICS: &str = if cfg!(windows) { "nvperf_host.dll" } else { "libnvperf_host.so" };

/// Returns CUPTI with its range profiler, loading them and the metrics library on first use. After a failure, the next
/// call tries again.
///
/// # Errors
/// Returns [`CounterError::NoCupti`] or [`CounterError::NoMetricsLibrary`].
pub fn loaded(cuda: i32) -> CounterResult<(&'static Cupti, &'static RangeProfiler)> {
    static LOADED: Mutex<Option<(&'static Cupti, &'static RangeProfiler)>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = *loaded {
        return Ok(loaded);
    }
    let cupti = cupti::cupti(cuda)?;
    let Some((library, file)) = cupti.origin else {
        return Err(too_old(cupti, "a library of its own", cuda));
    };
    let ranges = RangeProfiler::of(library).map_err(|symbol| too_old(cupti, symbol, cuda))?;
    load_metrics(&candidates(file, &LibraryPaths::of_process()), cuda)?;
    Ok(*loaded.insert((cupti, Box::leak(Box::new(ranges)))))
}

fn too_old(cupti: &Cupti, lacks: &str, cuda: i32) -> CounterError {
    // A driver can use a newer library of the same major version.
    let package = cupti::package(cuda.max(12_080));
    let name = cupti.name();
    CounterError::NoCupti {
        reason: format!(
            "{name} is too old: it lacks `{lacks}`, which CUDA 12.8 introduced; run `pip install '{package}'`"
        ),
    }
}

/// Returns the candidate paths of the metrics library: first in CUPTI's directory, then in the system's search path,
/// then in the directories of installed libraries.
fn candidates(cupti: &Path, paths: &LibraryPaths) -> Vec<PathBuf> {
    let beside = if cupti.is_absolute() { cupti.parent() } else { None };
    let beside = beside.map(|folder| folder.join(METRICS));
    let installed = paths.all().map(|folder| folder.join(METRICS)).filter(|file| file.exists());
    beside.into_iter().chain([PathBuf::from(METRICS)]).chain(installed).collect()
}

/// Loads the first loadable candidate and never unloads it.
fn load_metrics(candidates: &[PathBuf], cuda: i32) -> CounterResult<()> {
    let mut reason = String::new();
    for file in candidates {
        // SAFETY: the library belongs to CUPTI, which is loaded, and its initializers may run at any time.
        match unsafe { Library::new(file) } {
            Ok(library) => {
                // CUPTI finds the library by name as long as it is loaded.
                std::mem::forget(library);
                return Ok(());
            }
            Err(error) if file.exists() => reason = format!("{} cannot be loaded: {error}", file.display()),
            Err(_) => {}
        }
    }
    let searched: Vec<String> = candidates.iter().map(|file| file.display().to_string()).collect();
    Err(CounterError::NoMetricsLibrary {
        library: METRICS,
        searched: searched.join(", "),
        reason,
        package: cupti::package(cuda),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::cuda::activity::fake;

    #[test]
    fn a_missing_companion_names_paths_and_package() {
        let paths = LibraryPaths { named: vec!["/no/such/folder".into()], installed: Vec::new() };
        let tried = candidates(Path::new("/opt/none/libcupti.so.13"), &paths);
        assert_eq!(tried[..2], [PathBuf::from("/opt/none/libnvperf_host.so"), METRICS.into()]);
        let text = load_metrics(&tried[..1], 13_000).unwrap_err().to_string();
        for part in ["/opt/none/libnvperf_host.so", "nvidia-cuda-cupti==13.0.*", "WARPSMITH_LIBRARY_PATH"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(candidates(Path::new("libcupti.so.13"), &paths), [PathBuf::from(METRICS)]);
    }

    #[test]
    fn a_companion_that_is_no_library_is_named() {
        let folder = std::env::temp_dir().join(format!("warpsmith-nvperf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(METRICS), b"no library").unwrap();
        let text = load_metrics(&[folder.join(METRICS)], 13_000).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("libnvperf_host.so cannot be loaded"), "{text}");
    }

    #[test]
    fn a_cupti_without_the_range_profiler_is_too_old() {
        // SAFETY: this is the C library, which is already loaded.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        let symbol = RangeProfiler::of(&library).unwrap_err();
        let old = Cupti { version: 22, ..fake::table() };
        let text = too_old(&old, symbol, 12_020).to_string();
        assert!(text.contains("API version 22") && text.contains("`cuptiProfilerInitialize`"), "{text}");
        assert!(text.contains("nvidia-cuda-cupti-cu12==12.8.*"), "{text}");
    }
}
