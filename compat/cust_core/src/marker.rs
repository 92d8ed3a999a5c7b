//! [`DeviceCopy`], without its derive macro.

/// Type whose values can be copied to and from a device as bytes.
///
/// # Safety
/// The type must contain no references or pointers to memory that the device cannot access. The host interprets the
/// bytes that a device has written as values of the type, so kernels must write valid values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be copied to a device",
    label = "not `DeviceCopy`",
    note = "supported types: numbers, and arrays, tuples and `Option`s of them; a struct requires `#[derive(Clone, Copy, DeviceCopy)]` and `#[repr(C)]`; glam's types require cust_core's feature `glam`"
)]
pub unsafe trait DeviceCopy: Copy {}
