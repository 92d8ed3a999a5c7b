//! Devices of the machine, including hidden ones, from NVML, without initializing CUDA.
//!
//! NVML is opened for each query and closed after it, so that a forked process inherits nothing.

use super::management::Library;

/// UUIDs of all GPUs by index, followed by the UUIDs of MIG instances. `None` if NVML is missing or does not work.
pub fn machine_devices() -> Option<Vec<String>> {
    let library = Library::open()?;
    let (mut gpus, mut parts) = (Vec::new(), Vec::new());
    for index in 0..library.device_count()? {
        // A device that NVML does not report is not available to the process.
        let Some(device) = library.device_at(index) else { continue };
        gpus.extend(device.uuid());
        for part in 0..device.max_parts().unwrap_or(0) {
            // The count is the number of slots, not all of which are occupied.
            parts.extend(device.part(part).and_then(|part| part.uuid()));
        }
    }
    gpus.append(&mut parts);
    Some(gpus)
}
