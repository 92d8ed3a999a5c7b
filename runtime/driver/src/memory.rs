//! [`MemoryDriver`]: the part of [`Driver`](crate::Driver) for device memory and page-locked host memory.

use std::ffi::c_void;

use crate::error::Result;
use crate::{Context, DevicePtr, PhysicalHandle, StreamHandle};

/// Device memory exported for another process: a file descriptor that keeps the memory alive.
#[derive(Debug)]
pub struct ExportedMemory(
    #[cfg(unix)] pub std::os::fd::OwnedFd,
    #[cfg(not(unix))] pub std::convert::Infallible,
);

/// Methods of a [`Driver`](crate::Driver) for device memory and page-locked host memory.
///
/// # Safety
/// Implementations must uphold the safety contract of [`Driver`](crate::Driver).
pub unsafe trait MemoryDriver {
    /// Returns the free and the total device memory, in bytes.
    fn memory_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Allocates device memory, aligned to at least 256 bytes. `bytes` must not be 0.
    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees device memory.
    ///
    /// # Safety
    /// `ptr` must come from [`Self::memory_allocate`], and no enqueued work may use it.
    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()>;
    /// Returns true if device buffers must be reported with [`Self::buffer_allocated`] and [`Self::buffer_freed`],
    /// because kernels are checked. The result must never change.
    fn watches_buffers(&self) -> bool {
        false
    }
    /// Reports a new, uninitialized buffer of `bytes` bytes, which work enqueued later may access. Its address must be
    /// a multiple of 512.
    fn buffer_allocated(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// Reports that the buffer at `ptr` was freed, so that work enqueued later must not use it.
    fn buffer_freed(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// Allocates page-locked host memory that the device can read and write, aligned to at least 256 bytes. `bytes`
    /// must not be 0.
    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void>;
    /// Frees page-locked host memory.
    ///
    /// # Safety
    /// `ptr` must come from [`Self::pinned_allocate`], and no enqueued work may use it.
    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Page-locks memory of the process, so that every device can read and write it. `bytes` must not be 0. Returns an
    /// error if any byte is already registered.
    ///
    /// # Safety
    /// The `bytes` bytes at `ptr` must be memory of the process that stays allocated until [`Self::host_unregister`] is
    /// called.
    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Unregisters memory that was registered with [`Self::host_register`].
    ///
    /// # Safety
    /// `ptr` must be registered, and no enqueued work may use the memory.
    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Makes pageable process memory usable as device memory, in place. Ranges may overlap. `bytes` must not be 0.
    /// Returns `CUDA_ERROR_NOT_SUPPORTED` unless the device can access process memory, as emulated devices and GPUs
    /// with [`Self::accesses_pageable`] can.
    ///
    /// # Safety
    /// The `bytes` bytes at `ptr` must be memory of the process that stays allocated until [`Self::host_conceal`] is
    /// called.
    unsafe fn host_expose(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Undoes one [`Self::host_expose`] of the same range.
    ///
    /// # Safety
    /// The range must be exposed, and no enqueued work that relies on that exposure may use it.
    unsafe fn host_conceal(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Returns the device address of page-locked memory, allocated or registered, for kernels of the context. Returns
    /// an error for other memory.
    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr>;
    /// Returns the ordinal of the device that owns the memory at an address; `None` for host memory and managed memory.
    /// Returns an error for an address unknown to the driver, such as one in pageable memory.
    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>>;
    /// Returns true if kernels of the context can access all process memory, including pageable memory, by its host
    /// address: with address translation services (ATS, as on GH200 and GB10) or heterogeneous memory management (HMM).
    fn accesses_pageable(&self, context: Context) -> Result<bool>;

    /// Returns the granularity of mapped memory in bytes; `None` if the device cannot map memory to reserved addresses.
    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>>;
    /// Reserves an address range without mapping memory to it. `bytes` must be a non-zero multiple of the granularity.
    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees an entire reservation.
    ///
    /// # Safety
    /// `ptr` and `bytes` must be the result and the argument of one call of [`Self::virtual_reserve`], and no memory
    /// may be mapped to the range.
    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Creates physical device memory without an address. `bytes` must be a non-zero multiple of the granularity.
    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// Like [`Self::physical_create`], but other processes can also map the memory. Returns `CUDA_ERROR_NOT_SUPPORTED`
    /// if memory cannot be exported as a file descriptor.
    fn physical_create_shareable(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// Exports memory for import by another process. The handle must come from [`Self::physical_create_shareable`].
    fn physical_export(&self, context: Context, handle: PhysicalHandle) -> Result<ExportedMemory>;
    /// Imports memory exported by another process, or by another driver in this process. The memory must be on the
    /// context's device or on a device whose memory this device can access. The handle is mapped and released like one
    /// from [`Self::physical_create`]. The memory exists until all handles are released and no process maps it.
    ///
    /// # Safety
    /// The memory must have been exported by a driver of this kind, and `bytes` must be its size at creation.
    unsafe fn physical_import(
        &self,
        context: Context,
        memory: &ExportedMemory,
        bytes: usize,
    ) -> Result<PhysicalHandle>;
    /// Releases the handle. Mapped memory is freed only once it is unmapped, too.
    ///
    /// # Safety
    /// The handle must not be used again.
    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()>;
    /// Maps memory to reserved addresses. No device can access it before [`Self::virtual_set_access`].
    ///
    /// # Safety
    /// The range must be reserved, and no memory may be mapped to it. `bytes` must be the full size of the handle's
    /// memory, which must not be mapped elsewhere.
    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()>;
    /// Unmaps the memory without waiting for work.
    ///
    /// # Safety
    /// The range must consist of entire mappings, and no enqueued work may use it.
    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Grants devices (by ordinal) read and write access to a mapped range, without revoking other devices' access.
    ///
    /// # Safety
    /// The range must consist of entire mappings.
    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()>;

    /// Allocates memory from the driver's own pool, for later work on `stream`. `bytes` must not be 0.
    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr>;
    /// Returns memory to the pool, in stream order on `stream`.
    ///
    /// # Safety
    /// `ptr` must come from [`Self::stream_allocate`], and work that uses it must be ordered before the free.
    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()>;
    /// Returns the number of bytes that the driver's pool has reserved, and the number of them in use.
    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Releases the pool's unused memory above `keep` bytes.
    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()>;
}
