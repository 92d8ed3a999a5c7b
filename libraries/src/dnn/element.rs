//! [`Float`]: the element types.

use std::ops::{Add, AddAssign, Mul};

use cudarc::cudnn::sys::cudnnDataType_t;
use half::{bf16, f16};

use crate::element::{DataType, Element, Factor};

/// Element types of tensors: `f32`, `f64`, `f16` and `bf16`.
///
/// Sums are accumulated in [`Self::Real`], which is also the type of scales and of normalization parameters.
pub trait Float: Element {
    /// Accumulation type: `f64` for `f64`, `f32` for the others.
    type Real: Float<Real = Self::Real> + Add<Output = Self::Real> + Mul<Output = Self::Real> + AddAssign;
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

/// Returns cuDNN's data type.
pub(super) fn data<T: Float>() -> cudnnDataType_t {
    match T::TYPE {
        DataType::F64 => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        DataType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DataType::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// Converts an element to its accumulation type.
#[inline]
pub(super) fn widen<T: Float>(value: T) -> T::Real {
    T::Real::from_f64(value.to_f64())
}

/// Rounds a sum to an element, once.
#[inline]
pub(super) fn round<T: Float>(value: T::Real) -> T {
    T::from_f64(value.to_f64())
}

/// Returns the factors 1 and 0.
pub(super) fn factors<T: Float>() -> [Factor; 2] {
    [1.0, 0.0].map(Factor::of::<T>)
}
