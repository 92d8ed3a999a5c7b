//! Properties of a CUDA device, read from its attributes without a context.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;

use super::call::{self, Feature, check};
use crate::DeviceProperties;
use crate::error::Result;

/// Maximum portable cluster size in blocks, the same on every device that supports clusters.
const PORTABLE_CLUSTER: u32 = 8;

/// Returns the properties of device `ordinal`.
pub(super) fn read(ordinal: u32, driver_version: String) -> Result<DeviceProperties> {
    let device = call::device(ordinal)?;
    let get = |attribute| read_attribute(device, attribute);
    // The clock is in kHz, with two transfers per cycle, and the bus width is in bits. Some devices report neither.
    let clock_khz = u64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0));
    let bus_bits = u64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0));
    let major = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok(DeviceProperties {
        name: name(device)?,
        uuid: uuid(device)?,
        capability: (major, get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        total_memory: total_memory(device)?,
        l2_cache: u64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        memory_bandwidth: 2 * clock_khz * 1000 * (bus_bits / 8),
        max_threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_block: [
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        max_grid: [
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        max_threads_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_blocks_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        registers_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        shared_memory_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
        shared_memory_per_block_optin: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_memory_per_multiprocessor: get(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        )?,
        // Older drivers support neither this attribute nor the next one. Devices of compute capability 8.0 and later
        // reserve shared memory.
        reserved_shared_memory_per_block: get(
            Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
        )
        .unwrap_or(if major >= 8 { 1 << 10 } else { 0 }),
        cooperative_launch: Feature::LaunchAttributes.is_there()
            && get(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH).is_ok_and(|can| can != 0),
        max_cluster: if has_clusters(device) { PORTABLE_CLUSTER } else { 0 },
        warp_size: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        driver_version,
    })
}

/// Returns true if a device and its driver support clusters.
pub(super) fn has_clusters(device: sys::CUdevice) -> bool {
    let can = || read_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    Feature::Clusters.is_there() && can().is_ok_and(|can| can != 0)
}

/// Returns an attribute of a device, or 0 if the value is negative.
pub(super) fn read_attribute(device: sys::CUdevice, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the pointer is to a local variable; an unknown device causes an error.
    unsafe { check("cuDeviceGetAttribute", sys::cuDeviceGetAttribute(&mut value, attribute, device)) }?;
    Ok(value.max(0) as u32)
}

fn name(device: sys::CUdevice) -> Result<String> {
    let mut text = [0 as c_char; 256];
    // SAFETY: the buffer is one byte longer than the length passed, so the string is NUL-terminated.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as i32 - 1, device))?;
        Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

pub(super) fn uuid(device: sys::CUdevice) -> Result<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuDeviceGetUuid", sys::cuDeviceGetUuid_v2(&mut uuid, device)) }?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

fn total_memory(device: sys::CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut bytes, device)) }?;
    Ok(bytes as u64)
}
