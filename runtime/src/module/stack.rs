//! Stack sizes of kernels whose stack size the driver cannot determine.

use gpu_spec::KernelSpec;
use gpu_spec::image::{KernelRecord, StackUse};

use super::GpuImage;

/// Assumed stack size, in bytes per thread, of kernels whose stack size is neither known at compile time nor declared.
/// Sufficient to format an `f32` with `core::fmt`.
const UNKNOWN: u32 = 16 << 10;

/// Returns the stack limit that a kernel requires, in bytes per thread; 0 if the driver determines its stack size.
pub fn needed(image: &GpuImage, spec: &KernelSpec, record: Option<&KernelRecord>) -> u32 {
    let Some(record) = record else { return spec.stack.unwrap_or(0) };
    let is_linked = |index: usize| image.modules().get(index).is_some_and(|module| module.is_linked);
    if !is_linked(record.module_index) {
        return of_record(record);
    }
    // The kernel may launch any kernel in its module.
    let of_module = image.kernels().iter().filter(|other| other.module_index == record.module_index);
    of_module.map(of_record).max().unwrap_or(0)
}

fn of_record(record: &KernelRecord) -> u32 {
    match (record.requested_stack, record.stack) {
        (0, StackUse::Known(_)) => 0,
        (0, StackUse::Unknown) => UNKNOWN,
        (requested, _) => requested,
    }
}
