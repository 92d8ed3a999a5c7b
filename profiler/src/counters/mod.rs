//! [`Counters`]: hardware counters of the kernels that a program runs.
//!
//! | file | task |
//! | --- | --- |
//! | `observer` | counts each operation separately, one at a time |
//! | `source` | interface to the driver's counters |
//! | `tally` | totals per kernel |

#[cfg(test)]
#[path = "../../../runtime/tests/common/bench_kernels.rs"]
mod kernels;
mod observer;
mod source;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::counters::CounterError;
use warpsmith_runtime::extension::{Observation, observe, open_devices};
use warpsmith_trace::counters::CounterReport;

use self::observer::{Counting, CountingObserver};
use self::source::{DriverSource, Source};
use crate::error::{ProfilerError, Result};
use crate::profiler::Claim;

/// Default number of launches per kernel that are counted.
const LAUNCHES: u64 = 10;

/// Options of [`Counters`].
#[derive(Debug, Clone)]
pub struct CounterOptions {
    devices: Vec<Device>,
    launches: u64,
    kernels: Vec<String>,
}

impl Default for CounterOptions {
    /// Returns the default options, which count the first 10 launches of each kernel on all devices of the process.
    fn default() -> Self {
        Self { devices: Vec::new(), launches: LAUNCHES, kernels: Vec::new() }
    }
}

impl CounterOptions {
    /// Adds a device on which kernels are counted. Can be called repeatedly. If this method is never called, all
    /// devices of the process are counted, including devices that are opened later.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push(device.clone());
        self
    }

    /// Sets the number of launches that are counted per kernel, graph and library call. The first launches are counted;
    /// `u64::MAX` counts all of them.
    pub fn launches(mut self, launches: u64) -> Self {
        self.launches = launches;
        self
    }

    /// Counts only kernels whose names contain `name`. Call it repeatedly to select further kernels. If this method is
    /// never called, all kernels are counted. Graphs and library calls are selected by their names in the report. Use
    /// this method to exclude kernels that cannot run alone, such as a kernel that waits for another one.
    pub fn kernel(mut self, name: impl Into<String>) -> Self {
        self.kernels.push(name.into());
        self
    }

    /// Starts counting with these options.
    ///
    /// # Errors
    /// Returns the same errors as [`Counters::start`].
    pub fn start(self) -> Result<Counters> {
        Counters::start(self)
    }
}

/// Reads hardware counters per kernel until it is stopped: bytes read and written in memory, L2 hit rate, achieved
/// occupancy, and stall reasons. Only one instance can run per process, and no instance can run while a
/// [profiler](crate::Profiler) is recording.
///
/// Each counted kernel is replayed several times, and its memory is restored between the replays (kernel replay). The
/// results of the program do not change, but the kernels take much longer, and launches are serialized. A graph is
/// counted as one kernel or as several, depending on how CUPTI reports it.
///
/// ```no_run
/// use warpsmith_profiler::{CounterOptions, Counters};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("cuda:0")?;
/// let counters = Counters::start(CounterOptions::default().device(&device))?;
/// // … launch kernels
/// let report = counters.stop()?;
/// println!("{}", report.text(20));
/// for kernel in &report.kernels {
///     println!("{}: {:?} bytes read", kernel.name, kernel.read);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "it stops when it is dropped"]
#[derive(Debug)]
pub struct Counters {
    running: Option<(Arc<Counting>, Observation)>,
    claim: Claim,
}

impl Counters {
    /// Starts counting.
    ///
    /// # Errors
    /// Returns [`ProfilerError::Recording`] if the process is already recording or counting. Returns
    /// [`ProfilerError::Forked`] in a process that was forked from one that is recording or counting. Returns
    /// [`ProfilerError::Counters`] if the counters of an open device cannot be read, with the cause and the remedy.
    /// Problems with devices that are opened later are listed in the report.
    pub fn start(options: CounterOptions) -> Result<Self> {
        Self::start_with(options, Box::new(DriverSource))
    }

    fn start_with(options: CounterOptions, source: Box<dyn Source>) -> Result<Self> {
        let claim = Claim::take()?;
        let CounterOptions { devices, launches, kernels } = options;
        let is_chosen = !devices.is_empty();
        let now = if is_chosen { devices.clone() } else { open_devices() };
        let counting = Arc::new(Counting::new(source, devices, launches, kernels));
        if let Err(error) = prepare(&counting, &now, is_chosen) {
            counting.close();
            return Err(error);
        }
        let observation = observe(CountingObserver(Arc::clone(&counting)));
        Ok(Self { running: Some((counting, observation)), claim })
    }

    /// Waits for the operation that is being counted, stops counting, and returns the report.
    ///
    /// # Errors
    /// Returns [`ProfilerError::Forked`] in a forked process, because the counters belong to its parent.
    pub fn stop(mut self) -> Result<CounterReport> {
        self.end(true)
    }

    /// Returns the report without accessing the devices, for use at the end of the process.
    pub(crate) fn finish(mut self) -> Result<CounterReport> {
        self.end(false)
    }

    fn end(&mut self, releases: bool) -> Result<CounterReport> {
        let Some((counting, observation)) = self.running.take() else { return Ok(CounterReport::default()) };
        if !self.claim.is_own() {
            std::mem::forget((counting, observation));
            return Err(ProfilerError::Forked.into());
        }
        let held = counting.shut();
        drop(observation);
        // The operation that is being counted needs its device, so the device remains open.
        if releases && held.is_some() {
            counting.close();
        }
        drop(held);
        Ok(counting.report())
    }
}

/// Prepares devices. Returns an error if a device without counters was selected explicitly, or if none of the devices
/// has counters.
fn prepare(counting: &Counting, devices: &[Device], is_chosen: bool) -> Result<()> {
    let (mut prepared, mut without) = (0, None);
    for device in devices {
        match counting.open(device) {
            Ok(()) => prepared += 1,
            Err(error) => {
                let may_pass = !is_chosen && matches!(error, CounterError::Unsupported { .. });
                let error = ProfilerError::Counters { device: device.id().to_string(), error }.into();
                if !may_pass {
                    return Err(error);
                }
                without = without.or(Some(error));
            }
        }
    }
    match without {
        Some(error) if prepared == 0 => Err(error),
        _ => Ok(()),
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // The report is discarded, because the program has not requested it.
        let _ = self.end(true);
    }
}
