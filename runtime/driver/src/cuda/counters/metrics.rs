//! Metrics of a chip: the available ones, the hardware configuration for counting them, and their values.
//!
//! CUPTI computes all of this on the host, for any chip that it supports.

use std::ffi::{CStr, CString, c_char};

use super::calls::Calls;
use super::params::*;
use crate::counters::{Counter, CounterError, CounterKind, CounterResult, Obstacle};
use crate::cuda::cupti::{c_text, status};

/// Metric names per kind of counter, as in Nsight Compute. A chip supports at most one name per kind.
const METRICS: [(CounterKind, &[&str]); 6] = [
    (CounterKind::Duration, &["gpu__time_duration.sum"]),
    (CounterKind::MemoryRead, &["dram__bytes_read.sum", "dram__bytes_op_read.sum"]),
    (CounterKind::MemoryWritten, &["dram__bytes_write.sum", "dram__bytes_op_write.sum"]),
    (CounterKind::L2HitRate, &["lts__t_sector_hit_rate.pct"]),
    (CounterKind::Occupancy, &["sm__warps_active.avg.pct_of_peak_sustained_active"]),
    (CounterKind::TensorActive, &["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"]),
];
/// Prefix and suffix of stall metric names.
const STALL: (&str, &str) = ("smsp__average_warps_issue_stalled_", "_per_issue_active");

/// Metrics to count on a chip.
#[derive(Debug)]
pub struct Metrics {
    calls: Calls,
    host: Host,
    pub counters: Vec<Counter>,
    names: Vec<CString>,
    /// Configuration image of the hardware counters.
    pub config: Vec<u8>,
    pub passes: usize,
}

// SAFETY: any thread may use the host object, and only one thread does so at a time.
unsafe impl Send for Metrics {}

impl Metrics {
    /// Selects the metrics of a chip. `availability` is the device's counter availability image; if empty, all metrics
    /// of the chip are assumed to be available.
    pub fn of(calls: Calls, chip: &CStr, availability: &[u8]) -> CounterResult<Self> {
        let mut params = HostInitialize::new();
        params.kind = RANGE_PROFILER;
        params.chip = chip.as_ptr();
        params.availability = if availability.is_empty() { std::ptr::null() } else { availability.as_ptr() };
        // SAFETY: here and below, the structure's size field is correct, and its pointers are valid during the call.
        let result = unsafe { (calls.functions.host_initialize)(&mut params) };
        let obstacle = |obstacle| CounterError::Device { device: calls.device, obstacle };
        if result == status::INVALID_CHIP_NAME {
            return Err(obstacle(Obstacle::Chip(chip.to_string_lossy().into_owned())));
        }
        calls.check("cuptiProfilerHostInitialize", result)?;
        let mut metrics = Self {
            calls,
            host: params.host,
            counters: Vec::new(),
            names: Vec::new(),
            config: Vec::new(),
            passes: 0,
        };
        metrics.counters = metrics.choose()?;
        if metrics.counters.is_empty() {
            return Err(obstacle(Obstacle::NoCounters(chip.to_string_lossy().into_owned())));
        }
        let name = |counter: &Counter| CString::new(counter.name.as_str()).ok();
        metrics.names = metrics.counters.iter().filter_map(name).collect();
        metrics.configure()?;
        Ok(metrics)
    }

    /// Returns the counters that the chip supports.
    fn choose(&self) -> CounterResult<Vec<Counter>> {
        let has = |name: &&&str| CString::new(**name).is_ok_and(|name| self.has(&name));
        let found = METRICS.iter().filter_map(|(kind, names)| {
            let name = names.iter().find(has)?;
            Some(Counter { kind: kind.clone(), name: (*name).to_owned() })
        });
        let mut counters: Vec<Counter> = found.collect();
        let ratios = self.ratios()?;
        let stall = |name: &str| name.strip_prefix(STALL.0)?.strip_suffix(STALL.1).map(str::to_owned);
        let reasons: Vec<String> = ratios.iter().filter_map(|name| stall(name)).collect();
        // Some chips also split a stall reason into subreasons, for example `mio_throttle_pipe_mio`.
        let is_part = |reason: &str| {
            let whole = reason.split_once("_pipe_").map(|(whole, _)| whole);
            whole.is_some_and(|whole| reasons.iter().any(|reason| reason == whole))
        };
        let whole = reasons.iter().filter(|reason| !is_part(reason));
        counters.extend(whole.map(|reason| Counter {
            kind: CounterKind::Stall(reason.clone()),
            name: format!("{}{reason}{}.ratio", STALL.0, STALL.1),
        }));
        Ok(counters)
    }

    /// Returns true if the chip supports a metric.
    fn has(&self, name: &CStr) -> bool {
        let mut params = MetricProperties::new();
        params.host = self.host;
        params.name = name.as_ptr();
        // SAFETY: see `of`.
        unsafe { (self.calls.functions.metric_properties)(&mut params) == status::SUCCESS }
    }

    /// Returns the names of the chip's ratio metrics, without suffixes.
    fn ratios(&self) -> CounterResult<Vec<String>> {
        let mut params = BaseMetrics::new();
        params.host = self.host;
        params.kind = RATIO;
        // SAFETY: see `of`.
        let result = unsafe { (self.calls.functions.base_metrics)(&mut params) };
        self.calls.check("cuptiProfilerHostGetBaseMetrics", result)?;
        if params.names.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: CUPTI's list has this many C strings, which live as long as the host object.
        let names = unsafe { std::slice::from_raw_parts(params.names, params.count) };
        // SAFETY: as above; each string is copied here.
        Ok(names.iter().filter_map(|name| unsafe { c_text(*name) }).map(str::to_owned).collect())
    }

    /// Builds the configuration image through CUPTI.
    fn configure(&mut self) -> CounterResult<()> {
        let Self { calls: Calls { functions, .. }, host, .. } = *self;
        let names = self.pointers();
        let mut params = AddMetrics::new();
        (params.host, params.names, params.count) = (host, names.as_ptr(), names.len());
        // SAFETY: see `of`; here and in the calls below.
        let result = unsafe { (functions.add_metrics)(&mut params) };
        self.calls.check("cuptiProfilerHostConfigAddMetrics", result)?;

        let mut params = ConfigSize::new();
        params.host = host;
        // SAFETY: see above.
        let result = unsafe { (functions.config_size)(&mut params) };
        self.calls.check("cuptiProfilerHostGetConfigImageSize", result)?;
        self.config = vec![0; params.bytes];

        let mut params = ConfigImage::new();
        (params.host, params.bytes, params.image) = (host, self.config.len(), self.config.as_mut_ptr());
        // SAFETY: see above; the image has the size that CUPTI requested.
        let result = unsafe { (functions.config_image)(&mut params) };
        self.calls.check("cuptiProfilerHostGetConfigImage", result)?;

        let mut params = Passes::new();
        (params.bytes, params.image) = (self.config.len(), self.config.as_ptr());
        // SAFETY: see above.
        let result = unsafe { (functions.passes)(&mut params) };
        self.calls.check("cuptiProfilerHostGetNumOfPasses", result)?;
        self.passes = params.passes;
        Ok(())
    }

    /// Returns pointers to the metric names, valid as long as `self`.
    pub fn pointers(&self) -> Vec<*const c_char> {
        self.names.iter().map(|name| name.as_ptr()).collect()
    }

    /// Returns the values of a range.
    pub fn evaluate(&self, image: &[u8], range: usize) -> CounterResult<Vec<Option<f64>>> {
        let names = self.pointers();
        let mut values = vec![f64::NAN; names.len()];
        let mut params = Evaluate::new();
        (params.host, params.image, params.bytes) = (self.host, image.as_ptr(), image.len());
        (params.range, params.names, params.count) = (range, names.as_ptr(), names.len());
        params.values = values.as_mut_ptr();
        // SAFETY: see `of`; there is one value per name.
        let result = unsafe { (self.calls.functions.evaluate)(&mut params) };
        self.calls.check("cuptiProfilerHostEvaluateToGpuValues", result)?;
        Ok(values.into_iter().map(|value| value.is_finite().then_some(value)).collect())
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let mut params = HostDeinitialize::new();
        params.host = self.host;
        // SAFETY: see `of`; the object is not used again. An error cannot be reported here.
        unsafe { (self.calls.functions.host_deinitialize)(&mut params) };
    }
}
