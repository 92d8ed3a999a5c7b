//! The driver of each kind of device, one a process.

use std::sync::{Arc, OnceLock};

use super::fork;
use crate::driver::Driver;
use crate::driver::cuda::CudaDriver;
use crate::driver::emulated::EmulatedDriver;
use crate::error::{DeviceId, Result};

/// The driver for a kind of device. Fails with [`Error::Forked`] where devices of that kind cannot be used.
pub(crate) fn driver(id: DeviceId) -> Result<Arc<dyn Driver>> {
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
