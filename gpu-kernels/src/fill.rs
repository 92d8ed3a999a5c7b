//! `fill`: sets all elements to the same value.

use gpu_std::elementwise::map;
use gpu_std::prelude::*;

/// Sets every element of `dst` to `value`.
///
/// There is one instance per element size (`u8`, `u16`, `u32`, `u64`). Each instance can fill arrays of any plain type
/// of that size, if the value's bits are passed.
#[kernel(types(T = u8, u16, u32, u64), consts(ITEMS = 1, 4; VECTOR = 16), launch_bounds(512), bytes = dst.bytes())]
pub fn fill<T: Scalar, const ITEMS: usize, const VECTOR: usize>(value: T, mut dst: DisjointMut<T>) {
    let len = dst.len();
    let dst = dst.as_mut_ptr();
    // SAFETY: the view is valid for `len` elements and overlaps nothing else, and all threads make the same call.
    unsafe { map::<ITEMS, VECTOR, _, _>((), dst, len, |()| value) }
}
