//! The race check, which detects work on two streams that uses the same memory without being ordered.
//!
//! Every stream has a vector clock, which advances with the stream's tasks and with the waits that are enqueued on it.
//! The host has a clock of the work that it has observed to be complete. Findings therefore depend only on the calls
//! that are made, and not on the times at which tasks happen to run.
//!
//! There are two modes. In tests, with [`Way::Arguments`], work is assumed to access the memory to which its arguments
//! refer, and it is compared with other work when it is enqueued. In the kernel check, with [`Way::Accesses`], the
//! actual accesses of kernels are observed, so work is compared after it has run, in an order that is consistent with
//! the clocks. A race is reported as a finding of the thread that enqueued the work.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpsmith_emulator::check::{self, Findings, Side, Touch};

use super::action::Action;
use super::clock::Clock;
use super::control::Call;
use super::history::{History, Use};
use super::stream::Work;
use super::touched::{Access, Touched};

/// A live or destroyed stream.
#[derive(Debug)]
struct Slot {
    context: u64,
    alive: bool,
    /// Work that is ordered before the stream's next task, in addition to the work that the host has observed to be
    /// complete.
    clock: Clock,
}

#[derive(Debug)]
struct State {
    way: Way,
    slots: Vec<Slot>,
    /// Slots of live streams, keyed by handle.
    by_handle: HashMap<u64, usize>,
    /// Work that the host has observed to be complete. All work enqueued later is ordered after it.
    host: Clock,
    history: History,
    found: Vec<String>,
    /// Accesses of the most recent launches, keyed by slot and clock value.
    touches: BTreeMap<(u64, usize), Vec<Touch>>,
    /// Number of races that were found for each pair of tasks.
    reported: HashMap<[&'static str; 2], u32>,
}

/// Source of the accesses to compare, which also determines when work is compared with other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Arguments,
    Accesses,
}

/// Number of launches whose accesses are stored, so that a report can contain the source location of an earlier access.
const KEPT_LAUNCHES: usize = 1024;
/// Maximum number of findings per pair of tasks.
const MAX_REPORTED: u32 = 100;

/// Position, in the partial order, of a task that is compared after it has run.
#[derive(Debug)]
pub(super) struct Place {
    stream: u64,
    task: &'static str,
    slot: usize,
    tick: u64,
    /// Work that is ordered before the task.
    before: Clock,
    touched: Touched,
}

impl State {
    /// Returns the slot of a stream and the clock value of its next task.
    fn tick(&mut self, stream: u64) -> Option<(usize, u64)> {
        let slot = *self.by_handle.get(&stream)?;
        let clock = &mut self.slots[slot].clock;
        let tick = clock.get(slot) + 1;
        clock.set(slot, tick);
        Some((slot, tick))
    }

    /// Adds a task that accesses memory. The task is compared with others now or, if a position is returned, later at
    /// that position.
    fn enqueue(&mut self, stream: u64, task: &'static str, touched: &[Access]) -> Option<Place> {
        let (slot, tick) = self.tick(stream)?;
        if self.way == Way::Accesses {
            let mut before = self.slots[slot].clock.clone();
            before.join(&self.host);
            return Some(Place { stream, task, slot, tick, before, touched: touched.to_vec() });
        }
        let Self { slots, host, history, found, .. } = self;
        history.prune(|old| host.covers(old));
        let clock = &slots[slot].clock;
        let mut told = Vec::new();
        for Access { range: Range { start, end }, write } in touched {
            let (write, start, end) = (*write, *start, *end);
            let new = Use { slot, tick, write, atomic: false, task, stream, start, end };
            let ordered = |old: &Use| clock.covers(old) || host.covers(old);
            history.add(new, ordered, |old, at| {
                if !told.contains(&(old.slot, old.tick)) {
                    told.push((old.slot, old.tick));
                    found.push(format!(
                        "{old} and {new} access the same bytes from {at:#x} on, without an order"
                    ));
                }
            });
        }
        None
    }

    /// Compares a task that has run with other tasks, using the accesses of its launches.
    fn ran(&mut self, place: Place, touches: Vec<Touch>) {
        let Place { stream, task, slot, tick, before, touched } = place;
        let Self { host, history, touches: kept, reported, .. } = self;
        history.prune(|old| host.covers(old));
        let named = touched.into_iter().map(|access| (access.range, access.write, false));
        let seen = touches
            .iter()
            .map(|touch| (touch.range.start as u64..touch.range.end as u64, touch.write, touch.atomic));
        let mut found = Findings::default();
        let mut told = Vec::new();
        for (Range { start, end }, write, atomic) in named.chain(seen) {
            let new = Use { slot, tick, write, atomic, task, stream, start, end };
            history.add(
                new,
                |old| before.covers(old),
                |old, at| {
                    let count = reported.entry([old.task, task]).or_default();
                    if told.contains(&(old.slot, old.tick)) || *count >= MAX_REPORTED {
                        return;
                    }
                    told.push((old.slot, old.tick));
                    let earlier = kept.get(&(old.tick, old.slot)).map_or(&[][..], Vec::as_slice);
                    let new_side = Side { touch: touch_of(&touches, at, write), task, write, stream };
                    let old_side = Side {
                        touch: touch_of(earlier, at, old.write),
                        task: old.task,
                        write: old.write,
                        stream: old.stream,
                    };
                    if let Some(finding) = check::stream_race(at as usize, &new_side, &old_side) {
                        *count += 1;
                        found.findings.push(finding);
                    }
                },
            );
        }
        if !touches.is_empty() {
            kept.insert((tick, slot), touches);
            while kept.len() > KEPT_LAUNCHES {
                kept.pop_first();
            }
        }
        check::found(found);
    }

    fn host_frees(&mut self, call: Call, range: Range<u64>, goes: bool) {
        if self.way == Way::Accesses {
            // Frees are not compared, because the driver rejects frees of memory that work still uses, and the kernel
            // check detects uses of freed buffers.
            if goes {
                self.history.forget(range);
            }
            return;
        }
        let uses = if goes { self.history.forget(range.clone()) } else { self.history.uses(range.clone()) };
        let mut told = Vec::new();
        for used in uses.iter().filter(|used| !self.host.covers(used)) {
            if !told.contains(&(used.slot, used.tick)) {
                told.push((used.slot, used.tick));
                let (call, Range { start, end }) = (call.name(), &range);
                self.found.push(format!(
                    "{used} conflicts with {call} of {start:#x}..{end:#x} on the host: the host did not wait for \
                     that work"
                ));
            }
        }
    }
}

/// Returns an access to the byte at an address.
fn touch_of(touches: &[Touch], at: u64, write: bool) -> Option<&Touch> {
    touches.iter().find(|touch| touch.write == write && touch.range.contains(&(at as usize)))
}

/// Race check of a driver; `None` if it is disabled.
#[derive(Debug)]
pub(super) struct Races(Option<Mutex<State>>);

impl Races {
    pub(super) fn new(way: Option<Way>) -> Self {
        let state = |way| State {
            way,
            slots: Vec::new(),
            by_handle: HashMap::new(),
            host: Clock::default(),
            history: History::default(),
            found: Vec::new(),
            touches: BTreeMap::new(),
            reported: HashMap::new(),
        };
        Self(way.map(|way| Mutex::new(state(way))))
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.0.as_ref().map(|state| state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the races found since the last call.
    #[cfg(feature = "testing")]
    pub(super) fn take(&self) -> Vec<String> {
        self.state().map_or_else(Vec::new, |mut state| std::mem::take(&mut state.found))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds races that other code has found.
    pub(super) fn tell(&self, found: Vec<String>) {
        if let Some(mut state) = self.state().filter(|state| state.way == Way::Arguments) {
            state.found.extend(found);
        }
    }

    pub(super) fn stream_created(&self, stream: u64, context: u64) {
        let Some(mut state) = self.state() else { return };
        let State { slots, by_handle, host, .. } = &mut *state;
        // A slot can be reused once all of its work is ordered before all later work.
        let done = |slot: usize, old: &Slot| !old.alive && host.get(slot) >= old.clock.get(slot);
        let free = slots.iter().enumerate().position(|(slot, old)| done(slot, old));
        let slot = free.unwrap_or(slots.len());
        let mut clock = Clock::default();
        clock.set(slot, host.get(slot));
        let new = Slot { context, alive: true, clock };
        match slots.get_mut(slot) {
            Some(old) => *old = new,
            None => slots.push(new),
        }
        by_handle.insert(stream, slot);
    }

    /// Updates the state after a stream was destroyed. The host does not wait for the stream.
    pub(super) fn stream_destroyed(&self, stream: u64) {
        let Some(mut state) = self.state() else { return };
        if let Some(slot) = state.by_handle.remove(&stream) {
            state.slots[slot].alive = false;
        }
    }

    /// Checks a task and enqueues it with `push`. Both are done under one lock, so that tasks are checked in the order
    /// in which they are enqueued.
    pub(super) fn enqueue<R>(
        &self,
        stream: u64,
        call: Call,
        work: Work,
        touched: Touched,
        push: impl FnOnce(Work, Touched, Option<Place>) -> R,
    ) -> R {
        let mut state = self.state();
        let mut place = None;
        if let Some(state) = &mut state {
            match &work {
                Work::Record(mark) => {
                    if let Some(slot) = state.by_handle.get(&stream) {
                        mark.set_clock(state.slots[*slot].clock.clone());
                    }
                }
                Work::Wait(mark) => {
                    if let (Some(slot), Some(clock)) = (state.by_handle.get(&stream).copied(), mark.clock()) {
                        state.slots[slot].clock.join(clock);
                    }
                }
                Work::Act(Action::Launch(launch)) => {
                    // In the kernel check, the kernel's accesses are observed instead.
                    let named = if state.way == Way::Arguments { &touched[..] } else { &[] };
                    place = state.enqueue(stream, launch.symbol(), named);
                }
                Work::Graph(launch) => {
                    let slot = state.by_handle.get(&stream).copied();
                    // Launches of one executable run one after another.
                    if let (Some(slot), Some(clock)) = (slot, launch.before().and_then(|mark| mark.clock())) {
                        state.slots[slot].clock.join(clock);
                    }
                    place = state.enqueue(stream, call.name(), &touched);
                    if let Some(slot) = slot {
                        launch.done().set_clock(state.slots[slot].clock.clone());
                    }
                }
                _ => place = state.enqueue(stream, call.name(), &touched),
            }
        }
        push(work, touched, place)
    }

    /// Compares the task at this position, which has run on the calling thread. The thread must not signal an event
    /// before the call returns.
    pub(super) fn ran(&self, place: Option<Place>) {
        let touches = check::take_touched();
        if let (Some(mut state), Some(place)) = (self.state(), place) {
            state.ran(place, touches);
        }
    }

    /// Updates the state after an allocation, which makes earlier contents irrelevant. If the allocation is
    /// stream-ordered, work on other streams must be ordered after it.
    pub(super) fn allocated(&self, call: Call, start: u64, bytes: usize, stream: Option<u64>) {
        let Some(mut state) = self.state() else { return };
        let access = Access::write(start, bytes);
        state.history.forget(access.range.clone());
        let place = stream.and_then(|stream| state.enqueue(stream, call.name(), &[access]));
        if let Some(place) = place {
            state.ran(place, Vec::new());
        }
    }

    /// Updates the state when the host frees or unmaps memory; `goes` is true if the call takes effect.
    pub(super) fn host_frees(&self, call: Call, range: Range<u64>, goes: bool) {
        if let Some(mut state) = self.state() {
            state.host_frees(call, range, goes);
        }
    }

    /// Returns the clock that represents all work that is enqueued on a stream.
    pub(super) fn of_stream(&self, stream: u64) -> Option<Clock> {
        let state = self.state()?;
        let slot = state.by_handle.get(&stream)?;
        Some(state.slots[*slot].clock.clone())
    }

    /// Returns the clock that represents all work that is enqueued on the streams of a context, including destroyed
    /// streams.
    pub(super) fn of_context(&self, context: u64) -> Option<Clock> {
        let state = self.state()?;
        let mut all = Clock::default();
        state.slots.iter().filter(|slot| slot.context == context).for_each(|slot| all.join(&slot.clock));
        Some(all)
    }

    /// Records that the host has observed the completion of work.
    pub(super) fn host_saw(&self, clock: Option<&Clock>) {
        if let (Some(mut state), Some(clock)) = (self.state(), clock) {
            state.host.join(clock);
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use super::super::stream::Mark;
    use super::*;

    fn write(races: &Races, stream: u64, start: u64) {
        let work = Work::Act(Action::Set { dst: start, value: 0, bytes: 8 });
        races.enqueue(stream, Call::Memset, work, vec![Access::write(start, 8)], |_, _, _| ());
    }

    fn two_streams() -> Races {
        let races = Races::new(Some(Way::Arguments));
        races.stream_created(1, 1);
        races.stream_created(2, 1);
        races
    }

    #[test]
    fn memory_that_is_allocated_anew_has_no_uses() {
        let races = two_streams();
        write(&races, 1, 0x100);
        races.allocated(Call::MemoryAllocate, 0x100, 8, None);
        write(&races, 2, 0x100);
        assert!(races.take().is_empty());
        write(&races, 1, 0x100);
        assert_eq!(races.take().len(), 1);
    }

    #[test]
    fn slots_are_reused_after_known_completion_only() {
        let slots = |races: &Races| races.state().unwrap().slots.len();
        let races = two_streams();
        write(&races, 1, 0x100);
        races.stream_destroyed(1);
        races.stream_created(3, 1);
        write(&races, 3, 0x100);
        assert_eq!(races.take().len(), 1, "destroying a stream waits for nothing");
        races.host_saw(races.of_context(2).as_ref());
        races.stream_created(5, 1);
        assert_eq!(slots(&races), 4, "another context was waited for");
        races.host_saw(races.of_context(1).as_ref());
        races.stream_created(4, 1);
        assert_eq!(slots(&races), 4);
        write(&races, 4, 0x200);
        write(&races, 2, 0x200);
        assert_eq!(races.take().len(), 1);
    }

    #[test]
    fn a_long_program_leaves_a_short_history() {
        let races = two_streams();
        for round in 0..1000 {
            for (stream, other) in [(1, 2), (2, 1)] {
                write(&races, stream, 0x100 + round % 16 * 8);
                let mark = Arc::new(Mark::default());
                for (of, work) in [(stream, Work::Record(Arc::clone(&mark))), (other, Work::Wait(mark))] {
                    races.enqueue(of, Call::EventRecord, work, Touched::new(), |_, _, _| ());
                }
            }
        }
        assert!(races.take().is_empty());
        assert_eq!(races.state().unwrap().history.uses(0..u64::MAX).len(), 16);
    }

    #[test]
    fn without_the_check_nothing_is_kept() {
        let races = Races::new(None);
        races.stream_created(1, 1);
        races.stream_created(2, 1);
        write(&races, 1, 0x100);
        write(&races, 2, 0x100);
        assert!(races.take().is_empty() && races.of_stream(1).is_none() && races.of_context(1).is_none());
    }
}
