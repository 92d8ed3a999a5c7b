//! [`Device`]: a CUDA device of the machine.

use warpsmith_runtime::{self as runtime, DeviceId};

use crate::error::CudaResult;

/// A device, identified by its ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    id: DeviceId,
}

/// Properties of a device.
#[allow(missing_docs, reason = "each is CUDA's attribute of that name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceAttribute {
    MaxThreadsPerBlock,
    MaxBlockDimX,
    MaxBlockDimY,
    MaxBlockDimZ,
    MaxGridDimX,
    MaxGridDimY,
    MaxGridDimZ,
    MaxSharedMemoryPerBlock,
    WarpSize,
    MultiprocessorCount,
    MaxThreadsPerMultiprocessor,
    L2CacheSize,
    ComputeCapabilityMajor,
    ComputeCapabilityMinor,
    MaxSharedMemoryPerMultiprocessor,
    MaxRegistersPerMultiprocessor,
    CooperativeLaunch,
    MaxSharedMemoryPerBlockOptin,
}

impl Device {
    /// Returns the number of CUDA devices.
    ///
    /// # Errors
    /// Returns [`CudaError::NoDevice`](crate::error::CudaError::NoDevice) if there is no driver.
    pub fn num_devices() -> CudaResult<u32> {
        Ok(runtime::Device::cuda_count()?)
    }

    /// Returns the device with this ordinal, according to the numbering of `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidDevice`](crate::error::CudaError::InvalidDevice) if there is no device with this
    /// ordinal; [`CudaError::NoDevice`](crate::error::CudaError::NoDevice) if there is no driver.
    pub fn get_device(ordinal: u32) -> CudaResult<Device> {
        runtime::Device::cuda(ordinal)?;
        Ok(Device { id: DeviceId::Cuda(ordinal) })
    }

    /// Returns an iterator over all CUDA devices.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::num_devices`].
    pub fn devices() -> CudaResult<Devices> {
        Ok(Devices { range: 0..Self::num_devices()? })
    }

    /// Returns the size of the device memory in bytes.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn total_memory(self) -> CudaResult<usize> {
        Ok(self.runtime()?.properties().total_memory as usize)
    }

    /// Returns the product name.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn name(self) -> CudaResult<String> {
        Ok(self.runtime()?.name().to_owned())
    }

    /// Returns the UUID of the device, which never changes.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn uuid(self) -> CudaResult<[u8; 16]> {
        Ok(self.runtime()?.uuid().0)
    }

    /// Returns the value of a device attribute.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn get_attribute(self, attribute: DeviceAttribute) -> CudaResult<i32> {
        let device = self.runtime()?;
        let of = device.properties();
        let value = match attribute {
            DeviceAttribute::MaxThreadsPerBlock => of.max_threads_per_block,
            DeviceAttribute::MaxBlockDimX => of.max_block[0],
            DeviceAttribute::MaxBlockDimY => of.max_block[1],
            DeviceAttribute::MaxBlockDimZ => of.max_block[2],
            DeviceAttribute::MaxGridDimX => of.max_grid[0],
            DeviceAttribute::MaxGridDimY => of.max_grid[1],
            DeviceAttribute::MaxGridDimZ => of.max_grid[2],
            DeviceAttribute::MaxSharedMemoryPerBlock => of.shared_memory_per_block,
            DeviceAttribute::WarpSize => of.warp_size,
            DeviceAttribute::MultiprocessorCount => of.multiprocessors,
            DeviceAttribute::MaxThreadsPerMultiprocessor => of.max_threads_per_multiprocessor,
            DeviceAttribute::L2CacheSize => u32::try_from(of.l2_cache).unwrap_or(u32::MAX),
            DeviceAttribute::ComputeCapabilityMajor => of.capability.0,
            DeviceAttribute::ComputeCapabilityMinor => of.capability.1,
            DeviceAttribute::MaxSharedMemoryPerMultiprocessor => of.shared_memory_per_multiprocessor,
            DeviceAttribute::MaxRegistersPerMultiprocessor => of.registers_per_multiprocessor,
            DeviceAttribute::CooperativeLaunch => of.cooperative_launch.into(),
            DeviceAttribute::MaxSharedMemoryPerBlockOptin => of.shared_memory_per_block_optin,
        };
        Ok(i32::try_from(value).unwrap_or(i32::MAX))
    }

    /// Returns the corresponding device of the runtime, for functions that this crate does not provide.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn runtime(self) -> CudaResult<runtime::Device> {
        Ok(runtime::Device::from_id(self.id)?)
    }

    pub(crate) fn of(device: &runtime::Device) -> Device {
        Device { id: device.id() }
    }
}

/// Iterator over the devices of the machine.
#[derive(Debug, Clone)]
pub struct Devices {
    range: std::ops::Range<u32>,
}

impl Iterator for Devices {
    type Item = CudaResult<Device>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(Device::get_device)
    }
}
