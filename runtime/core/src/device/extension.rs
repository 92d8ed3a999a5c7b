//! [`Device::extension`]: what other crates keep with a device.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::Device;
use crate::driver::{Context, Driver};

/// Values by their type. None is removed or replaced before [`Extensions::close`].
#[derive(Default)]
pub(super) struct Extensions(RwLock<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Drops all of them with the context current, so that they may call the driver's libraries. The work of all streams
    /// was waited for. On a device that cannot be used any more they are leaked instead.
    pub fn close(&mut self, driver: &dyn Driver, context: Context) {
        let values = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        match driver.bind(context) {
            Ok(_calls) => drop(values),
            Err(_) => std::mem::forget(values),
        }
    }
}

impl Device {
    /// The value of type `T` that belongs to the device, made at its first use, and dropped with the device.
    ///
    /// For crates that keep something for each device: `T` is a type of their own. `make` must not ask for an extension
    /// itself, and a value that holds the device keeps it alive for good.
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
        let kind = TypeId::of::<T>();
        let find = |values: &HashMap<TypeId, Box<dyn Any + Send + Sync>>| {
            values.get(&kind).and_then(|value| value.downcast_ref::<T>()).map(std::ptr::from_ref)
        };
        let known = find(&self.0.extensions.0.read().unwrap_or_else(PoisonError::into_inner));
        let value = known.or_else(|| {
            let mut values = self.0.extensions.0.write().unwrap_or_else(PoisonError::into_inner);
            values.entry(kind).or_insert_with(|| Box::new(make()));
            find(&values)
        });
        let Some(value) = value else { unreachable!("values are by their type") };
        // SAFETY: the value is boxed, so a growing map does not move it, and it stays until the device is closed, which
        // needs the last handle.
        unsafe { &*value }
    }
}
