//! Enqueueing a library's work: on a GPU by a call of the library, on the emulated device by a function of the host.

use crate::driver::{self, HostAccess, StreamHandle};
use crate::error::Result;
use crate::memory::storage::{self, Kind, Part};
use crate::memory::usage::Access;
use crate::stream::Stream;

/// Enqueues work on `stream` that uses these parts, after the uses that it must come after, and noted as a use itself.
/// On a GPU `library` enqueues it on the stream that it is given, with the device's context current. On the emulated
/// device what `host` gives is called in the order of the stream; it is called again for each launch of a graph.
///
/// The caller has checked that the parts do not overlap where one is written, and that what both do stays inside of them.
pub(super) fn enqueue(
    stream: &Stream,
    parts: &[Part<'_>],
    library: impl FnOnce(StreamHandle) -> Result<()>,
    host: impl FnOnce() -> Result<HostWork>,
) -> Result<()> {
    let handle = stream.handle();
    if !stream.device().is_emulated() {
        return storage::enqueue(parts.iter(), stream, Kind::Copy, |driver, context| {
            let _calls = driver.bind(context)?;
            library(handle)
        });
    }
    let uses = parts.iter().map(|part| HostAccess {
        ptr: part.storage.ptr().offset(part.range.start),
        bytes: part.range.len(),
        write: part.access == Access::Write,
    });
    let work = driver::HostWork::new(uses.collect(), host()?);
    // SAFETY: the work stays inside of the parts, as the caller has checked. Their memory is not freed before the work
    // has run, nor is it while a graph with this work can be launched.
    storage::enqueue(parts.iter(), stream, Kind::Copy, |driver, context| unsafe {
        driver.host_work(context, handle, work)
    })
}

/// What the host does in a library's place. It uses no device: it computes, on memory that its maker promises to be there.
pub(super) type HostWork = Box<dyn Fn() + Send + Sync>;
