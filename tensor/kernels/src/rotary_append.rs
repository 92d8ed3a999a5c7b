//! Rotary position embedding of new queries and keys, which also appends the keys and values to a KV cache. Optionally,
//! each head of q and k is first normalized (RMS norm), as in Qwen3.
//!
//! Each warp processes one head of one token. A lane holds pairs of adjacent elements from both halves of the head.

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::F8E4M3;
use gpu_std::vectorized::{each, load, store};

use crate::cache_element::Rounded;
use crate::sequences::HeadStrides;
use crate::tiles::divide;

/// Number of threads per block.
pub const THREADS: u32 = 32 * WARPS;
/// Number of warps per block.
pub const WARPS: u32 = 4;
/// Maximum number of elements per row.
pub const MAX_DIM: usize = 4 * 32 * STEPS;
/// Maximum number of element pairs that a lane holds for half a head.
const STEPS: usize = 2;

/// Sizes and strides of the heads and tables.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct AppendShape {
    /// Number of sequences.
    pub sequences: u32,
    /// Number of new tokens per sequence.
    pub tokens: u32,
    /// Number of heads of q.
    pub q_heads: u32,
    /// Number of heads of k and v.
    pub kv_heads: u32,
    /// Half the number of elements per row.
    pub half: u32,
    /// 1 if elements 2i and 2i + 1 of a head form a pair, or 0 if elements i and i + half do.
    pub is_interleaved: u32,
    /// Maximum number of keys per sequence.
    pub capacity: u32,
    /// Number of planes of the cache.
    pub planes: u32,
    /// Number of rows per plane of the cache.
    pub plane_rows: u32,
    /// Number of rows of `cos` and `sin`.
    pub positions: u32,
    /// Number that is added to the mean square of a head.
    pub epsilon: f32,
    /// Row stride of the block table.
    pub table_pitch: u64,
    /// Row strides of `cos` and `sin`.
    pub angles: [u64; 2],
    /// Strides of q.
    pub q: HeadStrides,
    /// Strides of `out`.
    pub out: HeadStrides,
    /// Strides of the new keys and values.
    pub new: [HeadStrides; 2],
    /// Strides of the cached keys and values.
    pub cache: [HeadStrides; 2],
}

/// Row that a warp writes: the first element, and the scale of a row of the cache.
#[derive(Clone, Copy)]
enum To<T, C> {
    Out(*mut T),
    Cache(*mut C, f32),
}

/// Rotates the queries to `out`, and the new keys to the cache, and copies the new values to the cache. The new tokens
/// are the last `shape.tokens` of the `lengths[i]` tokens of sequence i. Row p of `cos` and `sin` applies to position
/// p. If there are norm weights, the heads of q and k are first normalized and multiplied by these weights. The block
/// table has the same format as in [`attention_decode`](fn@crate::attention_decode::attention_decode). A token whose
/// position is negative, above the capacity or outside the tables becomes zero in `out`, and is not appended. If a
/// token's page does not exist, the token is not appended. The keys and values that are appended are divided by the
/// scales of their heads and rounded to `C`.
///
/// # Safety
///
/// - The slices must contain the heads that `shape` describes. Rows must have at most [`MAX_DIM`] elements, a multiple
///   of 4, and start on 4-byte boundaries. `cos` and `sin` must have half as many columns, `norms` as many elements as
///   rows, `lengths` one element per sequence, and the scales one per head of k and v. `table` must have one row per
///   sequence, with enough columns for `shape.capacity` keys. Without a table, each sequence must have a plane with
///   `shape.capacity` rows. The outputs must not overlap any other operand.
/// - The launch must be one-dimensional, and have a warp for each head of q, k and v of each new token.
#[kernel(types(T = bf16, f16; C = bf16, f16, F8E4M3, i8), dependent, block(THREADS), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn rotary_append<T: Float<Accumulator = f32>, C: Rounded>(
    q: &[T],
    new_k: &[T],
    new_v: &[T],
    mut out: DisjointMut<T>,
    mut k: DisjointMut<C>,
    mut v: DisjointMut<C>,
    cos: &[f32],
    sin: &[f32],
    q_norm: Option<&[T]>,
    k_norm: Option<&[T]>,
    k_scales: Option<&[f32]>,
    v_scales: Option<&[f32]>,
    lengths: &[u32],
    table: Option<&[u32]>,
    shape: AppendShape,
) {
    grid::launch_dependents();
    grid::dependency_wait();
    let warp = thread::block_idx_x() * WARPS + thread::thread_idx_x() / 32;
    let (row, head) = divide(warp, shape.q_heads + 2 * shape.kv_heads);
    let (sequence, token) = divide(row, shape.tokens);
    if sequence >= shape.sequences {
        return;
    }
    // SAFETY: there is one length per sequence.
    let length = unsafe { *lengths.get_unchecked(sequence as usize) };
    // The position of a token before the first one becomes larger than any capacity.
    let position = (u64::from(length) + u64::from(token)).wrapping_sub(shape.tokens.into());
    let is_inside = position < u64::from(shape.capacity.min(shape.positions));
    let position = position as u32;
    let place = || {
        let Some(table) = table else { return Some((sequence, position)) };
        let (page, row) = divide(position, shape.plane_rows);
        let at = u64::from(sequence) * shape.table_pitch + u64::from(page);
        // SAFETY: the table contains the pages of all positions below the capacity.
        let plane = unsafe { *table.get_unchecked(at as usize) };
        (plane < shape.planes).then_some((plane, row))
    };
    let new = |elements: &[T], i: usize, head: u32| {
        elements.as_ptr().wrapping_add(shape.new[i].at(sequence, head, token) as usize)
    };
    let (is_value, from, to, norm) = if head < shape.q_heads {
        let at = |strides: HeadStrides| strides.at(sequence, head, token) as usize;
        let to = out.as_mut_ptr().wrapping_add(at(shape.out));
        (false, q.as_ptr().wrapping_add(at(shape.q)), To::Out(to), q_norm)
    } else {
        let (i, head) = divide(head - shape.q_heads, shape.kv_heads);
        if !is_inside {
            return;
        }
        let Some((plane, row)) = place() else { return };
        let at = |strides: HeadStrides| strides.at(plane, head, row) as usize;
        let scale = |scales: Option<&[f32]>| {
            // SAFETY: there is one scale per head.
            scales.map_or(1.0, |scales| unsafe { *scales.get_unchecked(head as usize) })
        };
        if i == 0 {
            let to = k.as_mut_ptr().wrapping_add(at(shape.cache[0]));
            (false, new(new_k, 0, head), To::Cache(to, scale(k_scales)), k_norm)
        } else {
            let to = v.as_mut_ptr().wrapping_add(at(shape.cache[1]));
            (true, new(new_v, 1, head), To::Cache(to, scale(v_scales)), None)
        }
    };
    let (lane, half) = (warp::lane_id(), shape.half);
    let pair = |step: usize| 2 * (lane + 32 * step as u32);
    // Two elements of each half of the head, as `f32`.
    let mut elements = [[[0.0f32; 2]; 2]; STEPS];
    each::<STEPS>(|step| {
        let at = pair(step);
        if is_inside && at < half {
            elements[step] = [at, half + at].map(|at| {
                // SAFETY: the elements are inside the row, which starts on a 4-byte boundary.
                unsafe { load::<T, 2>(from.wrapping_add(at as usize)) }.map(|element| element.to_acc())
            });
        }
    });
    if let Some(weight) = norm {
        let mut squares = 0.0f32;
        each::<STEPS>(|step| {
            let [[a, b], [c, d]] = elements[step];
            squares += a * a + b * b + (c * c + d * d);
        });
        let mut distance = 16;
        while distance > 0 {
            squares += warp::shuffle_xor(!0, squares, distance);
            distance /= 2;
        }
        let inverse = Math::rsqrt(squares / (2 * half) as f32 + shape.epsilon);
        each::<STEPS>(|step| {
            let at = pair(step);
            if at < half {
                each::<2>(|i| {
                    // SAFETY: the weight has as many elements as the row.
                    let weight = unsafe {
                        load::<T, 2>(weight.as_ptr().wrapping_add((at + half * i as u32) as usize))
                    };
                    each::<2>(|j| elements[step][i][j] *= inverse * weight[j].to_acc());
                });
            }
        });
    }
    each::<STEPS>(|step| {
        let at = pair(step);
        if at >= half {
            return;
        }
        let [[a, b], [c, d]] = elements[step];
        let is_interleaved = shape.is_interleaved != 0;
        let pairs = if is_interleaved { [[a, b], [c, d]] } else { [[a, c], [b, d]] };
        let rotated = |i: usize| {
            let [a, b] = pairs[i];
            if is_value || !is_inside {
                return [a, b];
            }
            let angle = if is_interleaved { at / 2 + half / 2 * i as u32 } else { at + i as u32 };
            let at = |pitch: u64| (u64::from(position) * pitch + u64::from(angle)) as usize;
            // SAFETY: the tables contain this position and half as many angles as the row has elements.
            let (cos, sin) =
                unsafe { (*cos.get_unchecked(at(shape.angles[0])), *sin.get_unchecked(at(shape.angles[1]))) };
            [a * cos - b * sin, a * sin + b * cos]
        };
        let [[a, b], [c, d]] = [rotated(0), rotated(1)];
        let halves = if is_interleaved { [[a, b], [c, d]] } else { [[a, c], [b, d]] };
        each::<2>(|i| {
            let at = (at + half * i as u32) as usize;
            // SAFETY: as above; this warp writes this row, and this lane these elements.
            unsafe {
                match to {
                    To::Out(to) => store(to.wrapping_add(at), halves[i].map(T::from_acc)),
                    To::Cache(to, scale) => {
                        store(to.wrapping_add(at), halves[i].map(|x| C::rounded(x / scale)))
                    }
                }
            }
        });
    });
}
