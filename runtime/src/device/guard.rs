//! The thread's current device, and guards that set it for a scope.
//!
//! Every thread has a current device. Guards nest. Each guard restores the device that was current when the guard was
//! created, even if [`Device::set_current`] was called in between. A thread that has not set a device uses
//! [`Device::best`], which is determined once per process and again only after that device is lost.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Device;

thread_local! {
    static CURRENT: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// Makes a device current on the thread. Dropping the guard restores the previous device.
///
/// Drop guards in reverse order of creation, which nested scopes do automatically.
///
/// See the example of [`Device::guard`].
#[must_use = "the device is current only while the guard lives"]
#[derive(Debug)]
pub struct DeviceGuard {
    previous: Option<Device>,
    /// Makes the guard `!Send`, because it restores this thread's device.
    thread: PhantomData<*const ()>,
}

/// Sets the thread's current device (`None` for [`Device::best`]) and returns the previous one. Does nothing once the
/// thread's local storage is destroyed at thread exit.
pub(crate) fn exchange(device: Option<Device>) -> Option<Device> {
    // Return the old value instead of dropping it during the borrow, because dropping a device may run arbitrary code.
    CURRENT.try_with(|current| current.replace(device)).ok().flatten()
}

impl Device {
    /// Makes this device the calling thread's current device until the returned guard is dropped.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let device = Device::emulated(0)?;
    /// let guard = device.guard();
    /// assert_eq!(Device::current()?, device);
    /// drop(guard);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn guard(&self) -> DeviceGuard {
        DeviceGuard { previous: exchange(Some(self.clone())), thread: PhantomData }
    }

    /// Makes this device the calling thread's current device until another device is set or an earlier guard is
    /// dropped. Prefer [`Device::guard`], which restores the previous device.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// Device::open("cpu")?.set_current();
    /// assert!(Device::current()?.is_emulated());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn set_current(&self) {
        drop(exchange(Some(self.clone())));
    }
}

/// Returns the device that the thread has set.
pub(crate) fn current() -> Option<Device> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        drop(exchange(self.previous.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_emulated::EmulatedDriver;

    #[test]
    fn an_exchange_gives_what_was_set() {
        let driver = EmulatedDriver::builder().devices(2).build();
        let [first, second] = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
        assert_eq!(exchange(Some(first.clone())), None);
        assert_eq!(exchange(Some(second.clone())), Some(first));
        assert_eq!(exchange(None), Some(second));
        assert_eq!(exchange(None), None);
    }
}
