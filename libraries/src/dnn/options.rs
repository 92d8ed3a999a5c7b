//! [`Options`]: computation options for convolutions, and the per-device state (handles, plans and cached choices).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::descriptor::RawHandle;
use super::geometry::Key;
use super::plan::Plan;
use crate::handles::{HandlePool, LibraryHandle};
use crate::lru::{Kept, Lru, PlanCache};
use crate::on_device::OnDevice;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Device, Result};

/// Computation options for convolutions. The PyTorch names below are in `torch.backends.cudnn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// True if `f32` inputs may be rounded to TF32, which makes convolutions several times as fast (PyTorch:
    /// `allow_tf32`). The default is on. If the option is off, only engines that keep all 24 mantissa bits are used.
    pub allow_tf32: bool,
    /// True if repeating a call must give bit-identical results (PyTorch: `deterministic`). The default is off.
    pub deterministic: bool,
    /// True if the heuristics' plans are timed on the first use of a geometry and the fastest plan is kept (PyTorch:
    /// `benchmark`). The timing waits for the stream. The option is off by default, and ignored during graph capture.
    pub benchmark: bool,
    /// Maximum number of plans to time, or 0 to time all of them (PyTorch: `benchmark_limit`). The default is 10.
    pub benchmark_limit: u32,
    /// Maximum workspace per call, in bytes. With `None` (the default), only the available memory limits the workspace.
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

/// Returns the device's default options.
pub fn options(device: &Device) -> Options {
    *State::of(device).options()
}

/// Sets the device's default options, which apply to calls that do not pass their own.
pub fn set_options(device: &Device, options: Options) {
    *State::of(device).options() = options;
}

/// Returns the device's plan cache. The cache size is the number of geometries for which a choice of plan is cached.
///
/// Finalized plans are cached per cuDNN handle, and calls that run concurrently use different handles. Each handle
/// keeps its most recently used plans, up to 1024 and up to the limit of the cache. An evicted plan is rebuilt from the
/// cached choice. A handle evicts its surplus plans the next time it is used.
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

/// Maximum number of finalized plans per handle. The number is limited because plans occupy host memory and contain
/// device code.
const MAX_OF_HANDLE: usize = 1024;

/// State that this module keeps for a device.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) handles: HandlePool<Handle>,
    /// For each geometry, the index of the chosen plan among the plans that the heuristics suggest.
    choices: Mutex<Lru<Key, usize>>,
    options: Mutex<Options>,
    /// Counter, incremented whenever the caches are cleared.
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
    /// Returns the device's state.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn choices(&self) -> MutexGuard<'_, Lru<Key, usize>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears a handle's cache if the caches were cleared after its last use.
    pub(super) fn refresh(&self, handle: &mut Handle) {
        let generation = self.generation.load(Ordering::Relaxed);
        if handle.generation != generation {
            handle.plans = Lru::new(self.choices().max().min(MAX_OF_HANDLE));
            handle.generation = generation;
        }
    }
}

/// A handle and its plans. cuDNN does not guarantee that two threads may use a plan at the same time, or that a plan
/// may be used with a different handle.
#[derive(Debug)]
pub(super) struct Handle {
    /// The plans are declared before the handle so that they are dropped first, because dropping a plan requires the
    /// handle.
    pub plans: Lru<Key, Arc<OnDevice<Plan>>>,
    pub raw: RawHandle,
    generation: u64,
}

impl LibraryHandle for Handle {
    fn create() -> Result<Self> {
        Ok(Self { plans: Lru::new(MAX_OF_HANDLE), raw: RawHandle::create()?, generation: 0 })
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        self.raw.set_stream(stream)
    }
}
