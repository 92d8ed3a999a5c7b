//! Chunked copies between a device and pageable host memory, through page-locked memory.
//!
//! For each chunk, a host function copies between host memory and page-locked memory, and the device between
//! page-locked memory and device memory, in stream order. Two streams alternate, each with its own page-locked memory
//! for one chunk, so that the host copies one chunk while the device copies another:
//!
//! ```text
//! the caller's stream   | chunk 0: host | device | chunk 2: host | device | ... wait for the other stream
//! one from the pool             | chunk 1: host | device | chunk 3: host | device |
//! ```
//!
//! Both streams wait for earlier work on the caller's stream, and later work on that stream waits for both.

use std::sync::Arc;

use super::host::DeviceSide;
use super::host_copy;
use super::host_memory::HostMemory;
use super::pending::SharedHost;
use crate::device::Device;
use crate::error::Result;
use crate::memory::PinnedBuffer;
use crate::memory::storage::{self, Kind};
use crate::stream::Stream;

/// Maximum size in bytes of a chunk staged through page-locked memory. A copy stages at most two chunks at a time.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Minimum number of chunks per copy, so that host and device copies overlap.
const CHUNKS: usize = 4;
/// Minimum size of a chunk in bytes, which takes precedence over `CHUNKS` because each host function delays the stream.
const MIN_CHUNK_BYTES: usize = 512 << 10;

/// Returns the chunk size of a copy in bytes.
pub(super) fn chunk_bytes(bytes: usize) -> usize {
    bytes.div_ceil(CHUNKS).next_multiple_of(4096).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES)
}

/// A stream, and page-locked memory for one chunk that only work on this stream uses.
pub(super) struct Lane {
    stream: Stream,
    staging: PinnedBuffer<u8>,
}

/// Address of a lane's page-locked memory, for a host function.
struct Staging(*mut u8);

// SAFETY: the value is only an address; every access has its own safety argument.
unsafe impl Send for Staging {}

/// Returns a stream of the device's pool that differs from `than`.
pub(super) fn another_stream(device: &Device, than: &Stream) -> Result<Stream> {
    let stream = Stream::from_pool(device)?;
    if stream == *than { Stream::from_pool(device) } else { Ok(stream) }
}

/// Creates the lanes for a copy of `bytes` bytes on a stream. No work is enqueued.
pub(super) fn lanes(stream: &Stream, bytes: usize) -> Result<Vec<Lane>> {
    let device = stream.device();
    let lane = |stream: Stream| -> Result<Lane> {
        let staging = PinnedBuffer::uninit(device, bytes.min(chunk_bytes(bytes)))?;
        staging.record_use(&stream)?;
        Ok(Lane { stream, staging })
    };
    let mut lanes = vec![lane(stream.clone())?];
    if bytes > chunk_bytes(bytes) {
        lanes.push(lane(another_stream(device, stream)?)?);
    }
    Ok(lanes)
}

/// Enqueues a copy between shared memory and a device. After a failure, no part of the copy is still running.
pub(super) fn enqueue<H: HostMemory>(
    side: &DeviceSide<'_>,
    lanes: &[Lane],
    shared: &Arc<SharedHost<H>>,
) -> Result<()> {
    let Some(first) = lanes.first() else { return Ok(()) };
    let kind = Kind::HostCopy(side.call);
    let enqueued = storage::enqueue([&side.part].into_iter(), &first.stream, kind, |_, _| {
        enqueue_chunks(side, lanes, shared)
    });
    for Lane { stream, .. } in lanes {
        if enqueued.is_err() {
            // After this call, no work of the stream is running.
            stream.wait_idle();
        }
    }
    enqueued
}

fn enqueue_chunks<H: HostMemory>(
    side: &DeviceSide<'_>,
    lanes: &[Lane],
    shared: &Arc<SharedHost<H>>,
) -> Result<()> {
    let [Lane { stream: first, .. }, others @ ..] = lanes else { return Ok(()) };
    others.iter().try_for_each(|other| other.stream.wait_stream(first))?;
    let chunk = chunk_bytes(side.bytes());
    for (start, lane) in (0..side.bytes()).step_by(chunk).zip(lanes.iter().cycle()) {
        let bytes = chunk.min(side.bytes() - start);
        if side.is_target() {
            lane.exchange(true, shared, start, bytes)?;
        }
        // SAFETY: the staging memory is large enough for a chunk and is kept for the lane's stream. Its other uses are
        // on the same stream, whose work runs in order. The lane's stream has waited for the stream on which the buffer
        // use has begun.
        unsafe { side.copy(&lane.stream, lane.staging.address(), start, bytes) }?;
        if !side.is_target() {
            lane.exchange(false, shared, start, bytes)?;
        }
    }
    others.iter().try_for_each(|other| first.wait_stream(&other.stream))
}

impl Lane {
    /// Enqueues the host's copy of a chunk to or from the staging memory.
    fn exchange<H: HostMemory>(
        &self,
        to_staging: bool,
        shared: &Arc<SharedHost<H>>,
        start: usize,
        bytes: usize,
    ) -> Result<()> {
        let (shared, staging) = (Arc::clone(shared), Staging(self.staging.address()));
        // SAFETY: the chunk is within the memory. The stream keeps the staging memory until the function has returned,
        // and runs no other work meanwhile.
        self.stream.host_function(move || unsafe { exchange(&shared, to_staging, staging, start, bytes) })
    }
}

/// Copies a chunk between shared memory and staging memory. Does nothing if the shared memory was taken back.
///
/// # Safety
/// The chunk must be within the shared memory. The staging memory must be valid for the chunk's length, and no other
/// code may access it meanwhile.
unsafe fn exchange<H: HostMemory>(
    shared: &SharedHost<H>,
    to_staging: bool,
    staging: Staging,
    start: usize,
    bytes: usize,
) {
    let mut memory = shared.lock();
    let Some(memory) = &mut *memory else { return };
    // SAFETY: guaranteed by the caller; the shared memory is locked.
    unsafe {
        if to_staging {
            host_copy::copy(staging.0, memory.source().add(start), bytes);
        } else {
            host_copy::copy(memory.target().add(start), staging.0, bytes);
        }
    }
}
