//! [`DeviceCopy`]: types whose values can be stored in device memory.

use bytemuck::{AnyBitPattern, NoUninit};

/// Types whose values can be stored in device memory: plain bits, valid for any bit pattern, without padding.
///
/// Implemented automatically for `AnyBitPattern` and `NoUninit` types of `bytemuck`, and so for all `Pod` types. These
/// include numbers, `f16` and `bf16` of `half`, vectors of `glam`, arrays of those, and structs that derive gpu-std's
/// `KernelType`. `bool` and enums implement it through gpu-std's `Checked`.
///
/// Padding bytes contain whatever was in memory before, such as freed host memory. A copy to the device would transfer
/// them, and kernels, files and other hosts could then read them.
///
/// # Safety
///
/// If [`Self::CHECKED`] compiles, the type must not have padding.
#[diagnostic::on_unimplemented(
    message = "values of `{Self}` cannot lie in device memory",
    label = "not plain bits without padding of which every pattern is a value",
    note = "numbers, `f16` and `bf16`, arrays of those and structs that derive `KernelType` can, `bool` \
            and enums as `Checked`; references and types that own memory stay on the host",
    note = "bytes of padding would carry what lay there before: write a field for them"
)]
pub unsafe trait DeviceCopy: AnyBitPattern + Send + Sync {
    /// Does not compile for a generic struct that has padding with these type arguments.
    #[doc(hidden)]
    const CHECKED: () = ();
}

// SAFETY: such a type has no padding.
#[diagnostic::do_not_recommend]
unsafe impl<T: AnyBitPattern + NoUninit + Send + Sync> DeviceCopy for T {}
