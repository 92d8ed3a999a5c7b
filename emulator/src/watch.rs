//! The limit on the time for which blocks may run, so that a kernel that never ends fails its launch.
//!
//! One thread of the process, the watcher, looks at all host threads that run blocks. One that has run the same set of
//! blocks for too long is *late* ([`SetClock::is_late`]). Where the emulator has control, at barriers, warp operations, reads
//! of atomics, a late set then fails. A thread in a loop without any of these has to be
//! interrupted ([`interrupt`]).

mod interrupt;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use interrupt::Interrupted;

use crate::settings;

/// How long a late set has to fail by itself before its host thread is interrupted.
const GRACE: Duration = Duration::from_secs(2);

/// What the watcher sees of one host thread.
#[derive(Debug)]
struct Slot {
    /// Counts the sets; odd while one runs.
    set: AtomicU64,
    /// The set that is late.
    late: AtomicU64,
    /// The host thread, as the operating system knows it.
    thread: AtomicU64,
}

/// Those of all host threads that can run blocks, and those that none has.
struct Slots {
    used: Vec<&'static Slot>,
    free: Vec<&'static Slot>,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { used: Vec::new(), free: Vec::new() });

fn slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This host thread, which the watcher sees as long as this lives.
pub(crate) struct Watched(&'static Slot);

impl Default for Watched {
    fn default() -> Self {
        start_watcher();
        let mut slots = slots();
        let slot = slots.free.pop().unwrap_or_else(|| {
            let (set, late, thread) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
            Box::leak(Box::new(Slot { set, late, thread }))
        });
        slot.thread.store(interrupt::this_thread(), Relaxed);
        slots.used.push(slot);
        Self(slot)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The watcher holds the lock while it uses the host thread's number: the thread ends after this.
        let mut slots = slots();
        slots.used.retain(|slot| !std::ptr::eq(*slot, self.0));
        slots.free.push(self.0);
    }
}

impl Watched {
    /// The clock of the sets that this host thread runs.
    pub fn clock(&self) -> SetClock {
        SetClock(self.0)
    }
}

/// Says whether a set has run for too long. For the host thread alone that made it.
#[derive(Clone, Copy)]
pub(crate) struct SetClock(&'static Slot);

impl SetClock {
    /// A set begins.
    #[inline(always)]
    pub fn begin(self) {
        self.0.set.store((self.0.set.load(Relaxed) | 1) + 2, Relaxed);
    }

    /// No set runs from now on.
    #[inline(always)]
    pub fn end(self) {
        self.0.set.store((self.0.set.load(Relaxed) | 1) + 1, Relaxed);
    }

    /// Whether the running set has run for too long.
    #[inline(always)]
    pub fn is_late(self) -> bool {
        self.0.late.load(Relaxed) == self.0.set.load(Relaxed)
    }
}

/// Starts the watcher, once, if there is a limit. Where the system gives no thread there is none.
fn start_watcher() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        if let Some(limit) = settings::settings().ok().and_then(|settings| settings.time_limit) {
            _ = std::thread::Builder::new().name("warpsmith-watch".to_owned()).spawn(move || watch(limit));
        }
    });
}

/// A set that ran when the watcher looked last.
struct Seen {
    slot: &'static Slot,
    set: u64,
    since: Instant,
    /// When it was first interrupted.
    interrupted: Option<Instant>,
}

fn watch(limit: Duration) {
    let mut seen: Vec<Seen> = Vec::new();
    loop {
        std::thread::sleep((limit / 16).min(GRACE / 4));
        let slots = slots();
        let runs = |seen: &Seen| seen.slot.set.load(Relaxed) == seen.set;
        let is_used = |seen: &Seen| slots.used.iter().any(|slot| std::ptr::eq(*slot, seen.slot));
        seen.retain(|seen| runs(seen) && is_used(seen));
        for &slot in &slots.used {
            let set = slot.set.load(Relaxed);
            if set % 2 == 1 && !seen.iter().any(|seen| std::ptr::eq(seen.slot, slot)) {
                seen.push(Seen { slot, set, since: Instant::now(), interrupted: None });
            }
        }
        for seen in &mut seen {
            let elapsed = seen.since.elapsed();
            if elapsed >= limit {
                seen.slot.late.store(seen.set, Relaxed);
            }
            if elapsed >= limit + GRACE {
                let first = *seen.interrupted.get_or_insert_with(Instant::now);
                interrupt::interrupt(seen.slot.thread.load(Relaxed), first.elapsed());
            }
        }
        if seen.iter().all(|seen| seen.interrupted.is_none()) {
            interrupt::rest();
        }
    }
}
