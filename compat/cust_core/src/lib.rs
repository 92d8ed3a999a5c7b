//! Rust-CUDA's [`DeviceCopy`], the trait of types that host and device exchange.
//!
//! ```toml
//! [dependencies]
//! cust_core = { package = "warpsmith-cust-core", version = "0.1", features = ["glam"] }
//! ```
//!
//! | feature | types that are [`DeviceCopy`] |
//! | --- | --- |
//! | `glam` | glam's `f32` types, and its vectors of `i32`, `u32`, `u8` and `usize` |
//! | `half` | `f16`, `bf16` |
#![no_std]
#![deny(missing_docs)]

extern crate self as cust_core;

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, Wrapping,
};

/// Derives [`DeviceCopy`](trait@DeviceCopy) for a type whose fields all implement it.
///
/// ```
/// use cust_core::DeviceCopy;
///
/// #[derive(Clone, Copy, DeviceCopy)]
/// #[repr(C)]
/// struct Sphere {
///     center: [f32; 3],
///     radius: f32,
/// }
/// ```
///
/// ```compile_fail
/// use cust_core::DeviceCopy;
///
/// #[derive(Clone, Copy, DeviceCopy)]
/// struct Borrowed<'a>(&'a [f32]);
/// ```
pub use warpsmith_compat_macros::DeviceCopy;

/// The trait without its derive macro, because the macro refers to this crate by name.
#[doc(hidden)]
pub mod __private {
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::kernels::{CUDA_STD_KERNELS, KernelSpec, linkme};
    pub use crate::marker::DeviceCopy;
}

#[cfg(not(target_arch = "nvptx64"))]
mod kernels;
mod marker;

pub use marker::DeviceCopy;

macro_rules! device_copy {
    ($($t:ty),* $(,)?) => { $(
        // SAFETY: the type contains no pointers.
        #[diagnostic::do_not_recommend]
        unsafe impl DeviceCopy for $t {}
    )* };
}
device_copy! {
    (), bool, char, u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64,
    NonZeroU8, NonZeroI8, NonZeroU16, NonZeroI16, NonZeroU32, NonZeroI32, NonZeroU64, NonZeroI64, NonZeroU128,
    NonZeroI128, PhantomData<&'static ()>,
}

macro_rules! of_parts {
    ($($t:ty [$($part:ident),*];)*) => { $(
        // SAFETY: the fields contain no pointers that the device cannot access.
        #[diagnostic::do_not_recommend]
        unsafe impl<$($part: DeviceCopy),*> DeviceCopy for $t {}
    )* };
}
of_parts! {
    Option<T> [T];
    Result<T, E> [T, E];
    Wrapping<T> [T];
    MaybeUninit<T> [T];
    ManuallyDrop<T> [T];
    PhantomData<T> [T];
    (A,) [A];
    (A, B) [A, B];
    (A, B, C) [A, B, C];
    (A, B, C, D) [A, B, C, D];
    (A, B, C, D, E) [A, B, C, D, E];
    (A, B, C, D, E, F) [A, B, C, D, E, F];
    (A, B, C, D, E, F, G) [A, B, C, D, E, F, G];
    (A, B, C, D, E, F, G, H) [A, B, C, D, E, F, G, H];
}

// SAFETY: the elements contain no pointers that the device cannot access.
#[diagnostic::do_not_recommend]
unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}

#[cfg(feature = "half")]
device_copy! { half::f16, half::bf16 }

#[cfg(feature = "glam")]
device_copy! {
    glam::Vec2, glam::Vec3, glam::Vec3A, glam::Vec4, glam::Quat, glam::Mat2, glam::Mat3, glam::Mat3A, glam::Mat4,
    glam::Affine2, glam::Affine3A, glam::IVec2, glam::IVec3, glam::IVec4, glam::UVec2, glam::UVec3, glam::UVec4,
    glam::U8Vec2, glam::U8Vec3, glam::U8Vec4, glam::USizeVec2, glam::USizeVec3, glam::USizeVec4,
}
