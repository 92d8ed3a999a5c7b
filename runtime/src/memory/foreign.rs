//! Buffers over foreign memory, and conversions of buffers into raw parts, leaked slices and other element types.

use std::any::{Any, type_name};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::buffer::ALIGN;
use super::owners::Owner;
use super::storage::Storage;
use super::usage::Usage;
use super::{DeviceBuffer, DeviceCopy, DeviceSliceMut};
use crate::device::Device;
use crate::device::health::Quiet;
use crate::driver::DevicePtr;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Returns the number of values of type `U` that exactly fill the bytes of `len` values of type `T`.
pub(super) fn cast<T: DeviceCopy, U: DeviceCopy>(address: DevicePtr, len: usize) -> Result<usize> {
    const { assert!(align_of::<U>() <= ALIGN, "elements of device buffers can be aligned to at most 256 bytes") };
    let refused = |reason| {
        let (from, to, DevicePtr(address)) = (type_name::<T>(), type_name::<U>(), address);
        Err(Error::Cast { from, to, len, address, reason })
    };
    let (bytes, size) = (len * size_of::<T>(), size_of::<U>());
    if !address.0.is_multiple_of(align_of::<U>() as u64) {
        return refused(format!("the address is not a multiple of {} bytes", align_of::<U>()));
    }
    match bytes.checked_div(size) {
        Some(count) if count * size == bytes => Ok(count),
        None if bytes == 0 => Ok(len),
        _ => refused(format!("{bytes} bytes are not a whole number of elements of {size} bytes")),
    }
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Creates a buffer over `len` elements at `ptr` that other code allocated. Dropping `owner` must free the memory;
    /// pass `()` for memory that outlives every use.
    ///
    /// Work on the buffer is synchronized, captured and tracked as for any buffer. The owner is dropped when every
    /// stream that used the buffer has finished its last use or, on a lost device, when no work is running on it.
    /// Dropping the buffer does not wait for that. The owner may be dropped on any thread, but never in a [host
    /// function](Stream::host_function), so its destructor may call the driver. If this call fails, the owner is
    /// dropped immediately. In a forked process, it is never dropped.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let theirs = Arc::new(DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?);
    /// // SAFETY: the owner keeps the memory alive, and no other code uses it.
    /// let ours = unsafe { DeviceBuffer::<f32>::from_raw(&stream, theirs.as_device_ptr(), 2, theirs.clone()) }?;
    /// assert_eq!(ours.to_host()?, [1.0, 2.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BadAddress`] for an address that is null, not aligned for the elements, or unknown to the
    /// driver; [`Error::DifferentDevices`] for memory on a different device than the stream; or
    /// [`Error::TooManyElements`].
    ///
    /// # Safety
    /// `ptr` must point to `len` elements that kernels on the stream's device can access until the owner is dropped.
    /// Earlier work on the memory must have been enqueued on `stream`, or be ordered before later work on `stream`.
    /// From this call until the owner is dropped, other code must not use the memory, except as [`Self::record_stream`]
    /// permits; if no work writes to this buffer, other code may read the memory.
    pub unsafe fn from_raw(
        stream: &Stream,
        ptr: DevicePtr,
        len: usize,
        owner: impl Any + Send,
    ) -> Result<Self> {
        Self::of_owner(stream, ptr, len, Owner::new(owner))
    }

    /// Like [`Self::from_raw`], but for memory that its owner may revoke. While `may_use` returns an error, every call
    /// that would enqueue work on the memory returns that error instead, as does a copy to the host that was waiting
    /// for its work. Already enqueued work and graph launches are not prevented. `may_use` is called often and on any
    /// thread, and must not call the driver.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use warpsmith_runtime::{Device, DeviceBuffer, Error, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let theirs = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
    /// let is_withdrawn = Arc::new(AtomicBool::new(false));
    /// let looked_at = is_withdrawn.clone();
    /// let may_use = move || match looked_at.load(Ordering::Relaxed) {
    ///     true => Err(Error::extension(std::io::Error::other("it was withdrawn"))),
    ///     false => Ok(()),
    /// };
    /// let ptr = theirs.as_device_ptr();
    /// // SAFETY: the owner keeps the memory alive, and no other code uses it.
    /// let mut ours = unsafe { DeviceBuffer::<f32>::from_raw_while(&stream, ptr, 2, theirs, may_use) }?;
    /// assert_eq!(ours.to_host()?, [1.0, 2.0]);
    /// is_withdrawn.store(true, Ordering::Relaxed);
    /// assert_eq!(ours.to_host().unwrap_err().to_string(), "it was withdrawn");
    /// assert!(ours.copy_from_host(&[3.0, 4.0]).is_err() && ours.clone_on(&stream).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_raw`].
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::from_raw`], except that other code may also use the memory once
    /// `may_use` has returned an error.
    pub unsafe fn from_raw_while(
        stream: &Stream,
        ptr: DevicePtr,
        len: usize,
        owner: impl Any + Send,
        may_use: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::of_owner(stream, ptr, len, Owner::with_condition(owner, Box::new(may_use)))
    }

    /// Like [`Self::from_raw`], but for memory that its owner frees in stream order, like `cudaFreeAsync` and the
    /// caching allocators of PyTorch and JAX: only later work on `stream` may reuse the memory. Dropping the buffer
    /// makes `stream` wait for other streams' work on the buffer, and then drops the owner immediately. If the buffer
    /// is used only on `stream`, this needs no driver call, so the buffer can be created and dropped while other code
    /// captures `stream`.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let theirs = DeviceBuffer::from_host(&stream, &[1_u8, 2, 3])?;
    /// let ptr = theirs.as_device_ptr();
    /// // SAFETY: `theirs` owns the memory and is used only here; it frees the memory in the order of `stream`.
    /// let ours = unsafe { DeviceBuffer::<u8>::from_raw_stream_ordered(&stream, ptr, 3, theirs) }?;
    /// assert_eq!(ours.to_host()?, [1, 2, 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_raw`], but does not check the device of the memory.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::from_raw`]. In addition, the memory must be on the stream's device,
    /// and after the owner is dropped it must stay valid for the work enqueued on `stream` until then.
    pub unsafe fn from_raw_stream_ordered(
        stream: &Stream,
        ptr: DevicePtr,
        len: usize,
        owner: impl Any + Send,
    ) -> Result<Self> {
        Self::of_owner(stream, ptr, len, Owner::stream_ordered(owner))
    }

    /// Like [`Self::from_raw`], but for `len` elements of pageable host memory, on an emulated device or a GPU that can
    /// access pageable memory (ATS or HMM). Several buffers can refer to the same memory. For other GPUs, page-lock the
    /// memory with [`MappedBuffer::register_raw`](crate::MappedBuffer::register_raw).
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let mut memory = vec![1_u32, 2, 3];
    /// let host = NonNull::from(memory.as_mut_slice()).cast();
    /// // SAFETY: the vector owns the elements, and no other code uses them.
    /// let buffer = unsafe { DeviceBuffer::<u32>::from_host_raw(&stream, host, 3, memory) }?;
    /// assert_eq!(buffer.to_host()?, [1, 2, 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_raw`], or a [driver error](crate::Error::Driver) if the GPU cannot
    /// access pageable memory.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::from_raw`].
    pub unsafe fn from_host_raw(
        stream: &Stream,
        host: NonNull<T>,
        len: usize,
        owner: impl Any + Send,
    ) -> Result<Self> {
        let ptr = DevicePtr(host.as_ptr().expose_provenance() as u64);
        let mut owner = Exposed { range: None, owner };
        // `from_raw` rejects a larger size.
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        if let Some(bytes @ 1..) = bytes {
            let (device, host) = (stream.device(), host.cast::<c_void>());
            // SAFETY: the memory stays valid until `owner` conceals it from the driver again.
            device.call(|driver, context| unsafe { driver.host_expose(context, host.as_ptr(), bytes) })?;
            owner.range = Some((device.clone(), host, bytes));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Self::from_raw(stream, ptr, len, owner) }
    }

    fn of_owner(stream: &Stream, ptr: DevicePtr, len: usize, owner: Owner) -> Result<Self> {
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "elements of device buffers can be aligned to at most 256 bytes"
            )
        };
        let device = stream.device();
        device.check()?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            return Err(Error::TooManyElements { elements: len, element_bytes: size_of::<T>() });
        };
        let refused = |reason| Error::BadAddress { device: device.id(), address: ptr.0, bytes, reason };
        if bytes > 0 {
            if ptr == DevicePtr::NULL {
                return Err(refused(
                    "the address is null; pass the address that the allocation returned".to_owned(),
                ));
            }
            if !ptr.0.is_multiple_of(align_of::<T>() as u64) {
                let (element, align) = (type_name::<T>(), align_of::<T>());
                return Err(refused(format!(
                    "the address is not a multiple of {align} bytes, the alignment of `{element}`"
                )));
            }
            if ptr.0.checked_add(bytes as u64).is_none() {
                return Err(refused("the range ends beyond the address space".to_owned()));
            }
            if owner.is_stream_ordered() {
                // The caller guarantees that stream-ordered memory is on this device.
                let storage = Storage::foreign(stream, ptr, bytes, Usage::new(stream), owner);
                return Ok(Self { storage, len, elements: PhantomData });
            }
            let known = match device.call(|driver, context| driver.memory_device(context, ptr)) {
                Ok(known) => known,
                Err(error) if error.is_device_lost() => return Err(error),
                Err(_) if device.call(|driver, context| driver.accesses_pageable(context))? => None,
                Err(error) => {
                    return Err(refused(format!(
                        "the driver does not know this memory; host memory must be registered first ({error})"
                    )));
                }
            };
            if known.is_some_and(|ordinal| ordinal != device.id().ordinal()) {
                return Err(Error::DifferentDevices {
                    operation: "creating a buffer from foreign memory".to_owned(),
                    what: "the memory".to_owned(),
                    found: device.id().with_ordinal(known.unwrap_or_default()),
                    expected: device.id(),
                    beside: "the stream",
                    remedy: "create it on a stream of the memory's device",
                });
            }
        }
        let storage = Storage::foreign(stream, ptr, bytes, Usage::new(stream), owner);
        Ok(Self { storage, len, elements: PhantomData })
    }

    /// Returns the address of the first element, the number of elements, and a byte buffer that owns the memory.
    /// Dropping the byte buffer frees the memory; [`Self::cast`] converts it back to the original buffer.
    ///
    /// Use this method to pass the memory to other code. A [`Box`] of the byte buffer can serve as a handle for C.
    /// Synchronize the other code's work with [`Stream::enqueue`](crate::Stream::enqueue) or [`Self::record_stream`].
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let buffer = DeviceBuffer::from_host(&stream, &[1.0_f32, 2.0])?;
    /// let (address, len, bytes) = buffer.into_raw();
    /// println!("pass {len} numbers at {address:?} to C, and drop the owner later");
    /// assert_eq!((len, bytes.len()), (2, 8));
    /// assert_eq!(bytes.cast::<f32>()?.to_host()?, [1.0, 2.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn into_raw(self) -> (DevicePtr, usize, DeviceBuffer<u8>) {
        let Self { storage, len, .. } = self;
        let bytes = DeviceBuffer { len: storage.bytes(), storage, elements: PhantomData };
        (bytes.as_device_ptr(), len, bytes)
    }

    /// Leaks the buffer and returns all of its elements. The memory is never freed, and the device is never closed.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, DeviceSliceMut};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let table: DeviceSliceMut<'static, u32> = DeviceBuffer::from_host(&stream, &[1, 2, 3])?.leak();
    /// assert_eq!(table.len(), 3);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn leak(self) -> DeviceSliceMut<'static, T> {
        Box::leak(Box::new(self)).as_mut_slice()
    }

    /// Reinterprets the bytes as elements of another type.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let buffer = DeviceBuffer::from_host(&stream, &[1.0_f32])?;
    /// assert_eq!(buffer.cast::<u32>()?.to_host()?, [0x3f80_0000]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Cast`], and drops the buffer, if the bytes are not a whole number of elements of the new type
    /// or are not aligned for them. [`DeviceSlice::cast`](crate::DeviceSlice::cast) does not consume the buffer.
    pub fn cast<U: DeviceCopy>(self) -> Result<DeviceBuffer<U>> {
        let len = cast::<T, U>(self.as_device_ptr(), self.len)?;
        Ok(DeviceBuffer { storage: self.storage, len, elements: PhantomData })
    }
}

/// The owner of host memory that the driver exposes to its devices.
struct Exposed<O> {
    range: Option<(Device, NonNull<c_void>, usize)>,
    #[expect(dead_code, reason = "dropped after the range is concealed")]
    owner: O,
}

// SAFETY: the address is only passed to the driver.
unsafe impl<O: Send> Send for Exposed<O> {}

impl<O> Drop for Exposed<O> {
    fn drop(&mut self) {
        let Some((device, host, bytes)) = self.range.take() else { return };
        let _quiet = Quiet::begin();
        // SAFETY: the range was exposed, and work no longer uses it.
        let concealed =
            device.call_lost(|driver, context| unsafe { driver.host_conceal(context, host.as_ptr(), bytes) });
        device.0.health.record_drop(concealed);
    }
}
