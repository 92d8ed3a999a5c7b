//! The thread's current stream per device, and guards that set it temporarily.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Stream;
use crate::device::{Device, guard};

thread_local! {
    /// Current streams, at most one per device.
    static CURRENT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// Makes `stream` the current stream of its device; `None` selects the default stream. Returns the previous stream.
fn exchange(device: &Device, stream: Option<Stream>) -> Option<Stream> {
    // An exiting thread's thread-local variables may already be destroyed; there is then nothing to set.
    CURRENT
        .try_with(|current| {
            let mut current = current.borrow_mut();
            let index = current.iter().position(|stream| stream.device() == device);
            let before = index.map(|index| current.swap_remove(index));
            current.extend(stream);
            before
        })
        .ok()
        .flatten()
}

/// Makes a stream and its device current on the thread. Dropping the guard restores the previous stream and device.
///
/// Drop guards in reverse order of creation, which nested scopes do automatically.
///
/// See the example of [`Stream::guard`].
#[must_use = "the stream is current only while the guard lives"]
#[derive(Debug)]
pub struct StreamGuard {
    /// The streams to restore when the guard is dropped, per device.
    streams: Vec<(Device, Option<Stream>)>,
    device: Option<Device>,
    /// Makes the guard `!Send`, because it restores this thread's streams.
    thread: PhantomData<*const ()>,
}

impl Stream {
    /// Returns the thread's current stream of a device: the stream of the innermost [`Stream::guard`] or the last
    /// [`Stream::set_current`], or the default stream if the thread has not set one.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let stream = Stream::from_pool(&device)?;
    /// {
    ///     let _guard = stream.guard();
    ///     assert_eq!(Stream::current(&device), stream);
    /// }
    /// assert_eq!(Stream::current(&device), device.default_stream());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn current(device: &Device) -> Self {
        CURRENT
            .try_with(|current| current.borrow().iter().find(|stream| stream.device() == device).cloned())
            .ok()
            .flatten()
            .unwrap_or_else(|| device.default_stream())
    }

    /// Makes this the thread's current stream on its device until another stream is set. Does not change the current
    /// device.
    pub fn set_current(&self) {
        let default = *self == self.device().default_stream();
        drop(exchange(self.device(), (!default).then(|| self.clone())));
    }

    /// Makes this stream and its device current on the thread until the returned guard is dropped.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let stream = Stream::new(&device)?;
    /// let guard = stream.guard();
    /// assert_eq!((Device::current()?, Stream::current(&device)), (device.clone(), stream.clone()));
    /// drop(guard);
    /// assert_eq!(Stream::current(&device), device.default_stream());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn guard(&self) -> StreamGuard {
        let device = guard::exchange(Some(self.device().clone()));
        let mut streams = Vec::with_capacity(2);
        if let Some(before) = device.as_ref().filter(|before| *before != self.device()) {
            let stream = exchange(before, None);
            drop(exchange(before, stream.clone()));
            streams.push((before.clone(), stream));
        }
        streams.push((self.device().clone(), exchange(self.device(), Some(self.clone()))));
        StreamGuard { streams, device, thread: PhantomData }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        for (device, stream) in self.streams.drain(..) {
            drop(exchange(&device, stream));
        }
        drop(guard::exchange(self.device.take()));
    }
}
