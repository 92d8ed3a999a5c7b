//! Driver calls for streams, events and host functions.

use std::sync::Arc;

use super::EmulatedDriver;
use super::action::Action;
use super::capture::NOTHING_RUNS;
use super::control::{Call, driver_error};
use super::shared_event::SharedEvent;
use super::simulated::Timeline;
use super::stream::{EventState, Mark, Newest, Queue, Work};
use super::touched::Touched;
use warpsmith_driver::activity::ActivityWait;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::host_function::HostCall;
use warpsmith_driver::{
    Context, EventHandle, HostFunction, HostWork, IPC_EVENT_BYTES, StreamDriver, StreamHandle,
};

/// Bounds of the priority range, as on current GPUs.
const LEAST_URGENT: i32 = 0;
const MOST_URGENT: i32 = -5;

/// Reason why an interprocess event cannot be captured.
const OF_PROCESSES: &str = "an interprocess event cannot be recorded or awaited in a graph";

impl EmulatedDriver {
    /// Registers an interprocess event. A stepped driver does not support such events, because it cannot wait for other
    /// processes.
    fn shared_event(&self, call: Call, event: std::io::Result<SharedEvent>) -> Result<EventHandle> {
        let refused = |code, text: String| Err(driver_error(call.name(), code, text));
        match event {
            Ok(_) if self.stepper.is_some() => refused(
                code::NOT_SUPPORTED,
                "a stepped driver does not support interprocess events".to_owned(),
            ),
            Ok(event) => Ok(EventHandle(self.events.insert(Arc::new(EventState::of_processes(event))))),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                refused(code::NOT_SUPPORTED, error.to_string())
            }
            Err(error) => refused(code::INVALID_VALUE, error.to_string()),
        }
    }
}

// SAFETY: as for `Driver`.
unsafe impl StreamDriver for EmulatedDriver {
    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)> {
        self.enter(Call::StreamPriorities, context).map(|_| (LEAST_URGENT, MOST_URGENT))
    }

    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle> {
        let _called = self.called_aside(Call::StreamCreate);
        let handle = context;
        let context = self.enter(Call::StreamCreate, context)?;
        let priority = priority.clamp(MOST_URGENT, LEAST_URGENT);
        let (own, control, stepper) = (Arc::clone(&context), Arc::clone(&self.control), self.stepper.clone());
        let (timeline, races) =
            (Timeline::new(self.time.clone(), Arc::clone(&self.recorder)), Arc::clone(&self.races));
        let queue = Queue::new(own, control, priority, timeline, stepper, races);
        context.add_stream(&queue);
        Ok(self.add_stream(handle, queue))
    }

    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64> {
        let context = self.enter(Call::StreamUniqueId, context)?;
        self.stream_of(Call::StreamUniqueId, &context, stream)?;
        // Handles are never reused, so they are unique.
        Ok(stream.0)
    }

    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32> {
        let context = self.enter(Call::StreamPriority, context)?;
        Ok(self.stream_of(Call::StreamPriority, &context, stream)?.priority())
    }

    unsafe fn stream_destroy(&self, _context: Context, stream: StreamHandle) {
        // A failure cannot be reported. A host function must not destroy a stream, because the call would wait for that
        // function.
        if self.control.enter_to_wait(Call::StreamDestroy).is_err() {
            return;
        }
        if let Some(queue) = self.streams.remove(stream.0) {
            self.captures.stream_destroyed(stream.0);
            self.races.stream_destroyed(stream.0);
            queue.close();
        }
    }

    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool> {
        let _called = self.called_aside(Call::StreamQuery);
        let context = self.enter(Call::StreamQuery, context)?;
        self.captures.refuse(Call::StreamQuery, stream.0, NOTHING_RUNS)?;
        let enqueued = self.races.of_stream(stream.0);
        let idle = self.streams.get(Call::StreamQuery, stream.0)?.is_idle();
        self.races.host_saw(enqueued.as_ref().filter(|_| idle));
        if idle {
            // A kernel may have made the context unusable since the call started, in which case the remaining work was
            // skipped.
            context.check(Call::StreamQuery.name())?;
        }
        Ok(idle)
    }

    fn stream_synchronize(&self, _context: Context, stream: StreamHandle) -> Result<()> {
        let _called = self.called(Call::StreamSynchronize);
        let ordered = self.control.enter_to_wait(Call::StreamSynchronize)?;
        let queue = self.streams.get(Call::StreamSynchronize, stream.0)?;
        self.captures.refuse(Call::StreamSynchronize, stream.0, NOTHING_RUNS)?;
        let enqueued = self.races.of_stream(stream.0);
        let place = (queue.context().ordinal, queue.number());
        self.host_waits(ActivityWait::HostForStream, place, || {
            let waited = queue.wait(Call::StreamSynchronize);
            self.waited_until(queue.simulated_us());
            waited
        })?;
        self.races.host_saw(enqueued.as_ref());
        ordered?;
        queue.context().inspect();
        queue.context().check(Call::StreamSynchronize.name())
    }

    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let _called = self.called(Call::StreamWaitEvent);
        let (call, skip) = (Call::StreamWaitEvent, self.control.skips_wait());
        self.enter(call, context)?;
        let event = self.events.get(call, event.0)?;
        if let Some(shared) = event.shared() {
            self.captures.refuse(call, stream.0, OF_PROCESSES)?;
            let (shared, last) = (Arc::clone(shared), event.shared().map_or(0, |shared| shared.last()));
            let wait = Work::Host(HostCall::new(Box::new(move || shared.wait(last))));
            return self.push(call, stream, wait, Touched::new());
        }
        let newest = event.newest();
        if skip || self.captures_wait(call, stream, &newest)? {
            return Ok(());
        }
        match newest {
            Newest::Mark(mark) => self.push(call, stream, Work::Wait(mark), Touched::new()),
            Newest::Never | Newest::Captured(_) => Ok(()),
        }
    }

    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()> {
        let _called = self.called(Call::HostFunction);
        self.enter(Call::HostFunction, context)?;
        let work = Work::Host(HostCall::new(function));
        self.push(Call::HostFunction, stream, work, Touched::new())
    }

    unsafe fn host_work(&self, context: Context, stream: StreamHandle, work: HostWork) -> Result<()> {
        let _called = self.called(Call::HostWork);
        let context = self.enter(Call::HostWork, context)?;
        let touched = self.check_uses(Call::HostWork, &context, work.uses())?;
        self.push(Call::HostWork, stream, Work::Act(Action::HostWork(Arc::new(work))), touched)
    }

    fn event_create(&self, context: Context, _timing: bool) -> Result<EventHandle> {
        let _called = self.called_aside(Call::EventCreate);
        self.enter(Call::EventCreate, context)?;
        Ok(EventHandle(self.events.insert(Arc::default())))
    }

    unsafe fn event_destroy(&self, _context: Context, event: EventHandle) {
        // A failure cannot be reported. A host function must not destroy events.
        if self.control.enter_to_wait(Call::EventDestroy).is_err() {
            return;
        }
        self.events.remove(event.0);
    }

    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let _called = self.called(Call::EventRecord);
        self.enter(Call::EventRecord, context)?;
        let event = self.events.get(Call::EventRecord, event.0)?;
        if let Some(shared) = event.shared() {
            self.captures.refuse(Call::EventRecord, stream.0, OF_PROCESSES)?;
            let reaching = shared.record();
            // The recording is also reached if the stream skips or rejects the work.
            let reach = Work::Host(HostCall::new(Box::new(move || drop(reaching))));
            return self.push(Call::EventRecord, stream, reach, Touched::new());
        }
        if let Some(captured) = self.captures.record(Call::EventRecord, stream.0)? {
            event.set_newest(Newest::Captured(captured));
            return Ok(());
        }
        let mark = Arc::new(Mark::of_stream(stream.0 as u32));
        // If another thread starts a capture from here on, the capture starts after the recording.
        let (queue, record) =
            (self.streams.get(Call::EventRecord, stream.0)?, Work::Record(Arc::clone(&mark)));
        self.push_to_run(Call::EventRecord, stream, &queue, record, Touched::new())?;
        // The recording must not be set earlier, because waits for work that is not enqueued would never end.
        event.set_newest(Newest::Mark(mark));
        Ok(())
    }

    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool> {
        let _called = self.called_aside(Call::EventQuery);
        let context = self.enter(Call::EventQuery, context)?;
        if let Some(shared) = self.events.get(Call::EventQuery, event.0)?.shared() {
            return Ok(shared.is_reached(shared.last()));
        }
        let Some(mark) = self.newest_mark(Call::EventQuery, event)? else { return Ok(true) };
        let reached = mark.time().is_some();
        self.races.host_saw(mark.clock().filter(|_| reached));
        if reached {
            // As in `stream_query`, a kernel may have made the context unusable in the meantime.
            context.check(Call::EventQuery.name())?;
        }
        Ok(reached)
    }

    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()> {
        let _called = self.called(Call::EventSynchronize);
        let ordered = self.control.enter_to_wait(Call::EventSynchronize)?;
        if let Some(shared) = self.events.get(Call::EventSynchronize, event.0)?.shared() {
            shared.wait(shared.last());
        } else if let Some(mark) = self.newest_mark(Call::EventSynchronize, event)? {
            let place = (self.contexts.get(Call::EventSynchronize, context.0)?.ordinal, mark.stream());
            self.host_waits(ActivityWait::HostForEvent, place, || {
                if let Some(stepper) = &self.stepper {
                    stepper.run_until(Call::EventSynchronize, || mark.time().is_some())?;
                }
                self.waited_until(mark.wait().simulated_us);
                Ok(())
            })?;
            self.races.host_saw(mark.clock());
        }
        ordered?;
        let context = self.contexts.get(Call::EventSynchronize, context.0)?;
        context.inspect();
        context.check(Call::EventSynchronize.name())
    }

    fn event_create_shared(&self, context: Context) -> Result<EventHandle> {
        let _called = self.called_aside(Call::EventCreateShared);
        self.enter(Call::EventCreateShared, context)?;
        self.shared_event(Call::EventCreateShared, SharedEvent::create())
    }

    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; IPC_EVENT_BYTES]> {
        let _called = self.called_aside(Call::EventExport);
        self.enter(Call::EventExport, context)?;
        let event = self.events.get(Call::EventExport, event.0)?;
        let text = "the event was not created as an interprocess event";
        let refused = || driver_error(Call::EventExport.name(), code::INVALID_VALUE, text);
        Ok(event.shared().ok_or_else(refused)?.handle())
    }

    fn event_import(&self, context: Context, event: &[u8; IPC_EVENT_BYTES]) -> Result<EventHandle> {
        let _called = self.called_aside(Call::EventImport);
        self.enter(Call::EventImport, context)?;
        self.shared_event(Call::EventImport, SharedEvent::open(event))
    }

    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64> {
        let _called = self.called_aside(Call::EventElapsed);
        self.enter(Call::EventElapsed, context)?;
        let time = |event: EventHandle| {
            let missing = || driver_error("event_elapsed", code::NOT_READY, "an event has not completed");
            let newest = self.newest_mark(Call::EventElapsed, event)?;
            newest.and_then(|mark| mark.time()).ok_or_else(missing)
        };
        let (start, end) = (time(start)?, time(end)?);
        Ok(match self.time {
            Some(_) => end.simulated_us - start.simulated_us,
            None => end.us_since(start),
        })
    }
}
