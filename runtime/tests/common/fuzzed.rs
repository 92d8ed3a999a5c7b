//! Code under test for fuzzer input and its corpora. No input may cause a panic, a hang or a large allocation.

use warpsmith_runtime::device::visible;
use warpsmith_runtime::{AllocatorOptions, DeviceId};

/// Parses text of allocator options.
pub fn allocator_options(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(options) = text.parse::<AllocatorOptions>() else { return };
    options.check().expect("what is read is within its range");
    let written = options.to_string();
    assert_eq!(written.parse::<AllocatorOptions>().expect("what was written is read").to_string(), written);
}

/// Parses the text of a device, or of `CUDA_VISIBLE_DEVICES`.
pub fn device_lists(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(id) = text.parse::<DeviceId>() {
        assert_eq!(id.to_string().parse::<DeviceId>().unwrap(), id);
    }
    let machine = ["GPU-aa11-0", "GPU-aa12-1", "GPU-bb00-2", "MIG-cc10", "MIG-cc20"].map(str::to_owned);
    let visible = visible::read(Some(&text), &machine);
    let mut devices = visible.devices.clone();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), visible.devices.len(), "no device is visible twice");
    assert!(devices.iter().all(|device| *device < machine.len()));
    assert!(visible.mistake.is_none_or(|position| position < text.split(',').count()));
}
