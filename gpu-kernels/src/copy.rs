//! `copy`: bytes from one array to another.

use gpu_std::prelude::*;

use crate::map::map1;
use crate::tile::{lanes, with_lanes};

/// Copies `src` to `dst`, for the length of the shorter of the two.
///
/// Instances exist by element size (`u8`, `u16`, `u32`, `u64`): any plain type of that size can be copied
/// through them. Two arrays that reach a multiple of `VECTOR` bytes at different elements are copied element by
/// element, which is slower the smaller the element is.
#[kernel(
    types(T = u8, u16, u32, u64),
    consts(ITEMS = 1, 2, 4, 8; VECTOR = 4, 16),
    launch_bounds(512),
    bytes = src.bytes() + dst.bytes()
)]
pub fn copy<T: Scalar, const ITEMS: usize, const VECTOR: usize>(src: &[T], mut dst: DisjointMut<T>) {
    let len = src.len().min(dst.len());
    let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
    // SAFETY: both are valid for `len` elements; a disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map1::<T, T, ITEMS, N>(src, dst, len, |value| value) })
}
