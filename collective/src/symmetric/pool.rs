//! [`Pool`]: division of symmetric memory into small parts, several per page.
//!
//! All ranks divide their memory in the same way, so a part has the same offset on each rank. A part is reused after
//! all ranks have dropped it; in collective calls, the ranks report which parts they have dropped. The pool itself does
//! not keep memory allocated. Memory is freed together with its last part, regardless of the other ranks' state.

use std::sync::{Arc, Weak};

use warpsmith_runtime::{Device, DevicePtr};

use super::agree::{Agreement, MAX_SAID};
use super::memory::{PeerMemory, clear};
use crate::error::Result;

/// Alignment of each part's start, in bytes.
const ALIGNMENT: usize = 512;

/// Part of each rank's memory, at the same offset on all ranks. The part is returned to the pool when the last
/// reference is dropped.
#[derive(Debug)]
pub(crate) struct Placed {
    memory: Arc<PeerMemory>,
    start: usize,
}

impl Placed {
    /// Returns the address at which this rank has mapped the part in the memory of rank `rank`.
    pub fn address(&self, rank: usize) -> DevicePtr {
        self.memory.address(rank).offset(self.start)
    }

    /// Returns the address of the part in this rank's own memory.
    pub fn own(&self) -> DevicePtr {
        self.memory.own().offset(self.start)
    }

    pub fn world(&self) -> usize {
        self.memory.world()
    }
}

/// Part that at least one rank may still be using.
#[derive(Debug)]
struct Part {
    start: usize,
    bytes: usize,
    /// This rank's reference to the part. The reference is dangling if this rank has dropped the part.
    placed: Weak<Placed>,
}

/// Memory divided into parts.
#[derive(Debug)]
struct Region {
    memory: Weak<PeerMemory>,
    bytes: usize,
    /// Parts in order of increasing offset.
    parts: Vec<Part>,
}

impl Region {
    /// Returns the first offset with enough free space, and the index that the new part will have among the parts.
    fn room(&self, bytes: usize) -> Option<(usize, usize)> {
        let mut start = 0;
        for (index, part) in self.parts.iter().enumerate() {
            if part.start - start >= bytes {
                return Some((index, start));
            }
            start = part.start + part.bytes;
        }
        (self.bytes - start >= bytes).then_some((self.parts.len(), start))
    }
}

/// Pool of symmetric memory. See the [module documentation](self). The pool is identical on all ranks, except for the
/// parts that a rank has dropped.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Region>);

impl Pool {
    /// Creates a zeroed part of `bytes` bytes on each rank, and calls `make` to create the object that this rank needs
    /// with the part. All ranks must make this call.
    ///
    /// # Errors
    /// Returns the same errors as [`Agreement::share`], which name the first rank with a problem. If an error is
    /// returned, no rank keeps the part.
    pub fn place<R>(
        &mut self,
        agreement: &Agreement<'_>,
        device: &Device,
        bytes: usize,
        make: impl FnOnce(&Placed) -> warpsmith_runtime::Result<R>,
    ) -> Result<(Arc<Placed>, R)> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let known = self.known();
        // This keeps the regions that this rank reports as present alive until the part has been created.
        let here: Vec<_> = self.0[..known].iter().map(|region| region.memory.upgrade()).collect();
        let known = self.forget(known, &agreement.share(Ok(self.said(&here)))?);
        let found = self.0[..known].iter_mut().find_map(|region| {
            let room = region.room(bytes)?;
            Some((region.memory.upgrade()?, region, room))
        });
        let is_new = found.is_none();
        let (memory, region, (index, start)) = match found {
            Some(found) => found,
            None => {
                let memory = Arc::new(PeerMemory::rendezvous(agreement, device, bytes)?);
                let (held, bytes) = (Arc::downgrade(&memory), memory.bytes());
                self.0.push(Region { memory: held, bytes, parts: Vec::new() });
                (memory, self.0.last_mut().expect("it was just added"), (0, 0))
            }
        };
        let placed = Arc::new(Placed { memory, start });
        region.parts.insert(index, Part { start, bytes, placed: Arc::downgrade(&placed) });
        let cleared = match is_new {
            true => Ok(()),
            // SAFETY: all ranks have dropped the previous part, and no rank is using the new one yet.
            false => unsafe { clear(device, placed.own(), bytes) },
        };
        let made = cleared.and_then(|()| make(&placed));
        // If the agreement fails, all ranks drop the part.
        agreement.share(made.as_ref().map(|_| Vec::new()).map_err(ToString::to_string))?;
        Ok((placed, made?))
    }

    /// Returns the number of leading regions whose report fits into one message.
    fn known(&self) -> usize {
        let mut bits = 8 * MAX_SAID;
        let fits = |region: &&Region| match bits.checked_sub(1 + region.parts.len()) {
            Some(left) => {
                bits = left;
                true
            }
            None => false,
        };
        self.0.iter().take_while(fits).count()
    }

    /// Encodes one bit for each of these regions and one bit for each part of a region. A bit is set if this rank has
    /// dropped the region or part.
    fn said(&self, here: &[Option<Arc<PeerMemory>>]) -> Vec<u8> {
        let dropped = self.0.iter().zip(here).flat_map(|(region, memory)| {
            let parts = region.parts.iter().map(|part| part.placed.strong_count() == 0);
            std::iter::once(memory.is_none()).chain(parts)
        });
        let mut said = vec![0; MAX_SAID];
        for (bit, is_dropped) in dropped.enumerate() {
            said[bit / 8] |= u8::from(is_dropped) << (bit % 8);
        }
        said
    }

    /// Returns how many of the regions that the ranks reported still exist.
    fn forget(&mut self, known: usize, of_ranks: &[Vec<u8>]) -> usize {
        let mut bit = 0;
        let mut dropped_by = || {
            let is_set = |said: &&Vec<u8>| said.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
            let ranks = of_ranks.iter().filter(is_set).count();
            bit += 1;
            ranks
        };
        let unknown = self.0.split_off(known);
        self.0.retain_mut(|region| {
            let is_there = dropped_by() == 0;
            region.parts.retain(|_| dropped_by() < of_ranks.len());
            is_there
        });
        let left = self.0.len();
        self.0.extend(unknown);
        left
    }
}
