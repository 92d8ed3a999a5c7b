//! [`Schedule`]: selects the steps of a loop that are recorded.

use warpsmith_runtime::ranges::{Range, range};
use warpsmith_trace::Trace;

use crate::error::{ProfilerError, Result};
use crate::options::ProfilerOptions;
use crate::profiler::Profiler;

/// Selects which steps of a loop are recorded, as in PyTorch's `torch.profiler.schedule`.
///
/// The schedule skips the first steps and then runs in cycles. Each cycle consists of steps that are not recorded,
/// warm-up steps that are recorded and then discarded (they absorb one-time costs), and steps that are recorded and
/// kept. Each kept step becomes a range, for example `ProfilerStep#7`.
///
/// ```
/// use warpsmith_profiler::{ProfilerOptions, Schedule};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let mut x = DeviceBuffer::<f32>::zeros(&device.default_stream(), 1000)?;
/// let schedule = Schedule { skip: 1, wait: 1, warm_up: 1, record: 2, repeat: 1 };
/// let mut steps = schedule.start(ProfilerOptions::default(), |trace, cycle| {
///     println!("cycle {cycle}:\n{}", trace.summary().text(10));
///     assert_eq!(trace.transfers.len(), 2);
/// })?;
/// for _ in 0..8 {
///     device.default_stream().memset(&mut x, 0)?;
///     steps.step()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Number of steps at the start of the loop that do not belong to a cycle.
    pub skip: u64,
    /// Number of steps at the start of each cycle that are not recorded.
    pub wait: u64,
    /// Number of steps, after the `wait` steps, that are recorded and discarded.
    pub warm_up: u64,
    /// Number of steps, after the `warm_up` steps, that are recorded and kept; at least 1.
    pub record: u64,
    /// Number of cycles; 0 means no limit.
    pub repeat: u64,
}

impl Default for Schedule {
    /// Returns the default schedule, which discards the first step and keeps the second.
    fn default() -> Self {
        Self { skip: 0, wait: 0, warm_up: 1, record: 1, repeat: 1 }
    }
}

/// Phase of a step within its cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Off,
    WarmUp,
    Record,
}

impl Schedule {
    /// Starts the schedule at step 0 of the loop. At the end of the last step of each cycle, `handler` is called with
    /// the trace and the zero-based index of the cycle.
    ///
    /// # Errors
    /// Returns [`ProfilerError::EmptySchedule`], or the same errors as [`Profiler::start`].
    pub fn start<H: FnMut(Trace, u64)>(self, options: ProfilerOptions, handler: H) -> Result<Scheduled<H>> {
        if self.record == 0 {
            return Err(ProfilerError::EmptySchedule.into());
        }
        let mut scheduled =
            Scheduled { schedule: self, options, handler, step: 0, profiler: None, range: None };
        scheduled.enter(Phase::Off)?;
        Ok(scheduled)
    }

    fn cycle(&self) -> u64 {
        self.wait.saturating_add(self.warm_up).saturating_add(self.record)
    }

    /// Returns the phase and the cycle of a step.
    fn phase(&self, step: u64) -> (Phase, u64) {
        let Some(step) = step.checked_sub(self.skip) else { return (Phase::Off, 0) };
        let (cycle, at) = (step / self.cycle(), step % self.cycle());
        let phase = match at {
            _ if self.repeat > 0 && cycle >= self.repeat => Phase::Off,
            at if at < self.wait => Phase::Off,
            at if at < self.wait.saturating_add(self.warm_up) => Phase::WarmUp,
            _ => Phase::Record,
        };
        (phase, cycle)
    }
}

/// Loop that a [`Schedule`] records. If it is dropped within a cycle, the handler is called with the steps of this
/// cycle that have been kept so far.
#[must_use = "it stops when it is dropped"]
pub struct Scheduled<H: FnMut(Trace, u64)> {
    schedule: Schedule,
    options: ProfilerOptions,
    handler: H,
    step: u64,
    profiler: Option<Profiler>,
    /// Range of the current step.
    range: Option<Range>,
}

impl<H: FnMut(Trace, u64)> Scheduled<H> {
    /// Ends the current step of the loop. After the last step of a cycle, waits for the devices and calls the handler.
    ///
    /// # Errors
    /// Returns the same errors as [`Profiler::start`] and [`Profiler::stop`]. After an error, the loop can continue,
    /// and later cycles are still recorded.
    pub fn step(&mut self) -> Result<()> {
        let (before, cycle) = self.schedule.phase(self.step);
        let is_same_cycle = self.schedule.phase(self.step + 1).1 == cycle;
        self.range = None;
        self.step += 1;
        let (phase, _) = self.schedule.phase(self.step);
        if before == Phase::Record && !(phase == Phase::Record && is_same_cycle) {
            self.end_cycle(cycle)?;
            return self.enter(Phase::Off);
        }
        self.enter(before)
    }

    /// Returns the zero-based index of the current step.
    pub fn current_step(&self) -> u64 {
        self.step
    }

    /// Starts a step. `before` is the phase of the preceding step.
    fn enter(&mut self, before: Phase) -> Result<()> {
        let (phase, _) = self.schedule.phase(self.step);
        match (before, phase) {
            (Phase::Off, Phase::WarmUp) => self.profiler = Some(Profiler::start(self.options.clone())?),
            (Phase::WarmUp, Phase::Record) | (Phase::Off, Phase::Record) => {
                // The records of the warm-up are discarded together with their profiler.
                if let Some(warm_up) = self.profiler.take() {
                    warm_up.stop()?;
                }
                self.profiler = Some(Profiler::start(self.options.clone())?);
            }
            _ => {}
        }
        if phase == Phase::Record {
            self.range = Some(range!("ProfilerStep#{}", self.step));
        }
        Ok(())
    }

    fn end_cycle(&mut self, cycle: u64) -> Result<()> {
        let Some(profiler) = self.profiler.take() else { return Ok(()) };
        let trace = profiler.stop()?;
        (self.handler)(trace, cycle);
        Ok(())
    }
}

impl<H: FnMut(Trace, u64)> Drop for Scheduled<H> {
    fn drop(&mut self) {
        let (phase, cycle) = self.schedule.phase(self.step);
        self.range = None;
        if phase == Phase::Record
            && !std::thread::panicking()
            && let Err(error) = self.end_cycle(cycle)
        {
            tracing::error!("{error}");
        }
    }
}

impl<H: FnMut(Trace, u64)> std::fmt::Debug for Scheduled<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduled").field("schedule", &self.schedule).field("step", &self.step).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_follow_the_skipped_steps() {
        let schedule = Schedule { skip: 2, wait: 1, warm_up: 1, record: 2, repeat: 2 };
        let phases: Vec<(Phase, u64)> = (0..12).map(|step| schedule.phase(step)).collect();
        use Phase::{Off, Record, WarmUp};
        let cycle = |n| [(Off, n), (WarmUp, n), (Record, n), (Record, n)];
        let expected = [vec![(Off, 0); 2], cycle(0).to_vec(), cycle(1).to_vec(), vec![(Off, 2); 2]].concat();
        assert_eq!(phases, expected);
    }
}
