//! [`UnifiedBuffer`]: memory that host and device share.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;

use super::malloc::size_of_values;
use super::{UnifiedPointer, cuda_free_unified, cuda_malloc_unified};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};

/// Array in page-locked host memory that host and device share. Dropping the buffer waits for all work on the device.
///
/// The host must not access the buffer while a kernel uses it. This is a safety condition of the launch.
pub struct UnifiedBuffer<T: DeviceCopy> {
    pointer: UnifiedPointer<T>,
    len: usize,
}

// SAFETY: the buffer owns its elements.
unsafe impl<T: DeviceCopy + Send> Send for UnifiedBuffer<T> {}
// SAFETY: a shared reference to the buffer only allows reads.
unsafe impl<T: DeviceCopy + Sync> Sync for UnifiedBuffer<T> {}

impl<T: DeviceCopy> UnifiedBuffer<T> {
    /// Allocates `len` copies of a value.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_unified`].
    pub fn new(value: &T, len: usize) -> CudaResult<Self> {
        // SAFETY: every element is written.
        unsafe {
            let buffer = Self::uninitialized(len)?;
            (0..len).for_each(|index| buffer.pointer.as_mut_ptr().add(index).write(*value));
            Ok(buffer)
        }
    }

    /// Allocates memory for `len` elements.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_unified`].
    ///
    /// # Safety
    /// The memory must be written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => {
                // SAFETY: the pointer is never used to access bytes.
                unsafe { UnifiedPointer::wrap(std::ptr::NonNull::dangling().as_ptr()) }
            }
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc_unified(len)? },
        };
        Ok(Self { pointer, len })
    }

    /// Allocates `len` elements of zeros.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_unified`].
    pub fn zeroed(len: usize) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        Self::new(&T::zeroed(), len)
    }

    /// Copies elements into unified memory.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc_unified`].
    pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
        // SAFETY: the elements are written.
        unsafe {
            let buffer = Self::uninitialized(elements.len())?;
            let to = buffer.pointer.as_mut_ptr();
            std::ptr::copy_nonoverlapping(elements.as_ptr(), to, elements.len());
            Ok(buffer)
        }
    }

    /// Takes ownership of memory allocated by [`cuda_malloc_unified`].
    ///
    /// # Safety
    /// `pointer` must come from [`cuda_malloc_unified`] for `len` elements, which must be initialized, unless the
    /// elements occupy no bytes. Nothing else may free it.
    pub unsafe fn from_raw_parts(pointer: UnifiedPointer<T>, len: usize) -> UnifiedBuffer<T> {
        Self { pointer, len }
    }

    /// Returns the unified address.
    pub fn as_unified_ptr(&self) -> UnifiedPointer<T> {
        self.pointer
    }

    /// Returns the elements as a slice.
    pub fn as_slice(&self) -> &[T] {
        self
    }

    /// Returns the elements as a mutable slice.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self
    }

    /// Drops the buffer and reports any error.
    ///
    /// # Errors
    /// Returns a fault in earlier work. The memory is freed nevertheless, so the returned buffer is empty.
    pub fn drop(buffer: UnifiedBuffer<T>) -> DropResult<UnifiedBuffer<T>> {
        let mut buffer = ManuallyDrop::new(buffer);
        let freed = buffer.free();
        let empty = || UnifiedBuffer { pointer: buffer.pointer, len: 0 };
        freed.map_err(|error| (error, empty()))
    }

    fn free(&mut self) -> CudaResult<()> {
        match self.len * size_of::<T>() {
            0 => Ok(()),
            // SAFETY: nothing else uses the memory.
            _ => unsafe { cuda_free_unified(self.pointer) },
        }
    }
}

impl<T: DeviceCopy> Deref for UnifiedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: these are the elements of the buffer, which is borrowed for the same lifetime. Callers of launches
        // guarantee that kernels do not write to the elements during that time.
        unsafe { std::slice::from_raw_parts(self.pointer.as_raw(), self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for UnifiedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_raw_mut(), self.len) }
    }
}

impl<T: DeviceCopy> AsRef<[T]> for UnifiedBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: DeviceCopy> AsMut<[T]> for UnifiedBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: DeviceCopy> Drop for UnifiedBuffer<T> {
    fn drop(&mut self) {
        // Any error comes from earlier work, and other calls also report it.
        let _ = self.free();
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for UnifiedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
