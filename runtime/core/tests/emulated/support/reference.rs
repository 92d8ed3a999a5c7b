//! A slow and plain simulation of PyTorch's caching allocator for one device, to compare the real one with.
//!
//! It follows the published semantics step by step: rounding, two pools, best fit within a stream, splitting,
//! merging, the order of retries, oversize blocks, garbage collection, expandable segments, and blocks that wait
//! for the work of other streams. Blocks are a map by address, so neighbours are found by looking, not by links.
//! Addresses are deterministic: the n-th segment or reservation starts at `n << 40`, counted from one.
//!
//! Two things differ from PyTorch on purpose: [`Options::search_after_sync`], and that an event is complete only
//! when [`Reference::complete`] says so or when the allocator waits for it.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "reference_figures.rs"]
mod figures;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[allow(unused_imports, reason = "each test uses some of it")]
pub use self::figures::{ByPool, Count, Counters, Options};
use self::figures::{QUANTUM, SMALL_SEGMENT, SMALL_SIZE};

/// A piece of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub stream: u64,
    pub small: bool,
    pub size: u64,
    /// What the caller asked for, while the block is active.
    pub requested: u64,
    pub allocated: bool,
    /// Has memory behind it; only pieces of expandable segments have none.
    pub mapped: bool,
    pub expandable: bool,
    /// Other streams that use the block; moved to events when it is freed.
    uses: BTreeSet<u64>,
    /// Events that must complete before the block is free.
    events: usize,
    /// The pool's clock when the block became free.
    born: u64,
}

impl Block {
    /// Handed out, or given back and still in use by other streams.
    pub fn active(&self) -> bool {
        self.allocated || self.events > 0
    }
}

#[derive(Debug, Default)]
struct Pool {
    /// Free blocks with memory: stream, size, address.
    free: BTreeSet<(u64, u64, u64)>,
    /// Pieces without memory: stream, address.
    unmapped: BTreeSet<(u64, u64)>,
    /// Searches so far, counted only while garbage may be collected.
    searches: u64,
}

/// The simulation.
#[derive(Debug)]
pub struct Reference {
    options: Options,
    counters: Counters,
    blocks: BTreeMap<u64, Block>,
    small: Pool,
    large: Pool,
    /// For each stream, the blocks whose events were recorded on it, and whether the event has completed.
    events: BTreeMap<u64, VecDeque<(u64, bool)>>,
    live: BTreeMap<u64, u64>,
    ids: u64,
    segments: u64,
}

impl Reference {
    /// A device on which nothing was allocated.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            counters: Counters::default(),
            blocks: BTreeMap::new(),
            small: Pool::default(),
            large: Pool::default(),
            events: BTreeMap::new(),
            live: BTreeMap::new(),
            ids: 0,
            segments: 0,
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All pieces of all segments by address, also those without memory.
    pub fn blocks(&self) -> &BTreeMap<u64, Block> {
        &self.blocks
    }

    /// Turns expandable segments on or off for what is allocated from now on.
    pub fn set_expandable(&mut self, on: bool) {
        self.options.expandable_segments = on;
    }

    /// Allocates for `stream`; gives the id to free it by and the address. `None`: out of memory.
    ///
    /// A request of no bytes takes no memory and has the address 0.
    pub fn alloc(&mut self, stream: u64, bytes: u64) -> Option<(u64, u64)> {
        let address = if bytes == 0 { 0 } else { self.find(stream, bytes)? };
        self.ids += 1;
        self.live.insert(self.ids, address);
        Some((self.ids, address))
    }

    /// Gives a block back. It can be used again when the streams that were recorded on it are done.
    pub fn free(&mut self, id: u64) {
        let address = self.live.remove(&id).expect("the id is live");
        if address == 0 {
            return;
        }
        let block = self.blocks.get_mut(&address).expect("a live block exists");
        block.allocated = false;
        let (small, size, uses) = (block.small, block.size, std::mem::take(&mut block.uses));
        block.events = uses.len();
        self.counters.allocation.change(small, -1);
        self.counters.allocated_bytes.change(small, -(size as i64));
        if self.options.oversize(size) {
            self.counters.oversize_allocations.change(-1);
        }
        for stream in &uses {
            self.events.entry(*stream).or_default().push_back((address, false));
        }
        if uses.is_empty() {
            self.free_block(address);
        }
    }

    /// Says that work on `stream` uses the block. The block's own stream needs no saying.
    pub fn record_stream(&mut self, id: u64, stream: u64) {
        if let Some(block) = self.blocks.get_mut(&self.live[&id])
            && block.stream != stream
        {
            block.uses.insert(stream);
        }
    }

    /// All work given to `stream` until now is done; the next allocation sees it.
    pub fn complete(&mut self, stream: u64) {
        for (_, done) in self.events.entry(stream).or_default() {
            *done = true;
        }
    }

    /// Waits for all events and gives back all memory that is not in use.
    pub fn empty_cache(&mut self) {
        self.synchronize();
        self.release_cached();
    }

    fn pool(&mut self, small: bool) -> &mut Pool {
        if small { &mut self.small } else { &mut self.large }
    }

    fn find(&mut self, stream: u64, bytes: u64) -> Option<u64> {
        self.process_events();
        let size = self.options.round_size(bytes);
        let small = size <= SMALL_SIZE;
        let found = self.take_free(stream, small, size).or_else(|| {
            self.collect_garbage();
            self.new_memory(stream, small, size)
        });
        let found = found.or_else(|| {
            let released = self.release_oversize(stream, small, size);
            if released { self.new_memory(stream, small, size) } else { None }
        });
        let found = found.or_else(|| {
            self.synchronize();
            let searched =
                if self.options.search_after_sync { self.take_free(stream, small, size) } else { None };
            searched.or_else(|| {
                self.release_cached();
                self.counters.num_alloc_retries += 1;
                self.new_memory(stream, small, size)
            })
        });
        let Some(address) = found else {
            self.counters.num_ooms += 1;
            return None;
        };
        self.hand_out(address, size, bytes);
        Some(address)
    }

    /// Takes the best free block of the stream out of its pool.
    fn take_free(&mut self, stream: u64, small: bool, size: u64) -> Option<u64> {
        let collects = self.options.limit.is_some() && self.options.garbage_collection_threshold > 0.0;
        let on = self.options.expandable_segments;
        self.pool(small).searches += u64::from(collects);
        let pool = if small { &self.small } else { &self.large };
        let mut candidates = pool.free.range((stream, size, 0)..).take_while(|key| key.0 == stream).copied();
        let mut best = candidates.next()?;
        if self.blocks[&best.2].expandable {
            if on {
                // The block that could grow least is the best one.
                for next in candidates.by_ref() {
                    let better = self.expandable_size(next.2) < self.expandable_size(best.2);
                    if !self.blocks[&best.2].expandable || !better {
                        break;
                    }
                    best = next;
                }
            } else {
                best = candidates.find(|key| !self.blocks[&key.2].expandable)?;
            }
        }
        let spends_oversize = !self.options.oversize(size) && self.options.oversize(best.1);
        let wastes = self.options.oversize(size) && best.1 >= size + self.options.max_non_split_rounding;
        if spends_oversize || wastes {
            return None;
        }
        self.pool(small).free.remove(&best);
        Some(best.2)
    }

    /// The block's size, with the piece without memory that follows it.
    fn expandable_size(&self, address: u64) -> u64 {
        let block = &self.blocks[&address];
        let next = self.next(address).map(|next| &self.blocks[&next]).filter(|next| !next.mapped);
        block.size + next.map_or(0, |next| next.size)
    }

    /// Makes a free block of at least `size` bytes from new memory; it is in no pool.
    fn new_memory(&mut self, stream: u64, small: bool, size: u64) -> Option<u64> {
        let bytes = self.options.segment_size(size);
        let reserved = self.counters.reserved_bytes.all.current;
        if self.options.limit.is_some_and(|limit| reserved + bytes > limit) {
            return None;
        }
        if self.options.expandable_segments {
            return self.expand(stream, small, size);
        }
        if reserved + bytes > self.options.capacity {
            return None;
        }
        let address = self.add_segment(stream, small, bytes, false);
        self.counters.segment.change(small, 1);
        self.counters.reserved_bytes.change(small, bytes as i64);
        self.counters.num_device_alloc += 1;
        if self.options.oversize(bytes) {
            self.counters.oversize_segments.change(1);
        }
        Some(address)
    }

    fn add_segment(&mut self, stream: u64, small: bool, size: u64, expandable: bool) -> u64 {
        self.segments += 1;
        let address = self.segments << 40;
        let block = Block {
            stream,
            small,
            size,
            requested: 0,
            allocated: false,
            mapped: !expandable,
            expandable,
            uses: BTreeSet::new(),
            events: 0,
            born: 0,
        };
        self.blocks.insert(address, block);
        address
    }

    fn page(&self, small: bool) -> u64 {
        if small { SMALL_SEGMENT } else { self.options.large_segment_size }
    }

    /// Maps memory behind a place of an expandable segment that has `size` bytes without blocks in use.
    fn expand(&mut self, stream: u64, small: bool, size: u64) -> Option<u64> {
        let address = self.find_place(stream, small, size);
        if !self.blocks[&address].mapped {
            self.map(address, size)?;
        }
        // Mapping merges with the neighbours, so the block that the place starts with may start earlier.
        let mut address = self.start_of(address);
        while self.blocks[&address].size < size {
            let missing = size - self.blocks[&address].size;
            let next = self.next(address).expect("the place is large enough");
            self.map(next, missing)?;
            address = self.start_of(next);
        }
        let key = (stream, self.blocks[&address].size, address);
        self.pool(small).free.remove(&key);
        Some(address)
    }

    /// The lowest run of unused pieces with `size` bytes that has a piece to map in it; a new reservation if none.
    fn find_place(&mut self, stream: u64, small: bool, size: u64) -> u64 {
        let unused = |address: &u64| !self.blocks[address].active();
        let pool = if small { &self.small } else { &self.large };
        for &(_, hole) in pool.unmapped.range((stream, 0)..).take_while(|key| key.0 == stream) {
            let start = self.previous(hole).filter(unused).unwrap_or(hole);
            let (mut bytes, mut piece) = (0, Some(start));
            while let Some(address) = piece.filter(unused)
                && bytes < size
            {
                bytes += self.blocks[&address].size;
                piece = self.next(address);
            }
            if bytes >= size {
                return start;
            }
        }
        let room = (self.options.capacity + self.options.capacity / 8).next_multiple_of(self.page(small));
        let address = self.add_segment(stream, small, room, true);
        self.pool(small).unmapped.insert((stream, address));
        address
    }

    /// Maps up to `size` bytes, whole pages, at the start of a piece without memory. `None`: out of memory.
    fn map(&mut self, address: u64, size: u64) -> Option<()> {
        let Block { stream, small, size: whole, .. } = self.blocks[&address];
        let bytes = size.min(whole).next_multiple_of(self.page(small));
        if self.counters.reserved_bytes.all.current + bytes > self.options.capacity {
            return None;
        }
        self.pool(small).unmapped.remove(&(stream, address));
        if bytes < whole {
            self.cut(address, bytes);
            self.pool(small).unmapped.insert((stream, address + bytes));
        }
        self.block(address).mapped = true;
        self.counters.reserved_bytes.change(small, bytes as i64);
        self.counters.num_device_alloc += 1;
        let merged = self.merge(address);
        let size = self.blocks[&merged].size;
        self.pool(small).free.insert((stream, size, merged));
        Some(())
    }

    /// Unmaps the whole pages of a free block; what is left of it at both ends stays free.
    fn unmap(&mut self, address: u64) {
        let Block { stream, small, size, .. } = self.blocks[&address];
        let page = self.page(small);
        let base = (address >> 40) << 40;
        let (start, end) =
            (base + (address - base).next_multiple_of(page), base + (address + size - base) / page * page);
        if start >= end {
            return;
        }
        self.pool(small).free.remove(&(stream, size, address));
        if start > address {
            self.cut(address, start - address);
            self.pool(small).free.insert((stream, start - address, address));
        }
        if end < address + size {
            self.cut(start, end - start);
            self.pool(small).free.insert((stream, address + size - end, end));
        }
        self.block(start).mapped = false;
        self.counters.reserved_bytes.change(small, -((end - start) as i64));
        self.counters.num_device_free += 1;
        let merged = self.merge(start);
        if self.is_split(merged) {
            self.pool(small).unmapped.insert((stream, merged));
        } else {
            self.blocks.remove(&merged);
        }
    }

    /// Splits a found block, and accounts for it.
    fn hand_out(&mut self, address: u64, size: u64, requested: u64) {
        let was_split = self.is_split(address);
        let Block { stream, small, size: whole, expandable, .. } = self.blocks[&address];
        let rest = whole - size;
        let splits = if small || self.options.expandable_segments {
            rest >= QUANTUM
        } else {
            !self.options.oversize(size) && rest > SMALL_SIZE
        };
        if splits {
            let born = self.blocks[&address].born;
            self.cut(address, size);
            self.block(address + size).born = born;
            self.pool(small).free.insert((stream, rest, address + size));
        }
        if !expandable {
            let before = if was_split { (1, whole as i64) } else { (0, 0) };
            let after = if splits { (1, rest as i64) } else { (0, 0) };
            self.change_inactive(small, after.0 - before.0, after.1 - before.1);
        }
        let block = self.block(address);
        (block.allocated, block.requested) = (true, requested);
        let size = block.size;
        self.counters.allocation.change(small, 1);
        self.counters.allocated_bytes.change(small, size as i64);
        self.counters.active.change(small, 1);
        self.counters.active_bytes.change(small, size as i64);
        self.counters.requested_bytes.change(small, requested as i64);
        if self.options.oversize(size) {
            self.counters.oversize_allocations.change(1);
        }
    }

    fn change_inactive(&mut self, small: bool, blocks: i64, bytes: i64) {
        // No change is neither an allocation nor a free, and keeps the peak.
        self.counters.inactive_split.change(small, blocks);
        self.counters.inactive_split_bytes.change(small, bytes);
    }

    /// Puts a block that nothing uses any more in its pool.
    fn free_block(&mut self, address: u64) {
        let Block { stream, small, size, requested, expandable, .. } = self.blocks[&address];
        self.counters.active.change(small, -1);
        self.counters.active_bytes.change(small, -(size as i64));
        self.counters.requested_bytes.change(small, -(requested as i64));
        self.block(address).requested = 0;
        let pool = if small { &self.small } else { &self.large };
        let before: Vec<u64> = [self.previous(address), self.next(address)]
            .into_iter()
            .flatten()
            .map(|next| (stream, self.blocks[&next].size, next))
            .filter(|key| pool.free.contains(key))
            .map(|key| key.1)
            .collect();
        let born = pool.searches;
        let merged = self.merge(address);
        let size = self.blocks[&merged].size;
        self.block(merged).born = born;
        self.pool(small).free.insert((stream, size, merged));
        if !expandable {
            let after = if self.is_split(merged) { (1, size as i64) } else { (0, 0) };
            let bytes: u64 = before.iter().sum();
            self.change_inactive(small, after.0 - before.len() as i64, after.1 - bytes as i64);
        }
    }

    fn process_events(&mut self) {
        let streams: Vec<u64> = self.events.keys().copied().collect();
        for stream in streams {
            while let Some(&(address, true)) = self.events[&stream].front() {
                self.events.entry(stream).or_default().pop_front();
                let block = self.block(address);
                block.events -= 1;
                if block.events == 0 {
                    self.free_block(address);
                }
            }
        }
    }

    fn synchronize(&mut self) {
        self.counters.num_sync_all_streams += 1;
        let streams: Vec<u64> = self.events.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.complete(stream));
        self.process_events();
    }

    /// Gives back old whole segments of the large pool, when more than the threshold is reserved.
    fn collect_garbage(&mut self) {
        let threshold = self.options.garbage_collection_threshold;
        let Some(limit) = self.options.limit.filter(|_| threshold > 0.0) else { return };
        let threshold = (threshold * limit as f64) as u64;
        let Some(target) = self.counters.reserved_bytes.all.current.checked_sub(threshold) else { return };
        let mut reclaimed = 0;
        while reclaimed < target {
            let whole = self.large.free.iter().map(|key| key.2);
            let whole: Vec<u64> = whole.filter(|at| self.is_whole_segment(*at)).collect();
            let age = |at: &u64| self.large.searches - self.blocks[at].born;
            let total: u64 = whole.iter().map(age).sum();
            let old: Vec<u64> = match whole.len() as u64 {
                0 => return,
                // An age is at least the average when `age * count >= total`; no rounding is wanted here.
                count => {
                    whole.into_iter().filter(|at| age(at) as f64 >= total as f64 / count as f64).collect()
                }
            };
            for address in old {
                reclaimed += self.blocks[&address].size;
                self.release(address);
            }
        }
    }

    /// Gives back oversize blocks of the stream, until what they had is enough for the request.
    fn release_oversize(&mut self, stream: u64, small: bool, size: u64) -> bool {
        let Some(max) = self.options.max_split_size else { return false };
        let wanted = size.max(max);
        let free = self.pool(small).free.clone();
        if let Some(&(_, _, address)) = free.range((stream, wanted, 0)..(stream + 1, 0, 0)).next()
            && self.is_whole_segment(address)
        {
            self.release(address);
            return true;
        }
        let mut released = 0;
        for &(_, size, address) in free.range((stream, max, 0)..(stream + 1, 0, 0)).rev() {
            if released < wanted && self.is_whole_segment(address) {
                released += size;
                self.release(address);
            }
        }
        released >= wanted
    }

    fn release_cached(&mut self) {
        for small in [false, true] {
            for (_, _, address) in self.pool(small).free.clone() {
                if self.blocks[&address].expandable {
                    self.unmap(address);
                } else if self.is_whole_segment(address) {
                    self.release(address);
                }
            }
        }
    }

    /// Gives a whole free segment back to the device.
    fn release(&mut self, address: u64) {
        let Some(Block { stream, small, size, .. }) = self.blocks.remove(&address) else { return };
        self.pool(small).free.remove(&(stream, size, address));
        self.counters.segment.change(small, -1);
        self.counters.reserved_bytes.change(small, -(size as i64));
        self.counters.num_device_free += 1;
        if self.options.oversize(size) {
            self.counters.oversize_segments.change(-1);
        }
    }

    fn block(&mut self, address: u64) -> &mut Block {
        self.blocks.get_mut(&address).expect("the block exists")
    }

    /// The piece before, in the same segment.
    fn previous(&self, address: u64) -> Option<u64> {
        let (before, _) = self.blocks.range(..address).next_back()?;
        (before >> 40 == address >> 40).then_some(*before)
    }

    /// The piece after, in the same segment.
    fn next(&self, address: u64) -> Option<u64> {
        let (after, _) = self.blocks.range(address + 1..).next()?;
        (after >> 40 == address >> 40).then_some(*after)
    }

    fn is_split(&self, address: u64) -> bool {
        self.previous(address).is_some() || self.next(address).is_some()
    }

    /// The piece that holds `address`.
    fn start_of(&self, address: u64) -> u64 {
        self.blocks.range(..=address).next_back().map_or(address, |(start, _)| *start)
    }

    /// The block is all of a segment that was not made to grow.
    fn is_whole_segment(&self, address: u64) -> bool {
        !self.is_split(address) && !self.blocks[&address].expandable
    }

    /// Cuts a piece in two; the second part is like the first.
    fn cut(&mut self, address: u64, size: u64) {
        let mut rest = self.blocks[&address].clone();
        rest.size -= size;
        self.block(address).size = size;
        self.blocks.insert(address + size, rest);
    }

    /// Joins an unused piece, which is in no pool, with its unused neighbours of the same kind.
    fn merge(&mut self, address: u64) -> u64 {
        let mapped = self.blocks[&address].mapped;
        let joins = |other: &u64| !self.blocks[other].active() && self.blocks[other].mapped == mapped;
        let (before, after) = (self.previous(address).filter(joins), self.next(address).filter(joins));
        for other in [before, after].into_iter().flatten() {
            let Block { stream, small, size, .. } = self.blocks[&other];
            self.pool(small).free.remove(&(stream, size, other));
            self.pool(small).unmapped.remove(&(stream, other));
        }
        let first = before.unwrap_or(address);
        for gone in [before.and(Some(address)), after].into_iter().flatten() {
            let size = self.blocks.remove(&gone).map_or(0, |block| block.size);
            self.block(first).size += size;
        }
        first
    }
}
