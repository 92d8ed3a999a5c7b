//! [`PlanCache`]: the plans of a device, the least recently used of which go when there are too many.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Plan;
use super::shape::Key;
use crate::hash::Words;
use warpsmith_core::device::Device;
use warpsmith_core::error::Result;

/// How many plans a device keeps if nobody says otherwise, as in PyTorch.
pub const DEFAULT_MAX_SIZE: usize = 4096;

/// The plan cache of a device: `torch.backends.cuda.cufft_plan_cache[device]`.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::library::fft;
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::emulated(0)?;
/// let cache = fft::plan_cache(&device);
/// cache.set_max_size(32);
/// println!("{} of at most {} plans", cache.size(), cache.max_size());
/// # cache.set_max_size(fft::DEFAULT_MAX_SIZE);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PlanCache<'a> {
    state: &'a State,
}

/// The plan cache of a device.
pub fn plan_cache(device: &Device) -> PlanCache<'_> {
    PlanCache { state: State::of(device) }
}

impl PlanCache<'_> {
    /// How many plans it has.
    pub fn size(&self) -> usize {
        self.state.lock().plans.len()
    }

    /// How many it may have: 4096 at first.
    pub fn max_size(&self) -> usize {
        self.state.lock().max_size
    }

    /// Changes how many it may have. Of more than that, the least recently used go; 0 keeps none, and each call makes a
    /// plan of its own.
    pub fn set_max_size(&self, max_size: usize) {
        let mut cache = self.state.lock();
        cache.max_size = max_size;
        let gone = cache.shrink();
        drop(cache);
        drop(gone);
    }

    /// Drops all plans. Those that calls or graphs use live on.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut self.state.lock().plans);
        drop(gone);
    }

    /// How often a plan was found, and how often it had to be made, since the device was opened.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let cache = self.state.lock();
        (cache.hits, cache.misses)
    }
}

/// What a device keeps for its transforms.
#[derive(Debug, Default)]
pub(crate) struct State(Mutex<Cache>);

#[derive(Debug)]
struct Cache {
    plans: HashMap<Key, Entry, BuildHasherDefault<Words>>,
    max_size: usize,
    /// Counts look-ups.
    now: u64,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<Plan>,
    used: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { plans: HashMap::default(), max_size: DEFAULT_MAX_SIZE, now: 0, hits: 0, misses: 0 }
    }
}

impl State {
    /// That of a device.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan for a key, found or made.
    pub(super) fn plan(&self, device: &Device, operation: &'static str, key: Key) -> Result<Arc<Plan>> {
        let mut cache = self.lock();
        cache.now += 1;
        let now = cache.now;
        if let Some(entry) = cache.plans.get_mut(&key) {
            entry.used = now;
            let plan = Arc::clone(&entry.plan);
            cache.hits += 1;
            return Ok(plan);
        }
        cache.misses += 1;
        drop(cache);
        // Without the lock: it takes milliseconds.
        let plan = Arc::new(Plan::new(device, operation, key)?);
        let mut cache = self.lock();
        if cache.max_size == 0 {
            return Ok(plan);
        }
        cache.now += 1;
        let now = cache.now;
        let entry = cache.plans.entry(key).or_insert_with(|| Entry { plan: Arc::clone(&plan), used: now });
        // Another thread may have been faster.
        entry.used = now;
        let kept = Arc::clone(&entry.plan);
        let gone = cache.shrink();
        drop(cache);
        drop((gone, plan));
        Ok(kept)
    }
}

impl Cache {
    /// Takes out what is too much, to be dropped without the lock.
    fn shrink(&mut self) -> Vec<Entry> {
        let surplus = self.plans.len().saturating_sub(self.max_size);
        if surplus == 0 {
            return Vec::new();
        }
        if surplus == self.plans.len() {
            return std::mem::take(&mut self.plans).into_values().collect();
        }
        let mut by_age: Vec<(u64, Key)> = self.plans.iter().map(|(key, entry)| (entry.used, *key)).collect();
        by_age.select_nth_unstable_by_key(surplus - 1, |(used, _)| *used);
        by_age[..surplus].iter().filter_map(|(_, key)| self.plans.remove(key)).collect()
    }
}
