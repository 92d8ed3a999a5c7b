//! Data types, conversions and factors for elements.

use cudarc::cudnn::sys::cudnnDataType_t;

use crate::element::{DataType, Factor, FloatType, LibraryType as _};

/// Returns the cuDNN data type of an element type.
pub(super) fn data<T: FloatType>() -> cudnnDataType_t {
    match T::TYPE {
        DataType::F64 => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        DataType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DataType::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// Converts an element to its accumulation type.
#[inline]
pub(super) fn widen<T: FloatType>(value: T) -> T::Real {
    T::Real::from_f64(value.to_f64())
}

/// Rounds a sum to the element type.
#[inline]
pub(super) fn round<T: FloatType>(value: T::Real) -> T {
    T::from_f64(value.to_f64())
}

/// Returns the factors 1 and 0 in the type that cuDNN expects.
pub(super) fn factors<T: FloatType>() -> [Factor; 2] {
    [1.0, 0.0].map(Factor::of::<T>)
}
