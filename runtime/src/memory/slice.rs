//! Ranges of a buffer: [`DeviceSlice`] for reading, [`DeviceSliceMut`] for writing. They borrow the buffer as Rust
//! slices borrow a `Vec`, so two writers of the same element do not compile.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use super::storage::{BufferUse, Storage};
use super::usage::Access;
use super::{DeviceBuffer, DeviceCopy};
use super::{foreign, large_pages};
use crate::device::Device;
use crate::device::health::Quiet;
use crate::device::observe::{CopyDirection, site};
use crate::driver::DevicePtr;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// A range of a [`DeviceBuffer`], for reading.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4])?;
/// let middle = buffer.slice(1..3);
/// assert_eq!(middle.to_host()?, [2, 3]);
/// assert_eq!(middle.slice(1..).to_host()?, [3]);
/// assert!(middle.get(..3).is_none());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct DeviceSlice<'a, T: DeviceCopy> {
    storage: &'a Storage,
    /// Byte offset of the first element from the start of the buffer.
    start: usize,
    len: usize,
    /// True if work must wait for earlier uses of the elements; [`Self::assume_ordered`] sets it to false.
    ordered: bool,
    elements: PhantomData<&'a [T]>,
}

/// A range of a [`DeviceBuffer`], for reading and writing. No other code can access the elements while this value
/// exists.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 4)?;
/// let (mut first, mut rest) = buffer.as_mut_slice().split_at_mut(1);
/// first.copy_from_host(&[1])?;
/// rest.slice_mut(..2).copy_from_host(&[2, 3])?;
/// assert_eq!(buffer.to_host()?, [1, 2, 3, 0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct DeviceSliceMut<'a, T: DeviceCopy> {
    range: DeviceSlice<'a, T>,
    exclusive: PhantomData<&'a mut [T]>,
}

/// Returns the range that `bounds` selects from `len` elements; `None` if the range is out of bounds.
fn resolve(bounds: &impl RangeBounds<usize>, len: usize) -> Option<Range<usize>> {
    let start = match bounds.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match bounds.end_bound() {
        Bound::Included(&end) => end.checked_add(1)?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    (start <= end && end <= len).then_some(start..end)
}

/// Like [`resolve`], but panics instead of returning `None`.
///
/// # Panics
/// Panics if the range is out of bounds.
#[track_caller]
pub(crate) fn resolve_or_panic(bounds: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
    match resolve(bounds, len) {
        Some(range) => range,
        None => panic!(
            "range from {:?} to {:?} is not within {len} elements",
            bounds.start_bound(),
            bounds.end_bound(),
        ),
    }
}

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    pub(super) fn whole(storage: &'a Storage, len: usize) -> Self {
        Self { storage, start: 0, len, ordered: true, elements: PhantomData }
    }

    /// Returns a [`BufferUse`] that declares this access to these elements by [work that the caller
    /// enqueues](crate::extension).
    #[inline]
    pub fn used(&self, access: Access) -> BufferUse<'a> {
        let range = self.start..self.start + self.bytes();
        BufferUse { storage: self.storage, range, access, ordered: self.ordered }
    }

    /// Returns the same range without automatic waits, for programs that synchronize the streams themselves. Later work
    /// on the buffer still waits for these uses, and the memory is kept until they have run.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let [writer, reader] = [device.default_stream(), Stream::new(&device)?];
    /// let x = DeviceBuffer::from_host(&writer, &[1u32, 2])?;
    /// let mut y = DeviceBuffer::zeros(&reader, 2)?;
    /// reader.wait_event(&writer.record_event()?)?;
    /// // SAFETY: the copy waits for the event, and thus for the write to `x`.
    /// let ordered = unsafe { x.as_slice().assume_ordered() };
    /// reader.copy(ordered, &mut y)?;
    /// assert_eq!(y.to_host()?, [1, 2]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// Work that uses the result must be enqueued only on a stream where it is ordered after every write to these
    /// elements on other streams.
    pub unsafe fn assume_ordered(self) -> Self {
        Self { ordered: false, ..self }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the range has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device that owns the memory.
    pub fn device(&self) -> &'a Device {
        self.storage.device()
    }

    /// Returns the stream on which the buffer was created.
    pub fn stream(&self) -> &'a Stream {
        self.storage.stream()
    }

    /// Returns the address of the first element; null for an empty buffer.
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.storage.ptr().offset(self.start)
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns a subrange; `None` if it is out of bounds.
    pub fn get(&self, bounds: impl RangeBounds<usize>) -> Option<Self> {
        Some(self.range(resolve(&bounds, self.len)?))
    }

    /// Returns a subrange.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> Self {
        self.range(resolve_or_panic(&bounds, self.len))
    }

    fn range(&self, range: Range<usize>) -> Self {
        Self { start: self.start + range.start * size_of::<T>(), len: range.len(), ..*self }
    }

    /// Splits the range into two at index `middle`.
    ///
    /// # Panics
    /// Panics if `middle` is past the end, like `split_at` of slices.
    #[track_caller]
    pub fn split_at(&self, middle: usize) -> (Self, Self) {
        (self.slice(..middle), self.slice(middle..))
    }

    /// Reinterprets the bytes as elements of another type.
    ///
    /// # Errors
    /// Returns [`Error::Cast`] if the bytes are not a whole number of elements of the new type or are not aligned for
    /// them.
    pub fn cast<U: DeviceCopy>(self) -> Result<DeviceSlice<'a, U>> {
        let Self { storage, start, ordered, .. } = self;
        let len = foreign::cast::<T, U>(self.as_device_ptr(), self.len)?;
        Ok(DeviceSlice { storage, start, len, ordered, elements: PhantomData })
    }

    /// Copies the elements to a new host vector, after all earlier work on the buffer, and waits for the copy.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    #[track_caller]
    pub fn to_host(&self) -> Result<Vec<T>> {
        let _site = site();
        let mut host = host_vec::<T>(self.len)?;
        let (used, target) = (self.used(Access::Read), host.as_mut_ptr().cast());
        // SAFETY: the vector has capacity for `len` elements.
        unsafe {
            used.copy_and_wait(
                CopyDirection::DeviceToHost,
                "DeviceBuffer::to_host",
                self.as_device_ptr(),
                target,
            )
        }?;
        // SAFETY: the copy has written all `len` elements, and every bit pattern is a valid `T`.
        unsafe { host.set_len(self.len) };
        Ok(host)
    }

    /// Copies the elements to a host slice, after all earlier work on the buffer, and waits for the copy.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`], or the fault if a kernel faulted.
    #[track_caller]
    pub fn copy_to_host(&self, host: &mut [T]) -> Result<()> {
        let _site = site();
        check_lengths("copying to the host", host.len(), self.len)?;
        let (used, target) = (self.used(Access::Read), host.as_mut_ptr().cast());
        let call = "DeviceBuffer::copy_to_host";
        // SAFETY: both ranges have the same size, the host range is borrowed exclusively, and every bit pattern is a
        // valid `T`.
        unsafe { used.copy_and_wait(CopyDirection::DeviceToHost, call, self.as_device_ptr(), target) }
    }

    /// Copies the elements to a new buffer on `stream`, which may belong to another device. Does not block; the copy
    /// behaves like [`Stream::copy`].
    ///
    /// ```
    /// let stream = warpsmith_runtime::Device::emulated(0)?.default_stream();
    /// let x = warpsmith_runtime::DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4])?;
    /// assert_eq!(x.slice(1..3).clone_on(&stream)?.to_host()?, [2, 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceBuffer::uninit`] and [`Stream::copy`].
    #[track_caller]
    pub fn clone_on(&self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        let _site = site();
        let mut copy = DeviceBuffer::uninit(stream, self.len)?;
        stream.copy(self, &mut copy)?;
        Ok(copy)
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    pub(super) fn whole(storage: &'a mut Storage, len: usize) -> Self {
        Self { range: DeviceSlice::whole(storage, len), exclusive: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.range.len
    }

    /// Returns true if the range has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the device that owns the memory.
    pub fn device(&self) -> &'a Device {
        self.range.device()
    }

    /// Returns the stream on which the buffer was created.
    pub fn stream(&self) -> &'a Stream {
        self.range.stream()
    }

    /// Returns the address of the first element; null for an empty buffer.
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.range.as_device_ptr()
    }

    /// Returns the same range, for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.range
    }

    /// Returns a [`BufferUse`] that declares a write to these elements by [work that the caller
    /// enqueues](crate::extension).
    #[inline]
    pub fn used(&self) -> BufferUse<'a> {
        self.range.used(Access::Write)
    }

    /// Returns the same range without automatic waits, like [`DeviceSlice::assume_ordered`].
    ///
    /// See the example of [`DeviceSlice::assume_ordered`].
    ///
    /// # Safety
    /// Work that uses the result must be enqueued only on a stream where it is ordered after every use of these
    /// elements on other streams.
    pub unsafe fn assume_ordered(self) -> Self {
        // SAFETY: guaranteed by the caller.
        Self { range: unsafe { self.range.assume_ordered() }, exclusive: PhantomData }
    }

    /// Reborrows the range for a shorter lifetime.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { range: self.range, exclusive: PhantomData }
    }

    /// Returns a subrange; `None` if it is out of bounds.
    pub fn get_mut(&mut self, bounds: impl RangeBounds<usize>) -> Option<DeviceSliceMut<'_, T>> {
        Some(DeviceSliceMut { range: self.range.get(bounds)?, exclusive: PhantomData })
    }

    /// Returns a subrange.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { range: self.range.slice(bounds), exclusive: PhantomData }
    }

    /// Returns a subrange with this range's full lifetime.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn into_slice(self, bounds: impl RangeBounds<usize>) -> Self {
        Self { range: self.range.slice(bounds), exclusive: PhantomData }
    }

    /// Splits the elements at `middle` into two slices that can be written independently.
    ///
    /// # Panics
    /// Panics if `middle` is past the end, like `split_at_mut` of slices.
    #[track_caller]
    pub fn split_at_mut(self, middle: usize) -> (DeviceSliceMut<'a, T>, DeviceSliceMut<'a, T>) {
        let (before, after) = self.range.split_at(middle);
        let exclusive = |range| DeviceSliceMut { range, exclusive: PhantomData };
        (exclusive(before), exclusive(after))
    }

    /// Reinterprets the bytes as elements of another type, like [`DeviceSlice::cast`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::cast`].
    pub fn cast<U: DeviceCopy>(self) -> Result<DeviceSliceMut<'a, U>> {
        Ok(DeviceSliceMut { range: self.range.cast()?, exclusive: PhantomData })
    }

    /// Copies the elements to a new host vector, like [`DeviceSlice::to_host`].
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    #[track_caller]
    pub fn to_host(&self) -> Result<Vec<T>> {
        let _site = site();
        self.range.to_host()
    }

    /// Copies the elements from a host slice, after all earlier work on the buffer, and waits for the copy.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`], or the fault if a kernel faulted.
    #[track_caller]
    pub fn copy_from_host(&mut self, host: &[T]) -> Result<()> {
        let () = T::CHECKED;
        let _site = site();
        check_lengths("copying from the host", self.len(), host.len())?;
        let (target, source) = (self.as_device_ptr(), host.as_ptr().cast_mut().cast());
        // SAFETY: both ranges have the same size, and a copy to the device only reads the host range.
        unsafe {
            self.used().copy_and_wait(
                CopyDirection::HostToDevice,
                "DeviceBuffer::copy_from_host",
                target,
                source,
            )
        }
    }
}

/// Returns an empty vector with capacity for `len` elements.
pub(crate) fn host_vec<T>(len: usize) -> Result<Vec<T>> {
    let mut host = Vec::<T>::new();
    host.try_reserve_exact(len)
        .map_err(|_| Error::TooManyElements { elements: len, element_bytes: size_of::<T>() })?;
    large_pages::advise(host.as_mut_ptr().cast(), len * size_of::<T>());
    Ok(host)
}

pub(crate) fn check_lengths(operation: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::LengthMismatch { operation, left, right }) }
}

impl<T: DeviceCopy> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: DeviceCopy> Copy for DeviceSlice<'_, T> {}

impl<'a, T: DeviceCopy> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: DeviceCopy> From<&'a DeviceSliceMut<'_, T>> for DeviceSlice<'a, T> {
    fn from(slice: &'a DeviceSliceMut<'_, T>) -> Self {
        slice.as_slice()
    }
}

impl<'a, T: DeviceCopy> From<&DeviceSlice<'a, T>> for DeviceSlice<'a, T> {
    fn from(slice: &DeviceSlice<'a, T>) -> Self {
        *slice
    }
}

impl<'a, T: DeviceCopy> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_mut_slice()
    }
}

impl<'a, T: DeviceCopy> From<&'a mut DeviceSliceMut<'_, T>> for DeviceSliceMut<'a, T> {
    fn from(slice: &'a mut DeviceSliceMut<'_, T>) -> Self {
        slice.reborrow()
    }
}

/// Maximum number of elements in the `Debug` output.
const PRINTED: usize = 8;

impl<T: DeviceCopy + fmt::Debug> DeviceSlice<'_, T> {
    /// Formats the first elements under the type name `name`, or the address and the length if the elements cannot be
    /// copied now.
    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, device) = (self.len, self.device().id());
        write!(f, "{name}<{}>(", std::any::type_name::<T>())?;
        // The error is discarded, so it must not count as reporting a fault.
        let quiet = Quiet::begin();
        let first = Self { len: len.min(PRINTED), ordered: true, ..*self }.to_host();
        drop(quiet);
        let Ok(first) = first else {
            return write!(f, "{len} at {:#x} on {device})", self.as_device_ptr().0);
        };
        f.write_str("[")?;
        for (index, element) in first.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            element.fmt(f)?;
        }
        if len > PRINTED {
            write!(f, ", …; {len}")?;
        }
        write!(f, "] on {device})")
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("DeviceSlice", f)
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.range.fmt_as("DeviceSliceMut", f)
    }
}
