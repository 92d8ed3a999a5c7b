//! Copies between two devices: direct with peer access, otherwise through page-locked host memory.
//!
//! A staged copy uses two streams, one per device: the caller's stream and a stream from the other device's pool. It
//! alternates between two page-locked buffers, so that one chunk leaves the source while the previous one enters the
//! target:
//!
//! ```text
//! a stream of the source's device | chunk 0 out | chunk 1 out | chunk 2 out | ...
//! a stream of the target's device               | chunk 0 in  | chunk 1 in  | ...
//! ```
//!
//! Events synchronize the two streams: a chunk is copied to the target after it has arrived in host memory, and that
//! memory is overwritten after its contents have reached the target. The host enqueues the entire copy without waiting.

use std::sync::Arc;

use super::device::Side;
use super::staged::{CHUNK_BYTES, another_stream};
use crate::device::observe::CopyDirection;
use crate::device::{Device, peer};
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::PinnedBuffer;
use crate::memory::storage::{self, Kind};
use crate::stream::Stream;

pub(super) const OPERATION: &str = "copying between buffers";
/// Name of the call in capture errors.
pub(super) const CALL: &str = "Stream::copy";

/// Route of a copy from one buffer to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Copy within the stream's device.
    Here,
    /// Direct copy between two devices (peer-to-peer).
    Direct,
    /// Copy between two devices through host memory. `outward` is true if the source is on the stream's device.
    Staged { outward: bool },
}

impl Route {
    /// Returns the route of a copy on a stream, or an error if the copy is not possible.
    pub fn find(stream: &Stream, from: &Device, to: &Device) -> Result<Self> {
        let own = stream.device();
        let (own_driver, own_context) = own.raw();
        // A device opened twice still has a single context.
        let is_own = |device: &Device| {
            let (driver, context) = device.raw();
            device.ptr_eq(own) || (Arc::ptr_eq(driver, own_driver) && context == own_context)
        };
        let (other, outward) = match (is_own(from), is_own(to)) {
            (true, true) => return Ok(Route::Here),
            (true, false) => (to, true),
            (false, true) => (from, false),
            (false, false) => {
                let (operation, what) = (OPERATION.to_owned(), "the source".to_owned());
                let (found, expected) = (from.id(), own.id());
                let (beside, remedy) = ("the stream", "copy on a stream of one of the two devices");
                return Err(Error::DifferentDevices { operation, what, found, beside, expected, remedy });
            }
        };
        if !Arc::ptr_eq(other.raw().0, own_driver) {
            return Err(Error::NoPeerAccess { device: from.id(), peer: to.id() });
        }
        let direct = peer::enable_access(own, other)? || peer::enable_access(other, own)?;
        Ok(if direct { Route::Direct } else { Route::Staged { outward } })
    }
}

pub(super) fn copy_directly(stream: &Stream, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
    let (target, source) = ((to.device.raw().1, to.address), (from.device.raw().1, from.address));
    let bytes = to.part.range.len();
    let (mut copied, kind) = (Ok(()), Kind::HostCopy(CALL));
    // SAFETY: both ranges have the same size. They do not overlap, because the source is shared and the target
    // exclusive. Both buffers record the stream, so neither is freed before the copy has run. The stream belongs to one
    // of the two contexts.
    storage::enqueue([&from.part, &to.part].into_iter(), stream, kind, |driver, context| unsafe {
        copied = stream.observed_copy(CopyDirection::PeerToPeer, source.1.0, target.1.0, bytes, || {
            driver.copy_peer(context, target, source, bytes, stream.handle())
        });
        Ok::<_, DriverError>(())
    })?;
    copied.map_err(|error| whose(error.into(), stream, [from.device, to.device]))
}

/// Returns the error for a call that involves two devices: the fault of a lost device, or `error` if no device is lost.
fn whose(error: Error, stream: &Stream, devices: [&Device; 2]) -> Error {
    if !error.stops_context() {
        return error;
    }
    // The error does not identify the device that was lost, but every call on a lost device fails.
    let lost = devices.into_iter().find_map(|device| device.memory_info().err());
    lost.unwrap_or_else(|| match stream.device().call(|_, _| Err::<(), _>(error.clone())) {
        Ok(()) => error,
        Err(error) => error,
    })
}

/// Enqueues a copy through host memory. After a failure, no part of the copy is still running.
pub(super) fn copy_staged(stream: &Stream, outward: bool, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
    tracing::debug!(
        from = %from.device.id(), to = %to.device.id(), bytes = to.part.range.len(),
        "the devices cannot access each other's memory: the copy goes through host memory"
    );
    let other = another_stream(if outward { to.device } else { from.device }, stream)?;
    let mut lanes = Vec::with_capacity(2);
    for start in (0..to.part.range.len()).step_by(CHUNK_BYTES).take(2) {
        let staging = PinnedBuffer::uninit(stream.device(), CHUNK_BYTES.min(to.part.range.len() - start))?;
        // The caller's stream finishes last, so recording it suffices.
        staging.record_use(stream)?;
        lanes.push(staging);
    }
    let enqueued =
        storage::enqueue([&from.part, &to.part].into_iter(), stream, Kind::HostCopy(CALL), |_, _| {
            enqueue_staged(stream, &other, outward, &lanes, from, to)
        });
    if enqueued.is_err() {
        for stream in [stream, &other] {
            // After this call, no work of the stream is running.
            stream.wait_idle();
        }
    }
    enqueued
}

fn enqueue_staged(
    stream: &Stream,
    other: &Stream,
    outward: bool,
    lanes: &[PinnedBuffer<u8>],
    from: &Side<'_>,
    to: &Side<'_>,
) -> Result<()> {
    let (out, into) = if outward { (stream, other) } else { (other, stream) };
    other.wait_stream(stream)?;
    // Events recorded once the contents of a lane's memory have reached the target.
    let free = lanes.iter().map(|_| Event::new(into.device())).collect::<Result<Vec<_>>>()?;
    let total = to.part.range.len();
    for (start, (staging, free)) in (0..total).step_by(CHUNK_BYTES).zip(lanes.iter().zip(&free).cycle()) {
        let bytes = CHUNK_BYTES.min(total - start);
        out.wait_event(free)?;
        let (host, device) = (staging.address(), from.address.offset(start));
        out.observed_copy(CopyDirection::DeviceToHost, device.0, host.addr() as u64, bytes, || {
            // SAFETY: the staging memory is large enough for the chunk and is kept until both streams have finished.
            // This stream has waited for the previous contents to reach the target. The source's buffer use keeps its
            // range allocated.
            out.call(|driver, context| unsafe {
                driver.copy_to_host(context, host.cast(), device, bytes, out.handle())
            })
        })?;
        into.wait_stream(out)?;
        let device = to.address.offset(start);
        into.observed_copy(CopyDirection::HostToDevice, host.addr() as u64, device.0, bytes, || {
            // SAFETY: as above; this stream has waited for the chunk to arrive in host memory.
            into.call(|driver, context| unsafe {
                driver.copy_to_device(context, device, host.cast_const().cast(), bytes, into.handle())
            })
        })?;
        free.record(into)?;
    }
    // In an inward copy, the caller's stream has already waited for each chunk.
    if outward { stream.wait_stream(other) } else { Ok(()) }
}
