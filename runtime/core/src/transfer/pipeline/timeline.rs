//! [`ItemTimes`]: when each stage of an item ran, by timed events on the device's clock.

use std::ops::Range;

use crate::error::Result;
use crate::event::Event;
use crate::stream::Stream;

/// When the stages of one item ran: microseconds on the device's clock since the run's first copy was about to start.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemTimes {
    /// The item's number, from 0.
    pub item: usize,
    /// Its copy to the device.
    pub copy_in: Range<f64>,
    /// The work enqueued by `compute`.
    pub compute: Range<f64>,
    /// The copy of its results.
    pub copy_out: Range<f64>,
}

/// The events around one stage of an item, in the order in which they come.
#[derive(Debug)]
pub(super) struct Marks {
    start: Event,
    end: Event,
}

impl Marks {
    /// Does `work`, with a timed event before it and one behind it when `records`.
    pub fn around<R, E: From<crate::Error>>(
        records: bool,
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<(R, Option<Self>), E> {
        if !records {
            return Ok((work()?, None));
        }
        let start = stream.record_timed_event()?;
        let done = work()?;
        let end = stream.record_timed_event()?;
        Ok((done, Some(Self { start, end })))
    }

    pub fn end(&self) -> &Event {
        &self.end
    }

    /// Waits for the end, and returns both times in microseconds after `origin`.
    fn since(&self, origin: &Event) -> Result<Range<f64>> {
        self.end.synchronize()?;
        Ok(self.start.elapsed_us(origin)?..self.end.elapsed_us(origin)?)
    }
}

/// The marks of an item: of its copy in, its compute and its copy out.
pub(super) type ItemMarks = [Option<Marks>; 3];

/// The times that a run records.
#[derive(Debug)]
pub(super) struct Recorder<'p> {
    times: &'p mut Vec<ItemTimes>,
    origin: Option<Event>,
}

impl<'p> Recorder<'p> {
    pub fn new(times: &'p mut Vec<ItemTimes>) -> Self {
        times.clear();
        Self { times, origin: None }
    }

    /// Makes what is enqueued on `stream` from now on come after the origin. The first call sets the origin.
    pub fn start(&mut self, stream: &Stream) -> Result<()> {
        match &self.origin {
            Some(origin) => stream.wait_event(origin)?,
            None => self.origin = Some(stream.record_timed_event()?),
        }
        Ok(())
    }

    /// Notes the times of an item whose results have come. Nothing for one without marks.
    pub fn note(&mut self, item: usize, marks: &ItemMarks) -> Result<()> {
        if let (Some(origin), [Some(copy_in), Some(compute), Some(copy_out)]) = (&self.origin, marks) {
            self.times.push(ItemTimes {
                item,
                copy_in: copy_in.since(origin)?,
                compute: compute.since(origin)?,
                copy_out: copy_out.since(origin)?,
            });
        }
        Ok(())
    }
}
