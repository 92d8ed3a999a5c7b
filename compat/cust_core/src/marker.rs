//! [`DeviceCopy`], apart from its derive.

/// A type whose values can be copied to and from a device as bytes.
///
/// # Safety
///
/// It has no reference or pointer to memory that the device cannot reach. What a device leaves in memory of this type is
/// read as values of it: kernels write valid ones.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be copied to a device",
    label = "not `DeviceCopy`",
    note = "numbers, arrays, tuples and `Option`s of them are; a struct is with `#[derive(Clone, Copy, DeviceCopy)]` and `#[repr(C)]`; glam's and mint's types with cust_core's features of these names"
)]
pub unsafe trait DeviceCopy: Copy {}
