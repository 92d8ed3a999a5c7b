//! [`LibraryType`]: the element types that all libraries have in common.

#[cfg(any(feature = "dnn", feature = "sparse"))]
use std::ops::{Add, AddAssign, Mul};

use half::{bf16, f16};

use warpsmith_runtime::memory::DeviceCopy;

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    F8E4M3,
    F8E5M2,
}

impl DataType {
    /// Returns the Rust name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::F8E4M3 => "F8E4M3",
            Self::F8E5M2 => "F8E5M2",
        }
    }
}

/// An element type of the libraries. Each element type corresponds to a value of [`DataType`]. The emulated device
/// converts elements to `f64` and back.
pub trait LibraryType: DeviceCopy {
    const TYPE: DataType;
    /// Converts exactly to `f64`.
    fn to_f64(self) -> f64;
    /// Rounds `value` to the nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

macro_rules! elements {
    ($($type:ty, $code:ident, |$wide:ident| $widen:expr, |$narrow:ident| $round:expr;)*) => { $(
        impl $crate::element::LibraryType for $type {
            const TYPE: $crate::element::DataType = $crate::element::DataType::$code;

            #[inline]
            fn to_f64(self) -> f64 {
                let $wide = self;
                $widen
            }

            #[inline]
            fn from_f64($narrow: f64) -> Self {
                $round
            }
        }
    )* };
}
#[cfg(feature = "blas")]
pub(crate) use elements;

elements! {
    f32, F32, |x| f64::from(x), |x| x as f32;
    f64, F64, |x| x, |x| x;
    f16, F16, |x| x.to_f64(), |x| f16::from_f64(x);
    bf16, Bf16, |x| x.to_f64(), |x| bf16::from_f64(x);
}

/// A floating-point type that cuDNN and cuSPARSE support: `f32`, `f64`, `f16` or `bf16`. The trait is sealed.
#[cfg(any(feature = "dnn", feature = "sparse"))]
pub trait FloatType: LibraryType {
    /// Type of accumulation, scales and normalization parameters: `f64` for `f64`, and `f32` for all others.
    type Real: FloatType<Real = Self::Real> + Add<Output = Self::Real> + Mul<Output = Self::Real> + AddAssign;
}

#[cfg(any(feature = "dnn", feature = "sparse"))]
macro_rules! float_types {
    ($($type:ty: $real:ty),*) => { $(
        impl FloatType for $type {
            type Real = $real;
        }
    )* };
}
#[cfg(any(feature = "dnn", feature = "sparse"))]
float_types!(f32: f32, f64: f64, f16: f32, bf16: f32);

/// A scalar in the type that a library reads: `f64` for computations in `f64`, otherwise `f32`.
#[cfg(any(feature = "dnn", feature = "sparse", feature = "fft"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor {
    single: f32,
    double: f64,
    is_double: bool,
}

#[cfg(any(feature = "dnn", feature = "sparse", feature = "fft"))]
impl Factor {
    pub fn of<T: LibraryType>(value: f64) -> Self {
        Self { single: value as f32, double: value, is_double: T::TYPE == DataType::F64 }
    }

    /// Returns the address of the value. The value must outlive all uses of the address.
    pub fn as_ptr(&self) -> *const std::ffi::c_void {
        if self.is_double { (&raw const self.double).cast() } else { (&raw const self.single).cast() }
    }
}

/// Defines NVIDIA's type codes for the bindings of each library.
#[cfg(feature = "blas")]
macro_rules! codes {
    ($($(#[$feature:meta])? $library:ident),*) => { $(
        $(#[$feature])?
        pub(crate) fn $library(data: DataType) -> cudarc::$library::sys::cudaDataType {
            use cudarc::$library::sys::cudaDataType;
            match data {
                DataType::F32 => cudaDataType::CUDA_R_32F,
                DataType::F64 => cudaDataType::CUDA_R_64F,
                DataType::F16 => cudaDataType::CUDA_R_16F,
                DataType::Bf16 => cudaDataType::CUDA_R_16BF,
                DataType::I8 => cudaDataType::CUDA_R_8I,
                DataType::I32 => cudaDataType::CUDA_R_32I,
                DataType::F8E4M3 => cudaDataType::CUDA_R_8F_E4M3,
                DataType::F8E5M2 => cudaDataType::CUDA_R_8F_E5M2,
            }
        }
    )* };
}

#[cfg(feature = "blas")]
pub(crate) mod code {
    use super::DataType;

    codes!(
        cublas,
        cublaslt,
        #[cfg(feature = "sparse")]
        cusparse
    );
}
