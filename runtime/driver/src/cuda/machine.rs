//! The machine's devices, hidden ones too, from the management library, without starting CUDA.
//!
//! The library is opened for each question and closed after it, so that nothing is left to a forked process.

use super::management::Library;

/// The identities of all GPUs by their indices, and after them those of the parts of GPUs (MIG). `None` if the library
/// is not there or does not work.
pub fn machine_devices() -> Option<Vec<String>> {
    let library = Library::open()?;
    let (mut gpus, mut parts) = (Vec::new(), Vec::new());
    for index in 0..library.device_count()? {
        // A device that is not reported is one that the process may not use.
        let Some(device) = library.device_at(index) else { continue };
        gpus.extend(device.uuid());
        for part in 0..device.max_parts().unwrap_or(0) {
            // The count is that of the slots, not all of which are occupied.
            parts.extend(device.part(part).and_then(|part| part.uuid()));
        }
    }
    gpus.append(&mut parts);
    Some(gpus)
}
