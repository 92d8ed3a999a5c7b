//! Bit patterns of numbers.

use gpu_std::scalar::Scalar;

pub(super) fn bits<T: Scalar>(x: T) -> u64 {
    let mut bytes = [0; 8];
    bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&x));
    u64::from_le_bytes(bytes)
}

/// The bit layout of a type, for kernels that take integers of the type's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitLayout {
    /// Sign bit.
    #[cfg_attr(not(feature = "scan"), allow(dead_code, reason = "comparisons alone need it"))]
    pub sign: u64,
    #[cfg_attr(not(feature = "scan"), allow(dead_code, reason = "comparisons alone need it"))]
    pub is_float: bool,
    /// Two masks: the bits to invert in a number whose highest bit is set, and the bits to invert in every number. Read
    /// as unsigned integers, the results have the same order as the numbers.
    pub negative: u64,
    pub always: u64,
    /// A mask of the bits that form a float's magnitude, and the largest magnitude that is not NaN. For an integer, all
    /// bits of both values are set.
    pub magnitude: u64,
    pub most: u64,
}

impl BitLayout {
    pub fn of<T: Scalar>() -> Self {
        let sign = 1 << (8 * size_of::<T>() - 1);
        let always = if T::IS_SIGNED { sign } else { 0 };
        match T::EPSILON > 0.0 {
            true => Self {
                sign,
                is_float: true,
                negative: sign - 1,
                always,
                magnitude: sign - 1,
                most: bits(T::MIN_IDENTITY),
            },
            false => Self { sign, is_float: false, negative: 0, always, magnitude: u64::MAX, most: u64::MAX },
        }
    }
}
