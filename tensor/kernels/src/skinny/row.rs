//! [`Row`]: a single row of A, as the kernels for one row store it in shared memory.

use core::array::from_fn;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::vectorized::{each, load, load_or};

use super::CHUNK_K;
use super::columns::Columns;
use crate::number4::Number4;

/// A row of A in shared memory, in the order in which the instructions use it, and its sums.
#[derive(Clone, Copy)]
pub(super) struct Row {
    units: *mut [u32; 4],
    /// Sums of the elements that share a scale in a step, times [`Number4::MINUS_CODE`].
    sums: *mut f32,
}

impl Row {
    #[inline(always)]
    pub fn new<T, B: Columns<T>>(memory: *mut [u32; 4], k: u32) -> Self {
        Self { units: memory, sums: memory.wrapping_add(Self::units::<T, B>(k) as usize).cast() }
    }

    /// Returns the number of units of 8 elements in all steps.
    #[inline(always)]
    fn units<T, B: Columns<T>>(k: u32) -> u32 {
        k.div_ceil(const { CHUNK_K * B::CHUNKS as u32 }) * const { 4 * B::CHUNKS as u32 }
    }

    /// Returns the number of units whose elements have a common sum.
    const fn units_per_sum<T, B: Columns<T>>() -> u32 {
        if B::IS_FINE { 4 } else { 16 }
    }

    /// Stores a row of k elements, a multiple of 8, times `weight`, and their sums. Elements beyond k are zero. Returns
    /// the sum of the squares of the elements that the calling thread has loaded.
    ///
    /// # Safety
    ///
    /// The row and the weight must have k elements and start on 16-byte boundaries. The memory must have [`row_bytes`]
    /// that nothing else uses. All threads of the block must execute this call.
    #[inline(always)]
    pub unsafe fn fill<T: Number4, B: Columns<T>>(self, row: *const T, weight: Option<&[T]>, k: u32) -> f32 {
        /// Number of loads per thread in flight.
        const BATCH: usize = 4;
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let of_step = const { 4 * B::CHUNKS as u32 };
        let units = Self::units::<T, B>(k);
        let mut square = 0.0;
        let mut first = 0;
        while first < units {
            let unit = |i: usize| first + thread + threads * i as u32;
            let load = |from: *const T| -> [[u32; 4]; BATCH] {
                from_fn(|i| {
                    let at = 8 * unit(i);
                    // SAFETY: guaranteed by the caller.
                    unsafe { load_or::<u32, 4, true>(from.wrapping_add(at as usize).cast(), at < k, [0; 4]) }
                })
            };
            let (elements, weights) = (load(row), weight.map(|weight| load(weight.as_ptr())));
            each::<BATCH>(|i| {
                let mut words = elements[i];
                if let Some(weights) = weights {
                    each::<4>(|word| {
                        let both = &mut words[word];
                        let [low, high] = [T::widened(*both & 0xffff), T::widened(*both >> 16)];
                        square = Math::mul_add(low, low, Math::mul_add(high, high, square));
                        *both = T::multiply_add(*both, weights[i][word], 0x8000_8000);
                    });
                }
                let unit = unit(i);
                if B::USES_SUMS {
                    let mut sum = 0.0;
                    each::<4>(|word| {
                        sum += T::widened(words[word] & 0xffff) + T::widened(words[word] >> 16);
                    });
                    let mut distance = 1;
                    while distance < Self::units_per_sum::<T, B>() {
                        sum += warp::shuffle_xor(!0, sum, distance);
                        distance *= 2;
                    }
                    if unit < units && unit % Self::units_per_sum::<T, B>() == 0 {
                        let to = self.sums.wrapping_add((unit / Self::units_per_sum::<T, B>()) as usize);
                        // SAFETY: the sum has a place, to which one thread writes.
                        unsafe { to.write(sum * T::widened(T::MINUS_CODE)) };
                    }
                }
                if unit < units {
                    let place = unit / of_step * of_step + B::place(unit % of_step);
                    // SAFETY: the unit has a place, to which one thread writes.
                    unsafe { self.units.add(place as usize).write(B::ordered(words)) };
                }
            });
            first += BATCH as u32 * threads;
        }
        square
    }

    /// Returns the lane's elements of a chunk of the step that starts at `at`, in the order of [`Columns::numbers`].
    ///
    /// # Safety
    ///
    /// The row must have been stored, and the step must start before k.
    #[inline(always)]
    pub unsafe fn elements(self, at: u32, chunk: usize, quarter: u32) -> [u32; 4] {
        let unit = self.units.wrapping_add((at / 8 + quarter) as usize).wrapping_add(4 * chunk);
        // SAFETY: guaranteed by the caller.
        unsafe { load::<u32, 4>(unit.cast()) }
    }

    /// Returns the sum for [`Columns::add`].
    ///
    /// # Safety
    ///
    /// As for [`Self::elements`].
    #[inline(always)]
    pub unsafe fn minus_sum<T, B: Columns<T>>(self, at: u32, chunk: usize) -> f32 {
        let of_chunk = if B::IS_FINE { chunk } else { 0 };
        let from = self.sums.wrapping_add((at / (8 * Self::units_per_sum::<T, B>())) as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { from.add(of_chunk).read() }
    }
}
