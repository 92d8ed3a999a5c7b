//! [`DevicePointer`] and [`UnifiedPointer`]: addresses in device memory and in unified memory.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::DeviceCopy;

/// Address in device memory, which the host cannot dereference.
#[repr(transparent)]
pub struct DevicePointer<T: ?Sized> {
    address: u64,
    of: PhantomData<*mut T>,
}

/// Address that is valid on host and device.
#[repr(transparent)]
pub struct UnifiedPointer<T: ?Sized>(*mut T);

// SAFETY: to the device, the pointer is only a number.
unsafe impl<T: ?Sized> DeviceCopy for DevicePointer<T> {}
// SAFETY: the device can access the memory at this address.
unsafe impl<T: DeviceCopy> DeviceCopy for UnifiedPointer<T> {}
// SAFETY: safe code cannot access the memory through the pointer.
unsafe impl<T: ?Sized> Send for DevicePointer<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized> Sync for DevicePointer<T> {}

macro_rules! traits {
    ($($name:ident, |$pointer:ident| $key:expr;)*) => { $(
        impl<T: ?Sized> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T: ?Sized> Copy for $name<T> {}

        impl<T: ?Sized> PartialEq for $name<T> {
            fn eq(&self, other: &Self) -> bool {
                self.key() == other.key()
            }
        }

        impl<T: ?Sized> Eq for $name<T> {}

        impl<T: ?Sized> PartialOrd for $name<T> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl<T: ?Sized> Ord for $name<T> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.key().cmp(&other.key())
            }
        }

        impl<T: ?Sized> Hash for $name<T> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.key().hash(state);
            }
        }

        impl<T: ?Sized> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.key())
            }
        }

        impl<T: ?Sized> fmt::Pointer for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.key())
            }
        }

        impl<T: ?Sized> $name<T> {
            fn key(&self) -> u64 {
                let $pointer = self;
                $key
            }
        }
    )* };
}
traits! {
    DevicePointer, |pointer| pointer.address;
    UnifiedPointer, |pointer| pointer.0.cast::<u8>().addr() as u64;
}

impl<T: ?Sized> DevicePointer<T> {
    /// Creates a pointer from an address, which may be any number.
    pub fn from_raw(address: u64) -> Self {
        Self { address, of: PhantomData }
    }

    /// Returns the address as a number.
    pub fn as_raw(&self) -> u64 {
        self.address
    }

    /// Returns whether the address is 0.
    pub fn is_null(self) -> bool {
        self.address == 0
    }

    /// Returns a null pointer.
    pub fn null() -> Self {
        Self::from_raw(0)
    }

    /// Casts to a pointer of another type with the same address.
    pub fn cast<U>(self) -> DevicePointer<U> {
        DevicePointer::from_raw(self.address)
    }
}

impl<T> DevicePointer<T> {
    /// Converts to a host pointer, through which the memory must not be read.
    pub fn as_ptr(&self) -> *const T {
        std::ptr::without_provenance(self.address as usize)
    }

    /// Converts to a host pointer, through which the memory must not be accessed.
    pub fn as_mut_ptr(&self) -> *mut T {
        std::ptr::without_provenance_mut(self.address as usize)
    }

    /// Returns the pointer moved forward by `count` elements.
    pub fn wrapping_offset(self, count: isize) -> Self {
        let bytes = count.wrapping_mul(size_of::<T>() as isize);
        Self::from_raw(self.address.wrapping_add_signed(bytes as i64))
    }

    /// Returns the pointer moved forward by `count` elements.
    pub fn wrapping_add(self, count: usize) -> Self {
        self.wrapping_offset(count as isize)
    }

    /// Returns the pointer moved back by `count` elements.
    pub fn wrapping_sub(self, count: usize) -> Self {
        self.wrapping_offset((count as isize).wrapping_neg())
    }

    /// Returns the pointer moved forward by `count` elements.
    ///
    /// # Safety
    /// The result must point into the same allocation or to its end.
    pub unsafe fn offset(self, count: isize) -> Self {
        self.wrapping_offset(count)
    }

    /// Returns the pointer moved forward by `count` elements.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::offset`].
    #[allow(clippy::should_implement_trait)]
    pub unsafe fn add(self, count: usize) -> Self {
        self.wrapping_add(count)
    }

    /// Returns the pointer moved back by `count` elements.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::offset`].
    #[allow(clippy::should_implement_trait)]
    pub unsafe fn sub(self, count: usize) -> Self {
        self.wrapping_sub(count)
    }
}

impl<T> UnifiedPointer<T> {
    /// Creates a unified pointer from an address.
    ///
    /// # Safety
    /// The address must be null or point into unified memory.
    pub unsafe fn wrap(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Converts to a host pointer.
    pub fn as_raw(&self) -> *const T {
        self.0
    }

    /// Converts to a mutable host pointer.
    pub fn as_raw_mut(&mut self) -> *mut T {
        self.0
    }

    /// Converts to a device pointer.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.0.addr() as u64)
    }

    /// Returns whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns a null pointer.
    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    pub(super) fn as_mut_ptr(self) -> *mut T {
        self.0
    }
}
