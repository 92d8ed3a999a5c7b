//! [`MemoryDriver`]: the part of [`Driver`](crate::Driver) about memory of the device and page-locked memory of the host.

use std::ffi::c_void;

use crate::error::Result;
use crate::{Context, DevicePtr, PhysicalHandle, StreamHandle};

/// Memory of a device on its way to another process: a file descriptor, which keeps the memory.
#[derive(Debug)]
pub struct ExportedMemory(
    #[cfg(unix)] pub std::os::fd::OwnedFd,
    #[cfg(not(unix))] pub std::convert::Infallible,
);

/// The calls of a [`Driver`](crate::Driver) about memory of the device and page-locked memory of the host.
///
/// # Safety
/// As for [`Driver`](crate::Driver).
pub unsafe trait MemoryDriver {
    /// Free and total bytes of device memory.
    fn memory_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Allocates device memory, aligned to at least 256 bytes. `bytes` is not zero.
    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees it.
    ///
    /// # Safety
    /// `ptr` came from [`Self::memory_allocate`], and no enqueued work uses it.
    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()>;
    /// Whether a check of kernels wants to know which buffers there are in device memory, by [`Self::buffer_allocated`] and
    /// [`Self::buffer_freed`]. It does not change.
    fn watches_buffers(&self) -> bool {
        false
    }
    /// A buffer has come to be in device memory, at a multiple of 512. It may be used by what is enqueued later, within
    /// its `bytes`, and nothing in it counts as written.
    fn buffer_allocated(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// The buffer at `ptr` may not be used by what is enqueued later.
    fn buffer_freed(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// Allocates page-locked host memory that the device can read and write, aligned to at least 256 bytes.
    /// `bytes` is not zero.
    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void>;
    /// Frees it.
    ///
    /// # Safety
    /// `ptr` came from [`Self::pinned_allocate`], and no enqueued work uses it.
    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Page-locks memory of the process, so that every device can read and write it. `bytes` is not zero. Memory of which a
    /// byte is registered already is an error.
    ///
    /// # Safety
    /// The `bytes` at `ptr` are memory of the process, which stays until [`Self::host_unregister`].
    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Takes [`Self::host_register`] back.
    ///
    /// # Safety
    /// `ptr` was registered, and no enqueued work uses the memory.
    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// The address by which kernels of the context reach page-locked memory, allocated or registered. An error for other
    /// memory.
    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr>;
    /// The ordinal of the device that has the memory at an address; `None` for memory of the host, and for managed memory. An
    /// error for an address that the driver does not know.
    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>>;

    /// Smallest unit in bytes of mapped memory; `None` when the device cannot map memory into reserved addresses.
    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>>;
    /// Reserves addresses; no memory is behind them. `bytes` is a multiple of the granularity and not zero.
    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees a whole reservation.
    ///
    /// # Safety
    /// `ptr` and `bytes` are those of a [`Self::virtual_reserve`], and nothing is mapped there.
    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Makes device memory without an address. `bytes` is a multiple of the granularity and not zero.
    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// As [`Self::physical_create`], of memory that other processes can map too. Fails with `CUDA_ERROR_NOT_SUPPORTED` where
    /// there are no file descriptors for it.
    fn physical_create_shareable(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// What another process imports. The handle is of [`Self::physical_create_shareable`].
    fn physical_export(&self, context: Context, handle: PhysicalHandle) -> Result<ExportedMemory>;
    /// A handle of memory that another driver, or the driver of another process, has exported, of a device that the context's
    /// can reach or is. It is mapped and released as one of [`Self::physical_create`]; the memory stays until all handles are
    /// released and no process maps it.
    ///
    /// # Safety
    /// The memory was exported by a driver of this kind, and `bytes` is what it was created with.
    unsafe fn physical_import(
        &self,
        context: Context,
        memory: &ExportedMemory,
        bytes: usize,
    ) -> Result<PhysicalHandle>;
    /// Releases the handle. While the memory is mapped it stays; it is freed when it is unmapped too.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()>;
    /// Puts memory behind reserved addresses. No device can use it before [`Self::virtual_set_access`].
    ///
    /// # Safety
    /// The range is reserved and nothing is mapped there; `bytes` is all that the handle has, and the handle is
    /// not mapped elsewhere.
    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()>;
    /// Takes the memory away again. It does not wait for work.
    ///
    /// # Safety
    /// The range consists of whole mappings, and no enqueued work uses it.
    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Lets devices (by ordinal) read and write a mapped range, besides those that may already.
    ///
    /// # Safety
    /// The range consists of whole mappings.
    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()>;

    /// Allocates memory from the driver's own pool, for later work on `stream`. `bytes` is not zero.
    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr>;
    /// Frees it to the pool in `stream` order.
    ///
    /// # Safety
    /// `ptr` came from [`Self::stream_allocate`]; work that uses it is ordered before this.
    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()>;
    /// Bytes the driver's pool holds for the process, and bytes of them in use: (reserved, used).
    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Releases the pool's unused memory above `keep` bytes.
    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()>;
}
