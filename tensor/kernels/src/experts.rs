//! Routing of mixture-of-experts layers: selection of the top k experts of each token, permutation of rows by expert
//! (dispatch), and the weighted sum of the experts' results (combine).

use core::array::from_fn;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::scalar::Scalar;
use gpu_std::vectorized::{load, store};

use crate::tiles::divide;

/// Number of threads per block.
pub const THREADS: u32 = 256;
/// Number of lanes per warp.
const LANES: u32 = 32;
/// Maximum number of experts per token.
pub const MAX_CHOSEN: u32 = LANES;
/// Maximum number of experts.
pub const MAX_EXPERTS: u32 = LANES * LOGITS as u32;
/// Number of logits per lane.
const LOGITS: usize = 16;
/// Number of entries that a thread permutes at a time.
const ENTRIES: usize = 8;
/// Number of elements per 16 bytes.
const VECTOR: usize = 8;

/// Selects the `k` experts of each token with the largest logits, in descending order. Of equal logits, the one with
/// the lower index comes first; NaN counts as the largest number. The weight of an expert is the exponential of its
/// logit, divided by the sum over all experts or, if `normalizes` is not 0, over the selected ones. Each warp processes
/// one token.
///
/// # Safety
/// `logits` must contain `tokens` rows of `count` elements, `pitch` elements apart. `chosen` and `weights` must have
/// `tokens * k` elements. `count` must be at least `k` and at most [`MAX_EXPERTS`], and `k` at most [`MAX_CHOSEN`].
#[kernel(types(T = bf16, f16), arch = 80, block(THREADS), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn top_experts<T: Scalar>(
    logits: &[T],
    mut chosen: DisjointMut<u32>,
    mut weights: DisjointMut<f32>,
    tokens: u32,
    count: u32,
    pitch: u64,
    k: u32,
    normalizes: u32,
) {
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / LANES);
    let token = thread::block_idx_x() * (THREADS / LANES) + warp;
    if token >= tokens {
        return;
    }
    let row = logits.as_ptr().wrapping_add((u64::from(token) * pitch) as usize);
    let place = |i: usize| lane + LANES * i as u32;
    let numbers: [f32; LOGITS] = from_fn(|i| {
        if place(i) < count {
            // SAFETY: the row has `count` elements.
            unsafe { row.add(place(i) as usize).read() }.cast()
        } else {
            f32::NEG_INFINITY
        }
    });
    let mut keys: [u32; LOGITS] = from_fn(|i| if place(i) < count { ordered(numbers[i]) } else { 0 });
    let mut own = (0, 0);
    let mut largest = 0.0;
    let mut round = 0;
    while round < k {
        let mut best = 0;
        let mut i = 0;
        while i < LOGITS {
            best = best.max(u64::from(keys[i]) << 32 | u64::from(!place(i)));
            i += 1;
        }
        let best = warp::reduce(warp::FULL_MASK, best, u64::max);
        let (key, index) = ((best >> 32) as u32, !(best as u32));
        keys = from_fn(|i| if place(i) == index { 0 } else { keys[i] });
        if round == 0 {
            largest = number(key);
        }
        if round == lane {
            own = (index, key);
        }
        round += 1;
    }
    let exponential = |x: f32| Math::exp(x - largest);
    let mut weight = if lane < k { exponential(number(own.1)) } else { 0.0 };
    let mut sum = weight;
    if normalizes == 0 {
        sum = 0.0;
        let mut i = 0;
        while i < LOGITS {
            if place(i) < count {
                sum += exponential(numbers[i]);
            }
            i += 1;
        }
    }
    weight /= warp::reduce(warp::FULL_MASK, sum, |x, y| x + y);
    if lane < k {
        let at = (u64::from(token) * u64::from(k) + u64::from(lane)) as usize;
        // SAFETY: both have k elements per token, and only this lane writes these.
        unsafe {
            chosen.as_mut_ptr().add(at).write(own.0);
            weights.as_mut_ptr().add(at).write(weight);
        }
    }
}

/// Returns an integer with the same order. NaN becomes the largest one, and no number becomes 0.
#[inline(always)]
fn ordered(x: f32) -> u32 {
    let bits = x.to_bits();
    match (x.is_nan(), bits >> 31) {
        (true, _) => !0,
        (_, 0) => bits | 1 << 31,
        _ => !bits,
    }
}

/// Returns the number with this [`ordered`] integer.
#[inline(always)]
fn number(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// Sorts the entries of `chosen` by expert. Entries of the same expert keep their order. Block i processes expert i.
/// `offsets` receives the start of each expert's entries and their total, `entries` the sorted entries' indices in
/// `chosen`, and `places` the inverse permutation.
///
/// # Safety
/// `offsets` must have one more element than there are blocks, whose number is the number of experts. `entries` and
/// `places` must have as many elements as `chosen`, fewer than 2^31. The elements of `chosen` must be smaller than the
/// number of experts.
#[kernel(arch = 80, block(THREADS), no_panic)]
pub unsafe fn sort_by_expert(
    chosen: &[u32],
    mut offsets: DisjointMut<u32>,
    mut entries: DisjointMut<u32>,
    mut places: DisjointMut<u32>,
) {
    let (expert, own, len) = (thread::block_idx_x(), thread::thread_idx_x(), chosen.len() as u32);
    let (offsets, entries, places) = (offsets.as_mut_ptr(), entries.as_mut_ptr(), places.as_mut_ptr());
    // SAFETY: the index is below the length.
    let expert_of = |entry: u32| unsafe { *chosen.get_unchecked(entry as usize) };
    let mut before = 0;
    let mut entry = own;
    while entry < len {
        before += u32::from(expert_of(entry) < expert);
        entry += THREADS;
    }
    let mut next = block::reduce(before, |x, y| x + y);
    if own == 0 {
        // SAFETY: there is an offset per block, and one more. Only this thread writes them.
        unsafe {
            offsets.add(expert as usize).write(next);
            if expert + 1 == thread::grid_dim_x() {
                offsets.add(expert as usize + 1).write(len);
            }
        }
    }
    let mut first = 0;
    while first < len {
        let entry = |i: usize| first + own * ENTRIES as u32 + i as u32;
        let is_own: [bool; ENTRIES] = from_fn(|i| entry(i) < len && expert_of(entry(i)) == expert);
        let count = is_own.iter().map(|is_own| u32::from(*is_own)).sum::<u32>();
        let end = block::inclusive_scan(count, |x, y| x + y);
        let mut place = next + end - count;
        let mut i = 0;
        while i < ENTRIES {
            if is_own[i] {
                // SAFETY: the places of all entries differ, and are below the length.
                unsafe {
                    entries.add(place as usize).write(entry(i));
                    places.add(entry(i) as usize).write(place);
                }
                place += 1;
            }
            i += 1;
        }
        next += block::broadcast(end, THREADS - 1);
        first += THREADS * ENTRIES as u32;
    }
}

/// Copies the rows of the tokens to which the sorted entries belong. Block i writes row i.
///
/// # Safety
/// `from` must have a row for each token, `from_pitch` elements apart, and `to` a row for each entry, `to_pitch`
/// elements apart. All rows must start on 16-byte boundaries. `columns` must be a multiple of 8. The grid must have a
/// block for each of `entries`, which are smaller than `k` times the number of tokens.
#[kernel(types(T = bf16, f16), arch = 80, block(THREADS), no_panic)]
pub unsafe fn dispatch_rows<T: Scalar>(
    from: &[T],
    entries: &[u32],
    mut to: DisjointMut<T>,
    k: u32,
    columns: u32,
    from_pitch: u64,
    to_pitch: u64,
) {
    let row = thread::block_idx_x();
    // SAFETY: there is an entry per block.
    let (token, _) = divide(unsafe { *entries.get_unchecked(row as usize) }, k);
    let from = from.as_ptr().wrapping_add((u64::from(token) * from_pitch) as usize);
    let to = to.as_mut_ptr().wrapping_add((u64::from(row) * to_pitch) as usize);
    let mut column = thread::thread_idx_x() * VECTOR as u32;
    while column < columns {
        let at = column as usize;
        // SAFETY: both rows have these elements, which start on a 16-byte boundary. Only this thread writes them.
        unsafe { store(to.add(at), load::<T, VECTOR>(from.add(at))) };
        column += THREADS * VECTOR as u32;
    }
}

/// Adds the rows of the `k` entries of each token, times their weights, in the order of the entries. The sum is rounded
/// once. If `accumulates` is not 0, it is added to `to`. Block i writes the row of token i.
///
/// # Safety
/// `from` must have a row for each entry, `from_pitch` elements apart, and `to` a row for each token, `to_pitch`
/// elements apart. All rows must start on 16-byte boundaries. `columns` must be a multiple of 8. `places` and `weights`
/// must have `k` elements per block, and the places must be smaller than the number of entries.
#[kernel(types(T = bf16, f16), arch = 80, block(THREADS), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn combine_rows<T: Scalar>(
    from: &[T],
    places: &[u32],
    weights: &[f32],
    mut to: DisjointMut<T>,
    k: u32,
    columns: u32,
    from_pitch: u64,
    to_pitch: u64,
    accumulates: u32,
) {
    let token = u64::from(thread::block_idx_x());
    let to = to.as_mut_ptr().wrapping_add((token * to_pitch) as usize);
    let mut column = thread::thread_idx_x() * VECTOR as u32;
    while column < columns {
        let at = column as usize;
        // SAFETY: all rows have these elements, which start on a 16-byte boundary. Only this thread accesses those of
        // `to`, and there are k entries per block.
        unsafe {
            let mut sums = [0.0f32; VECTOR];
            if accumulates != 0 {
                sums = load::<T, VECTOR>(to.add(at)).map(Scalar::cast);
            }
            let mut entry = token * u64::from(k);
            while entry < (token + 1) * u64::from(k) {
                let weight = *weights.get_unchecked(entry as usize);
                let place = u64::from(*places.get_unchecked(entry as usize));
                let row = from.as_ptr().wrapping_add((place * from_pitch) as usize);
                let numbers: [f32; VECTOR] = load::<T, VECTOR>(row.add(at)).map(Scalar::cast);
                sums = from_fn(|i| Math::mul_add(weight, numbers[i], sums[i]));
                entry += 1;
            }
            store(to.add(at), sums.map(Scalar::cast::<T>));
        }
        column += THREADS * VECTOR as u32;
    }
}
