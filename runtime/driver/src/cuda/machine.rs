//! Devices of the machine, including hidden ones, from NVML, which does not initialize CUDA.
//!
//! NVML is open only during a query, so that a forked process inherits no NVML state.

use super::management::Library;

/// Returns the UUIDs of all GPUs in index order, followed by the UUIDs of MIG instances; `None` if NVML is missing or
/// unusable.
pub fn machine_devices() -> Option<Vec<String>> {
    let library = Library::open()?;
    let (mut gpus, mut parts) = (Vec::new(), Vec::new());
    for index in 0..library.device_count()? {
        // Devices that NVML does not report are not available to the process.
        let Some(device) = library.device_at(index) else { continue };
        gpus.extend(device.uuid());
        for part in 0..device.max_parts().unwrap_or(0) {
            // The count includes empty slots.
            parts.extend(device.part(part).and_then(|part| part.uuid()));
        }
    }
    gpus.append(&mut parts);
    Some(gpus)
}
