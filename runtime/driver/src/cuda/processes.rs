//! The processes that use a device's memory, as far as the management library reports them.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::management;

/// Process and bytes of every context on device `ordinal`. Processes whose use is not reported are left out.
pub(super) fn memory(ordinal: u32) -> Vec<(u32, u64)> {
    management::device(ordinal).and_then(|device| read(&device)).unwrap_or_default()
}

fn read(device: &Device<'_>) -> Option<Vec<(u32, u64)>> {
    let processes = device.running_compute_processes().ok()?;
    let told = processes.into_iter().filter_map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some((process.pid, bytes)),
        UsedGpuMemory::Unavailable => None,
    });
    Some(told.collect())
}
