//! [`DeviceBox`]: one value on the device.

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};

use bytemuck::Zeroable;

use super::copy::{AsyncCopyDestination, Transfer};
use super::{CopyDestination, DevicePointer, cuda_free, cuda_free_async, cuda_malloc, cuda_malloc_async};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};
use crate::stream::Stream;

/// One value on the device. Dropping the box waits for all work on the device.
pub struct DeviceBox<T> {
    pointer: DevicePointer<T>,
}

// SAFETY: the box owns its value.
unsafe impl<T: Send> Send for DeviceBox<T> {}
// SAFETY: a shared reference to the box only allows reads.
unsafe impl<T: Sync> Sync for DeviceBox<T> {}

impl<T: DeviceCopy> DeviceBox<T> {
    /// Copies a value to the device.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    pub fn new(value: &T) -> CudaResult<Self> {
        // SAFETY: the memory is written immediately after its allocation.
        let mut boxed = unsafe { Self::uninitialized()? };
        boxed.copy_from(value)?;
        Ok(boxed)
    }

    /// Copies a value to the device in a stream. The value may change as soon as the function has returned.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// Other streams may use the box only after the copy.
    pub unsafe fn new_async(value: &T, stream: &Stream) -> CudaResult<Self> {
        // SAFETY: guaranteed by the caller.
        let mut boxed = unsafe { Self::uninitialized_async(stream)? };
        // Without a wait, the copy could outlive the value, which may be a temporary of the caller. SAFETY: the value
        // is borrowed until the wait has ended.
        unsafe { boxed.async_copy_from(value, stream)? };
        stream.synchronize()?;
        Ok(boxed)
    }

    /// Copies the value to the host.
    ///
    /// # Errors
    /// Returns the same errors as [`CopyDestination::copy_to`].
    pub fn as_host_value(&self) -> CudaResult<T> {
        let mut value = MaybeUninit::uninit();
        // SAFETY: there is room for the value, which is initialized when the copy is complete.
        unsafe {
            self.to_host(value.as_mut_ptr()).run(size_of::<T>())?;
            Ok(value.assume_init())
        }
    }

    /// Allocates a value of zeros.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    pub fn zeroed() -> CudaResult<Self>
    where
        T: Zeroable,
    {
        Self::new(&T::zeroed())
    }
}

impl<T> DeviceBox<T> {
    /// Allocates memory for a value.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// The memory must be written before it is read.
    pub unsafe fn uninitialized() -> CudaResult<Self> {
        let pointer = match size_of::<T>() {
            0 => DevicePointer::null(),
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc(1)? },
        };
        Ok(Self { pointer })
    }

    /// Allocates memory for a value. Work enqueued in `stream` can use the memory immediately.
    ///
    /// # Errors
    /// Returns the same errors as [`cuda_malloc`].
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::uninitialized`]. Other streams may use the memory only
    /// after the work already enqueued in `stream`.
    pub unsafe fn uninitialized_async(stream: &Stream) -> CudaResult<Self> {
        let pointer = match size_of::<T>() {
            0 => DevicePointer::null(),
            // SAFETY: the caller guarantees the requirements; `drop` frees the memory.
            _ => unsafe { cuda_malloc_async(stream, 1)? },
        };
        Ok(Self { pointer })
    }

    /// Takes ownership of memory allocated by [`cuda_malloc`].
    ///
    /// # Safety
    /// `pointer` must be null or come from [`cuda_malloc`], and nothing else may free the memory.
    pub unsafe fn from_device(pointer: DevicePointer<T>) -> Self {
        Self { pointer }
    }

    /// Takes ownership of memory allocated by [`cuda_malloc`], given by its address.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::from_device`].
    pub unsafe fn from_raw(address: u64) -> Self {
        Self { pointer: DevicePointer::from_raw(address) }
    }

    /// Releases ownership of the memory and returns its address; the memory must be freed with [`cuda_free`].
    pub fn into_device(boxed: DeviceBox<T>) -> DevicePointer<T> {
        ManuallyDrop::new(boxed).pointer
    }

    /// Returns the device address.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.pointer
    }

    /// Frees the memory after the work already enqueued in `stream`.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn drop_async(self, stream: &Stream) -> CudaResult<()> {
        let pointer = Self::into_device(self);
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the box has been consumed. The caller of a launch guarantees that the memory stays valid until the
        // kernel is complete.
        unsafe { cuda_free_async(stream, pointer) }
    }

    /// Drops the box and reports any error.
    ///
    /// # Errors
    /// Returns a fault in earlier work. The memory is freed nevertheless, so the returned box is empty.
    pub fn drop(boxed: DeviceBox<T>) -> DropResult<DeviceBox<T>> {
        let pointer = Self::into_device(boxed);
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the box has been consumed.
        unsafe { cuda_free(pointer) }.map_err(|error| (error, DeviceBox { pointer: DevicePointer::null() }))
    }

    fn to_host(&self, to: *mut T) -> Transfer {
        Transfer::ToHost { from: self.pointer.as_raw(), to: to.cast() }
    }

    fn to_device(&self, from: *const T) -> Transfer {
        Transfer::ToDevice { from: from.cast(), to: self.pointer.as_raw() }
    }

    fn between(from: &Self, to: &Self) -> Transfer {
        Transfer::OnDevice { from: from.pointer.as_raw(), to: to.pointer.as_raw() }
    }
}

impl<T> Drop for DeviceBox<T> {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // Any error comes from earlier work, and other calls also report it. SAFETY: nothing else uses the memory.
            let _ = unsafe { cuda_free(self.pointer) };
        }
    }
}

impl<T> fmt::Debug for DeviceBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBox({:?})", self.pointer)
    }
}

impl<T> fmt::Pointer for DeviceBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.pointer, f)
    }
}

impl<T: DeviceCopy> CopyDestination<T> for DeviceBox<T> {
    fn copy_from(&mut self, source: &T) -> CudaResult<()> {
        // SAFETY: source and destination are one value each and are borrowed until the copy is complete.
        unsafe { self.to_device(source).run(size_of::<T>()) }
    }

    fn copy_to(&self, dest: &mut T) -> CudaResult<()> {
        // SAFETY: as above.
        unsafe { self.to_host(dest).run(size_of::<T>()) }
    }
}

impl<T: DeviceCopy> CopyDestination<DeviceBox<T>> for DeviceBox<T> {
    fn copy_from(&mut self, source: &DeviceBox<T>) -> CudaResult<()> {
        // SAFETY: source and destination are one value each and are borrowed until the copy is complete.
        unsafe { Self::between(source, self).run(size_of::<T>()) }
    }

    fn copy_to(&self, dest: &mut DeviceBox<T>) -> CudaResult<()> {
        // SAFETY: as above.
        unsafe { Self::between(self, dest).run(size_of::<T>()) }
    }
}

impl<T: DeviceCopy> AsyncCopyDestination<T> for DeviceBox<T> {
    unsafe fn async_copy_from(&mut self, source: &T, stream: &Stream) -> CudaResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.to_device(source).enqueue(size_of::<T>(), stream) }
    }

    unsafe fn async_copy_to(&self, dest: &mut T, stream: &Stream) -> CudaResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.to_host(dest).enqueue(size_of::<T>(), stream) }
    }
}

impl<T: DeviceCopy> AsyncCopyDestination<DeviceBox<T>> for DeviceBox<T> {
    unsafe fn async_copy_from(&mut self, source: &DeviceBox<T>, stream: &Stream) -> CudaResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::between(source, self).enqueue(size_of::<T>(), stream) }
    }

    unsafe fn async_copy_to(&self, dest: &mut DeviceBox<T>, stream: &Stream) -> CudaResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::between(self, dest).enqueue(size_of::<T>(), stream) }
    }
}
