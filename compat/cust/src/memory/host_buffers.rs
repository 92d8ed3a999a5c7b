//! [`LockedBuffer`]: page-locked host memory. [`UnifiedBuffer`]: memory that host and device share.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Zeroable;

use super::malloc::size_of_values;
use super::{UnifiedPointer, cuda_free_locked, cuda_free_unified, cuda_malloc_locked, cuda_malloc_unified};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};

/// Defines a buffer in page-locked host memory. `wrap` converts an address to the buffer's pointer, and `unwrap`
/// converts the pointer to an address.
macro_rules! host_buffer {
    (
        $(#[$doc:meta])* $name:ident($pointer:ident<T>): $malloc:ident, $free:ident,
        $wrap:expr, $unwrap:expr
    ) => {
        $(#[$doc])*
        pub struct $name<T: DeviceCopy> {
            pointer: $pointer<T>,
            len: usize,
        }

        // SAFETY: the buffer owns its elements.
        unsafe impl<T: DeviceCopy + Send> Send for $name<T> {}
        // SAFETY: a shared reference to the buffer only allows reads.
        unsafe impl<T: DeviceCopy + Sync> Sync for $name<T> {}

        impl<T: DeviceCopy> $name<T> {
            /// Allocates `len` copies of a value.
            ///
            /// # Errors
            #[doc = concat!("Returns the same errors as [`", stringify!($malloc), "`].")]
            pub fn new(value: &T, len: usize) -> CudaResult<Self> {
                // SAFETY: every element is written.
                unsafe {
                    let buffer = Self::uninitialized(len)?;
                    let to = $unwrap(buffer.pointer);
                    (0..len).for_each(|index| to.add(index).write(*value));
                    Ok(buffer)
                }
            }

            /// Allocates memory for `len` elements.
            ///
            /// # Errors
            #[doc = concat!("Returns the same errors as [`", stringify!($malloc), "`].")]
            ///
            /// # Safety
            /// The memory must be written before it is read.
            pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
                let pointer = match size_of_values::<T>(len)? {
                    0 => $wrap(NonNull::dangling().as_ptr()),
                    // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
                    _ => unsafe { $malloc(len)? },
                };
                Ok(Self { pointer, len })
            }

            /// Allocates `len` elements of zeros.
            ///
            /// # Errors
            #[doc = concat!("Returns the same errors as [`", stringify!($malloc), "`].")]
            pub fn zeroed(len: usize) -> CudaResult<Self>
            where
                T: Zeroable,
            {
                Self::new(&T::zeroed(), len)
            }

            /// Copies elements into the buffer.
            ///
            /// # Errors
            #[doc = concat!("Returns the same errors as [`", stringify!($malloc), "`].")]
            pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
                // SAFETY: the elements are written.
                unsafe {
                    let buffer = Self::uninitialized(elements.len())?;
                    std::ptr::copy_nonoverlapping(elements.as_ptr(), $unwrap(buffer.pointer), elements.len());
                    Ok(buffer)
                }
            }

            #[doc = concat!("Takes ownership of memory allocated by [`", stringify!($malloc), "`].")]
            ///
            /// # Safety
            #[doc = concat!("`pointer` must come from [`", stringify!($malloc), "`] for `len` elements, which must be")]
            /// initialized, unless the elements occupy no bytes. Nothing else may free it.
            pub unsafe fn from_raw_parts(pointer: $pointer<T>, len: usize) -> $name<T> {
                Self { pointer, len }
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
            pub fn drop(buffer: $name<T>) -> DropResult<$name<T>> {
                let mut buffer = ManuallyDrop::new(buffer);
                let freed = buffer.free();
                freed.map_err(|error| (error, $name { pointer: buffer.pointer, len: 0 }))
            }

            fn free(&mut self) -> CudaResult<()> {
                match self.len * size_of::<T>() {
                    0 => Ok(()),
                    // SAFETY: nothing else uses the memory.
                    _ => unsafe { $free(self.pointer) },
                }
            }
        }

        impl<T: DeviceCopy> Deref for $name<T> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                // SAFETY: these are the elements of the buffer, which is borrowed for the same lifetime. Callers of
                // launches and of stream copies guarantee that these do not write to the elements during that time.
                unsafe { std::slice::from_raw_parts($unwrap(self.pointer), self.len) }
            }
        }

        impl<T: DeviceCopy> DerefMut for $name<T> {
            fn deref_mut(&mut self) -> &mut [T] {
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts_mut($unwrap(self.pointer), self.len) }
            }
        }

        impl<T: DeviceCopy> AsRef<[T]> for $name<T> {
            fn as_ref(&self) -> &[T] {
                self
            }
        }

        impl<T: DeviceCopy> AsMut<[T]> for $name<T> {
            fn as_mut(&mut self) -> &mut [T] {
                self
            }
        }

        impl<T: DeviceCopy> Drop for $name<T> {
            fn drop(&mut self) {
                // Any error comes from earlier work, and other calls also report it.
                let _ = self.free();
            }
        }

        impl<T: DeviceCopy + fmt::Debug> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

type Address<T> = *mut T;

host_buffer! {
    /// Array in page-locked host memory. Dropping the buffer waits for all work on the device.
    LockedBuffer(Address<T>): cuda_malloc_locked, cuda_free_locked, std::convert::identity, std::convert::identity
}

host_buffer! {
    /// Array in page-locked host memory that host and device share. Dropping the buffer waits for all work on the
    /// device.
    ///
    /// The host must not access the buffer while a kernel uses it. This is a safety condition of the launch.
    UnifiedBuffer(UnifiedPointer<T>): cuda_malloc_unified, cuda_free_unified, wrapped, UnifiedPointer::as_mut_ptr
}

impl<T: DeviceCopy> UnifiedBuffer<T> {
    /// Returns the unified address.
    pub fn as_unified_ptr(&self) -> UnifiedPointer<T> {
        self.pointer
    }
}

fn wrapped<T>(pointer: *mut T) -> UnifiedPointer<T> {
    // SAFETY: the pointer is never used to access bytes, because the buffer has none.
    unsafe { UnifiedPointer::wrap(pointer) }
}
