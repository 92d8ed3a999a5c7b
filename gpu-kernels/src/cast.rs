//! `cast`: from one number type to another, and `cast_to_bool`.

use gpu_std::prelude::*;

use crate::map::map1;
use crate::tile::{lanes, with_lanes};

/// `dst[i] = src[i] as U`, for the length of the shorter of the two.
///
/// Converts as Rust's `as` does: floats round to nearest even; a float becomes an integer by truncation, the
/// nearest end of the range when it is out of it, 0 when it is NaN; integers wrap. `VECTOR` is the size of an
/// access on the side of the larger type.
#[kernel(
    types(
        T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64;
        U = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64
    ),
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(512),
    bytes = src.bytes() + dst.bytes()
)]
pub fn cast<T: Scalar, U: Scalar, const ITEMS: usize, const VECTOR: usize>(
    src: &[T],
    mut dst: DisjointMut<U>,
) {
    let len = src.len().min(dst.len());
    let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
    with_lanes!(
        if lanes::<T>(VECTOR) < lanes::<U>(VECTOR) { lanes::<T>(VECTOR) } else { lanes::<U>(VECTOR) },
        // SAFETY: both are valid for `len` elements; a disjoint view overlaps nothing; each element is written
        // by one thread.
        N => unsafe { map1::<T, U, ITEMS, N>(src, dst, len, |value| value.cast::<U>()) }
    )
}

/// `dst[i] = src[i] != 0`, as 0 or 1: the bytes of a `bool`. NaN is not 0, -0.0 is.
#[kernel(
    types(T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64),
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(512),
    bytes = src.bytes() + dst.bytes()
)]
pub fn cast_to_bool<T: Scalar, const ITEMS: usize, const VECTOR: usize>(src: &[T], mut dst: DisjointMut<u8>) {
    let len = src.len().min(dst.len());
    let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
    // SAFETY: as in `cast`. An element is at least as large as a byte.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe {
        map1::<T, u8, ITEMS, N>(src, dst, len, |value| (value != T::ZERO) as u8)
    })
}
