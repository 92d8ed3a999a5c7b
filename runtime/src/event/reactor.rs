//! The thread that wakes futures: one for the process, however many futures there are.
//!
//! A future that is polled queries the driver itself. For [`PATIENCE`] it has itself polled again, so that short work
//! costs no switch of threads; the executor runs other tasks in between. After that it is registered here. The thread
//! asks for the earliest event of each stream, since the others come later, and pauses in proportion to how long it has
//! waited. While nothing is registered it sleeps. Host functions of the driver would need no asking, but each stops its
//! stream for some microseconds, and after a fault the driver calls none.
//!
//! Waking a thread takes longer than the driver's own wait is late. So the future of a stream whose work was awaited before is
//! woken shortly before its work is likely to end ([`Lengths`](crate::stream::lengths::Lengths)), and then has itself polled
//! again until it is done, or lasts longer than was likely.
//!
//! Waking is a hint: what has become of the event, the future asks again. So an event may be recorded anew meanwhile, and a
//! registration that is dropped late does no harm.
//!
//! Locks: the table is locked while one event is queried, never while a waker is cloned, called or dropped.

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

/// How long a future has itself polled again.
const PATIENCE: Duration = Duration::from_micros(50);
/// The shortest and the longest pause between two looks at an event.
const PAUSES: (Duration, Duration) = (Duration::from_micros(10), Duration::from_micros(250));
/// A pause is at most this part of the time since the future was registered.
const PART: u32 = 4;

/// The place of a future in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The stream on which the event was recorded. Events that may be recorded anew have a group each, from the end on.
    group: u64,
    /// The stream's epoch: an event of a later one is reached later.
    epoch: u64,
    /// No other future has it.
    number: u64,
}

/// A registered future.
struct Waiting {
    device: Device,
    event: EventHandle,
    waker: Waker,
    wait: Wait,
    registered: Instant,
    /// When it is woken even if the event was not reached.
    early: Option<Instant>,
    /// When the event was last seen not to be reached.
    looked: Instant,
}

/// A wait for work of a stream.
#[derive(Clone)]
struct Wait {
    since: Instant,
    /// Of the stream; `None` where the event may be recorded on another.
    done: Option<Arc<Done>>,
}

impl Wait {
    /// Notes that it ended.
    fn ended(&self, at: Instant) {
        if let Some(done) = &self.done {
            done.lengths.note(at.duration_since(self.since));
        }
    }

    /// Notes that a future which was to be woken at `early` is polled.
    fn woken(&self, early: Option<Instant>) {
        let took = early.and_then(|early| Instant::now().checked_duration_since(early));
        if let (Some(done), Some(took)) = (&self.done, took) {
            done.lengths.note_waking(took);
        }
    }

    /// When it is likely to end: see [`Lengths::likely_end`](crate::stream::lengths::Lengths::likely_end).
    fn likely_end(&self, now: Instant) -> Option<Instant> {
        let end = self.done.as_ref()?.lengths.likely_end(now.duration_since(self.since))?;
        Some(self.since + end)
    }
}

impl Waiting {
    /// When to look after a look at that time.
    fn next_look(&self, now: Instant) -> Instant {
        let next = now + (now.duration_since(self.registered) / PART).clamp(PAUSES.0, PAUSES.1);
        self.early.map_or(next, |early| early.min(next))
    }

    /// Whether the future is to look. It then finds faults by itself, and reports them.
    fn is_due(&self) -> bool {
        let (driver, context) = self.device.raw();
        self.device.is_lost() || !matches!(driver.event_query(context, self.event), Ok(false))
    }
}

#[derive(Default)]
struct Table {
    waiting: BTreeMap<Key, Waiting>,
    next: u64,
    /// When the thread is to look; `None` while it looks, or when there is nothing to look at.
    look_at: Option<Instant>,
}

impl Table {
    /// Has the thread look at that time, or earlier. Whether that is earlier than it was to.
    fn look_at(&mut self, at: Instant) -> bool {
        let is_earlier = self.look_at.is_none_or(|known| at < known);
        if is_earlier {
            self.look_at = Some(at);
        }
        is_earlier
    }
}

/// See the [module's documentation](self).
#[derive(Default)]
struct Reactor {
    /// The process that has the thread.
    origin: Origin,
    /// Whether the system gave no thread.
    is_broken: AtomicBool,
    table: Mutex<Table>,
    /// Notified when the thread is to look earlier.
    earlier: Condvar,
}

/// The reactor of the process. In a copy of the process there is another, since the thread is not copied.
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
                // SAFETY: it was leaked above and is freed nowhere else.
                let new: &'static Reactor = unsafe { &*new };
                let thread = std::thread::Builder::new().name("warpsmith-await".to_owned());
                if let Err(error) = thread.spawn(|| new.run()) {
                    tracing::warn!(%error, "the system has no thread to wake futures: executors poll them all the time");
                    new.is_broken.store(true, Ordering::Release);
                    let waiting = std::mem::take(&mut new.lock().waiting);
                    waiting.into_values().for_each(wake);
                }
                return new;
            }
            Err(now) => {
                // SAFETY: it was made above and has no other owner.
                drop(unsafe { Box::from_raw(new) });
                current = now;
            }
        }
    }
}

/// Wakes a future that is not in the table any more.
fn wake(waiting: Waiting) {
    let Waiting { device, waker, .. } = waiting;
    if Arc::strong_count(&device.0) == 1 {
        // Closing a device waits for its work, which others must not wait for.
        host_function::drop_elsewhere(Box::new(device));
    } else {
        drop(device);
    }
    // What a waker does is its executor's business.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        std::mem::forget(payload);
    }
}

impl Reactor {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's loop.
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

    /// Wakes the futures whose events were reached, or that are to be woken early; decides when to look again.
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
                // Later events of the stream are not reached either.
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

/// Has pauses of this thread end when they are to: Linux lets them last 50 microseconds longer, to wake less often.
fn exact_timers() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes a number and changes nothing but the timers of this thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// A future's place in the table, which it leaves when this is dropped.
struct Registration {
    reactor: &'static Reactor,
    key: Key,
    /// When the thread wakes the future even if the event was not reached.
    early: Option<Instant>,
}

impl Registration {
    /// Has a waker called when the event is reached, when the wait is likely to end, or when anything else has become of the
    /// event. `None` without a thread.
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

    /// Has another waker called. Whether it is still registered.
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
            // The thread may be querying the driver, which may wait for this function to return.
            return host_function::drop_elsewhere(Box::new(Registration { ..*self }));
        }
        let waiting = self.reactor.lock().waiting.remove(&self.key);
        drop(waiting);
    }
}

/// The state of a future that waits for an event.
#[derive(Default)]
pub(crate) struct Waiter {
    registration: Option<Registration>,
    /// Since it was first polled, and the stream and its epoch that the event was recorded in.
    wait: Option<(Wait, Option<(u64, u64)>)>,
}

impl Waiter {
    /// Polls a future that waits for an event, which is always the same. `may_be_recorded` says whether others can record it
    /// meanwhile.
    pub fn poll(&mut self, event: &Event, may_be_recorded: bool, task: &Context<'_>) -> Poll<Result<()>> {
        let reached = event.is_reached("awaiting an event");
        if let (Some(registration), Some((wait, _))) = (&self.registration, &self.wait) {
            wait.woken(registration.early);
        }
        if !matches!(reached, Ok(false)) {
            // Of a future that was registered, the thread knows better when it was reached.
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
