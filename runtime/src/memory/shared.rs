//! [`SharedMemory`]: device memory that other devices and other processes can map.
//!
//! It never comes from the caching allocator, because an exported file descriptor shares an entire allocation for as
//! long as the other process keeps it.

use crate::device::Device;
use crate::device::health::Quiet;
use crate::driver::{DevicePtr, ExportedMemory, PhysicalHandle};
use crate::error::{Error, Result};

/// Device memory at reserved addresses, allocated in this process or imported. Communicators use it as symmetric
/// memory.
///
/// The physical memory is freed when no process maps it or owns a handle to it. Dropping the value unmaps the memory in
/// this process without waiting for its uses. To wait, make the value the owner of a
/// [`DeviceBuffer::from_raw`](crate::DeviceBuffer::from_raw), which drops it after the buffer's last use.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::memory::SharedMemory;
///
/// let device = Device::emulated(0)?;
/// if SharedMemory::is_supported(&device)? {
///     let own = SharedMemory::allocate(&device, 1000)?;
///     // In another process, which has received the file descriptor:
///     // SAFETY: it was exported by `own`.
///     let same = unsafe { SharedMemory::import(&device, &own.export()?, own.bytes()) }?;
///     assert_ne!(own.address(), same.address());
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedMemory {
    device: Device,
    address: DevicePtr,
    bytes: usize,
    handle: PhysicalHandle,
}

impl SharedMemory {
    /// Returns true if the device supports shared memory. Emulated devices and GPUs support it on Linux hosts; a GPU
    /// must also support virtual memory management.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`] or any [driver error](crate::Error::Driver).
    pub fn is_supported(device: &Device) -> Result<bool> {
        let granularity = device.call(|driver, context| driver.virtual_granularity(context))?;
        Ok(granularity.is_some() && cfg!(target_os = "linux"))
    }

    /// Allocates at least `bytes` bytes of uninitialized memory. The size is rounded up to a multiple of the device's
    /// page size.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`], or `CUDA_ERROR_NOT_SUPPORTED` if [`Self::is_supported`] returns false or if the
    /// driver cannot export memory of the device.
    pub fn allocate(device: &Device, bytes: usize) -> Result<Self> {
        let page = device.call(|driver, context| driver.virtual_granularity(context))?;
        let rounded = page.and_then(|page| bytes.max(1).checked_next_multiple_of(page));
        let bytes = rounded.unwrap_or(bytes.max(1));
        let handle = device.call(|driver, context| driver.physical_create_shareable(context, bytes))?;
        Self::map(device, handle, bytes)
    }

    /// Imports memory that another process, or another driver in this process, has [exported](Self::export). `bytes` is
    /// the memory's [size](Self::bytes).
    ///
    /// See the example of [`SharedMemory`].
    ///
    /// # Errors
    /// Returns a [driver error](crate::Error::Driver), for example if the driver detects that the descriptor does not
    /// refer to exported memory or that the size differs.
    ///
    /// # Safety
    /// The memory must have been exported from a `SharedMemory` of size `bytes` that belongs to a driver of the same
    /// kind.
    pub unsafe fn import(device: &Device, memory: &ExportedMemory, bytes: usize) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let import = |driver: &dyn crate::driver::Driver, context| unsafe {
            driver.physical_import(context, memory, bytes)
        };
        Self::map(device, device.call(import)?, bytes)
    }

    /// Maps the memory of a handle, taking ownership of the handle.
    fn map(device: &Device, handle: PhysicalHandle, bytes: usize) -> Result<Self> {
        let release = || {
            // SAFETY: the handle is not used again. An error is ignored, because only the first error can be returned.
            let _ = device.call_lost(|driver, context| unsafe { driver.physical_release(context, handle) });
        };
        let address = device
            .call(|driver, context| driver.virtual_reserve(context, bytes))
            .inspect_err(|_: &Error| release())?;
        let mapped = device.call(|driver, context| {
            // SAFETY: the range was just reserved, and the handle is not mapped anywhere.
            unsafe { driver.virtual_map(context, address, bytes, handle) }
        });
        mapped.inspect_err(|_: &Error| {
            // SAFETY: nothing is mapped in the range.
            let _ = device
                .call_lost(|driver, context| unsafe { driver.virtual_release(context, address, bytes) });
            release();
        })?;
        // From here on, dropping `memory` undoes the mapping.
        let memory = Self { device: device.clone(), address, bytes, handle };
        memory.allow(device)?;
        Ok(memory)
    }

    /// Grants another of this process's devices access to the memory, at the same address.
    ///
    /// # Errors
    /// Returns [`Error::NoPeerAccess`] if the devices have no peer access.
    pub fn allow(&self, device: &Device) -> Result<()> {
        if !device.can_access_peer(&self.device)? {
            return Err(Error::NoPeerAccess { device: self.device.id(), peer: device.id() });
        }
        self.device.call(|driver, context| {
            // SAFETY: the range is exactly one mapping.
            unsafe { driver.virtual_set_access(context, self.address, self.bytes, &[device.id().ordinal()]) }
        })
    }

    /// Exports the memory as a file descriptor, which another process can import.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver), for example if the process has too many open files.
    pub fn export(&self) -> Result<ExportedMemory> {
        self.device.call(|driver, context| driver.physical_export(context, self.handle))
    }

    /// Returns the address of the mapping in this process.
    pub fn address(&self) -> DevicePtr {
        self.address
    }

    /// Returns the size of the memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the device for which the memory was allocated or imported.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let Self { address, bytes, handle, .. } = *self;
        let released = self.device.call_lost(|driver, context| {
            // SAFETY: users of the address keep this value alive. The range is exactly one mapping, and its handle is
            // not used again.
            unsafe {
                driver.virtual_unmap(context, address, bytes)?;
                driver.physical_release(context, handle)?;
                driver.virtual_release(context, address, bytes)
            }
        });
        if !self.device.is_lost() && !self.device.is_forked() {
            self.device.0.health.record_drop(released);
        }
    }
}
