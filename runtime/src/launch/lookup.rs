//! [`Launches`]: the launch policy of a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::policy::{LaunchPolicy, OpenLaunch, Winner};
use super::shape::Shape;
use super::{Function, Launch, store};
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver};

/// Launch policy of a device.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// Incremented by every change that can change the configuration of a launch.
    generation: Arc<AtomicU64>,
    /// The launch policy; `None` until it is first needed.
    policy: RwLock<Option<Arc<dyn LaunchPolicy>>>,
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

    fn policy(&self, device: &Device) -> Arc<dyn LaunchPolicy> {
        if let Some(policy) = &*self.policy.read().unwrap_or_else(PoisonError::into_inner) {
            return policy.clone();
        }
        let new = store::policy(device);
        new.watch(&self.generation);
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        // The loser of a race drops its policy without holding the lock.
        Arc::clone(policy.get_or_insert_with(|| Arc::clone(&new)))
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
        self.policy(function.device()).find(&OpenLaunch {
            device: function.device().properties(),
            package: spec.package,
            symbol: spec.symbol,
            image: function.image_hash(),
            is_loop,
            n: n as u64,
        })
    }
}

impl Device {
    /// Returns the device's launch policy.
    pub fn launch_policy(&self) -> Arc<dyn LaunchPolicy> {
        self.part::<Launches>().policy(self)
    }

    /// Replaces the device's policy. Subsequent launches use the new one.
    pub fn set_launch_policy(&self, policy: Arc<dyn LaunchPolicy>) {
        let launches = self.part::<Launches>();
        policy.watch(&launches.generation);
        let before = launches.policy.write().unwrap_or_else(PoisonError::into_inner).replace(policy);
        // The lock is released first, because dropping the policy may run user code.
        drop(before);
        launches.generation.fetch_add(1, Ordering::AcqRel);
    }
}
