//! [`Storage`]: a buffer's memory without its element type, and the orderly enqueueing of work on parts of it.

use std::ops::Range;

use super::allocator::{self, Allocation};
use super::usage::{Access, Usage, Waits};
use crate::device::Device;
use crate::driver::host_function;
use crate::driver::{Context, DevicePtr, Driver};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Device memory that is handed out again only when its users are done.
#[derive(Debug)]
pub(crate) struct Storage {
    allocation: Allocation,
    bytes: usize,
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
        Ok(Self { allocation, bytes, stream: stream.clone(), usage: Usage::new(stream) })
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

    /// Notes that work on `stream` uses this memory, which was ordered by other means.
    pub(super) fn record_stream(&self, stream: &Stream) {
        self.usage.add(&self.stream, stream, self.bytes);
    }

    /// A stream of the memory's own device whose later work comes after all work of `user`; `None` if the host had to wait.
    fn own_user(&self, user: Stream) -> Option<Stream> {
        if user.device().ptr_eq(self.device()) {
            return Some(user);
        }
        let behind = Stream::from_pool(self.device()).and_then(|own| own.wait_stream(&user).map(|()| own));
        if behind.is_err() {
            // When this returns, nothing of the stream runs any more, whatever the result.
            let _ = user.synchronize();
        }
        behind.ok()
    }

    /// Keeps an error of a drop. A lost device reports its fault with every call; that is no error of the drop.
    #[cold]
    fn report(&self, error: Error) {
        if !self.device().is_lost() {
            self.device().0.health.record_drop(Err(error));
        }
    }
}

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        if self.device().is_forked() {
            return;
        }
        let allocation = std::mem::replace(&mut self.allocation, Allocation::EMPTY);
        if host_function::is_running() {
            let usage = std::mem::replace(&mut self.usage, Usage::new(&self.stream));
            let moved = Self { allocation, bytes: self.bytes, stream: self.stream.clone(), usage };
            return host_function::drop_elsewhere(Box::new(moved));
        }
        let mut users = self.usage.users(&self.stream);
        if users.iter().any(|user| !user.device().ptr_eq(self.device())) {
            users = users.into_iter().filter_map(|user| self.own_user(user)).collect();
        }
        // SAFETY: the memory is this value's, which goes away, and was allocated on this stream. Every use was
        // noted: it is on the home stream, on one of `users`, or comes before later work of one of them.
        let freed = unsafe { allocator::free(&self.stream, allocation, &users) };
        if let Err(error) = freed {
            self.report(error);
        }
    }
}

/// A range of a storage that a piece of work reads or writes.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub storage: &'a Storage,
    /// In bytes.
    pub range: Range<usize>,
    pub access: Access,
    /// Whether the work is to come after earlier uses; else the caller has seen to that.
    pub ordered: bool,
}

impl Part<'_> {
    /// Adds what work on `stream`, which may be of another device, must come after.
    #[inline]
    pub fn needs(&self, stream: &Stream, waits: &mut Waits) {
        let Storage { usage, stream: home, .. } = self.storage;
        if self.ordered && !self.range.is_empty() {
            usage.begin(home, stream, &self.range, self.access, waits);
        }
    }

    /// Notes that work which uses this part was enqueued on `stream`.
    #[inline]
    pub fn end(&self, stream: &Stream) {
        let Storage { usage, stream: home, bytes, .. } = self.storage;
        if !self.range.is_empty() {
            usage.end(home, stream, &self.range, *bytes, self.access);
        }
    }

    /// Enqueues work on `stream` that uses this part.
    pub fn enqueue(
        &self,
        stream: &Stream,
        work: impl FnOnce(&dyn Driver, Context) -> Result<()>,
    ) -> Result<()> {
        enqueue([self], stream, work)
    }

    /// Enqueues work as [`Self::enqueue`] does, on the home stream, and waits for it. When this returns, the work does not
    /// run any more, whatever the result.
    pub fn run(&self, work: impl FnOnce(&dyn Driver, Context) -> Result<()>) -> Result<()> {
        let stream = &self.storage.stream;
        begin([self], stream)?;
        let called = stream.call(work);
        // Also when the call failed: it may have enqueued something before it did.
        self.end(stream);
        stream.synchronize().and(called)
    }
}

/// Makes later work on `stream`, which may be of another device, come after the uses that work on these parts must come
/// after.
pub(crate) fn begin<const N: usize>(parts: [&Part<'_>; N], stream: &Stream) -> Result<()> {
    stream.device().check_process()?;
    let mut waits = Waits::default();
    parts.iter().for_each(|part| part.needs(stream, &mut waits));
    waits.enqueue(stream)
}

/// Enqueues work on `stream` that uses these parts.
pub(crate) fn enqueue<const N: usize>(
    parts: [&Part<'_>; N],
    stream: &Stream,
    work: impl FnOnce(&dyn Driver, Context) -> Result<()>,
) -> Result<()> {
    begin(parts, stream)?;
    let called = stream.call(work);
    // Also when the call failed: it may have enqueued something before it did.
    parts.iter().for_each(|part| part.end(stream));
    called
}
