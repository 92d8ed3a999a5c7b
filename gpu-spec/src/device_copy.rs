//! [`DeviceCopy`]: the types whose values can lie in device memory.

use bytemuck::{AnyBitPattern, NoUninit};

/// Types whose values can lie in device memory: plain bits, any of which are a value, and no padding.
///
/// Implemented by itself for what is `AnyBitPattern` and `NoUninit` of `bytemuck`, so for all that is `Pod`: numbers, `f16` and
/// `bf16` of `half`, vectors of `glam`, arrays of those, structs that derive gpu-std's `KernelType`, `bool` and
/// enums in gpu-std's `Checked`.
///
/// The bytes of padding are whatever lay there before, such as freed memory of the host. A copy to the device would take them
/// along, to where kernels, files and other hosts can read them.
///
/// # Safety
///
/// The type has no padding, as far as [`Self::CHECKED`] compiles.
#[diagnostic::on_unimplemented(
    message = "values of `{Self}` cannot lie in device memory",
    label = "not plain bits without padding of which every pattern is a value",
    note = "numbers, `f16` and `bf16`, arrays of those and structs that derive `KernelType` can, `bool` \
            and enums as `Checked`; references and types that own memory stay on the host",
    note = "bytes of padding would carry what lay there before: write a field for them"
)]
pub unsafe trait DeviceCopy: AnyBitPattern + Send + Sync {
    /// Does not compile for a generic struct that has padding with these arguments.
    #[doc(hidden)]
    const CHECKED: () = ();
}

// SAFETY: such a type has no padding.
#[diagnostic::do_not_recommend]
unsafe impl<T: AnyBitPattern + NoUninit + Send + Sync> DeviceCopy for T {}
