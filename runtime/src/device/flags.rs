//! One word that every call on a device reads: the number of forks, the number of active captures, and whether an
//! observer is registered.
//!
//! The word is usually zero (no fork, capture or observer), so one load and one comparison replace three checks.
//! [`fork`](super::fork) updates the fork count, [`observe`](super::observe) the observer bit, and [`ActiveCapture`]
//! the capture count.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fork::Origin;

/// The lower 32 bits count the forks between the first process that opened a device and this one. The bits above, up to
/// [`OBSERVED`], count active captures.
static FLAGS: AtomicU64 = AtomicU64::new(0);
/// Set while an observer is registered.
const OBSERVED: u64 = 1 << 63;
/// Increment per active capture.
const CAPTURE: u64 = 1 << 32;
const FORKS: u64 = CAPTURE - 1;

/// Returns true if operations must be reported: an observer is registered, or a capture is active.
#[inline]
pub(crate) fn must_report() -> bool {
    FLAGS.load(Ordering::Relaxed) >= CAPTURE
}

/// Returns true if a stream of this process is being captured, on any device.
pub fn is_any_stream_capturing() -> bool {
    FLAGS.load(Ordering::SeqCst) & !OBSERVED >= CAPTURE
}

pub(super) fn set_observed(is_observed: bool) {
    if is_observed {
        FLAGS.fetch_or(OBSERVED, Ordering::SeqCst);
    } else {
        FLAGS.fetch_and(!OBSERVED, Ordering::SeqCst);
    }
}

#[inline]
pub(super) fn forks() -> u32 {
    (FLAGS.load(Ordering::Relaxed) & FORKS) as u32
}

/// Returns true if there is no observer and no capture, and the process has been forked `forks` times.
#[inline]
pub(super) fn are_only_forks(forks: u32) -> bool {
    FLAGS.load(Ordering::Relaxed) == u64::from(forks)
}

/// Increments the fork count in the child. Clears the observer bit and the capture count, because threads that do not
/// exist in the child may hold the locks of observers and captures. Async-signal-safe: accesses only atomics.
pub(super) fn count_fork() {
    FLAGS.fetch_add(1, Ordering::Relaxed);
    FLAGS.fetch_and(FORKS, Ordering::Relaxed);
}

/// Guard that counts one active capture.
#[derive(Debug)]
pub(crate) struct ActiveCapture(Origin);

impl ActiveCapture {
    pub(crate) fn begin() -> Self {
        FLAGS.fetch_add(CAPTURE, Ordering::SeqCst);
        Self(Origin::default())
    }
}

impl Drop for ActiveCapture {
    fn drop(&mut self) {
        // A forked child has already reset the count.
        if !self.0.is_elsewhere() {
            FLAGS.fetch_sub(CAPTURE, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn operations_are_reported_until_the_last_capture_ends() {
        let [first, second] = [ActiveCapture::begin(), ActiveCapture::begin()];
        drop(first);
        assert!(must_report());
        drop(second);
        // Other tests capture concurrently, but only briefly.
        let until = Instant::now() + Duration::from_secs(20);
        while must_report() {
            assert!(Instant::now() < until, "an ended capture is still counted");
            std::thread::yield_now();
        }
    }
}
