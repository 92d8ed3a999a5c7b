//! Kernels that check indices and offsets before another kernel uses them.

use gpu_std::atomic::{Atomic, Ordering, scope::Device};
use gpu_std::prelude::*;

use crate::move_rows::Index;

/// Finds indices that are not below `limit` and, if `seen` has one bit per index value, indices that occur twice.
/// `found[0]` becomes the position of the first out-of-range index, and `found[1]` becomes the smallest duplicate
/// index. Initially, both must be `u64::MAX`, and all bits of `seen` must be 0.
#[kernel(
    types(I = u32, i64),
    launch_bounds(512),
    bytes = indices.bytes()
)]
pub fn check_indices<I: Index>(
    limit: u64,
    indices: &[I],
    seen: Option<&[Atomic<u32, Device>]>,
    found: &[Atomic<u64, Device>],
) {
    let [place, twice, ..] = found else { return };
    for i in thread::grid_stride(indices.len()) {
        let Some(index) = indices.get(i.get()).map(|index| index.number()) else { return };
        if index >= limit {
            place.fetch_min(i.get() as u64, Ordering::Relaxed);
        } else if let Some(seen) = seen
            && let Some(word) = seen.get((index / 32) as usize)
        {
            let bit = 1 << (index % 32);
            if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                twice.fetch_min(index, Ordering::Relaxed);
            }
        }
    }
}

/// Sets `found[0]`, which is initially `u64::MAX`, to the position of the first offset that exceeds the next offset or
/// `len`.
#[kernel(launch_bounds(512), bytes = offsets.bytes())]
pub fn first_bad_offset(offsets: &[u64], len: u64, found: &[Atomic<u64, Device>]) {
    first(offsets.len(), found, |i| {
        let next = offsets.get(i + 1).copied().unwrap_or(len);
        offsets.get(i).is_some_and(|&offset| offset > len || next < offset)
    });
}

/// Finds the first position for which `is_bad` is true. Each thread checks its positions in increasing order and stops
/// at the first bad one.
#[inline(always)]
fn first(len: usize, found: &[Atomic<u64, Device>], is_bad: impl Fn(usize) -> bool) {
    let Some(found) = found.first() else { return };
    for i in thread::grid_stride(len) {
        if is_bad(i.get()) {
            found.fetch_min(i.get() as u64, Ordering::Relaxed);
            return;
        }
    }
}
