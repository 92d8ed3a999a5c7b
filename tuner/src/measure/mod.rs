//! Times configurations on a device.
//!
//! Times come from events, which use the clock of the device. They exclude host time, because every timed launch is
//! queued after other device work. Launches cycle through the buffer copies of the case, or use only one copy,
//! depending on the [`Mode`]. If a launch is shorter than [`SHORT_US`], it is repeated within a sample, after one
//! untimed launch. Therefore, no time in interleaved samples includes work of another configuration. If the device
//! reports its clock, the clock is read with every sample, and samples taken while the device was throttled are
//! rejected and retaken ([`Guard`]). A timing counts as throttled if the driver reports a slowdown at its end. Every
//! [`Timing`] contains the number of rejected samples and the reason why sampling stopped.
//!
//! The confidence interval of a timing does not cover changes that are slower than the sampling, such as changes of
//! temperature. To compare two configurations, use interleaved samples ([`Stopwatch::interleave`]) and
//! [`paired_ratio`](crate::stats::paired_ratio).

mod clock;
mod rounds;
mod sample;
mod stop;
mod stopwatch;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::clock::Guard;
pub use self::stop::{Effort, StopReason};
pub use self::stopwatch::Stopwatch;
use crate::stats::{Interval, Summary, median_interval, summarize};

/// Minimum duration of a sample, in microseconds. Two consecutive events without work between them are slightly more
/// than 1 µs apart. This gap is at most about one percent of a sample, regardless of the number of launches in the
/// sample.
pub const SHORT_US: f64 = 100.0;
/// Minimum duration of a graph, in microseconds; it is longer because launching a graph has a cost.
pub const GRAPH_US: f64 = 200.0;
/// Duration of the device work that precedes the first samples, in microseconds.
pub const WARM_UP_US: f64 = 200_000.0;

/// Kind of launches that are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "command", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Launches that find none of their data in the cache: they cycle through copies of at least three times the cache
    /// size
    #[default]
    Cold,
    /// Launches on the same data every time
    Hot,
    /// Launches over the copies in one graph, so that no host or driver overhead is in the time
    Graph,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Cold => "cold",
            Mode::Hot => "hot",
            Mode::Graph => "graph",
        })
    }
}

/// Times of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Mode of the times.
    pub mode: Mode,
    /// Time per launch in microseconds, one value per accepted sample, in the order in which the samples were taken.
    pub samples_us: Vec<f64>,
    /// SM clock at each sample, in MHz; empty if it cannot be read.
    pub clocks_mhz: Vec<u32>,
    /// Number of samples that were rejected because the clock was low.
    pub rejected: u32,
    /// True if the times may come from a throttled device, because the clock stayed low or the driver reported low
    /// clocks due to heat or a power supply fault.
    pub throttled: bool,
    /// Number of launches between the events of a sample.
    pub launches_per_sample: u32,
    /// Reason why sampling stopped.
    pub stop: StopReason,
}

impl Timing {
    /// Returns the percentiles of [`Self::samples_us`], or `None` if there are no samples.
    pub fn summary(&self) -> Option<Summary> {
        summarize(&self.samples_us)
    }

    /// Returns the 95 % confidence interval of the median, or `None` if there are too few samples. Each call computes
    /// the interval anew, which takes about a millisecond for 100 samples.
    pub fn interval(&self) -> Option<Interval> {
        median_interval(&self.samples_us)
    }

    /// Returns a time that is impossible for a launch (zero, negative or not finite), if any.
    pub(crate) fn impossible(&self) -> Option<f64> {
        self.samples_us.iter().copied().find(|us| !(us.is_finite() && *us > 0.0))
    }

    /// Merges another timing into this one.
    pub(crate) fn add(&mut self, more: Timing) {
        // The clock readings are kept only if every sample has one.
        if self.clocks_mhz.len() == self.samples_us.len() && more.clocks_mhz.len() == more.samples_us.len() {
            self.clocks_mhz.extend(more.clocks_mhz);
        } else {
            self.clocks_mhz.clear();
        }
        self.samples_us.extend(more.samples_us);
        self.rejected += more.rejected;
        self.throttled |= more.throttled;
        self.stop = more.stop;
    }
}
