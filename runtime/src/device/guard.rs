//! The thread's current device: set for good, or by a guard for a while.
//!
//! Each thread has its own. Guards nest, and each restores what was current when it was made, also when the device
//! was set by other means meanwhile. A thread that has set none has [`Device::best`], which is determined once in
//! the process and again only when it is lost.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Device;

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

/// Sets the thread's current device, `None` for [`Device::best`], and returns the previous one. While the thread ends
/// there may be none to set any more; then nothing happens.
pub(crate) fn exchange(device: Option<Device>) -> Option<Device> {
    // Nothing is dropped while the value is borrowed: dropping a device may run anything.
    CURRENT.try_with(|current| current.replace(device)).ok().flatten()
}

impl Device {
    /// Makes this the thread's current device while the guard lives.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// let guard = device.guard();
    /// assert_eq!(Device::current()?, device);
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(&self) -> DeviceGuard {
        DeviceGuard { previous: exchange(Some(self.clone())), thread: PhantomData }
    }

    /// Makes this the thread's current device until another is set or a guard that was made before is dropped.
    /// Prefer [`Device::guard`]: it restores the previous one.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// Device::open("cpu")?.set_current();
    /// assert!(Device::current()?.is_emulated());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_current(&self) {
        drop(exchange(Some(self.clone())));
    }
}

/// The device that the thread has set.
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
