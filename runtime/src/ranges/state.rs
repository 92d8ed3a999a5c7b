//! Whether anything listens, in one word that every range loads; and what a forked process has of it: nothing.
//!
//! Locks may be held in a forked process by threads that do not exist there. So a handler that the system calls in the
//! copy counts forks, and what has a lock is made anew when the count has changed ([`PerProcess`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// A listener is registered.
pub(crate) const LISTENERS: u32 = 1;
/// A tool is attached by NVTX.
pub(crate) const TOOL: u32 = 1 << 1;
/// Whether there is a tool was not looked at yet.
pub(crate) const UNKNOWN: u32 = 1 << 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Whether a tool was looked for: a copy of this process must not do it again.
static SOUGHT: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Whether something listens, or may. One load, which other threads do not make slow.
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

/// Notes that a tool is looked for.
pub(crate) fn seek() {
    SOUGHT.store(true, Ordering::Relaxed);
}

/// Registers the handler for forks, before anything is registered.
pub(crate) fn watch_forks() {
    if !REGISTERED.load(Ordering::Acquire) {
        // Two threads may both come here: a fork that is counted twice is counted.
        REGISTERED.store(register(), Ordering::Release);
    }
}

/// Called by the system in a copy of the process, while it has one thread. It is limited to what a signal handler may do.
#[cfg(unix)]
unsafe extern "C" fn in_the_copy() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    STATE.store(if SOUGHT.load(Ordering::Relaxed) { 0 } else { UNKNOWN }, Ordering::Relaxed);
}

/// Whether the handler is registered. The system refuses only without memory; then the next call tries again.
#[cfg(unix)]
fn register() -> bool {
    // SAFETY: the handler only touches atomic values, which a copied process may do in any state.
    unsafe { libc::pthread_atfork(None, None, Some(in_the_copy)) == 0 }
}

#[cfg(not(unix))]
fn register() -> bool {
    true
}

/// The number of forks from the first process to this one.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// A value that a forked process has anew.
pub(crate) struct PerProcess<T>(AtomicPtr<(u32, T)>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub fn get(&'static self) -> &'static T {
        let forks = forks();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null or of a leaked box.
        match unsafe { found.as_ref() } {
            Some((made, value)) if *made == forks => value,
            _ => self.make(found, forks),
        }
    }

    #[cold]
    fn make(&'static self, found: *mut (u32, T), forks: u32) -> &'static T {
        let made = Box::into_raw(Box::new((forks, T::default())));
        // The value of the process before is left as it is: its locks may be held for good.
        let current = match self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(faster) => {
                // SAFETY: it was made above, and nothing else has it.
                drop(unsafe { Box::from_raw(made) });
                faster
            }
        };
        // SAFETY: it is of a leaked box.
        unsafe { &(*current).1 }
    }
}

/// The calling thread by the system's number.
pub(crate) fn thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }
    let (known, made) = NUMBER.get();
    if known != 0 && made == forks() {
        return known;
    }
    let number = thread_number();
    NUMBER.set((number, forks()));
    number
}

#[cfg(target_os = "linux")]
fn thread_number() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() as u64 }
}

#[cfg(not(target_os = "linux"))]
fn thread_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
