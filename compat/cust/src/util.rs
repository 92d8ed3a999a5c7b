//! Methods of values and slices that put them on the device.

use crate::error::CudaResult;
use crate::memory::{DeviceBox, DeviceBuffer, DeviceCopy, UnifiedBox, UnifiedBuffer};

/// Methods of values.
pub trait DeviceCopyExt: DeviceCopy {
    /// A copy on the device.
    ///
    /// # Errors
    ///
    /// As [`DeviceBox::new`].
    fn as_dbox(&self) -> CudaResult<DeviceBox<Self>> {
        DeviceBox::new(self)
    }

    /// A copy that host and device share.
    ///
    /// # Errors
    ///
    /// As [`UnifiedBox::new`].
    fn as_unified_box(&self) -> CudaResult<UnifiedBox<Self>> {
        UnifiedBox::new(*self)
    }
}

impl<T: DeviceCopy> DeviceCopyExt for T {}

/// Methods of slices and arrays.
pub trait SliceExt<T: DeviceCopy> {
    /// A copy on the device.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::from_slice`].
    fn as_dbuf(&self) -> CudaResult<DeviceBuffer<T>>;

    /// A copy that host and device share.
    ///
    /// # Errors
    ///
    /// As [`UnifiedBuffer::from_slice`].
    fn as_unified_buf(&self) -> CudaResult<UnifiedBuffer<T>>;
}

impl<T: DeviceCopy> SliceExt<T> for [T] {
    fn as_dbuf(&self) -> CudaResult<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(self)
    }

    fn as_unified_buf(&self) -> CudaResult<UnifiedBuffer<T>> {
        UnifiedBuffer::from_slice(self)
    }
}

impl<T: DeviceCopy> SliceExt<T> for &[T] {
    fn as_dbuf(&self) -> CudaResult<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(self)
    }

    fn as_unified_buf(&self) -> CudaResult<UnifiedBuffer<T>> {
        UnifiedBuffer::from_slice(self)
    }
}

impl<T: DeviceCopy, const N: usize> SliceExt<T> for [T; N] {
    fn as_dbuf(&self) -> CudaResult<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(self)
    }

    fn as_unified_buf(&self) -> CudaResult<UnifiedBuffer<T>> {
        UnifiedBuffer::from_slice(self)
    }
}
