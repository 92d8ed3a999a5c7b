//! `cast` and `cast_to_signed`: from one number type to another; and `cast_to_bool`.

use gpu_std::prelude::*;

/// `x as U`.
///
/// Converts as Rust's `as` does: floats round to nearest even; a float becomes an integer by truncation, the
/// nearest end of the range when it is out of it, 0 when it is NaN; integers wrap. `VECTOR` is the size of an
/// access on the side of the larger type.
///
/// To integers that have a sign, from integers: the instance to those of their size without one, which have the same bits.
/// From floats: [`cast_to_signed()`].
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

/// [`cast()`] from floats to integers that have a sign.
#[elementwise(types(T = f32, f64, f16, bf16; U = i8, i16, i32, i64), consts(ITEMS = 2; VECTOR = 16))]
pub fn cast_to_signed<T: Scalar, U: Scalar>(x: T) -> U {
    x.cast::<U>()
}

/// `x != 0`, as 0 or 1: the bytes of a `bool`. NaN is not 0, -0.0 is. Integers have the instance for those without a sign.
#[elementwise(types(T = f32, f64, f16, bf16, u8, u16, u32, u64), consts(ITEMS = 2; VECTOR = 16))]
pub fn cast_to_bool<T: Scalar>(x: T) -> u8 {
    (x != T::ZERO) as u8
}
