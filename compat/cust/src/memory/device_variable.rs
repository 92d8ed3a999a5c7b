//! [`DeviceVariable`]: a value with a copy on the device.

use std::ops::{Deref, DerefMut};

use super::{CopyDestination, DeviceBox, DevicePointer};
use crate::DeviceCopy;
use crate::error::CudaResult;

/// A value on the host, with device memory for a copy of it. The value is copied only on request.
///
/// ```
/// # use cust::memory::DeviceVariable;
/// # let _context = cust::context::Context::from_runtime(&cust::runtime::Device::emulated(0)?);
/// let mut steps = DeviceVariable::new(1u32)?;
/// *steps += 1;
/// steps.copy_htod()?;
/// *steps = 0;
/// steps.copy_dtoh()?;
/// assert_eq!(*steps, 2);
/// # Ok::<(), cust::error::CudaError>(())
/// ```
#[derive(Debug)]
pub struct DeviceVariable<T: DeviceCopy> {
    device: DeviceBox<T>,
    host: T,
}

impl<T: DeviceCopy> DeviceVariable<T> {
    /// Copies a value to the device.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceBox::new`].
    pub fn new(value: T) -> CudaResult<Self> {
        Ok(Self { device: DeviceBox::new(&value)?, host: value })
    }

    /// Copies the value from the host to the device.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_from`].
    pub fn copy_htod(&mut self) -> CudaResult<()> {
        self.device.copy_from(&self.host)
    }

    /// Copies the value from the device to the host.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_to`].
    pub fn copy_dtoh(&mut self) -> CudaResult<()> {
        self.device.copy_to(&mut self.host)
    }

    /// Returns the device address.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.device.as_device_ptr()
    }
}

impl<T: DeviceCopy> Deref for DeviceVariable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.host
    }
}

impl<T: DeviceCopy> DerefMut for DeviceVariable<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.host
    }
}
