//! [`Storage`]: a buffer's memory without its element type, and the orderly enqueueing of work on it.

use super::allocator;
use super::usage::Usage;
use crate::device::Device;
use crate::driver::{Context, DevicePtr, Driver};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Device memory that waits for its users before it is freed.
#[derive(Debug)]
pub(crate) struct Storage {
    ptr: DevicePtr,
    /// The stream of copies and of whatever else is not told another.
    stream: Stream,
    usage: Usage,
}

impl Storage {
    /// Memory for `elements` of `element_bytes` each, with any content.
    pub(super) fn allocate(stream: &Stream, elements: usize, element_bytes: usize) -> Result<Self> {
        let bytes = elements
            .checked_mul(element_bytes)
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or(Error::TooManyElements { elements, element_bytes })?;
        let ptr = allocator::allocate(stream.device(), bytes)?;
        Ok(Self { ptr, stream: stream.clone(), usage: Usage::default() })
    }

    pub(crate) fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn device(&self) -> &Device {
        self.stream.device()
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Enqueues work that uses this memory on its own stream, after every other use.
    pub(super) fn enqueue(&self, work: impl FnOnce(&dyn Driver, Context) -> Result<()>) -> Result<()> {
        let begun = self.usage.begin(&self.stream)?;
        self.device().call(work)?;
        self.usage.end(&self.stream, begun);
        Ok(())
    }

    /// Enqueues work as [`Self::enqueue`] does and waits for it. When this returns, the work does not run any
    /// more, whatever the result.
    pub(super) fn run(&self, work: impl FnOnce(&dyn Driver, Context) -> Result<()>) -> Result<()> {
        let begun = self.usage.begin(&self.stream)?;
        self.device().call(work)?;
        let result = self.stream.synchronize();
        match result {
            Ok(()) => self.usage.finished(begun),
            Err(_) => self.usage.end(&self.stream, begun),
        }
        result
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let waited = self.usage.wait();
        // SAFETY: the memory is this value's, which goes away. Every use was noted, and either its stream was
        // waited for, or the context is lost and runs nothing any more.
        let freed = unsafe { allocator::free(self.device(), self.ptr) };
        // A lost device reports its fault with every call; that is no error of the drop.
        if !self.device().is_lost() {
            self.device().0.health.record_drop(waited.and(freed));
        }
    }
}
