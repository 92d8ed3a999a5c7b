//! [`Float`]: the element types, and what the host computes with.

use cudarc::cudnn::sys::cudnnDataType_t;
use half::{bf16, f16};

use warpsmith_core::memory::DeviceCopy;

/// Element types of tensors: `f32`, `f64`, `f16` and `bf16`.
///
/// Sums are kept in [`Self::Real`], and scales and the parameters of normalisations are of that type.
pub trait Float: DeviceCopy + sealed::Element {
    /// `f64` for `f64`, `f32` for the others.
    type Real: Float<Real = Self::Real>
        + std::ops::Add<Output = Self::Real>
        + std::ops::Mul<Output = Self::Real>
        + std::ops::AddAssign;
}

pub(super) mod sealed {
    use super::*;

    /// What the modules here know of an element.
    pub trait Element: Copy + Send + Sync + 'static {
        /// By cuDNN's name.
        const DATA: cudnnDataType_t;
        /// By Rust's name.
        const NAME: &'static str;
        /// Whether scales are `f64`.
        const IS_DOUBLE: bool = false;
        /// Exactly.
        fn wide(self) -> f64;
        /// Rounded once.
        fn narrow(value: f64) -> Self;
        /// Exactly, for types that `f32` holds; `f64` is rounded.
        fn single(self) -> f32 {
            self.wide() as f32
        }
        /// Rounded once.
        fn from_single(value: f32) -> Self {
            Self::narrow(f64::from(value))
        }
    }

    impl Element for f32 {
        const DATA: cudnnDataType_t = cudnnDataType_t::CUDNN_DATA_FLOAT;
        const NAME: &'static str = "f32";

        fn wide(self) -> f64 {
            f64::from(self)
        }

        fn narrow(value: f64) -> Self {
            value as f32
        }

        fn single(self) -> f32 {
            self
        }

        fn from_single(value: f32) -> Self {
            value
        }
    }

    impl Element for f64 {
        const DATA: cudnnDataType_t = cudnnDataType_t::CUDNN_DATA_DOUBLE;
        const NAME: &'static str = "f64";
        const IS_DOUBLE: bool = true;

        fn wide(self) -> f64 {
            self
        }

        fn narrow(value: f64) -> Self {
            value
        }
    }

    impl Element for f16 {
        const DATA: cudnnDataType_t = cudnnDataType_t::CUDNN_DATA_HALF;
        const NAME: &'static str = "f16";

        fn wide(self) -> f64 {
            self.to_f64()
        }

        fn narrow(value: f64) -> Self {
            f16::from_f64(value)
        }

        fn single(self) -> f32 {
            self.to_f32()
        }

        fn from_single(value: f32) -> Self {
            f16::from_f32(value)
        }
    }

    impl Element for bf16 {
        const DATA: cudnnDataType_t = cudnnDataType_t::CUDNN_DATA_BFLOAT16;
        const NAME: &'static str = "bf16";

        fn wide(self) -> f64 {
            self.to_f64()
        }

        fn narrow(value: f64) -> Self {
            bf16::from_f64(value)
        }

        fn single(self) -> f32 {
            self.to_f32()
        }

        fn from_single(value: f32) -> Self {
            bf16::from_f32(value)
        }
    }
}

impl Float for f32 {
    type Real = f32;
}

impl Float for f64 {
    type Real = f64;
}

impl Float for f16 {
    type Real = f32;
}

impl Float for bf16 {
    type Real = f32;
}

/// An element in the type that sums of it are kept in.
#[inline]
pub(super) fn widen<T: Float>(value: T) -> T::Real {
    use sealed::Element;
    if T::IS_DOUBLE { T::Real::narrow(value.wide()) } else { T::Real::from_single(value.single()) }
}

/// A sum as an element, rounded once.
#[inline]
pub(super) fn round<T: Float>(value: T::Real) -> T {
    use sealed::Element;
    if T::IS_DOUBLE { T::narrow(value.wide()) } else { T::from_single(value.single()) }
}

/// A factor of an operation, as cuDNN reads it: `f32`, or `f64` for `f64`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    single: f32,
    double: f64,
    is_double: bool,
}

impl Scale {
    pub fn of<T: Float>(value: f64) -> Self {
        Self { single: value as f32, double: value, is_double: T::IS_DOUBLE }
    }

    /// Of this value, which must live while it is used.
    pub fn as_ptr(&self) -> *const std::ffi::c_void {
        if self.is_double { (&raw const self.double).cast() } else { (&raw const self.single).cast() }
    }
}
