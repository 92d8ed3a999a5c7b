//! Recording from events: one before and one after each operation, where CUPTI cannot be used.
//!
//! The driver's methods that enqueue call [`Events::around`] while [`is_on`]; off, they pay one load. Times of events are
//! differences alone, so each context has a timeline: an event whose host time is known, renewed as clocks drift. Host times
//! are those at which the host saw the event, never earlier, so that no work begins before its call. Operations in a capture
//! get no events, and a graph is one record. Events are reused; when all wait for work, they are read where the work has run,
//! else the operation is not timed, and counted.
//!
//! The lock of a recording is held while events are read and while the sink is called, which calls no driver.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::activity::{
    Activity, ActivityLoss, ActivityPlace, ActivitySink, ActivityTransfer, ActivityWait, now, thread_number,
};
use crate::error::{Result, code};
use crate::{CaptureStatus, Context, Driver, EventHandle, FunctionHandle, LaunchConfig, StreamHandle};

/// Operations that wait to be read, at most.
const MOST_PENDING: usize = 1 << 14;
/// Bytes of memory for records for each of them.
const BYTES_PENDING: usize = 1 << 10;
/// Operations that are not timed, after one found little to read, before the next one looks.
const PAUSE: u32 = 64;
/// Which part of the operations is worth a look at all of them.
const WORTHWHILE: usize = 64;
/// How old a timeline's zero may become. Differences of events are 32-bit floats: over two seconds they are exact to 0.1 us.
const OLDEST_ZERO: Duration = Duration::from_secs(2);
/// How often the first zero of a timeline is measured, the best being kept, and how long a measurement may take.
const TRIES: u32 = 5;
const LONGEST_FIRST: Duration = Duration::from_secs(1);
/// How long later ones may take: an operation waits for them.
const LONGEST_LATER: Duration = Duration::from_micros(300);

/// Whether events record. Read before each operation.
static IS_ON: AtomicBool = AtomicBool::new(false);
static CURRENT: Mutex<Option<Arc<Events>>> = Mutex::new(None);

/// Whether events record. One load.
#[inline(always)]
pub(in super::super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Makes a recording the current one, or none. A forked child calls it with none, and must take no lock.
pub(super) fn set_current(events: Option<Arc<Events>>) {
    IS_ON.store(events.is_some(), Ordering::Relaxed);
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = events;
}

/// For a forked child: takes no lock, which a thread may have had that is not there.
pub(super) fn switch_off() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// The recording.
pub(super) fn current() -> Option<Arc<Events>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// An operation that enqueues work.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Work<'a> {
    Kernel(FunctionHandle, &'a LaunchConfig),
    Transfer(ActivityTransfer, usize),
    Graph,
}

/// What the driver knows of a kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct Described {
    pub symbol: String,
    pub registers: u32,
    pub static_shared: u32,
}

/// A driver's operation.
#[derive(Clone, Copy)]
pub(super) struct Operation<'a> {
    pub driver: &'a dyn Driver,
    /// The driver's function.
    pub function: &'static str,
    pub context: Context,
    /// The ordinal of the context's device.
    pub device: u32,
    pub stream: StreamHandle,
}

/// A recording.
pub(super) struct Events {
    sink: Arc<dyn ActivitySink>,
    describe: fn(FunctionHandle) -> Described,
    most: usize,
    correlation: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timelines: HashMap<Context, Timeline>,
    pending: Vec<Pending>,
    /// Operations without room until the next look for events that can be read.
    pause: u32,
    dropped: u64,
    has_ended: bool,
}

/// The time of a context.
struct Timeline {
    /// Where zeros are recorded.
    stream: StreamHandle,
    /// The last one, and those before it that operations still need.
    zeros: Vec<Arc<Zero>>,
    /// When the next one is due.
    due: Instant,
    free: Vec<EventHandle>,
}

/// An event whose host time is known.
struct Zero {
    event: EventHandle,
    host: u64,
}

/// An operation that was enqueued.
struct Pending {
    context: Context,
    zero: Arc<Zero>,
    events: [EventHandle; 2],
    /// When it was called: it did not begin before, though events are not that exact.
    called: u64,
    place: ActivityPlace,
    what: What,
}

/// What an operation is.
enum What {
    Kernel { described: Described, config: LaunchConfig },
    Transfer { kind: ActivityTransfer, bytes: u64 },
    Graph,
}

/// What an event that was recorded before the operation needs after it.
struct Begun {
    zero: Arc<Zero>,
    events: [EventHandle; 2],
    stream: u32,
    called: u64,
}

impl Timeline {
    fn new(driver: &dyn Driver, context: Context) -> Result<Self> {
        let stream = driver.stream_create(context, 0)?;
        let mut timeline = Self { stream, zeros: Vec::new(), due: Instant::now(), free: Vec::new() };
        let measured =
            (0..TRIES).map_while(|_| timeline.measure(driver, context, LONGEST_FIRST).ok().flatten());
        let mut measured: Vec<(Zero, u64)> = measured.collect();
        measured.sort_by_key(|(_, width)| *width);
        let mut measured = measured.into_iter().map(|(zero, _)| zero);
        timeline.zeros.extend(measured.next().map(Arc::new));
        timeline.free.extend(measured.map(|zero| zero.event));
        timeline.due = Instant::now() + OLDEST_ZERO;
        Ok(timeline)
    }

    fn event(&mut self, driver: &dyn Driver, context: Context) -> Result<EventHandle> {
        self.free.pop().map_or_else(|| driver.event_create(context, true), Ok)
    }

    /// An event with the time at which the host saw it, and how long that took; `None` if it took too long.
    fn measure(
        &mut self,
        driver: &dyn Driver,
        context: Context,
        longest: Duration,
    ) -> Result<Option<(Zero, u64)>> {
        let event = self.event(driver, context)?;
        let (before, began) = (now(), Instant::now());
        let seen = driver.event_record(context, event, self.stream).and_then(|()| {
            loop {
                let is_done = driver.event_query(context, event)?;
                if is_done || began.elapsed() > longest {
                    return Ok(is_done);
                }
                std::hint::spin_loop();
            }
        });
        let host = now();
        match seen {
            Ok(true) => Ok(Some((Zero { event, host }, host.saturating_sub(before)))),
            // It may still be recorded, and is not used again until it is: a recording moves it.
            other => {
                self.free.push(event);
                other.map(|_| None)
            }
        }
    }

    /// The zero for operations from now on.
    fn zero(&mut self, driver: &dyn Driver, context: Context) -> Option<Arc<Zero>> {
        if Instant::now() >= self.due {
            self.due = Instant::now() + OLDEST_ZERO / 20;
            if let Ok(Some((zero, _))) = self.measure(driver, context, LONGEST_LATER) {
                let unused = self.zeros.extract_if(.., |zero| Arc::strong_count(zero) == 1);
                self.free.extend(unused.map(|zero| zero.event));
                self.zeros.push(Arc::new(zero));
                self.due = Instant::now() + OLDEST_ZERO;
            }
        }
        self.zeros.last().cloned()
    }

    fn destroy(self, driver: &dyn Driver, context: Context) {
        for event in self.free.into_iter().chain(self.zeros.into_iter().map(|zero| zero.event)) {
            // SAFETY: made for this timeline, and used by no pending operation any more.
            unsafe { driver.event_destroy(context, event) };
        }
        // SAFETY: as above.
        unsafe { driver.stream_destroy(context, self.stream) };
    }
}

impl State {
    /// The timeline of a context, made at its first use.
    fn timeline(&mut self, driver: &dyn Driver, context: Context) -> Result<&mut Timeline> {
        Ok(match self.timelines.entry(context) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Timeline::new(driver, context)?),
        })
    }
}

impl Events {
    /// A recording with this much memory for operations that were not read yet.
    pub(super) fn new(
        sink: Arc<dyn ActivitySink>,
        describe: fn(FunctionHandle) -> Described,
        memory: usize,
    ) -> Self {
        let most = (memory / BYTES_PENDING).clamp(1, MOST_PENDING);
        Self { sink, describe, most, correlation: AtomicU64::new(1), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the zero of a context before its first operation, which would wait for it.
    pub(super) fn prepare(&self, driver: &dyn Driver, context: Context) -> Result<()> {
        self.lock().timeline(driver, context).map(|_| ())
    }

    /// Enqueues an operation between two events.
    pub(super) fn around(
        &self,
        operation: Operation<'_>,
        work: Work<'_>,
        enqueue: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        // Before the first event: nothing begins before its call.
        let start = now();
        let begun = self.begin(operation, start);
        let result = enqueue();
        let end = now();
        let correlation = self.correlation.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        if let Some(begun) = begun {
            self.end(&mut state, operation, work, begun, correlation, result.is_ok());
        }
        self.call(&state, operation, start, end, correlation);
        result
    }

    /// Waits, and records it.
    pub(super) fn waits(
        &self,
        operation: Operation<'_>,
        kind: ActivityWait,
        wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let start = now();
        let result = wait();
        let end = now();
        let correlation = self.correlation.fetch_add(1, Ordering::Relaxed);
        let Operation { driver, context, device, .. } = operation;
        let stream = match kind {
            ActivityWait::HostForStream => stream_number(driver, context, operation.stream),
            _ => 0,
        };
        let place = ActivityPlace { device, stream, correlation, ..ActivityPlace::default() };
        let state = self.lock();
        if !state.has_ended {
            self.sink.record(&Activity::Wait { start, end, place, kind });
        }
        self.call(&state, operation, start, end, correlation);
        result
    }

    fn call(&self, state: &State, operation: Operation<'_>, start: u64, end: u64, correlation: u64) {
        if !state.has_ended {
            let (thread, function) = (thread_number(), operation.function);
            self.sink.record(&Activity::Call { start, end, thread, correlation, function });
        }
    }

    /// Records the first event; `None` if the operation is not timed.
    fn begin(&self, operation: Operation<'_>, called: u64) -> Option<Begun> {
        let Operation { driver, context, stream, .. } = operation;
        match driver.capture_status(context, stream) {
            Ok(CaptureStatus::None) => {}
            Err(error) if error.code() == Some(code::NOT_SUPPORTED) => {}
            Ok(_) | Err(_) => return None,
        }
        let mut state = self.lock();
        let begun = self.try_begin(&mut state, operation, called);
        if begun.is_none() && !state.has_ended {
            state.dropped += 1;
        }
        begun
    }

    fn try_begin(&self, state: &mut State, operation: Operation<'_>, called: u64) -> Option<Begun> {
        let Operation { driver, context, stream, .. } = operation;
        if state.has_ended || !self.has_room(state, driver) {
            return None;
        }
        let timeline = state.timeline(driver, context).ok()?;
        let zero = timeline.zero(driver, context)?;
        let first = timeline.event(driver, context).ok()?;
        let second = timeline.event(driver, context);
        let recorded = second.and_then(|second| driver.event_record(context, first, stream).map(|()| second));
        match recorded {
            Ok(second) => {
                let stream = stream_number(driver, context, stream);
                Some(Begun { zero, events: [first, second], stream, called })
            }
            Err(_) => {
                timeline.free.push(first);
                None
            }
        }
    }

    /// Whether another operation can wait to be read.
    fn has_room(&self, state: &mut State, driver: &dyn Driver) -> bool {
        if state.pending.len() < self.most {
            return true;
        }
        if state.pause > 0 {
            state.pause -= 1;
            return false;
        }
        let before = state.pending.len();
        self.read(state, driver);
        let read = before - state.pending.len();
        state.pause = if read < self.most / WORTHWHILE { PAUSE } else { 0 };
        read > 0
    }

    /// Records the second event.
    fn end(
        &self,
        state: &mut State,
        operation: Operation<'_>,
        work: Work<'_>,
        begun: Begun,
        correlation: u64,
        was_enqueued: bool,
    ) {
        let Operation { driver, context, device, stream, .. } = operation;
        let Begun { zero, events, stream: number, called } = begun;
        if state.has_ended || !was_enqueued || driver.event_record(context, events[1], stream).is_err() {
            state.dropped += u64::from(was_enqueued && !state.has_ended);
            return match state.timelines.get_mut(&context) {
                Some(timeline) => timeline.free.extend(events),
                // The recording has ended, and with it the timeline.
                None => events.into_iter().for_each(|event| {
                    // SAFETY: made for this operation, which records no more.
                    unsafe { driver.event_destroy(context, event) }
                }),
            };
        }
        let what = match work {
            Work::Kernel(function, config) => {
                What::Kernel { described: (self.describe)(function), config: *config }
            }
            Work::Transfer(kind, bytes) => What::Transfer { kind, bytes: bytes as u64 },
            Work::Graph => What::Graph,
        };
        let place = ActivityPlace { device, stream: number, correlation, graph: 0, node: 0 };
        state.pending.push(Pending { context, zero, events, called, place, what });
    }

    /// Hands over the operations that have run.
    fn read(&self, state: &mut State, driver: &dyn Driver) {
        let State { pending, timelines, dropped, .. } = state;
        pending.retain(|operation| {
            let read = match driver.event_query(operation.context, operation.events[1]) {
                Ok(false) => return true,
                Ok(true) => times(driver, operation),
                Err(error) => Err(error),
            };
            match read {
                Ok((start, end)) => deliver(&*self.sink, operation, start, end),
                Err(_) => *dropped += 1,
            }
            if let Some(timeline) = timelines.get_mut(&operation.context) {
                timeline.free.extend(operation.events);
            }
            false
        });
    }

    /// Hands over the operations that have run.
    pub(super) fn flush(&self, driver: &dyn Driver) {
        self.read(&mut self.lock(), driver);
    }

    /// Before a context goes: reads what has run there, and drops the rest.
    pub(super) fn forget(&self, driver: &dyn Driver, context: Context) {
        let mut state = self.lock();
        self.read(&mut state, driver);
        let State { pending, timelines, dropped, .. } = &mut *state;
        let Some(mut timeline) = timelines.remove(&context) else { return };
        pending.retain(|operation| {
            let stays = operation.context != context;
            if !stays {
                *dropped += 1;
                timeline.free.extend(operation.events);
            }
            stays
        });
        timeline.destroy(driver, context);
    }

    /// Ends the recording. What has not run yet has no times.
    pub(super) fn stop(&self, driver: &dyn Driver) -> ActivityLoss {
        let mut state = self.lock();
        self.read(&mut state, driver);
        state.has_ended = true;
        let zero_time = state.pending.len() as u64;
        for operation in std::mem::take(&mut state.pending) {
            if let Some(timeline) = state.timelines.get_mut(&operation.context) {
                timeline.free.extend(operation.events);
            }
        }
        for (context, timeline) in state.timelines.drain() {
            timeline.destroy(driver, context);
        }
        ActivityLoss { dropped: state.dropped, zero_time, refused_buffers: 0 }
    }
}

/// When an operation that has run began and ended.
fn times(driver: &dyn Driver, operation: &Pending) -> Result<(u64, u64)> {
    let Pending { context, ref zero, events: [first, second], called, .. } = *operation;
    let since = (driver.event_elapsed(context, zero.event, first)? * 1e3).round();
    let took = (driver.event_elapsed(context, first, second)? * 1e3).round().max(0.0);
    let start = zero.host.saturating_add_signed(since as i64).max(called);
    Ok((start, start + took as u64))
}

fn deliver(sink: &dyn ActivitySink, operation: &Pending, start: u64, end: u64) {
    let place = operation.place;
    match &operation.what {
        What::Kernel { described, config } => sink.record(&Activity::Kernel {
            start,
            end,
            place,
            symbol: &described.symbol,
            grid: config.grid,
            block: config.block,
            registers: described.registers,
            static_shared: described.static_shared,
            dynamic_shared: config.shared_bytes,
        }),
        What::Transfer { kind, bytes } => {
            sink.record(&Activity::Transfer { start, end, place, kind: *kind, bytes: *bytes });
        }
        What::Graph => sink.record(&Activity::Graph { start, end, place }),
    }
}

/// The number of a stream in records from events.
pub(super) fn stream_number(driver: &dyn Driver, context: Context, stream: StreamHandle) -> u32 {
    driver.stream_unique_id(context, stream).unwrap_or(stream.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamDriver;
    use crate::emulated::{Call, EmulatedDriver};

    #[test]
    fn old_zeros_are_used_again() {
        let driver = EmulatedDriver::builder().build();
        let context = driver.context_retain(0).unwrap();
        let mut timeline = Timeline::new(&*driver, context).unwrap();
        let needed = timeline.zero(&*driver, context).unwrap();
        let made = driver.calls(Call::EventCreate);
        let mut renewed = 0;
        for _ in 0..1000 {
            timeline.due = Instant::now();
            let before = timeline.zeros.last().map(|zero| zero.host);
            let zero = timeline.zero(&*driver, context).unwrap();
            renewed += u32::from(before != Some(zero.host));
        }
        assert!(renewed > 100, "{renewed}");
        assert!(driver.calls(Call::EventCreate) <= made + 1);
        assert_eq!(timeline.zeros.len(), 2, "one is needed, one is the last");
        driver.event_synchronize(context, needed.event).unwrap();
        timeline.destroy(&*driver, context);
    }
}
