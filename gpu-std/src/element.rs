//! Which types can cross from host to kernel.
//!
//! A kernel reads whatever bytes the host or another kernel left in a buffer, so every bit pattern must be a value.
//! Host and GPU are compiled by two compilers, so the layout must not be the compiler's choice. [`KernelType`] is
//! both; derive it for your own structs:
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! #[derive(Clone, Copy, KernelType)]
//! #[repr(C)]
//! pub struct Particle {
//!     position: [f32; 3],
//!     mass: f32,
//! }
//!
//! #[kernel]
//! pub fn masses(particles: &[Particle], mut out: DisjointMut<f32>) {
//!     let i = thread::unique_index();
//!     if let Some(out) = out.get_mut(i) {
//!         *out = particles[i.get()].mass;
//!     }
//! }
//! ```

use core::marker::PhantomData;
use core::num::Wrapping;

use gpu_spec::param;
use half::{bf16, f16};

/// A type that can be passed to a kernel by value, and be an element of a slice or of a
/// [`DisjointMut`](crate::DisjointMut) view.
///
/// Implemented for numbers, `f16`, `bf16`, arrays, and with the feature `glam` for glam's types of `f32`, `f64`, `i32`
/// and `u32`. A struct derives it, which needs `#[repr(C)]` or `#[repr(transparent)]`, `Clone` and `Copy`, and fields
/// that all implement it. The derive also implements [`bytemuck::Zeroable`] and [`bytemuck::AnyBitPattern`], which the
/// host side needs. A struct that derives `bytemuck::Pod` has these already, and implements this trait by hand.
///
/// A value cannot be zero-sized nor aligned to more than 16 bytes, an element not to more than 256. `#[kernel]` checks
/// both.
///
/// # Safety
///
/// - Any bytes are a value, as [`bytemuck::AnyBitPattern`] says.
/// - Size, alignment and the place of every field do not depend on the compiler: they are those of a primitive type, or
///   follow from `repr(C)` or `repr(transparent)` for the type and for all that it contains.
#[diagnostic::on_unimplemented(
    message = "kernels cannot take `{Self}`",
    label = "not a `KernelType`",
    note = "numbers, arrays of them, f16, bf16 and, with gpu-std's feature `glam`, glam types are; a struct is with `#[derive(Clone, Copy, KernelType)]` and `#[repr(C)]`"
)]
pub unsafe trait KernelType: Copy + Send + Sync + 'static {
    /// Bytes of an innermost element of an array; of the type itself if it is none.
    #[doc(hidden)]
    const ELEMENT_BYTES: usize = size_of::<Self>();
}

/// Implements [`KernelType`] for types of a fixed layout.
macro_rules! kernel_types {
    ($($t:ty)*) => { $(
        // SAFETY: any bytes are a value, and the layout is fixed.
        #[diagnostic::do_not_recommend]
        unsafe impl KernelType for $t {}
    )* };
}
kernel_types! { () u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f16 bf16 f32 f64 }

#[cfg(feature = "glam")]
mod glam_types {
    use super::KernelType;
    use glam::*;

    // The types are `repr(C)` or `repr(transparent)`.
    kernel_types! { Vec2 Vec3 Vec3A Vec4 Quat Mat2 Mat3 Mat3A Mat4 Affine2 Affine3 Affine3A }
    kernel_types! { DVec2 DVec3 DVec4 DQuat DMat2 DMat3 DMat4 DAffine2 DAffine3 }
    kernel_types! { IVec2 IVec3 IVec4 UVec2 UVec3 UVec4 }
}

// SAFETY: an array has its elements one after the other.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType, const N: usize> KernelType for [T; N] {
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
}
// SAFETY: it has the layout of `T`.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> KernelType for Wrapping<T> {}
// SAFETY: it has no bytes, and alignment 1.
#[diagnostic::do_not_recommend]
unsafe impl<T: Send + Sync + 'static> KernelType for PhantomData<T> {}

/// A type that can be an element of a slice parameter `&[T]`: every [`KernelType`], and
/// [`Atomic`](crate::atomic::Atomic) of device or system scope, which a launch takes from a buffer that it borrows
/// mutably.
///
/// # Safety
///
/// `Param` is the marker for a buffer whose bytes are elements of this type, and threads may share them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel's slice",
    label = "neither a `KernelType` nor an `Atomic` of device or system scope",
    note = "numbers, arrays of them, f16, bf16, `Atomic<T>` and, with gpu-std's feature `glam`, glam types can be; a struct can be with `#[derive(Clone, Copy, KernelType)]` and `#[repr(C)]`"
)]
pub unsafe trait SliceElement: Sync + 'static {
    /// The marker of a slice of elements of this type.
    type Param;
}

// SAFETY: any bytes are a value, and the marker is of the type itself.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> SliceElement for T {
    type Param = param::Slice<T>;
}
