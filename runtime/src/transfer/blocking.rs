//! Copies between a device and a slice of the host, which the caller waits for.
//!
//! The driver copies pageable memory through page-locked memory of its own, with one thread: 7 to 10 GB/s. Large
//! copies are therefore staged here. The calling thread and its [helpers](super::host_copy) copy one chunk between the
//! slice and page-locked memory while the device copies others:
//!
//! ```text
//! host    | chunk 0 | chunk 1 | chunk 2 | wait | chunk 3 | ...
//! device            | chunk 0 | chunk 1        | chunk 2 | chunk 3
//! ```
//!
//! Copies of page-locked slices, small copies, and copies for which there is no page-locked memory go to the driver.

use std::iter::zip;
use std::ops::Range;

use super::host::{DeviceSide, Direction};
use super::host_copy;
use super::staged::CHUNK_BYTES;
use crate::device::observe::CopyDirection;
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::event::Event;
use crate::memory::PinnedBuffer;
use crate::memory::storage::{self, BufferUse, Kind};
use crate::stream::Stream;

/// The fewest bytes of pageable memory that are staged: below, the driver's copy is faster.
const LEAST_BYTES: usize = 1 << 20;
/// Page-locked buffers of a copy. Two are copied by the device while the host fills or empties the third.
const SLOTS: usize = 3;
/// Chunks of a copy, if they are between the following limits.
const CHUNKS: usize = 8;
const LEAST_CHUNK_BYTES: usize = 256 << 10;

/// Page-locked memory for one chunk.
struct Slot {
    staging: PinnedBuffer<u8>,
    /// Recorded after the device's last use of the memory.
    event: Event,
}

impl BufferUse<'_> {
    /// Copies between this range, which begins at `address`, and host memory, on the home stream of the buffer, by `call`.
    /// When this returns, the copy does not run any more, whatever the result.
    ///
    /// # Safety
    /// `host` is valid for the bytes of this range: to be read by a copy to the device, else to be written, when nothing else
    /// uses them.
    pub(crate) unsafe fn copy_and_wait(
        self,
        direction: CopyDirection,
        call: &'static str,
        address: DevicePtr,
        host: *mut u8,
    ) -> Result<()> {
        let bytes = self.bytes();
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.storage.stream();
        let direction =
            if direction == CopyDirection::HostToDevice { Direction::Up } else { Direction::Down };
        let side = DeviceSide { direction, device: stream.device(), elements: bytes, part: self, address };
        if bytes >= LEAST_BYTES
            && is_pageable(stream, host)
            && let Ok(slots) = slots(stream, chunk_bytes(bytes))
        {
            // SAFETY: passed on from the caller.
            return side.part.run_with(call, || unsafe { staged(&side, call, host, &slots) });
        }
        side.part.run_with(call, || {
            // SAFETY: passed on from the caller; `run_with` returns when the copy does not run any more.
            storage::enqueue([&side.part].into_iter(), stream, Kind::HostCopy(call), |_, _| unsafe {
                side.copy(stream, host, 0, bytes)
            })
        })
    }
}

/// Returns true if the driver does not know the host memory at an address, so that a device cannot copy it.
fn is_pageable(stream: &Stream, host: *const u8) -> bool {
    let address = DevicePtr(host.addr() as u64);
    stream.call(|driver, context| driver.memory_device(context, address)).is_err()
}

fn chunk_bytes(bytes: usize) -> usize {
    bytes.div_ceil(CHUNKS).next_multiple_of(4096).clamp(LEAST_CHUNK_BYTES, CHUNK_BYTES)
}

fn slots(stream: &Stream, bytes: usize) -> Result<Vec<Slot>> {
    let slot = |_| -> Result<Slot> {
        let staging = PinnedBuffer::uninit(stream.device(), bytes)?;
        staging.record_use(stream)?;
        Ok(Slot { staging, event: Event::new(stream.device())? })
    };
    (0..SLOTS).map(slot).collect()
}

/// Copies chunk by chunk. The last copies of the device may still run when this returns.
///
/// # Safety
/// As for [`BufferUse::copy_and_wait`].
unsafe fn staged(side: &DeviceSide<'_>, call: &'static str, host: *mut u8, slots: &[Slot]) -> Result<()> {
    let (bytes, chunk) = (side.bytes(), chunk_bytes(side.bytes()));
    let chunks = (0..bytes).step_by(chunk).map(|start| start..bytes.min(start + chunk));
    let uses = zip(chunks, slots.iter().cycle());
    match side.direction {
        Direction::Up => {
            for (chunk, slot) in uses {
                slot.event.wait()?;
                // SAFETY: the chunk is within the host memory, and the device has read the slot's last one.
                unsafe { host_copy::copy(slot.staging.address(), host.add(chunk.start), chunk.len()) };
                slot.enqueue(side, call, chunk)?;
            }
        }
        Direction::Down => {
            let mut later = uses.clone();
            later.by_ref().take(SLOTS).try_for_each(|(chunk, slot)| slot.enqueue(side, call, chunk))?;
            for (chunk, slot) in uses {
                slot.event.wait()?;
                // SAFETY: the chunk is within the host memory, and the device has written it to the slot.
                unsafe { host_copy::copy(host.add(chunk.start), slot.staging.address(), chunk.len()) };
                // The next chunk of this slot.
                later.next().map_or(Ok(()), |(chunk, slot)| slot.enqueue(side, call, chunk))?;
            }
        }
    }
    Ok(())
}

impl Slot {
    /// Enqueues the device's copy of a chunk.
    fn enqueue(&self, side: &DeviceSide<'_>, call: &'static str, chunk: Range<usize>) -> Result<()> {
        let (stream, first) = (side.part.storage.stream(), side.part.range.start);
        let range = first + chunk.start..first + chunk.end;
        let part = BufferUse { range, ..side.part.clone() };
        // SAFETY: the slot has room for a chunk. The host uses it only after the event, and its block is kept for the stream.
        storage::enqueue([&part].into_iter(), stream, Kind::HostCopy(call), |_, _| unsafe {
            side.copy(stream, self.staging.address(), chunk.start, chunk.len())
        })?;
        self.event.record(stream)
    }
}
