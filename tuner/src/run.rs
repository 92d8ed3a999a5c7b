//! A run: checks the request, and then measures every kernel, type, size and configuration.
//!
//! Nothing is launched before the whole request has been checked, including whether it fits in device memory. The
//! default configuration of each kernel, type and size is always measured, and it is measured before all others.
//! Results are passed on one by one, so that a later failure does not lose any of them. If a configuration is rejected
//! or fails, the outcome is recorded, and the run continues unless the device is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use warpsmith_runtime::{Device, Stream};

use crate::benchmark::{Benchmark, Setup, Suite, Work, dtype};
use crate::case::Case;
use crate::document::{Measured, Outcome, ProbeResult, Record};
use crate::error::{Error, Result};
use crate::harness::Harness;
use crate::measure::{Effort, Mode, Stopwatch};
use crate::value::{Configuration, Value};

/// Maximum number of buffer copies for a small case.
const MAX_COPIES: u64 = 4096;

/// Request for a run: kernels, types, sizes, axes, mode and effort.
#[derive(Debug, Clone)]
pub struct Request {
    /// Names of kernels.
    pub kernels: Vec<String>,
    /// Names of types. An empty list selects the default type of each kernel.
    pub dtypes: Vec<String>,
    /// Element counts. An empty list selects the default sizes.
    pub sizes: Vec<u64>,
    /// Values of axes, which replace the values that the benchmark declares.
    pub axes: Vec<(String, Vec<Value>)>,
    /// Kind of launches to time.
    pub mode: Mode,
    /// Sampling effort.
    pub effort: Effort,
    /// Seed for the input data; `None` for a new seed.
    pub seed: Option<u64>,
}

/// A kernel, type and size in a plan.
#[derive(Clone)]
pub struct PlannedCase<'a> {
    /// Benchmark of the kernel.
    pub benchmark: &'a dyn Benchmark,
    /// Element type.
    pub dtype: &'static str,
    /// Number of elements.
    pub n: u64,
    /// Cost of a launch.
    pub work: Work,
    /// Number of buffer copies through which launches cycle.
    pub copies: usize,
    /// Configurations to be measured, the default first.
    pub configurations: Vec<Configuration>,
}

impl PlannedCase<'_> {
    /// Returns the configuration that is used without tuning.
    pub fn default_configuration(&self) -> &Configuration {
        &self.configurations[0]
    }

    /// Returns a name for progress and error messages, for example `axpy f32 2^20`.
    pub fn describe(&self) -> String {
        format!("{} {} {}", self.benchmark.name(), self.dtype, crate::size::format_size(self.n))
    }

    /// Allocates the buffers on the stream's device and fills them with data generated from `seed`.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    pub fn prepare(&self, stream: &Stream, seed: u64) -> Result<Box<dyn Case>> {
        let PlannedCase { dtype, n, copies, .. } = *self;
        self.benchmark.prepare(&Setup { stream, dtype, n: n as usize, copies, seed })
    }

    /// Creates the record of a configuration that has not been measured yet.
    pub fn record(&self, configuration: &Configuration) -> Record {
        Record {
            kernel: self.benchmark.name().to_owned(),
            dtype: self.dtype.to_owned(),
            n: self.n,
            configuration: configuration.clone(),
            is_default: configuration == self.default_configuration(),
            is_winner: false,
            outcome: Outcome::Failed,
            problem: String::new(),
            max_error: None,
            bytes: self.work.bytes,
            flops: self.work.flops,
            timing: None,
            probe_us: None,
            mode: Mode::default(),
        }
    }
}

/// Results of a run except for its records.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// True if everything has been measured; false if the run was stopped.
    pub complete: bool,
    /// Results of the probes.
    pub probes: Vec<ProbeResult>,
}

impl std::fmt::Debug for PlannedCase<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlannedCase({}, {} configurations)", self.describe(), self.configurations.len())
    }
}

/// A request that has passed all checks.
pub struct Plan<'a> {
    suite: &'a Suite,
    device: Device,
    mode: Mode,
    effort: Effort,
    is_narrowed: bool,
    seed: u64,
    /// Cases in the order in which they are measured.
    pub cases: Vec<PlannedCase<'a>>,
}

impl<'a> Plan<'a> {
    /// Checks a request against the suite and the device.
    ///
    /// # Errors
    /// Returns an error for an unknown kernel, type, axis or value, for an empty space, and for sizes that do not fit
    /// in the free memory of the device.
    pub fn new(suite: &'a Suite, device: &Device, request: &Request) -> Result<Self> {
        let free = device.memory().available()?;
        let free = free - Stopwatch::cover_bytes(device, free);
        // One sixteenth of the memory is left free for alignment, code and other programs.
        let free = free - free / 16;
        let mut cases: Vec<PlannedCase<'a>> = Vec::new();
        for name in &request.kernels {
            let benchmark = suite.find(name)?;
            let dtypes = match &request.dtypes[..] {
                [] => benchmark.dtypes().into_iter().take(1).collect(),
                names => names.iter().map(|name| dtype(benchmark, name)).collect::<Result<Vec<_>>>()?,
            };
            for dtype in dtypes {
                let mut space =
                    benchmark.space(dtype, device).max_block(device.properties().max_threads_per_block);
                for (axis, values) in &request.axes {
                    space.set(benchmark.name(), axis, values)?;
                }
                let space = space.configurations(benchmark.name())?;
                for n in sizes(benchmark, device, &request.sizes) {
                    let known = |case: &PlannedCase<'_>| {
                        (case.benchmark.name(), case.dtype, case.n) == (benchmark.name(), dtype, n)
                    };
                    if cases.iter().any(known) {
                        continue;
                    }
                    let work = benchmark.work(dtype, n);
                    let l2 = device.properties().l2_cache;
                    let copies = copies(device.is_emulated(), l2, work.footprint, work.spare, free);
                    let copies = copies.ok_or_else(|| Error::TooLarge {
                        kernel: name.clone(),
                        dtype: dtype.to_owned(),
                        n,
                        needed: work.footprint.saturating_add(work.spare),
                        free,
                    })?;
                    let default = benchmark.default_configuration(dtype, n, device);
                    let others = space.iter().filter(|&c| *c != default).cloned().collect::<Vec<_>>();
                    let configurations = std::iter::once(default).chain(others).collect();
                    cases.push(PlannedCase { benchmark, dtype, n, work, copies, configurations });
                }
            }
        }
        let is_narrowed = !request.axes.is_empty();
        let (device, mode, effort) = (device.clone(), request.mode, request.effort);
        let seed = request.seed.unwrap_or_else(new_seed);
        Ok(Plan { suite, device, mode, effort, is_narrowed, seed, cases })
    }

    /// Returns the device on which the plan is measured.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the suite of the plan.
    pub(crate) fn suite(&self) -> &'a Suite {
        self.suite
    }

    /// Returns which kind of launches is timed.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the sampling effort.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Returns the seed for the input data.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns true if the user specified values for axes, in which case spaces may be smaller than the benchmarks'
    /// own.
    pub fn is_narrowed(&self) -> bool {
        self.is_narrowed
    }

    /// Returns the total number of configurations to be measured.
    pub fn len(&self) -> usize {
        self.cases.iter().map(|case| case.configurations.len()).sum()
    }

    /// Returns true if there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Measures everything, and also times the probes if `probes` is true. `each` is called with every record and the
    /// record's case, as soon as the record has been created. When `stop` is set, the run ends with the samples taken
    /// so far.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors), such as out of memory or a lost device.
    /// Records created before the error have already been passed to `each`.
    pub fn run(
        &self,
        probes: bool,
        stop: &Arc<AtomicBool>,
        mut each: impl FnMut(&PlannedCase<'a>, Record),
    ) -> Result<Finished> {
        let mut harness = Harness::new(self, probes, stop);
        for planned in &self.cases {
            for configuration in &planned.configurations {
                if stop.load(Ordering::Relaxed) {
                    return Ok(Finished { complete: false, probes: harness.reached() });
                }
                let measured = harness.measure(planned, configuration)?;
                harness.problem().map_or(Ok(()), Err)?;
                if matches!(measured.outcome, Outcome::Failed | Outcome::Crashed) {
                    // This call also fails on a lost device, which ends the run.
                    harness.synchronize()?;
                }
                let Measured { outcome, problem, max_error, timing } = measured;
                let (mode, probe_us) = (self.mode, harness.limit_us(planned));
                let record = planned.record(configuration);
                each(planned, Record { mode, outcome, problem, max_error, timing, probe_us, ..record });
            }
            harness.close(planned, true);
            harness.problem().map_or(Ok(()), Err)?;
        }
        Ok(Finished { complete: true, probes: harness.reached() })
    }
}

/// Returns a seed that differs from the seeds of other runs.
fn new_seed() -> u64 {
    // A short seed is easier to type.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::from(d.subsec_nanos()))
}

/// Returns the sizes to be measured: the sizes in `given` or, if `given` is empty, the default sizes.
fn sizes(benchmark: &dyn Benchmark, device: &Device, given: &[u64]) -> Vec<u64> {
    let usual: &[u64] = if device.is_emulated() {
        &[1 << 12, 1 << 16, 1 << 20]
    } else {
        &[1 << 16, 1 << 20, 1 << 24, 1 << 28]
    };
    match (given, benchmark.sizes(device)) {
        ([], own) if own.is_empty() => usual.to_vec(),
        ([], own) => own,
        (given, _) => given.to_vec(),
    }
}

/// Returns how many copies of `footprint` bytes launches cycle through, if `spare` further bytes are needed once and
/// `free` bytes are free. As far as memory allows, there are at least two copies, and enough to fill the L2 cache of
/// `l2` bytes three times. On an emulated device, there is one copy. Returns `None` if not even one copy fits in
/// memory.
fn copies(emulated: bool, l2: u64, footprint: u64, spare: u64, free: u64) -> Option<usize> {
    let footprint = footprint.max(1);
    let affordable = free.checked_sub(spare)? / footprint;
    let wanted = if emulated { 1 } else { (l2 * 3).div_ceil(footprint).clamp(2, MAX_COPIES) };
    Some(wanted.min(affordable) as usize).filter(|&copies| copies > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exceed_the_cache_within_memory() {
        let l2 = 50 << 20;
        assert_eq!(copies(true, l2, 1 << 20, 0, 1 << 30), Some(1));
        assert_eq!(copies(false, l2, 1 << 20, 0, 1 << 40), Some(150));
        assert_eq!(copies(false, l2, 1 << 30, 0, 1 << 40), Some(2));
        assert_eq!(copies(false, l2, 1 << 30, 1 << 29, 3 << 29), Some(1));
        assert_eq!(copies(false, l2, 1 << 30, 1 << 29, (3 << 29) - 1), None);
        assert_eq!(copies(false, l2, 4, 4, 1 << 40), Some(4096));
        assert_eq!(copies(true, l2, u64::MAX, u64::MAX, 1 << 40), None);
    }
}
