//! [`Device::extension`]: what other crates keep with a device.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Device;

/// Values by their type.
#[derive(Default)]
pub(super) struct Extensions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Device {
    /// The value of type `T` that belongs to the device, made when it is first asked for, and dropped with the device.
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
    pub fn extension<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut values = self.0.extensions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(make()));
        let Ok(value) = Arc::clone(value).downcast() else { unreachable!("values are by their type") };
        value
    }
}
