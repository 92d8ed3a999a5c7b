//! [`Schedule`]: some steps of a loop.

use warpsmith_runtime::ranges::{Range, range};
use warpsmith_trace::Trace;

use crate::error::{ProfilerError, Result};
use crate::options::ProfilerOptions;
use crate::profiler::Profiler;

/// Which steps of a loop are recorded, as in PyTorch's `torch.profiler.schedule`.
///
/// After the steps to skip, cycles follow: steps without recording, steps that are recorded and forgotten, so that what
/// happens once has happened, and steps that are kept. Each step that is kept is a range, `ProfilerStep#7`.
///
/// ```
/// use warpsmith_profiler::{ProfilerOptions, Schedule};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
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
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Steps at the beginning of the loop that belong to no cycle.
    pub skip: u64,
    /// Steps at the beginning of a cycle that are not recorded.
    pub wait: u64,
    /// Steps after `wait` that are recorded and discarded.
    pub warm_up: u64,
    /// Steps after `warm_up` that are recorded and kept, at least 1.
    pub record: u64,
    /// The number of cycles; 0 for no limit.
    pub repeat: u64,
}

impl Default for Schedule {
    /// Discards the first step, and keeps the second.
    fn default() -> Self {
        Self { skip: 0, wait: 0, warm_up: 1, record: 1, repeat: 1 }
    }
}

/// What is done in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Off,
    WarmUp,
    Record,
}

impl Schedule {
    /// Starts at step 0 of the loop. `handler` gets the trace of each cycle with its number, from 0, at the end of its last step.
    ///
    /// # Errors
    /// [`ProfilerError::EmptySchedule`]; as [`Profiler::start`].
    pub fn start<H: FnMut(Trace, u64)>(self, options: ProfilerOptions, handler: H) -> Result<Scheduled<H>> {
        if self.record == 0 {
            return Err(ProfilerError::EmptySchedule);
        }
        let mut scheduled =
            Scheduled { schedule: self, options, handler, step: 0, profiler: None, range: None };
        scheduled.enter(Phase::Off)?;
        Ok(scheduled)
    }

    fn cycle(&self) -> u64 {
        self.wait.saturating_add(self.warm_up).saturating_add(self.record)
    }

    /// What is done in a step, and in which cycle.
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

/// A loop that is recorded by a [`Schedule`]. When it is dropped, the handler gets what was kept of a cycle that has not ended.
#[must_use = "it stops when it is dropped"]
pub struct Scheduled<H: FnMut(Trace, u64)> {
    schedule: Schedule,
    options: ProfilerOptions,
    handler: H,
    step: u64,
    profiler: Option<Profiler>,
    /// The range of the step.
    range: Option<Range>,
}

impl<H: FnMut(Trace, u64)> Scheduled<H> {
    /// A step of the loop has ended. When it is the last of a cycle, this waits for the devices and calls the handler.
    ///
    /// # Errors
    /// As [`Profiler::start`] and [`Profiler::stop`]. The loop may go on; later cycles are recorded all the same.
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

    /// The number of the step, from 0.
    pub fn current_step(&self) -> u64 {
        self.step
    }

    /// Begins a step that comes after one of another phase, or of the same.
    fn enter(&mut self, before: Phase) -> Result<()> {
        let (phase, _) = self.schedule.phase(self.step);
        match (before, phase) {
            (Phase::Off, Phase::WarmUp) => self.profiler = Some(Profiler::start(self.options.clone())?),
            (Phase::WarmUp, Phase::Record) | (Phase::Off, Phase::Record) => {
                // What the warm-up recorded goes with its profiler.
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
