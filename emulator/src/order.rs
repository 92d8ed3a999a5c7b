//! The orders in which blocks and threads run.
//!
//! The same seed gives the same order. Every order runs every block and every thread exactly once.

use std::cell::Cell;

/// SplitMix64: small, fast, good enough to shuffle.
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    pub fn reseed(&self, seed: u64) {
        self.0.set(seed);
    }

    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills `order` with a random permutation of `0..count`.
    pub fn shuffle(&self, order: &mut Vec<u16>, count: u32) {
        order.clear();
        order.extend(0..count as u16);
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A permutation of `0..count` that needs no memory: `position * factor + shift mod count`.
pub(crate) struct Permutation {
    count: u64,
    factor: u64,
    shift: u64,
}

impl Permutation {
    /// `0, 1, 2, …`
    pub fn identity(count: u64) -> Self {
        Self { count, factor: 1, shift: 0 }
    }

    /// One chosen by `seed`; `count` is not zero.
    pub fn seeded(count: u64, seed: u64) -> Self {
        let random = Random::new(seed);
        let shift = random.below(count);
        // Invertible exactly when the factor shares no divisor with the count; 1 always qualifies.
        let factor = loop {
            let candidate = 1 + random.below(count);
            if gcd(candidate, count) == 1 {
                break candidate % count.max(2);
            }
        };
        Self { count, factor, shift }
    }

    /// The item at `position`, which is below the count.
    pub fn at(&self, position: u64) -> u64 {
        if self.factor == 1 && self.shift == 0 {
            return position;
        }
        let product = u128::from(position) * u128::from(self.factor) + u128::from(self.shift);
        (product % u128::from(self.count)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
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

    #[test]
    fn shuffles_are_permutations_and_differ_between_seeds() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        Random::new(1).shuffle(&mut a, 1024);
        Random::new(2).shuffle(&mut b, 1024);
        assert_ne!(a, b);
        a.sort_unstable();
        assert!(a.iter().copied().eq(0..1024));
        Random::new(3).shuffle(&mut b, 0);
        assert!(b.is_empty());
    }
}
