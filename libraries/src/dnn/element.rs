//! [`Float`]: the element types.

use std::ops::{Add, AddAssign, Mul};

use cudarc::cudnn::sys::cudnnDataType_t;
use half::{bf16, f16};

use crate::element::{DataType, Element, Factor};

/// Element types of tensors: `f32`, `f64`, `f16` and `bf16`.
///
/// Sums are kept in [`Self::Real`], and scales and the parameters of normalisations are of that type.
pub trait Float: Element {
    /// `f64` for `f64`, `f32` for the others.
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

/// By cuDNN's name.
pub(super) fn data<T: Float>() -> cudnnDataType_t {
    match T::TYPE {
        DataType::F64 => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        DataType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DataType::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// An element in the type that sums of it are kept in.
#[inline]
pub(super) fn widen<T: Float>(value: T) -> T::Real {
    T::Real::from_f64(value.to_f64())
}

/// A sum as an element, rounded once.
#[inline]
pub(super) fn round<T: Float>(value: T::Real) -> T {
    T::from_f64(value.to_f64())
}

/// The factors 1 and 0.
pub(super) fn factors<T: Float>() -> [Factor; 2] {
    [1.0, 0.0].map(Factor::of::<T>)
}
