//! Copies between two devices: directly, or through page-locked host memory without peer access.
//!
//! A staged copy uses two streams, one per device: the caller's, and one from the other device's pool. It alternates
//! between two pieces of page-locked memory, so one chunk leaves the source while the previous one goes into the
//! target:
//!
//! ```text
//! a stream of the source's device | chunk 0 out | chunk 1 out | chunk 2 out | ...
//! a stream of the target's device               | chunk 0 in  | chunk 1 in  | ...
//! ```
//!
//! Events order the two streams. A chunk goes in after it came out. It comes out after the previous contents of its
//! memory have gone in. The host enqueues all of it and does not wait.

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
/// Name of the call, in errors of captures.
pub(super) const CALL: &str = "Stream::copy";

/// Route of a copy from one buffer to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Within the stream's device.
    Here,
    /// Between two devices, directly (peer-to-peer).
    Direct,
    /// Between two devices, through host memory. `outward` is true if the source is on the stream's device.
    Staged { outward: bool },
}

impl Route {
    /// Returns the route of a copy on a stream, or the error if there is none.
    pub fn find(stream: &Stream, from: &Device, to: &Device) -> Result<Self> {
        let own = stream.device();
        let (own_driver, own_context) = own.raw();
        // A device that was opened twice has one context.
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

/// Enqueues a direct (peer-to-peer) copy.
pub(super) fn copy_directly(stream: &Stream, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
    let (target, source) = ((to.device.raw().1, to.address), (from.device.raw().1, from.address));
    let bytes = to.part.range.len();
    let (mut copied, kind) = (Ok(()), Kind::HostCopy(CALL));
    // SAFETY: both ranges have the same size; the source is shared and the target exclusive, so they do not overlap;
    // both buffers record the stream, so neither is freed before the copy has run. The stream is of one of the
    // contexts.
    storage::enqueue([&from.part, &to.part].into_iter(), stream, kind, |driver, context| unsafe {
        copied = stream.observed_copy(CopyDirection::PeerToPeer, source.1.0, target.1.0, bytes, || {
            driver.copy_peer(context, target, source, bytes, stream.handle())
        });
        Ok::<_, DriverError>(())
    })?;
    copied.map_err(|error| whose(error.into(), stream, [from.device, to.device]))
}

/// Returns the error to report for a call that names two devices: the fault of the lost device, or the error itself.
fn whose(error: Error, stream: &Stream, devices: [&Device; 2]) -> Error {
    if !error.stops_context() {
        return error;
    }
    // The call does not say which of the two has stopped. A stopped device fails in every call.
    let lost = devices.into_iter().find_map(|device| device.memory_info().err());
    lost.unwrap_or_else(|| match stream.device().call(|_, _| Err::<(), _>(error.clone())) {
        Ok(()) => error,
        Err(error) => error,
    })
}

/// Enqueues a copy through host memory. After a failure, none of it is still running.
pub(super) fn copy_staged(stream: &Stream, outward: bool, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
    tracing::debug!(
        from = %from.device.id(), to = %to.device.id(), bytes = to.part.range.len(),
        "the devices do not reach each other's memory: the copy goes through host memory"
    );
    let other = another_stream(if outward { to.device } else { from.device }, stream)?;
    let mut lanes = Vec::with_capacity(2);
    for start in (0..to.part.range.len()).step_by(CHUNK_BYTES).take(2) {
        let staging = PinnedBuffer::uninit(stream.device(), CHUNK_BYTES.min(to.part.range.len() - start))?;
        // This stream finishes after the other one.
        staging.record_use(stream)?;
        lanes.push(staging);
    }
    let enqueued =
        storage::enqueue([&from.part, &to.part].into_iter(), stream, Kind::HostCopy(CALL), |_, _| {
            enqueue_staged(stream, &other, outward, &lanes, from, to)
        });
    if enqueued.is_err() {
        for stream in [stream, &other] {
            // Nothing on the stream runs after this.
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
    // Recorded when the contents of a lane's memory have gone into the target.
    let free = lanes.iter().map(|_| Event::new(into.device())).collect::<Result<Vec<_>>>()?;
    let total = to.part.range.len();
    for (start, (staging, free)) in (0..total).step_by(CHUNK_BYTES).zip(lanes.iter().zip(&free).cycle()) {
        let bytes = CHUNK_BYTES.min(total - start);
        out.wait_event(free)?;
        let (host, device) = (staging.address(), from.address.offset(start));
        out.observed_copy(CopyDirection::DeviceToHost, device.0, host.addr() as u64, bytes, || {
            // SAFETY: the staging memory has room for the chunk and is kept until both streams are done. This stream
            // has waited until the previous contents have gone into the target. The source's range is kept by its part.
            out.call(|driver, context| unsafe {
                driver.copy_to_host(context, host.cast(), device, bytes, out.handle())
            })
        })?;
        into.wait_stream(out)?;
        let device = to.address.offset(start);
        into.observed_copy(CopyDirection::HostToDevice, host.addr() as u64, device.0, bytes, || {
            // SAFETY: as above; this stream has waited until the chunk has come out of the source.
            into.call(|driver, context| unsafe {
                driver.copy_to_device(context, device, host.cast_const().cast(), bytes, into.handle())
            })
        })?;
        free.record(into)?;
    }
    // Inward, the stream has waited for each chunk to come out.
    if outward { stream.wait_stream(other) } else { Ok(()) }
}
