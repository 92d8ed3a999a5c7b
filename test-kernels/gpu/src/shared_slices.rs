//! Kernels with dynamic shared memory as slices.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use gpu_std::shared::{dynamic, dynamic_bytes};

/// Sum of each element and its neighbors up to `reach` away. The tile has one element per thread of the block, and
/// `2 * reach` more.
#[kernel(types(T = f32, u64))]
pub fn window_sums<T: Scalar>(reach: u32, data: &[T], mut tile: Shared<[T]>, mut out: DisjointMut<T>) {
    let first = block::linear_index() * block::threads() as usize;
    let tile = tile.fill(|[i]| {
        (first + i).checked_sub(reach as usize).and_then(|i| data.get(i)).copied().unwrap_or(T::ZERO)
    });
    let own = thread::linear_in_block() as usize;
    if let (Some(out), Some(window)) =
        (out.get_mut(thread::unique_index()), tile.get(own..own + 2 * reach as usize + 1))
    {
        *out = window.iter().fold(T::ZERO, |sum, x| sum.wrapping_add(*x));
    }
}

/// Reverses each part of `data` that is as long as the tile, one element per thread. It is the safe counterpart of
/// `shared_array!` and [`dynamic`] with raw pointers.
#[kernel(no_panic)]
pub fn reverse_parts(data: &[u32], mut tile: Shared<[u32]>, mut out: DisjointMut<u32>) {
    let first = block::linear_index() * block::threads() as usize;
    let tile = tile.fill(|[i]| data.get(first + i).copied().unwrap_or(0));
    let own = thread::linear_in_block() as usize;
    if let (Some(out), Some(value)) =
        (out.get_mut(thread::unique_index()), tile.get(tile.len().wrapping_sub(own + 1)))
    {
        *out = *value;
    }
}

/// [`reverse_parts()`] with raw pointers.
///
/// # Safety
/// `data` and `out` have one element per thread, and the launch has 4 bytes of dynamic shared memory per thread of a
/// block.
#[kernel]
pub unsafe fn reverse_parts_raw(data: *const u32, out: *mut u32) {
    let tile = dynamic::<u32>();
    let index = block::linear_index() * block::threads() as usize + thread::linear_in_block() as usize;
    let own = thread::linear_in_block() as usize;
    // SAFETY: each thread writes its own element before the barrier, and reads another's after it.
    unsafe {
        tile.add(own).write(data.add(index).read());
        block::sync_threads();
        out.add(index).write(tile.add(dynamic_bytes() as usize / 4 - own - 1).read());
    }
}

/// Inclusive scan (prefix sums) of each part of `data` that is as long as the arrays.
#[kernel]
pub fn part_sums(data: &[f64], mut sums: DoubleBuffer<[f64]>, mut out: DisjointMut<f64>) {
    let len = sums.len();
    let first = block::linear_index() * len;
    sums.fill(|[i]| data.get(first + i).copied().unwrap_or(0.0));
    let mut distance = 1;
    while distance < len {
        sums.step(|old, [i]| if i < distance { old[i] } else { old[i] + old[i - distance] });
        distance *= 2;
    }
    let own = thread::linear_in_block() as usize;
    if let (Some(out), Some(sum)) = (out.get_mut(thread::unique_index()), sums.current().get(own)) {
        *out = *sum;
    }
}

/// Uses several arrays, including one of rows and one of a fixed length. Writes their sums and the bytes of dynamic
/// shared memory per block.
#[kernel]
pub fn several_arrays(
    mut bytes: Shared<[u8]>,
    mut bins: Shared<[Atomic<u32, scope::Block>]>,
    mut fixed: Shared<[u16; 40]>,
    mut rows: Shared<[[u64; 3]]>,
    mut sums: DisjointMut<[u64; 5], PerBlock>,
) {
    bytes.fill(|[i]| i as u8);
    let counted = bins.zeroed();
    if !counted.is_empty() {
        counted[thread::linear_in_block() as usize % counted.len()].fetch_add(1, Ordering::Relaxed);
    }
    fixed.fill(|[i]| i as u16);
    let rows = rows.fill(|[row, column]| 1000 * row as u64 + column as u64).iter().flatten().sum();
    let bytes = bytes.update(|_, [_]| {}).iter().map(|byte| u64::from(*byte)).sum();
    let bins = bins.update(|_, [_]| {}).iter().map(|bin| u64::from(bin.load(Ordering::Relaxed))).sum();
    let fixed = fixed.update(|_, [_]| {}).iter().map(|x| u64::from(*x)).sum();
    if let Some(out) = sums.get_mut(block::unique_index()) {
        *out = [bytes, bins, fixed, rows, u64::from(dynamic_bytes())];
    }
}
