//! [`DeferredFree`]: a fast path for temporaries, which are freed immediately after their allocation and then allocated
//! again.
//!
//! A loop that allocates and drops a buffer in every iteration would merge the block with its neighbors and split it
//! again each time. If an allocation is immediately followed by the free of the same block, the free is deferred: the
//! block stays split and counts as allocated. If the next operation requests the same number of bytes, it receives this
//! block, which best fit would also select, because the arena has not changed. Every other operation first performs the
//! deferred frees ([`ArenaState::settle`]), so blocks and statistics are the same as without this path.

use super::arena::ArenaState;
use super::block::{BlockId, NONE};
use super::history::Site;

/// The deferred frees and allocations of an arena.
#[derive(Debug)]
pub(super) struct DeferredFree {
    /// The block that the last operation allocated from the free blocks.
    latest: BlockId,
    /// The block whose free is deferred.
    block: BlockId,
    /// Number of uncounted cycles of freeing and reusing the block.
    rounds: u64,
}

impl Default for DeferredFree {
    fn default() -> Self {
        Self { latest: NONE, block: NONE, rounds: 0 }
    }
}

impl ArenaState {
    /// Records that the current operation allocated a free block.
    #[inline]
    pub fn note_allocated(&mut self, block: BlockId) {
        self.deferred.latest = block;
    }

    /// Defers the free of a block if the last operation allocated it. If this returns false, the caller must free the
    /// block.
    #[inline]
    pub fn defer_free(&mut self, block: BlockId) -> bool {
        if block != self.deferred.latest || !self.may_defer || !self.pending.is_empty() {
            return false;
        }
        (self.deferred.latest, self.deferred.block) = (NONE, block);
        true
    }

    /// Allocates the block whose free is deferred, if the request has the same size.
    #[inline]
    pub fn take_deferred(&mut self, requested: u64, site: Site) -> Option<BlockId> {
        let block = self.deferred.block;
        if block == NONE || self.blocks[block].requested != requested {
            return None;
        }
        self.blocks[block].site = Some(site);
        (self.deferred.latest, self.deferred.block) = (block, NONE);
        self.deferred.rounds += 1;
        Some(block)
    }

    /// Performs the deferred operations. Every operation that is not deferred must call this first.
    #[inline]
    pub fn settle(&mut self) {
        if self.deferred.block != NONE || self.deferred.rounds != 0 {
            self.settle_now();
        }
        self.deferred.latest = NONE;
    }

    #[cold]
    fn settle_now(&mut self) {
        let DeferredFree { latest, block: deferred, rounds } = std::mem::take(&mut self.deferred);
        let block = if deferred == NONE { latest } else { deferred };
        if rounds > 0 {
            // All rounds are identical, so one is performed, and its counts are multiplied by the number of rounds.
            let (size, requested) =
                (self.policy.round(self.blocks[block].requested), self.blocks[block].requested);
            let before = self.counters.clone();
            if let Some(site) = self.blocks[block].site {
                self.free(block, false);
                let again = self.take(size, requested, site);
                debug_assert_eq!(again, Some(block), "nothing has changed since it was allocated");
            }
            self.counters.repeat(&before, rounds - 1);
        }
        if deferred != NONE {
            self.free(deferred, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;

    use super::super::arena::{Segment, Source};
    use super::super::policy::Policy;
    use super::super::size::Kind;
    use super::*;
    use crate::memory::options::AllocatorOptions;
    use crate::memory::statistics::MemoryStatistics;

    /// Creates an arena with free segments that defers frees if `may_defer`.
    fn arena(may_defer: bool) -> ArenaState {
        let mut state =
            ArenaState::new(Policy::new(&AllocatorOptions::default(), &Arc::default()), Vec::new());
        state.may_defer = may_defer;
        let small = (1..10).map(|number| (number << 30, 2 << 20, Kind::Small));
        for (address, size, kind) in small.chain([(10 << 30, 64 << 20, Kind::Large)]) {
            let site = Location::caller();
            let source = Source::Driver;
            let segment = Segment { address, size, kind, first: NONE, source, site };
            let block = state.add_segment(segment, false);
            state.put_back(block);
        }
        state
    }

    fn take(state: &mut ArenaState, bytes: u64) -> BlockId {
        let site = Location::caller();
        if let Some(block) = state.take_deferred(bytes, site) {
            return block;
        }
        state.settle();
        let size = state.policy.round(bytes);
        let block = state.take(size, bytes, site).unwrap();
        state.note_allocated(block);
        block
    }

    fn give(state: &mut ArenaState, block: BlockId) {
        if !state.defer_free(block) {
            state.settle();
            state.free(block, false);
        }
    }

    fn statistics(state: &mut ArenaState) -> MemoryStatistics {
        state.settle();
        let mut sum = MemoryStatistics::default();
        super::super::collect::add_counters(&state.counters, &mut sum);
        sum
    }

    #[test]
    fn deferring_changes_neither_blocks_nor_statistics() {
        for seed in 1..40u64 {
            let mut random = seed;
            let mut below = |bound: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % bound
            };
            let mut arenas = [true, false].map(arena);
            let mut live: Vec<[BlockId; 2]> = Vec::new();
            let mut bytes = 1000;
            for _ in 0..400 {
                if below(4) == 0 {
                    bytes = [1, 513, 1000, 5000, 700_000, 3 << 20][below(6) as usize];
                }
                match below(8) {
                    0 if live.len() < 12 => live.push(arenas.each_mut().map(|state| take(state, bytes))),
                    1 if !live.is_empty() => {
                        let blocks = live.swap_remove(below(live.len() as u64) as usize);
                        arenas.iter_mut().zip(blocks).for_each(|(state, block)| give(state, block));
                    }
                    2 => assert_eq!(statistics(&mut arenas[0]), statistics(&mut arenas[1])),
                    _ => {
                        let blocks = arenas.each_mut().map(|state| take(state, bytes));
                        let addresses = [0, 1].map(|index| arenas[index].blocks[blocks[index]].address);
                        assert_eq!(addresses[0], addresses[1], "seed {seed}");
                        arenas.iter_mut().zip(blocks).for_each(|(state, block)| give(state, block));
                    }
                }
            }
            assert_eq!(statistics(&mut arenas[0]), statistics(&mut arenas[1]), "seed {seed}");
        }
    }
}
