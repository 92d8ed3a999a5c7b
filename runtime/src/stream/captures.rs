//! Which capture a stream takes part in, as far as streams know captures.
//!
//! While a stream takes part in a capture, its work becomes part of a graph instead of running. The module
//! above defines what a capture notes of the work ([`CaptureSink`]).
//!
//! Threads. Each stream counts the beginnings and ends of captures ([`Captures::count`], odd while it takes part), before
//! the driver begins a capture and after it has ended one. A thread that enqueues work to run reads the count before
//! and after: if it has changed, the work may have become part of the graph although it was noted as running, and the
//! graph is invalid ([`Invalidation`]).
//!
//! Driver calls on a stream are counted too while they are under way ([`Captures::call`]), in the same word: what begins a
//! capture sees those that began before it, and a call that begins after it finds the capture, whose lock it then takes
//! ([`CaptureSink::hold`]). So a capture knows whether another thread can be inside a call on its streams.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::Stream;
use super::clock::Timestamp;
use super::launch_hook::LaunchHook;
use crate::device::Device;
use crate::device::graph_nodes::Noted;
use crate::driver::{EventHandle, GraphFunction};
use crate::error::{Error, GraphError, PoolId, Result};

/// A capture that streams take part in.
pub(crate) trait CaptureSink: Noted + Any + Send + Sync + fmt::Debug {
    /// Makes a stream that runs take part: what comes later on it comes after the event, which was recorded in the
    /// capture when an epoch was closed.
    fn join(self: Arc<Self>, stream: &Stream, closed: &Timestamp, event: EventHandle) -> Result<()>;
    /// Has a stream that takes part wait for an event that was recorded in the capture.
    fn wait_event(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    /// Records an event on a stream that takes part.
    fn record_event(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    /// Adds a call of a function on the host.
    fn host_function(&self, stream: &Stream, function: Arc<GraphFunction>) -> Result<()>;
    /// Has a function called before each launch of the graph.
    fn add_hook(&self, hook: Arc<LaunchHook>) -> Result<()>;
    /// Whether it has ended.
    fn has_ended(&self) -> bool;
    /// Takes the capture's lock until the value is dropped.
    fn hold(&self) -> Box<dyn Held + '_>;
}

/// A lock that is held.
pub(crate) trait Held {}

thread_local! {
    /// The address of the capture whose lock this thread holds; null for none.
    static HOLDS: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// While it lives, this thread holds a capture's lock: all driver calls that it makes meanwhile are of that capture.
pub(crate) struct Holds(*const ());

impl Holds {
    /// Of a capture at this address.
    pub fn begin<T>(capture: &T) -> Self {
        Self(HOLDS.replace(std::ptr::from_ref(capture).cast()))
    }

    /// Whether this thread holds the lock of the capture at this address.
    pub fn is_of<T>(capture: &T) -> bool {
        HOLDS.get() == std::ptr::from_ref(capture).cast()
    }

    /// Whether this thread holds the lock of any.
    pub(super) fn is_there() -> bool {
        !HOLDS.get().is_null()
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        HOLDS.set(self.0);
    }
}

/// Whether a graph is invalid because it may hold work that it does not know of. Then it cannot be launched.
pub(crate) type Invalidation = Arc<AtomicBool>;

/// A stream's part in captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Beginnings and ends of captures, above [`CALLS`] bits with the number of driver calls under way.
    word: AtomicU64,
    slot: Mutex<Slot>,
    /// The event that captured work of other streams waits for. Recorded by captures only.
    pub(super) order: OnceLock<EventHandle>,
    /// Held while work that is being captured uses memory that the capture has for a purpose of this stream.
    pub exclusive: Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub current: Option<Arc<dyn CaptureSink>>,
    /// The stream's place before its current capture, which work that runs can wait for.
    pub before: Option<Arc<Before>>,
    /// Of the current or the last capture.
    pub invalidation: Option<Invalidation>,
    /// Likewise.
    pub pool: Option<PoolId>,
}

/// Bits for the number of driver calls under way: more than there are threads.
const CALLS: u32 = 24;

/// A driver call on a stream that is under way.
pub(super) struct Call<'a>(&'a Captures);

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.word.fetch_sub(1, Ordering::Release);
    }
}

/// A stream's place before a capture.
#[derive(Debug)]
pub(crate) struct Before {
    pub event: EventHandle,
    pub closed: Timestamp,
    pub device: Device,
}

impl Drop for Before {
    fn drop(&mut self) {
        if !self.device.is_forked() {
            self.device.0.events.put(self.event, false);
        }
    }
}

impl Captures {
    pub fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Beginnings and ends of captures so far: odd while the stream takes part in one.
    #[inline]
    pub fn count(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> CALLS
    }

    /// Counts the beginning or end of a capture. Returns whether driver calls on the stream are under way.
    pub fn changed(&self) -> bool {
        !self.word.fetch_add(1 << CALLS, Ordering::SeqCst).is_multiple_of(1 << CALLS)
    }

    /// Counts a driver call until the value is dropped. Returns whether the stream takes part in a capture.
    #[inline]
    pub(super) fn call(&self) -> (Call<'_>, bool) {
        let before = self.word.fetch_add(1, Ordering::SeqCst);
        (Call(self), Self::is_capturing(before >> CALLS))
    }

    /// Whether a stream with this count takes part in a capture.
    #[inline]
    pub fn is_capturing(count: u64) -> bool {
        count % 2 == 1
    }
}

/// Which capture a stream takes part in: equal for all streams of one capture, and for no other, also when it has ended.
#[derive(Debug, Clone)]
pub struct CaptureId(Weak<dyn CaptureSink>);

impl CaptureId {
    /// Whether the capture has not ended yet.
    pub fn is_active(&self) -> bool {
        self.0.upgrade().is_some_and(|capture| !capture.has_ended())
    }
}

impl PartialEq for CaptureId {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for CaptureId {}

impl Stream {
    pub(crate) fn captures(&self) -> &Captures {
        &self.core().captures
    }

    /// Whether work on it is being captured into a graph.
    #[inline]
    pub fn is_capturing(&self) -> bool {
        Captures::is_capturing(self.captures().count())
    }

    /// The capture that the stream takes part in.
    pub(crate) fn capture_sink(&self) -> Option<Arc<dyn CaptureSink>> {
        if !self.is_capturing() {
            return None;
        }
        self.captures().slot().current.clone()
    }

    /// The capture that the stream takes part in, if it does.
    pub fn capture_id(&self) -> Option<CaptureId> {
        self.capture_sink().map(|capture| CaptureId(Arc::downgrade(&capture)))
    }

    /// The stream's place before the capture it takes part in.
    pub(super) fn before_capture(&self) -> Option<Arc<Before>> {
        self.captures().slot().before.clone()
    }

    /// Beginnings and ends of captures so far: see the [module](self).
    #[inline]
    pub(crate) fn capture_count(&self) -> u64 {
        self.captures().count()
    }

    /// Invalidates the graph into which work that was noted as running may have gone.
    #[cold]
    pub(crate) fn invalidate_captures(&self) {
        let invalidation = self.captures().slot().invalidation.clone();
        if invalidation.is_some_and(|invalidation| !invalidation.swap(true, Ordering::AcqRel)) {
            tracing::warn!(
                device = %self.device().id(),
                stream = self.id(),
                "a graph was invalidated: another thread enqueued work on the stream while its capture began or ended; let one thread capture, or capture on a stream of its own"
            );
        }
    }

    /// Whether the graph that is being captured is invalidated.
    pub(super) fn is_invalidated(&self) -> bool {
        self.captures()
            .slot()
            .invalidation
            .as_ref()
            .is_some_and(|invalidation| invalidation.load(Ordering::Acquire))
    }

    /// Fails if the stream is being captured, because `call` cannot be; `instead` says what to do.
    ///
    /// # Errors
    /// [`GraphError::NotCapturable`].
    pub fn check_not_capturing(&self, call: &'static str, instead: &'static str) -> Result<()> {
        if self.is_capturing() {
            Err(Error::Graph(GraphError::NotCapturable { call, instead }))
        } else {
            Ok(())
        }
    }
}
