//! Timing a configuration.
//!
//! Guarantees: times come from events on the device's own clock. Launches go round over the case's copies.
//! Samples are enqueued without waiting in between; a launch shorter than [`SHORT_US`] is repeated within a
//! sample, and on a GPU a large copy runs before each such sample, so that the launches are all queued by the
//! time the first starts and the host's speed does not show. (That copy also clears the cache.)

use serde::{Deserialize, Serialize};
use warpsmith_runtime::{Device, DeviceBuffer, Event, Stream};

use crate::case::Case;
use crate::error::Result;
use crate::stats::relative_uncertainty;
use crate::value::Configuration;

/// What a sample should last at least, in microseconds: an empty pair of events reads over 1 µs.
pub const SHORT_US: f64 = 20.0;
/// Most launches in a sample; the driver's queue holds about a thousand.
const MOST_LAUNCHES: u32 = 64;
/// Bytes of the copy that runs while short launches are queued: over 100 µs of work on the fastest GPUs.
const COVER_BYTES: u64 = 256 << 20;

/// When a configuration has been measured enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// At least so many samples, whatever they take.
    pub least: usize,
    /// At most so many.
    pub most: usize,
    /// No further samples once these took so many microseconds.
    pub budget_us: f64,
    /// No further samples once the median is known to this relative uncertainty.
    pub precision: f64,
}

impl Effort {
    /// The usual effort.
    pub const NORMAL: Effort = Effort { least: 5, most: 100, budget_us: 100_000.0, precision: 0.003 };
    /// A first look.
    pub const QUICK: Effort = Effort { least: 3, most: 20, budget_us: 20_000.0, precision: 0.01 };

    fn enough(&self, samples: &[f64], spent_us: f64) -> bool {
        let count = samples.len();
        count >= self.most
            || (count >= self.least
                && (spent_us >= self.budget_us || relative_uncertainty(samples) <= self.precision))
    }
}

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

/// What ended the sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The median is known precisely enough.
    Precision,
    /// More samples tell nothing new.
    Entropy,
    /// The most samples were taken.
    Samples,
    /// The time was spent.
    Budget,
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
    /// Whether the clock stayed low, so that these times are of a slowed device.
    pub throttled: bool,
    /// Launches between the events of a sample.
    pub launches_per_sample: u32,
    /// What ended the sampling.
    pub stop: StopReason,
}

/// Measures on one stream.
#[derive(Debug)]
pub struct Stopwatch {
    stream: Stream,
    /// Source and destination of the copy that covers the queueing of short launches; none on an emulated
    /// device, whose launches do not wait for the host.
    cover: Option<(DeviceBuffer<u8>, DeviceBuffer<u8>)>,
}

impl Stopwatch {
    /// Device memory that a stopwatch takes, in bytes, where `free` bytes are free.
    pub fn cover_bytes(device: &Device, free: u64) -> u64 {
        if device.is_emulated() { 0 } else { (2 * COVER_BYTES).min(free / 16) }
    }

    /// Makes one for work on `stream`.
    ///
    /// # Errors
    /// Whatever the runtime reports.
    pub fn new(stream: &Stream) -> Result<Self> {
        let free = stream.device().memory().available()?;
        let half = (Self::cover_bytes(stream.device(), free) / 2) as usize;
        let cover = match half {
            0 => None,
            _ => Some((DeviceBuffer::zeros(stream, half)?, DeviceBuffer::zeros(stream, half)?)),
        };
        Ok(Self { stream: stream.clone(), cover })
    }

    /// Keeps the device busy for about `us` microseconds with launches of `case`, so that the first
    /// measurement does not meet a cold device.
    ///
    /// # Errors
    /// Whatever the runtime reports.
    pub fn warm_up(&mut self, case: &mut dyn Case, us: f64) -> Result<()> {
        let started = std::time::Instant::now();
        while started.elapsed().as_secs_f64() * 1e6 < us {
            self.sample(case, 4, 0)?.1.synchronize()?;
        }
        Ok(())
    }

    /// Times a configuration of a case.
    ///
    /// # Errors
    /// Whatever the runtime reports.
    pub fn time(
        &mut self,
        case: &mut dyn Case,
        configuration: &Configuration,
        mode: Mode,
        effort: Effort,
    ) -> Result<Timing> {
        case.select(configuration)?;
        let probes = if self.stream.device().is_emulated() { 1 } else { 4 };
        let probe = self.sample(case, probes, 0)?;
        let once = elapsed(probe)? / f64::from(probes);
        let launches = if once >= SHORT_US {
            1
        } else {
            ((SHORT_US / once.max(0.1)).ceil() as u32).clamp(1, MOST_LAUNCHES)
        };
        let (mut samples, mut spent_us, mut copy) = (Vec::new(), 0.0, probes as usize);
        loop {
            let left_us = (effort.budget_us - spent_us).max(0.0);
            let affordable = (left_us / (once * f64::from(launches)).max(1.0)) as usize;
            let missing = effort.least.saturating_sub(samples.len());
            let batch = affordable.clamp(1, 10).max(missing).min(effort.most - samples.len());
            let mut pairs = Vec::with_capacity(batch);
            for _ in 0..batch {
                pairs.push(self.sample(case, launches, copy)?);
                copy += launches as usize;
            }
            for pair in pairs {
                let us = elapsed(pair)?;
                spent_us += us;
                samples.push(us / f64::from(launches));
            }
            if effort.enough(&samples, spent_us) {
                break;
            }
        }
        Ok(Timing {
            mode,
            samples_us: samples,
            clocks_mhz: Vec::new(),
            rejected: 0,
            throttled: false,
            launches_per_sample: launches,
            stop: StopReason::Samples,
        })
    }

    fn sample(&mut self, case: &mut dyn Case, launches: u32, copy: usize) -> Result<(Event, Event)> {
        if let (Some((from, to)), true) = (&mut self.cover, launches > 1) {
            to.copy_from(&*from)?;
        }
        let start = self.stream.record_timed_event()?;
        for launch in 0..launches as usize {
            case.launch((copy + launch) % case.copies())?;
        }
        Ok((start, self.stream.record_timed_event()?))
    }
}

fn elapsed((start, end): (Event, Event)) -> Result<f64> {
    end.synchronize()?;
    Ok(end.elapsed_us(&start)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Check;
    use std::time::Duration;

    /// Launches that take a while on the host, and where they went.
    struct Recorder {
        stream: Stream,
        launches: Vec<usize>,
        takes: Duration,
    }

    impl Case for Recorder {
        fn copies(&self) -> usize {
            3
        }

        fn select(&mut self, _: &Configuration) -> Result<()> {
            Ok(())
        }

        fn launch(&mut self, copy: usize) -> Result<()> {
            self.launches.push(copy);
            // Work enqueued before this point must not hide the time.
            self.stream.synchronize()?;
            std::thread::sleep(self.takes);
            Ok(())
        }

        fn check(&mut self) -> Result<Check> {
            unreachable!("timing checks nothing")
        }
    }

    fn time(takes: Duration, effort: Effort) -> (Timing, Vec<usize>) {
        let stream = Stream::new(&Device::open("cpu").unwrap()).unwrap();
        let mut case = Recorder { stream: stream.clone(), launches: Vec::new(), takes };
        let timing = Stopwatch::new(&stream)
            .unwrap()
            .time(&mut case, &Configuration::default(), Mode::Cold, effort)
            .unwrap();
        (timing, case.launches)
    }

    #[test]
    fn times_are_those_between_the_events_and_launches_go_round() {
        let effort = Effort { least: 4, most: 6, budget_us: 1e9, precision: 0.0 };
        let (timing, launches) = time(Duration::from_millis(2), effort);
        assert_eq!((timing.samples_us.len(), timing.launches_per_sample), (6, 1));
        assert!(timing.samples_us.iter().all(|us| *us >= 1900.0), "{timing:?}");
        assert_eq!(launches, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_budget_ends_sampling_but_not_before_the_least_samples() {
        let effort = Effort { least: 3, most: 1000, budget_us: 1.0, precision: 0.0 };
        let (timing, _) = time(Duration::from_millis(1), effort);
        assert_eq!(timing.samples_us.len(), 3);
    }

    #[test]
    fn the_covering_copy_is_not_in_the_times() {
        let stream = Stream::new(&Device::open("cpu").unwrap()).unwrap();
        let bytes = 64 << 20;
        let from = DeviceBuffer::from_host(&stream, &vec![7u8; bytes]).unwrap();
        let to = DeviceBuffer::zeros(&stream, bytes).unwrap();
        let mut stopwatch = Stopwatch { stream: stream.clone(), cover: Some((from, to)) };
        let mut case = Recorder { stream, launches: Vec::new(), takes: Duration::ZERO };
        let with_cover = elapsed(stopwatch.sample(&mut case, 2, 5).unwrap()).unwrap();
        stopwatch.sample(&mut case, 1, 0).unwrap();
        let before = case.stream.record_timed_event().unwrap();
        let (from, to) = stopwatch.cover.as_mut().unwrap();
        to.copy_from(&*from).unwrap();
        let copying = elapsed((before, case.stream.record_timed_event().unwrap())).unwrap();
        assert!(with_cover < copying / 2.0, "{with_cover} us, the copy alone {copying} us");
        assert_eq!(case.launches, [2, 0, 0]);
        assert_eq!(stopwatch.cover.unwrap().1.to_host().unwrap(), vec![7u8; bytes]);
    }

    #[test]
    fn short_launches_share_a_sample() {
        let effort = Effort { least: 3, most: 5, budget_us: 1e9, precision: 0.0 };
        let (timing, launches) = time(Duration::ZERO, effort);
        assert_eq!(launches.len(), 1 + timing.samples_us.len() * timing.launches_per_sample as usize);
        assert!((1..=MOST_LAUNCHES).contains(&timing.launches_per_sample));
    }
}
