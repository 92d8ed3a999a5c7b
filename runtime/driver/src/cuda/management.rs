//! The management library, if the machine has it.
//!
//! The devices of that library are those of the machine, whatever subset and order of them this process sees, so
//! a device is found by its identity. Any failure means that nothing is reported.

use std::fmt::Write;
use std::sync::OnceLock;

use nvml_wrapper::{Device, Nvml};

use super::{call, properties};

/// The library, loaded at its first use.
fn library() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Option<Nvml>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nvml::init().ok()).as_ref()
}

/// Device `ordinal` of this process.
pub(super) fn device(ordinal: u32) -> Option<Device<'static>> {
    let text = uuid_text(call::device(ordinal).and_then(properties::uuid).ok()?);
    let library = library()?;
    // A part of a device has an identity of its own, of the other form.
    ["GPU", "MIG"].iter().find_map(|kind| library.device_by_uuid(format!("{kind}-{text}")).ok())
}

/// Version of the driver's package.
pub(super) fn driver_version() -> Option<String> {
    library()?.sys_driver_version().ok()
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
