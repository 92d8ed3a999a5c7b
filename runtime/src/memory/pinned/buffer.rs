//! [`PinnedBuffer`]: elements in page-locked host memory.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::allocator::PinnedAllocator;
use super::cache::Block;
use crate::device::Device;
use crate::device::health::Quiet;
use crate::device::observe::{self, MemoryKind, Operation, site};
use crate::driver::host_function;
use crate::error::{Error, PoolId, Result};
use crate::memory::DeviceCopy;
use crate::stream::Stream;

/// Alignment of blocks from the driver, in bytes.
const ALIGN: usize = 256;

/// `len` elements of page-locked (pinned) host memory. [`Stream::copy_from_host_async`] and
/// [`Stream::copy_to_host_async`] copy between it and the device at full bandwidth and without blocking the host.
///
/// The buffer dereferences to a slice. The element type may have an alignment of up to 256 bytes. Dropping the buffer
/// does not block; [`Self::record_use`] describes when its memory is reused.
///
/// ```
/// use warpsmith_runtime::{Device, PinnedBuffer};
///
/// let device = Device::emulated(0)?;
/// let mut buffer = PinnedBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
/// buffer[1] = 5.0;
/// assert_eq!(buffer[..], [1.0, 5.0, 3.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct PinnedBuffer<T: DeviceCopy> {
    elements: NonNull<T>,
    len: usize,
    device: Device,
    /// The block; `None` if the buffer is empty.
    block: Option<Block>,
    /// Streams that may use the memory.
    streams: Mutex<Vec<Stream>>,
}

// SAFETY: the buffer owns its memory like a vector, and elements are `Send` and `Sync`.
unsafe impl<T: DeviceCopy> Send for PinnedBuffer<T> {}
// SAFETY: as above; a shared buffer provides only shared access to elements, and the streams are behind a lock.
unsafe impl<T: DeviceCopy> Sync for PinnedBuffer<T> {}

/// Allocates a block of at least `bytes` bytes; `bytes` must not be 0.
fn allocate(device: &Device, bytes: usize) -> Result<Block> {
    let found = |address, cached| Operation::Allocate {
        memory: MemoryKind::Pinned,
        bytes,
        address,
        pool: PoolId::default(),
        cached,
        reserved: 0,
    };
    let mut watch = observe::begin(device, || (None, found(0, false)));
    let (block, cached) = device.part::<PinnedAllocator>().allocate(device, bytes)?;
    watch.found(|| found(block.ptr.addr().get() as u64, cached));
    Ok(block)
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    /// Allocates `len` elements and fills them with zero bytes.
    ///
    /// # Errors
    /// Returns [`Error::PinnedOutOfMemory`], [`Error::TooManyElements`], or the fault if a kernel faulted.
    #[track_caller]
    pub fn zeroed(device: &Device, len: usize) -> Result<Self> {
        let _site = site();
        let buffer = Self::uninit(device, len)?;
        // SAFETY: the memory belongs to the buffer and contains `len` elements.
        unsafe { buffer.elements.write_bytes(0, len) };
        Ok(buffer)
    }

    /// Copies a slice to a new buffer.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::zeroed`].
    #[track_caller]
    pub fn from_slice(device: &Device, elements: &[T]) -> Result<Self> {
        let _site = site();
        let buffer = Self::uninit(device, elements.len())?;
        // SAFETY: the memory belongs to the new buffer, so it does not overlap the slice, and holds as many elements.
        unsafe { buffer.elements.as_ptr().copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        Ok(buffer)
    }

    /// Allocates uninitialized memory, which the caller must initialize before reading.
    pub(crate) fn uninit(device: &Device, len: usize) -> Result<Self> {
        let () = T::CHECKED;
        const {
            assert!(
                align_of::<T>() <= ALIGN,
                "elements of pinned buffers can be aligned to at most 256 bytes"
            )
        };
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or(Error::TooManyElements { elements: len, element_bytes: size_of::<T>() })?;
        let block = if bytes == 0 { None } else { Some(allocate(device, bytes)?) };
        let elements = block.as_ref().map_or(NonNull::dangling(), |block| block.ptr.cast());
        Ok(Self { elements, len, device: device.clone(), block, streams: Mutex::default() })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device whose allocator owns the memory. Streams of every device may use the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the address of the first element, which does not change when the buffer is moved.
    pub(crate) fn address(&self) -> *mut T {
        self.elements.as_ptr()
    }

    /// Returns the address of the first element, for work enqueued with raw addresses. Record this work with
    /// [`Self::record_use`].
    pub fn as_ptr(&self) -> *const T {
        self.elements.as_ptr()
    }

    /// Like [`Self::as_ptr`], but for work that writes to the memory.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.elements.as_ptr()
    }

    /// Keeps the memory from being reused until all work enqueued on the stream before the buffer was dropped has
    /// finished. Call this method once per stream for work enqueued with [`Self::as_ptr`], before or after enqueueing
    /// it. The stream may belong to another device.
    ///
    /// It does not prevent the program from writing to the buffer while that work reads it.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`] if the stream's device is lost, although the use is recorded, or
    /// [`Error::Forked`].
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        stream.device().check_process()?;
        if self.block.is_some() {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            if !streams.contains(stream) {
                streams.push(stream.clone());
            }
        }
        stream.device().0.health.check(stream.device().id())
    }
}

impl<T: DeviceCopy> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory belongs to the buffer, is aligned for elements and contains `len` elements. All bytes were
        // written when the buffer was created, and every bit pattern is a valid `T`.
        unsafe { std::slice::from_raw_parts(self.elements.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.elements.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        if self.device.is_forked() {
            return;
        }
        if let Some(block) = self.block.take() {
            let streams = std::mem::take(self.streams.get_mut().unwrap_or_else(PoisonError::into_inner));
            if host_function::is_running() {
                return host_function::drop_elsewhere(Box::new(PinnedBuffer::<u8> {
                    elements: NonNull::dangling(),
                    len: 0,
                    device: self.device.clone(),
                    block: Some(block),
                    streams: Mutex::new(streams),
                }));
            }
            let (bytes, address) = (block.asked, block.ptr.addr().get() as u64);
            let watch = observe::begin(&self.device, || {
                (None, Operation::Free { memory: MemoryKind::Pinned, bytes, address })
            });
            self.device.part::<PinnedAllocator>().release(&self.device, block, streams);
            // Releasing the block cannot fail: work that is impossible now is deferred.
            let _ = watch.done(Ok::<_, Error>(()));
        }
    }
}

impl<T: DeviceCopy> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ptr, len, device) = (self.as_ptr(), self.len, self.device.id());
        write!(f, "PinnedBuffer<{}>({len} at {ptr:p} for {device})", std::any::type_name::<T>())
    }
}
