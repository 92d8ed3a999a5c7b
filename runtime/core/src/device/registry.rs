//! The devices of the process: each is opened once and stays open while it works.
//!
//! A lost device is let go here, so that when the last handle of it is dropped its context goes too, and opening
//! it again gives a fresh one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::{Device, DeviceId, DeviceInner, fork};
use crate::driver::Driver;
use crate::driver::cuda::CudaDriver;
use crate::driver::emulated::EmulatedDriver;
use crate::error::{Error, Result};

/// A device of the process.
enum Entry {
    Working(Device),
    Lost(Weak<DeviceInner>),
}

static DEVICES: Mutex<Option<HashMap<DeviceId, Entry>>> = Mutex::new(None);

/// The driver for a kind of device. Fails with [`Error::Forked`] where devices of that kind cannot be used.
pub(super) fn driver(id: DeviceId) -> Result<Arc<dyn Driver>> {
    static EMULATED: OnceLock<Arc<EmulatedDriver>> = OnceLock::new();
    fork::check(id)?;
    match id {
        DeviceId::Cuda(_) => {
            // Starting CUDA is enough to make it useless in a copy of the process.
            fork::begin_use(id)?;
            // SAFETY: devices are what its handles are used through, and they keep the promise.
            let driver = unsafe { CudaDriver::get() };
            Ok(driver.inspect_err(|_| fork::end_use(id))?)
        }
        DeviceId::Emulated(_) => Ok(EMULATED.get_or_init(EmulatedDriver::from_environment).clone()),
    }
}

/// Opens a device, or finds it open.
pub(super) fn open(id: DeviceId) -> Result<Device> {
    let driver = driver(id)?;
    let count = driver.device_count()?;
    if id.ordinal() >= count {
        return Err(Error::NoSuchDevice { device: id, count });
    }
    // Before the lock, which a copy of the process would never get while it is held here.
    fork::begin_use(id)?;
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    match devices.get(&id) {
        Some(Entry::Working(device)) if !device.is_lost() => return Ok(device.clone()),
        Some(Entry::Working(device)) => {
            let lost = Arc::downgrade(&device.0);
            devices.insert(id, Entry::Lost(lost));
        }
        _ => {}
    }
    if let Some(Entry::Lost(lost)) = devices.get(&id)
        && let Some(inner) = lost.upgrade()
    {
        return Ok(Device(inner));
    }
    let device = Device::with_driver(driver, id.ordinal())?;
    devices.insert(id, Entry::Working(device.clone()));
    Ok(device)
}
