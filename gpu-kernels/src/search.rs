//! Binary search for many keys in a sorted array, and merge of two sorted arrays.

use gpu_std::prelude::*;
use gpu_std::vectorized::each;

use crate::key_transform::{Bits, KeyTransform};

/// Number of threads per block of [`merge_sorted()`].
pub const MERGE_THREADS: usize = 256;
/// Number of keys that each thread merges at a time in [`merge_sorted()`].
const MERGE_ITEMS: usize = 8;

/// Number of keys per tile of [`merge_sorted()`].
pub const MERGE_TILE: usize = MERGE_THREADS * MERGE_ITEMS;

/// For each i, stores in `out[i]` the number of elements of `sorted` that are less than `keys[i]` or, if `upper` is
/// true, not greater than `keys[i]`. `sorted` must be in ascending order; otherwise, the results are unspecified. NaN
/// counts as greater than every number and equal to NaN, as in the sorts.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    bytes = keys.bytes() + out.bytes()
)]
#[allow(clippy::eq_op, reason = "NaN is not equal to itself")]
pub fn search_sorted<T: Scalar>(upper: bool, sorted: &[T], keys: &[T], mut out: DisjointMut<u64>) {
    for i in thread::grid_stride(keys.len()) {
        let Some(key) = keys.get(i.get()).map(|key| key.to_acc()) else { return };
        let is_nan = key != key;
        let (mut first, mut count) = (0, sorted.len());
        while count > 0 {
            let half = count / 2;
            let is_before = sorted.get(first + half).is_some_and(|element| {
                let element = element.to_acc();
                // All numbers precede a NaN key. For the upper bound, other NaNs also precede a NaN key.
                let counts = is_nan && (upper || element == element);
                counts || if upper { element <= key } else { element < key }
            });
            (first, count) = if is_before { (first + half + 1, count - half - 1) } else { (first, half) };
        }
        if let Some(out) = out.get_mut(i) {
            *out = first as u64;
        }
    }
}

/// Returns the number of elements of `a` among the first `diagonal` elements of the merged arrays. Among equal keys,
/// the keys of `a` come first. The result is at least `diagonal` minus the length of `b`, and at most the length of
/// `a`.
#[inline(always)]
fn merge_path<K: Copy>(
    diagonal: usize,
    (a_len, b_len): (usize, usize),
    a: impl Fn(usize) -> K,
    b: impl Fn(usize) -> K,
    not_after: impl Fn(K, K) -> bool,
) -> usize {
    let mut first = diagonal.saturating_sub(b_len);
    let mut end = if diagonal < a_len { diagonal } else { a_len };
    while first < end {
        let middle = first + (end - first) / 2;
        if not_after(a(middle), b(diagonal - 1 - middle)) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    first
}

/// Merges `a` and `b`, which must be sorted in the order of the [`KeyTransform`], into `out`. The length of `out` must
/// be the sum of their lengths. Among equal keys, the keys of `a` come first. If an input is not sorted, `out` contains
/// keys in an unspecified order, and may repeat or omit some of them.
///
/// The algorithm follows "GPU Merge Path" (Green, McColl, Bader 2012). A block finds its part of both arrays by binary
/// search, and each thread then finds its own part in shared memory. The block must have 256 threads.
#[kernel(types(K = u32, u64), block(256), bytes = a.bytes() + b.bytes() + out.bytes())]
pub fn merge_sorted<K: Bits>(
    negative: K,
    always: K,
    nans: K,
    a: &[K],
    b: &[K],
    mut out: DisjointMut<K, gpu_std::disjoint::Unclaimed>,
) {
    let transform = KeyTransform { negative, always, nans };
    let not_after = |x: K, y: K| x.transform(transform) <= y.transform(transform);
    let stage: *mut K = shared_array![u64; MERGE_TILE].cast();
    let len = if a.len() + b.len() < out.len() { a.len() + b.len() } else { out.len() };
    let out = out.as_mut_ptr();
    let own = thread::linear_in_block() as usize;
    let path = |diagonal: usize| {
        // SAFETY: `merge_path` requests only elements within the arrays.
        unsafe {
            merge_path(
                diagonal,
                (a.len(), b.len()),
                |i| *a.get_unchecked(i),
                |i| *b.get_unchecked(i),
                not_after,
            )
        }
    };
    for tile in block::stride(len.div_ceil(MERGE_TILE)) {
        let start = tile.get() * MERGE_TILE;
        let count = if len - start < MERGE_TILE { len - start } else { MERGE_TILE };
        // In arrays that are not sorted, the paths may cross, so the tile's part of `a` is clamped to the tile.
        let a_start = path(start);
        let a_count = path(start + count).saturating_sub(a_start);
        let a_count = if a_count < count { a_count } else { count };
        let (b_start, b_count) = (start - a_start, count - a_count);
        let mut i = own;
        while i < count {
            // SAFETY: a path from a diagonal ends within both arrays even if paths cross: `a_start + a_count` and
            // `b_start + b_count` are at most their lengths.
            let key = unsafe {
                if i < a_count {
                    *a.get_unchecked(a_start + i)
                } else {
                    *b.get_unchecked(b_start + i - a_count)
                }
            };
            // SAFETY: this slot of the tile belongs to this thread until the barrier.
            unsafe { stage.add(i).write(key) };
            i += MERGE_THREADS;
        }
        thread::sync_threads();
        let of_a = |i: usize| {
            // SAFETY: the slot is below `a_count` and was written before the barrier.
            unsafe { stage.add(i).read() }
        };
        let of_b = |i: usize| {
            // SAFETY: the slot is below `a_count + b_count` and was written before the barrier.
            unsafe { stage.add(a_count + i).read() }
        };
        let diagonal = if own * MERGE_ITEMS < count { own * MERGE_ITEMS } else { count };
        let mut x = merge_path(diagonal, (a_count, b_count), of_a, of_b, not_after);
        let mut y = diagonal - x;
        let mut merged = [K::ZERO; MERGE_ITEMS];
        each::<MERGE_ITEMS>(|item| {
            let (has_a, has_b) = (x < a_count, y < b_count);
            let takes_a = has_a && (!has_b || not_after(of_a(x), of_b(y)));
            if has_a || has_b {
                merged[item] = if takes_a { of_a(x) } else { of_b(y) };
            }
            // This arithmetic avoids a branch, which the compiler would turn into a selection between two addresses.
            (x, y) = (x + takes_a as usize, y + (has_b && !takes_a) as usize);
        });
        // After this barrier, all threads have read the stage.
        thread::sync_threads();
        each::<MERGE_ITEMS>(|item| {
            let place = own * MERGE_ITEMS + item;
            if place < count {
                // SAFETY: these slots belong to this thread.
                unsafe { stage.add(place).write(merged[item]) };
            }
        });
        thread::sync_threads();
        let mut i = own;
        while i < count {
            // SAFETY: the slot was written before the barrier, `out` has `len` elements, and each tile belongs to one
            // block.
            unsafe { out.add(start + i).write(stage.add(i).read()) };
            i += MERGE_THREADS;
        }
        // Waits until all threads have read the stage.
        thread::sync_threads();
    }
}
