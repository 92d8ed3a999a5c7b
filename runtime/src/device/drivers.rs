//! The driver of each kind of device (one per process), and the open devices.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, WeakDevice, fork};
use crate::driver::cuda::CudaDriver;
use crate::driver::{Driver, EMULATED};
use crate::error::{DeviceId, Error, Result};

/// Returns the driver for a kind of device. Fails with [`Error::Forked`] in a process where that kind is unusable, and
/// with [`Error::NotEmulated`] in a program without emulated devices.
pub(crate) fn driver(id: DeviceId) -> Result<Arc<dyn Driver>> {
    fork::check(id)?;
    match id {
        DeviceId::Cuda(_) => {
            // Initializing CUDA makes it unusable in a forked child.
            fork::begin_use(id)?;
            // SAFETY: only devices use the driver's handles, and they uphold its contract.
            let driver = unsafe { CudaDriver::get() };
            Ok(driver.inspect_err(|_| fork::end_use(id))?)
        }
        DeviceId::Emulated(_) => EMULATED.first().map(|driver| driver()).ok_or(Error::NotEmulated),
    }
}

/// Hooks called with the driver of each device that the program opens, before the device's context is created. A hook
/// may run more than once per driver. Register a hook with `linkme`; depending on the registering crate is enough to
/// link the hook into the program.
#[linkme::distributed_slice]
pub static DRIVER_HOOKS: [fn(&Arc<dyn Driver>)];

/// Calls the hooks with the driver of a device that is being opened, unless a hook is opening it.
pub(crate) fn call_hooks(driver: &Arc<dyn Driver>) {
    thread_local! {
        static IS_CALLING: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_CALLING.replace(true) {
        DRIVER_HOOKS.iter().for_each(|hook| hook(driver));
        IS_CALLING.set(false);
    }
}

static OPENED: Mutex<Vec<WeakDevice>> = Mutex::new(Vec::new());

pub(crate) fn opened(device: &Device) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|device| device.0.strong_count() > 0);
    opened.push(device.downgrade());
}

/// Returns the open devices of this process in the order in which they were opened, including lost ones.
pub fn open_devices() -> Vec<Device> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The lock is released first, because the list may hold the last handle of a device.
    opened.iter().filter_map(WeakDevice::upgrade).filter(|device| !device.is_forked()).collect()
}
