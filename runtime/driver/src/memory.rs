//! [`MemoryDriver`]: the part of [`Driver`](crate::Driver) for device memory and page-locked host memory.

use std::ffi::c_void;

use crate::error::Result;
use crate::{Context, DevicePtr, PhysicalHandle, StreamHandle};

/// Device memory exported to another process: a file descriptor that keeps the memory alive.
#[derive(Debug)]
pub struct ExportedMemory(
    #[cfg(unix)] pub std::os::fd::OwnedFd,
    #[cfg(not(unix))] pub std::convert::Infallible,
);

/// Calls of a [`Driver`](crate::Driver) for device memory and page-locked host memory.
///
/// # Safety
/// As for [`Driver`](crate::Driver).
pub unsafe trait MemoryDriver {
    /// Free and total bytes of device memory.
    fn memory_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Allocates device memory, aligned to at least 256 bytes. `bytes` is not zero.
    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees device memory.
    ///
    /// # Safety
    /// `ptr` came from [`Self::memory_allocate`], and no enqueued work uses it.
    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()>;
    /// Returns true if a kernel check must be told which buffers exist in device memory, by [`Self::buffer_allocated`]
    /// and [`Self::buffer_freed`]. The answer does not change.
    fn watches_buffers(&self) -> bool {
        false
    }
    /// Reports a new buffer in device memory, at a multiple of 512. Work enqueued later may use it within its `bytes`,
    /// and nothing in it counts as written.
    fn buffer_allocated(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// Reports that work enqueued later may not use the buffer at `ptr`.
    fn buffer_freed(&self, _ptr: DevicePtr, _bytes: usize) {}
    /// Allocates page-locked host memory that the device can read and write, aligned to at least 256 bytes.
    /// `bytes` is not zero.
    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void>;
    /// Frees page-locked host memory.
    ///
    /// # Safety
    /// `ptr` came from [`Self::pinned_allocate`], and no enqueued work uses it.
    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Page-locks memory of the process, so that every device can read and write it. `bytes` is not zero. Fails if any
    /// byte is already registered.
    ///
    /// # Safety
    /// The `bytes` at `ptr` are memory of the process, which stays until [`Self::host_unregister`].
    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Undoes [`Self::host_register`].
    ///
    /// # Safety
    /// `ptr` was registered, and no enqueued work uses the memory.
    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Makes memory of the process that other code owns usable as device memory, in place and without page-locking it.
    /// Ranges may overlap. `bytes` is not zero. Fails with `CUDA_ERROR_NOT_SUPPORTED` unless the devices share the
    /// memory of the process, as emulated ones do.
    ///
    /// # Safety
    /// The `bytes` at `ptr` are memory of the process, which stays until [`Self::host_conceal`].
    unsafe fn host_expose(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Undoes one [`Self::host_expose`] of the same range.
    ///
    /// # Safety
    /// The range was exposed, and no enqueued work uses it on behalf of that call.
    unsafe fn host_conceal(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Device address of page-locked memory, allocated or registered, for kernels of the context. Fails for other
    /// memory.
    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr>;
    /// Ordinal of the device that owns the memory at an address; `None` for host memory and for managed memory. Fails
    /// for an address that the driver does not know.
    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>>;

    /// Granularity in bytes of mapped memory; `None` if the device cannot map memory into reserved addresses.
    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>>;
    /// Reserves an address range without memory. `bytes` is a multiple of the granularity and not zero.
    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees a whole reservation.
    ///
    /// # Safety
    /// `ptr` and `bytes` belong to one [`Self::virtual_reserve`] call, and nothing is mapped there.
    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Creates physical device memory without an address. `bytes` is a multiple of the granularity and not zero.
    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// Creates physical memory like [`Self::physical_create`] that other processes can also map. Fails with
    /// `CUDA_ERROR_NOT_SUPPORTED` where memory cannot be exported as a file descriptor.
    fn physical_create_shareable(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// Exports memory for import by another process. The handle came from [`Self::physical_create_shareable`].
    fn physical_export(&self, context: Context, handle: PhysicalHandle) -> Result<ExportedMemory>;
    /// Imports memory that another driver, or the driver of another process, has exported. It belongs to the context's
    /// device or to one that this device can access. The handle is mapped and released like one of
    /// [`Self::physical_create`]. The memory stays until all handles are released and no process maps it.
    ///
    /// # Safety
    /// The memory was exported by a driver of this kind, and `bytes` is its size at creation.
    unsafe fn physical_import(
        &self,
        context: Context,
        memory: &ExportedMemory,
        bytes: usize,
    ) -> Result<PhysicalHandle>;
    /// Releases the handle. Mapped memory is freed only after it is also unmapped.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()>;
    /// Maps memory to reserved addresses. No device can use it before [`Self::virtual_set_access`].
    ///
    /// # Safety
    /// The range is reserved and nothing is mapped there; `bytes` is the full size of the handle, and the handle is not
    /// mapped elsewhere.
    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()>;
    /// Unmaps the memory. It does not wait for work.
    ///
    /// # Safety
    /// The range consists of whole mappings, and no enqueued work uses it.
    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Gives devices (by ordinal) read and write access to a mapped range, in addition to devices that already have it.
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
    /// Frees memory to the pool in `stream` order.
    ///
    /// # Safety
    /// `ptr` came from [`Self::stream_allocate`]; work that uses it is ordered before this.
    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()>;
    /// Bytes that the driver's pool holds for the process, and bytes of them in use: (reserved, used).
    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Releases the pool's unused memory above `keep` bytes.
    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()>;
}
