//! [`Parts`]: what the modules above this one keep with each device, without this one knowing their types.

use std::any::{Any, TypeId};

use super::{Device, EventPool};
use crate::driver::{Context, Driver};

/// The number of parts.
const PARTS: usize = 6;

/// The state that a module keeps with each device.
pub(crate) trait Part: Any + Send + Sync {
    /// Its place among the parts, below 6: another for each type. Parts are closed in this order.
    const PLACE: usize;

    /// Called when the device is found to be lost, by the thread that found out, whatever locks of other modules it
    /// holds; perhaps more than once. It must not wait.
    fn lost(&self, _device: &Device) {}

    /// Frees what it has of the driver. The device's work was waited for, and nothing else of the device is left but parts
    /// in later places.
    fn close(&mut self, driver: &dyn Driver, context: Context, events: &EventPool);
}

/// The parts of a device, each in its place.
pub(crate) struct Parts([Option<Entry>; PARTS]);

struct Entry {
    kind: TypeId,
    part: Box<dyn Erased>,
}

/// [`Part`] without its constant.
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
    /// None yet.
    pub fn new() -> Self {
        Self([const { None }; PARTS])
    }

    /// With another part.
    pub fn with<P: Part>(mut self, part: P) -> Self {
        self.0[P::PLACE] = Some(Entry { kind: TypeId::of::<P>(), part: Box::new(part) });
        self
    }

    /// The part of this type. Every device has each.
    #[inline]
    pub fn get<P: Part>(&self) -> &P {
        match &self.0[P::PLACE] {
            Some(Entry { kind, part }) if *kind == TypeId::of::<P>() => {
                // SAFETY: the entry was made of a `P`.
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
