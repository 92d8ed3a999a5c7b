//! [`Device::extension`]: per-device state that other crates store.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use super::Device;
use crate::driver::{Context, Driver};

/// Values keyed by type. No value is removed or replaced before [`Extensions::close`].
#[derive(Default)]
pub(super) struct Extensions(RwLock<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Extensions {
    fn find<T: Any>(&self) -> Option<NonNull<T>> {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.get(&TypeId::of::<T>())?.downcast_ref::<T>().map(NonNull::from)
    }

    /// Adds a value, which the caller created without holding the lock. If a value of this type already exists, keeps
    /// it and returns the rejected value too.
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

    /// Drops all values. All streams must have finished their work.
    pub fn close(&mut self, driver: &dyn Driver, context: Context) {
        drop_bound(std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)), driver, context);
    }
}

/// Drops a value while the context is current, so that its destructor can call CUDA libraries. If the device is
/// unusable, the value is leaked instead.
fn drop_bound<T>(value: T, driver: &dyn Driver, context: Context) {
    match driver.bind(context) {
        Ok(_calls) => drop(value),
        Err(_) => std::mem::forget(value),
    }
}

impl Device {
    /// Returns the device's value of type `T`, which is created on first use and dropped with the device.
    ///
    /// This is how other crates store per-device state; `T` must be a type of the calling crate. `make` may use the
    /// device and its other extensions. If several threads race on the first use, each may call `make`, but only one
    /// value is kept. A value that contains a [`Device`] handle to the same device would keep the device open forever;
    /// store a [`WeakDevice`](crate::extension::WeakDevice) instead.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use warpsmith_runtime::Device;
    ///
    /// #[derive(Default)]
    /// struct Calls(AtomicU32);
    ///
    /// let device = Device::emulated(0)?;
    /// for before in 0..3 {
    ///     let calls = device.extension(Calls::default);
    ///     assert_eq!(calls.0.fetch_add(1, Ordering::Relaxed), before);
    /// }
    /// # Ok::<(), warpsmith_runtime::Error>(())
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
        // SAFETY: the value is boxed, so it does not move when the map grows. It is not dropped until the device is
        // closed, which happens only after the last handle is dropped.
        unsafe { value.as_ref() }
    }
}
