//! [`Clock`]: the known order between a stream's work and the work of other streams, tracked without driver calls.
//!
//! A stream counts epochs. Work belongs to the epoch read *after* enqueueing the work. An epoch is closed *before* an
//! event is recorded or the host waits. An event recorded at the close of epoch `e` therefore follows all work of
//! epochs up to `e`. Proof: a driver serializes the calls on a stream, including queries and waits. If the work had
//! been enqueued after the recording, the driver's lock on the stream would have made the close visible to the
//! enqueueing thread. With one stream, the cost is one load per enqueued operation.
//!
//! A stream also remembers up to which epoch it has waited for other streams, directly or transitively, so that no wait
//! is inserted twice. Once the host has waited for a stream, all work for which that stream had waited has run too. The
//! number of remembered streams is limited; dropping one only causes a redundant wait.
//!
//! Each stream has two clocks ([`Timeline`]). Work that is captured into a graph does not run when it is enqueued, so
//! ordering between captured work does not apply to running work, and vice versa.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lengths::Lengths;

/// Maximum number of other streams remembered.
const REMEMBERED: usize = 256;

/// One of a stream's two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeline {
    /// Clock of running work.
    Running,
    /// Clock of captured work. Epochs continue from one capture to the next, so ordering known from one capture is not
    /// applied to a later one.
    Captured,
}

/// All work of a stream up to an epoch.
#[derive(Debug, Clone)]
pub(crate) struct StreamEpoch {
    stream: u64,
    epoch: u64,
    done: Arc<Done>,
}

/// Completion state of a stream, shared with waiters.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Last epoch whose work is known to have run.
    epoch: AtomicU64,
    pub lengths: Lengths,
}

impl StreamEpoch {
    /// Records that all work up to this epoch has run.
    pub fn finish(&self) {
        self.done.epoch.fetch_max(self.epoch, Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.done.epoch.load(Ordering::Acquire) >= self.epoch
    }
}

/// Clock of a stream; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct Clock {
    /// The stream's ID.
    stream: u64,
    /// The current, open epoch. The first epoch is 1.
    now: AtomicU64,
    done: Arc<Done>,
    /// Work of other streams for which this stream has waited, with one entry per stream.
    waited: Mutex<Vec<StreamEpoch>>,
    /// True if `waited` is not empty. Reading this flag avoids locking an empty list.
    any_waited: AtomicBool,
}

impl Clock {
    pub fn new(stream: u64) -> Self {
        Self {
            stream,
            now: AtomicU64::new(1),
            done: Arc::default(),
            waited: Mutex::default(),
            any_waited: AtomicBool::new(false),
        }
    }

    /// Returns the epoch of work that was just enqueued.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Closes the open epoch. Returns the work that precedes this point of the stream: the stream's own work, then the
    /// work of other streams for which it has waited.
    pub fn close(&self) -> Timestamp {
        // The waits are read before the epoch is closed, to exclude waits added after the close.
        let others = if self.any_waited.load(Ordering::Acquire) { self.waiting_for() } else { Vec::new() };
        let epoch = self.now.fetch_add(1, Ordering::SeqCst);
        Timestamp { own: StreamEpoch { stream: self.stream, epoch, done: Arc::clone(&self.done) }, others }
    }

    /// Returns the work of other streams for which this stream has waited and which is not known to have run.
    fn waiting_for(&self) -> Vec<StreamEpoch> {
        let mut waited = self.waited();
        waited.retain(|until| !until.is_done());
        self.any_waited.store(!waited.is_empty(), Ordering::Release);
        waited.clone()
    }

    /// Returns true if work of this epoch is known to have run.
    #[inline]
    pub fn is_done(&self, epoch: u64) -> bool {
        self.done.epoch.load(Ordering::Acquire) >= epoch
    }

    fn waited(&self) -> MutexGuard<'_, Vec<StreamEpoch>> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if later work on this stream is known to follow the other stream's work up to `epoch`.
    pub fn has_waited(&self, stream: u64, epoch: u64) -> bool {
        self.any_waited.load(Ordering::Acquire)
            && self.waited().iter().any(|until| until.stream == stream && until.epoch >= epoch)
    }

    /// Records that this stream waits for the point at which another stream closed an epoch.
    pub fn learn(&self, closed: &Timestamp) {
        let mut waited = self.waited();
        for new in closed.others.iter().chain(std::iter::once(&closed.own)) {
            if new.stream == self.stream || new.is_done() {
                continue;
            }
            match waited.iter().position(|known| known.stream == new.stream) {
                // The list is ordered by last update, so that the least recently updated entry is evicted first.
                Some(index) => {
                    let mut known = waited.remove(index);
                    known.epoch = known.epoch.max(new.epoch);
                    waited.push(known);
                }
                None => waited.push(new.clone()),
            }
        }
        self.any_waited.store(!waited.is_empty(), Ordering::Release);
        let surplus = waited.len().saturating_sub(REMEMBERED);
        waited.drain(..surplus);
    }
}

/// The point in a stream at which an epoch was closed.
#[derive(Debug)]
pub(crate) struct Timestamp {
    own: StreamEpoch,
    others: Vec<StreamEpoch>,
}

impl Timestamp {
    /// Records that the stream has reached this point.
    pub fn finish(&self) {
        self.own.finish();
        self.others.iter().for_each(StreamEpoch::finish);
    }

    /// Returns the stream's shared state.
    pub fn done(&self) -> &Arc<Done> {
        &self.own.done
    }

    /// Returns the unique ID of this point, which consists of the stream and its epoch.
    pub fn id(&self) -> (u64, u64) {
        (self.own.stream, self.own.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks<const N: usize>() -> [Clock; N] {
        std::array::from_fn(|stream| Clock::new(stream as u64))
    }

    #[test]
    fn epochs_close_and_finish() {
        let [clock] = clocks();
        let early = clock.now();
        let closed = clock.close();
        assert_eq!(closed.id(), (0, early));
        assert!(clock.now() > early, "later work is of a later epoch");
        assert!(!clock.is_done(early));
        let later = clock.close();
        later.finish();
        closed.finish();
        assert!(clock.is_done(later.id().1), "what was done stays done");
        assert!(!clock.is_done(clock.now()));
    }

    #[test]
    fn waits_are_transitive_and_never_go_back() {
        let [a, b, c] = clocks();
        let old = a.close();
        let new = a.close();
        b.learn(&new);
        c.learn(&b.close());
        assert!(c.has_waited(0, new.id().1) && c.has_waited(1, 1));
        assert!(!c.has_waited(0, new.id().1 + 1) && !c.has_waited(2, 1));
        c.learn(&old);
        assert!(c.has_waited(0, new.id().1));
        a.learn(&c.close());
        assert!(!a.has_waited(0, 1), "of its own work a stream remembers nothing");
    }

    #[test]
    fn finished_streams_finish_their_waits() {
        let [a, b, c] = clocks();
        let early = a.close();
        b.learn(&early);
        let closed = b.close();
        b.learn(&a.close());
        closed.finish();
        assert!(a.is_done(early.id().1) && b.is_done(closed.id().1));
        assert!(!a.is_done(a.now() - 1), "that was waited for later");
        c.learn(&early);
        assert!(!c.has_waited(0, early.id().1), "what has run need not be remembered");
    }

    #[test]
    fn the_number_of_remembered_streams_is_bounded() {
        let clock = Clock::new(0);
        for stream in 1..=2 * REMEMBERED as u64 {
            clock.learn(&Clock::new(stream).close());
        }
        assert_eq!(clock.waited().len(), REMEMBERED);
        assert!(clock.has_waited(2 * REMEMBERED as u64, 1) && !clock.has_waited(1, 1));
    }
}
