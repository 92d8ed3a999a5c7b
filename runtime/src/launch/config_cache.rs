//! [`ConfigCache`]: the resolved configurations of a kernel's most recent launches, so that a repeated launch is not
//! resolved again.

use super::resolve::{Resolved, Source};
use super::seq_lock::SeqLock;
use super::shape::{KEY_WORDS, Launch};
use crate::driver::LaunchConfig;

/// Number of configurations in a cache.
const SLOTS: usize = 8;
const WORDS: usize = KEY_WORDS + 5;

/// Cache of resolved configurations; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(super) struct ConfigCache([SeqLock<WORDS>; SLOTS]);

impl ConfigCache {
    /// Returns the two slots in which a launch may be cached, selected by size and kind, in which launches of one
    /// kernel mainly differ.
    #[inline]
    fn places(key: &[u64; KEY_WORDS]) -> [usize; 2] {
        let [kind, shared, _, size, more, _] = *key;
        let mixed = (size ^ kind.rotate_left(20) ^ shared.rotate_left(40) ^ more.rotate_left(50))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = (mixed >> 32) as usize % SLOTS;
        [first, first ^ 1]
    }

    /// Writes the cached configuration of a launch to `resolved`, if it was resolved in this generation. Returns false
    /// otherwise.
    #[inline]
    pub fn get(&self, launch: &Launch, generation: u64, resolved: &mut Resolved) -> bool {
        let key = launch.key();
        Self::places(&key).iter().any(|&place| self.get_at(place, &key, launch, generation, resolved))
    }

    #[inline]
    fn get_at(
        &self,
        place: usize,
        key: &[u64; KEY_WORDS],
        launch: &Launch,
        generation: u64,
        resolved: &mut Resolved,
    ) -> bool {
        let Some(words) = self.0[place].read() else { return false };
        // Branch-free, because all words are usually equal.
        let differ = |all: u64, (word, wanted): (&u64, &u64)| all | (word ^ wanted);
        if words.iter().zip(key).fold(words[KEY_WORDS] ^ generation, differ) != 0 {
            return false;
        }
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let [grid_xy, grid_z_block_x, block_yz, rest] = [1, 2, 3, 4].map(|index| words[KEY_WORDS + index]);
        let config = &mut resolved.config;
        config.grid = [low(grid_xy), high(grid_xy), low(grid_z_block_x)];
        config.block = [high(grid_z_block_x), low(block_yz), high(block_yz)];
        config.shared_bytes = launch.shared_bytes;
        config.cluster = launch.cluster;
        config.cooperative = rest & 1 != 0;
        config.dependent = rest & 2 != 0;
        resolved.source = Source::ALL[(rest >> 2) as usize % Source::ALL.len()];
        true
    }

    /// Stores the configuration to which a launch was resolved.
    pub fn put(&self, launch: &Launch, generation: u64, resolved: &Resolved) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let key = launch.key();
        let LaunchConfig { grid, block, cooperative, dependent, .. } = resolved.config;
        let mut words = [0; WORDS];
        words[..KEY_WORDS].copy_from_slice(&key);
        words[KEY_WORDS..].copy_from_slice(&[
            generation,
            pair(grid[0], grid[1]),
            pair(grid[2], block[0]),
            pair(block[1], block[2]),
            u64::from(cooperative) | u64::from(dependent) << 1 | (resolved.source as u64) << 2,
        ]);
        let [first, second] = Self::places(&key);
        // The first slot is overwritten only if it is out of date or both slots are occupied.
        let is_taken = |place: usize| {
            self.0[place].read().is_some_and(|cached| cached[0] != 0 && cached[KEY_WORDS] == generation)
        };
        let place = if is_taken(first) && !is_taken(second) { second } else { first };
        self.0[place].write(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_launches_fit_at_once() {
        let resolved = Resolved { config: LaunchConfig::new([1; 3], [1; 3], 0), source: Source::Given };
        for n in 1..200 {
            let cache = ConfigCache::default();
            let pair = [Launch::auto(n), Launch::auto(n * 37 + 5).waves(n as u32)];
            pair.iter().for_each(|launch| cache.put(launch, 3, &resolved));
            assert!(pair.iter().all(|launch| cache.get(launch, 3, &mut { Resolved::BLANK })), "{pair:?}");
        }
    }

    #[test]
    fn only_an_equal_launch_is_a_hit() {
        let cache = ConfigCache::default();
        let config = LaunchConfig {
            cooperative: true,
            dependent: true,
            ..LaunchConfig::new([7, 8, 9], [32, 2, 3], 5)
        };
        let launch = Launch::auto(1 << 40).shared(5);
        let get = |launch: &Launch, generation| {
            let mut found = Resolved::BLANK;
            cache.get(launch, generation, &mut found).then_some(found)
        };
        assert!(get(&launch, 0).is_none());
        cache.put(&launch, 0, &Resolved { config, source: Source::Tuned });
        let found = get(&launch, 0).unwrap();
        assert_eq!((found.config, found.source), (config, Source::Tuned));
        assert!(get(&launch, 1).is_none(), "of another generation");
        let others = [
            Launch::auto(1 << 40),
            Launch::auto((1 << 40) + 1).shared(5),
            Launch::auto(1 << 40).shared(6),
            Launch::for_occupancy(1 << 40).shared(5),
            launch.waves(1),
            launch.cluster(2),
            launch.cluster((1, 1, 2)),
            launch.cooperative(),
            launch.dependent(),
        ];
        assert!(others.iter().all(|other| get(other, 0).is_none()));
    }
}
