//! Row-wise top-k, and top-k/top-p sampling.
//!
//! One block processes each row. The block finds the smallest selected key by radix selection. Each pass builds a
//! histogram of one digit of the keys, starting with the highest digit. The histogram has integer weights, so the
//! result does not depend on the order of the additions.

use gpu_std::atomic::{Atomic, Ordering, scope::Block};
use gpu_std::prelude::*;
use gpu_std::random::Philox;
use gpu_std::{block, shared_array, thread};

use crate::key_transform::{Bits, KeyTransform};

/// Number of threads per block, and number of values that a digit can have.
pub const BLOCK: u32 = 256;
const DIGIT_BITS: u32 = 8;

/// Maximum value of k in [`top_k()`].
pub const MAX_K: usize = 1024;

/// Maximum number of elements per row of [`sample()`].
pub const MAX_VOCABULARY: usize = 1 << 22;

/// A number type whose values map to unsigned keys in the same order.
pub trait Ordered: Scalar {
    /// Number of bits in a key.
    const KEY_BITS: u32 = 8 * size_of::<Self>() as u32;

    /// Returns the key. Larger numbers have larger keys, NaN has the largest key, and both zeros have the same key.
    fn key(self) -> u64;
}

macro_rules! ordered {
    ($($float:ty, $bits:ty;)*) => { $(
        impl Ordered for $float {
            #[inline(always)]
            fn key(self) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = if self == Self::ZERO { 0 } else { self.to_bits() };
                if self.is_nan() {
                    <$bits>::MAX as u64
                } else if bits & SIGN != 0 {
                    !bits as u64
                } else {
                    (bits | SIGN) as u64
                }
            }
        }
    )* };
}
ordered! { f32, u32; f64, u64; f16, u16; bf16, u16; }

/// Result of a radix selection.
#[derive(Clone, Copy)]
struct Selected {
    /// Smallest selected key.
    threshold: u64,
    /// Weight that keys equal to the threshold must still contribute, at least 1.
    rest: u64,
    /// Total weight of the keys that are equal to the threshold.
    equal: u64,
}

/// Finds the largest threshold for which the keys at or above it have a total weight of at least `want`. Every thread
/// of the block must call this function. `item(i)` returns the key and the weight of element i. The total weight of all
/// elements must be at least `want`, which must be at least 1.
#[inline(always)]
fn select(len: usize, bits: u32, want: u64, item: impl Fn(usize) -> (u64, u64)) -> Selected {
    let histogram = shared_array![u64; BLOCK as usize];
    let found = shared_array![u64; 3];
    let own = thread::thread_idx_x() as usize;
    let (mut prefix, mut mask, mut rest, mut equal) = (0, 0, want, 0);
    let mut shift = bits;
    while shift > 0 {
        shift -= DIGIT_BITS;
        // SAFETY: each thread has its own digit, and barriers separate this write from other accesses.
        unsafe { histogram.add(own).write(0) };
        thread::sync_threads();
        let mut i = own;
        while i < len {
            let (key, weight) = item(i);
            if key & mask == prefix && weight > 0 {
                let digit = (key >> shift) as usize & (BLOCK as usize - 1);
                // SAFETY: the slot belongs to the histogram, which is accessed atomically between the barriers.
                let bin = unsafe { Atomic::<u64, Block>::from_ptr(histogram.add(digit)) };
                bin.fetch_add(weight, Ordering::Relaxed);
            }
            i += BLOCK as usize;
        }
        thread::sync_threads();
        // Thread 0 processes the highest digit.
        let digit = BLOCK as usize - 1 - own;
        // SAFETY: nothing writes the histogram before the next barrier.
        let weight = unsafe { histogram.add(digit).read() };
        let above = block::exclusive_scan(weight, 0u64, |a, b| a + b);
        if above < rest && rest - above <= weight {
            // SAFETY: exactly one thread writes here, between two barriers.
            unsafe {
                found.write(digit as u64);
                found.add(1).write(above);
                found.add(2).write(weight);
            }
        }
        thread::sync_threads();
        // SAFETY: the slot was written before the barrier.
        let [digit, above, weight] = unsafe { found.cast::<[u64; 3]>().read() };
        prefix |= digit << shift;
        mask |= (BLOCK as u64 - 1) << shift;
        rest -= above;
        equal = weight;
    }
    // After this barrier, no thread reads memory that a subsequent selection writes.
    thread::sync_threads();
    Selected { threshold: prefix, rest, equal }
}

/// Writes the `k` largest elements of each row of `x` to `values` in descending order, and their columns to `indices`.
/// Equal elements are ordered by column. NaN counts as greater than every number. There is one instance per element
/// size, because the key transform turns the bits into keys. An element in which all bits of `magnitude` are clear is
/// 0, and an element whose magnitude is above `most` is NaN.
///
/// # Safety
/// The launch must be one-dimensional, with blocks of [`BLOCK`] threads. The outputs must have as many rows as `x`, and
/// `k` columns. `k` must be from 1 to [`MAX_K`], and at most the number of columns of `x`.
#[kernel(
    types(T = u16, u32, u64),
    launch_bounds(256, 1),
    bytes = x.bytes() + values.bytes() + indices.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn top_k<T: Bits>(
    negative: T,
    always: T,
    magnitude: T,
    most: T,
    x: Slice2<T>,
    mut values: DisjointMut2<T>,
    mut indices: DisjointMut2<u64>,
) {
    let key_of = |bits: T| {
        let size = bits & magnitude;
        let bits = if size == T::ZERO { T::ZERO } else { bits };
        let key = if size > most {
            T::ALL_ONES
        } else {
            bits.transform(KeyTransform { negative, always, nans: T::ZERO })
        };
        key.cast::<u64>()
    };
    let key_bits = 8 * size_of::<T>() as u32;
    let keys = shared_array![u64; MAX_K];
    let places = shared_array![u32; MAX_K];
    let count = shared_array![u32; 1];
    let (width, k) = (x.columns(), values.columns());
    let (values_pitch, indices_pitch) = (values.row_stride(), indices.row_stride());
    let (values, indices) = (values.as_mut_ptr(), indices.as_mut_ptr());
    let own = thread::thread_idx_x() as usize;
    let slots = k.next_power_of_two();
    let mut row = thread::block_idx_x() as usize;
    while row < x.rows() {
        let source = x.as_ptr().wrapping_add(row * x.row_stride());
        // SAFETY: callers pass only columns of the row.
        let key = |i: usize| key_of(unsafe { source.add(i).read() });
        let smallest = select(width, key_bits, k as u64, |i| (key(i), 1));
        // Among equal elements, the first ones are selected, because their inverted columns are the largest.
        let last = if smallest.rest < smallest.equal {
            let of_column = |i: usize| (u32::MAX as u64 - i as u64, (key(i) == smallest.threshold) as u64);
            u32::MAX as u64 - select(width, u32::BITS, smallest.rest, of_column).threshold
        } else {
            u32::MAX as u64
        };
        if own == 0 {
            // SAFETY: only one thread writes, before the barrier.
            unsafe { count.write(0) };
        }
        let mut slot = own;
        while slot < slots {
            // SAFETY: these slots belong to this thread until the barrier. Unused slots sort after all elements.
            unsafe {
                keys.add(slot).write(0);
                places.add(slot).write(u32::MAX);
            }
            slot += BLOCK as usize;
        }
        thread::sync_threads();
        let mut i = own;
        while i < width {
            let key = key(i);
            if key > smallest.threshold || (key == smallest.threshold && i as u64 <= last) {
                // SAFETY: the counter is accessed atomically between the barriers and assigns each element its own
                // slot, of which there are k.
                unsafe {
                    let slot = Atomic::<u32, Block>::from_ptr(count).fetch_add(1, Ordering::Relaxed) as usize;
                    keys.add(slot).write(key);
                    places.add(slot).write(i as u32);
                }
            }
            i += BLOCK as usize;
        }
        thread::sync_threads();
        // SAFETY: the slots belong to this block, and every thread of the block makes this call.
        unsafe { sort(keys, places, slots) };
        let mut slot = own;
        while slot < k {
            // SAFETY: slots below k contain elements of the row, and the row of the outputs belongs to this block.
            unsafe {
                let place = places.add(slot).read() as usize;
                values.add(row * values_pitch + slot).write(source.add(place).read());
                indices.add(row * indices_pitch + slot).write(place as u64);
            }
            slot += BLOCK as usize;
        }
        thread::sync_threads();
        row += thread::grid_dim_x() as usize;
    }
}

/// Sorts slots by descending keys, and equal keys by ascending positions, with Batcher's bitonic sort (1968). The
/// number of slots must be a power of two.
///
/// # Safety
/// Every thread of the block must call this function, and nothing else may access the slots.
#[inline(always)]
unsafe fn sort(keys: *mut u64, places: *mut u32, slots: usize) {
    let mut size = 2;
    while size <= slots {
        let mut distance = size / 2;
        while distance > 0 {
            let mut pair = thread::thread_idx_x() as usize;
            while pair < slots / 2 {
                let a = pair / distance * 2 * distance + pair % distance;
                let b = a + distance;
                let is_falling = a & size == 0;
                // SAFETY: both indices are below `slots`, and both slots belong to this thread until the barrier.
                unsafe {
                    let (a_key, b_key) = (keys.add(a).read(), keys.add(b).read());
                    let (a_place, b_place) = (places.add(a).read(), places.add(b).read());
                    let is_before = a_key > b_key || (a_key == b_key && a_place < b_place);
                    if is_before != is_falling {
                        keys.add(a).write(b_key);
                        keys.add(b).write(a_key);
                        places.add(a).write(b_place);
                        places.add(b).write(a_place);
                    }
                }
                pair += BLOCK as usize;
            }
            thread::sync_threads();
            distance /= 2;
        }
        size *= 2;
    }
}

/// Computes the exponential function. `f64` logits also use `f32`, because the weights have no more precision.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    x.exp()
}

/// Weight of the largest probability in a row. All weights are integers relative to this weight.
const WHOLE: f32 = (1u64 << 40) as f32;

/// Samples one column of each row of `logits`, with a probability that is proportional to exp(logit / temperature). If
/// `top_k` is not 0, only the `top_k` largest logits can be sampled. If `top_p` is below 1, only the most probable of
/// these logits whose probabilities add up to `top_p` can be sampled. Ties with the smallest of these elements are
/// kept. For row r, the random number is at position `offset` in subsequence r of the seed. If `base` is not empty, the
/// seed is `base[0]`, and the position is `base[1] + offset`. If a row contains no number above -∞, or contains NaN or
/// +∞, its result is `u64::MAX`.
///
/// # Safety
/// The launch must be one-dimensional, with blocks of [`BLOCK`] threads. Rows must have 1 to [`MAX_VOCABULARY`]
/// elements, and `out` must have one element per row. `scale`, which is the inverse of the temperature, must be
/// positive and finite, and `top_p` must be above 0.
#[kernel(types(T = f32, f64, f16, bf16), launch_bounds(256, 1), bytes = logits.bytes())]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn sample<T: Ordered + Float>(
    seed: u64,
    offset: u64,
    base: &[u64],
    logits: Slice2<T>,
    scale: f32,
    top_k: u32,
    top_p: f64,
    out: *mut u64,
) {
    let (seed, offset) = match base {
        [seed, first, ..] => (*seed, first.wrapping_add(offset)),
        _ => (seed, offset),
    };
    let (width, own) = (logits.columns(), thread::thread_idx_x() as usize);
    let mut row = thread::block_idx_x() as usize;
    while row < logits.rows() {
        let source = logits.as_ptr().wrapping_add(row * logits.row_stride());
        // SAFETY: callers pass only columns of the row.
        let at = |i: usize| unsafe { source.add(i).read() };
        let mut most = T::MAX_IDENTITY;
        let mut i = own;
        while i < width {
            most = most.max_propagate(at(i));
            i += BLOCK as usize;
        }
        let most = block::reduce(most.to_acc(), Scalar::max_propagate);
        let scale: T::Accumulator = scale.cast();
        // The weight of NaN is 0.
        let weight = |value: T| {
            let (value, nothing) = (value.to_acc(), T::Accumulator::MAX_IDENTITY);
            // The difference can overflow even if the scaled difference does not.
            let distance = value - most;
            let scaled = if distance == nothing { value * scale - most * scale } else { distance * scale };
            (exponential(scaled.cast()) * WHOLE) as u64
        };
        let mut threshold = 0;
        if top_k > 0 && (top_k as usize) < width {
            threshold = select(width, T::KEY_BITS, top_k as u64, |i| (at(i).key(), 1)).threshold;
        }
        let kept = |i: usize, threshold: u64| {
            let value = at(i);
            if value.key() >= threshold { weight(value) } else { 0 }
        };
        let mut sum = 0;
        let mut i = own;
        while i < width {
            sum += kept(i, threshold);
            i += BLOCK as usize;
        }
        let mut total = block::reduce(sum, |a: u64, b| a + b);
        if total > 0 && top_p < 1.0 {
            let want = ((total as f64 * top_p) as u64).clamp(1, total);
            let of_key = |i: usize| (at(i).key(), kept(i, threshold));
            let smallest = select(width, T::KEY_BITS, want, of_key);
            threshold = smallest.threshold;
            total = want - smallest.rest + smallest.equal;
        }
        let [low, high, ..] = Philox::new(seed, row as u64, offset).next4();
        let word = low as u64 | (high as u64) << 32;
        // A uniform number below the total.
        let target = ((word as u128 * total as u128) >> 64) as u64;
        // Finds the column at which the running sum of weights exceeds the target. Each thread processes adjacent
        // columns.
        let columns = width.div_ceil(BLOCK as usize);
        let (first, end) = ((own * columns).min(width), ((own + 1) * columns).min(width));
        let mut sum = 0;
        for i in first..end {
            sum += kept(i, threshold);
        }
        let mut before = block::exclusive_scan(sum, 0u64, |a, b| a + b);
        if before <= target && target - before < sum {
            for i in first..end {
                let weight = kept(i, threshold);
                if target - before < weight {
                    // SAFETY: this element belongs to the row, and only one thread writes it.
                    unsafe { out.add(row).write(i as u64) };
                    break;
                }
                before += weight;
            }
        }
        if total == 0 && own == 0 {
            // SAFETY: as above.
            unsafe { out.add(row).write(u64::MAX) };
        }
        row += thread::grid_dim_x() as usize;
    }
}
