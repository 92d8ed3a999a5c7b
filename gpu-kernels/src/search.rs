//! Binary search for many keys in a sorted array.

use gpu_std::prelude::*;

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
