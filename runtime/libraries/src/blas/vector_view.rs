//! [`Vector`] and [`VectorMut`]: elements of device memory at equal distances.

use crate::error::LibraryError;
use warpsmith_core::error::Result;
use warpsmith_core::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};

/// Elements to read: every one of a slice, or every so many.
///
/// ```
/// use warpsmith_runtime::library::blas::Vector;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let buffer = DeviceBuffer::from_host(&Device::emulated(0)?.default_stream(), &[1f32; 7])?;
/// assert_eq!(Vector::from(&buffer).len(), 7);
/// assert_eq!(Vector::new(&buffer).with_stride(3)?.len(), 3); // elements 0, 3 and 6
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Vector<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSlice<'a, T>,
    pub(super) stride: usize,
}

/// Elements to write: every one of a slice, or every so many.
#[derive(Debug)]
pub struct VectorMut<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSliceMut<'a, T>,
    pub(super) stride: usize,
}

fn check(stride: usize) -> Result<usize> {
    if stride != 0 && isize::try_from(stride).is_ok() {
        return Ok(stride);
    }
    let problem = format!("a stride of {stride}: it is at least 1 and fits in an isize");
    Err(LibraryError::Shape { operation: "a view of a vector", problem }.into())
}

impl<'a, T: DeviceCopy> Vector<'a, T> {
    /// Every element.
    pub fn new(slice: impl Into<DeviceSlice<'a, T>>) -> Self {
        Self { slice: slice.into(), stride: 1 }
    }

    /// The first element and every `stride`-th after it.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] for 0.
    pub fn with_stride(self, stride: usize) -> Result<Self> {
        Ok(Self { stride: check(stride)?, ..self })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.slice.len().div_ceil(self.stride)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }
}

impl<'a, T: DeviceCopy> VectorMut<'a, T> {
    /// Every element.
    pub fn new(slice: impl Into<DeviceSliceMut<'a, T>>) -> Self {
        Self { slice: slice.into(), stride: 1 }
    }

    /// The first element and every `stride`-th after it.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] for 0.
    pub fn with_stride(self, stride: usize) -> Result<Self> {
        Ok(Self { stride: check(stride)?, ..self })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.slice.len().div_ceil(self.stride)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }
}

impl<'a, T: DeviceCopy> From<&'a DeviceBuffer<T>> for Vector<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        Self::new(buffer)
    }
}

impl<'a, T: DeviceCopy> From<DeviceSlice<'a, T>> for Vector<'a, T> {
    fn from(slice: DeviceSlice<'a, T>) -> Self {
        Self::new(slice)
    }
}

impl<'a, T: DeviceCopy> From<&'a mut DeviceBuffer<T>> for VectorMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        Self::new(buffer)
    }
}

impl<'a, T: DeviceCopy> From<DeviceSliceMut<'a, T>> for VectorMut<'a, T> {
    fn from(slice: DeviceSliceMut<'a, T>) -> Self {
        Self::new(slice)
    }
}
