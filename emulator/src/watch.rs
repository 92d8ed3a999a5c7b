//! Time limit for running blocks, so that the launch of a kernel that never ends fails.
//!
//! One thread of the process, the watcher, monitors all host threads that run blocks. A host thread that has run the
//! same set of blocks for too long is *late* ([`SetClock::is_late`]). A late set fails where the emulator gains
//! control: at barriers, warp operations, and reads of atomics. A thread in a loop without any of these operations must
//! be interrupted ([`interrupt`]).

mod interrupt;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use interrupt::Interrupted;

use crate::settings;

/// Time that a late set may continue before its host thread is interrupted.
const GRACE: Duration = Duration::from_secs(2);

/// State of one host thread, as observed by the watcher.
#[derive(Debug)]
struct Slot {
    /// Counter that is incremented when a set starts and when it ends, so it is odd while a set runs.
    set: AtomicU64,
    /// Value of `set` for which the running set is late.
    late: AtomicU64,
    /// Operating system's ID of the host thread.
    thread: AtomicU64,
}

/// Slots of all host threads that can run blocks, and unused slots.
struct Slots {
    used: Vec<&'static Slot>,
    free: Vec<&'static Slot>,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { used: Vec::new(), free: Vec::new() });

fn slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard that makes the watcher monitor this host thread while the guard exists.
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
        // The watcher holds the lock while it uses the host thread's ID, so the thread cannot exit before this point.
        let mut slots = slots();
        slots.used.retain(|slot| !std::ptr::eq(*slot, self.0));
        slots.free.push(self.0);
    }
}

impl Watched {
    /// Returns the clock of the sets that this host thread runs.
    pub fn clock(&self) -> SetClock {
        SetClock(self.0)
    }
}

/// Detects that a set has run for too long. The value may be used only on the host thread that created it.
#[derive(Clone, Copy)]
pub(crate) struct SetClock(&'static Slot);

impl SetClock {
    /// Starts a set.
    #[inline(always)]
    pub fn begin(self) {
        self.0.set.store((self.0.set.load(Relaxed) | 1) + 2, Relaxed);
    }

    /// Ends the running set.
    #[inline(always)]
    pub fn end(self) {
        self.0.set.store((self.0.set.load(Relaxed) | 1) + 1, Relaxed);
    }

    /// Returns true if the running set has run for too long.
    #[inline(always)]
    pub fn is_late(self) -> bool {
        self.0.late.load(Relaxed) == self.0.set.load(Relaxed)
    }
}

/// Starts the watcher, once, if there is a time limit. If the system cannot create a thread, there is no watcher.
fn start_watcher() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        if let Some(limit) = settings::settings().ok().and_then(|settings| settings.time_limit) {
            _ = std::thread::Builder::new().name("warpsmith-watch".to_owned()).spawn(move || watch(limit));
        }
    });
}

/// A set that was running at the watcher's last check.
struct Seen {
    slot: &'static Slot,
    set: u64,
    since: Instant,
    /// Time at which the set was first interrupted; `None` if it has not been interrupted.
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
