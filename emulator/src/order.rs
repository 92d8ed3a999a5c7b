//! Execution order of blocks and threads.
//!
//! The same seed produces the same order. Every order runs every block and every thread exactly once.
//!
//! A seeded order must not cost more than the sequential order, so that it can be the default. Therefore, it varies the
//! starting points instead of shuffling. Blocks run in ascending or descending order from an arbitrary first block. The
//! warps of a block, and the lanes of a warp, start in an order with a constant stride. All lanes of a warp start
//! before the next warp, so that a warp can finish and free its stacks early.

use std::cell::Cell;

/// Execution order of blocks and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Sequential order: blocks and threads start in ascending order, and blocks run on several cores.
    #[default]
    Sequential,
    /// Seeded order on one core. The seed determines the order in which blocks and threads start, and the order in
    /// which threads continue. The same seed produces the same run. This order reveals kernels that depend on an order
    /// that a GPU does not guarantee.
    Seeded(u64),
    /// Seeded order within each set of blocks that run concurrently. Sets run on several cores. The interleaving of
    /// sets on different cores varies from run to run.
    Varied(u64),
}

/// Returns the number of lanes of warp `warp` in a block of `threads` threads.
#[inline]
pub(crate) fn lanes_in_warp(threads: u32, warp: u32) -> u32 {
    (threads - warp * 32).min(32)
}

/// The SplitMix64 random number generator, which is small, fast, and sufficient for this purpose.
#[derive(Clone, Copy)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number less than `bound`, which must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A permutation of `0..count` that rotates either the ascending or the descending order.
pub(crate) struct Permutation {
    count: u64,
    shift: u64,
    is_reversed: bool,
}

impl Permutation {
    /// Returns the identity permutation: `0, 1, 2, …`
    pub fn identity(count: u64) -> Self {
        Self { count, shift: 0, is_reversed: false }
    }

    /// Returns the permutation that `seed` selects; `count` must not be 0.
    pub fn seeded(count: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self { count, shift: random.below(count), is_reversed: random.next() & 1 == 1 }
    }

    /// Returns the item at `position`, which must be less than the count.
    #[inline]
    pub fn at(&self, position: u64) -> u64 {
        let left = self.count - self.shift;
        let rotated = if position >= left { position - left } else { position + self.shift };
        if self.is_reversed { self.count - 1 - rotated } else { rotated }
    }
}

/// Sequence that contains each number below `count` once, with a constant stride.
#[derive(Default)]
struct Stride {
    count: Cell<u32>,
    step: Cell<u32>,
    next: Cell<u32>,
    left: Cell<u32>,
}

impl Stride {
    /// Starts the stride; `count` must not be 0.
    #[inline]
    fn begin(&self, count: u32, random: Option<u64>) {
        let (mut next, mut step) = (0, 1);
        if let Some(bits) = random {
            next = (((bits & 0xffff_ffff) * u64::from(count)) >> 32) as u32;
            let bits = (bits >> 32) as u32;
            // A step that is coprime to the count reaches all numbers.
            step = match count.is_power_of_two() {
                true => (bits | 1) & (count - 1),
                false if bits & 1 == 1 => count - 1,
                false => 1,
            };
        }
        self.count.set(count);
        self.step.set(step);
        self.next.set(next);
        self.left.set(count);
    }

    #[inline(always)]
    fn take(&self) -> Option<u32> {
        let left = self.left.get();
        if left == 0 {
            return None;
        }
        self.left.set(left - 1);
        let number = self.next.get();
        let (next, count) = (number + self.step.get(), self.count.get());
        self.next.set(if next >= count { next - count } else { next });
        Some(number)
    }
}

/// Threads of a block that have not started, in the order in which they start.
#[derive(Default)]
pub(crate) struct Unstarted {
    threads: Cell<u32>,
    warps: Stride,
    lanes: Stride,
    /// First thread of the warp that is starting.
    first: Cell<u32>,
    random: Cell<Option<Random>>,
}

impl Unstarted {
    /// Resets the value, so that it contains all threads of a block.
    pub fn begin(&self, threads: u32, random: Option<Random>) {
        self.threads.set(threads);
        self.random.set(random);
        self.warps.begin(threads.div_ceil(32), self.draw());
        self.lanes.left.set(0);
    }

    fn draw(&self) -> Option<u64> {
        let mut random = self.random.get()?;
        let drawn = random.next();
        self.random.set(Some(random));
        Some(drawn)
    }

    /// Returns the next thread.
    #[inline(always)]
    pub fn next(&self) -> Option<u32> {
        match self.lanes.take() {
            Some(lane) => Some(self.first.get() + lane),
            None => self.next_warp(),
        }
    }

    #[inline(never)]
    fn next_warp(&self) -> Option<u32> {
        let warp = self.warps.take()?;
        self.first.set(warp * 32);
        self.lanes.begin(lanes_in_warp(self.threads.get(), warp), self.draw());
        self.lanes.take().map(|lane| warp * 32 + lane)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lanes.left.get() == 0 && self.warps.left.get() == 0
    }

    /// Prevents further threads from starting.
    pub fn clear(&self) {
        self.lanes.left.set(0);
        self.warps.left.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_gives_a_permutation() {
        for count in [1u64, 2, 3, 31, 32, 33, 100, 1024] {
            for seed in 0..50 {
                let permutation = Permutation::seeded(count, seed);
                let mut seen: Vec<u64> = (0..count).map(|p| permutation.at(p)).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..count), "count {count}, seed {seed}");
            }
        }
    }

    fn starts(threads: u32, random: Option<Random>) -> Vec<u32> {
        let unstarted = Unstarted::default();
        unstarted.begin(threads, random);
        let order: Vec<u32> = std::iter::from_fn(|| unstarted.next()).collect();
        assert!(unstarted.is_empty());
        order
    }

    #[test]
    fn every_thread_starts_once() {
        for threads in [1, 2, 31, 32, 33, 64, 100, 1000, 1023, 1024] {
            assert!(starts(threads, None).into_iter().eq(0..threads), "{threads}");
            for seed in 0..50 {
                let mut order = starts(threads, Some(Random::new(seed)));
                let warps: Vec<u32> = order.iter().map(|thread| thread / 32).collect();
                assert_eq!(
                    warps.chunk_by(|a, b| a == b).count() as u32,
                    threads.div_ceil(32),
                    "warp by warp"
                );
                order.sort_unstable();
                assert!(order.into_iter().eq(0..threads), "{threads} threads, seed {seed}");
            }
        }
    }

    #[test]
    fn seeds_reverse_half_of_the_pairs() {
        for (first, second) in [(0, 1), (30, 31), (31, 32), (5, 200), (0, 255)] {
            let order = |seed| starts(256, Some(Random::new(seed)));
            let is_reversed =
                |order: &Vec<u32>| order.iter().find(|&&t| t == first || t == second) == Some(&second);
            let reversed = (0..200).map(order).filter(is_reversed).count();
            assert!((60..140).contains(&reversed), "{first} and {second}: {reversed} of 200");
        }
    }

    #[test]
    fn a_cleared_block_starts_no_thread() {
        let unstarted = Unstarted::default();
        unstarted.begin(100, None);
        assert_eq!((unstarted.next(), unstarted.next(), unstarted.is_empty()), (Some(0), Some(1), false));
        unstarted.clear();
        assert!(unstarted.is_empty() && unstarted.next().is_none());
    }
}
