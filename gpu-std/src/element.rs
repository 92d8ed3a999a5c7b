//! Which types can cross from host to kernel.
//!
//! A kernel reads whatever bytes the host or another kernel left in a buffer, so every bit pattern must be a
//! value: that is [`bytemuck::AnyBitPattern`]. Types of this kind need nothing else; derive it for your own.

use bytemuck::AnyBitPattern;
use gpu_spec::param;

/// A type that can be passed to a kernel by value, and be an element of a
/// [`DisjointMut`](crate::DisjointMut) view.
///
/// Implemented for everything that is [`AnyBitPattern`], `Send` and `Sync`: numbers, `f16`, `bf16`, arrays,
/// glam's vectors and matrices, and structs that derive it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel",
    label = "not plain data that every bit pattern is a value of",
    note = "numbers, arrays of them, f16, bf16 and glam types can be; a struct can be when it derives `Clone`, `Copy` and `bytemuck::AnyBitPattern`"
)]
pub trait KernelValue: AnyBitPattern + Send + Sync {}

impl<T: AnyBitPattern + Send + Sync> KernelValue for T {}

/// A type that can be an element of a slice parameter `&[T]`: every [`KernelValue`], and
/// [`Atomic`](crate::atomic::Atomic), which a launch takes from a buffer that it borrows mutably.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel's slice",
    label = "not plain data that every bit pattern is a value of",
    note = "numbers, arrays of them, f16, bf16, glam types and `Atomic<T>` can be; a struct can be when it derives `Clone`, `Copy` and `bytemuck::AnyBitPattern`"
)]
pub trait SliceElement: Sync + 'static {
    /// The marker of a slice of elements of this type.
    type Param;
}

impl<T: AnyBitPattern + Send + Sync> SliceElement for T {
    type Param = param::Slice<T>;
}
