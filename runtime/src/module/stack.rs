//! How much stack a kernel's threads need that the driver does not know of.

use gpu_spec::KernelSpec;
use gpu_spec::image::{KernelRecord, StackUse};

use super::GpuImage;

/// For kernels whose stack is not known when they are compiled and that declare none: enough to format a `f32` with
/// `core::fmt`. In bytes per thread.
const UNKNOWN: u32 = 16 << 10;

/// Bytes of stack per thread that the device's stack limit must allow; 0 for a kernel whose stack the driver knows.
pub fn needed(image: &GpuImage, spec: &KernelSpec, record: Option<&KernelRecord>) -> u32 {
    let Some(record) = record else { return spec.stack.unwrap_or(0) };
    let is_linked = |part: usize| image.parts().get(part).is_some_and(|part| part.is_linked);
    if !is_linked(record.part) {
        return of_record(record);
    }
    // It may launch any other kernel of its part.
    let of_part = image.kernels().iter().filter(|other| other.part == record.part);
    of_part.map(of_record).max().unwrap_or(0)
}

fn of_record(record: &KernelRecord) -> u32 {
    match (record.requested_stack, record.stack) {
        (0, StackUse::Known(_)) => 0,
        (0, StackUse::Unknown) => UNKNOWN,
        (requested, _) => requested,
    }
}
