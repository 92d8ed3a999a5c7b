//! [`DeviceSlice`]: a slice of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use bytemuck::Zeroable;

use super::copy::{AsyncCopyDestination, CopyDestination, Transfer};
use super::{DeviceBuffer, DevicePointer};
use crate::DeviceCopy;
use crate::error::CudaResult;
use crate::stream::Stream;

/// Slice of device memory, used through references like a slice of host memory.
///
/// A reference contains the device address and the number of elements. It covers zero bytes of host memory, so a
/// reference is valid for any device address.
#[repr(transparent)]
pub struct DeviceSlice<T> {
    of: PhantomData<T>,
    places: [()],
}

/// Address of empty slices that have no memory.
const EMPTY: u64 = 256;

impl<T> DeviceSlice<T> {
    /// Creates a slice from an address.
    ///
    /// # Safety
    /// During `'a`, there must be `len` elements at the address, and this slice must be allowed to read them.
    pub unsafe fn from_raw_parts<'a>(pointer: DevicePointer<T>, len: usize) -> &'a DeviceSlice<T> {
        let address = if pointer.is_null() { EMPTY } else { pointer.as_raw() };
        let places =
            std::ptr::slice_from_raw_parts(std::ptr::without_provenance::<()>(address as usize), len);
        // SAFETY: the slice has no host bytes, and any non-null address is aligned for it.
        unsafe { &*(places as *const DeviceSlice<T>) }
    }

    /// Creates a mutable slice from an address.
    ///
    /// # Safety
    /// During `'a`, there must be `len` elements at the address, and nothing else may access them.
    pub unsafe fn from_raw_parts_mut<'a>(pointer: DevicePointer<T>, len: usize) -> &'a mut DeviceSlice<T> {
        let address = if pointer.is_null() { EMPTY } else { pointer.as_raw() };
        let places =
            std::ptr::slice_from_raw_parts_mut(std::ptr::without_provenance_mut::<()>(address as usize), len);
        // SAFETY: the slice has no host bytes, and any non-null address is aligned for it.
        unsafe { &mut *(places as *mut DeviceSlice<T>) }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the device address of the first element.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.places.as_ptr().addr() as u64)
    }

    fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    fn address(&self) -> u64 {
        self.as_device_ptr().as_raw()
    }

    /// Splits the slice into the first `middle` elements and the rest.
    ///
    /// # Panics
    /// Panics if `middle` exceeds the length.
    #[track_caller]
    pub fn split_at(&self, middle: usize) -> (&DeviceSlice<T>, &DeviceSlice<T>) {
        (&self[..middle], &self[middle..])
    }

    /// Splits the slice into the first `middle` elements and the rest.
    ///
    /// # Panics
    /// Panics if `middle` exceeds the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, middle: usize) -> (&mut DeviceSlice<T>, &mut DeviceSlice<T>) {
        let (first, second) = (self.part(0..middle), self.part(middle..self.len()));
        // SAFETY: both subslices belong to this slice and do not overlap.
        unsafe { (Self::from_raw_parts_mut(first.0, first.1), Self::from_raw_parts_mut(second.0, second.1)) }
    }

    /// Returns the address and the length of a subslice.
    #[track_caller]
    fn part(&self, range: Range<usize>) -> (DevicePointer<T>, usize) {
        let Range { start, end } = range;
        assert!(start <= end && end <= self.len(), "{start}..{end} of {} elements on the device", self.len());
        (self.as_device_ptr().wrapping_add(start), end - start)
    }
}

impl<T: DeviceCopy> DeviceSlice<T> {
    /// Copies the elements to the host.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_to`].
    pub fn as_host_vec(&self) -> CudaResult<Vec<T>> {
        let mut host: Vec<T> = Vec::with_capacity(self.len());
        let to = host.as_mut_ptr();
        // SAFETY: the vector has room for the elements, which are initialized when the copy is complete.
        unsafe {
            Transfer::ToHost { from: self.address(), to: to.cast() }.run(self.bytes())?;
            host.set_len(self.len());
        }
        Ok(host)
    }

    /// Sets every byte to 0.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_from`].
    pub fn set_zero(&mut self) -> CudaResult<()>
    where
        T: Zeroable,
    {
        // SAFETY: zero bytes are a valid value, and nothing else accesses the memory.
        unsafe { Transfer::Set { value: 0, to: self.address() }.run(self.bytes()) }
    }

    /// Enqueues a memset of every byte to 0.
    ///
    /// # Errors
    /// Returns driver errors.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`AsyncCopyDestination::async_copy_from`].
    pub unsafe fn set_zero_async(&mut self, stream: &Stream) -> CudaResult<()>
    where
        T: Zeroable,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { Transfer::Set { value: 0, to: self.address() }.enqueue(self.bytes(), stream) }
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_from`].
    pub fn set_8(&mut self, value: u8) -> CudaResult<()>
    where
        T: bytemuck::Pod,
    {
        // SAFETY: all bit patterns are valid values, and nothing else accesses the memory.
        unsafe { Transfer::Set { value, to: self.address() }.run(self.bytes()) }
    }

    /// Enqueues a memset of every byte to `value`.
    ///
    /// # Errors
    /// Returns driver errors.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`AsyncCopyDestination::async_copy_from`].
    pub unsafe fn set_8_async(&mut self, value: u8, stream: &Stream) -> CudaResult<()>
    where
        T: bytemuck::Pod,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { Transfer::Set { value, to: self.address() }.enqueue(self.bytes(), stream) }
    }
}

impl<T> fmt::Debug for DeviceSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice({} elements at {:?})", self.len(), self.as_device_ptr())
    }
}

macro_rules! ranges {
    ($($range:ty, |$bounds:ident, $len:ident| $resolved:expr;)*) => { $(
        impl<T> Index<$range> for DeviceSlice<T> {
            type Output = DeviceSlice<T>;

            #[track_caller]
            fn index(&self, $bounds: $range) -> &DeviceSlice<T> {
                let $len = self.len();
                let _ = $len;
                let (pointer, len) = self.part($resolved);
                // SAFETY: this is a subslice of the slice, which is borrowed for the same lifetime.
                unsafe { DeviceSlice::from_raw_parts(pointer, len) }
            }
        }

        impl<T> IndexMut<$range> for DeviceSlice<T> {
            #[track_caller]
            fn index_mut(&mut self, $bounds: $range) -> &mut DeviceSlice<T> {
                let $len = self.len();
                let _ = $len;
                let (pointer, len) = self.part($resolved);
                // SAFETY: this is a subslice of the slice, which is borrowed for the same lifetime.
                unsafe { DeviceSlice::from_raw_parts_mut(pointer, len) }
            }
        }
    )* };
}
ranges! {
    Range<usize>, |range, len| range;
    RangeFrom<usize>, |range, len| range.start..len;
    RangeTo<usize>, |range, len| 0..range.end;
    RangeFull, |_range, len| 0..len;
    RangeInclusive<usize>, |range, len| *range.start()..range.end().saturating_add(1);
    RangeToInclusive<usize>, |range, len| 0..range.end.saturating_add(1);
}

#[track_caller]
fn check(device: usize, other: usize) {
    assert!(
        device == other,
        "the device slice has {device} elements, but the other side of the copy has {other}: make them equal"
    );
}

impl<T: DeviceCopy, I: AsRef<[T]> + AsMut<[T]> + ?Sized> CopyDestination<I> for DeviceSlice<T> {
    #[track_caller]
    fn copy_from(&mut self, source: &I) -> CudaResult<()> {
        let source = source.as_ref();
        check(self.len(), source.len());
        let transfer = Transfer::ToDevice { from: source.as_ptr().cast(), to: self.address() };
        // SAFETY: both ranges have the same number of elements and are borrowed until the copy is complete.
        unsafe { transfer.run(self.bytes()) }
    }

    #[track_caller]
    fn copy_to(&self, dest: &mut I) -> CudaResult<()> {
        let dest = dest.as_mut();
        check(self.len(), dest.len());
        let transfer = Transfer::ToHost { from: self.address(), to: dest.as_mut_ptr().cast() };
        // SAFETY: both ranges have the same number of elements and are borrowed until the copy is complete.
        unsafe { transfer.run(self.bytes()) }
    }
}

impl<T: DeviceCopy, I: AsRef<[T]> + AsMut<[T]> + ?Sized> AsyncCopyDestination<I> for DeviceSlice<T> {
    #[track_caller]
    unsafe fn async_copy_from(&mut self, source: &I, stream: &Stream) -> CudaResult<()> {
        let source = source.as_ref();
        check(self.len(), source.len());
        let transfer = Transfer::ToDevice { from: source.as_ptr().cast(), to: self.address() };
        // SAFETY: both ranges have the same number of elements; the caller guarantees the rest.
        unsafe { transfer.enqueue(self.bytes(), stream) }
    }

    #[track_caller]
    unsafe fn async_copy_to(&self, dest: &mut I, stream: &Stream) -> CudaResult<()> {
        let dest = dest.as_mut();
        check(self.len(), dest.len());
        let transfer = Transfer::ToHost { from: self.address(), to: dest.as_mut_ptr().cast() };
        // SAFETY: both ranges have the same number of elements; the caller guarantees the rest.
        unsafe { transfer.enqueue(self.bytes(), stream) }
    }
}

macro_rules! between_devices {
    ($($other:ty),*) => { $(
        impl<T: DeviceCopy> CopyDestination<$other> for DeviceSlice<T> {
            #[track_caller]
            fn copy_from(&mut self, source: &$other) -> CudaResult<()> {
                check(self.len(), source.len());
                let transfer = Transfer::OnDevice { from: source.address(), to: self.address() };
                // SAFETY: both ranges have the same number of elements and are borrowed until the copy is complete.
                // They do not overlap, because one of them is borrowed mutably.
                unsafe { transfer.run(self.bytes()) }
            }

            #[track_caller]
            fn copy_to(&self, dest: &mut $other) -> CudaResult<()> {
                check(self.len(), dest.len());
                let transfer = Transfer::OnDevice { from: self.address(), to: dest.address() };
                // SAFETY: as above.
                unsafe { transfer.run(self.bytes()) }
            }
        }

        impl<T: DeviceCopy> AsyncCopyDestination<$other> for DeviceSlice<T> {
            #[track_caller]
            unsafe fn async_copy_from(&mut self, source: &$other, stream: &Stream) -> CudaResult<()> {
                check(self.len(), source.len());
                let transfer = Transfer::OnDevice { from: source.address(), to: self.address() };
                // SAFETY: both ranges have the same number of elements; the caller guarantees the rest.
                unsafe { transfer.enqueue(self.bytes(), stream) }
            }

            #[track_caller]
            unsafe fn async_copy_to(&self, dest: &mut $other, stream: &Stream) -> CudaResult<()> {
                check(self.len(), dest.len());
                let transfer = Transfer::OnDevice { from: self.address(), to: dest.address() };
                // SAFETY: as above.
                unsafe { transfer.enqueue(self.bytes(), stream) }
            }
        }
    )* };
}
between_devices!(DeviceSlice<T>, DeviceBuffer<T>);
