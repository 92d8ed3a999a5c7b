//! [`Options`]: how convolutions are computed, and the state that a device keeps: handles, plans and choices of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::descriptor::RawHandle;
use super::geometry::Key;
use super::plan::Plan;
use crate::handles::{HandlePool, LibraryHandle};
use crate::lru::{Kept, Lru, PlanCache};
use crate::on_device::OnDevice;
use warpsmith_runtime::device::Device;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::error::Result;

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
    /// The number of plans that are timed, 0 for all (PyTorch: `benchmark_limit`). 10 by default.
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

/// The options of calls that bring none of their own.
pub fn options(device: &Device) -> Options {
    *State::of(device).options()
}

/// Sets the options of calls that bring none of their own.
pub fn set_options(device: &Device, options: Options) {
    *State::of(device).options() = options;
}

/// The device's cache of plans: for how many geometries it is kept which plan was chosen.
///
/// The plans themselves are kept ready by cuDNN's handles, of which there is one for each call that is active at once:
/// each keeps those that it used last, at most 1024 and no more than the cache's limit. One that was evicted is made again
/// as it was chosen. A handle drops what is too much when it is used next.
pub fn plan_cache(device: &Device) -> PlanCache<'_> {
    PlanCache(State::of(device))
}

impl Kept for State {
    fn sizes(&self) -> (usize, usize) {
        let choices = self.choices();
        (choices.len(), choices.max())
    }

    fn set_max_size(&self, max: usize) {
        self.choices().set_max(max);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.choices().clear();
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

/// The most plans that a handle keeps ready: they have memory of the host's and code on the device.
const MOST_OF_HANDLE: usize = 1024;

/// A device's state for this module.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) handles: HandlePool<Handle>,
    /// Which of the plans that the heuristics suggest was taken.
    choices: Mutex<Lru<Key, usize>>,
    options: Mutex<Options>,
    /// Counts when the caches were emptied.
    generation: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            handles: HandlePool::default(),
            choices: Mutex::new(Lru::new(10_000)),
            options: Mutex::default(),
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

    pub(super) fn choices(&self) -> MutexGuard<'_, Lru<Key, usize>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties a handle's cache when the caches were emptied since it was last used.
    pub(super) fn refresh(&self, handle: &mut Handle) {
        let generation = self.generation.load(Ordering::Relaxed);
        if handle.generation != generation {
            handle.plans = Lru::new(self.choices().max().min(MOST_OF_HANDLE));
            handle.generation = generation;
        }
    }
}

/// A handle with its plans: cuDNN does not promise that a plan may be used by two threads at once, or with another handle.
#[derive(Debug)]
pub(super) struct Handle {
    /// Before the handle, which they need.
    pub plans: Lru<Key, Arc<OnDevice<Plan>>>,
    pub raw: RawHandle,
    generation: u64,
}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        Ok(Self { plans: Lru::new(MOST_OF_HANDLE), raw: RawHandle::create()?, generation: 0 })
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        self.raw.set_stream(stream)
    }
}
