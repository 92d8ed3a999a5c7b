//! The capture state that a stream needs.
//!
//! While a stream takes part in a capture, its work becomes part of a graph instead of running. A higher-level module
//! defines how a capture records the work ([`CaptureSink`]).
//!
//! Each stream counts the starts and ends of its captures ([`Captures::count`]), so the count is odd during a capture.
//! It is incremented before the driver starts a capture and after the driver has ended it. A thread that enqueues work
//! outside captures reads the count before and after enqueueing. If the count has changed, the work may have become
//! part of the graph although it was recorded as running, so the graph is marked invalid ([`Invalidation`]).
//!
//! The same word counts driver calls in flight on the stream ([`Captures::call`]). The start of a capture therefore
//! observes all earlier calls. Later calls observe the capture and acquire its lock ([`CaptureSink::hold`]). A capture
//! can thus detect that another thread may be inside a call on one of its streams.

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

/// A capture, as seen by its streams.
pub(crate) trait CaptureSink: Noted + Any + Send + Sync + fmt::Debug {
    /// Makes a running stream join the capture. Later work on the stream waits for the event, which was recorded in the
    /// capture when the epoch `closed` was closed.
    fn join(self: Arc<Self>, stream: &Stream, closed: &Timestamp, event: EventHandle) -> Result<()>;
    /// Makes a stream of the capture wait for an event that was recorded in the capture.
    fn wait_event(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    /// Records an event on a stream of the capture.
    fn record_event(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    /// Adds a host function to the graph.
    fn host_function(&self, stream: &Stream, function: Arc<GraphFunction>) -> Result<()>;
    /// Registers a callback that is called before each launch of the graph.
    fn add_hook(&self, hook: Arc<LaunchHook>) -> Result<()>;
    /// Returns true if the capture has ended.
    fn has_ended(&self) -> bool;
    /// Acquires the capture's lock and holds it until the returned value is dropped.
    fn hold(&self) -> Box<dyn Held + '_>;
}

pub(crate) trait Held {}

thread_local! {
    /// Address of the capture whose lock this thread holds; null if this thread holds no capture's lock.
    static HOLDS: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// Marks a capture's lock as held by this thread while the guard exists; all driver calls of the thread then belong to
/// that capture.
pub(crate) struct Holds(*const ());

impl Holds {
    /// Marks the lock of the capture at this address as held.
    pub fn begin<T>(capture: &T) -> Self {
        Self(HOLDS.replace(std::ptr::from_ref(capture).cast()))
    }

    /// Returns true if this thread holds the lock of the capture at this address.
    pub fn is_of<T>(capture: &T) -> bool {
        HOLDS.get() == std::ptr::from_ref(capture).cast()
    }

    /// Returns true if this thread holds the lock of any capture.
    pub(super) fn is_there() -> bool {
        !HOLDS.get().is_null()
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        HOLDS.set(self.0);
    }
}

/// True if a graph may contain unrecorded work and therefore cannot be launched.
pub(crate) type Invalidation = Arc<AtomicBool>;

/// Capture state of a stream.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Counter of capture starts and ends, shifted left by [`CALLS`] bits; the low bits count driver calls in flight.
    word: AtomicU64,
    slot: Mutex<Slot>,
    /// Event, recorded only in captures, for which captured work on other streams waits.
    pub(super) order: OnceLock<EventHandle>,
    /// Held while captured work uses scratch memory that the capture keeps for this stream.
    pub exclusive: Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub current: Option<Arc<dyn CaptureSink>>,
    /// Position of the stream before its current capture, for which running work can wait.
    pub before: Option<Arc<Before>>,
    /// Invalidation flag of the current or the last capture.
    pub invalidation: Option<Invalidation>,
    /// ID of the memory pool of the current or the last capture.
    pub pool: Option<PoolId>,
}

/// Number of bits for the count of driver calls in flight; the count cannot exceed the number of threads.
const CALLS: u32 = 24;

/// Guard that counts a driver call in flight on a stream.
pub(super) struct Call<'a>(&'a Captures);

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.word.fetch_sub(1, Ordering::Release);
    }
}

/// Position of a stream before a capture.
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

    /// Returns the number of capture starts and ends so far; odd during a capture.
    #[inline]
    pub fn count(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> CALLS
    }

    /// Counts the start or end of a capture. Returns true if driver calls on the stream are in flight.
    pub fn changed(&self) -> bool {
        !self.word.fetch_add(1 << CALLS, Ordering::SeqCst).is_multiple_of(1 << CALLS)
    }

    /// Counts a driver call until the returned guard is dropped. Also returns true if the stream is capturing.
    #[inline]
    pub(super) fn call(&self) -> (Call<'_>, bool) {
        let before = self.word.fetch_add(1, Ordering::SeqCst);
        (Call(self), Self::is_capturing(before >> CALLS))
    }

    /// Returns true if this value of [`Self::count`] means that the stream is capturing.
    #[inline]
    pub fn is_capturing(count: u64) -> bool {
        count % 2 == 1
    }
}

/// ID of a stream's capture, equal for all streams of one capture and different for different captures, even after they
/// have ended.
///
/// ```
/// use warpsmith_runtime::graph::CaptureMode;
/// use warpsmith_runtime::{Capture, Device, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// assert!(stream.capture_id().is_none());
/// let capture = Capture::begin(&stream, CaptureMode::ThreadLocal)?;
/// let id = stream.capture_id().expect("the stream is capturing");
/// assert!(id.is_active());
/// capture.end()?;
/// assert!(!id.is_active());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CaptureId(Weak<dyn CaptureSink>);

impl CaptureId {
    /// Returns true if the capture has not ended.
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

    /// Returns true if work on the stream is being captured into a graph.
    #[inline]
    pub fn is_capturing(&self) -> bool {
        Captures::is_capturing(self.captures().count())
    }

    /// Returns the stream's capture, if any.
    pub(crate) fn capture_sink(&self) -> Option<Arc<dyn CaptureSink>> {
        if !self.is_capturing() {
            return None;
        }
        self.captures().slot().current.clone()
    }

    /// Returns the ID of the stream's capture, if any.
    pub fn capture_id(&self) -> Option<CaptureId> {
        self.capture_sink().map(|capture| CaptureId(Arc::downgrade(&capture)))
    }

    /// Returns the stream's position before its capture, if any.
    pub(super) fn before_capture(&self) -> Option<Arc<Before>> {
        self.captures().slot().before.clone()
    }

    /// Returns the number of capture starts and ends so far; see the [module's documentation](self).
    #[inline]
    pub(crate) fn capture_count(&self) -> u64 {
        self.captures().count()
    }

    /// Invalidates the graph, because it may contain work that was recorded as running.
    #[cold]
    pub(crate) fn invalidate_captures(&self) {
        let invalidation = self.captures().slot().invalidation.clone();
        if invalidation.is_some_and(|invalidation| !invalidation.swap(true, Ordering::AcqRel)) {
            tracing::warn!(
                device = %self.device().id(),
                stream = self.id(),
                "a graph was invalidated: another thread enqueued work on the stream while its capture started or \
                 ended; capture on a stream that no other thread uses"
            );
        }
    }

    /// Returns true if the graph that is being captured has been invalidated.
    pub(super) fn is_invalidated(&self) -> bool {
        self.captures()
            .slot()
            .invalidation
            .as_ref()
            .is_some_and(|invalidation| invalidation.load(Ordering::Acquire))
    }

    /// Returns an error if the stream is being captured. The error message names `call`, which cannot be captured, and
    /// `instead`, an alternative.
    ///
    /// # Errors
    /// Returns [`GraphError::NotCapturable`].
    pub fn check_not_capturing(&self, call: &'static str, instead: &'static str) -> Result<()> {
        if self.is_capturing() {
            Err(Error::Graph(GraphError::NotCapturable { call, instead }))
        } else {
            Ok(())
        }
    }
}
