//! [`Value`] and [`Index`]: what a sparse matrix consists of.

use cudarc::cusparse::sys::{cudaDataType, cusparseIndexType_t};
use half::{bf16, f16};

use crate::scale::Scalar;
use warpsmith_core::memory::DeviceCopy;

mod sealed {
    pub trait Sealed {}
}

/// `f32`, `f64`, `f16` or `bf16`.
pub trait Value: Scalar + sealed::Sealed {
    /// CUDA's number of the type.
    #[doc(hidden)]
    const VALUE: cudaDataType;
    /// The same number.
    #[doc(hidden)]
    fn up(self) -> f64;
    /// The nearest number.
    #[doc(hidden)]
    fn down(value: f64) -> Self;
}

macro_rules! value {
    ($type:ty, $number:ident, $up:expr, $down:expr) => {
        impl sealed::Sealed for $type {}

        impl Value for $type {
            const VALUE: cudaDataType = cudaDataType::$number;

            fn up(self) -> f64 {
                $up(self)
            }

            fn down(value: f64) -> Self {
                $down(value)
            }
        }
    };
}

value!(f32, CUDA_R_32F, f64::from, |value| value as f32);
value!(f64, CUDA_R_64F, std::convert::identity, std::convert::identity);
value!(f16, CUDA_R_16F, f16::to_f64, f16::from_f64);
value!(bf16, CUDA_R_16BF, bf16::to_f64, bf16::from_f64);

/// `i32` or `i64`: what offsets and columns are.
pub trait Index: DeviceCopy + sealed::Sealed {
    /// cuSPARSE's number of the type.
    #[doc(hidden)]
    const INDEX: cusparseIndexType_t;
    /// The largest that there is.
    #[doc(hidden)]
    const MOST: usize;
    /// The same number, unless it is negative.
    #[doc(hidden)]
    fn get(self) -> Option<usize>;
}

impl sealed::Sealed for i32 {}
impl sealed::Sealed for i64 {}

impl Index for i32 {
    const INDEX: cusparseIndexType_t = cusparseIndexType_t::CUSPARSE_INDEX_32I;
    const MOST: usize = i32::MAX as usize;

    fn get(self) -> Option<usize> {
        usize::try_from(self).ok()
    }
}

impl Index for i64 {
    const INDEX: cusparseIndexType_t = cusparseIndexType_t::CUSPARSE_INDEX_64I;
    const MOST: usize = i64::MAX as usize;

    fn get(self) -> Option<usize> {
        usize::try_from(self).ok()
    }
}
