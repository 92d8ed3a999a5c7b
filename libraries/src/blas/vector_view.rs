//! [`Vector`] and [`VectorMut`]: strided views of device memory.

use crate::error::LibraryError;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, Result};

/// A read-only strided view of a slice.
///
/// ```
/// use warpsmith_libraries::blas::Vector;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let buffer = DeviceBuffer::from_host(&Device::emulated(0)?.default_stream(), &[1f32; 7])?;
/// assert_eq!(Vector::from(&buffer).len(), 7);
/// assert_eq!(Vector::new(&buffer).with_stride(3)?.len(), 3); // elements 0, 3 and 6
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Vector<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSlice<'a, T>,
    pub(super) stride: usize,
}

/// A mutable strided view of a slice.
#[derive(Debug)]
pub struct VectorMut<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSliceMut<'a, T>,
    pub(super) stride: usize,
}

fn check(stride: usize) -> Result<usize> {
    if stride != 0 && isize::try_from(stride).is_ok() {
        return Ok(stride);
    }
    let problem = format!("the stride is {stride}, but must be at least 1 and fit in an isize");
    Err(LibraryError::shape("a view of a vector", problem))
}

macro_rules! vector {
    ($vector:ident, $slice:ident, $($buffer:tt)*) => {
        impl<'a, T: DeviceCopy> $vector<'a, T> {
            /// Creates a view of all elements.
            pub fn new(slice: impl Into<$slice<'a, T>>) -> Self {
                Self { slice: slice.into(), stride: 1 }
            }

            /// Selects the first element and every `stride`-th element after it.
            ///
            /// # Errors
            /// Returns [`LibraryError::Shape`] if the stride is 0.
            pub fn with_stride(self, stride: usize) -> Result<Self> {
                Ok(Self { stride: check(stride)?, ..self })
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.slice.len().div_ceil(self.stride)
            }

            /// Returns true if there are no elements.
            pub fn is_empty(&self) -> bool {
                self.slice.is_empty()
            }
        }

        impl<'a, T: DeviceCopy> From<$($buffer)*> for $vector<'a, T> {
            fn from(buffer: $($buffer)*) -> Self {
                Self::new(buffer)
            }
        }

        impl<'a, T: DeviceCopy> From<$slice<'a, T>> for $vector<'a, T> {
            fn from(slice: $slice<'a, T>) -> Self {
                Self::new(slice)
            }
        }
    };
}

vector!(Vector, DeviceSlice, &'a DeviceBuffer<T>);
vector!(VectorMut, DeviceSliceMut, &'a mut DeviceBuffer<T>);
