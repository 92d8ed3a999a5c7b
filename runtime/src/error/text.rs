//! Text of error messages: sizes, devices, kernels, remedies.

use std::fmt;

use super::DeviceId;

/// A number of bytes, formatted in the largest unit in which the value is at least one.
///
/// ```
/// use warpsmith_runtime::error::Bytes;
///
/// assert_eq!(Bytes(3 << 20).to_string(), "3.00 MiB");
/// ```
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
            if value < 1024.0 {
                let digits = if unit == "B" { 0 } else { 2 };
                return write!(f, "{value:.digits$} {unit}");
            }
            value /= 1024.0;
        }
        write!(f, "{value:.2} EiB")
    }
}

pub(super) fn pinned_advice(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!(
            "; the limit is {}: raise it with `PinnedMemory::set_limit`, or drop pinned buffers first",
            Bytes(limit)
        ),
        None => {
            "; drop pinned buffers first, lock smaller pieces, or copy with `copy_from_host`, which needs no pinned \
             memory"
                .to_owned()
        }
    }
}

pub(super) fn checked_advice(device: DeviceId) -> &'static str {
    if device.is_emulated() {
        "run the program or its test with `warpsmith check`, for example `warpsmith check test NAME`"
    } else {
        "only the emulated device checks kernels: open it with `Device::emulated`, and run the test with `warpsmith \
         check test NAME`"
    }
}

pub(super) fn ptx_version(version: u32) -> String {
    format!("{}.{}", version / 10, version % 10)
}

pub(super) fn device_count(device: DeviceId, count: u32) -> String {
    let kind = device.kind_name();
    match count {
        0 => format!("there are no {kind} devices"),
        1 => format!("the only {kind} device is {}", device.with_ordinal(0)),
        n => format!(
            "there are {n} {kind} devices, {} to {}",
            device.with_ordinal(0),
            device.with_ordinal(n - 1)
        ),
    }
}

pub(super) fn arch_note(min_arch: u32, capability: (u32, u32)) -> String {
    if min_arch > 10 * capability.0 + capability.1 {
        format!(" (compute capability {}.{})", capability.0, capability.1)
    } else {
        String::new()
    }
}

pub(super) fn arch_advice(min_arch: u32, capability: (u32, u32)) -> String {
    if min_arch > 10 * capability.0 + capability.1 {
        format!("it needs compute capability {}.{} or higher", min_arch / 10, min_arch % 10)
    } else {
        "load the image of the package that defines it, and list this instance in its `#[kernel]`".to_owned()
    }
}

pub(super) fn kernel_name(kernels: &[String]) -> String {
    match kernels {
        [] => "a kernel".to_owned(),
        [one] => format!("kernel `{one}`"),
        several => format!("one of the kernels `{}`", several.join("`, `")),
    }
}

pub(super) fn at(location: &Option<String>) -> String {
    location.as_ref().map(|l| format!(" at {l}")).unwrap_or_default()
}

pub(super) fn by_thread(block: &Option<[u32; 3]>, thread: &Option<[u32; 3]>) -> String {
    match (block, thread) {
        (Some(block), Some(thread)) => format!(" (block {block:?}, thread {thread:?})"),
        (Some(block), None) => format!(" (block {block:?})"),
        _ => String::new(),
    }
}
