//! [`MappedBuffer`]: host memory that kernels access in place, without a copy.
//!
//! Guarantees:
//!
//! - Work on the buffer is synchronized, captured and tracked as for a [`DeviceBuffer`].
//! - The host accesses the elements only through a guard. Acquiring the guard waits for all work that uses the
//!   elements, and the guard prevents new work from using them.
//! - The memory stays page-locked until its last use has finished.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::buffer::ALIGN;
use super::graph_resource::GraphResource;
use super::owners::Owner;
use super::storage::Storage;
use super::usage::Usage;
use super::{DeviceBuffer, DeviceCopy, DeviceSliceMut, PinnedBuffer};
use crate::device::Device;
use crate::device::health::Quiet;
use crate::device::observe::site;
use crate::driver::{DevicePtr, Driver};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Elements in page-locked host memory (`M`) that kernels read and write over the bus (zero-copy). Use it for data that
/// is accessed once or in small amounts. `docs/benchmarks/copies.md` contains measured bandwidths.
///
/// The type dereferences to a [`DeviceBuffer`]. For a kernel's `&[T]`, pass `&*mapped` or
/// [`as_slice`](DeviceBuffer::as_slice); for an output, pass [`Self::as_mut_slice`]. The host accesses the elements
/// through [`Self::lock`]. Dropping the buffer does not block; the memory is freed when its last use has finished.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let mut mapped = PinnedBuffer::from_slice(stream.device(), &[1u32, 2, 3])?.into_mapped(&stream)?;
/// mapped.lock()?[1] = 7;
/// let mut target = DeviceBuffer::uninit(&stream, 3)?;
/// stream.copy(mapped.as_slice(), &mut target)?; // or a kernel launch
/// assert_eq!(target.to_host()?, [1, 7, 3]);
/// let pinned = mapped.into_inner()?; // waits for the work above
/// assert_eq!(pinned[..], [1, 7, 3]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct MappedBuffer<T: DeviceCopy, M = PinnedBuffer<T>> {
    /// The buffer, whose owner is a [`Host<M>`].
    buffer: DeviceBuffer<T>,
    /// Host address of the first element.
    host: NonNull<T>,
    memory: PhantomData<fn() -> M>,
}

// SAFETY: the elements are `Send` and `Sync`, and they are accessed only through a guard, which borrows the buffer
// exclusively. The memory owner, which moves between threads with the buffer, is `Send`.
unsafe impl<T: DeviceCopy, M: Send> Send for MappedBuffer<T, M> {}
// SAFETY: as above; a shared reference provides only a shared device buffer.
unsafe impl<T: DeviceCopy, M: Send> Sync for MappedBuffer<T, M> {}

/// Host memory, and its registration if it must be unregistered.
struct Host<M> {
    memory: Option<M>,
    registered: Option<(Device, NonNull<c_void>)>,
}

// SAFETY: the address is not accessed, only passed to the driver.
unsafe impl<M: Send> Send for Host<M> {}

impl<M> Host<M> {
    /// Unregisters the memory, which must no longer be in use. On failure, the memory is leaked, because the device may
    /// still access it.
    fn unregister(&mut self) -> Result<()> {
        let Some((device, address)) = self.registered.take() else { return Ok(()) };
        // SAFETY: the memory was registered and is no longer in use.
        let done =
            device.call_lost(|driver, context| unsafe { driver.host_unregister(context, address.as_ptr()) });
        if done.is_err() && !device.is_lost() {
            std::mem::forget(self.memory.take());
            return done;
        }
        Ok(())
    }
}

impl<M> Drop for Host<M> {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let device = self.registered.as_ref().map(|(device, _)| device.clone());
        let unregistered = self.unregister();
        if let Some(device) = device {
            device.0.health.record_drop(unregistered);
        }
    }
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    /// Maps the memory for kernels on the stream's device. The stream becomes the home stream of the result.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`] if the stream's device has a different driver, or any [driver
    /// error](crate::Error::Driver). After an error, the memory is dropped.
    pub fn into_mapped(self, stream: &Stream) -> Result<MappedBuffer<T>> {
        let (own, other) = (self.device(), stream.device());
        if !Arc::ptr_eq(&own.0.driver, &other.0.driver) {
            return Err(Error::DifferentDevices {
                operation: "mapping page-locked memory".to_owned(),
                what: "the memory".to_owned(),
                found: own.id(),
                expected: other.id(),
                beside: "the stream",
                remedy: "allocate it for a device of that driver",
            });
        }
        let host = NonNull::new(self.address()).unwrap_or(NonNull::dangling());
        let len = self.len();
        MappedBuffer::new(stream, host, len, Host { memory: Some(self), registered: None })
    }
}

impl<T: DeviceCopy> MappedBuffer<T, Vec<T>> {
    /// Page-locks the elements of a vector in place, for kernels on the stream's device. The time is proportional to
    /// the number of pages, so a [`PinnedBuffer`] is faster for short-lived memory.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver), in which case the vector is dropped. Some systems cannot
    /// register two vectors that share a page.
    pub fn register(stream: &Stream, mut memory: Vec<T>) -> Result<Self> {
        let (host, len) = (NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling()), memory.len());
        // SAFETY: the elements belong to the vector, which is not accessed before it is returned.
        unsafe { MappedBuffer::register_raw(stream, host, len, memory) }
    }
}

impl<T: DeviceCopy, M: Send + 'static> MappedBuffer<T, M> {
    /// Page-locks `len` elements of host memory, for kernels on the stream's device. `memory` is dropped when the last
    /// use has finished, and must then free the elements. Pass `()` for memory that outlives every use.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use warpsmith_runtime::{Device, MappedBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let mut memory: Box<[u32]> = Box::new([1, 2, 3]);
    /// let host = NonNull::from(&mut *memory).cast();
    /// // SAFETY: the box owns the elements, and only the result accesses them.
    /// let mut mapped = unsafe { MappedBuffer::register_raw(&stream, host, 3, memory) }?;
    /// mapped.lock()?[0] = 7;
    /// assert_eq!(*mapped.into_inner()?, [7, 2, 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::TooManyElements`] or any [driver error](crate::Error::Driver). After an error, the memory is
    /// dropped.
    ///
    /// # Safety
    /// `host` must point to `len` aligned elements. Until `memory` is dropped or returned by [`Self::into_inner`], only
    /// the result may access them.
    pub unsafe fn register_raw(stream: &Stream, host: NonNull<T>, len: usize, memory: M) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            return Err(Error::TooManyElements { elements: len, element_bytes: size_of::<T>() });
        };
        let mut owner = Host { memory: Some(memory), registered: None };
        if bytes > 0 {
            let (device, address) = (stream.device(), host.cast::<c_void>());
            let register = |driver: &dyn Driver, context| {
                // SAFETY: the memory stays allocated until it is unregistered, because `owner` unregisters it before
                // dropping `memory`.
                unsafe { driver.host_register(context, address.as_ptr(), bytes) }
            };
            device.call(register)?;
            owner.registered = Some((device.clone(), address));
        }
        Self::new(stream, host, len, owner)
    }

    /// Creates the buffer. The `len` elements at `host` must be page-locked, and their size must not overflow the
    /// address space.
    fn new(stream: &Stream, host: NonNull<T>, len: usize, owner: Host<M>) -> Result<Self> {
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "elements of device buffers can be aligned to at most 256 bytes"
            )
        };
        let bytes = len * size_of::<T>();
        let device = stream.device();
        device.check()?;
        let ptr = match bytes {
            0 => DevicePtr::NULL,
            _ => device.call(|driver, context| driver.host_address(context, host.as_ptr().cast()))?,
        };
        // The memory is not in use, because pinned memory is reused only after its uses have finished.
        let storage = Storage::foreign(stream, ptr, bytes, Usage::unused(), Owner::new(owner));
        let buffer = DeviceBuffer { storage, len, elements: PhantomData };
        Ok(Self { buffer, host, memory: PhantomData })
    }

    /// Returns the elements, for kernels that write them.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Waits for all work that uses the elements, and returns a guard through which the host accesses them. While the
    /// guard exists, launches of graphs that use the elements fail, and other work on them does not compile:
    ///
    /// ```compile_fail
    /// # use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let mut mapped = PinnedBuffer::<u32>::zeroed(stream.device(), 3)?.into_mapped(&stream)?;
    /// let mut target = DeviceBuffer::uninit(&stream, 3)?;
    /// let mut host = mapped.lock()?;
    /// stream.copy(mapped.as_slice(), &mut target)?;
    /// host[0] = 1;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`GraphError::HostBufferInUse`](crate::GraphError::HostBufferInUse) after a guard was leaked with
    /// [`std::mem::forget`], [`GraphError::UsedInCapture`](crate::GraphError::UsedInCapture), the fault if a kernel
    /// faulted, or [`Error::Forked`].
    #[track_caller]
    pub fn lock(&mut self) -> Result<MappedGuard<'_, T>> {
        let _site = site();
        let storage = &self.buffer.storage;
        storage.device().check()?;
        let tracked = storage.tracked();
        if let Some(tracked) = tracked {
            tracked.lend("MappedBuffer::lock")?;
        }
        // From here on, no new work can use the buffer, so waiting for its existing uses suffices.
        let guard = MappedGuard { host: self.host, len: self.buffer.len, tracked, elements: PhantomData };
        storage.unfinished().iter().try_for_each(Stream::synchronize)?;
        Ok(guard)
    }

    /// Waits for all work that uses the elements, and returns the memory.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::lock`], or a [driver error](crate::Error::Driver) from unregistering the
    /// memory. After an error, the memory is dropped when its last use has finished.
    #[track_caller]
    pub fn into_inner(mut self) -> Result<M> {
        let _site = site();
        // The buffer stays lent until it is dropped.
        std::mem::forget(self.lock()?);
        let owner = self.buffer.storage.take_owner().and_then(Owner::downcast::<Host<M>>);
        let Some(mut owner) = owner else { unreachable!("the buffer was made with this owner") };
        owner.unregister()?;
        let Some(memory) = owner.memory.take() else {
            unreachable!("the memory was there and is unregistered")
        };
        Ok(memory)
    }
}

impl<T: DeviceCopy, M> Deref for MappedBuffer<T, M> {
    type Target = DeviceBuffer<T>;

    fn deref(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }
}

impl<T: DeviceCopy + fmt::Debug, M> fmt::Debug for MappedBuffer<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedBuffer({:p}, {:?})", self.host, self.buffer)
    }
}

/// Guard through which the host reads and writes the elements of a [`MappedBuffer`]. No device uses the elements while
/// the guard exists.
///
/// See the example of [`MappedBuffer`].
pub struct MappedGuard<'a, T: DeviceCopy> {
    host: NonNull<T>,
    len: usize,
    tracked: Option<&'a Arc<GraphResource>>,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: the guard is equivalent to a slice of `Send` elements.
unsafe impl<T: DeviceCopy> Send for MappedGuard<'_, T> {}
// SAFETY: as above; the elements are `Sync` too.
unsafe impl<T: DeviceCopy> Sync for MappedGuard<'_, T> {}

impl<T: DeviceCopy> Deref for MappedGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory contains `len` elements, for which every bit pattern is valid. The buffer is borrowed
        // exclusively, the work that used it has run, and graphs do not use a lent buffer.
        unsafe { std::slice::from_raw_parts(self.host.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for MappedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the guard is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.host.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> Drop for MappedGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(tracked) = self.tracked {
            tracked.take_back();
        }
    }
}

impl<T: DeviceCopy> fmt::Debug for MappedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedGuard<{}>({} at {:p})", std::any::type_name::<T>(), self.len, self.host)
    }
}
