//! Raw addresses: allocating, freeing, and recording streams that use them.
//!
//! The caller must pass every other stream that uses an address to [`Memory::record_stream`]; buffers do so
//! automatically. Addresses that were not allocated here, or are already freed, are rejected.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::view::Memory;
use super::{Allocation, CachingAllocator, allocate, free};
use crate::device::observe::site;
use crate::driver::DevicePtr;
use crate::error::{Error, Result};
use crate::stream::Stream;

const SHARDS: usize = 64;

/// The record of a live address.
#[derive(Debug)]
struct Raw {
    stream: Stream,
    allocation: Allocation,
    users: Vec<Stream>,
}

/// Hasher for addresses. Simple bit mixing suffices, because an adversary does not choose the addresses.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, address: u64) {
        let mixed = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Addresses = HashMap<u64, Raw, BuildHasherDefault<AddressHasher>>;

/// Live addresses, divided into shards with one lock each.
#[derive(Debug)]
pub(super) struct RawTable([Mutex<Addresses>; SHARDS]);

impl Default for RawTable {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl RawTable {
    fn shard(&self, ptr: DevicePtr) -> MutexGuard<'_, Addresses> {
        let hash = (ptr.0 >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0[(hash >> 58) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory<'_> {
    /// Allocates `bytes` bytes of uninitialized memory for work on `stream`, aligned to 512 bytes. A zero-byte
    /// allocation has a null address. The memory keeps its stream and its device alive until it is freed with
    /// [`Self::free_raw`].
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let memory = stream.device().memory();
    /// let address = memory.allocate_raw(&stream, 1000)?;
    /// assert_eq!((address.0 % 512, memory.allocated()), (0, 1024));
    /// // SAFETY: no work uses the memory.
    /// unsafe { memory.free_raw(address) }?;
    /// assert_eq!(memory.allocated(), 0);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`], [`Error::AllocationTooLarge`], [`Error::DifferentDevices`], or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn allocate_raw(&self, stream: &Stream, bytes: usize) -> Result<DevicePtr> {
        let what = || ("allocating".to_owned(), "the memory".to_owned());
        stream.check_home(self.device, what, "allocate from the stream's device")?;
        let allocation = allocate(stream, bytes)?;
        let ptr = allocation.ptr();
        if ptr != DevicePtr::NULL {
            let raw = Raw { stream: stream.clone(), allocation, users: Vec::new() };
            self.device.part::<CachingAllocator>().raw.shard(ptr).insert(ptr.0, raw);
        }
        Ok(ptr)
    }

    /// Frees memory that was allocated by [`Self::allocate_raw`]. Work that uses the memory may still be running on its
    /// stream or on a recorded stream. A null address is accepted.
    ///
    /// See the example of [`Self::allocate_raw`].
    ///
    /// # Errors
    /// Returns [`Error::NotAllocated`] for an unknown or freed address, or any [driver error](crate::Error::Driver).
    ///
    /// # Safety
    /// No work that uses the memory may be enqueued afterwards. Work on any other stream must have been recorded with
    /// [`Self::record_stream`] after it was enqueued, unless it is ordered before later work on the memory's stream or
    /// a recorded stream.
    #[track_caller]
    pub unsafe fn free_raw(&self, ptr: DevicePtr) -> Result<()> {
        let _site = site();
        if ptr == DevicePtr::NULL {
            return Ok(());
        }
        self.device.check_process()?;
        let raw = self
            .device
            .part::<CachingAllocator>()
            .raw
            .shard(ptr)
            .remove(&ptr.0)
            .ok_or_else(|| self.not_allocated(ptr))?;
        // SAFETY: the entry was removed, so this is the only free; the caller guarantees the other conditions.
        unsafe { free(&raw.stream, raw.allocation, &raw.users) }
    }

    /// Records that work enqueued on `stream` so far uses memory allocated with [`Self::allocate_raw`]. The memory is
    /// not reused before that work has finished.
    ///
    /// # Errors
    /// Returns [`Error::NotAllocated`] for an unknown or freed address, or [`Error::DifferentDevices`].
    pub fn record_stream(&self, ptr: DevicePtr, stream: &Stream) -> Result<()> {
        if ptr == DevicePtr::NULL {
            return Ok(());
        }
        self.device.check_process()?;
        let what = || ("recording a stream".to_owned(), "the memory".to_owned());
        stream.check_home(self.device, what, "record a stream of the same device")?;
        let mut shard = self.device.part::<CachingAllocator>().raw.shard(ptr);
        let raw = shard.get_mut(&ptr.0).ok_or_else(|| self.not_allocated(ptr))?;
        if raw.stream != *stream && !raw.users.contains(stream) {
            raw.users.push(stream.clone());
        }
        Ok(())
    }

    fn not_allocated(&self, ptr: DevicePtr) -> Error {
        Error::NotAllocated { device: self.device.id(), address: ptr.0 }
    }
}
