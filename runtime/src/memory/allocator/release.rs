//! Release of memory to the driver: on request, under memory pressure, by age, and when the device is dropped.
//!
//! Only entirely free memory is released: segments that consist of one free block, and whole pages of expandable
//! segments. The host first waits for the arena's stream, whose work may still use the memory.

use std::sync::Arc;

use super::arena::{ArenaState, Source};
use super::block::BlockId;
use super::size::Kind;
use super::streams::{Arena, ArenaGuard};
use super::{CachingAllocator, expandable};
use crate::device::health::Quiet;
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, DevicePtr, Driver, StreamHandle};
use crate::error::Result;
use crate::memory::statistics::PoolId;
use crate::stream::Stream;

impl Part for CachingAllocator {
    const PLACE: usize = 2;

    fn close(&mut self, driver: &dyn Driver, context: Context, _: &EventPool) {
        self.shut_down(driver, context);
    }
}

impl CachingAllocator {
    /// Releases an arena's entirely free segments after waiting for its stream. Returns the number of bytes released: 0
    /// while a capture is active, because waiting would invalidate it.
    fn release_blocks(&self, device: &Device, state: &mut ArenaGuard<'_>, blocks: &[BlockId]) -> Result<u64> {
        if blocks.is_empty() {
            return Ok(0);
        }
        let Some(_outside) = self.outside_captures() else { return Ok(0) };
        if state.is_captured(device)? {
            return Ok(0);
        }
        state.wait_until_idle(device)?;
        let mut bytes = 0;
        for &block in blocks {
            bytes += self.release_idle(device, state, block)?;
        }
        Ok(bytes)
    }

    /// Releases one entirely free segment that is not in use. If the driver fails, the segment is unchanged.
    fn release_idle(&self, device: &Device, state: &mut ArenaState, block: BlockId) -> Result<u64> {
        let (address, kind) = (state.blocks[block].address, state.blocks[block].kind);
        // SAFETY: the block is an entire segment allocated from the driver. It is free, and the host has waited for the
        // stream that used it.
        device.call(|driver, context| unsafe { driver.memory_free(context, DevicePtr(address)) })?;
        state.take_out(block);
        let Some(segment) = state.remove_segment(block) else { return Ok(0) };
        self.unreserve(kind, segment.size, true, segment.size >= state.policy.max_split);
        Ok(segment.size)
    }

    /// Waits for the events of all pending blocks in all arenas, and frees these blocks.
    pub(super) fn finish_pending(&self, device: &Device) -> Result<()> {
        self.totals.lock().sync_all_streams += 1;
        for arena in self.arenas() {
            let mut state = arena.lock();
            if state.pending.is_empty() {
                continue;
            }
            let mut wait = |event| {
                device.call_lost(|driver, context| driver.event_synchronize(context, event)).map(|()| true)
            };
            while let Some(block) = state.pending.next_done(&mut wait)? {
                state.release(block);
            }
        }
        Ok(())
    }

    /// Releases all entirely free memory of `pool`. If `pool` is `None`, releases the entirely free memory of the
    /// default pool and of released pools.
    pub(super) fn release_cached(&self, device: &Device, pool: Option<PoolId>) -> Result<u64> {
        let mut bytes = 0;
        for arena in self.arenas() {
            let chosen = match pool {
                Some(pool) => arena.pool == pool,
                None => arena.pool == PoolId::default() || arena.is_freeable(),
            };
            if !chosen {
                continue;
            }
            let mut state = arena.lock();
            let whole = state.whole_segments();
            bytes += self.release_blocks(device, &mut state, &whole)?;
            bytes += expandable::release(self, device, &mut state)?;
        }
        self.forget_empty_arenas(device);
        Ok(bytes)
    }

    /// Removes the arenas of released pools that have no memory left, but keeps their counters for the statistics.
    fn forget_empty_arenas(&self, device: &Device) {
        let mut registry = self.registry.lock();
        registry.arenas.retain(|arena| {
            if !arena.is_freeable() || Arc::strong_count(arena) > 1 {
                return true;
            }
            let mut state = arena.lock();
            if state.is_empty() {
                self.totals.lock().forgotten.absorb(&state.counters);
                let (driver, context) = device.raw();
                state.destroy_events(&**driver, context);
            }
            !state.is_empty()
        });
    }

    /// Releases oversize blocks of an arena: the smallest of at least `size` bytes or, if none is large enough, the
    /// largest ones until their total size reaches `size`. Returns true if at least `size` bytes were released.
    pub(super) fn release_oversize(&self, device: &Device, arena: &Arena, size: u64) -> Result<bool> {
        let mut state = arena.lock();
        let max_split = state.policy.max_split;
        if max_split == u64::MAX {
            return Ok(false);
        }
        let wanted = size.max(max_split);
        let mut oversize: Vec<_> = state
            .whole_segments()
            .into_iter()
            .map(|id| (state.blocks[id].size, id))
            .filter(|(size, id)| *size >= max_split && state.blocks[*id].kind == Kind::Large)
            .collect();
        oversize.sort_unstable();
        if let Some(&(_, fits)) = oversize.iter().find(|(size, _)| *size >= wanted) {
            self.release_blocks(device, &mut state, &[fits])?;
            return Ok(true);
        }
        let mut released = 0;
        for &(_, block) in oversize.iter().rev() {
            if released >= wanted {
                break;
            }
            released += self.release_blocks(device, &mut state, &[block])?;
        }
        Ok(released >= wanted)
    }

    /// Returns old large segments of the default pool to the driver if the reserved memory exceeds the threshold.
    /// Repeatedly releases the segments of at least average age until enough memory has been released.
    pub(super) fn collect_garbage(&self, device: &Device) -> Result<()> {
        let threshold = self.registry.lock().options.garbage_collection_threshold;
        if threshold <= 0.0 || self.capturing() {
            return Ok(());
        }
        let (reserved, limit) = {
            let totals = self.totals.lock();
            (totals.reserved(), totals.limit.unwrap_or(device.properties().total_memory))
        };
        let Some(mut wanted) = reserved.checked_sub((threshold * limit as f64) as u64) else { return Ok(()) };
        let now = self.clock.load(std::sync::atomic::Ordering::Relaxed);
        let mut candidates = Vec::new();
        for arena in self.arenas().into_iter().filter(|arena| arena.pool == PoolId::default()) {
            let state = arena.lock();
            let large = state.whole_segments().into_iter().filter(|id| state.blocks[*id].kind == Kind::Large);
            let found: Vec<_> = large
                .map(|id| (now.saturating_sub(state.blocks[id].freed_at), state.blocks[id].address))
                .collect();
            drop(state);
            candidates.extend(found.into_iter().map(|(age, address)| (age, address, Arc::clone(&arena))));
        }
        while wanted > 0 && !candidates.is_empty() {
            let ages: u128 = candidates.iter().map(|(age, ..)| u128::from(*age)).sum();
            let count = candidates.len() as u128;
            let (old, young): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|(age, ..)| u128::from(*age) * count >= ages);
            candidates = young;
            for (_, address, arena) in old {
                let mut state = arena.lock();
                // The segment may have been used since it was checked.
                let whole = state.whole_segments();
                let block = whole.into_iter().find(|id| state.blocks[*id].address == address);
                let released = self.release_blocks(device, &mut state, block.as_slice())?;
                wanted = wanted.saturating_sub(released);
            }
        }
        Ok(())
    }

    /// Frees an uncacheable block, returning it to the driver immediately.
    ///
    /// # Safety
    /// The requirements are the same as for [`free`](super::free).
    pub(super) unsafe fn free_uncached(
        &self,
        stream: &Stream,
        arena: &Arena,
        block: BlockId,
        users: &[Stream],
    ) -> Result<()> {
        let _quiet = Quiet::begin();
        let device = stream.device();
        let mut state = arena.lock();
        if self.capturing() {
            // Waiting is impossible during a capture.
            state.free(block, true);
            let users = users.iter().chain(std::iter::once(stream)).cloned().collect();
            state.pending.defer(block, users);
            return Ok(());
        }
        let stream_ordered =
            state.segment(block).is_some_and(|segment| matches!(segment.source, Source::StreamOrdered));
        let waited = if stream_ordered {
            users.iter().try_for_each(|user| stream.wait_stream(user))
        } else {
            let wait = |user: &Stream| user.wait().inspect_err(|_| user.wait_idle());
            std::iter::once(stream).chain(users).map(wait).fold(Ok(()), Result::and)
        };
        if stream_ordered && waited.is_err() && !device.is_lost() {
            // The driver's free would not wait for all uses, so the unused block must stay reserved.
            state.free(block, true);
            return waited;
        }
        // SAFETY: the caller passes ownership of the memory. For each use, either the host has waited, or the use is on
        // `stream` or on a stream for which `stream` now waits.
        let freed = unsafe { self.give_uncached_back(device, &mut state, block, stream.handle()) };
        if device.is_lost() { Ok(()) } else { waited.and(freed) }
    }

    /// Releases an allocated, uncacheable block to the driver. If the driver fails, the memory becomes unusable and is
    /// leaked until the context is destroyed.
    ///
    /// # Safety
    /// The block must no longer be in use. With the driver's own pool, work already enqueued on `stream` may still use
    /// it.
    pub(super) unsafe fn give_uncached_back(
        &self,
        device: &Device,
        state: &mut ArenaState,
        block: BlockId,
        stream: StreamHandle,
    ) -> Result<()> {
        state.free(block, true);
        // SAFETY: guaranteed by the caller.
        unsafe { self.remove_uncached(device, state, block, Some(stream)) }
    }

    /// Like [`Self::give_uncached_back`], but for a block that is already counted as unused.
    ///
    /// # Safety
    /// The block must no longer be in use. With the driver's own pool, work already enqueued on `stream` may still use
    /// it.
    pub(super) unsafe fn remove_uncached(
        &self,
        device: &Device,
        state: &mut ArenaState,
        block: BlockId,
        stream: Option<StreamHandle>,
    ) -> Result<()> {
        let (ptr, kind) = (DevicePtr(state.blocks[block].address), state.blocks[block].kind);
        state.end_use(block);
        let Some(segment) = state.remove_segment(block) else { return Ok(()) };
        self.unreserve(kind, segment.size, true, segment.size >= state.policy.max_split);
        // SAFETY: guaranteed by the caller.
        device.call_lost(|driver, context| unsafe {
            match (segment.source, stream) {
                (Source::StreamOrdered, Some(stream)) => driver.stream_free(context, ptr, stream),
                _ => driver.memory_free(context, ptr),
            }
        })
    }

    /// Releases all memory when the device is dropped. All work of the context has finished; errors cannot be reported.
    fn shut_down(&self, driver: &dyn Driver, context: Context) {
        for arena in self.arenas() {
            let mut state = arena.lock();
            state.destroy_events(driver, context);
            for segment in std::mem::take(&mut state.segments).into_iter().flatten() {
                // SAFETY: allocations keep the device open, so none is left, and all work has finished.
                unsafe {
                    match segment.source {
                        Source::Driver | Source::StreamOrdered => {
                            drop(driver.memory_free(context, DevicePtr(segment.address)));
                        }
                        Source::Expandable(pages) => {
                            pages.shut_down(driver, context, segment.address, segment.size);
                        }
                    }
                }
            }
        }
    }
}
