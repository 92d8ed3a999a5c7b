//! [`DeviceBuffer`]: an array in device memory.

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

/// Array in device memory. Dropping the buffer waits for all work on the device.
///
/// ```
/// # use cust::memory::*;
/// # let _context = cust::context::Context::from_runtime(&cust::runtime::Device::emulated(0)?);
/// let mut buffer = DeviceBuffer::from_slice(&[1.0f32, 2.0, 3.0])?;
/// buffer[1..].copy_from(&[5.0, 6.0])?;
/// assert_eq!(buffer.as_host_vec()?, [1.0, 5.0, 6.0]);
/// # Ok::<(), cust::error::CudaError>(())
/// ```
pub struct DeviceBuffer<T: DeviceCopy> {
    pointer: DevicePointer<T>,
    len: usize,
}

// SAFETY: the buffer owns its elements.
unsafe impl<T: DeviceCopy + Send> Send for DeviceBuffer<T> {}
// SAFETY: a shared reference to the buffer only allows reads.
unsafe impl<T: DeviceCopy + Sync> Sync for DeviceBuffer<T> {}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Allocates memory for `len` elements.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// The memory must be written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => DevicePointer::null(),
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc(len)? },
        };
        Ok(Self { pointer, len })
    }

    /// Allocates memory for `len` elements. Work enqueued in `stream` can use the memory immediately.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::uninitialized`]. Other streams may use the memory only
    /// after the work already enqueued in `stream`.
    pub unsafe fn uninitialized_async(len: usize, stream: &Stream) -> CudaResult<Self> {
        let pointer = match size_of_values::<T>(len)? {
            0 => DevicePointer::null(),
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc_async(stream, len)? },
        };
        Ok(Self { pointer, len })
    }

    /// Allocates `len` elements of zeros.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    pub fn zeroed(len: usize) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        // SAFETY: the memory is written immediately after its allocation.
        let mut buffer = unsafe { Self::uninitialized(len)? };
        buffer.set_zero()?;
        Ok(buffer)
    }

    /// Allocates `len` elements, which `stream` sets to zero.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// The buffer must not be read before the stream has set its elements.
    pub unsafe fn zeroed_async(len: usize, stream: &Stream) -> CudaResult<Self>
    where
        T: Zeroable,
    {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut buffer = Self::uninitialized_async(len, stream)?;
            buffer.set_zero_async(stream)?;
            Ok(buffer)
        }
    }

    /// Copies elements from the host.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    pub fn from_slice(elements: &[T]) -> CudaResult<Self> {
        // SAFETY: the memory is written immediately after its allocation.
        let mut buffer = unsafe { Self::uninitialized(elements.len())? };
        copy_in(&mut buffer, elements)?;
        Ok(buffer)
    }

    /// Copies elements from the host in a stream.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// Until the copy is complete, the elements must not change, and other streams must not use the buffer.
    pub unsafe fn from_slice_async(elements: &[T], stream: &Stream) -> CudaResult<Self> {
        // SAFETY: guaranteed by the caller.
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

    /// Takes ownership of memory allocated by [`cuda_malloc`].
    ///
    /// # Safety
    /// `pointer` must come from [`cuda_malloc`] for `len` elements, unless `len` is 0. Nothing else may free it.
    pub unsafe fn from_raw_parts(pointer: DevicePointer<T>, len: usize) -> Self {
        Self { pointer, len }
    }

    /// Releases ownership of the memory and returns its address and its length. The memory must be freed with
    /// [`cuda_free`].
    pub fn into_raw_parts(self) -> (DevicePointer<T>, usize) {
        let buffer = ManuallyDrop::new(self);
        (buffer.pointer, buffer.len)
    }

    /// Reinterprets the bytes as elements of another type.
    ///
    /// # Panics
    /// Panics if the size in bytes is not a multiple of the size of `U`.
    #[track_caller]
    pub fn cast<U: DeviceCopy + bytemuck::Pod>(self) -> DeviceBuffer<U>
    where
        T: bytemuck::Pod,
    {
        let bytes = self.len * size_of::<T>();
        let size = size_of::<U>().max(1);
        assert!(
            bytes.is_multiple_of(size),
            "{bytes} bytes are not a whole number of elements of {size} bytes"
        );
        let (pointer, _) = self.into_raw_parts();
        DeviceBuffer { pointer: pointer.cast(), len: bytes / size }
    }

    /// Frees the memory after the work already enqueued in `stream`.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn drop_async(self, stream: &Stream) -> CudaResult<()> {
        let (pointer, _) = self.into_raw_parts();
        if pointer.is_null() {
            return Ok(());
        }
        // Work in other streams may also use the memory, so the stream frees it only after the work already enqueued in
        // those streams. SAFETY: the buffer has been consumed. The caller of a launch guarantees that the memory stays
        // valid until the kernel is complete.
        unsafe { cuda_free_async(stream, pointer) }
    }

    /// Drops the buffer and reports any error.
    ///
    /// # Errors
    /// Returns a fault in earlier work. The memory is freed nevertheless, so the returned buffer is empty.
    pub fn drop(buffer: DeviceBuffer<T>) -> DropResult<DeviceBuffer<T>> {
        let (pointer, _) = buffer.into_raw_parts();
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the buffer has been consumed.
        unsafe { cuda_free(pointer) }
            .map_err(|error| (error, DeviceBuffer { pointer: DevicePointer::null(), len: 0 }))
    }

    /// Returns the elements as a device slice.
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
    // SAFETY: both ranges have the same number of elements and are borrowed until the copy is complete.
    unsafe { transfer.run(size_of_val(elements)) }
}

impl<T: DeviceCopy> Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: this is the memory of the buffer, which is borrowed for the same lifetime.
        unsafe { DeviceSlice::from_raw_parts(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for DeviceBuffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: this is the memory of the buffer, which is borrowed for the same lifetime.
        unsafe { DeviceSlice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl<T: DeviceCopy> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // Any error comes from earlier work, and other calls also report it. SAFETY: nothing else uses the memory.
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
        // SAFETY: guaranteed by the caller.
        unsafe { (**self).async_copy_from(source, stream) }
    }

    #[track_caller]
    unsafe fn async_copy_to(&self, dest: &mut O, stream: &Stream) -> CudaResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { (**self).async_copy_to(dest, stream) }
    }
}
