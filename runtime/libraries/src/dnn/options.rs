//! [`Options`]: how convolutions are computed, and the state that a device keeps: handles, plans and choices of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Cache;
use super::descriptor::RawHandle;
use super::geometry::Key;
use super::plan::Plan;
use crate::handles::{HandlePool, LibraryHandle};
use warpsmith_core::device::Device;
use warpsmith_core::driver::StreamHandle;
use warpsmith_core::error::Result;

/// How convolutions are computed. PyTorch's names are those of `torch.backends.cudnn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether products of `f32` may be of numbers rounded to TF32, which is several times as fast (PyTorch:
    /// `allow_tf32`). On by default. Off: only engines that keep all 24 bits.
    pub allow_tf32: bool,
    /// Whether the same call must give the same bits each time (PyTorch: `deterministic`). Off by default.
    pub deterministic: bool,
    /// Whether the plans that the heuristics suggest are timed when a geometry is first met, and the fastest kept
    /// (PyTorch: `benchmark`). It waits for the stream. Off by default, and while a graph is captured.
    pub benchmark: bool,
    /// How many plans are timed, 0 for all (PyTorch: `benchmark_limit`). 10 by default.
    pub benchmark_limit: u32,
    /// The most workspace of a call in bytes; `None` (the default): what there is.
    pub workspace_limit: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_tf32: true,
            deterministic: false,
            benchmark: false,
            benchmark_limit: 10,
            workspace_limit: None,
        }
    }
}

/// What the cache of plans has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanCache {
    /// Geometries whose plan is known.
    pub len: usize,
    /// The most that are kept.
    pub limit: usize,
    /// Calls whose plan was there.
    pub hits: u64,
    /// Calls for which one was looked for.
    pub misses: u64,
}

/// The options of calls that bring none of their own.
pub fn options(device: &Device) -> Options {
    *State::of(device).options()
}

/// Sets the options of calls that bring none of their own.
pub fn set_options(device: &Device, options: Options) {
    *State::of(device).options() = options;
}

/// What the device's cache of plans has done so far.
pub fn plan_cache(device: &Device) -> PlanCache {
    let state = State::of(device);
    PlanCache {
        len: state.choices().len(),
        limit: state.limit(),
        hits: state.hits.load(Ordering::Relaxed),
        misses: state.misses.load(Ordering::Relaxed),
    }
}

/// Forgets all plans of the device, and begins to count anew. A handle drops its plans when it is used next.
pub fn clear_plan_cache(device: &Device) {
    let state = State::of(device);
    state.choices().clear();
    state.generation.fetch_add(1, Ordering::Relaxed);
    state.hits.store(0, Ordering::Relaxed);
    state.misses.store(0, Ordering::Relaxed);
}

/// Sets for how many geometries it is kept which plan was chosen, 10 000 by default. With 0, plans are looked for at every
/// call.
///
/// The plans themselves are kept ready by cuDNN's handles, of which there is one for each call that is underway at once:
/// each keeps those that it used last, at most 1024 and no more than the limit. One that it no longer has is made again
/// as it was chosen. A handle drops what is over a smaller limit when it is used next.
pub fn set_plan_cache_limit(device: &Device, limit: usize) {
    let state = State::of(device);
    state.limit.store(limit, Ordering::Relaxed);
    state.choices().trim(limit);
    state.generation.fetch_add(1, Ordering::Relaxed);
}

/// The most plans that a handle keeps ready: they have memory of the host's and code on the device.
const MOST_OF_HANDLE: usize = 1024;

/// What a device keeps for this module.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) handles: HandlePool<Handle>,
    /// Which of the plans that the heuristics suggest was taken.
    choices: Mutex<Cache<Key, usize>>,
    options: Mutex<Options>,
    limit: AtomicUsize,
    /// Counts when the caches were emptied.
    generation: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            handles: HandlePool::default(),
            choices: Mutex::default(),
            options: Mutex::default(),
            limit: AtomicUsize::new(10_000),
            generation: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }
}

impl State {
    /// That of a device.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn choices(&self) -> MutexGuard<'_, Cache<Key, usize>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many plans each handle keeps ready.
    pub(super) fn limit_of_handle(&self) -> usize {
        self.limit().min(MOST_OF_HANDLE)
    }

    /// Empties a handle's cache when the caches were emptied since it was last used.
    pub(super) fn refresh(&self, handle: &mut Handle) {
        let generation = self.generation.load(Ordering::Relaxed);
        if handle.generation != generation {
            handle.plans.clear();
            handle.generation = generation;
        }
    }
}

/// A handle with its plans: cuDNN does not promise that a plan may be used by two threads at once, or with another handle.
#[derive(Debug)]
pub(super) struct Handle {
    /// Before the handle, which they need.
    pub plans: Cache<Key, Arc<Plan>>,
    pub raw: RawHandle,
    generation: u64,
}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        Ok(Self { plans: Cache::default(), raw: RawHandle::create()?, generation: 0 })
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        self.raw.set_stream(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_as_many_plans_as_the_limit_says_and_at_most_1024() {
        let state = State::default();
        assert_eq!((state.limit(), state.limit_of_handle()), (10_000, 1024));
        state.limit.store(5, Ordering::Relaxed);
        assert_eq!((state.limit(), state.limit_of_handle()), (5, 5));
    }
}
