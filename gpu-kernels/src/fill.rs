//! `fill`: sets every element to one value.

use gpu_std::elementwise::map;
use gpu_std::prelude::*;

/// Sets every element of `dst` to `value`.
///
/// Instances exist by element size (`u8`, `u16`, `u32`, `u64`). Through them, any plain type of that size can be
/// filled, by passing the value's bits.
#[kernel(types(T = u8, u16, u32, u64), consts(ITEMS = 1, 4; VECTOR = 16), launch_bounds(512), bytes = dst.bytes())]
pub fn fill<T: Scalar, const ITEMS: usize, const VECTOR: usize>(value: T, mut dst: DisjointMut<T>) {
    let len = dst.len();
    let dst = dst.as_mut_ptr();
    // SAFETY: valid for `len` elements; a disjoint view overlaps nothing; all threads make the same call.
    unsafe { map::<ITEMS, VECTOR, _, _>((), dst, len, |()| value) }
}
