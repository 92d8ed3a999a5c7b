//! [`Parts`]: per-device state of other modules, on whose types `device` does not depend.

use std::any::{Any, TypeId};

use super::{Device, EventPool};
use crate::driver::{Context, Driver};

const PARTS: usize = 6;

/// The state that a module keeps with each device.
pub(crate) trait Part: Any + Send + Sync {
    /// Index of the part, which must be less than 6 and unique to the type. Parts are closed in this order.
    const PLACE: usize;

    /// Called when the device is found to be lost, possibly more than once. Must not block, because the detecting
    /// thread may hold other modules' locks.
    fn lost(&self, _device: &Device) {}

    /// Frees the part's driver resources. All work on the device has finished, and parts with smaller indices are
    /// already closed.
    fn close(&mut self, driver: &dyn Driver, context: Context, events: &EventPool);
}

/// The parts of a device, each at its index.
pub(crate) struct Parts([Option<Entry>; PARTS]);

struct Entry {
    kind: TypeId,
    part: Box<dyn Erased>,
}

/// [`Part`] without its associated constant, so that the trait is dyn-compatible.
trait Erased: Send + Sync {
    fn lost(&self, device: &Device);
    fn close(&mut self, driver: &dyn Driver, context: Context, events: &EventPool);
}

impl<P: Part> Erased for P {
    fn lost(&self, device: &Device) {
        Part::lost(self, device);
    }

    fn close(&mut self, driver: &dyn Driver, context: Context, events: &EventPool) {
        Part::close(self, driver, context, events);
    }
}

impl Parts {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self([const { None }; PARTS])
    }

    /// Adds a part.
    pub fn with<P: Part>(mut self, part: P) -> Self {
        self.0[P::PLACE] = Some(Entry { kind: TypeId::of::<P>(), part: Box::new(part) });
        self
    }

    /// Returns the part of this type. Every device contains all parts.
    #[inline]
    pub fn get<P: Part>(&self) -> &P {
        match &self.0[P::PLACE] {
            Some(Entry { kind, part }) if *kind == TypeId::of::<P>() => {
                // SAFETY: the entry was created from a `P`.
                unsafe { &*std::ptr::from_ref::<dyn Erased>(&**part).cast::<P>() }
            }
            _ => unreachable!("a device is assembled with every part in its place"),
        }
    }

    /// Notifies all parts that the device is lost.
    pub fn lost(&self, device: &Device) {
        self.0.iter().flatten().for_each(|entry| entry.part.lost(device));
    }

    /// Closes all parts.
    pub fn close(&mut self, driver: &dyn Driver, context: Context, events: &EventPool) {
        self.0.iter_mut().flatten().for_each(|entry| entry.part.close(driver, context, events));
    }
}
