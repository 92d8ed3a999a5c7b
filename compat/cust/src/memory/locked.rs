//! [`LockedBuffer`]: page-locked host memory.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;

use super::malloc::size_of_values;
use super::{cuda_free_locked, cuda_malloc_locked};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};

/// Array in page-locked host memory. Dropping the buffer waits for all work on the device.
pub struct LockedBuffer<T: DeviceCopy> {
    pointer: *mut T,
    len: usize,
}

// SAFETY: the buffer owns its elements.
unsafe impl<T: DeviceCopy + Send> Send for LockedBuffer<T> {}
// SAFETY: a shared reference to the buffer only allows reads.
unsafe impl<T: DeviceCopy + Sync> Sync for LockedBuffer<T> {}

impl<T: DeviceCopy> LockedBuffer<T> {
    /// Allocates `len` copies of a value.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_locked`].
    pub fn new(value: &T, len: usize) -> CudaResult<Self> {
        // SAFETY: every element is written.
        unsafe {
            let buffer = Self::uninitialized(len)?;
            (0..len).for_each(|index| buffer.pointer.add(index).write(*value));
            Ok(buffer)
        }
    }

    /// Allocates memory for `len` elements.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_locked`].
    ///
    /// # Safety
    /// The memory must be written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => std::ptr::NonNull::dangling().as_ptr(),
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc_locked(len)? },
        };
        Ok(Self { pointer, len })
    }

    /// Copies elements into page-locked memory.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_locked`].
    pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
        // SAFETY: the elements are written.
        unsafe {
            let buffer = Self::uninitialized(elements.len())?;
            std::ptr::copy_nonoverlapping(elements.as_ptr(), buffer.pointer, elements.len());
            Ok(buffer)
        }
    }

    /// Allocates `len` elements of zeros.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_locked`].
    pub fn zeroed(len: usize) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        Self::new(&T::zeroed(), len)
    }

    /// Takes ownership of memory allocated by [`cuda_malloc_locked`].
    ///
    /// # Safety
    /// `pointer` must come from [`cuda_malloc_locked`] for `len` elements, which must be initialized, unless the
    /// elements occupy no bytes. Nothing else may free it.
    pub unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> LockedBuffer<T> {
        Self { pointer, len }
    }

    /// Drops the buffer and reports any error.
    ///
    /// # Errors
    /// Returns a fault in earlier work. The memory is freed nevertheless, so the returned buffer is empty.
    pub fn drop(buffer: LockedBuffer<T>) -> DropResult<LockedBuffer<T>> {
        let buffer = ManuallyDrop::new(buffer);
        match buffer.len * size_of::<T>() {
            0 => Ok(()),
            // SAFETY: nothing else uses the memory.
            _ => unsafe { cuda_free_locked(buffer.pointer) }.map_err(|error| {
                (error, LockedBuffer { pointer: std::ptr::NonNull::dangling().as_ptr(), len: 0 })
            }),
        }
    }

    /// Returns the elements as a slice.
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// Returns the elements as a mutable slice.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self
    }
}

impl<T: DeviceCopy> Deref for LockedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: these are the elements of the buffer, which is borrowed for the same lifetime. Callers of stream
        // copies guarantee that the copies do not write to the elements during that time.
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
            // Any error comes from earlier work, and other calls also report it. SAFETY: nothing else uses the memory.
            let _ = unsafe { cuda_free_locked(self.pointer) };
        }
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for LockedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
