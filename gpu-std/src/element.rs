//! Types that can be passed between host and kernel.
//!
//! Two different compilers compile host and GPU code, so the layout of exchanged data must not be left to the compiler.
//! Two traits declare what a type guarantees:
//!
//! | trait | guarantee | use |
//! | --- | --- | --- |
//! | [`KernelValue`] | a fixed layout | a parameter passed by value |
//! | [`KernelType`] | a fixed layout, and every bit pattern is valid | a parameter passed by value, an element of a buffer, or a value that threads exchange |
//!
//! A kernel reads arbitrary bytes that the host or another kernel left in a buffer, so every bit pattern must be a
//! valid element. This requirement excludes `bool` and enums, which can be passed by value, and stored in buffers as
//! [`Checked`](crate::Checked).
//!
//! Derive the traits for your own types:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::Checked;
//!
//! #[derive(Clone, Copy, PartialEq, KernelValue)]
//! #[repr(u8)]
//! pub enum Edge {
//!     Clamp,
//!     Wrap,
//! }
//!
//! /// Passed by value, so it can have enums and `bool`.
//! #[derive(Clone, Copy, KernelValue)]
//! #[repr(C)]
//! pub struct Settings {
//!     edge: Edge,
//!     is_reversed: bool,
//!     scale: f32,
//! }
//!
//! /// Lies in buffers.
//! #[derive(Clone, Copy, KernelType)]
//! #[repr(C)]
//! pub struct Particle {
//!     position: [f32; 3],
//!     mass: f32,
//!     is_fixed: Checked<bool>,
//!     _padding: [u8; 3],
//! }
//!
//! #[kernel]
//! pub fn masses(settings: Settings, particles: &[Particle], mut out: DisjointMut<f32>) {
//!     let i = thread::unique_index();
//!     if let Some(out) = out.get_mut(i) {
//!         let particle = particles[i.get()];
//!         let is_fixed = particle.is_fixed.get() == Some(true);
//!         *out = if is_fixed { 0.0 } else { settings.scale * particle.mass };
//!     }
//! }
//! ```

use core::marker::PhantomData;
use core::num::Wrapping;

use float8::{F8E4M3, F8E5M2};
use gpu_spec::{param, signature};
use half::{bf16, f16};

/// A type that can be passed to a kernel by value.
///
/// Implemented for numbers, `bool`, `char`, `f16`, `bf16` and arrays. With the feature `glam`, the trait is also
/// implemented for glam's types. A struct can derive the trait if it is `#[repr(C)]` or `#[repr(transparent)]`, `Clone`
/// and `Copy`, and all its fields implement the trait. A fieldless enum can derive the trait if it has an integer
/// `repr`, such as `#[repr(u8)]`. Every [`KernelType`] also implements this trait, because the derive of `KernelType`
/// implements both traits.
///
/// A value must not be zero-sized, and its alignment must be at most 16 bytes. `#[kernel]` checks both.
///
/// See the [example](self).
///
/// # Safety
/// Size, alignment and field offsets must not depend on the compiler. The type must be a primitive type, or its layout
/// must follow from its `repr` and from the layouts of its fields. The type must not contain a reference, or a pointer
/// that is dereferenced.
#[diagnostic::on_unimplemented(
    message = "kernels cannot take `{Self}`",
    label = "not a `KernelValue`",
    note = "supported types: numbers, `bool`, f16, bf16, arrays of them and, with gpu-std's feature `glam`, glam types",
    note = "add `#[derive(Clone, Copy, KernelValue)]` to your own type, with `#[repr(C)]` for a struct, or with \
            `#[repr(u8)]` for an enum without fields"
)]
pub unsafe trait KernelValue: Copy + Send + Sync + 'static {
    /// Signature of the type, used to compare host and GPU code (see [`gpu_spec::signature`](mod@gpu_spec::signature)).
    #[doc(hidden)]
    const SIGNATURE: u32 = 0;
}

/// A type that a kernel can take by value, and that can be an element of a slice or of a
/// [`DisjointMut`](crate::DisjointMut) view. The threads of a warp or block can exchange values of the type.
///
/// Implemented for numbers, `f16`, `bf16`, arrays and [`Checked`](crate::Checked). With the feature `glam`, the trait
/// is also implemented for glam's types. A struct can derive the trait if it is `#[repr(C)]` or `#[repr(transparent)]`,
/// `Clone` and `Copy`, and all its fields implement the trait. Padding between or after the fields is a compile-time
/// error that names the field to insert. The derive also implements `bytemuck::Pod`, which the host side requires. For
/// a generic struct, the derive implements `bytemuck::AnyBitPattern` and `DeviceCopy` instead. A struct that already
/// derives `bytemuck::Pod` must implement this trait and [`KernelValue`] by hand.
///
/// An element's alignment must be at most 256 bytes. `#[kernel]` checks this.
///
/// See the [example](self).
///
/// # Safety
/// Every bit pattern must be a valid value, as for [`bytemuck::AnyBitPattern`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored in memory that kernels use",
    label = "not a `KernelType`",
    note = "supported types: numbers, f16, bf16, arrays of them and, with gpu-std's feature `glam`, glam types; add \
            `#[derive(Clone, Copy, KernelType)]` and `#[repr(C)]` to your own struct",
    note = "not every bit pattern is a valid `bool` or enum: use `Checked<bool>` or `Checked<Enum>`"
)]
pub unsafe trait KernelType: KernelValue {
    /// True if a value contains bytes that do not belong to any field. For a struct that derives the trait, evaluating
    /// the constant is a compile-time error if the struct itself has padding.
    #[doc(hidden)]
    const HAS_PADDING: bool = true;
    /// For an integer of 32 or 64 bits, −1 if it is signed and 1 if it is unsigned. For any other type, 0.
    #[doc(hidden)]
    const INTEGER: i8 = 0;
    /// Size in bytes of the innermost array element, or of the type itself if it is not an array.
    #[doc(hidden)]
    const ELEMENT_BYTES: usize = size_of::<Self>();
}

/// Implements both traits for types that have a fixed layout and for which every bit pattern is valid.
macro_rules! kernel_types {
    ($([$padding:literal, $integer:literal] $($t:ty)*;)*) => { $($(
        // SAFETY: the layout is fixed.
        #[diagnostic::do_not_recommend]
        unsafe impl KernelValue for $t {
            const SIGNATURE: u32 = signature(stringify!($t), &[]);
        }
        // SAFETY: every bit pattern is valid.
        #[diagnostic::do_not_recommend]
        unsafe impl KernelType for $t {
            const HAS_PADDING: bool = $padding;
            const INTEGER: i8 = $integer;
        }
    )*)* };
}
kernel_types! {
    [false, 0] () u8 i8 u16 i16 u128 i128 f16 bf16 F8E4M3 F8E5M2 f32 f64;
    [false, 1] u32 u64 usize;
    [false, -1] i32 i64 isize;
}

// SAFETY: in every compiler, `bool` is one byte that contains 0 or 1, and `char` is a four-byte code point.
#[diagnostic::do_not_recommend]
unsafe impl KernelValue for bool {
    const SIGNATURE: u32 = signature("bool", &[]);
}
// SAFETY: as above.
#[diagnostic::do_not_recommend]
unsafe impl KernelValue for char {
    const SIGNATURE: u32 = signature("char", &[]);
}

#[cfg(feature = "glam")]
mod glam_types {
    use super::{KernelType, KernelValue, signature};
    use glam::*;

    // The types are `repr(C)` or `repr(transparent)`.
    kernel_types! {
        [false, 0] Vec2 Vec3 Vec4 Quat Mat2 Mat3 Mat4 Affine3;
        [false, 0] DVec2 DVec3 DVec4 DQuat DMat2 DMat3 DMat4 DAffine2 DAffine3;
        [false, 0] IVec2 IVec3 IVec4 UVec2 UVec3 UVec4;
        // These types are padded by one component, or contain an unused component.
        [true, 0] Vec3A Mat3A Affine2 Affine3A;
    }
}

// SAFETY: the elements of an array are contiguous.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelValue, const N: usize> KernelValue for [T; N] {
    const SIGNATURE: u32 = signature("[T; N]", &[T::SIGNATURE, N as u32]);
}
// SAFETY: every bit pattern is valid for every element.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType, const N: usize> KernelType for [T; N] {
    const HAS_PADDING: bool = T::HAS_PADDING;
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
}
// SAFETY: the type has the layout of `T`.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelValue> KernelValue for Wrapping<T> {
    const SIGNATURE: u32 = signature("Wrapping", &[T::SIGNATURE]);
}
// SAFETY: every bit pattern is a valid `T`.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> KernelType for Wrapping<T> {
    const HAS_PADDING: bool = T::HAS_PADDING;
}
// SAFETY: the type is zero-sized and has alignment 1.
#[diagnostic::do_not_recommend]
unsafe impl<T: Send + Sync + 'static> KernelValue for PhantomData<T> {
    const SIGNATURE: u32 = signature("PhantomData", &[]);
}
// SAFETY: the type is zero-sized.
#[diagnostic::do_not_recommend]
unsafe impl<T: Send + Sync + 'static> KernelType for PhantomData<T> {
    const HAS_PADDING: bool = false;
}

/// A type that can be an element of a slice parameter `&[T]`, `Slice2<T>` or `Slice3<T>`. The trait is implemented for
/// every [`KernelType`]. It is also implemented for [`Atomic`](crate::atomic::Atomic) with device or system scope, for
/// which a launch borrows the buffer mutably.
///
/// See the [example](self).
///
/// # Safety
/// `Param` must be the marker of a buffer with elements of this type, and threads must be able to share these elements
/// soundly.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel's slice",
    label = "neither a `KernelType` nor an `Atomic` with device or system scope",
    note = "supported types: numbers, arrays of them, f16, bf16, `Atomic<T>` and, with gpu-std's feature `glam`, glam \
            types; add `#[derive(Clone, Copy, KernelType)]` and `#[repr(C)]` to your own struct",
    note = "not every bit pattern is a valid `bool` or enum: use `Checked<bool>` or `Checked<Enum>`"
)]
pub unsafe trait SliceElement: Sync + 'static {
    /// Marker type for a slice whose elements have this type.
    type Param: param::SliceMarker;

    /// Compiles only for types with a valid layout (see [`KernelType`]).
    #[doc(hidden)]
    const CHECKED: () = ();

    /// Signature of the type (see [`KernelValue::SIGNATURE`]).
    #[doc(hidden)]
    const SIGNATURE: u32 = 0;
}

// SAFETY: every bit pattern is valid, and the marker belongs to the type itself.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> SliceElement for T {
    type Param = param::Slice<T>;

    const CHECKED: () = {
        let _ = T::HAS_PADDING;
    };
    const SIGNATURE: u32 = T::SIGNATURE;
}
