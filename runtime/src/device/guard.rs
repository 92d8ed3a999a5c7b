//! The thread's current device, and guards that set it for a while.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Device;
use crate::error::Result;

thread_local! {
    static CURRENT: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// Makes a device the thread's current one until it is dropped; then the one before is current again.
///
/// Guards belong to their thread and are dropped in reverse order of their making, as scopes do by themselves.
#[must_use = "the device is current only while the guard lives"]
#[derive(Debug)]
pub struct DeviceGuard {
    previous: Option<Device>,
    /// Not `Send`: it restores this thread's device.
    thread: PhantomData<*const ()>,
}

impl Device {
    /// Makes this the thread's current device while the guard lives.
    pub fn guard(&self) -> DeviceGuard {
        let previous = CURRENT.with_borrow_mut(|current| current.replace(self.clone()));
        DeviceGuard { previous, thread: PhantomData }
    }

    /// The thread's current device: of the innermost [`Device::guard`], else [`Device::best`].
    ///
    /// # Errors
    /// As [`Device::best`].
    pub fn current() -> Result<Self> {
        match CURRENT.with_borrow(Clone::clone) {
            Some(device) => Ok(device),
            None => Self::best(),
        }
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        let previous = self.previous.take();
        // While a thread ends its locals may be gone already; then there is nothing to restore.
        let replaced = CURRENT
            .try_with(|current| current.try_borrow_mut().map(|mut c| std::mem::replace(&mut *c, previous)));
        drop(replaced);
    }
}
