//! [`Counters`]: hardware counters of the kernels that a program runs.
//!
//! | file | what it does |
//! | --- | --- |
//! | `observer` | counts each operation by itself, one at a time |
//! | `source` | the driver's counters, as the observer calls them |
//! | `tally` | sums up by kernel |

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
use warpsmith_runtime::seam::{Observation, observe, open_devices};
use warpsmith_trace::counters::CounterReport;

use self::observer::{Counting, CountingObserver};
use self::source::{DriverSource, Source};
use crate::error::{ProfilerError, Result};
use crate::profiler::Claim;

/// Launches of a kernel that are counted, unless an option says otherwise.
const LAUNCHES: u64 = 10;

/// What is counted.
#[derive(Debug, Clone)]
pub struct CounterOptions {
    devices: Vec<Device>,
    launches: u64,
    kernels: Vec<String>,
}

impl Default for CounterOptions {
    /// The first 10 launches of each kernel on all devices of the process.
    fn default() -> Self {
        Self { devices: Vec::new(), launches: LAUNCHES, kernels: Vec::new() }
    }
}

impl CounterOptions {
    /// Counts on this device, and on those that further calls name. Without a call, on all devices of the process, those that
    /// are opened later too.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push(device.clone());
        self
    }

    /// Counts this number of launches of each kernel, graph and library call, the first ones; `u64::MAX` for all.
    pub fn launches(mut self, launches: u64) -> Self {
        self.launches = launches;
        self
    }

    /// Counts the kernels whose names contain this text, and those of further calls; without a call, all. Graphs and library
    /// calls have names as in the report. What cannot run alone must be left out, as a kernel that waits for another one.
    pub fn kernel(mut self, name: impl Into<String>) -> Self {
        self.kernels.push(name.into());
        self
    }

    /// Starts to count with these options.
    ///
    /// # Errors
    /// As [`Counters::start`].
    pub fn start(self) -> Result<Counters> {
        Counters::start(self)
    }
}

/// Counts what kernels do, by the counters of the hardware, until it is stopped: bytes from and to the memory, hits of the L2
/// cache, achieved occupancy, reasons for stalls. One at a time in a process, and not while a [profiler](crate::Profiler) records.
///
/// A kernel that is counted runs several times, with the memory that it found restored in between: the program's results stay
/// what they are, and it takes much longer. Launches wait for each other meanwhile. A graph is counted as CUPTI sees it, as one
/// kernel or as several.
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
    /// Starts to count.
    ///
    /// # Errors
    /// [`ProfilerError::Recording`] while something records or counts in the process, [`ProfilerError::Forked`] in a process that
    /// was forked from one in which something does, [`ProfilerError::Counters`] when a device that is open cannot be counted on:
    /// it names the cause and the remedy. Devices that are opened later are reported in the report.
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

    /// Waits for the operation that is being counted, stops, and returns what was counted.
    ///
    /// # Errors
    /// [`ProfilerError::Forked`] in a forked process: the counters are not its own.
    pub fn stop(mut self) -> Result<CounterReport> {
        self.end(true)
    }

    /// What was counted; the devices are not used any more, as the process ends.
    pub(crate) fn finish(mut self) -> Result<CounterReport> {
        self.end(false)
    }

    fn end(&mut self, releases: bool) -> Result<CounterReport> {
        let Some((counting, observation)) = self.running.take() else { return Ok(CounterReport::default()) };
        if !self.claim.is_own() {
            std::mem::forget((counting, observation));
            return Err(ProfilerError::Forked);
        }
        let held = counting.shut();
        drop(observation);
        // What is being counted needs its device; that one stays taken.
        if releases && held.is_some() {
            counting.close();
        }
        drop(held);
        Ok(counting.report())
    }
}

/// Prepares devices. Those that have no counters are an error if they were chosen, or if no device has any.
fn prepare(counting: &Counting, devices: &[Device], is_chosen: bool) -> Result<()> {
    let (mut prepared, mut without) = (0, None);
    for device in devices {
        match counting.open(device) {
            Ok(()) => prepared += 1,
            Err(error) => {
                let may_pass = !is_chosen && matches!(error, CounterError::Unsupported { .. });
                let error = ProfilerError::Counters { device: device.id().to_string(), error };
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
        // What was counted is not wanted.
        let _ = self.end(true);
    }
}
