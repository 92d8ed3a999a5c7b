//! [`DeviceCopy`]: types whose values can be stored in device memory.

use bytemuck::{AnyBitPattern, NoUninit};

/// A type whose values can be stored in device memory: plain bits without padding, for which any bit pattern is valid.
///
/// Implemented automatically for types that are both `AnyBitPattern` and `NoUninit` in `bytemuck`, and therefore for
/// all `Pod` types. These types include numbers, `f16` and `bf16` from `half`, vectors from `glam`, arrays of them, and
/// structs that derive gpu-std's `KernelType`. `bool` and enums can be stored as gpu-std's `Checked`, which implements
/// this trait.
///
/// Padding is excluded because its bytes keep earlier contents of the memory, such as freed data. A copy to the device
/// would transfer these bytes, and kernels, files and other hosts could then read them.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gpu_spec::DeviceCopy;
///
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     mass: f32,
/// }
///
/// fn bytes<T: DeviceCopy>(elements: &[T]) -> usize {
///     size_of_val(elements)
/// }
///
/// assert_eq!(bytes(&[Particle { position: [0.0; 3], mass: 1.0 }]), 16);
/// ```
///
/// # Safety
/// If [`Self::CHECKED`] compiles, the type must not have padding.
#[diagnostic::on_unimplemented(
    message = "values of `{Self}` cannot be stored in device memory",
    label = "not a type without padding for which every bit pattern is valid",
    note = "supported types: numbers, `f16`, `bf16`, arrays of them, structs that derive `KernelType`, and `bool` and \
            enums as `Checked`; references and types that own memory must stay on the host",
    note = "padding bytes would expose earlier contents of memory: replace the padding with a field"
)]
pub unsafe trait DeviceCopy: AnyBitPattern + Send + Sync {
    /// Compile-time check, which fails for a generic struct that has padding with these type arguments.
    #[doc(hidden)]
    const CHECKED: () = ();
}

// SAFETY: a type that implements both traits has no padding.
#[diagnostic::do_not_recommend]
unsafe impl<T: AnyBitPattern + NoUninit + Send + Sync> DeviceCopy for T {}
