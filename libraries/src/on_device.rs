//! [`OnDevice`]: library plans that need the device's context when they are dropped.

use std::ops::Deref;

use warpsmith_runtime::device::Device;
use warpsmith_runtime::extension::{WeakDevice, drop_elsewhere, in_host_function};

/// A library's state on a device. It can be dropped on any thread; dropping it makes the device's context current. The
/// state does not keep the device alive, because the device may own the state as an extension.
#[derive(Debug)]
pub(crate) struct OnDevice<T: Send + 'static> {
    /// The state, which is present until this value is dropped.
    value: Option<T>,
    device: WeakDevice,
}

impl<T: Send> OnDevice<T> {
    pub fn new(device: &Device, value: T) -> Self {
        Self { value: Some(value), device: device.downgrade() }
    }
}

impl<T: Send> Deref for OnDevice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let Some(value) = &self.value else { unreachable!("it is there until it is dropped") };
        value
    }
}

impl<T: Send> Drop for OnDevice<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        // If the upgrade fails, the device is being closed and has already made its context current.
        let Some(device) = self.device.upgrade() else { return drop(value) };
        if in_host_function() && !device.is_forked() {
            // The value is dropped first, before the device.
            return drop_elsewhere(Box::new((Self { value, device: self.device.clone() }, device)));
        }
        match device.bind() {
            Ok(_calls) => drop(value),
            // After a fork, the device belongs to the other process, and so does the library's state on the device.
            Err(_) => std::mem::forget(value),
        }
    }
}
