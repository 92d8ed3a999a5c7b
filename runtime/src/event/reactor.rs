//! The thread that wakes futures, one per process.
//!
//! A polled future queries the driver itself. For [`PATIENCE`], the future wakes itself, so waiting for short work
//! requires no thread switch; the executor runs other tasks in between. After that, the future registers with the
//! thread. The thread queries only the earliest event of each stream, because later events are reached later. The pause
//! between queries is proportional to how long a future has waited. The thread sleeps while no future is registered.
//! Driver host functions would avoid the queries, but each one stalls its stream for some microseconds, and the driver
//! does not call them after a fault.
//!
//! Waking a thread takes longer than the driver's own wait. If work on the stream was awaited before, the thread
//! therefore wakes the future shortly before the work is likely to finish
//! ([`Lengths`](crate::stream::lengths::Lengths)). The future then keeps waking itself until the work is done or has
//! taken longer than predicted.
//!
//! A wake-up is only a hint, because the future queries the event itself. Recording an event again before the wake-up,
//! or dropping a registration late, is therefore harmless.
//!
//! Locking: the table is locked while one event is queried, but never while a waker is cloned, called or dropped.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Event;
use crate::device::Device;
use crate::device::fork::Origin;
use crate::driver::{EventHandle, host_function};
use crate::error::Result;
use crate::stream::clock::Done;

/// Time for which a future keeps waking itself.
const PATIENCE: Duration = Duration::from_micros(50);
/// Minimum and maximum pause between two queries of an event.
const PAUSES: (Duration, Duration) = (Duration::from_micros(10), Duration::from_micros(250));
/// The pause is the time since the future was registered, divided by `PART` and clamped to [`PAUSES`].
const PART: u32 = 4;

/// Sort key of a future in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// ID of the stream on which the event was recorded. An event that may be recorded again has a separate group;
    /// these groups are numbered downward from `u64::MAX`.
    group: u64,
    /// The stream's epoch; events are reached in epoch order.
    epoch: u64,
    number: u64,
}

struct Waiting {
    device: Device,
    event: EventHandle,
    waker: Waker,
    wait: Wait,
    registered: Instant,
    /// Time at which the future is woken even if the event has not been reached.
    early: Option<Instant>,
    /// Time of the last query, at which the event had not been reached.
    looked: Instant,
}

/// A wait for work on a stream.
#[derive(Clone)]
struct Wait {
    since: Instant,
    /// Completion state of the stream; `None` if the event may be recorded on another stream.
    done: Option<Arc<Done>>,
}

impl Wait {
    /// Records that the wait ended at that time.
    fn ended(&self, at: Instant) {
        if let Some(done) = &self.done {
            done.lengths.note(at.duration_since(self.since));
        }
    }

    /// Records that a future with wake-up time `early` is being polled.
    fn woken(&self, early: Option<Instant>) {
        let took = early.and_then(|early| Instant::now().checked_duration_since(early));
        if let (Some(done), Some(took)) = (&self.done, took) {
            done.lengths.note_waking(took);
        }
    }

    /// Returns the likely end of the wait, predicted by
    /// [`Lengths::likely_end`](crate::stream::lengths::Lengths::likely_end).
    fn likely_end(&self, now: Instant) -> Option<Instant> {
        let end = self.done.as_ref()?.lengths.likely_end(now.duration_since(self.since))?;
        Some(self.since + end)
    }
}

impl Waiting {
    /// Returns the time of the next query after one at `now`.
    fn next_look(&self, now: Instant) -> Instant {
        let next = now + (now.duration_since(self.registered) / PART).clamp(PAUSES.0, PAUSES.1);
        self.early.map_or(next, |early| early.min(next))
    }

    /// Returns true if the future must be polled again. Polling detects and reports faults.
    fn is_due(&self) -> bool {
        let (driver, context) = self.device.raw();
        self.device.is_lost() || !matches!(driver.event_query(context, self.event), Ok(false))
    }
}

#[derive(Default)]
struct Table {
    waiting: BTreeMap<Key, Waiting>,
    next: u64,
    /// Time of the thread's next query; `None` while it queries or has nothing to query.
    look_at: Option<Instant>,
}

impl Table {
    /// Schedules a query for that time, unless an earlier one is already scheduled. Returns true if the query was
    /// scheduled.
    fn look_at(&mut self, at: Instant) -> bool {
        let is_earlier = self.look_at.is_none_or(|known| at < known);
        if is_earlier {
            self.look_at = Some(at);
        }
        is_earlier
    }
}

/// State shared with the thread that wakes futures; see the [module's documentation](self).
#[derive(Default)]
struct Reactor {
    /// The process that owns the thread.
    origin: Origin,
    /// True if the system could not create the thread.
    is_broken: AtomicBool,
    table: Mutex<Table>,
    /// Notified when the thread must query earlier.
    earlier: Condvar,
}

/// Returns the reactor of the process. A forked process creates its own, because a fork does not copy the thread.
fn reactor() -> &'static Reactor {
    static CURRENT: AtomicPtr<Reactor> = AtomicPtr::new(std::ptr::null_mut());
    let mut current = CURRENT.load(Ordering::Acquire);
    loop {
        // SAFETY: the pointer is null or was leaked below.
        if let Some(known) = unsafe { current.as_ref() }
            && !known.origin.is_elsewhere()
        {
            return known;
        }
        let new = Box::into_raw(Box::<Reactor>::default());
        match CURRENT.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: the value was leaked above and is not freed anywhere else.
                let new: &'static Reactor = unsafe { &*new };
                let thread = std::thread::Builder::new().name("warpsmith-await".to_owned());
                if let Err(error) = thread.spawn(|| new.run()) {
                    tracing::warn!(%error, "the thread that wakes futures could not be started: executors poll the \
                                            futures continuously");
                    new.is_broken.store(true, Ordering::Release);
                    let waiting = std::mem::take(&mut new.lock().waiting);
                    waiting.into_values().for_each(wake);
                }
                return new;
            }
            Err(now) => {
                // SAFETY: the value was created above and has no other owner.
                drop(unsafe { Box::from_raw(new) });
                current = now;
            }
        }
    }
}

/// Wakes a future that was removed from the table.
fn wake(waiting: Waiting) {
    let Waiting { device, waker, .. } = waiting;
    if Arc::strong_count(&device.0) == 1 {
        // Closing a device waits for its work and would delay other futures.
        host_function::drop_elsewhere(Box::new(device));
    } else {
        drop(device);
    }
    // A panic in a waker is the executor's bug and must not stop this thread.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        std::mem::forget(payload);
    }
}

impl Reactor {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        exact_timers();
        loop {
            let mut table = self.lock();
            loop {
                let pause = table.look_at.map(|at| at.saturating_duration_since(Instant::now()));
                table = match pause {
                    None => self.earlier.wait(table).unwrap_or_else(PoisonError::into_inner),
                    Some(Duration::ZERO) => break,
                    Some(pause) => {
                        self.earlier.wait_timeout(table, pause).unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            table.look_at = None;
            drop(table);
            self.look();
        }
    }

    /// Wakes the futures whose events were reached or whose early wake-up time has come, and schedules the next query.
    fn look(&self) {
        let mut from = Key { group: 0, epoch: 0, number: 0 };
        loop {
            let mut table = self.lock();
            let Some((&key, waiting)) = table.waiting.range_mut(from..).next() else { break };
            let is_due = waiting.is_due();
            let now = Instant::now();
            let is_early = waiting.early.is_some_and(|early| early <= now);
            if !is_due && !is_early {
                waiting.looked = now;
                let next = waiting.next_look(now);
                table.look_at(next);
                // If an event was not reached, later events of the same stream have not been reached either.
                let Some(group) = key.group.checked_add(1) else { break };
                from = Key { group, epoch: 0, number: 0 };
                continue;
            }
            if is_due {
                waiting.wait.ended(waiting.looked);
            }
            let due = table.waiting.remove(&key);
            drop(table);
            due.into_iter().for_each(wake);
            from = key;
        }
    }
}

/// Minimizes this thread's timer slack. By default, Linux extends sleeps by up to 50 microseconds to coalesce wake-ups.
fn exact_timers() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes no pointers and changes only this thread's timer slack.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// A future's entry in the table. Dropping this value removes the entry.
struct Registration {
    reactor: &'static Reactor,
    key: Key,
    /// Time at which the future is woken even if the event has not been reached.
    early: Option<Instant>,
}

impl Registration {
    /// Registers a waker, to be called when the event is reached, when the wait is likely to end, or when the query or
    /// the device fails. Returns `None` if the thread could not be created.
    fn new(
        event: &Event,
        wait: &Wait,
        place: Option<(u64, u64)>,
        now: Instant,
        waker: Waker,
    ) -> Option<Self> {
        let reactor = reactor();
        if reactor.is_broken.load(Ordering::Acquire) {
            return None;
        }
        let early = wait.likely_end(now);
        let waiting = Waiting {
            device: event.device.clone(),
            event: event.handle,
            waker,
            early,
            wait: wait.clone(),
            registered: now,
            looked: now,
        };
        let mut table = reactor.lock();
        let number = table.next;
        table.next += 1;
        let (group, epoch) = place.unwrap_or((u64::MAX - number, 0));
        let key = Key { group, epoch, number };
        let is_earlier = table.look_at(waiting.next_look(now));
        table.waiting.insert(key, waiting);
        drop(table);
        if is_earlier {
            reactor.earlier.notify_one();
        }
        Some(Self { reactor, key, early })
    }

    /// Replaces the waker. Returns true if the future is still registered.
    fn replace(&self, waker: &Waker) -> bool {
        let mut table = self.reactor.lock();
        let Some(waiting) = table.waiting.get(&self.key) else { return false };
        if waiting.waker.will_wake(waker) {
            return true;
        }
        drop(table);
        let mut other = waker.clone();
        table = self.reactor.lock();
        let Some(waiting) = table.waiting.get_mut(&self.key) else { return false };
        std::mem::swap(&mut waiting.waker, &mut other);
        drop(table);
        true
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.reactor.origin.is_elsewhere() {
            return;
        }
        if host_function::is_running() {
            // The thread may be querying the driver, which may in turn wait for this host function to return.
            return host_function::drop_elsewhere(Box::new(Registration { ..*self }));
        }
        let waiting = self.reactor.lock().waiting.remove(&self.key);
        drop(waiting);
    }
}

/// State of a future that waits for an event.
#[derive(Default)]
pub(crate) struct Waiter {
    registration: Option<Registration>,
    /// The wait, from the first poll, with the stream and epoch of the event's recording.
    wait: Option<(Wait, Option<(u64, u64)>)>,
}

impl Waiter {
    /// Polls a future that waits for `event`, which must be the same event in every call. `may_be_recorded` must be
    /// true if other code can record the event during the wait.
    pub fn poll(&mut self, event: &Event, may_be_recorded: bool, task: &Context<'_>) -> Poll<Result<()>> {
        let reached = event.is_reached("awaiting an event");
        if let (Some(registration), Some((wait, _))) = (&self.registration, &self.wait) {
            wait.woken(registration.early);
        }
        if !matches!(reached, Ok(false)) {
            // The thread records the end of a registered future's wait more precisely.
            if let (None, Some((wait, _)), true) = (&self.registration, &self.wait, reached.is_ok()) {
                wait.ended(Instant::now());
            }
            self.registration = None;
            return Poll::Ready(reached.map(drop));
        }
        let now = Instant::now();
        let (wait, place) = self.wait.get_or_insert_with(|| {
            let (place, done) = event.place().filter(|_| !may_be_recorded).unzip();
            (Wait { since: now, done }, place)
        });
        if self.registration.as_ref().is_some_and(|known| known.replace(task.waker())) {
            return Poll::Pending;
        }
        self.registration = None;
        let is_impatient =
            now.duration_since(wait.since) < PATIENCE || wait.likely_end(now).is_some_and(|end| end <= now);
        if !is_impatient {
            self.registration = Registration::new(event, wait, *place, now, task.waker().clone());
        }
        if self.registration.is_none() {
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
