//! Blocking copies between a device and a host slice.
//!
//! The driver stages pageable memory with a single thread, so this module stages large copies itself. The calling
//! thread and its [helpers](super::host_copy) copy one chunk between the slice and page-locked memory while the device
//! copies other chunks:
//!
//! ```text
//! host    | chunk 0 | chunk 1 | chunk 2 | wait | chunk 3 | ...
//! device            | chunk 0 | chunk 1        | chunk 2 | chunk 3
//! ```
//!
//! The driver's own copy is used for page-locked slices, for small slices, and if no page-locked memory is available
//! for staging.

use std::iter::zip;
use std::ops::Range;

use super::host::DeviceSide;
use super::host_copy;
use super::staged::chunk_bytes;
use crate::device::observe::CopyDirection;
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::event::Event;
use crate::memory::PinnedBuffer;
use crate::memory::storage::{self, BufferUse, Kind};
use crate::stream::Stream;

/// Minimum size of a staged copy, in bytes. Below it, the driver's own copy is faster.
const MIN_BYTES: usize = 1 << 20;
/// Number of page-locked buffers per copy. The device copies two of them while the host fills or empties the third.
const SLOTS: usize = 3;

/// Page-locked memory for one chunk.
struct Slot {
    staging: PinnedBuffer<u8>,
    /// Event recorded after the device's last use of the memory.
    event: Event,
}

impl BufferUse<'_> {
    /// Copies between this range, which starts at `address`, and host memory, on the buffer's home stream. `call` is
    /// the name of the public method. Even after an error, the copy no longer uses the host memory when this method
    /// returns.
    ///
    /// # Safety
    /// `host` must be valid for as many bytes as this range: for reads if the copy goes to the device, for writes
    /// otherwise. During the copy, no other code may write these bytes or, if the copy writes them, access them.
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
        let side =
            DeviceSide { direction, call, device: stream.device(), elements: bytes, part: self, address };
        if bytes >= MIN_BYTES
            && is_pageable(stream, host)
            && let Ok(slots) = slots(stream, chunk_bytes(bytes))
        {
            // SAFETY: guaranteed by the caller.
            let done = side.part.run_with(call, || unsafe { staged(&side, host, &slots) });
            if done.is_err() {
                // If another thread has started a capture, the call did not wait for the stream. The copy's error takes
                // precedence.
                slots.iter().for_each(|slot| _ = slot.staging.record_use(stream));
            }
            return done;
        }
        // SAFETY: guaranteed by the caller; `run_with` returns only when the copy is no longer running.
        side.part.run_with(call, || unsafe { side.copy_all(stream, host) })
    }
}

/// Returns true if the host memory at this address is pageable.
fn is_pageable(stream: &Stream, host: *const u8) -> bool {
    let address = DevicePtr(host.addr() as u64);
    stream.call(|driver, context| driver.memory_device(context, address)).is_err()
}

fn slots(stream: &Stream, bytes: usize) -> Result<Vec<Slot>> {
    let slot = |_| -> Result<Slot> {
        Ok(Slot {
            staging: PinnedBuffer::uninit(stream.device(), bytes)?,
            event: Event::new(stream.device())?,
        })
    };
    (0..SLOTS).map(slot).collect()
}

/// Copies chunk by chunk. The device may still be copying the last chunks when this function returns.
///
/// # Safety
/// The requirements are the same as for [`BufferUse::copy_and_wait`].
unsafe fn staged(side: &DeviceSide<'_>, host: *mut u8, slots: &[Slot]) -> Result<()> {
    let (bytes, chunk) = (side.bytes(), chunk_bytes(side.bytes()));
    let chunks = (0..bytes).step_by(chunk).map(|start| start..bytes.min(start + chunk));
    let uses = zip(chunks, slots.iter().cycle());
    if side.is_target() {
        for (chunk, slot) in uses {
            slot.event.wait()?;
            // SAFETY: the chunk is within the host memory, and the device has finished reading the slot's previous
            // chunk.
            unsafe { host_copy::copy(slot.staging.address(), host.add(chunk.start), chunk.len()) };
            slot.enqueue(side, chunk)?;
        }
        return Ok(());
    }
    let mut later = uses.clone();
    later.by_ref().take(SLOTS).try_for_each(|(chunk, slot)| slot.enqueue(side, chunk))?;
    for (chunk, slot) in uses {
        slot.event.wait()?;
        // SAFETY: the chunk is within the host memory, and the device has written it to the slot.
        unsafe { host_copy::copy(host.add(chunk.start), slot.staging.address(), chunk.len()) };
        // The slot is free again, so its next chunk can be enqueued.
        later.next().map_or(Ok(()), |(chunk, slot)| slot.enqueue(side, chunk))?;
    }
    Ok(())
}

impl Slot {
    /// Enqueues the device's copy of a chunk.
    fn enqueue(&self, side: &DeviceSide<'_>, chunk: Range<usize>) -> Result<()> {
        let (stream, first) = (side.part.storage.stream(), side.part.range.start);
        let range = first + chunk.start..first + chunk.end;
        let part = BufferUse { range, ..side.part.clone() };
        // SAFETY: the slot is large enough for the chunk. The host uses the slot only after the event, and the slot's
        // block is reused only once the host has waited for the stream or the stream has finished the use.
        storage::enqueue([&part].into_iter(), stream, Kind::HostCopy(side.call), |_, _| unsafe {
            side.copy(stream, self.staging.address(), chunk.start, chunk.len())
        })?;
        self.event.record(stream)
    }
}
