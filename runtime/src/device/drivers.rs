//! The driver of each kind of device, one a process, and the devices that are open.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, WeakDevice, fork};
use crate::driver::cuda::CudaDriver;
use crate::driver::{Driver, EMULATED};
use crate::error::{DeviceId, Error, Result};

/// The driver for a kind of device. Fails with [`Error::Forked`] where devices of that kind cannot be used, with
/// [`Error::NotEmulated`] in a program without emulated devices.
pub(crate) fn driver(id: DeviceId) -> Result<Arc<dyn Driver>> {
    fork::check(id)?;
    match id {
        DeviceId::Cuda(_) => {
            // Starting CUDA is enough to make it useless in a copy of the process.
            fork::begin_use(id)?;
            // SAFETY: devices are what its handles are used through, and they keep the promise.
            let driver = unsafe { CudaDriver::get() };
            Ok(driver.inspect_err(|_| fork::end_use(id))?)
        }
        DeviceId::Emulated(_) => EMULATED.first().map(|driver| driver()).ok_or(Error::NotEmulated),
    }
}

/// Called with the driver of each device of the program that is opened, before it has a context; once or more for a driver.
/// A crate adds its function with `linkme`, and is then part of the program where it is a dependency.
#[linkme::distributed_slice]
pub static DRIVER_HOOKS: [fn(&Arc<dyn Driver>)];

/// Calls the hooks with the driver of a device that is being opened, unless one of them opens it.
pub(crate) fn call_hooks(driver: &Arc<dyn Driver>) {
    thread_local! {
        static IS_CALLING: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_CALLING.replace(true) {
        DRIVER_HOOKS.iter().for_each(|hook| hook(driver));
        IS_CALLING.set(false);
    }
}

/// The devices that were opened.
static OPENED: Mutex<Vec<WeakDevice>> = Mutex::new(Vec::new());

/// Notes a device that was opened.
pub(crate) fn opened(device: &Device) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|device| device.0.strong_count() > 0);
    opened.push(device.downgrade());
}

/// The open devices of this process, in the order in which they were opened; lost ones too.
pub fn open_devices() -> Vec<Device> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Without the lock: the last handle of a device may be among them.
    opened.iter().filter_map(WeakDevice::upgrade).filter(|device| !device.is_forked()).collect()
}
