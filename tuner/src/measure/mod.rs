//! Timing configurations.
//!
//! Guarantees: times come from events on the device's own clock (those of [`Mode::Enqueue`] from the host's), and hold
//! nothing of the host's speed: every timed launch is queued behind other work of the device. Launches go round over
//! the case's copies, or stay on one ([`Mode`]). A launch shorter than [`SHORT_US`] is repeated within a sample, after one that
//! is not timed: what ran before, which is another configuration where samples are taken in turns, is in no time. Every
//! sample's clock is read where the device tells it, and a sample that a slowed device took is thrown away and taken
//! again ([`Guard`]); a timing at whose end the driver tells of a slowdown is said to be throttled; how many were, and what ended the sampling, is part of every [`Timing`].
//!
//! What the interval of a timing does not know of is what changes more slowly than its samples last, as the warmth of a
//! device. Two configurations are therefore to be compared by samples taken in turns ([`Stopwatch::interleave`]) and
//! [`paired_ratio`](crate::stats::paired_ratio).

mod clock;
mod rounds;
mod sample;
mod stop;
mod stopwatch;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::clock::Guard;
pub use self::rounds::Entrant;
pub use self::stop::{Effort, Rule, StopReason};
pub use self::stopwatch::Stopwatch;
use crate::stats::{Interval, Summary, median_interval, summarise};

/// What a sample should last at least, in microseconds: an empty pair of events reads over 1 µs, which is then no more than
/// about a hundredth of it, however many launches it is divided by.
pub const SHORT_US: f64 = 100.0;
/// What a graph should last at least, in microseconds: launching one takes some.
pub const GRAPH_US: f64 = 200.0;
/// How long a device works before the first of its samples, in microseconds.
pub const WARM_UP_US: f64 = 200_000.0;

/// What a time is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Launches that find none of their data in the cache: they go round over copies of at least three times its size.
    #[default]
    Cold,
    /// Launches on the same data again and again.
    Hot,
    /// Launches over the copies in one graph, so that nothing of the host or the driver is in the time.
    Graph,
    /// What the host pays to enqueue a launch.
    Enqueue,
}

/// The times of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// What the times are of.
    pub mode: Mode,
    /// Microseconds a launch, one for each accepted sample, in the order in which they were taken.
    pub samples_us: Vec<f64>,
    /// The clock of the multiprocessors at each of them in MHz; empty where it cannot be read.
    pub clocks_mhz: Vec<u32>,
    /// Samples that were thrown away because the clock was low.
    pub rejected: u32,
    /// Whether the clock stayed low, or the driver said that heat or a fault of the power supply keeps it low, so that
    /// these times may be of a slowed device.
    pub throttled: bool,
    /// Launches between the events of a sample.
    pub launches_per_sample: u32,
    /// What ended the sampling.
    pub stop: StopReason,
}

impl Timing {
    /// Percentiles; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        summarise(&self.samples_us)
    }

    /// The 95 % confidence interval of the median; `None` for too few samples. It is computed anew at each call, which
    /// takes about a millisecond for 100 samples.
    pub fn interval(&self) -> Option<Interval> {
        median_interval(&self.samples_us)
    }
}
