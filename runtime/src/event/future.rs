//! Futures for events and streams, for any executor.

use std::borrow::Borrow;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Event;
use super::reactor::Waiter;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Future that completes when an event's last recording is reached, created by `event.await` and `(&event).await`.
///
/// The future never blocks, works with any executor, and can be polled from any thread. A device fault wakes it. It can
/// be dropped at any time: enqueued work continues, and the memory that the work uses stays allocated.
///
/// For the first 50 microseconds, the future wakes itself immediately, so waiting for short work requires no thread
/// switch. After that, one thread per process wakes all futures. An emulated device with a schedule
/// (`EmulatedDriverBuilder::stepped`) makes no progress while the program only awaits.
///
/// The future returns the same errors as [`Event::synchronize`]. It fails in a [host function](Stream::host_function),
/// where the driver rejects queries.
///
/// The example of [`Stream::completed`] awaits the work of a stream in the same way.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Reached<E: Borrow<Event> = Event> {
    // Declared first, so that it is dropped before the event.
    waiter: Waiter,
    event: E,
    may_be_recorded: bool,
}

impl<E: Borrow<Event>> Reached<E> {
    fn new(event: E, may_be_recorded: bool) -> Self {
        Self { waiter: Waiter::default(), event, may_be_recorded }
    }
}

// The future is never pinned structurally.
impl<E: Borrow<Event>> Unpin for Reached<E> {}

impl<E: Borrow<Event>> Future for Reached<E> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { waiter, event, may_be_recorded } = self.get_mut();
        waiter.poll((*event).borrow(), *may_be_recorded, task)
    }
}

/// Waits until the event's last recording is reached; see [`Reached`].
impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = Reached;

    fn into_future(self) -> Reached {
        Reached::new(self, false)
    }
}

/// As for [`Event`], but if the event is recorded again before the future completes, the future may wait for the new
/// recording.
impl<'e> IntoFuture for &'e Event {
    type Output = Result<()>;
    type IntoFuture = Reached<&'e Event>;

    fn into_future(self) -> Reached<&'e Event> {
        Reached::new(self, true)
    }
}

impl<E: Borrow<Event>> fmt::Debug for Reached<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reached({:?})", self.event.borrow())
    }
}

/// Future that completes when a stream has finished the work enqueued so far, created by [`Stream::completed`].
///
/// See the example of [`Stream::completed`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Completed(std::result::Result<Reached, Error>);

impl Future for Completed {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.get_mut().0 {
            Ok(reached) => Pin::new(reached).poll(task),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl Stream {
    /// Returns a future that completes when all work enqueued before this call has run. Like [`Reached`], the future
    /// never blocks and works with any executor.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Result, Stream};
    ///
    /// async fn doubled(stream: &Stream, x: &[u8]) -> Result<Vec<u8>> {
    ///     let x = DeviceBuffer::from_host(stream, x)?;
    ///     let mut y = DeviceBuffer::zeros(stream, 2 * x.len())?;
    ///     stream.copy(&x, y.slice_mut(..x.len()))?;
    ///     stream.copy(&x, y.slice_mut(x.len()..))?;
    ///     stream.completed().await?;
    ///     Ok(stream.copy_to_host_async(&y, vec![0; y.len()])?.await?)
    /// }
    /// # use std::task::{Context, Poll, Wake};
    /// # struct Unpark(std::thread::Thread);
    /// # impl Wake for Unpark { fn wake(self: std::sync::Arc<Self>) { self.0.unpark() } }
    /// # fn main() -> Result<()> {
    /// # let stream = Stream::new(&Device::emulated(0)?)?;
    /// # let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    /// # let mut future = std::pin::pin!(doubled(&stream, &[1, 2]));
    /// # let twice = loop {
    /// #     match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #         Poll::Ready(twice) => break twice?,
    /// #         Poll::Pending => std::thread::park(),
    /// #     }
    /// # };
    /// # assert_eq!(twice, [1, 2, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future returns the same errors as [`Stream::synchronize`].
    pub fn completed(&self) -> Completed {
        let recorded = self.check_not_capturing(
            "Stream::completed",
            "captured work does not run until the graph is launched; await the launch",
        );
        Completed(recorded.and_then(|()| self.record_event()).map(Event::into_future))
    }
}
