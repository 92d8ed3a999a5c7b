//! [`ArenaState`]: the blocks of one stream in one pool, and the rules by which they are allocated.
//!
//! This module is not thread-safe and does not call the driver, except to report buffers to a driver that watches
//! memory. The caller supplies segments and takes them back. As in PyTorch's allocator, the rules are best fit on
//! (size, address), unless the pool specifies otherwise; split if the remainder is worth keeping; merge with free
//! neighbors when freed.

use std::sync::Arc;

use super::block::{Block, BlockId, Blocks, NONE, State};
use super::counters::{Counted, Counters};
use super::deferred_free::DeferredFree;
use super::expandable::Expandable;
use super::free_index::FreeIndex;
use super::history::{History, Site};
use super::pending::Pending;
use super::policy::Policy;
use super::size::{Kind, MIN_BLOCK, SMALL_SIZE};
use crate::driver::{DevicePtr, Driver};
use crate::snapshot::TraceAction;

/// Driver memory from which blocks are cut.
#[derive(Debug)]
pub(crate) struct Segment {
    pub address: u64,
    /// Size of the address range in bytes. In an expandable segment, only part of the range is mapped.
    pub size: u64,
    pub kind: Kind,
    /// The segment's first block.
    pub first: BlockId,
    pub source: Source,
    /// Source location of the request for which the segment was allocated.
    pub site: Site,
}

/// The driver API with which a segment was allocated, which determines how it is freed.
#[derive(Debug)]
pub(crate) enum Source {
    /// Allocated by `memory_allocate`.
    Driver,
    /// Allocated by `stream_allocate`.
    StreamOrdered,
    /// A reserved address range, partly mapped.
    Expandable(Expandable),
}

/// The state of an arena; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct ArenaState {
    pub policy: Policy,
    pub blocks: Blocks,
    pub free: [FreeIndex; 2],
    /// Segments, indexed by number; `None` for a vacant slot.
    pub segments: Vec<Option<Segment>>,
    pub counters: Counters,
    pub pending: Pending,
    pub history: Option<Box<History>>,
    /// Driver to which every buffer is reported; `None` unless the driver watches memory.
    pub watcher: Option<Arc<dyn Driver>>,
    pub(super) deferred: DeferredFree,
    /// True if frees may be deferred; false if every allocation and free must be recorded or advance a clock.
    pub may_defer: bool,
    /// Ordinals of the devices that may use the memory.
    pub devices: Vec<u32>,
}

impl ArenaState {
    pub fn new(policy: Policy, devices: Vec<u32>) -> Self {
        let mut state = Self {
            policy,
            blocks: Blocks::default(),
            free: Default::default(),
            segments: Vec::new(),
            counters: Counters::default(),
            pending: Pending::default(),
            history: None,
            watcher: None,
            deferred: DeferredFree::default(),
            may_defer: false,
            devices,
        };
        state.may_defer = state.policy.may_defer_frees();
        state
    }

    /// Returns true if the policy permits deferred frees and no free needs to be recorded individually.
    fn may_defer_frees(&self) -> bool {
        self.history.is_none() && self.watcher.is_none() && self.policy.may_defer_frees()
    }

    /// Starts reporting buffers to the driver. Blocks of graph pools are not reported, because every launch of a graph
    /// reuses them.
    pub fn watch(&mut self, driver: &Arc<dyn Driver>) {
        self.watcher = (!self.policy.graph && driver.watches_buffers()).then(|| Arc::clone(driver));
        self.may_defer = self.may_defer_frees();
    }

    /// Sets the policy for later requests, and recounts the oversize segments. Returns their number before and after.
    pub fn set_policy(&mut self, policy: Policy) -> [u64; 2] {
        let limits = [self.policy.max_split, policy.max_split];
        self.policy = policy;
        self.may_defer = self.may_defer_frees();
        let (mut blocks, mut segments) = ([0; 2], [0; 2]);
        for segment in self.segments.iter().flatten() {
            let counted = !matches!(segment.source, Source::Expandable(_));
            for ((limit, blocks), segments) in limits.into_iter().zip(&mut blocks).zip(&mut segments) {
                let oversize =
                    |(_, block): &(BlockId, &Block)| block.state == State::Allocated && block.size >= limit;
                *blocks += self.blocks.list(segment.first).filter(oversize).count() as u64;
                *segments += u64::from(counted && segment.size >= limit);
            }
        }
        self.counters.oversize_allocations.correct(blocks[0], blocks[1]);
        self.counters.oversize_segments.correct(segments[0], segments[1]);
        segments
    }

    /// Starts or ends a history.
    pub fn set_history(&mut self, history: Option<History>) {
        self.history = history.map(Box::new);
        self.may_defer = self.may_defer_frees();
    }

    /// Allocates a free block of at least `size` bytes (a rounded size), if the policy permits one.
    #[inline]
    pub fn take(&mut self, size: u64, requested: u64, site: Site) -> Option<BlockId> {
        let kind = Kind::of(size);
        if kind == Kind::Large {
            self.policy.tick();
        }
        let id = self.find(kind, size)?;
        self.free[kind as usize].remove(&mut self.blocks, id);
        self.occupy(id, size, requested, site);
        Some(id)
    }

    #[inline]
    fn find(&self, kind: Kind, size: u64) -> Option<BlockId> {
        let (index, blocks) = (&self.free[kind as usize], &self.blocks);
        let found = index.at_least(blocks, (size, 0))?;
        let found = if blocks[found].expandable { self.min_growth(kind, found) } else { found };
        (!self.policy.wastes(blocks[found].size, size)).then_some(found)
    }

    /// Among suitable blocks of expandable segments, returns the one that can grow least, so that longer free ranges
    /// are preserved.
    fn min_growth(&self, kind: Kind, mut found: BlockId) -> BlockId {
        let grown = |id: BlockId| {
            let block = &self.blocks[id];
            let after = self.blocks.get(block.next).filter(|next| next.state == State::Unmapped);
            block.size + after.map_or(0, |next| next.size)
        };
        while grown(found) != self.blocks[found].size {
            let after = (self.blocks[found].size, self.blocks[found].address + 1);
            match self.free[kind as usize].at_least(&self.blocks, after) {
                Some(next) if grown(next) < grown(found) => found = next,
                _ => break,
            }
        }
        found
    }

    #[inline]
    fn should_split(&self, block: &Block, size: u64) -> bool {
        let rest = block.size - size;
        if block.uncached || self.policy.no_split {
            false
        } else if block.kind == Kind::Small || block.expandable {
            rest >= MIN_BLOCK
        } else {
            size < self.policy.max_split && rest > SMALL_SIZE
        }
    }

    /// Allocates the front part of a block that is not in the free index.
    #[inline]
    pub fn occupy(&mut self, id: BlockId, size: u64, requested: u64, site: Site) {
        use Counted::*;
        let block = &self.blocks[id];
        let (kind, was_split, expandable) = (block.kind, block.is_split(), block.expandable);
        let split = self.should_split(block, size);
        if split {
            let rest = self.split(id, size);
            if !expandable {
                if was_split {
                    self.counters.down(kind, InactiveSplitBytes, size);
                } else {
                    let bytes = self.blocks[rest].size;
                    self.counters.up_both(kind, InactiveSplit, InactiveSplitBytes, bytes);
                }
            }
            self.free[kind as usize].insert(&mut self.blocks, rest);
        } else if was_split && !expandable {
            let bytes = self.blocks[id].size;
            self.counters.down_both(kind, InactiveSplit, InactiveSplitBytes, bytes);
        }
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = requested;
        block.site = Some(site);
        let (address, bytes) = (block.address, block.size);
        self.counters.allocate(kind, bytes, requested);
        if bytes >= self.policy.max_split {
            self.counters.oversize_allocations.up(1);
        }
        self.note(TraceAction::Alloc, address, requested, site);
        if let Some(driver) = &self.watcher {
            driver.buffer_allocated(DevicePtr(address), requested as usize);
        }
    }

    /// Splits a block after `size` bytes. The remainder becomes a free block that is not yet in the free index.
    #[inline]
    pub fn split(&mut self, id: BlockId, size: u64) -> BlockId {
        let front = &mut self.blocks[id];
        let rest = Block {
            address: front.address + size,
            size: front.size - size,
            requested: 0,
            prev: id,
            ..front.clone()
        };
        front.size = size;
        let next = rest.next;
        let rest = self.blocks.insert(rest);
        self.blocks[id].next = rest;
        if next != NONE {
            self.blocks[next].prev = rest;
        }
        rest
    }

    /// Ends the use of a block, and frees it unless `pending` is set because other streams may still use it;
    /// [`Self::release`] then frees it later.
    #[inline]
    pub fn free(&mut self, id: BlockId, pending: bool) {
        use Counted::*;
        let block = &self.blocks[id];
        debug_assert_eq!(block.state, State::Allocated);
        let (kind, bytes, address, requested) = (block.kind, block.size, block.address, block.requested);
        self.counters.down_both(kind, Allocation, AllocatedBytes, bytes);
        if bytes >= self.policy.max_split {
            self.counters.oversize_allocations.down(1);
        }
        if self.history.is_some()
            && let Some(site) = block.site
        {
            self.note(TraceAction::FreeRequested, address, requested, site);
        }
        if let Some(driver) = &self.watcher {
            driver.buffer_freed(DevicePtr(address), requested as usize);
        }
        if pending {
            self.blocks[id].state = State::Pending;
            self.counters.wait(kind, bytes);
        } else {
            self.release(id);
        }
    }

    /// Counts the end of a block's use.
    #[inline]
    pub fn end_use(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (kind, bytes, address, requested) = (block.kind, block.size, block.address, block.requested);
        if block.state == State::Pending {
            self.counters.wait_no_more(kind, bytes);
        }
        self.counters.down(kind, Counted::RequestedBytes, requested);
        if self.history.is_some()
            && let Some(site) = self.blocks[id].site
        {
            self.note(TraceAction::FreeCompleted, address, requested, site);
        }
    }

    /// Frees a block that is no longer in use and merges it with free neighbors.
    #[inline]
    pub fn release(&mut self, id: BlockId) {
        use Counted::*;
        self.end_use(id);
        let (kind, expandable) = (self.blocks[id].kind, self.blocks[id].expandable);
        let (id, merged, merged_bytes) = self.merge_neighbors(id);
        if !expandable {
            let block = &self.blocks[id];
            let (now, now_bytes) = if block.is_split() { (1, block.size) } else { (0, 0) };
            self.counters.change(kind, InactiveSplit, merged, now);
            self.counters.change(kind, InactiveSplitBytes, merged_bytes, now_bytes);
        }
        self.blocks[id].freed_at = self.policy.clock();
        self.put_back(id);
    }

    /// Inserts a block into the free index.
    #[inline]
    pub fn put_back(&mut self, id: BlockId) {
        let kind = self.blocks[id].kind as usize;
        self.free[kind].insert(&mut self.blocks, id);
    }

    /// Removes a free block from the free index.
    #[inline]
    pub fn take_out(&mut self, id: BlockId) {
        let kind = self.blocks[id].kind as usize;
        self.free[kind].remove(&mut self.blocks, id);
    }

    /// Returns true if the arena has no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(Option::is_none)
    }

    /// Merges a block with its free neighbors, which are removed from the index. Returns the merged block, and the
    /// number and total bytes of the neighbors.
    #[inline]
    pub fn merge_neighbors(&mut self, id: BlockId) -> (BlockId, u64, u64) {
        let kind = self.blocks[id].kind as usize;
        let (mut whole, mut merged, mut bytes) = (id, 0, 0);
        let is_free = |blocks: &Blocks, id| id != NONE && blocks[id].state == State::Free;
        let next = self.blocks[whole].next;
        if is_free(&self.blocks, next) {
            bytes += self.blocks[next].size;
            merged += 1;
            self.free[kind].remove(&mut self.blocks, next);
            self.join(whole, next);
        }
        let prev = self.blocks[whole].prev;
        if is_free(&self.blocks, prev) {
            bytes += self.blocks[prev].size;
            merged += 1;
            self.free[kind].remove(&mut self.blocks, prev);
            self.join(prev, whole);
            whole = prev;
        }
        (whole, merged, bytes)
    }

    /// Joins two neighbors, neither of which may be in the free index, into one block in the slot of the first.
    #[inline]
    pub fn join(&mut self, first: BlockId, second: BlockId) {
        let (size, next) = (self.blocks[second].size, self.blocks[second].next);
        self.blocks[first].size += size;
        self.blocks[first].next = next;
        if next != NONE {
            self.blocks[next].prev = first;
        }
        self.blocks.remove(second);
    }

    /// Adds a segment that consists of a single block, without adding the block to the free index.
    pub fn add_segment(&mut self, segment: Segment, uncached: bool) -> BlockId {
        let number = match self.segments.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.segments.push(None);
                self.segments.len() - 1
            }
        };
        let expandable = matches!(segment.source, Source::Expandable(_));
        let block = self.blocks.insert(Block {
            address: segment.address,
            size: segment.size,
            requested: 0,
            site: None,
            freed_at: 0,
            prev: NONE,
            next: NONE,
            left: NONE,
            right: NONE,
            segment: number as u32,
            state: if expandable { State::Unmapped } else { State::Free },
            kind: segment.kind,
            expandable,
            uncached,
        });
        if !expandable {
            self.count_segment(&segment, true);
            self.note(TraceAction::SegmentAlloc, segment.address, segment.size, segment.site);
        }
        self.segments[number] = Some(Segment { first: block, ..segment });
        block
    }

    /// Removes and returns a segment that consists of a single block outside the free index.
    pub fn remove_segment(&mut self, id: BlockId) -> Option<Segment> {
        debug_assert!(!self.blocks[id].is_split());
        let number = self.blocks[id].segment as usize;
        let segment = self.segments.get_mut(number)?.take()?;
        self.blocks.remove(id);
        if !matches!(segment.source, Source::Expandable(_)) {
            self.count_segment(&segment, false);
            self.note(TraceAction::SegmentFree, segment.address, segment.size, segment.site);
        }
        Some(segment)
    }

    fn count_segment(&mut self, segment: &Segment, added: bool) {
        let (kind, oversize) = (segment.kind, segment.size >= self.policy.max_split);
        if added {
            self.counters.up_both(kind, Counted::Segment, Counted::ReservedBytes, segment.size);
            self.counters.oversize_segments.up(oversize.into());
        } else {
            self.counters.down_both(kind, Counted::Segment, Counted::ReservedBytes, segment.size);
            self.counters.oversize_segments.down(oversize.into());
        }
    }

    pub fn segment(&mut self, id: BlockId) -> Option<&mut Segment> {
        let number = self.blocks.get(id)?.segment as usize;
        self.segments.get_mut(number)?.as_mut()
    }

    /// Returns the free blocks that span an entire segment, except in expandable segments.
    pub fn whole_segments(&self) -> Vec<BlockId> {
        let whole = |id: &BlockId| !self.blocks[*id].is_split() && !self.blocks[*id].expandable;
        self.free.iter().flat_map(|index| index.ids(&self.blocks)).filter(whole).collect()
    }

    /// Records an event in the history, if the arena has one.
    #[inline]
    pub fn note(&mut self, action: TraceAction, address: u64, size: u64, site: Site) {
        if let Some(history) = &mut self.history {
            history.push(action, address, size, site);
        }
    }

    /// Returns the total size of free blocks, in bytes.
    pub fn cached(&self) -> u64 {
        let ids = self.free.iter().flat_map(|index| index.ids(&self.blocks));
        ids.map(|id| self.blocks[id].size).sum()
    }

    /// Returns the size of the largest free block, in bytes.
    pub fn largest_free(&self) -> u64 {
        let largest = |index: &FreeIndex| index.largest(&self.blocks).map(|id| self.blocks[id].size);
        self.free.iter().filter_map(largest).max().unwrap_or(0)
    }
}
