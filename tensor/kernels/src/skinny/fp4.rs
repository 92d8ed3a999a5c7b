//! [`Fp4`]: columns of E2M1 numbers with a scale per group, as skinny GEMMs load them.

use gpu_std::prelude::*;
use gpu_std::vectorized::load;

use super::columns::{Columns, Slot, load_bits, ordered};
use super::{CHUNK_K, FP4};
use crate::number4::{Number4, e2m1, halves, scales_of_fp4};

/// Weights of the kind [`FP4`]. Each lane multiplies the 32 consecutive numbers that it has copied, which are one group
/// of 32 or two groups of 16, by their scales in registers.
#[derive(Clone, Copy)]
pub(super) struct Fp4<'a> {
    codes: &'a [u8],
    scales: &'a [u8],
    k: u32,
    /// Number of numbers that share a scale: 16 or 32.
    group: u32,
}

/// Addresses of the numbers of a column, and of the lane's scales of its first step.
#[derive(Clone, Copy)]
pub(super) struct Fp4Column {
    codes: *const u8,
    scales: *const u8,
}

impl<'a> Fp4<'a> {
    #[inline(always)]
    pub fn new(codes: &'a [u8], scales: &'a [u8], k: u32, group: u32) -> Self {
        Self { codes, scales, k, group }
    }

    /// Returns the number of scales of some numbers of a column.
    #[inline(always)]
    fn groups(self, numbers: u32) -> u32 {
        if self.group == 16 { numbers / 16 } else { numbers / 32 }
    }
}

impl<T: Number4> Columns<T> for Fp4<'_> {
    const CHUNKS: usize = 4;
    const LOADS: usize = 1;
    const IS_WHOLE: bool = false;
    const SHARES: bool = false;
    const IS_FINE: bool = false;
    const USES_SUMS: bool = false;
    const PARTS: usize = 1;
    type Column = Fp4Column;
    /// The scales of the lane's numbers in a step, as they are in memory.
    type Beside = u32;
    /// The numbers of each chunk, and the scales of the first and of the last two chunks.
    type Loaded = ([u32; 4], [u32; 2]);

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        8 * chunk as u32 + CHUNK_K * quarter
    }

    #[inline(always)]
    fn place(unit: u32) -> u32 {
        4 * (unit % 4) + unit / 4
    }

    #[inline(always)]
    fn column(self, column: u32) -> Fp4Column {
        let codes = u64::from(column) * u64::from(self.k / 2);
        let scales = u64::from(column) * u64::from(self.groups(self.k));
        let of_lane = self.groups(CHUNK_K * (warp::lane_id() % 4));
        Fp4Column {
            codes: self.codes.as_ptr().wrapping_add(codes as usize),
            scales: self.scales.as_ptr().wrapping_add(scales as usize + of_lane as usize),
        }
    }

    #[inline(always)]
    unsafe fn copy(self, column: Fp4Column, at: u32, [_, quarter]: [u32; 2], is_inside: bool, to: Slot) {
        let from = column.codes.wrapping_add((at / 2 + 16 * quarter) as usize);
        // SAFETY: the numbers are in the column, which starts on a 16-byte boundary, as k is a multiple of 32.
        unsafe {
            if is_inside || at + CHUNK_K * quarter < self.k {
                to.copy(from.cast());
            } else {
                to.pointer.write([0; 4]);
            }
        }
    }

    #[inline(always)]
    unsafe fn beside(self, column: Fp4Column, at: u32) -> u32 {
        if at + CHUNK_K * (warp::lane_id() % 4) >= self.k {
            return 0;
        }
        let from = column.scales.wrapping_add(self.groups(at) as usize);
        // SAFETY: the scales of the lane's numbers exist. The scales of two groups of 16 are an aligned pair, as k is
        // a multiple of 32.
        unsafe { if self.group == 16 { load_bits::<u16>(from.cast()) } else { load_bits::<u8>(from) } }
    }

    #[inline(always)]
    fn prefetch(self, _: Fp4Column, _: u32) {}

    #[inline(always)]
    unsafe fn loaded(
        self,
        from: *const [u32; 4],
        scales: &u32,
        [row, quarter]: [u32; 2],
    ) -> ([u32; 4], [u32; 2]) {
        let scales = scales_of_fp4::<T>(*scales, self.group);
        // SAFETY: guaranteed by the caller.
        let words = unsafe { load::<u32, 4>(from.wrapping_add((4 * row + quarter) as usize).cast()) };
        (words, [halves::<0>(scales, scales), halves::<1>(scales, scales)])
    }

    #[inline(always)]
    unsafe fn numbers((words, scales): &([u32; 4], [u32; 2]), chunk: usize, _: usize) -> [u32; 4] {
        e2m1::<T>(words[chunk], scales[chunk / 2])
    }

    #[inline(always)]
    fn ordered(of_a: [u32; 4]) -> [u32; 4] {
        ordered::<FP4>(of_a)
    }

    #[inline(always)]
    fn add(self, _: &u32, _: usize, sum: f32, product: f32, _: f32) -> f32 {
        sum + product
    }
}
