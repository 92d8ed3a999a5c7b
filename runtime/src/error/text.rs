//! The words of errors: sizes, devices, kernels, and what to do.

use std::fmt;

use super::code;
use crate::device::DeviceId;

/// A number of bytes in the largest unit that keeps it above one.
pub(crate) struct Bytes(pub u64);

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

/// What to do about a driver's code that is about captures.
pub(crate) fn capture_advice(code: u32) -> Option<&'static str> {
    Some(match code {
        code::STREAM_CAPTURE_UNSUPPORTED => {
            "it waits, asks or allocates, which cannot be captured; do it before the capture begins or after it ends"
        }
        code::STREAM_CAPTURE_INVALIDATED => {
            "an earlier call spoilt the capture; once that is ended, mend the call and capture again"
        }
        code::STREAM_CAPTURE_MERGE => {
            "it would join two captures; wait only for events that were recorded in the same capture"
        }
        code::STREAM_CAPTURE_UNMATCHED => "end the capture on the stream on which it began",
        code::STREAM_CAPTURE_UNJOINED => {
            "another stream took part and was not joined; record an event on it after its last work and let the stream \
             on which the capture began wait for that event before the end"
        }
        code::STREAM_CAPTURE_ISOLATION => {
            "captured work would depend on work outside of the capture; wait for that work before the capture begins"
        }
        code::STREAM_CAPTURE_IMPLICIT => {
            "it would order the legacy default stream with the capture; use a stream that was created, during a capture"
        }
        code::CAPTURED_EVENT => {
            "the event was recorded in a capture, which runs nothing; record it again after the graph was launched"
        }
        code::STREAM_CAPTURE_WRONG_THREAD => {
            "end the capture on the thread on which it began, or begin it in the relaxed mode"
        }
        _ => return None,
    })
}

pub(super) fn pinned_advice(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!(
            "; the limit is {}: raise it with `PinnedMemory::set_limit`, or drop pinned buffers first",
            Bytes(limit)
        ),
        None => {
            "; drop pinned buffers first, lock smaller pieces, or copy with `copy_from_host`, which needs none"
                .to_owned()
        }
    }
}

pub(super) fn ptx_version(version: u32) -> String {
    format!("{}.{}", version / 10, version % 10)
}

pub(super) fn log_suffix(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its compiler says:\n{log}") }
}

pub(super) fn device_count(device: DeviceId, count: u32) -> String {
    let kind = device.kind_name();
    match count {
        0 => format!("there are no {kind} devices"),
        1 => format!("there is one {kind} device, {}", device.with_ordinal(0)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_about_captures_has_its_own_advice_and_no_other_has() {
        let told: Vec<_> = (900..=908).map(|code| capture_advice(code).unwrap()).collect();
        for (index, advice) in told.iter().enumerate() {
            assert!(!told[..index].contains(advice), "{advice}");
        }
        for other in [code::INVALID_VALUE, code::NOT_PERMITTED, 899, 909, code::GRAPH_EXEC_UPDATE_FAILURE] {
            assert_eq!(capture_advice(other), None, "{other}");
        }
    }
}
