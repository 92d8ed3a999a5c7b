//! [`PlanCache`]: a device's cached plans for one library, with LRU eviction.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A device's cached plans for [`blas::matmul`](crate::blas::matmul), for the convolutions of [`dnn`](crate::dnn), or
/// for [`fft`](crate::fft). A plan contains the state selected or computed for one shape.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_libraries::fft;
///
/// let device = Device::emulated(0)?;
/// let cache = fft::plan_cache(&device);
/// cache.set_max_size(32);
/// println!("{} of at most {} plans", cache.size(), cache.max_size());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PlanCache<'a>(pub(crate) &'a dyn Kept);

impl PlanCache<'_> {
    /// Returns the number of cached plans.
    pub fn size(&self) -> usize {
        self.0.sizes().0
    }

    /// Returns the maximum number of plans. The defaults are 1024 for `blas`, 4096 for `fft` and 10 000 for `dnn`.
    pub fn max_size(&self) -> usize {
        self.0.sizes().1
    }

    /// Sets the maximum number of cached plans. If the maximum is 0, each call creates its own plan.
    pub fn set_max_size(&self, max: usize) {
        self.0.set_max_size(max);
    }

    /// Drops all plans. Plans that are in use by calls or graphs stay alive.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Returns the numbers of cache hits and misses since the device was opened.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.0.hits_and_misses()
    }
}

/// A cache of plans.
pub(crate) trait Kept: fmt::Debug + Sync {
    /// Returns the current size and the maximum size.
    fn sizes(&self) -> (usize, usize);
    fn set_max_size(&self, max: usize);
    fn clear(&self);
    fn hits_and_misses(&self) -> (u64, u64);
}

#[cfg(feature = "blas")]
mod plans {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use super::*;
    use warpsmith_runtime::error::Result;

    /// Thread-safe cache of plans.
    pub(crate) struct Plans<K, P>(Mutex<Counted<K, P>>);

    struct Counted<K, P> {
        plans: Lru<K, Arc<P>>,
        hits: u64,
        misses: u64,
    }

    impl<K: Eq + Hash + Clone, P> Plans<K, P> {
        pub fn new(max: usize) -> Self {
            Self(Mutex::new(Counted { plans: Lru::new(max), hits: 0, misses: 0 }))
        }

        fn lock(&self) -> MutexGuard<'_, Counted<K, P>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Returns true if the cache contains a plan for the key. The query does not count as a use of the plan.
        pub fn has(&self, key: &K) -> bool {
            self.lock().plans.entries.contains_key(key)
        }

        /// Returns the plan for a key, or creates it with `make` if it is missing. `make` is called without holding the
        /// lock, so two threads may each create a plan, but only one plan is kept.
        pub fn get_or_make(&self, key: &K, make: impl FnOnce() -> Result<P>) -> Result<Arc<P>> {
            let mut cache = self.lock();
            if let Some(plan) = cache.plans.get(key).cloned() {
                cache.hits += 1;
                return Ok(plan);
            }
            cache.misses += 1;
            drop(cache);
            let plan = Arc::new(make()?);
            let mut cache = self.lock();
            if let Some(kept) = cache.plans.get(key).cloned() {
                drop(cache);
                return Ok(kept);
            }
            let evicted = cache.plans.insert(key.clone(), Arc::clone(&plan));
            drop(cache);
            drop(evicted);
            Ok(plan)
        }
    }

    impl<K, P> fmt::Debug for Plans<K, P> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).plans.fmt(f)
        }
    }

    impl<K: Eq + Hash + Clone + Send, P: Send + Sync> Kept for Plans<K, P> {
        fn sizes(&self) -> (usize, usize) {
            let cache = self.lock();
            (cache.plans.len(), cache.plans.max())
        }

        fn set_max_size(&self, max: usize) {
            let evicted = self.lock().plans.set_max(max);
            drop(evicted);
        }

        fn clear(&self) {
            let evicted = self.lock().plans.clear();
            drop(evicted);
        }

        fn hits_and_misses(&self) -> (u64, u64) {
            let cache = self.lock();
            (cache.hits, cache.misses)
        }
    }
}
#[cfg(feature = "blas")]
pub(crate) use self::plans::Plans;

/// A map that evicts the least recently used entries.
pub(crate) struct Lru<K, V> {
    /// The values, each with the time of its last use.
    entries: HashMap<K, (u64, V), BuildHasherDefault<Words>>,
    max: usize,
    now: u64,
}

impl<K, V> fmt::Debug for Lru<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} entries", self.entries.len(), self.max)
    }
}

/// Some methods return evicted values. Callers must drop these values while they hold no lock.
impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    pub fn new(max: usize) -> Self {
        Self { entries: HashMap::default(), max, now: 0 }
    }

    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.now += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.now;
        Some(value)
    }

    pub fn insert(&mut self, key: K, value: V) -> Vec<V> {
        self.now += 1;
        let replaced = self.entries.insert(key, (self.now, value));
        let mut evicted = self.evict();
        evicted.extend(replaced.map(|(_, value)| value));
        evicted
    }

    pub fn set_max(&mut self, max: usize) -> Vec<V> {
        self.max = max;
        self.evict()
    }

    pub fn clear(&mut self) -> Vec<V> {
        std::mem::take(&mut self.entries).into_values().map(|(_, value)| value).collect()
    }

    #[cfg(any(feature = "blas", feature = "dnn"))]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(any(feature = "blas", feature = "dnn"))]
    pub fn max(&self) -> usize {
        self.max
    }

    fn evict(&mut self) -> Vec<V> {
        let mut evicted = Vec::new();
        while self.entries.len() > self.max {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            evicted.extend(oldest.and_then(|key| self.entries.remove(&key)).map(|(_, value)| value));
        }
        evicted
    }
}

/// Hash function for the keys, which takes one rotation and one multiplication per word. It is several times as fast as
/// the standard library's. It need not resist hash flooding, because no adversary chooses the keys.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        // The map uses the lowest bits, which the multiplication mixes least.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_are_evicted() {
        let mut lru = Lru::new(2);
        assert!(lru.insert("a", 1).is_empty() && lru.insert("b", 2).is_empty());
        assert_eq!(lru.get(&"a"), Some(&mut 1));
        assert_eq!(lru.insert("c", 3), [2]);
        assert!(lru.get(&"a").is_some() && lru.get(&"b").is_none());
        assert_eq!(lru.set_max(1), [3]);
        assert_eq!((lru.insert("a", 4), lru.set_max(0)), (vec![1], vec![4]));
        assert_eq!(lru.insert("a", 5), [5], "with a limit of 0 nothing is kept");
    }

    #[test]
    fn keys_that_differ_in_one_word_hash_differently() {
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
