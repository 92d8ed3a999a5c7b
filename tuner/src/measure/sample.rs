//! Samples of one configuration: the launches between two events, depending on the mode.

use warpsmith_runtime::{Event, Graph, GraphExec};

use super::stopwatch::Stopwatch;
use super::{GRAPH_US, Mode, SHORT_US};
use crate::case::Case;
use crate::error::{Error, Result};

/// Maximum number of launches per sample. The driver's queue has space for about a thousand launches.
const MAX_LAUNCHES: u32 = 64;
/// Maximum number of launches per graph.
const MAX_IN_GRAPH: u32 = 1000;
/// Number of probe samples. The median of their launch times determines the number of launches per sample.
const PROBES: usize = 3;
/// If a sample would exceed its minimum duration by this factor, it uses fewer launches than other samples of its case.
const TOO_LONG: f64 = 10.0;

/// Sampling state of one configuration.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) mode: Mode,
    /// Number of launches per sample.
    pub(super) launches: u32,
    /// Approximate time of a launch, in microseconds.
    pub(super) once_us: f64,
    graph: Option<GraphExec>,
}

/// Events before and after a sample that was enqueued.
pub(super) type Begun = (Event, Event);

/// Result of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Total time of all launches in the sample, in microseconds.
    pub(super) total_us: f64,
    /// SM clock at the time of the sample.
    pub(super) mhz: Option<u32>,
}

impl Sampler {
    /// Creates a sampler for the selected configuration of the case, with `fixed` launches per sample if `fixed` is
    /// specified. Here and below, `copy` is the index of the next buffer copy of the case.
    pub(super) fn new(
        watch: &mut Stopwatch,
        case: &mut dyn Case,
        mode: Mode,
        fixed: Option<u32>,
        copy: &mut usize,
    ) -> Result<Self> {
        let probes = if watch.hides_the_host() {
            // The first launch of a kernel is not timed, because it loads the kernel's code onto the device.
            launch(case, 1, copy)?;
            4
        } else {
            1
        };
        let mut probe = Self { mode: Mode::Cold, launches: probes, once_us: SHORT_US, graph: None };
        let count = if watch.hides_the_host() && fixed.is_none() { PROBES } else { 1 };
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = probe.begin(watch, case, copy)?;
            times.push(watch.finish(begun)?.total_us / f64::from(probes));
        }
        times.sort_unstable_by(f64::total_cmp);
        let once_us = times[times.len() / 2];
        let to_last = |us: f64, most| ((us / once_us.max(0.1)).ceil() as u32).clamp(1, most);
        let (us, most) = match mode {
            Mode::Cold | Mode::Hot => (SHORT_US, MAX_LAUNCHES),
            Mode::Graph => (GRAPH_US, MAX_IN_GRAPH),
        };
        let launches = match fixed {
            Some(launches) => launches.clamp(1, to_last(TOO_LONG * us, u32::MAX)),
            None => to_last(us, most),
        };
        let graph = match mode {
            Mode::Graph => {
                let graph = Graph::capture::<Error>(watch.stream(), || {
                    launch(case, launches, copy)?;
                    Ok(())
                })?;
                let executable = graph.instantiate()?;
                executable.upload(watch.stream())?;
                Some(executable)
            }
            Mode::Cold | Mode::Hot => None,
        };
        Ok(Self { mode, launches, once_us, graph })
    }

    /// Returns the approximate duration of a sample in microseconds.
    pub(super) fn sample_us(&self) -> f64 {
        self.once_us * f64::from(self.launches)
    }

    /// Enqueues one untimed launch. This keeps the device busy while the first of several samples is enqueued, and puts
    /// the caches into the state that they have between samples.
    pub(super) fn lead(&mut self, watch: &Stopwatch, case: &mut dyn Case, copy: &mut usize) -> Result<()> {
        match &self.graph {
            Some(graph) => Ok(graph.launch(watch.stream())?),
            None if self.mode == Mode::Hot => case.launch(0),
            None => launch(case, 1, copy),
        }
    }

    /// Enqueues a sample.
    pub(super) fn begin(
        &mut self,
        watch: &mut Stopwatch,
        case: &mut dyn Case,
        copy: &mut usize,
    ) -> Result<Begun> {
        // The cover work also precedes every graph, so that all graphs start equally cold, regardless of the number of
        // launches in them.
        let short = self.launches > 1 || self.graph.is_some();
        if short && watch.cover()? {
            // The cover work has evicted everything from the cache, including the code of the kernel.
            match (&self.graph, self.mode) {
                (Some(_), _) => {}
                (None, Mode::Hot) => case.launch(0)?,
                (None, _) => launch(case, 1, copy)?,
            }
        }
        let start = watch.stream().record_timed_event()?;
        match (&self.graph, self.mode) {
            (Some(graph), _) => graph.launch(watch.stream())?,
            (None, Mode::Hot) => (0..self.launches).try_for_each(|_| case.launch(0))?,
            (None, _) => launch(case, self.launches, copy)?,
        }
        Ok((start, watch.stream().record_timed_event()?))
    }
}

/// Enqueues launches that cycle through the copies.
fn launch(case: &mut dyn Case, launches: u32, copy: &mut usize) -> Result<()> {
    for _ in 0..launches {
        case.launch(*copy % case.copies().max(1))?;
        *copy = copy.wrapping_add(1);
    }
    Ok(())
}
