//! `cast` and `cast_to_signed`, which convert between number types, and `cast_to_bool`.

use gpu_std::prelude::*;

/// `x as U`.
///
/// As with Rust's `as`, conversions to floats round to nearest even. Conversions from floats to integers truncate.
/// Out-of-range values saturate, and NaN becomes 0. Integers wrap. `VECTOR` is the access size for the larger of the
/// two types.
///
/// For conversions from integers to signed integers, use the instance for unsigned integers of the same size, which
/// produces the same bits. For conversions from floats to signed integers, use [`cast_to_signed()`].
#[elementwise(
    types(
        T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64;
        U = f32, f64, f16, bf16, u8, u16, u32, u64
    ),
    consts(ITEMS = 2; VECTOR = 16)
)]
pub fn cast<T: Scalar, U: Scalar>(x: T) -> U {
    x.cast::<U>()
}

/// Like [`cast()`], but from floats to signed integers.
#[elementwise(types(T = f32, f64, f16, bf16; U = i8, i16, i32, i64), consts(ITEMS = 2; VECTOR = 16))]
pub fn cast_to_signed<T: Scalar, U: Scalar>(x: T) -> U {
    x.cast::<U>()
}

/// `x != 0`, a `bool` stored as a byte (0 or 1). The result is true for NaN and false for -0.0. For signed integers,
/// use the instance for unsigned integers.
#[elementwise(types(T = f32, f64, f16, bf16, u8, u16, u32, u64), consts(ITEMS = 2; VECTOR = 16))]
pub fn cast_to_bool<T: Scalar>(x: T) -> u8 {
    (x != T::ZERO) as u8
}
