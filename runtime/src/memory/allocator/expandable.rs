//! Expandable segments: an address range is reserved once, and memory is mapped into it page by page on demand.
//!
//! An arena has one expandable segment per kind of block, or more if a reservation is exhausted. Unmapped ranges are
//! [`State::Unmapped`] blocks. A request that no free block can serve takes the lowest run of free and unmapped blocks
//! that is large enough, and maps the missing pages. Memory mapped for different requests can therefore merge, unlike
//! separate driver segments.
//!
//! While the reserved memory stays within [`SLACK`] of the peak in use, new pages are allocated from the driver. Beyond
//! that limit, if the arena's stream is idle, entirely free pages of the arena are remapped to the new location, which
//! takes as long as mapping new pages. If these pages do not suffice, free pages of the other kind are released to the
//! driver. If the stream is busy, its work may still use free pages, so new pages are allocated despite the limit,
//! because this module never waits. PyTorch, in contrast, leaves holes mapped until memory runs out;
//! `docs/benchmarks/allocator.md` compares the two.

use super::arena::{ArenaState, Segment, Source};
use super::block::{BlockId, NONE, State};
use super::counters::Counted;
use super::size::{self, Kind};
use super::slow_path::no_memory;
use super::streams::{ArenaGuard, Order};
use super::{CachingAllocator, Request};
use crate::device::Device;
use crate::driver::{Context, DevicePtr, Driver, PhysicalHandle};
use crate::error::Result;
use crate::snapshot::TraceAction;

/// Percentage by which the reserved memory may exceed the peak in use before pages are remapped instead of newly
/// allocated.
const SLACK: u64 = 8;
/// Page size for large blocks, unless a smaller one is configured. The cost of mapping a page does not depend on its
/// size, but larger pages leave more partly used pages, which cannot be remapped.
const LARGE_PAGE: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Expandable {
    page: u64,
    /// Physical memory of each page of the reservation; `None` if not mapped.
    pages: Vec<Option<PhysicalHandle>>,
}

impl Expandable {
    /// Returns the pages that lie entirely within a range of offsets.
    fn whole_pages(&self, start: u64, end: u64) -> std::ops::Range<u64> {
        let first = start.div_ceil(self.page);
        first..(end / self.page).max(first)
    }

    /// Releases all memory and addresses, ignoring errors.
    ///
    /// # Safety
    /// The memory and the addresses must no longer be in use.
    pub unsafe fn shut_down(self, driver: &dyn Driver, context: Context, address: u64, size: u64) {
        for (index, handle) in self.pages.into_iter().enumerate() {
            let Some(handle) = handle else { continue };
            let ptr = DevicePtr(address + index as u64 * self.page);
            // SAFETY: guaranteed by the caller; the page is mapped. Errors are ignored, because they cannot be
            // reported.
            unsafe {
                let _ = driver.virtual_unmap(context, ptr, self.page as usize);
                let _ = driver.physical_release(context, handle);
            }
        }
        // SAFETY: guaranteed by the caller. All memory in the range has been unmapped.
        let _ = unsafe { driver.virtual_release(context, DevicePtr(address), size as usize) };
    }
}

#[derive(Debug, Clone, Copy)]
struct Run {
    first: BlockId,
}

/// Maps memory until a free block of the request's size exists. Returns `None` if the driver has no more memory or the
/// limit is reached. Pages mapped until then remain as free blocks.
pub(super) fn grow(
    memory: &CachingAllocator,
    device: &Device,
    state: &mut ArenaGuard<'_>,
    request: Request,
) -> Result<Option<BlockId>> {
    let kind = Kind::of(request.size);
    if request.size > device.properties().total_memory {
        // The request cannot succeed, so do not map pages until the device runs out of memory.
        return Ok(None);
    }
    let run = match find_run(state, kind, request.size) {
        Some(run) => run,
        None => match reserve_addresses(device, state, kind, request)? {
            Some(run) => run,
            None => return Ok(None),
        },
    };
    // The run becomes one free block, which grows from the run's first block until it is large enough. Meanwhile, it is
    // not in the free index, so that its own pages are not remapped.
    let mut block = run.first;
    if state.blocks[block].state == State::Free {
        state.take_out(block);
    }
    loop {
        if state.blocks[block].state == State::Free {
            // Merge even if the block is already large enough; otherwise, its remainder would stay separate from a free
            // neighbor.
            let next = state.blocks[block].next;
            if next != NONE && state.blocks[next].state == State::Free {
                state.take_out(next);
                state.join(block, next);
                continue;
            }
            if state.blocks[block].size >= request.size {
                return Ok(Some(block));
            }
        }
        // The run continues with unmapped addresses, in the next block or in the run's first block.
        let has_front = state.blocks[block].state == State::Free;
        let unmapped = if has_front { state.blocks[block].next } else { block };
        let missing = request.size - if has_front { state.blocks[block].size } else { 0 };
        let mapped = map_front(memory, device, state, unmapped, missing, request);
        match mapped {
            Ok(true) if has_front => state.join(block, unmapped),
            Ok(true) => {}
            Ok(false) | Err(_) => {
                if has_front {
                    state.put_back(block);
                }
                return mapped.map(|_| None);
            }
        }
        if !has_front {
            block = unmapped;
        }
    }
}

/// Finds the lowest run of free and unmapped blocks that is at least `size` bytes long and contains unmapped addresses.
fn find_run(state: &ArenaState, kind: Kind, size: u64) -> Option<Run> {
    let mut segments: Vec<_> = state
        .segments
        .iter()
        .flatten()
        .filter(|segment| segment.kind == kind && matches!(segment.source, Source::Expandable(_)))
        .collect();
    segments.sort_unstable_by_key(|segment| segment.address);
    for segment in segments {
        let (mut first, mut length) = (NONE, 0);
        for (id, block) in state.blocks.list(segment.first) {
            if !matches!(block.state, State::Free | State::Unmapped) {
                (first, length) = (NONE, 0);
                continue;
            }
            if first == NONE {
                first = id;
            }
            length += block.size;
            if length >= size {
                return Some(Run { first });
            }
        }
    }
    None
}

/// Reserves addresses for a new expandable segment. Returns `None` if no addresses are available.
fn reserve_addresses(
    device: &Device,
    state: &mut ArenaGuard<'_>,
    kind: Kind,
    request: Request,
) -> Result<Option<Run>> {
    let total = device.properties().total_memory;
    let Some(granularity) = device.call(|driver, context| driver.virtual_granularity(context))? else {
        return Err(crate::Error::NoExpandableSegments { device: device.id() });
    };
    let page = match kind {
        Kind::Small => size::SMALL_SEGMENT,
        Kind::Large => LARGE_PAGE.min(state.policy.large_segment),
    }
    .next_multiple_of(granularity as u64);
    let bytes = total.saturating_add(total / 8).next_multiple_of(page);
    let reserved = device.call(|driver, context| driver.virtual_reserve(context, bytes as usize));
    let address = match reserved {
        Ok(ptr) => ptr.0,
        Err(error) => return no_memory(error),
    };
    let pages = Expandable { page, pages: vec![None; (bytes / page) as usize] };
    let segment = Segment {
        address,
        size: bytes,
        kind,
        first: NONE,
        source: Source::Expandable(pages),
        site: request.site,
    };
    Ok(Some(Run { first: state.add_segment(segment, false) }))
}

/// Maps `missing` bytes, rounded up to pages, at the front of an unmapped block, or the entire block. The mapped range
/// becomes a free block that is not in the free index. Returns false if no memory is available.
fn map_front(
    memory: &CachingAllocator,
    device: &Device,
    state: &mut ArenaGuard<'_>,
    unmapped: BlockId,
    missing: u64,
    request: Request,
) -> Result<bool> {
    let (kind, address) = (state.blocks[unmapped].kind, state.blocks[unmapped].address);
    let Some((base, page)) = layout(state, unmapped) else { return Ok(false) };
    let bytes = missing.min(state.blocks[unmapped].size).next_multiple_of(page);
    let wanted = (bytes / page) as usize;

    let mut handles = Vec::new();
    let result = (|| {
        spare_pages(memory, device, state, kind, (page, wanted), &mut handles)?;
        while handles.len() < wanted {
            if !memory.claim(page) {
                return Ok(false);
            }
            match device.call(|driver, context| driver.physical_create(context, page as usize)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    memory.unclaim(page);
                    return no_memory::<()>(error).map(|_| false);
                }
            }
            memory.reserve(kind, page, false, false);
        }
        map_pages(device, address, page, &handles, &state.devices).map(|()| true)
    })();
    if !matches!(result, Ok(true)) {
        for handle in handles.into_iter() {
            // SAFETY: the handle is not mapped. On failure the page is leaked until the context is destroyed.
            let _ = device.call_lost(|driver, context| unsafe { driver.physical_release(context, handle) });
            memory.unreserve(kind, page, false, false);
        }
        return result;
    }
    state.counters.up(kind, Counted::ReservedBytes, bytes);
    let first_page = ((address - base) / page) as usize;
    if let Some(Segment { source: Source::Expandable(pages), .. }) = state.segment(unmapped) {
        for (slot, handle) in pages.pages[first_page..].iter_mut().zip(handles) {
            *slot = Some(handle);
        }
    }
    // The block may have grown meanwhile, if pages after it were unmapped.
    if bytes < state.blocks[unmapped].size {
        let rest = state.split(unmapped, bytes);
        state.blocks[rest].state = State::Unmapped;
    }
    state.blocks[unmapped].state = State::Free;
    state.note(TraceAction::SegmentMap, address, bytes, request.site);
    Ok(true)
}

/// Returns the address and the page size of a block's expandable segment.
fn layout(state: &mut ArenaState, block: BlockId) -> Option<(u64, u64)> {
    let segment = state.segment(block)?;
    match &segment.source {
        Source::Expandable(pages) => Some((segment.address, pages.page)),
        _ => None,
    }
}

/// Maps pages consecutively from `address` on and grants access to the devices. After an error, none of the pages
/// remains mapped.
fn map_pages(
    device: &Device,
    address: u64,
    page: u64,
    handles: &[PhysicalHandle],
    ordinals: &[u32],
) -> Result<()> {
    let at = |index: usize| DevicePtr(address + index as u64 * page);
    device.call(|driver, context| {
        let mut mapped = 0;
        let result = handles
            .iter()
            .try_for_each(|handle| {
                // SAFETY: the addresses belong to this reservation and are not mapped; neither is the handle.
                unsafe { driver.virtual_map(context, at(mapped), page as usize, *handle) }?;
                mapped += 1;
                Ok(())
            })
            .and_then(|()| {
                let bytes = handles.len() * page as usize;
                // SAFETY: the entire range was just mapped.
                unsafe { driver.virtual_set_access(context, at(0), bytes, ordinals) }
            });
        if result.is_err() {
            for index in 0..mapped {
                // SAFETY: the page was mapped above, and no other code knows its address yet.
                let _ = unsafe { driver.virtual_unmap(context, at(index), page as usize) };
            }
        }
        result
    })
}

/// Unmaps entirely free pages and adds them to `handles`. Of the `wanted` pages, takes only as many as the slack does
/// not cover.
fn spare_pages(
    memory: &CachingAllocator,
    device: &Device,
    state: &mut ArenaGuard<'_>,
    kind: Kind,
    (page, wanted): (u64, usize),
    handles: &mut Vec<PhysicalHandle>,
) -> Result<()> {
    let new = wanted as u64 * page;
    let active = state.counters.current(Counted::AllocatedBytes) + state.counters.waiting_bytes();
    let in_use = state.counters.active_peak().max(active + new);
    let limit = in_use + in_use / 100 * SLACK;
    let beyond =
        |state: &ArenaState| (state.counters.current(Counted::ReservedBytes) + new).saturating_sub(limit);
    if beyond(state) == 0 || memory.capturing() {
        return Ok(());
    }
    let Order::Stream(stream) = state.home().order else { return Ok(()) };
    // Other code, such as PyTorch, may be capturing a stream that the runtime has adopted.
    if state.is_captured(device)? || !device.call(|driver, context| driver.stream_query(context, stream))? {
        return Ok(());
    }
    // Smallest blocks first, because they are least likely to serve a request.
    for block in expandable_blocks(state, kind) {
        let missing = (beyond(state).div_ceil(page) as usize).min(wanted - handles.len());
        if missing == 0 {
            break;
        }
        unmap(device, state, block, missing, page, handles)?;
    }
    let other = if kind == Kind::Small { Kind::Large } else { Kind::Small };
    for block in expandable_blocks(state, other) {
        let beyond = beyond(state);
        let Some((_, page)) = layout(state, block).filter(|_| beyond > 0) else { continue };
        release_pages(memory, device, state, block, beyond.div_ceil(page) as usize)?;
    }
    Ok(())
}

/// Returns the free blocks of expandable segments, smallest first.
fn expandable_blocks(state: &ArenaState, kind: Kind) -> Vec<BlockId> {
    let mut blocks: Vec<_> = state.free[kind as usize].ids(&state.blocks).collect();
    blocks.retain(|id| state.blocks[*id].expandable);
    blocks.sort_unstable_by_key(|id| (state.blocks[*id].size, state.blocks[*id].address));
    blocks
}

/// Releases up to `most` pages that lie entirely within a free block to the driver. Returns the number of bytes
/// released.
fn release_pages(
    memory: &CachingAllocator,
    device: &Device,
    state: &mut ArenaState,
    block: BlockId,
    most: usize,
) -> Result<u64> {
    let Some((_, page)) = layout(state, block) else { return Ok(0) };
    let kind = state.blocks[block].kind;
    let mut handles = Vec::new();
    let unmapped = unmap(device, state, block, most, page, &mut handles);
    let bytes = handles.len() as u64 * page;
    for handle in handles {
        // SAFETY: the handle is no longer mapped. On failure the page is leaked until the context is destroyed.
        let _ = device.call_lost(|driver, context| unsafe { driver.physical_release(context, handle) });
        memory.unreserve(kind, page, false, false);
    }
    unmapped.map(|()| bytes)
}

/// Unmaps up to `most` pages that lie entirely within a free block, starting at its end; `page` is the page size. The
/// work on the arena's stream must have finished. The rest of the block remains free.
fn unmap(
    device: &Device,
    state: &mut ArenaState,
    block: BlockId,
    most: usize,
    page: u64,
    handles: &mut Vec<PhysicalHandle>,
) -> Result<()> {
    let Some((base, own_page)) = layout(state, block) else { return Ok(()) };
    let (address, end, kind) =
        (state.blocks[block].address, state.blocks[block].end(), state.blocks[block].kind);
    let Some(Segment { source: Source::Expandable(pages), site, .. }) = state.segment(block) else {
        return Ok(());
    };
    let site = *site;
    let whole = pages.whole_pages(address - base, end - base);
    let first = whole.start.max(whole.end.saturating_sub(most as u64));
    if own_page != page || first == whole.end {
        return Ok(());
    }
    let mut done = whole.end;
    let mut result = Ok(());
    while done > first {
        let index = done - 1;
        let ptr = DevicePtr(base + index * page);
        let Some(handle) = pages.pages[index as usize] else { break };
        // SAFETY: the page belongs to this segment, is mapped and free, and the work on its stream has finished.
        result = device.call(|driver, context| unsafe { driver.virtual_unmap(context, ptr, page as usize) });
        if result.is_err() {
            break;
        }
        pages.pages[index as usize] = None;
        handles.push(handle);
        done -= 1;
    }
    if done < whole.end {
        let (start, bytes) = (base + done * page, (whole.end - done) * page);
        state.take_out(block);
        let mut middle = block;
        if start > address {
            middle = state.split(block, start - address);
            state.put_back(block);
        }
        if start + bytes < end {
            let rest = state.split(middle, bytes);
            state.put_back(rest);
        }
        state.blocks[middle].state = State::Unmapped;
        merge_unmapped(state, middle);
        state.counters.down(kind, Counted::ReservedBytes, bytes);
        state.note(TraceAction::SegmentUnmap, start, bytes, site);
    }
    result
}

fn merge_unmapped(state: &mut ArenaState, block: BlockId) {
    let unmapped = |state: &ArenaState, id| id != NONE && state.blocks[id].state == State::Unmapped;
    let (prev, next) = (state.blocks[block].prev, state.blocks[block].next);
    if unmapped(state, next) {
        state.join(block, next);
    }
    if unmapped(state, prev) {
        state.join(prev, block);
    }
}

/// Releases every entirely free page to the driver, and releases the addresses of segments without mapped pages.
/// Returns the number of bytes released.
pub(super) fn release(memory: &CachingAllocator, device: &Device, state: &mut ArenaGuard<'_>) -> Result<u64> {
    let Some(_outside) = memory.outside_captures() else { return Ok(0) };
    let free = [Kind::Small, Kind::Large].map(|kind| expandable_blocks(state, kind)).concat();
    if !free.is_empty() {
        if state.is_captured(device)? {
            return Ok(0);
        }
        state.wait_until_idle(device)?;
    }
    let mut released = 0;
    for block in free {
        released += release_pages(memory, device, state, block, usize::MAX)?;
    }
    for number in 0..state.segments.len() {
        let Some(Segment { first, address, size, source: Source::Expandable(_), .. }) =
            state.segments[number]
        else {
            continue;
        };
        if state.blocks[first].state == State::Unmapped && !state.blocks[first].is_split() {
            // SAFETY: nothing is mapped in the reservation, and none of its addresses is in use.
            device.call(|driver, context| unsafe {
                driver.virtual_release(context, DevicePtr(address), size as usize)
            })?;
            state.remove_segment(first);
        }
    }
    Ok(released)
}

/// Grants a device access to an arena's expandable segments, including pages mapped later.
pub(super) fn allow(device: &Device, state: &mut ArenaState, peer: u32) -> Result<()> {
    if !state.devices.contains(&peer) {
        state.devices.push(peer);
    }
    for segment in state.segments.iter().flatten() {
        let Source::Expandable(pages) = &segment.source else { continue };
        for (index, _) in pages.pages.iter().enumerate().filter(|(_, handle)| handle.is_some()) {
            let ptr = DevicePtr(segment.address + index as u64 * pages.page);
            // SAFETY: the page is mapped.
            device.call(|driver, context| unsafe {
                driver.virtual_set_access(context, ptr, pages.page as usize, &state.devices)
            })?;
        }
    }
    Ok(())
}
