//! Measured peaks of the device. Probes are interleaved with the kernels, so that the "percent of the roofline" refers
//! to a measured peak.
//!
//! A probe is timed at the start and at the end of every case, and after every [`EVERY`] configurations in between,
//! always in [`Mode::Cold`]. Probes with which no record is compared are not timed.

use warpsmith_runtime::Stream;

use crate::benchmark::{Probe, Suite, Work};
use crate::document::ProbeResult;
use crate::error::Result;
use crate::measure::{Effort, Mode, Stopwatch};
use crate::stats::summarize;

/// Number of configurations between two timings of a probe.
pub const EVERY: usize = 8;

/// Probes of a run and their results.
pub struct Probes {
    all: Vec<Measured>,
    /// Results of probes that have been freed.
    before: Vec<ProbeResult>,
}

struct Measured {
    probe: Probe,
    /// All samples, in microseconds.
    samples: Vec<f64>,
    /// Median of the latest samples.
    latest_us: Option<f64>,
    /// Number of launches per sample.
    launches: Option<u32>,
}

impl Probes {
    /// Returns an empty set of probes, so that nothing is compared.
    pub fn none() -> Self {
        Self { all: Vec::new(), before: Vec::new() }
    }

    /// Creates the probes of a suite.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    pub fn new(suite: &Suite, stream: &Stream) -> Result<Self> {
        let measured = |probe| Measured { probe, samples: Vec::new(), latest_us: None, launches: None };
        Ok(Self { all: (suite.probes)(stream)?.into_iter().map(measured).collect(), before: Vec::new() })
    }

    /// Frees the memory of the probes and keeps the results obtained so far. Returns false if there were no probes.
    pub fn release(&mut self) -> bool {
        let had_any = !self.all.is_empty();
        self.before = self.results();
        self.all.clear();
        had_any
    }

    /// Times the probes with which launches of `work` are compared.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    pub fn time(&mut self, work: &Work, stopwatch: &mut Stopwatch, effort: Effort) -> Result<()> {
        let effort = Effort { minimum: effort.minimum.min(5), most: effort.most.min(10), ..effort };
        for measured in self.all.iter_mut().filter(|measured| stands_for(&measured.probe, work)) {
            let Probe { case, configuration, .. } = &mut measured.probe;
            let effort = Effort { launches: measured.launches, ..effort };
            let timing = stopwatch.time(&mut **case, configuration, Mode::Cold, effort)?;
            measured.launches.get_or_insert(timing.launches_per_sample);
            measured.latest_us = summarize(&timing.samples_us).map(|summary| summary.median);
            measured.samples.extend(timing.samples_us);
        }
        Ok(())
    }

    /// Returns the time, in microseconds, that the probes would need for `work`, according to their latest timings. It
    /// is the larger of the times for moving its bytes and for computing its operations.
    pub fn limit_us(&self, work: &Work) -> Option<f64> {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let limits = self.all.iter().filter(|measured| stands_for(&measured.probe, work));
        let limits = limits.filter_map(|measured| {
            let Probe { work: own, .. } = &measured.probe;
            let times = share(work.bytes, own.bytes).max(share(work.flops, own.flops));
            Some(measured.latest_us? * times)
        });
        limits.max_by(f64::total_cmp).filter(|us| *us > 0.0)
    }

    /// Returns the results of the probes that have been timed.
    pub fn results(&self) -> Vec<ProbeResult> {
        let result = |measured: &Measured| {
            let summary = summarize(&measured.samples)?;
            let Probe { name, work, .. } = &measured.probe;
            Some(ProbeResult {
                name: (*name).to_owned(),
                gbps: work.bytes as f64 / summary.median / 1e3,
                gflops: work.flops as f64 / summary.median / 1e3,
                samples: summary.count,
            })
        };
        self.before.iter().cloned().chain(self.all.iter().filter_map(result)).collect()
    }
}

/// Returns true if launches of `work` are compared with this probe. Kernels that write almost nothing are compared with
/// the read probe, and other kernels that move data with the copy probe. Kernels that declare operations are compared
/// with the FMA probe.
fn stands_for(probe: &Probe, work: &Work) -> bool {
    if probe.work.flops > 0 {
        return work.flops > 0;
    }
    let only_reads = |work: &Work| work.spare.saturating_mul(16) < work.bytes;
    work.bytes > 0 && only_reads(&probe.work) == only_reads(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::value::Configuration;
    use crate::verify::Check;

    struct Nothing;

    impl Case for Nothing {
        fn copies(&self) -> usize {
            1
        }
        fn select(&mut self, _: &Configuration) -> Result<()> {
            Ok(())
        }
        fn launch(&mut self, _: usize) -> Result<()> {
            Ok(())
        }
        fn check(&mut self) -> Result<Check> {
            unreachable!("probes are not checked here")
        }
    }

    fn probes() -> Probes {
        let probe = |name, work, latest_us| Measured {
            probe: Probe { name, work, configuration: Configuration::default(), case: Box::new(Nothing) },
            samples: vec![latest_us],
            latest_us: Some(latest_us),
            launches: None,
        };
        let moves = |bytes, spare| Work { bytes, spare, ..Work::default() };
        Probes {
            before: Vec::new(),
            all: vec![
                probe("copy", moves(8000, 4000), 2.0),
                probe("read", moves(4000, 0), 0.5),
                probe("fma", Work { flops: 1000, ..Work::default() }, 4.0),
            ],
        }
    }

    #[test]
    fn limits_are_probes_scaled_to_the_work() {
        let work = |bytes, spare, flops| Work { bytes, spare, flops, ..Work::default() };
        let probes = probes();
        assert_eq!(probes.limit_us(&work(16_000, 8000, 0)), Some(4.0));
        assert_eq!(probes.limit_us(&work(16_000, 4, 0)), Some(2.0), "a reduction reads");
        assert_eq!(probes.limit_us(&work(8000, 4000, 250)), Some(2.0), "bound by memory");
        assert_eq!(probes.limit_us(&work(8000, 4000, 5000)), Some(20.0), "bound by computing");
        assert_eq!(probes.limit_us(&Work::default()), None);
        assert_eq!(Probes::none().limit_us(&work(8000, 4000, 0)), None);
    }

    #[test]
    fn results_say_what_was_reached() {
        let results = probes().results();
        let named = |name: &str| results.iter().find(|result| result.name == name).unwrap();
        assert_eq!((named("copy").gbps, named("copy").gflops), (4.0, 0.0));
        assert_eq!((named("fma").gbps, named("fma").gflops), (0.0, 0.25));
    }
}
