//! A word that every range loads: it records whether a listener or a tool receives ranges, and is reset in a forked
//! process.
//!
//! In a forked process, locks may be held by threads that do not exist. A fork handler therefore counts forks in the
//! child, and values that contain a lock are recreated when the count has changed ([`PerProcess`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::driver::process;

/// Set if a listener is registered.
pub(crate) const LISTENERS: u32 = 1;
/// Set if a tool is attached through NVTX.
pub(crate) const TOOL: u32 = 1 << 1;
/// Set until the search for a tool has ended.
pub(crate) const UNKNOWN: u32 = 1 << 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// True if the search for a tool has started. A forked child must not repeat the search.
static SOUGHT: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Returns true if a listener or a tool receives ranges, or may receive them. Costs one load.
#[inline(always)]
pub(crate) fn may_be_heard() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

pub(crate) fn has(bits: u32) -> bool {
    STATE.load(Ordering::Acquire) & bits != 0
}

pub(crate) fn set(bits: u32) {
    STATE.fetch_or(bits, Ordering::AcqRel);
}

pub(crate) fn clear(bits: u32) {
    STATE.fetch_and(!bits, Ordering::AcqRel);
}

/// Records that the search for a tool has started.
pub(crate) fn seek() {
    SOUGHT.store(true, Ordering::Relaxed);
}

/// Registers the fork handler, before anything else is registered.
pub(crate) fn watch_forks() {
    if !REGISTERED.load(Ordering::Acquire) {
        // Two threads may both reach this line, which is harmless, because a fork counted twice still changes the
        // count. After a failure, the next call retries. SAFETY: the handler only accesses atomics, so it is
        // async-signal-safe.
        REGISTERED.store(unsafe { process::after_fork(in_the_copy) }, Ordering::Release);
    }
}

/// Called by the system in the single-threaded child. Must be async-signal-safe.
extern "C" fn in_the_copy() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    STATE.store(if SOUGHT.load(Ordering::Relaxed) { 0 } else { UNKNOWN }, Ordering::Relaxed);
}

/// Returns the number of forks from the first process to this one.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// A value that is recreated in a forked process.
pub(crate) struct PerProcess<T>(AtomicPtr<(u32, T)>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub fn get(&'static self) -> &'static T {
        let forks = forks();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null or comes from a leaked box.
        match unsafe { found.as_ref() } {
            Some((made, value)) if *made == forks => value,
            _ => self.make(found, forks),
        }
    }

    #[cold]
    fn make(&'static self, found: *mut (u32, T), forks: u32) -> &'static T {
        let made = Box::into_raw(Box::new((forks, T::default())));
        // The parent process's value is leaked, because its locks may be held forever.
        let current = match self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(faster) => {
                // SAFETY: the value was created above and has no other owner.
                drop(unsafe { Box::from_raw(made) });
                faster
            }
        };
        // SAFETY: the pointer comes from a leaked box.
        unsafe { &(*current).1 }
    }
}

/// Returns the system's ID of the calling thread.
pub(crate) fn thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }
    let (known, made) = NUMBER.get();
    if known != 0 && made == forks() {
        return known;
    }
    let number = process::thread_id();
    NUMBER.set((number, forks()));
    number
}
