//! [`PinnedRange`]: a range of a page-locked buffer, for copies.

use std::fmt;
use std::ops::{Deref, DerefMut, Range, RangeBounds};

use super::PinnedBuffer;
use crate::memory::DeviceCopy;
use crate::memory::slice::resolve_or_panic;

/// A range of a [`PinnedBuffer`], for a copy. Owns the buffer and dereferences to the selected slice.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer};
///
/// let device = Device::emulated(0)?;
/// let stream = device.default_stream();
/// let all = PinnedBuffer::from_slice(&device, &[1u32, 2, 3, 4, 5])?;
/// let mut target = DeviceBuffer::uninit(&stream, 3)?;
/// let pending = stream.copy_from_host_async(all.into_range(1..4), &mut target)?;
/// let all = pending.wait()?.into_buffer();
/// assert_eq!(all.len(), 5);
/// assert_eq!(target.to_host()?, [2, 3, 4]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct PinnedRange<T: DeviceCopy> {
    buffer: PinnedBuffer<T>,
    range: Range<usize>,
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    /// Selects a range of the buffer for a copy. [`PinnedRange::into_buffer`] returns the buffer.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn into_range(self, bounds: impl RangeBounds<usize>) -> PinnedRange<T> {
        let range = resolve_or_panic(&bounds, self.len());
        PinnedRange { buffer: self, range }
    }
}

impl<T: DeviceCopy> PinnedRange<T> {
    /// Returns the whole buffer.
    pub fn into_buffer(self) -> PinnedBuffer<T> {
        self.buffer
    }

    /// Returns the range, in elements of the buffer.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn buffer(&self) -> &PinnedBuffer<T> {
        &self.buffer
    }

    /// Returns the address of the first element of the range.
    pub(crate) fn address(&self) -> *mut T {
        // SAFETY: the range is within the buffer.
        unsafe { self.buffer.address().add(self.range.start) }
    }
}

impl<T: DeviceCopy> Deref for PinnedRange<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer[self.range.clone()]
    }
}

impl<T: DeviceCopy> DerefMut for PinnedRange<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer[self.range.clone()]
    }
}

impl<T: DeviceCopy> fmt::Debug for PinnedRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedRange({:?} of {:?})", self.range, self.buffer)
    }
}
