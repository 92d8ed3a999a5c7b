//! The effect of `fork` on devices: the copy of a process has none of those that were opened before.
//!
//! CUDA does not work in a process that was forked after it was started, and the threads of an emulated device are
//! not copied. So in the copy every call on a device that was opened before the fork, and opening any device of
//! that kind, fails with [`Error::Forked`]; nothing waits there for what does not exist. Values dropped in the
//! copy call no driver and take no lock. A process that is forked before a device of a kind is opened, and for
//! CUDA before devices are listed, opens them in the copy as usual. Starting another program
//! (`std::process::Command`) is not affected.
//!
//! How: with the first device, a handler is registered that the system calls in the copy. It counts forks; a device
//! remembers the count at which it was opened, and a call compares the two. The same word says whether an observer
//! [listens](super::observe), and counts active captures, so that all questions cost one load.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::{Device, DeviceId, observe};
use crate::driver::host_function;
use crate::error::{Error, Result};

/// Read by every call on a device: the number of forks from the first process that opened a device to this one in the lower
/// 32 bits, above them the number of active captures, of which is [noted](super::graph_nodes) where, and [`OBSERVED`].
static STATE: AtomicU64 = AtomicU64::new(0);
/// The bit that is set while an [observer](super::observe) is registered.
const OBSERVED: u64 = 1 << 63;
/// One capture.
const CAPTURE: u64 = 1 << 32;
/// The bits with the number of forks.
const FORKS: u64 = CAPTURE - 1;

/// Whether an observer is registered, or work is captured. One load, which no other thread's work makes slow.
#[inline]
pub(crate) fn is_observed() -> bool {
    STATE.load(Ordering::Relaxed) >= CAPTURE
}

/// Whether a stream of this process is being captured, on any device.
pub fn is_any_stream_capturing() -> bool {
    STATE.load(Ordering::SeqCst) & !OBSERVED >= CAPTURE
}

/// Says whether an observer is registered.
pub(super) fn set_observed(is_observed: bool) {
    if is_observed {
        STATE.fetch_or(OBSERVED, Ordering::SeqCst);
    } else {
        STATE.fetch_and(!OBSERVED, Ordering::SeqCst);
    }
}

/// While it lives, [`is_observed`].
#[derive(Debug)]
pub(crate) struct Noting(Origin);

impl Noting {
    /// Work is captured from now on.
    pub(crate) fn begin() -> Self {
        STATE.fetch_add(CAPTURE, Ordering::SeqCst);
        Self(Origin::default())
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        // A copy of the process has forgotten it.
        if !self.0.is_elsewhere() {
            STATE.fetch_sub(CAPTURE, Ordering::SeqCst);
        }
    }
}

/// Forks until now.
#[inline]
fn forks() -> u32 {
    (STATE.load(Ordering::Relaxed) & FORKS) as u32
}

/// The kinds of devices, as bits, that this process uses.
static USED: AtomicU8 = AtomicU8::new(0);
/// The kinds that cannot be used, since a process before this one used them.
static BARRED: AtomicU8 = AtomicU8::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// The process in which something was made.
#[derive(Debug)]
pub(crate) struct Origin(u32);

impl Default for Origin {
    /// This process.
    fn default() -> Self {
        Self(forks())
    }
}

impl Origin {
    /// Fails in a copy of that process, and in a call of an observer.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if u64::from(self.0) == STATE.load(Ordering::Relaxed) { Ok(()) } else { self.check_observed() }
    }

    /// As [`Self::check`], when there are observers or it is another process.
    #[cold]
    fn check_observed(&self) -> Result<()> {
        if self.is_elsewhere() {
            Err(Error::Forked)
        } else if observe::is_calling() {
            Err(Error::InObserver)
        } else {
            Ok(())
        }
    }

    /// Whether this process is a copy of that one.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        // The count changes only while a process has one thread, so every thread reads the same.
        self.0 != forks()
    }
}

fn bit(kind: DeviceId) -> u8 {
    if kind.is_emulated() { 1 } else { 2 }
}

/// Fails where devices of this kind cannot be used, since the process was forked from one that used them.
pub(crate) fn check(kind: DeviceId) -> Result<()> {
    if BARRED.load(Ordering::Relaxed) & bit(kind) != 0 { Err(Error::Forked) } else { Ok(()) }
}

/// Notes that devices of this kind are used from now on. To be called before the driver is.
///
/// Fails as [`check`] does.
pub(crate) fn begin_use(kind: DeviceId) -> Result<()> {
    check(kind)?;
    if !REGISTERED.load(Ordering::Acquire) {
        // Two threads may both come here: a fork that is noted twice is noted. No lock is taken, since the copy
        // would never get one that another thread had.
        REGISTERED.store(register(), Ordering::Release);
    }
    USED.fetch_or(bit(kind), Ordering::Relaxed);
    Ok(())
}

/// Takes [`begin_use`] back: the driver could not be started, so nothing of it is in use.
pub(super) fn end_use(kind: DeviceId) {
    USED.fetch_and(!bit(kind), Ordering::Relaxed);
}

/// Called by the system in a copy of the process, while it has one thread. It is limited to what a signal handler may
/// do.
#[cfg(unix)]
unsafe extern "C" fn in_the_copy() {
    STATE.fetch_add(1, Ordering::Relaxed);
    // The locks of observers may be held by threads that do not exist here, and captures be theirs.
    STATE.fetch_and(FORKS, Ordering::Relaxed);
    BARRED.fetch_or(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether the handler is registered. The system refuses only without memory; then the next opening tries again.
#[cfg(unix)]
fn register() -> bool {
    // SAFETY: the handler only touches atomic values, which a copied process may do in any state.
    unsafe { libc::pthread_atfork(None, None, Some(in_the_copy)) == 0 }
}

#[cfg(not(unix))]
fn register() -> bool {
    true
}

impl Device {
    /// Whether the device was opened before this process was forked, so that it cannot be used.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.0.health.origin.is_elsewhere()
    }

    /// Fails if it was.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        self.0.health.origin.check()
    }
}

impl Drop for Device {
    #[inline]
    fn drop(&mut self) {
        if self.is_forked() {
            // One handle more stays for good, so the device is never closed here: that would wait for threads that
            // do not exist, and call a driver that does not work.
            std::mem::forget(self.0.clone());
        } else if host_function::is_running() {
            // It may be the last handle, and nothing of the device can be closed here.
            host_function::drop_elsewhere(Box::new(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn operations_are_observed_until_the_last_capture_ends() {
        let [first, second] = [Noting::begin(), Noting::begin()];
        drop(first);
        assert!(is_observed());
        drop(second);
        // Other tests capture too, for a while.
        let until = Instant::now() + Duration::from_secs(20);
        while is_observed() {
            assert!(Instant::now() < until, "a capture that ended is still noted");
            std::thread::yield_now();
        }
    }
}
