//! [`DeviceBox`]: one value on the device.

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};

use bytemuck::Zeroable;

use super::copy::{AsyncCopyDestination, Transfer};
use super::{CopyDestination, DevicePointer, cuda_free, cuda_free_async, cuda_malloc, cuda_malloc_async};
use crate::DeviceCopy;
use crate::error::{CudaResult, DropResult};
use crate::stream::Stream;

/// One value on the device. Dropping it waits for all work on the device.
pub struct DeviceBox<T> {
    pointer: DevicePointer<T>,
}

// SAFETY: it owns its value.
unsafe impl<T: Send> Send for DeviceBox<T> {}
// SAFETY: a shared reference reads it only.
unsafe impl<T: Sync> Sync for DeviceBox<T> {}

impl<T: DeviceCopy> DeviceBox<T> {
    /// A copy of a value.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    pub fn new(value: &T) -> CudaResult<Self> {
        // SAFETY: it is written at once.
        let mut boxed = unsafe { Self::uninitialized()? };
        boxed.copy_from(value)?;
        Ok(boxed)
    }

    /// A copy of a value, which the stream makes. The value may change when this returns.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// Other streams use it behind the copy.
    pub unsafe fn new_async(value: &T, stream: &Stream) -> CudaResult<Self> {
        // SAFETY: the caller's promise.
        let mut boxed = unsafe { Self::uninitialized_async(stream)? };
        // The value may be a temporary of the caller, which a copy that does not wait would outlive.
        // SAFETY: the value is borrowed until the wait has ended.
        unsafe { boxed.async_copy_from(value, stream)? };
        stream.synchronize()?;
        Ok(boxed)
    }

    /// The value, copied to the host.
    ///
    /// # Errors
    ///
    /// As [`CopyDestination::copy_to`].
    pub fn as_host_value(&self) -> CudaResult<T> {
        let mut value = MaybeUninit::uninit();
        // SAFETY: there is room for it; when the copy is done it is initialised.
        unsafe {
            self.to_host(value.as_mut_ptr()).run(size_of::<T>())?;
            Ok(value.assume_init())
        }
    }

    /// A value of zeros.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    pub fn zeroed() -> CudaResult<Self>
    where
        T: Zeroable,
    {
        Self::new(&T::zeroed())
    }
}

impl<T> DeviceBox<T> {
    /// Memory for a value.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// It is written before it is read.
    pub unsafe fn uninitialized() -> CudaResult<Self> {
        let pointer = match size_of::<T>() {
            0 => DevicePointer::null(),
            // SAFETY: the caller's promise; `drop` frees it.
            _ => unsafe { cuda_malloc(1)? },
        };
        Ok(Self { pointer })
    }

    /// Memory for a value, which work of a stream can use at once.
    ///
    /// # Errors
    ///
    /// As [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// As for [`Self::uninitialized`]; other streams use it behind the work that `stream` has now.
    pub unsafe fn uninitialized_async(stream: &Stream) -> CudaResult<Self> {
        let pointer = match size_of::<T>() {
            0 => DevicePointer::null(),
            // SAFETY: the caller's promise; `drop` frees it.
            _ => unsafe { cuda_malloc_async(stream, 1)? },
        };
        Ok(Self { pointer })
    }

    /// The box of memory from [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// `pointer` came from there, or is null, and nothing else frees it.
    pub unsafe fn from_device(pointer: DevicePointer<T>) -> Self {
        Self { pointer }
    }

    /// The box of the address of memory from [`cuda_malloc`].
    ///
    /// # Safety
    ///
    /// As for [`Self::from_device`].
    pub unsafe fn from_raw(address: u64) -> Self {
        Self { pointer: DevicePointer::from_raw(address) }
    }

    /// The address of the memory, to be freed by [`cuda_free`].
    pub fn into_device(boxed: DeviceBox<T>) -> DevicePointer<T> {
        ManuallyDrop::new(boxed).pointer
    }

    /// The address.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.pointer
    }

    /// Frees it behind the work of a stream.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub fn drop_async(self, stream: &Stream) -> CudaResult<()> {
        let pointer = Self::into_device(self);
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the box is gone; a launch's promise is that its memory stays until the kernel is done.
        unsafe { cuda_free_async(stream, pointer) }
    }

    /// Drops it.
    ///
    /// # Errors
    ///
    /// A fault of earlier work; the memory is free, and the box that comes back is empty.
    pub fn drop(boxed: DeviceBox<T>) -> DropResult<DeviceBox<T>> {
        let pointer = Self::into_device(boxed);
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the box is gone.
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
            // An error is of earlier work, and is reported by other calls too.
            // SAFETY: nothing has it any more.
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
        // SAFETY: both are one value, borrowed until it is done.
        unsafe { self.to_device(source).run(size_of::<T>()) }
    }

    fn copy_to(&self, dest: &mut T) -> CudaResult<()> {
        // SAFETY: as above.
        unsafe { self.to_host(dest).run(size_of::<T>()) }
    }
}

impl<T: DeviceCopy> CopyDestination<DeviceBox<T>> for DeviceBox<T> {
    fn copy_from(&mut self, source: &DeviceBox<T>) -> CudaResult<()> {
        // SAFETY: both are one value, borrowed until it is done.
        unsafe { Self::between(source, self).run(size_of::<T>()) }
    }

    fn copy_to(&self, dest: &mut DeviceBox<T>) -> CudaResult<()> {
        // SAFETY: as above.
        unsafe { Self::between(self, dest).run(size_of::<T>()) }
    }
}

impl<T: DeviceCopy> AsyncCopyDestination<T> for DeviceBox<T> {
    unsafe fn async_copy_from(&mut self, source: &T, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.to_device(source).enqueue(size_of::<T>(), stream) }
    }

    unsafe fn async_copy_to(&self, dest: &mut T, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.to_host(dest).enqueue(size_of::<T>(), stream) }
    }
}

impl<T: DeviceCopy> AsyncCopyDestination<DeviceBox<T>> for DeviceBox<T> {
    unsafe fn async_copy_from(&mut self, source: &DeviceBox<T>, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { Self::between(source, self).enqueue(size_of::<T>(), stream) }
    }

    unsafe fn async_copy_to(&self, dest: &mut DeviceBox<T>, stream: &Stream) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { Self::between(self, dest).enqueue(size_of::<T>(), stream) }
    }
}
