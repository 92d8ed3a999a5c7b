//! Who uses a device's memory, from the management library, if the machine has it.
//!
//! The devices of that library are those of the machine, whatever subset and order of them this process sees, so
//! a device is found by its identity. Any failure means that nothing is told.

use std::fmt::Write;
use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::{call, properties};

/// The library, loaded when it is first asked for.
fn library() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Option<Nvml>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nvml::init().ok()).as_ref()
}

/// Process and bytes of everyone with a context on device `ordinal`. Processes whose use is not told are left out.
pub(super) fn memory(ordinal: u32) -> Vec<(u32, u64)> {
    let device = call::device(ordinal).and_then(properties::uuid).ok().zip(library());
    device.and_then(|(uuid, library)| read(library, uuid)).unwrap_or_default()
}

fn read(library: &Nvml, uuid: [u8; 16]) -> Option<Vec<(u32, u64)>> {
    let text = uuid_text(uuid);
    // A part of a device has an identity of its own, of the other form.
    let found =
        ["GPU", "MIG"].iter().find_map(|kind| library.device_by_uuid(format!("{kind}-{text}")).ok())?;
    let processes = found.running_compute_processes().ok()?;
    let told = processes.into_iter().filter_map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some((process.pid, bytes)),
        UsedGpuMemory::Unavailable => None,
    });
    Some(told.collect())
}

/// An identity as the management library writes it.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::uuid_text;

    #[test]
    fn identities_are_written_in_groups() {
        let uuid = [0x0a, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(uuid_text(uuid), "0aff0203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
