//! Timing configurations.
//!
//! Guarantees: times come from events on the device's own clock and do not include the host's speed: every timed launch is
//! queued behind other work of the device. Launches cycle through the case's copies, or stay on one ([`Mode`]). A launch
//! shorter than [`SHORT_US`] is repeated within a sample, after one that is not timed: the work before it, which is another
//! configuration where samples are taken in turns, is in no time. The clock is read with every sample where the device
//! reports it, and a sample that a slowed device took is rejected and taken again ([`Guard`]); a timing at whose end the
//! driver reports a slowdown is throttled. Every [`Timing`] has the number of rejected samples and what ended the sampling.
//!
//! The interval of a timing does not cover what changes more slowly than its samples last, such as the temperature.
//! Compare two configurations by samples taken in turns ([`Stopwatch::interleave`]) and
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
use crate::stats::{Interval, Summary, median_interval, summarise};

/// The minimum duration of a sample, in microseconds: an empty pair of events reads over 1 µs, which is then no more
/// than about a hundredth of it, however many launches it is divided by.
pub const SHORT_US: f64 = 100.0;
/// The minimum duration of a graph, in microseconds: launching one takes some.
pub const GRAPH_US: f64 = 200.0;
/// How long a device works before the first of its samples, in microseconds.
pub const WARM_UP_US: f64 = 200_000.0;

/// The kind of launches that are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "command", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Launches that find none of their data in the cache: they cycle through copies of at least three times its size
    #[default]
    Cold,
    /// Launches on the same data again and again
    Hot,
    /// Launches over the copies in one graph, so that nothing of the host or the driver is in the time
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

/// The times of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The mode of the times.
    pub mode: Mode,
    /// Microseconds a launch, one for each accepted sample, in the order in which they were taken.
    pub samples_us: Vec<f64>,
    /// The clock of the multiprocessors at each of them in MHz; empty where it cannot be read.
    pub clocks_mhz: Vec<u32>,
    /// Samples that were thrown away because the clock was low.
    pub rejected: u32,
    /// Whether the clock stayed low, or the driver reported that heat or a fault of the power supply keeps it low, so
    /// that these times may be of a slowed device.
    pub throttled: bool,
    /// Launches between the events of a sample.
    pub launches_per_sample: u32,
    /// The reason why sampling ended.
    pub stop: StopReason,
}

impl Timing {
    /// Percentiles of [`Self::samples_us`]; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        summarise(&self.samples_us)
    }

    /// The 95 % confidence interval of the median; `None` for too few samples. It is computed anew at each call, which
    /// takes about a millisecond for 100 samples.
    pub fn interval(&self) -> Option<Interval> {
        median_interval(&self.samples_us)
    }

    /// A time that no launch takes: zero, negative or not finite.
    pub(crate) fn impossible(&self) -> Option<f64> {
        self.samples_us.iter().copied().find(|us| !(us.is_finite() && *us > 0.0))
    }

    /// Takes one more timing in.
    pub(crate) fn add(&mut self, more: Timing) {
        // Without a clock for each sample there is none for any.
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
