//! Enqueueing a library's work: on a GPU by a call of the library, on the emulated device by a function of the host.

use warpsmith_core::driver::StreamHandle;
use warpsmith_core::error::Result;
use warpsmith_core::seam::BufferUse;
use warpsmith_core::stream::Stream;

/// A library's work on a stream, of which it is known what it uses.
pub(super) struct Work<'w, 'a> {
    stream: &'w Stream,
    parts: &'w [BufferUse<'a>],
}

impl<'w, 'a> Work<'w, 'a> {
    /// # Safety
    /// What is [enqueued](Self::enqueue) accesses device memory inside the parts alone, in the way each says, or memory
    /// that is ordered and kept by other means. Where a part is written, it overlaps no other.
    pub unsafe fn new(stream: &'w Stream, parts: &'w [BufferUse<'a>]) -> Self {
        Self { stream, parts }
    }

    /// Enqueues it after the uses of the parts that it must follow. On a GPU `library` enqueues on the stream that it is
    /// given, with the device's context current. On the emulated device what `host` returns is called in the order of the
    /// stream, and again for each launch of a graph.
    pub fn enqueue(
        self,
        library: impl FnOnce(StreamHandle) -> Result<()>,
        host: impl FnOnce() -> Result<HostWork>,
    ) -> Result<()> {
        let Self { stream, parts } = self;
        if stream.device().is_emulated() {
            let host = host()?;
            // SAFETY: promised when `self` was made.
            return unsafe { stream.enqueue_host(parts, host) };
        }
        // SAFETY: promised when `self` was made.
        unsafe { stream.enqueue(parts, library) }
    }
}

/// What the host does in a library's place. It uses no device: it computes, on memory that its maker promises to be there.
pub(super) type HostWork = Box<dyn Fn() + Send + Sync>;
