//! [`DeviceBuffer`]: elements on the device that it owns.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;

use super::copy::AsyncCopyDestination;
use super::malloc::size_of_values;
use super::{
    CopyDestination, DevicePointer, DeviceSlice, cuda_free, cuda_free_async, cuda_malloc, cuda_malloc_async,
};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};
use crate::stream::Stream;

/// Elements on the device. Dropping it waits for all work on the device.
///
/// ```
/// # use cust::memory::*;
/// # fn main() -> Result<(), cust::error::CudaError> {
/// # let _context = cust::context::Context::from_runtime(&cust::runtime::Device::emulated(0)?);
/// let mut buffer = DeviceBuffer::from_slice(&[1.0f32, 2.0, 3.0])?;
/// buffer[1..].copy_from(&[5.0, 6.0])?;
/// assert_eq!(buffer.as_host_vec()?, [1.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<T: DeviceCopy> {
    pointer: DevicePointer<T>,
    len: usize,
}

// SAFETY: it owns its elements.
unsafe impl<T: DeviceCopy + Send> Send for DeviceBuffer<T> {}
// SAFETY: a shared reference reads them only.
unsafe impl<T: DeviceCopy + Sync> Sync for DeviceBuffer<T> {}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Memory for `len` elements.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// It is written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => DevicePointer::null(),
            // SAFETY: the caller's promise; `drop` frees it.
            _ => unsafe { cuda_malloc(len)? },
        };
        Ok(Self { pointer, len })
    }

    /// Memory for `len` elements, which work of a stream can use at once.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// As for [`Self::uninitialized`]; other streams use it behind the work that `stream` has now.
    pub unsafe fn uninitialized_async(len: usize, stream: &Stream) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => DevicePointer::null(),
            // SAFETY: the caller's promise; `drop` frees it.
            _ => unsafe { cuda_malloc_async(stream, len)? },
        };
        Ok(Self { pointer, len })
    }

    /// `len` elements of zeros.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    pub fn zeroed(len: usize) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        // SAFETY: it is written at once.
        let mut buffer = unsafe { Self::uninitialized(len)? };
        buffer.set_zero()?;
        Ok(buffer)
    }

    /// `len` elements of zeros, which the stream sets.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// It is not read before the stream has set it.
    pub unsafe fn zeroed_async(len: usize, stream: &Stream) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let mut buffer = Self::uninitialized_async(len, stream)?;
            buffer.set_zero_async(stream)?;
            Ok(buffer)
        }
    }

    /// A copy of elements of the host.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
        // SAFETY: it is written at once.
        let mut buffer = unsafe { Self::uninitialized(elements.len())? };
        copy_in(&mut buffer, elements)?;
        Ok(buffer)
    }

    /// A copy of elements of the host, which the stream makes.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// The elements stay as they are, and the buffer is not used by other streams, until the copy is done.
    pub unsafe fn from_slice_async(elements: &[T], stream: &Stream) -> CudaResult<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            let buffer = Self::uninitialized_async(elements.len(), stream)?;
            let transfer = super::copy::Transfer::ToDevice {
                from: elements.as_ptr().cast(),
                to: buffer.pointer.as_raw(),
            };
            transfer.enqueue(size_of_val(elements), stream)?;
            Ok(buffer)
        }
    }

    /// The buffer of memory from [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// `pointer` came from there with `len` elements, or `len` is 0, and nothing else frees it.
    pub unsafe fn from_raw_parts(pointer: DevicePointer<T>, len: usize) -> Self {
        Self { pointer, len }
    }

    /// Address and length of the memory, to be freed by [`cuda_free`].
    pub fn into_raw_parts(self) -> (DevicePointer<T>, usize) {
        let buffer = ManuallyDrop::new(self);
        (buffer.pointer, buffer.len)
    }

    /// The same bytes as another type.
    ///
    /// # Panics
    ///
    /// If they are no whole number of `U`.
    #[track_caller]
    pub fn cast<U: DeviceCopy + bytemuck::Pod>(self) -> DeviceBuffer<U>
    where
        T: bytemuck::Pod,
    {
        let bytes = self.len * size_of::<T>();
        let size = size_of::<U>().max(1);
        assert!(bytes.is_multiple_of(size), "{bytes} bytes are no whole number of elements of {size} bytes");
        let (pointer, _) = self.into_raw_parts();
        DeviceBuffer { pointer: pointer.cast(), len: bytes / size }
    }

    /// Frees it behind the work of a stream.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub fn drop_async(self, stream: &Stream) -> CudaResult<()> {
        let (pointer, _) = self.into_raw_parts();
        if pointer.is_null() {
            return Ok(());
        }
        // Work of other streams may use it too: the stream frees it behind what they have now.
        // SAFETY: the buffer is gone; a launch's promise is that its memory stays until the kernel is done.
        unsafe { cuda_free_async(stream, pointer) }
    }

    /// Drops it.
    ///
    /// # Errors
    ///
    /// A fault of earlier work; the memory is free, and the buffer that comes back is empty.
    pub fn drop(buffer: DeviceBuffer<T>) -> DropResult<DeviceBuffer<T>> {
        let (pointer, _) = buffer.into_raw_parts();
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the buffer is gone.
        unsafe { cuda_free(pointer) }
            .map_err(|error| (error, DeviceBuffer { pointer: DevicePointer::null(), len: 0 }))
    }

    /// The elements.
    pub fn as_slice(&self) -> &DeviceSlice<T> {
        self
    }

    pub(super) fn address(&self) -> u64 {
        self.pointer.as_raw()
    }
}

fn copy_in<T: DeviceCopy>(buffer: &mut DeviceSlice<T>, elements: &[T]) -> CudaResult<()> {
    let transfer = super::copy::Transfer::ToDevice {
        from: elements.as_ptr().cast(),
        to: buffer.as_device_ptr().as_raw(),
    };
    // SAFETY: both have as many elements, and are borrowed until it is done.
    unsafe { transfer.run(size_of_val(elements)) }
}

impl<T: DeviceCopy> Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: its memory, borrowed as long.
        unsafe { DeviceSlice::from_raw_parts(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for DeviceBuffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: its memory, borrowed as long.
        unsafe { DeviceSlice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // An error is of earlier work, and is reported by other calls too.
            // SAFETY: nothing has it any more.
            let _ = unsafe { cuda_free(self.pointer) };
        }
    }
}

impl<T: DeviceCopy> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} elements at {:?})", self.len, self.pointer)
    }
}

impl<T: DeviceCopy, O: ?Sized> CopyDestination<O> for DeviceBuffer<T>
where
    DeviceSlice<T>: CopyDestination<O>,
{
    #[track_caller]
    fn copy_from(&mut self, source: &O) -> CudaResult<()> {
        (**self).copy_from(source)
    }

    #[track_caller]
    fn copy_to(&self, dest: &mut O) -> CudaResult<()> {
        (**self).copy_to(dest)
    }
}

impl<T: DeviceCopy, O: ?Sized> AsyncCopyDestination<O> for DeviceBuffer<T>
where
    DeviceSlice<T>: AsyncCopyDestination<O>,
{
    #[track_caller]
    unsafe fn async_copy_from(&mut self, source: &O, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { (**self).async_copy_from(source, stream) }
    }

    #[track_caller]
    unsafe fn async_copy_to(&self, dest: &mut O, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { (**self).async_copy_to(dest, stream) }
    }
}
