//! Copies between device buffers, and memsets.

use super::peer::{self, Route};
use crate::device::Device;
use crate::device::observe::{CopyDirection, Operation, site};
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::memory::slice::check_lengths;
use crate::memory::storage::{self, BufferUse, Kind};
use crate::memory::usage::Access;
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// One side of a copy between buffers.
pub(super) struct Side<'a> {
    pub device: &'a Device,
    pub part: BufferUse<'a>,
    pub address: DevicePtr,
}

impl Stream {
    /// Enqueues a copy from one buffer to another, after all earlier work on both buffers. The caller can drop the
    /// buffers immediately.
    ///
    /// One of the two buffers may be on a different device than the stream. The copy is then direct if the devices have
    /// peer access; otherwise, it runs in chunks through at most 8 MiB of page-locked host memory. A copy between
    /// devices of two drivers (a GPU and the emulated device) fails, because their streams cannot wait for each other.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let source = DeviceBuffer::from_host(&device.default_stream(), &[1u32, 2, 3])?;
    /// let mut target = DeviceBuffer::uninit(&device.default_stream(), 5)?;
    /// let stream = Stream::from_pool(&device)?;
    /// stream.memset(&mut target, 0)?;
    /// stream.copy(&source, target.slice_mut(1..4))?;
    /// assert_eq!(target.to_host()?, [0, 1, 2, 3, 0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`], [`Error::DifferentDevices`] if neither buffer is on the stream's device,
    /// [`Error::NoPeerAccess`] if the devices belong to two drivers, [`Error::PinnedOutOfMemory`], or any [driver
    /// error](crate::Error::Driver).
    ///
    /// [`Error::LengthMismatch`]: crate::Error::LengthMismatch
    /// [`Error::DifferentDevices`]: crate::Error::DifferentDevices
    /// [`Error::NoPeerAccess`]: crate::Error::NoPeerAccess
    /// [`Error::PinnedOutOfMemory`]: crate::Error::PinnedOutOfMemory
    #[track_caller]
    pub fn copy<'s, 't, T: DeviceCopy>(
        &self,
        source: impl Into<DeviceSlice<'s, T>>,
        target: impl Into<DeviceSliceMut<'t, T>>,
    ) -> Result<()> {
        let _site = site();
        let (source, target) = (source.into(), target.into());
        check_lengths(peer::OPERATION, target.len(), source.len())?;
        let route = Route::find(self, source.device(), target.device())?;
        if target.used().range.is_empty() {
            return Ok(());
        }
        let from = Side {
            device: source.device(),
            part: source.used(Access::Read),
            address: source.as_device_ptr(),
        };
        let to = Side { device: target.device(), part: target.used(), address: target.as_device_ptr() };
        match route {
            Route::Here => self.copy_here(&from, &to),
            Route::Direct | Route::Staged { .. } if self.is_capturing() => self.check_not_capturing(
                peer::OPERATION,
                "copies between devices cannot be captured; copy outside the capture",
            ),
            Route::Direct => peer::copy_directly(self, &from, &to),
            Route::Staged { outward } => peer::copy_staged(self, outward, &from, &to),
        }
    }

    fn copy_here(&self, from: &Side<'_>, to: &Side<'_>) -> Result<()> {
        let kind = Kind::Copy(peer::CALL);
        // SAFETY: both ranges have the same size. They do not overlap, because the source is shared and the target
        // exclusive. Both buffers record the stream, so neither is freed before the copy has run.
        storage::enqueue([&from.part, &to.part].into_iter(), self, kind, |driver, context| unsafe {
            let bytes = to.part.range.len();
            self.observed_copy(CopyDirection::DeviceToDevice, from.address.0, to.address.0, bytes, || {
                driver.copy_device(context, to.address, from.address, bytes, self.handle())
            })
        })
    }

    /// Enqueues a memset that sets every byte of a buffer to `value`, after all earlier work on the buffer.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let mut buffer = DeviceBuffer::<u16>::uninit(&stream, 2)?;
    /// // Sets each byte, not each element.
    /// stream.memset(&mut buffer, 1)?;
    /// assert_eq!(buffer.to_host()?, [0x0101, 0x0101]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`](crate::Error::DifferentDevices) if the buffer is not on the stream's device,
    /// or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn memset<'t, T: DeviceCopy>(
        &self,
        target: impl Into<DeviceSliceMut<'t, T>>,
        value: u8,
    ) -> Result<()> {
        let _site = site();
        let target = target.into();
        self.check_device(target.device(), || ("setting bytes".to_owned(), "the buffer".to_owned()))?;
        let (part, address) = (target.used(), target.as_device_ptr());
        if part.range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is borrowed exclusively, and the buffer records the stream, so it is not freed before the
        // work has run. Every bit pattern is a valid element.
        part.enqueue(self, "Stream::memset", |driver, context| unsafe {
            let bytes = part.range.len();
            self.observed(
                || Operation::Memset { to: address.0, value, bytes },
                || driver.memset(context, address, value, bytes, self.handle()),
            )
        })
    }
}
