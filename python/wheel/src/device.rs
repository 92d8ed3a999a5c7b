//! Python functions for devices, streams, memory, the profiler and ranges.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpsmith::profiler::{FileProfiler, Profiler};
use warpsmith::{Device, Stream, nvtx};
use warpsmith_python::expansion::ContextGuard;
use warpsmith_python::{Error, Result};

/// Adds the functions to the module.
pub fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($function:ident)*) => { $(module.add_function(wrap_pyfunction!($function, module)?)?;)* };
    }
    add!(devices current_stream synchronize memory_stats memory_snapshot empty_cache);
    add!(start_profiler stop_profiler range_push range_pop);
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

/// Opens a device. The argument is `None` for the best device, the ordinal of a CUDA device, or an object whose string
/// form is the name of a device.
fn open(device: Option<&Bound<'_, PyAny>>) -> Result<Device> {
    let Some(device) = device else { return Ok(Device::best()?) };
    match device.extract::<u32>() {
        Ok(ordinal) => Ok(Device::cuda(ordinal)?),
        Err(_) => Ok(Device::open(device.str()?.to_cow()?.as_ref())?),
    }
}

/// Returns all devices, CUDA devices first, as dictionaries with the keys `id`, `name`, `capability`, `total_memory`
/// (in bytes), `multiprocessors` and `is_emulated`.
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let _context = ContextGuard::new();
    let dictionary = |info: warpsmith::device::DeviceInfo| {
        let dictionary = PyDict::new(py);
        dictionary.set_item("id", info.id.to_string())?;
        dictionary.set_item("name", info.properties.name)?;
        dictionary.set_item("capability", info.properties.capability)?;
        dictionary.set_item("total_memory", info.properties.total_memory)?;
        dictionary.set_item("multiprocessors", info.properties.multiprocessors)?;
        dictionary.set_item("is_emulated", info.id.is_emulated())?;
        Ok(dictionary)
    };
    py.detach(Device::list).into_iter().map(dictionary).collect()
}

/// Returns the handle (`cudaStream_t`) of the stream that operations use for frameworks that do not provide a stream.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn current_stream(device: Option<&Bound<'_, PyAny>>) -> Result<u64> {
    let _context = ContextGuard::new();
    Ok(Stream::current(&open(device)?).handle().0)
}

/// Waits until all work on a device has completed.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn synchronize(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let _context = ContextGuard::new();
    let device = open(device)?;
    Ok(py.detach(|| device.synchronize())?)
}

/// Returns statistics of the allocator, with the same keys as `torch.cuda.memory_stats`.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn memory_stats<'py>(py: Python<'py>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let _context = ContextGuard::new();
    let dictionary = PyDict::new(py);
    for (name, value) in open(device)?.memory().statistics().to_map() {
        dictionary.set_item(name, value)?;
    }
    Ok(dictionary)
}

/// Returns the segments and blocks of the allocator in the format of PyTorch's memory snapshots.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn memory_snapshot<'py>(py: Python<'py>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let _context = ContextGuard::new();
    let text = open(device)?.memory().snapshot().to_json();
    py.import("json")?.call_method1("loads", (text,))
}

/// Releases all unused cached memory to the driver and returns the number of released bytes.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn empty_cache(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Result<u64> {
    let _context = ContextGuard::new();
    let device = open(device)?;
    Ok(py.detach(|| device.memory().empty_cache())?)
}

/// The running profiler. A process can have only one.
static PROFILER: Mutex<Option<FileProfiler>> = Mutex::new(None);

/// Starts a profiler that records the devices and the host and writes the trace to a file.
#[pyfunction]
fn start_profiler(py: Python<'_>, path: PathBuf) -> Result<()> {
    let _context = ContextGuard::new();
    let profiler = py.detach(|| Profiler::to_file(path))?;
    *PROFILER.lock().unwrap_or_else(PoisonError::into_inner) = Some(profiler);
    Ok(())
}

/// Stops the profiler, completes the trace file, and returns the number of records.
#[pyfunction]
fn stop_profiler(py: Python<'_>) -> Result<u64> {
    let _context = ContextGuard::new();
    let profiler = PROFILER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let profiler =
        profiler.ok_or_else(|| Error::value("no profiler is running; call start_profiler(path) first"))?;
    Ok(py.detach(|| profiler.finish())?.records)
}

/// Starts a named range on the calling thread.
#[pyfunction]
fn range_push(name: String) {
    nvtx::range_push(name);
}

/// Ends the innermost range of the calling thread.
#[pyfunction]
fn range_pop() {
    nvtx::range_pop();
}
