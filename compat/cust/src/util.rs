//! Methods of values and slices that copy data to the device.

use crate::error::CudaResult;
use crate::memory::{DeviceBox, DeviceBuffer, DeviceCopy, UnifiedBuffer};

/// Methods for values.
pub trait DeviceCopyExt: DeviceCopy {
    /// Copies the value to the device.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceBox::new`].
    fn as_dbox(&self) -> CudaResult<DeviceBox<Self>> {
        DeviceBox::new(self)
    }
}

impl<T: DeviceCopy> DeviceCopyExt for T {}

/// Methods for slices and arrays.
pub trait SliceExt<T: DeviceCopy> {
    /// Copies the elements to the device.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceBuffer::from_slice`].
    fn as_dbuf(&self) -> CudaResult<DeviceBuffer<T>>;

    /// Copies the elements to memory that host and device share.
    ///
    /// # Errors
    /// Returns the same errors as [`UnifiedBuffer::from_slice`].
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
