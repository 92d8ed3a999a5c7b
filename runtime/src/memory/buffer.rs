//! [`DeviceBuffer`]: elements in device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::storage::Storage;
use super::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::device::Device;
use crate::device::observe::site;
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::stream::Stream;

/// Minimum alignment of blocks from the driver and the allocator, in bytes.
pub(super) const ALIGN: usize = 256;
/// Maximum bytes that [`DeviceBuffer::filled`] copies from the host.
const FILL_BYTES: usize = 64 << 10;

/// `len` elements in device memory, aligned to at least 256 bytes unless the memory is [foreign](Self::from_raw).
///
/// A buffer is created on a stream, its home stream, on which its own copies run. It can be used on any stream of the
/// same device and copied to and from other devices; the runtime inserts the waits between streams. This type's copies
/// from and to host memory wait until they have finished; [`Stream`]'s methods do not (see
/// [`transfer`](crate::transfer)). Dropping a buffer does not block: its memory is reused once the work that uses it
/// has finished or, on the home stream, in stream order.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut buffer = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
/// buffer.slice_mut(1..).copy_from_host(&[5.0, 6.0])?;
/// assert_eq!(buffer.to_host()?, [1.0, 5.0, 6.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Debug output
/// `{:?}` prints the first eight elements and the device, for example `DeviceBuffer<f32>([1.0, 5.0, 6.0] on cpu:0)`.
/// Printing performs a blocking copy of these elements, which waits for earlier work on the buffer and appears in
/// profiles. If the copy is impossible (during a capture, on a lost device, in a host function), the length and the
/// address are printed instead. Device faults and `warpsmith check` findings are left for the next call that returns
/// errors.
///
/// # Alignment
/// Element types with a larger alignment do not compile:
///
/// ```compile_fail
/// # use warpsmith_runtime::{Device, DeviceBuffer};
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// #[derive(Clone, Copy)]
/// #[repr(C, align(512))]
/// struct Page([u8; 512]);
/// # unsafe impl bytemuck::Zeroable for Page {}
/// # unsafe impl bytemuck::Pod for Page {}
/// let stream = Device::emulated(0)?.default_stream();
/// let pages = DeviceBuffer::<Page>::uninit(&stream, 1)?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<T: DeviceCopy> {
    pub(super) storage: Storage,
    pub(super) len: usize,
    pub(super) elements: PhantomData<T>,
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Allocates uninitialized memory for `len` elements. No work is enqueued.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let mut buffer = DeviceBuffer::<u32>::uninit(&stream, 3)?;
    /// // The contents are arbitrary until they are written.
    /// stream.memset(&mut buffer, 0)?;
    /// assert_eq!(buffer.to_host()?, [0; 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory) or
    /// [`Error::TooManyElements`](crate::Error::TooManyElements).
    #[track_caller]
    pub fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        let _site = site();
        let () = T::CHECKED;
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "elements of device buffers can be aligned to at most 256 bytes"
            )
        };
        let storage = Storage::allocate(stream, len, size_of::<T>())?;
        Ok(Self { storage, len, elements: PhantomData })
    }

    /// Allocates memory for `len` elements and enqueues a memset on the stream that fills it with zero bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::uninit`], or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn zeros(stream: &Stream, len: usize) -> Result<Self> {
        let _site = site();
        let mut buffer = Self::uninit(stream, len)?;
        stream.memset(&mut buffer, 0)?;
        Ok(buffer)
    }

    /// Allocates memory for `len` elements and enqueues work on the stream that sets each element to `value`.
    ///
    /// For a value whose bytes are all equal, such as 0 or the integer -1, the work is one memset. For other values,
    /// the host copies up to 64 KiB, and device copies then repeatedly double the filled range.
    ///
    /// ```
    /// # use warpsmith_runtime::{Device, DeviceBuffer};
    /// let stream = Device::emulated(0)?.default_stream();
    /// let x = DeviceBuffer::filled(&stream, 3, 0.5f32)?;
    /// assert_eq!(x.to_host()?, [0.5; 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::uninit`] and [`Stream::copy_from_host_async`]. Only a memset can be captured;
    /// during a capture, other values return [`GraphError::NotCapturable`](crate::error::GraphError::NotCapturable).
    #[track_caller]
    pub fn filled(stream: &Stream, len: usize, value: T) -> Result<Self> {
        let _site = site();
        let mut buffer = Self::uninit(stream, len)?;
        // SAFETY: `uninit` compiles only if the type has no padding, so each byte of the value is initialized.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        match bytes {
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => {
                stream.memset(&mut buffer, *first)?
            }
            [_, ..] if len > 0 => {
                let mut filled = (FILL_BYTES / bytes.len()).max(1).min(len);
                drop(stream.copy_from_host_async(vec![value; filled], buffer.slice_mut(..filled))?);
                while filled < len {
                    let (done, rest) = buffer.split_at_mut(filled);
                    let more = filled.min(rest.len());
                    stream.copy(done.as_slice().slice(..more), rest.into_slice(..more))?;
                    filled += more;
                }
            }
            _ => {}
        }
        Ok(buffer)
    }

    /// Computes the elements on the host from their indices and copies them to a new buffer. Blocks until the copy has
    /// finished.
    ///
    /// ```
    /// # use warpsmith_runtime::{Device, DeviceBuffer};
    /// let stream = Device::emulated(0)?.default_stream();
    /// let squares = DeviceBuffer::from_fn(&stream, 4, |index| (index * index) as u32)?;
    /// assert_eq!(squares.to_host()?, [0, 1, 4, 9]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_host`].
    #[track_caller]
    pub fn from_fn(stream: &Stream, len: usize, element: impl FnMut(usize) -> T) -> Result<Self> {
        let _site = site();
        Self::from_host(stream, &(0..len).map(element).collect::<Vec<_>>())
    }

    /// Copies a host slice to a new buffer. Blocks until the copy has finished.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::uninit`], or the fault if a kernel on the stream faulted.
    #[track_caller]
    pub fn from_host(stream: &Stream, host: &[T]) -> Result<Self> {
        let _site = site();
        let mut buffer = Self::uninit(stream, host.len())?;
        buffer.copy_from_host(host)?;
        Ok(buffer)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device that owns the memory.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// Returns the home stream, on which this buffer's own copies run.
    pub fn stream(&self) -> &Stream {
        self.storage.stream()
    }

    /// Returns the address of the first element; null for an empty buffer.
    ///
    /// Work enqueued with the raw address is not tracked: the caller must synchronize it and keep the buffer alive
    /// until it has run.
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.storage.ptr()
    }

    /// Records that the work enqueued on `stream` so far uses the memory. Later work on the buffer waits for it, and
    /// the memory is not reused before it has finished. Call this method each time after enqueueing work with the raw
    /// address; this crate's own launches and copies record their streams automatically.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`](crate::Error::DifferentDevices) for a stream of another device.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.device().check_process()?;
        let what = || ("recording a stream".to_owned(), "the buffer".to_owned());
        stream.check_home(self.device(), what, "record a stream of the same device")?;
        self.storage.record_stream(stream);
        Ok(())
    }

    /// Returns all elements, for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::whole(&self.storage, self.len)
    }

    /// Returns all elements, for writing.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::whole(&mut self.storage, self.len)
    }

    /// Returns a range of the elements, for reading.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing; [`DeviceSlice::get`] does not panic.
    #[track_caller]
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> DeviceSlice<'_, T> {
        self.as_slice().slice(bounds)
    }

    /// Returns a range of the elements, for writing.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, like slice indexing; [`DeviceSliceMut::get_mut`] does not panic.
    #[track_caller]
    pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.as_mut_slice().into_slice(bounds)
    }

    /// Splits the elements at `middle` into two slices that can be written independently.
    ///
    /// # Panics
    /// Panics if `middle` is past the end, like `split_at_mut` of slices.
    #[track_caller]
    pub fn split_at_mut(&mut self, middle: usize) -> (DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>) {
        self.as_mut_slice().split_at_mut(middle)
    }

    /// Copies the elements to a new host vector; see [`DeviceSlice::to_host`].
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    #[track_caller]
    pub fn to_host(&self) -> Result<Vec<T>> {
        let _site = site();
        self.as_slice().to_host()
    }

    /// Copies the elements to a host slice; see [`DeviceSlice::copy_to_host`].
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`](crate::Error::LengthMismatch), or the fault if a kernel faulted.
    #[track_caller]
    pub fn copy_to_host(&self, host: &mut [T]) -> Result<()> {
        let _site = site();
        self.as_slice().copy_to_host(host)
    }

    /// Copies the elements from a host slice; see [`DeviceSliceMut::copy_from_host`].
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`](crate::Error::LengthMismatch), or the fault if a kernel faulted.
    #[track_caller]
    pub fn copy_from_host(&mut self, host: &[T]) -> Result<()> {
        let _site = site();
        self.as_mut_slice().copy_from_host(host)
    }

    /// Copies the elements to a new buffer on a stream of any device; see [`DeviceSlice::clone_on`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::uninit`] and [`Stream::copy`].
    #[track_caller]
    pub fn clone_on(&self, stream: &Stream) -> Result<Self> {
        let _site = site();
        self.as_slice().clone_on(stream)
    }
}

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt_as("DeviceBuffer", f)
    }
}
