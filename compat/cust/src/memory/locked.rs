//! [`LockedBuffer`] and [`LockedBox`]: page-locked memory of the host.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::malloc::size_of_values;
use super::{cuda_free_locked, cuda_malloc_locked};
use crate::DeviceCopy;
use crate::error::CudaResult;

/// Elements in page-locked memory of the host. Dropping it waits for all work on the device.
pub struct LockedBuffer<T: DeviceCopy> {
    pointer: *mut T,
    len: usize,
}

/// A value in page-locked memory of the host.
pub struct LockedBox<T: DeviceCopy> {
    value: LockedBuffer<T>,
}

// SAFETY: it owns its elements.
unsafe impl<T: DeviceCopy + Send> Send for LockedBuffer<T> {}
// SAFETY: a shared reference reads them only.
unsafe impl<T: DeviceCopy + Sync> Sync for LockedBuffer<T> {}

impl<T: DeviceCopy> LockedBuffer<T> {
    /// `len` copies of a value.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    pub fn new(value: &T, len: usize) -> CudaResult<Self> {
        // SAFETY: every element is written.
        unsafe {
            let buffer = Self::uninitialized(len)?;
            (0..len).for_each(|index| buffer.pointer.add(index).write(*value));
            Ok(buffer)
        }
    }

    /// Memory for `len` elements.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    ///
    /// # Safety
    ///
    /// It is written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => std::ptr::NonNull::dangling().as_ptr(),
            // SAFETY: the caller's promise; `drop` frees it.
            _ => unsafe { cuda_malloc_locked(len)? },
        };
        Ok(Self { pointer, len })
    }

    /// A copy of elements.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
        // SAFETY: the elements are written.
        unsafe {
            let buffer = Self::uninitialized(elements.len())?;
            std::ptr::copy_nonoverlapping(elements.as_ptr(), buffer.pointer, elements.len());
            Ok(buffer)
        }
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// The elements.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self
    }
}

impl<T: DeviceCopy> Deref for LockedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: its elements, borrowed as long; copies in streams do not write them meanwhile, by their promise.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for LockedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> AsRef<[T]> for LockedBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: DeviceCopy> AsMut<[T]> for LockedBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: DeviceCopy> Drop for LockedBuffer<T> {
    fn drop(&mut self) {
        if self.len * size_of::<T>() > 0 {
            // An error is of earlier work, and is reported by other calls too.
            // SAFETY: nothing has it any more.
            let _ = unsafe { cuda_free_locked(self.pointer) };
        }
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for LockedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: DeviceCopy> LockedBox<T> {
    /// A copy of a value.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    pub fn new(value: &T) -> CudaResult<Self> {
        Ok(Self { value: LockedBuffer::new(value, 1)? })
    }
}

impl<T: DeviceCopy> Deref for LockedBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value[0]
    }
}

impl<T: DeviceCopy> DerefMut for LockedBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value[0]
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for LockedBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
