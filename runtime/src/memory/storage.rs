//! [`Storage`]: a buffer's memory without its element type, and the orderly enqueueing of work on it.

use super::allocator::{self, Allocation};
use super::usage::{Begun, Usage};
use crate::device::Device;
use crate::driver::{Context, DevicePtr, Driver};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Device memory that is handed out again only when its users are done.
#[derive(Debug)]
pub(crate) struct Storage {
    allocation: Allocation,
    /// The home stream: of copies and of whatever else is not told another.
    stream: Stream,
    usage: Usage,
}

impl Storage {
    /// Memory for `elements` of `element_bytes` each, with any content.
    #[inline]
    #[track_caller]
    pub(super) fn allocate(stream: &Stream, elements: usize, element_bytes: usize) -> Result<Self> {
        let bytes = elements.checked_mul(element_bytes).filter(|bytes| *bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else { return Err(Error::TooManyElements { elements, element_bytes }) };
        let allocation = allocator::allocate(stream, bytes)?;
        Ok(Self { allocation, stream: stream.clone(), usage: Usage::default() })
    }

    pub(crate) fn ptr(&self) -> DevicePtr {
        self.allocation.ptr()
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Makes later work on `stream` wait for every use of this memory on another stream.
    pub(crate) fn begin(&self, stream: &Stream) -> Result<Begun> {
        self.usage.begin(&self.stream, stream)
    }

    /// Notes that work which uses this memory was enqueued on `stream`.
    pub(crate) fn end(&self, stream: &Stream, begun: Begun) {
        self.usage.end(&self.stream, stream, begun);
    }

    /// Notes that work on `stream` uses this memory, which was ordered by other means.
    pub(super) fn record_stream(&self, stream: &Stream) {
        self.usage.add(&self.stream, stream);
    }

    /// Keeps an error of a drop. A lost device reports its fault with every call; that is no error of the drop.
    #[cold]
    fn report(&self, error: Error) {
        if !self.device().is_lost() {
            self.device().0.health.record_drop(Err(error));
        }
    }

    /// Enqueues work that uses this memory on its own stream, after every other use.
    pub(super) fn enqueue(&self, work: impl FnOnce(&dyn Driver, Context) -> Result<()>) -> Result<()> {
        let begun = self.begin(&self.stream)?;
        self.device().call(work)?;
        self.end(&self.stream, begun);
        Ok(())
    }

    /// Enqueues work as [`Self::enqueue`] does and waits for it. When this returns, the work does not run any
    /// more, whatever the result.
    pub(super) fn run(&self, work: impl FnOnce(&dyn Driver, Context) -> Result<()>) -> Result<()> {
        let begun = self.begin(&self.stream)?;
        let called = self.device().call(work);
        // Also when the call failed: it may have enqueued something before it did.
        let result = self.stream.synchronize().and(called);
        match result {
            Ok(()) => self.usage.finished(begun),
            Err(_) => self.end(&self.stream, begun),
        }
        result
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let allocation = std::mem::replace(&mut self.allocation, Allocation::EMPTY);
        let users = self.usage.others();
        // SAFETY: the memory is this value's, which goes away, and was allocated on this stream. Every use was
        // noted: it is on the home stream, on one of `users`, or was waited for by one of them.
        let freed = unsafe { allocator::free(&self.stream, allocation, &users) };
        if let Err(error) = freed {
            self.report(error);
        }
    }
}
