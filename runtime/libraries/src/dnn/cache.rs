//! [`Cache`]: a map that forgets what was used least recently, for plans and for the choices of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};

use crate::hash::Words;

/// A map of at most so many entries.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    /// Each with the time of its last use.
    entries: HashMap<K, (u64, V), BuildHasherDefault<Words>>,
    now: u64,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), now: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.now += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.now;
        Some(value)
    }

    /// Adds an entry, in the place of those that were used least recently when there are more than `limit`. With a limit
    /// of 0 nothing is kept.
    pub fn insert(&mut self, key: K, value: V, limit: usize) {
        self.now += 1;
        self.entries.insert(key, (self.now, value));
        self.trim(limit);
    }

    pub fn trim(&mut self, limit: usize) {
        while self.entries.len() > limit {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    #[test]
    fn what_was_used_least_recently_is_forgotten() {
        let mut cache = Cache::default();
        for key in 0..3 {
            cache.insert(key, key * 10, 3);
        }
        assert_eq!(cache.get(&0).copied(), Some(0));
        cache.insert(3, 30, 3);
        assert_eq!((cache.get(&1).copied(), cache.len()), (None, 3));
        assert_eq!(cache.get(&0).copied(), Some(0));
        cache.trim(1);
        assert_eq!((cache.get(&0).copied(), cache.len()), (Some(0), 1));
        cache.insert(4, 40, 0);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn keys_that_differ_in_one_word_have_different_hashes() {
        let hash = |key: [i64; 8]| {
            let mut hasher = Words::default();
            key.hash(&mut hasher);
            hasher.finish()
        };
        let hashes: std::collections::HashSet<_> =
            (0..1000).map(|at| hash([1, 2, 3, at, 5, 6, 7, 8])).collect();
        assert_eq!(hashes.len(), 1000);
    }
}
