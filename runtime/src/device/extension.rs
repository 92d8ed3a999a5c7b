//! [`Device::extension`]: what other crates keep with a device.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use super::Device;
use crate::driver::{Context, Driver};

/// Values by their type. None is removed or replaced before [`Extensions::close`].
#[derive(Default)]
pub(super) struct Extensions(RwLock<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Extensions {
    fn find<T: Any>(&self) -> Option<NonNull<T>> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.get(&TypeId::of::<T>())?.downcast_ref::<T>().map(NonNull::from)
    }

    /// Adds a value, which the caller made without the lock. If there is one of its type already, that stays, and the new
    /// one is returned with it.
    fn add<T: Any + Send + Sync>(&self, value: T) -> (NonNull<T>, Option<T>) {
        let mut surplus = None;
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = match values.entry(TypeId::of::<T>()) {
            Entry::Vacant(place) => place.insert(Box::new(value)),
            Entry::Occupied(known) => {
                surplus = Some(value);
                known.into_mut()
            }
        };
        let Some(known) = known.downcast_ref::<T>() else { unreachable!("values are by their type") };
        (NonNull::from(known), surplus)
    }

    /// Drops all of them. The work of all streams was waited for.
    pub fn close(&mut self, driver: &dyn Driver, context: Context) {
        drop_bound(std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)), driver, context);
    }
}

/// Drops a value with the context current, so that it may call the driver's libraries. On a device that cannot be used any
/// more it is leaked instead.
fn drop_bound<T>(value: T, driver: &dyn Driver, context: Context) {
    match driver.bind(context) {
        Ok(_calls) => drop(value),
        Err(_) => std::mem::forget(value),
    }
}

impl Device {
    /// The value of type `T` that belongs to the device, made at its first use, and dropped with the device.
    ///
    /// For crates that keep something for each device: `T` is a type of their own. `make` may use the device and its other
    /// extensions. Threads that ask first at the same time may each call theirs; one value stays, the others are dropped.
    /// A value that holds the device keeps it alive for good.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use warpsmith_runtime::Device;
    ///
    /// #[derive(Default)]
    /// struct Calls(AtomicU32);
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// for before in 0..3 {
    ///     let calls = device.extension(Calls::default);
    ///     assert_eq!(calls.0.fetch_add(1, Ordering::Relaxed), before);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn extension<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let extensions = &self.0.extensions;
        let value = extensions.find::<T>().unwrap_or_else(|| {
            let (value, surplus) = extensions.add(make());
            if let Some(surplus) = surplus {
                drop_bound(surplus, &*self.0.driver, self.0.context);
            }
            value
        });
        // SAFETY: the value is boxed, so a growing map does not move it, and it stays until the device is closed, which
        // needs the last handle.
        unsafe { value.as_ref() }
    }
}
