//! [`Run`]: one run of a pipeline, and what keeps it in order.
//!
//! Item `i` uses the buffers of slot `i % depth`. With a stream for each stage, four waits order it:
//!
//! | before | the stream waits for |
//! | --- | --- |
//! | its copy in | the compute of item `i - depth`, which read the input's buffer |
//! | its compute | its copy in, and the copy out of item `i - depth`, which read the output's buffer |
//! | its copy out | its compute |
//!
//! These waits are for events that were recorded right behind the work, so the buffers insert none. (A wait that a buffer
//! inserts is for an event that is recorded later, and includes the work that was enqueued meanwhile.) Copy in and compute
//! are enqueued before the host waits for item `i - depth`. Only the copy out needs the host, which has the page-locked
//! buffer until `take` returns.

use std::collections::VecDeque;

use super::failure::{Failure, PipelineError, Stage};
use super::timeline::{ItemMarks, Marks, Recorder};
use super::{Pipeline, Strategy};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;
use crate::transfer::{CopyFailed, HostMemory, Pending};

/// The buffers that items use in turn. Made when first needed.
struct Slot<T: DeviceCopy, U: DeviceCopy> {
    input: Option<DeviceBuffer<T>>,
    output: Option<DeviceBuffer<U>>,
    /// `None` between two items.
    host: Option<PinnedBuffer<U>>,
    /// Recorded behind the compute of the slot's last item.
    computed: Option<Event>,
}

/// An item of which everything is enqueued.
struct Flight<S, U: DeviceCopy> {
    item: usize,
    input: Pending<S>,
    output: Pending<PinnedBuffer<U>>,
    marks: ItemMarks,
}

/// One run. Dropping it before it has finished waits for what is enqueued.
pub(super) struct Run<'p, S: HostMemory, U: DeviceCopy> {
    device: &'p Device,
    strategy: Strategy,
    depth: usize,
    streams: &'p [Stream],
    slots: Vec<Slot<S::Element, U>>,
    /// Oldest first; at most one a slot.
    flights: VecDeque<Flight<S, U>>,
    /// The number of the next item.
    next: usize,
    recorder: Recorder<'p>,
    records: bool,
    finished: bool,
}

/// The first `len` elements of a buffer, which is made anew when it is too short.
fn room<'b, T: DeviceCopy>(
    buffer: &'b mut Option<DeviceBuffer<T>>,
    stream: &Stream,
    len: usize,
) -> Result<DeviceSliceMut<'b, T>> {
    let known = buffer.take().filter(|buffer| buffer.len() >= len);
    let known = match known {
        Some(known) => known,
        None => DeviceBuffer::uninit(stream, len)?,
    };
    Ok(buffer.insert(known).slice_mut(..len))
}

/// The last event behind a copy, so that what waits for it begins after the noted end.
fn behind<'e, H>(copy: &'e Pending<H>, marks: &'e Option<Marks>) -> &'e Event {
    marks.as_ref().map_or(copy.event(), Marks::end)
}

impl<'p, S: HostMemory, U: DeviceCopy> Run<'p, S, U> {
    pub fn new(pipeline: &'p mut Pipeline) -> Self {
        let Pipeline { device, strategy, depth, streams, records, timeline } = pipeline;
        Self {
            device,
            strategy: *strategy,
            depth: *depth,
            streams,
            slots: Vec::new(),
            flights: VecDeque::new(),
            next: 0,
            recorder: Recorder::new(timeline),
            records: *records,
            finished: false,
        }
    }

    /// The streams of an item's copy in, compute and copy out.
    fn lanes(&self, item: usize) -> [&'p Stream; 3] {
        match (self.strategy, self.streams) {
            (Strategy::StreamPerStage, [copy_in, compute, copy_out]) => [copy_in, compute, copy_out],
            (_, streams) => [&streams[item % streams.len()]; 3],
        }
    }

    /// A failure of an item. A device fault is found by the next query, so it is attributed to the first unfinished
    /// item.
    fn failed(&self, item: usize, stage: Stage, source: Failure) -> PipelineError {
        let found_on_device = match stage {
            Stage::CopyIn | Stage::Compute | Stage::CopyOut => self.device.is_lost(),
            Stage::Input | Stage::Take => source.downcast_ref().is_some_and(Error::is_device_lost),
        };
        if !found_on_device {
            return PipelineError { item, stage, source };
        }
        let oldest = self.flights.front().map(|oldest| oldest.item);
        let item = match stage {
            // It had all its results.
            Stage::Take => oldest.unwrap_or(self.next.saturating_sub(1)),
            _ => oldest.map_or(item, |oldest| oldest.min(item)),
        };
        PipelineError { item, stage: Stage::Compute, source }
    }

    /// Enqueues an item, and hands the one over whose page-locked buffer it needs.
    pub fn enqueue(
        &mut self,
        input: std::result::Result<S, Failure>,
        output_len: &mut impl FnMut(usize) -> usize,
        compute: &mut impl FnMut(
            &Stream,
            DeviceSlice<'_, S::Element>,
            DeviceSliceMut<'_, U>,
        ) -> std::result::Result<(), Failure>,
        take: &mut impl FnMut(usize, S, &mut PinnedBuffer<U>) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), PipelineError> {
        let (item, [copy_in, computing, copy_out]) = (self.next, self.lanes(self.next));
        let input = input.map_err(|source| self.failed(item, Stage::Input, source))?;
        self.next += 1;
        let (len, out) = (input.elements(), output_len(input.elements()));

        let (input, copied_in) = self
            .copy_in(item, copy_in, input)
            .map_err(|error| self.failed(item, Stage::CopyIn, error.into()))?;
        let ((), computed) = self
            .compute(item, computing, behind(&input, &copied_in), (len, out), compute)
            .map_err(|source| self.failed(item, Stage::Compute, source))?;
        if self.flights.len() == self.depth {
            self.hand_over(take)?;
        }
        let (output, copied_out) = self
            .copy_out(item, copy_out, out)
            .map_err(|error| self.failed(item, Stage::CopyOut, error.into()))?;
        self.flights.push_back(Flight { item, input, output, marks: [copied_in, computed, copied_out] });
        Ok(())
    }

    /// Whether each stage has a stream, so that events order them.
    fn staged(&self) -> bool {
        self.strategy == Strategy::StreamPerStage
    }

    fn slot(&mut self, item: usize) -> &mut Slot<S::Element, U> {
        let index = item % self.depth;
        if index == self.slots.len() {
            self.slots.push(Slot { input: None, output: None, host: None, computed: None });
        }
        &mut self.slots[index]
    }

    fn copy_in(&mut self, item: usize, stream: &Stream, input: S) -> Result<(Pending<S>, Option<Marks>)> {
        let (staged, records) = (self.staged(), self.records);
        // Later items come after earlier ones on the same stream.
        if records && item < self.streams.len() {
            self.recorder.start(stream)?;
        }
        let slot = self.slot(item);
        if let Some(computed) = slot.computed.as_ref().filter(|_| staged) {
            stream.wait_event(computed)?;
        }
        let target = room(&mut slot.input, stream, input.elements())?;
        Marks::around(records, stream, || Ok(stream.copy_from_host(input, target)?))
    }

    fn compute(
        &mut self,
        item: usize,
        stream: &Stream,
        copied: &Event,
        (len, out): (usize, usize),
        compute: &mut impl FnMut(
            &Stream,
            DeviceSlice<'_, S::Element>,
            DeviceSliceMut<'_, U>,
        ) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<((), Option<Marks>), Failure> {
        let (staged, records, device, depth) = (self.staged(), self.records, self.device, self.depth);
        if staged {
            stream.wait_event(copied)?;
            // The oldest is the one that had the slot before, if any had.
            if let Some(before) = self.flights.front().filter(|before| before.item + depth == item) {
                stream.wait_event(behind(&before.output, &before.marks[2]))?;
            }
        }
        let slot = self.slot(item);
        let input = slot.input.as_ref().map(|input| input.slice(..len));
        let input = input.unwrap_or_else(|| unreachable!("the item was copied there"));
        let output = room(&mut slot.output, stream, out)?;
        let done = Marks::around(records, stream, || {
            let _current = stream.guard();
            compute(stream, input, output)
        })?;
        if staged {
            let computed = match slot.computed.take() {
                Some(computed) => computed,
                None => Event::new(device)?,
            };
            computed.record(stream)?;
            slot.computed = Some(computed);
        }
        Ok(done)
    }

    fn copy_out(
        &mut self,
        item: usize,
        stream: &Stream,
        out: usize,
    ) -> Result<(Pending<PinnedBuffer<U>>, Option<Marks>)> {
        let (staged, records, device) = (self.staged(), self.records, self.device);
        let slot = self.slot(item);
        if let Some(computed) = slot.computed.as_ref().filter(|_| staged) {
            stream.wait_event(computed)?;
        }
        let target = match slot.host.take().filter(|host| host.len() == out) {
            Some(host) => host,
            // The copy overwrites all of it, and it is not read if the copy fails.
            None => PinnedBuffer::uninit(device, out)?,
        };
        let output = slot.output.as_ref().map(|output| output.slice(..out));
        let output = output.unwrap_or_else(|| unreachable!("the item was computed there"));
        Marks::around(records, stream, || Ok(stream.copy_to_host(output, target)?))
    }

    /// Waits for the oldest item and passes it to `take`.
    fn hand_over(
        &mut self,
        take: &mut impl FnMut(usize, S, &mut PinnedBuffer<U>) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), PipelineError> {
        let Some(Flight { item, input, output, marks }) = self.flights.pop_front() else { return Ok(()) };
        let arrived = output
            .wait()
            .map_err(CopyFailed::into)
            .and_then(|output| self.recorder.note(item, &marks).map(|()| output));
        let mut output = arrived.map_err(|error: Error| self.failed(item, Stage::CopyOut, error.into()))?;
        // The results exist, so this was read already.
        let input = input.wait().map_err(|failed| self.failed(item, Stage::CopyIn, failed.error.into()))?;
        take(item, input, &mut output).map_err(|source| self.failed(item, Stage::Take, source))?;
        self.slot(item).host = Some(output);
        Ok(())
    }

    /// Hands over what is left.
    pub fn finish(
        mut self,
        take: &mut impl FnMut(usize, S, &mut PinnedBuffer<U>) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), PipelineError> {
        while !self.flights.is_empty() {
            self.hand_over(take)?;
        }
        self.finished = true;
        Ok(())
    }
}

impl<S: HostMemory, U: DeviceCopy> Drop for Run<'_, S, U> {
    fn drop(&mut self) {
        if !self.finished {
            for stream in self.streams {
                // A run that failed reports its first failure only. Whatever the result, nothing runs afterwards.
                stream.wait_idle();
            }
        }
    }
}
