//! [`LockedBuffer`] and [`LockedBox`]: page-locked memory of the host.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;

use super::malloc::size_of_values;
use super::{cuda_free_locked, cuda_malloc_locked};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};

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

    /// `len` elements of zeros.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    pub fn zeroed(len: usize) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        Self::new(&T::zeroed(), len)
    }

    /// The buffer of memory from [`cuda_malloc_locked`].
    ///
    /// # Safety
    ///
    /// `pointer` came from there with `len` elements, which are initialised, or they have no bytes; nothing else frees it.
    pub unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> LockedBuffer<T> {
        Self { pointer, len }
    }

    /// Drops it.
    ///
    /// # Errors
    ///
    /// A fault of earlier work; the memory is free, and the buffer that comes back is empty.
    pub fn drop(buffer: LockedBuffer<T>) -> DropResult<LockedBuffer<T>> {
        let buffer = ManuallyDrop::new(buffer);
        match buffer.len * size_of::<T>() {
            0 => Ok(()),
            // SAFETY: nothing has it any more.
            _ => unsafe { cuda_free_locked(buffer.pointer) }.map_err(|error| {
                (error, LockedBuffer { pointer: std::ptr::NonNull::dangling().as_ptr(), len: 0 })
            }),
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

    /// Memory for a value.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc_locked`].
    ///
    /// # Safety
    ///
    /// It is written before it is read.
    pub unsafe fn uninitialized() -> CudaResult<Self> {
        // SAFETY: the caller's promise.
        Ok(Self { value: unsafe { LockedBuffer::uninitialized(1)? } })
    }

    /// The box of memory from [`Self::into_raw`] or [`cuda_malloc_locked`].
    ///
    /// # Safety
    ///
    /// `pointer` came from there, its value is initialised, and nothing else frees it.
    pub unsafe fn from_raw(pointer: *mut T) -> Self {
        // SAFETY: the caller's promise.
        Self { value: unsafe { LockedBuffer::from_raw_parts(pointer, 1) } }
    }

    /// The address of the memory, to be freed by [`cuda_free_locked`].
    pub fn into_raw(self) -> *mut T {
        ManuallyDrop::new(self.value).pointer
    }

    /// The address.
    pub fn as_raw(&self) -> *mut T {
        self.value.pointer
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
