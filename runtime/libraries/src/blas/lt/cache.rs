//! [`Plans`]: plans of earlier calls, the least recently used of which go first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::{Key, Plan};
use warpsmith_core::error::Result;

/// How many plans a device keeps unless it is told otherwise.
const DEFAULT_MAX: usize = 1024;

/// The plans of a device.
#[derive(Debug)]
pub(crate) struct Plans(Mutex<Lru<Key, Arc<Plan>>>);

impl Default for Plans {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(DEFAULT_MAX)))
    }
}

impl Plans {
    fn lock(&self) -> MutexGuard<'_, Lru<Key, Arc<Plan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is one; asking is no use of it.
    pub fn has(&self, key: &Key) -> bool {
        self.lock().entries.contains_key(key)
    }

    /// The plan for a key. `make` is called without the lock: two threads may both make one.
    pub fn get_or_make(&self, key: &Key, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
        if let Some(plan) = self.lock().get(key) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(make()?);
        let evicted = self.lock().insert(key.clone(), Arc::clone(&plan));
        drop(evicted);
        Ok(plan)
    }
}

/// The plans that a device keeps for [`matmul`](super::matmul): what the heuristics, or a timed search, chose for each
/// shape.
#[derive(Debug, Clone, Copy)]
pub struct PlanCache<'a>(&'a Plans);

impl<'a> PlanCache<'a> {
    pub(super) fn new(plans: &'a Plans) -> Self {
        Self(plans)
    }

    /// The number of plans.
    pub fn size(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// The most plans that are kept: 1024 by default.
    pub fn max_size(&self) -> usize {
        self.0.lock().max
    }

    /// Keeps at most as many. 0 keeps none.
    pub fn set_max_size(&self, max: usize) {
        let evicted = self.0.lock().set_max(max);
        drop(evicted);
    }

    /// Forgets all.
    pub fn clear(&self) {
        let entries = std::mem::take(&mut self.0.lock().entries);
        drop(entries);
    }

    /// How many calls found their plan, and how many did not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let plans = self.0.lock();
        (plans.hits, plans.misses)
    }
}

/// A map that forgets what was not used for longest.
#[derive(Debug)]
struct Lru<K, V> {
    /// With the time of the last use.
    entries: HashMap<K, (V, u64)>,
    max: usize,
    time: u64,
    hits: u64,
    misses: u64,
}

impl<K: std::hash::Hash + Eq + Clone, V> Lru<K, V> {
    fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), max, time: 0, hits: 0, misses: 0 }
    }

    fn get(&mut self, key: &K) -> Option<&V> {
        self.time += 1;
        match self.entries.get_mut(key) {
            Some((value, used)) => {
                *used = self.time;
                self.hits += 1;
                Some(value)
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Gives what has to go.
    fn insert(&mut self, key: K, value: V) -> Vec<V> {
        self.time += 1;
        let replaced = self.entries.insert(key, (value, self.time)).map(|(value, _)| value);
        let mut gone = self.evict();
        gone.extend(replaced);
        gone
    }

    fn set_max(&mut self, max: usize) -> Vec<V> {
        self.max = max;
        self.evict()
    }

    fn evict(&mut self) -> Vec<V> {
        let mut gone = Vec::new();
        while self.entries.len() > self.max {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            gone.extend(oldest.and_then(|key| self.entries.remove(&key)).map(|(value, _)| value));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_go_first() {
        let mut lru = Lru::new(2);
        assert!(lru.insert("a", 1).is_empty() && lru.insert("b", 2).is_empty());
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.insert("c", 3), [2]);
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.get(&"b"), None);
        assert_eq!(lru.set_max(1), [3]);
        assert_eq!(lru.insert("a", 4), [1]);
        assert_eq!((lru.hits, lru.misses), (2, 1));
    }

    #[test]
    fn a_cache_of_none_keeps_none() {
        let mut lru = Lru::new(0);
        assert_eq!(lru.insert("a", 1), [1]);
        assert!(lru.get(&"a").is_none());
    }
}
