//! The slow path of an allocation: the steps, in order, if no free block of the arena fits.
//!
//! 1. Collects garbage, if garbage collection is enabled.
//! 2. Requests a segment from the driver.
//! 3. If `max_split_size` is set, releases oversize blocks of this arena and requests a segment from the driver again.
//! 4. Waits for all events and searches the free blocks again (PyTorch omits this step, see its issue #189504). Then
//!    releases all cached memory and requests a segment from the driver again. Finally requests only the block's size;
//!    without this step, as in PyTorch, a request for 2 MiB would fail unless 20 MiB were free.
//! 5. Uses free blocks of private pools that lend memory when memory runs out.
//! 6. Calls the out-of-memory observers, then returns the error.
//!
//! While a capture is active, the allocator does not wait and releases no memory, so steps 1, 3 and 4 are skipped.

use std::sync::Arc;

use super::arena::{ArenaState, Segment, Source};
use super::counters::Counted;
use super::size::{self, Kind};
use super::streams::Arena;
use super::{Allocation, CachingAllocator, Request, expandable};
use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::{Error, Result, code};
use crate::memory::options::Backend;
use crate::stream::Stream;

/// The amount of memory to request from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// A whole segment, which may also serve other requests.
    Segment,
    /// Only the requested block.
    Block,
}

/// The stream and arena that serve a request.
struct Place<'a> {
    stream: &'a Stream,
    arena: &'a Arc<Arena>,
    /// The arena that the allocation must keep alive; `None` if it is the stream's own arena.
    owner: Option<&'a Arc<Arena>>,
}

impl Place<'_> {
    fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Allocates a free block, if one fits.
    fn take(&self, request: Request) -> Option<Allocation> {
        let mut state = self.arena.lock();
        let block = state.take(request.size, request.bytes, request.site)?;
        let ptr = DevicePtr(state.blocks[block].address);
        Some(Allocation { arena: self.owner.cloned(), block, ptr })
    }
}

impl CachingAllocator {
    /// Serves a request for which the arena has no free block.
    #[cold]
    pub(super) fn allocate_slowly(
        &self,
        stream: &Stream,
        arena: &Arc<Arena>,
        owner: Option<&Arc<Arena>>,
        request: Request,
    ) -> Result<Allocation> {
        let place = Place { stream, arena, owner };
        let device = stream.device();
        self.collect_garbage(device)?;
        if let Some(allocation) = self.grow(&place, request, Extent::Segment)? {
            return Ok(allocation);
        }
        if !self.capturing() {
            if self.release_oversize(device, arena, request.size)?
                && let Some(allocation) = self.grow(&place, request, Extent::Segment)?
            {
                return Ok(allocation);
            }
            self.finish_pending(device)?;
            if let Some(allocation) = place.take(request) {
                return Ok(allocation);
            }
            self.totals.lock().alloc_retries += 1;
            let bytes = request.bytes;
            tracing::debug!(device = %device.id(), bytes, "the device is out of memory: cached memory is freed");
            self.release_cached(device, None)?;
            for extent in [Extent::Segment, Extent::Block] {
                if let Some(allocation) = self.grow(&place, request, extent)? {
                    return Ok(allocation);
                }
            }
        }
        if owner.is_none()
            && let Some(allocation) = self.take_from_lending_pools(stream, request)
        {
            return Ok(allocation);
        }
        Err(self.out_of_memory(stream, arena, request))
    }

    /// Claims a share of the memory limit before a request to the driver. Returns false if the claim would exceed the
    /// limit.
    pub(super) fn claim(&self, bytes: u64) -> bool {
        let mut totals = self.totals.lock();
        let claimed = totals.claimed.saturating_add(bytes);
        if totals.limit.is_some_and(|limit| totals.reserved().saturating_add(claimed) > limit) {
            return false;
        }
        totals.claimed = claimed;
        totals.device_allocs += 1;
        true
    }

    /// Cancels a claim for memory that the driver did not provide.
    pub(super) fn unclaim(&self, bytes: u64) {
        let mut totals = self.totals.lock();
        totals.claimed = totals.claimed.saturating_sub(bytes);
    }

    /// Counts claimed memory as reserved after the driver has provided it.
    pub(super) fn reserve(&self, kind: Kind, bytes: u64, segments: bool, oversize: bool) {
        let mut totals = self.totals.lock();
        totals.claimed = totals.claimed.saturating_sub(bytes);
        totals.counters.up(kind, Counted::ReservedBytes, bytes);
        if segments {
            totals.counters.up(kind, Counted::Segment, 1);
            totals.counters.oversize_segments.up(oversize.into());
        }
    }

    /// Counts memory that was returned to the driver.
    pub(super) fn unreserve(&self, kind: Kind, bytes: u64, segments: bool, oversize: bool) {
        let mut totals = self.totals.lock();
        totals.counters.down(kind, Counted::ReservedBytes, bytes);
        if segments {
            totals.counters.down(kind, Counted::Segment, 1);
            totals.counters.oversize_segments.down(oversize.into());
        }
        totals.device_frees += 1;
    }

    /// Allocates memory from the driver for a request. Returns `None` if the driver has no more memory or the limit is
    /// reached.
    fn grow(&self, place: &Place<'_>, request: Request, extent: Extent) -> Result<Option<Allocation>> {
        let (device, mut state) = (place.device(), place.arena.lock());

        let block = if state.policy.caching && state.policy.expandable {
            expandable::grow(self, device, &mut state, request)?
        } else {
            self.add_segment(place, &mut state, request, extent)?
        };
        let Some(block) = block else { return Ok(None) };
        state.occupy(block, request.size, request.bytes, request.site);
        let ptr = DevicePtr(state.blocks[block].address);
        Ok(Some(Allocation { arena: place.owner.cloned(), block, ptr }))
    }

    /// Adds a new segment from the driver. The segment's block is not put into the free index.
    fn add_segment(
        &self,
        place: &Place<'_>,
        state: &mut ArenaState,
        request: Request,
        extent: Extent,
    ) -> Result<Option<super::BlockId>> {
        let (kind, uncached) = (Kind::of(request.size), !state.policy.caching);
        let bytes = if uncached || extent == Extent::Block {
            request.size
        } else {
            size::segment_size(request.size, state.policy.large_segment)
        };
        if !self.claim(bytes) {
            return Ok(None);
        }
        let stream_ordered = state.policy.backend == Backend::StreamOrdered;
        let allocated = place.device().call(|driver, context| {
            if stream_ordered {
                driver.stream_allocate(context, bytes as usize, place.stream.handle())
            } else {
                driver.memory_allocate(context, bytes as usize)
            }
        });
        let address = match allocated {
            Ok(ptr) => ptr.0,
            Err(error) => {
                self.unclaim(bytes);
                return no_memory(error);
            }
        };
        self.reserve(kind, bytes, true, bytes >= state.policy.max_split);
        let source = if stream_ordered { Source::StreamOrdered } else { Source::Driver };
        let segment = Segment { address, size: bytes, kind, first: super::NONE, source, site: request.site };
        Ok(Some(state.add_segment(segment, uncached)))
    }

    /// Allocates a free block of a private pool that lends memory when memory runs out.
    fn take_from_lending_pools(&self, stream: &Stream, request: Request) -> Option<Allocation> {
        let pools = self.registry.lock().pools.clone();
        pools.iter().filter_map(std::sync::Weak::upgrade).filter(|pool| pool.lends_on_oom()).find_map(
            |pool| {
                let arena = pool.existing_arena_of(stream)?;
                Place { stream, arena: &arena, owner: Some(&arena) }.take(request)
            },
        )
    }
}

/// Classifies a failed driver request as out of memory (`None`) or as an error to report.
pub(super) fn no_memory<T>(error: Error) -> Result<Option<T>> {
    match error.driver_code() {
        Some(code::OUT_OF_MEMORY) => Ok(None),
        Some(code::STREAM_CAPTURE_UNSUPPORTED..=907) => {
            Err(Error::CaptureForbidsAllocation { source_error: Box::new(error) })
        }
        _ => Err(error),
    }
}
