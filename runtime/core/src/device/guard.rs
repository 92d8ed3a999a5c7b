//! The thread's current device: set for good, or by a guard for a while.
//!
//! Each thread has its own. Guards nest, and each restores what was current when it was made, also when the device
//! was set by other means meanwhile. A thread that has set none has [`Device::best`], which is looked for once in
//! the process and again only when it is lost.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, RwLock, Weak};

use super::{Device, DeviceInner};
use crate::error::Result;

thread_local! {
    static CURRENT: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// What [`Device::best`] gave last. It keeps no device alive: a lost one could not be opened again.
static BEST: RwLock<Weak<DeviceInner>> = RwLock::new(Weak::new());

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

/// Sets the thread's current device, `None` for [`Device::best`], and gives the one before. While the thread ends
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
    /// [`Device::guard`] is to be preferred: it restores the one before.
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

    /// The thread's current device: of the innermost [`Device::guard`] or the last [`Device::set_current`], else
    /// [`Device::best`]. Without either, devices are listed once in the process, not with every call.
    ///
    /// # Errors
    /// As [`Device::best`]. [`Error::Forked`](crate::Error::Forked) when the current device was opened before the
    /// process was forked.
    pub fn current() -> Result<Self> {
        if let Some(device) = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten() {
            device.check_process()?;
            return Ok(device);
        }
        if let Some(device) = known_best() {
            device.check_process()?;
            return Ok(device);
        }
        let best = Self::best()?;
        if let Ok(mut known) = BEST.try_write() {
            *known = Arc::downgrade(&best.0);
        }
        Ok(best)
    }
}

/// What [`Device::best`] gave before, unless it is lost: no handle of it is kept then, so that it can be opened anew.
fn known_best() -> Option<Device> {
    // A lock that cannot be had at once is left alone: in a forked process its holder may not exist.
    let device = Device(BEST.try_read().ok()?.upgrade()?);
    (device.is_forked() || !device.is_lost()).then_some(device)
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        drop(exchange(self.previous.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::emulated::EmulatedDriver;

    #[test]
    fn the_best_device_is_looked_for_once() {
        let [first, second] = [0; 2].map(|_| Device::current().unwrap());
        assert_eq!(known_best(), Some(first.clone()), "the next call takes this one");
        assert_eq!(first, second);
        let other_thread = std::thread::spawn(known_best).join().unwrap();
        assert_eq!(other_thread, Some(first));
    }

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
