//! [`Pending`]: an enqueued copy that owns its host memory.
//!
//! The memory is returned only once no device or host function can use it, even if the copy failed.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::device::observe::site;
use crate::driver::host_function;
use crate::error::{Error, Result};
use crate::event::{Event, Waiter};
use crate::memory::PinnedBuffer;
use crate::stream::Stream;

/// An enqueued copy, which owns its host memory. [`Pending::wait`] waits for the copy and returns the memory;
/// `pending.await` does the same without blocking the thread.
///
/// Dropping the value does not cancel the copy; the memory is kept until the copy has finished.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 3)?;
/// let sent = stream.copy_from_host_async(vec![1, 2, 3], &mut buffer)?;
/// let received = stream.copy_to_host_async(&buffer, vec![0; 3])?;
/// // The host can do other work.
/// assert_eq!(received.wait()?, [1, 2, 3]);
/// let vec = sent.wait()?; // can be reused
/// assert_eq!(vec, [1, 2, 3]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[must_use = "`wait` returns the host memory"]
pub struct Pending<H> {
    held: HostSide<H>,
    stream: Stream,
    /// Event recorded on the stream after the copy.
    event: Event,
}

/// Error from a failed copy, with the host memory. If the memory was the target of the copy, its contents are
/// unspecified.
///
/// ```
/// use warpsmith_runtime::{CopyFailed, Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 3)?;
/// match stream.copy_from_host_async(vec![1, 2], &mut buffer) {
///     Ok(_) => unreachable!("the lengths differ"),
///     Err(CopyFailed { error, memory }) => {
///         assert!(error.to_string().contains("3"), "{error}");
///         assert_eq!(memory, [1, 2]);
///     }
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct CopyFailed<H> {
    /// The error that caused the copy to fail.
    pub error: Error,
    /// The host memory that was moved into the copy.
    pub memory: H,
}

pub(super) enum HostSide<H> {
    /// Memory that only this value uses.
    Own(H),
    /// Memory that host functions also use.
    Shared(Arc<SharedHost<H>>),
    /// Memory that is filled from staging memory after the copy has finished.
    Behind { memory: H, staging: PinnedBuffer<u8>, fill: fn(&mut H, &PinnedBuffer<u8>) },
}

/// Host memory that host functions use until it is taken back.
pub(super) struct SharedHost<H>(Mutex<Option<H>>);

impl<H> SharedHost<H> {
    pub fn new(memory: H) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(memory))))
    }

    /// Locks the memory while the guard exists. The guard contains `None` after the memory was taken back.
    pub fn lock(&self) -> MutexGuard<'_, Option<H>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> HostSide<H> {
    /// Returns the memory of a copy that did not complete. The caller must ensure that no enqueued work still uses it.
    fn take(self) -> H {
        match self {
            HostSide::Own(memory) | HostSide::Behind { memory, .. } => memory,
            HostSide::Shared(shared) => match shared.lock().take() {
                Some(memory) => memory,
                None => unreachable!("it is taken once, here, by value"),
            },
        }
    }

    /// Returns the memory of a copy that has finished.
    fn finish(self) -> H {
        match self {
            HostSide::Behind { mut memory, staging, fill } => {
                fill(&mut memory, &staging);
                memory
            }
            held => held.take(),
        }
    }
}

impl<H> Pending<H> {
    /// Creates the pending copy from the result of enqueueing it and its memory. `event` must not have been recorded
    /// yet.
    pub(super) fn settle(
        stream: &Stream,
        enqueued: Result<()>,
        event: Event,
        held: HostSide<H>,
    ) -> std::result::Result<Self, CopyFailed<H>> {
        match enqueued.and_then(|()| event.record(stream)) {
            Ok(()) => Ok(Self { held, stream: stream.clone(), event }),
            Err(error) => Err(CopyFailed::after(stream, error, held)),
        }
    }

    /// Makes later work on a stream wait for the copy, but not for work enqueued after the copy. Buffer uses are
    /// synchronized automatically; call this method for uses that buffers do not track, or to insert the wait earlier.
    ///
    /// # Errors
    /// Returns the same errors as [`Stream::wait_event`].
    #[track_caller]
    pub fn make_wait(&self, stream: &Stream) -> Result<()> {
        let _site = site();
        stream.wait_event(&self.event)
    }

    /// Returns true if the copy has finished.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    pub fn is_done(&self) -> Result<bool> {
        self.event.query()
    }

    /// Waits until the copy has finished and returns the host memory.
    ///
    /// # Errors
    /// Returns the fault, together with the memory, if a kernel faulted.
    ///
    /// # Panics
    /// Panics in a [host function](Stream::host_function), which cannot wait. The memory is then kept for the copy.
    #[track_caller]
    pub fn wait(self) -> std::result::Result<H, CopyFailed<H>> {
        let _site = site();
        check_can_wait();
        let Self { held, stream, event } = self;
        match event.synchronize() {
            Ok(()) => Ok(held.finish()),
            Err(error) => Err(CopyFailed::after(&stream, error, held)),
        }
    }
}

/// Future that completes with the host memory when the copy has finished, created by `pending.await`.
///
/// Like [`Reached`](crate::event::Reached), the future does not block, except after an error: it then blocks until the
/// device no longer uses the memory, and returns the memory with the error. Dropping the future has the same effect as
/// dropping the [`Pending`].
///
/// The example of [`Stream::completed`] awaits a copy.
///
/// # Panics
/// Like [`Pending::wait`], polling panics in a [host function](Stream::host_function).
#[must_use = "futures do nothing unless they are awaited"]
pub struct PendingFuture<H> {
    // Declared first, so that it is dropped before the event.
    waiter: Waiter,
    /// `None` after the future has completed.
    pending: Option<Pending<H>>,
}

// The future is never pinned structurally.
impl<H> Unpin for PendingFuture<H> {}

impl<H> Future for PendingFuture<H> {
    type Output = std::result::Result<H, CopyFailed<H>>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        check_can_wait();
        let Self { waiter, pending } = self.get_mut();
        let Some(Pending { event, .. }) = pending else {
            panic!("a copy was polled again after it had completed");
        };
        let Poll::Ready(reached) = waiter.poll(event, false, task) else { return Poll::Pending };
        let Some(Pending { held, stream, .. }) = pending.take() else { unreachable!("it was there above") };
        Poll::Ready(match reached {
            Ok(()) => Ok(held.finish()),
            Err(error) => Err(CopyFailed::after(&stream, error, held)),
        })
    }
}

impl<H> IntoFuture for Pending<H> {
    type Output = std::result::Result<H, CopyFailed<H>>;
    type IntoFuture = PendingFuture<H>;

    fn into_future(self) -> PendingFuture<H> {
        PendingFuture { waiter: Waiter::default(), pending: Some(self) }
    }
}

impl<H> fmt::Debug for PendingFuture<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingFuture({})", std::any::type_name::<H>())
    }
}

/// Panics in a host function and in an observer's callback.
#[track_caller]
fn check_can_wait() {
    assert!(!host_function::is_running(), "a host function cannot wait for a copy; wait in another thread");
}

impl<H> CopyFailed<H> {
    /// Returns the error with the memory, after waiting for the stream, because the copy may still be running.
    fn after(stream: &Stream, error: Error, held: HostSide<H>) -> Self {
        // After this call, no work of the stream is running.
        stream.wait_idle();
        Self { error, memory: held.take() }
    }
}

impl<H> fmt::Debug for Pending<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", std::any::type_name::<H>())
    }
}

impl<H> fmt::Debug for CopyFailed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<H> fmt::Display for CopyFailed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<H> std::error::Error for CopyFailed<H> {}

impl<H> From<CopyFailed<H>> for Error {
    fn from(failed: CopyFailed<H>) -> Self {
        failed.error
    }
}
