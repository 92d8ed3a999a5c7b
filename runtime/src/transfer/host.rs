//! Copies between page-locked host memory and a device.

use super::{CopyFailed, Pending};
use crate::error::{Error, Result};
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;

impl Stream {
    /// Enqueues a copy from page-locked host memory to a device.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DifferentDevices`]; whatever the driver reports.
    pub fn upload<'d, T: DeviceCopy>(
        &self,
        source: PinnedBuffer<T>,
        target: impl Into<DeviceSliceMut<'d, T>>,
    ) -> std::result::Result<Pending<PinnedBuffer<T>>, CopyFailed<PinnedBuffer<T>>> {
        match self.enqueue_upload(&source, target.into()) {
            Ok(event) => Ok(Pending::new(source, event)),
            Err(error) => Err(CopyFailed { error, memory: source }),
        }
    }

    fn enqueue_upload<T: DeviceCopy>(
        &self,
        source: &PinnedBuffer<T>,
        target: DeviceSliceMut<'_, T>,
    ) -> Result<crate::Event> {
        let operation = "copying from the host";
        let (left, right) = (target.len(), source.len());
        if left != right {
            return Err(Error::LengthMismatch { operation, left, right });
        }
        self.check_device(target.device(), || (operation.to_owned(), "the target".to_owned()))?;
        let (part, address) = (target.part(), target.as_device_ptr());
        if !part.range.is_empty() {
            source.record_use(self)?;
            // SAFETY: both ranges have that many bytes; the host's is moved into the copy and noted, the device's is
            // borrowed exclusively and noted.
            part.enqueue(self, |driver, context| unsafe {
                driver.copy_to_device(
                    context,
                    address,
                    source.as_ptr().cast(),
                    part.range.len(),
                    self.handle(),
                )
            })?;
        }
        self.record_event()
    }

    /// Enqueues a copy from a device to page-locked host memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DifferentDevices`]; whatever the driver reports.
    pub fn download<'d, T: DeviceCopy>(
        &self,
        source: impl Into<DeviceSlice<'d, T>>,
        mut target: PinnedBuffer<T>,
    ) -> std::result::Result<Pending<PinnedBuffer<T>>, CopyFailed<PinnedBuffer<T>>> {
        match self.enqueue_download(source.into(), &mut target) {
            Ok(event) => Ok(Pending::new(target, event)),
            Err(error) => Err(CopyFailed { error, memory: target }),
        }
    }

    fn enqueue_download<T: DeviceCopy>(
        &self,
        source: DeviceSlice<'_, T>,
        target: &mut PinnedBuffer<T>,
    ) -> Result<crate::Event> {
        let operation = "copying to the host";
        let (left, right) = (target.len(), source.len());
        if left != right {
            return Err(Error::LengthMismatch { operation, left, right });
        }
        self.check_device(source.device(), || (operation.to_owned(), "the source".to_owned()))?;
        let (part, address) = (source.part(crate::memory::usage::Access::Read), source.as_device_ptr());
        if !part.range.is_empty() {
            target.record_use(self)?;
            let target = target.as_mut_ptr();
            // SAFETY: both ranges have that many bytes; the host's is moved into the copy and noted, the device's is
            // borrowed and noted.
            part.enqueue(self, |driver, context| unsafe {
                driver.copy_to_host(context, target.cast(), address, part.range.len(), self.handle())
            })?;
        }
        self.record_event()
    }
}
