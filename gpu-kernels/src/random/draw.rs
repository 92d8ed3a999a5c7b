//! Random numbers for all elements of an array, one per element, in the order of PyTorch's distributions on CUDA.
//!
//! The order is based on T virtual threads (`threads`, which must be a multiple of 256). In each step, thread t draws
//! one block of four words from subsequence t. A block of words yields four numbers, or two numbers if each takes two
//! words. The index of a number in its block of words is its *lane*. For each step and lane, the numbers of all threads
//! are adjacent. Element i belongs to step i / (lanes · T), lane i % (lanes · T) / T, and thread i % T.
//!
//! Each thread of the launch computes the lanes of four adjacent virtual threads, and stores their numbers in accesses
//! of up to 16 bytes. If the array is not aligned for these accesses, each thread computes one virtual thread at a
//! time. Each row of blocks in the launch processes steps, and the threads of a row process virtual threads. Blocks and
//! threads loop if the launch is smaller than the work. The result is the same for any grid size. The lanes of a block
//! of words are stored far apart, so the kernel uses streaming stores, which are faster than normal stores for this
//! pattern.

use core::num::{NonZeroU32, NonZeroU64};

use gpu_std::disjoint::Unclaimed;
use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::random::{Draw, Philox};
use gpu_std::scalar::From64;

use super::Place;
use crate::tile::{each, opaque};

/// Number of virtual threads for which a thread computes numbers at once.
pub const COLUMNS: usize = 4;

/// Smallest range size for which [`integers()`] uses two words per number. With one word, the smallest numbers would
/// occur up to a sixteenth more often than the others.
pub const WIDE_RANGE: u64 = 1 << 28;

/// Fills `out` with uniform numbers in [`from`, `to`). A number is `from` + u (`to` − `from`), rounded once, for u in
/// (0, 1], and `to` is replaced by `from`. `f16` and `bf16` results are computed in `f32` and rounded a second time.
#[kernel(types(T = f32, f64, f16, bf16), consts(ITEMS = 4; VECTOR = 16), launch_bounds(512, 2), bytes = out.bytes())]
pub fn uniform<T: Float<Accumulator: Draw>, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    threads: u32,
    from: T,
    to: T,
    out: DisjointMut<T, Unclaimed>,
) {
    let (start, range) = (from.to_acc(), (to - from).to_acc());
    let sample =
        |words| <T::Accumulator as Draw>::uniform(words).map(|unit| T::from_acc(unit.mul_add(range, start)));
    let lanes = <T::Accumulator as Draw>::LANES;
    draw(Place::new(seed, offset, base), threads, lanes, out, sample, Some([to, from]));
}

/// Fills `out` with normal numbers. A number is `mean` + z · `std`, rounded once, where z has mean 0 and variance 1.
/// `f16` and `bf16` results are computed in `f32` and rounded a second time.
#[kernel(types(T = f32, f64, f16, bf16), consts(ITEMS = 4; VECTOR = 16), launch_bounds(512), bytes = out.bytes())]
pub fn normal<T: Float<Accumulator: Draw>, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    threads: u32,
    mean: f64,
    std: f64,
    out: DisjointMut<T, Unclaimed>,
) {
    let (mean, std) = (accumulator::<T>(mean), accumulator::<T>(std));
    let sample = |words| <T::Accumulator as Draw>::normal(words).map(|z| T::from_acc(z.mul_add(std, mean)));
    draw(Place::new(seed, offset, base), threads, <T::Accumulator as Draw>::LANES, out, sample, None);
}

/// Fills `out` with exponentially distributed numbers: −ln(u) · `scale` for u in (0, 1]. −ln(1) is replaced by a
/// positive minimum.
#[kernel(types(T = f32, f64, f16, bf16), consts(ITEMS = 4; VECTOR = 16), launch_bounds(512), bytes = out.bytes())]
pub fn exponential<T: Float<Accumulator: Draw>, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    threads: u32,
    scale: f64,
    out: DisjointMut<T, Unclaimed>,
) {
    let scale = accumulator::<T>(scale);
    // The distance from 1 to the next smaller number.
    let smallest = accumulator::<T>(if <T::Accumulator as Draw>::LANES == 4 {
        f32::EPSILON as f64 / 2.0
    } else {
        f64::EPSILON / 2.0
    });
    let sample = |words| {
        <T::Accumulator as Draw>::uniform(words).map(|unit| {
            let log = -unit.ln();
            T::from_acc(scale * if log < smallest { smallest } else { log })
        })
    };
    draw(Place::new(seed, offset, base), threads, <T::Accumulator as Draw>::LANES, out, sample, None);
}

/// Fills `out` with integers from `low` (inclusive) to `low` + `range` (exclusive). Each integer is a word modulo
/// `range`. The word has 32 bits for ranges below [`WIDE_RANGE`], and 64 bits for larger ranges. If `range` is 0,
/// nothing is written. Signed integers are drawn as unsigned integers with the same bits.
#[kernel(types(T = u32, u64), consts(ITEMS = 4; VECTOR = 16), launch_bounds(512), bytes = out.bytes())]
pub fn integers<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    threads: u32,
    low: T,
    range: u64,
    out: DisjointMut<T, Unclaimed>,
) {
    let place = Place::new(seed, offset, base);
    match (NonZeroU32::new(range as u32), NonZeroU64::new(range)) {
        (Some(modulus), _) if range < WIDE_RANGE => {
            let number = |word: u32| T::from_u64((word % modulus) as u64).wrapping_add(low);
            draw(place, threads, 4, out, |words| words.map(number), None);
        }
        (_, Some(modulus)) => {
            let number = |high: u32, word: u32| {
                T::from_u64((((high as u64) << 32) | word as u64) % modulus).wrapping_add(low)
            };
            draw(place, threads, 2, out, |[a, b, c, d]| [number(a, b), number(c, d), low, low], None);
        }
        _ => {}
    }
}

/// Sets elements of `out` to 1 where a uniform number in (0, 1] is below `threshold`, and to 0 elsewhere.
#[kernel(
    types(T = u8, f32, f64, f16, bf16),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512),
    bytes = out.bytes()
)]
pub fn bernoulli<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    threads: u32,
    threshold: f32,
    out: DisjointMut<T, Unclaimed>,
) {
    let sample =
        |words| <f32 as Draw>::uniform(words).map(|unit| if unit < threshold { T::ONE } else { T::ZERO });
    draw(Place::new(seed, offset, base), threads, 4, out, sample, None);
}

/// Converts a parameter to the accumulator type of `T`.
#[inline(always)]
fn accumulator<T: Scalar>(value: f64) -> T::Accumulator {
    T::Accumulator::from_f64(value)
}

/// Fills `out` in the order that the [module](self) describes, using the first `lanes` results of `sample` for each
/// block of words. A result that equals the first element of `instead` is replaced by the second element, which rarely
/// happens.
#[inline(always)]
fn draw<T: Scalar>(
    place: Place,
    threads: u32,
    lanes: usize,
    mut out: DisjointMut<T, Unclaimed>,
    sample: impl Fn([u32; 4]) -> [T; 4],
    instead: Option<[T; 2]>,
) {
    let len = out.len();
    let out = out.as_mut_ptr();
    let threads = threads as usize;
    // SAFETY: the view is valid for `len` elements and overlaps nothing else.
    unsafe {
        if threads.is_multiple_of(COLUMNS) && out.addr().is_multiple_of(Vector::<T, COLUMNS>::ALIGN) {
            columns::<T, COLUMNS>(place, threads, lanes, out, len, sample, instead);
        } else {
            columns::<T, 1>(place, threads, lanes, out, len, sample, instead);
        }
    }
}

/// Like [`draw()`], but each thread computes `N` virtual threads.
///
/// # Safety
/// `out` must be valid for `len` elements, and nothing else may access them. If `N` is greater than 1, `out` must be
/// aligned to the accesses of a [`Vector`] of `N` elements, and `N` must divide `threads`.
#[inline(always)]
unsafe fn columns<T: Scalar, const N: usize>(
    place: Place,
    threads: usize,
    lanes: usize,
    out: *mut T,
    len: usize,
    sample: impl Fn([u32; 4]) -> [T; 4],
    instead: Option<[T; 2]>,
) {
    let columns = threads / N;
    if columns == 0 || thread::thread_idx_y() | thread::thread_idx_z() | thread::block_idx_z() != 0 {
        return;
    }
    let stride = thread::grid_dim_x() as usize * thread::block_dim_x() as usize;
    let first =
        thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize;
    let of_step = lanes * threads;
    let mut column = first;
    while column < columns {
        // Returns the results of `sample` for a virtual thread's block of words in one step.
        let sampled = |step: usize, n: usize| {
            let subsequence = (column * N + n) as u64;
            sample(Philox::at_block(place.seed, subsequence, place.block.wrapping_add(step as u64)).next4())
        };
        let first_of = |step: usize| step * of_step + column * N;
        let mut step = thread::block_idx_y() as usize;
        while first_of(step) + (lanes - 1) * threads + N <= len {
            // Without `opaque`, LLVM turns the induction variable into one pointer per store. These pointers would
            // occupy so many registers that only half of the threads fit.
            let start = opaque(first_of(step));
            let mut values = [sampled(step, 0); N];
            each::<N>(|n| {
                if n > 0 {
                    values[n] = sampled(step, n);
                }
            });
            if let Some([rare, other]) = instead {
                // The maximum takes one instruction per element, whereas a comparison of each element would take two.
                let mut most = values[0][0];
                each::<N>(|n| each::<4>(|lane| most = most.max_propagate(values[n][lane])));
                if most >= rare {
                    each::<N>(|n| {
                        values[n] = values[n].map(|value| if value == rare { other } else { value })
                    });
                }
            }
            each::<4>(|lane| {
                if lane < lanes {
                    let mut row = [values[0][lane]; N];
                    each::<N>(|n| row[n] = values[n][lane]);
                    // SAFETY: the elements of all lanes are in bounds. `start` and `threads` are multiples of `N`, so
                    // the address has the alignment of `out`. Each element belongs to one lane of one step and column.
                    unsafe { Vector::from_array(row).store_streaming(out.add(start + lane * threads)) };
                }
            });
            step += thread::grid_dim_y() as usize;
        }
        // The last, partial step of the array. The next step would start beyond the end.
        let (start, mut n) = (first_of(step), 0);
        while start < len && n < N {
            let values = sampled(step, n);
            each::<4>(|lane| {
                let i = start + lane * threads + n;
                if lane < lanes && i < len {
                    let value = match instead {
                        Some([rare, other]) if values[lane] == rare => other,
                        _ => values[lane],
                    };
                    // SAFETY: the element is in bounds and belongs to one lane of one step and column.
                    unsafe { out.add(i).write(value) };
                }
            });
            // The loop is not unrolled because the unrolled code would be larger than the rest of the kernel.
            n = opaque(n + 1);
        }
        column += stride;
    }
}
