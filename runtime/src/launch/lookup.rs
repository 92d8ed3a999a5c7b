//! [`Launches`]: the launch store of a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::policy::{OpenLaunch, Winner};
use super::shape::Shape;
use super::store::LaunchStore;
use super::{Function, Launch, store};
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver};

/// Launch store of a device.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// Incremented by every change that can change the configuration of a launch.
    generation: Arc<AtomicU64>,
    /// The store; `None` until it is first needed.
    store: RwLock<Option<LaunchStore>>,
}

impl Part for Launches {
    const PLACE: usize = 3;

    fn close(&mut self, _: &dyn Driver, _: Context, _: &EventPool) {}
}

impl Launches {
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn store(&self, device: &Device) -> LaunchStore {
        if let Some(store) = &*self.store.read().unwrap_or_else(PoisonError::into_inner) {
            return store.clone();
        }
        let new = store::default_of(device);
        new.watch(&self.generation);
        self.store.write().unwrap_or_else(PoisonError::into_inner).get_or_insert(new).clone()
    }

    /// Returns the fastest known block and grid size for this launch; `None` if unknown, or if the launch specifies
    /// either.
    pub(super) fn winner(&self, function: &Function, launch: &Launch) -> Option<Winner> {
        let (n, is_loop) = match launch.shape {
            Shape::Linear { threads, block: None } | Shape::Occupancy { threads } => (threads, false),
            Shape::Bandwidth { items, .. } => (items, true),
            Shape::Linear { .. } | Shape::Cover { .. } | Shape::Tiles { .. } | Shape::Explicit { .. } => {
                return None;
            }
        };
        let spec = function.spec();
        let is_plain = !spec.cooperative && spec.block.is_none() && spec.cluster.is_none();
        if !launch.is_open() || !is_plain {
            return None;
        }
        self.store(function.device()).find(&OpenLaunch {
            device: function.device().properties(),
            package: spec.package,
            symbol: spec.symbol,
            image: function.image_hash(),
            is_loop,
            n: n as u64,
        })
    }
}

impl LaunchStore {
    /// Returns the store of a device: the [installed](Self::install) store, if any. Otherwise, a CUDA device uses the
    /// user's file, and an emulated device an in-memory store, because its times are CPU times.
    pub fn of(device: &Device) -> Self {
        device.part::<Launches>().store(device)
    }

    /// Makes later launches on a device use this store.
    pub fn install(&self, device: &Device) {
        let launches = device.part::<Launches>();
        self.watch(&launches.generation);
        *launches.store.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
        launches.generation.fetch_add(1, Ordering::AcqRel);
    }
}
