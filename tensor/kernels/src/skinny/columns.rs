//! [`Columns`]: the columns of B that skinny GEMMs load, as 16-bit elements ([`Plain`]) or quantized weights
//! ([`Codes`]).

use core::array::from_fn;

use gpu_std::shared::copy_async;
use gpu_std::tensor::mma::WarpOperand;
use gpu_std::vectorized::{load, load_or};

use super::{CHUNK_K, LANES};
use crate::number4::{Number4, halves, of_unit, signed, subtract};

/// Columns of B, as warps load them.
pub(super) trait Columns<T>: Copy {
    /// Number of chunks per step.
    const CHUNKS: usize;
    /// Number of 16-byte loads per lane, column and step.
    const LOADS: usize;
    /// True if k must be a multiple of the step size.
    const IS_WHOLE: bool;
    /// True if the lanes of a quad use each other's copies, so that each chunk belongs to one group of a column, and
    /// has its own scale.
    const SHARES: bool;
    /// A column's additional data for a step, such as its scale and zero point.
    type Beside: Copy;
    /// A column's data that has been loaded for a step, or the data's address.
    type Loaded: Copy;

    /// Returns which column of `A`, relative to the step, contains the first of the lane's 8 elements in `chunk`.
    fn at(chunk: usize, quarter: u32) -> u32;

    /// Starts copying the elements from `at` on that belong to a lane to the slot `to` and to every [`LANES`]-th slot
    /// after it. `is_inside` is true if the step does not extend beyond k. Elements beyond k become zero or, if
    /// [`Self::IS_WHOLE`], are not copied at all.
    ///
    /// # Safety
    ///
    /// The column must be inside B, and `is_inside` may be true only for a step that does not extend beyond k. The
    /// slots must be in shared memory, and nothing else may use them until the copy is complete.
    unsafe fn copy(self, column: u32, at: u32, place: [u32; 2], is_inside: bool, to: *mut [u32; 4]);

    /// Loads the additional data of a column for the step that starts at `at`.
    ///
    /// # Safety
    ///
    /// The column must be inside B.
    unsafe fn beside(self, column: u32, at: u32) -> Self::Beside;

    /// Loads the data that [`Self::copy`] copied. `from` is the first slot of the warp.
    ///
    /// # Safety
    ///
    /// The lane's copies must be complete or, if [`Self::SHARES`], those of all lanes.
    unsafe fn loaded(from: *const [u32; 4], row: u32, quarter: u32) -> Self::Loaded;

    /// Returns 8 elements as the operands of two instructions.
    ///
    /// # Safety
    ///
    /// The elements must belong to the current step.
    unsafe fn numbers(loaded: &Self::Loaded, beside: &Self::Beside, chunk: usize) -> [u32; 4];

    /// Reorders elements of A to match the order of [`Self::numbers`].
    fn ordered(of_a: [u32; 4]) -> [u32; 4];

    /// Returns `sum + product`, where the scale of the column and the chunk is applied to the product.
    fn add(beside: &Self::Beside, chunk: usize, sum: f32, product: f32) -> f32;
}

/// 16-bit elements.
#[derive(Clone, Copy)]
pub(super) struct Plain<T> {
    pub from: *const T,
    pub pitch: u64,
    pub k: u32,
}

impl<T: WarpOperand> Columns<T> for Plain<T> {
    const CHUNKS: usize = 2;
    const LOADS: usize = 2;
    const IS_WHOLE: bool = false;
    const SHARES: bool = false;
    type Beside = ();
    type Loaded = *const [u32; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        CHUNK_K * chunk as u32 + 8 * quarter
    }

    #[inline(always)]
    unsafe fn copy(self, column: u32, at: u32, [_, quarter]: [u32; 2], is_inside: bool, to: *mut [u32; 4]) {
        let column = self.from.wrapping_add((u64::from(column) * self.pitch) as usize);
        let mut chunk = 0;
        while chunk < 2 {
            let at = at + <Self as Columns<T>>::at(chunk, quarter);
            let to = to.wrapping_add(chunk * LANES);
            // SAFETY: the column is stored at this address, which is a multiple of 16 bytes; the caller guarantees the
            // rest.
            unsafe {
                if is_inside || at + 8 <= self.k {
                    copy_async(column.wrapping_add(at as usize).cast(), to);
                } else {
                    to.write(eight::<T, false>(column, at, self.k));
                }
            }
            chunk += 1;
        }
    }

    #[inline(always)]
    unsafe fn beside(self, _: u32, _: u32) {}

    #[inline(always)]
    unsafe fn loaded(from: *const [u32; 4], row: u32, quarter: u32) -> *const [u32; 4] {
        from.wrapping_add((4 * row + quarter) as usize)
    }

    #[inline(always)]
    unsafe fn numbers(from: &*const [u32; 4], (): &(), chunk: usize) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { load(from.add(chunk * LANES).cast()) }
    }

    #[inline(always)]
    fn ordered(of_a: [u32; 4]) -> [u32; 4] {
        of_a
    }

    #[inline(always)]
    fn add((): &(), _: usize, sum: f32, product: f32) -> f32 {
        sum + product
    }
}

/// Quantized weights, with codes of 4 or 8 bits. If `SHARES` is true, groups can be shorter than a step.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a, T, const BITS: usize, const SHARES: bool> {
    pub codes: &'a [u8],
    pub scales: &'a [T],
    pub zeros: Option<&'a [u8]>,
    pub k: u32,
    /// Number of codes of a column that share a scale.
    pub group: u32,
}

/// Scales (as bits) and zero points of a column's codes in a step: one of both, or if the groups can be shorter than a
/// step, one per chunk.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    scales: [u32; 2],
    zeros: u32,
}

/// Zero points of a step without zero points in memory.
const DEFAULT_ZEROS: u32 = 0x0808_0808;

impl<T: Number4, const BITS: usize, const SHARES: bool> Codes<'_, T, BITS, SHARES> {
    /// Returns the offset of a code in bytes.
    #[inline(always)]
    fn offset(&self, column: u32, at: u32) -> usize {
        let bytes = |codes: u32| u64::from(codes / 8) * BITS as u64 + u64::from(codes % 8 * BITS as u32 / 8);
        (u64::from(column) * bytes(self.k) + bytes(at)) as usize
    }

    /// Returns the key by which the units of 16 bytes of a row are permuted, so that lanes of different rows access
    /// different banks.
    #[inline(always)]
    fn key(row: u32) -> u32 {
        if BITS == 4 { row / 2 % 4 } else { row & 2 }
    }

    /// Returns the index of the first group of a step.
    #[inline(always)]
    fn first(&self, column: u32, at: u32) -> usize {
        if self.group == self.k {
            return column as usize;
        }
        let shift = self.group.trailing_zeros();
        (u64::from(column) * u64::from(self.k >> shift) + u64::from(at >> shift)) as usize
    }
}

impl<T: Number4, const BITS: usize, const SHARES: bool> Columns<T> for Codes<'_, T, BITS, SHARES> {
    const CHUNKS: usize = 4;
    const LOADS: usize = BITS / 4;
    const IS_WHOLE: bool = true;
    const SHARES: bool = SHARES;
    type Beside = Groups;
    /// The codes of each chunk; with 4 bits, they have only one word.
    type Loaded = [[u32; 2]; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        const { assert!(BITS == 4 || SHARES, "codes of 8 bits are shared") };
        if SHARES { CHUNK_K * chunk as u32 + 8 * quarter } else { 8 * chunk as u32 + CHUNK_K * quarter }
    }

    #[inline(always)]
    unsafe fn copy(self, column: u32, at: u32, [row, quarter]: [u32; 2], is_inside: bool, to: *mut [u32; 4]) {
        let unit = if SHARES { quarter ^ Self::key(row) } else { quarter };
        let from = self.codes.as_ptr().wrapping_add(self.offset(column, at) + 16 * unit as usize);
        let mut load = 0;
        while load < BITS / 4 {
            // SAFETY: k is a multiple of the step, so either all of its elements exist or none. Codes start on 16-byte
            // boundaries.
            unsafe {
                if is_inside {
                    let to = to.wrapping_add(load * LANES);
                    copy_async(from.wrapping_add(64 * load).cast(), to);
                }
            }
            load += 1;
        }
    }

    #[inline(always)]
    unsafe fn beside(self, column: u32, at: u32) -> Groups {
        let (is_there, first) = (at < self.k, self.first(column, at));
        let scales = self.scales.as_ptr().wrapping_add(first).cast::<u16>();
        let zeros = self.zeros.map(|zeros| zeros.as_ptr().wrapping_add(first));
        // SAFETY: the groups of the step exist if the step does. Its number of groups divides the index of the first
        // one, so the vectors are aligned.
        unsafe {
            if SHARES && self.group == 32 {
                let scales = load_or::<u32, 2, true>(scales.cast(), is_there, [0; 2]);
                let [zeros] = zeros
                    .map_or([DEFAULT_ZEROS], |zeros| load_or::<u32, 1, true>(zeros.cast(), is_there, [0]));
                return Groups { scales, zeros };
            }
            if SHARES && self.group == 64 {
                let [both] = load_or::<u32, 1, true>(scales.cast(), is_there, [0]);
                let [zeros] = zeros.map_or([DEFAULT_ZEROS as u16], |zeros| {
                    load_or::<u16, 1, true>(zeros.cast(), is_there, [0])
                });
                let zeros = (u32::from(zeros & 0xff) * 0x101) | (u32::from(zeros >> 8) * 0x101_0000);
                return Groups { scales: [halves::<0>(both, both), halves::<1>(both, both)], zeros };
            }
            let [scale] = load_or::<u16, 1, true>(scales, is_there, [0]);
            let zero = match zeros {
                Some(zeros) if is_there => *zeros,
                _ => DEFAULT_ZEROS as u8,
            };
            let of_chunks = if SHARES { [0x1_0001, 0x101_0101] } else { [1; 2] };
            Groups { scales: [u32::from(scale) * of_chunks[0]; 2], zeros: u32::from(zero) * of_chunks[1] }
        }
    }

    #[inline(always)]
    unsafe fn loaded(from: *const [u32; 4], row: u32, quarter: u32) -> [[u32; 2]; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !SHARES {
                return load::<u32, 4>(from.wrapping_add((4 * row + quarter) as usize).cast())
                    .map(|word| [word, 0]);
            }
            // The slot of a lane of the quad that has copied these 16 bytes of the row.
            let slot = |unit: u32| from.wrapping_add((4 * row + (unit ^ Self::key(row))) as usize);
            from_fn(|chunk| {
                if BITS == 4 {
                    let of_lane = slot(chunk as u32).cast::<u32>();
                    return [of_lane.wrapping_add(quarter as usize).read(), 0];
                }
                let of_lane = slot(2 * (chunk as u32 % 2) + quarter / 2).wrapping_add(chunk / 2 * LANES);
                load::<u32, 2>(of_lane.cast::<u32>().wrapping_add(2 * (quarter % 2) as usize))
            })
        }
    }

    #[inline(always)]
    unsafe fn numbers(codes: &[[u32; 2]; 4], groups: &Groups, chunk: usize) -> [u32; 4] {
        let words = codes[chunk];
        if BITS == 4 {
            let zero = if SHARES { groups.zeros >> (8 * chunk) } else { groups.zeros };
            // The zero point has seven bits, like the mantissa of `bf16`.
            let zero = (T::UNIT | (zero & 0x7f)) * 0x1_0001;
            // Each word contains codes i and i + 4.
            from_fn(|i| subtract::<T>(of_unit::<T, 0xf, 0>(words[0] >> (4 * i)), zero))
        } else {
            let ([x02, x13], [x46, x57]) = (signed::<T>(words[0]), signed::<T>(words[1]));
            [x02, x13, x46, x57]
        }
    }

    #[inline(always)]
    fn ordered([x01, x23, x45, x67]: [u32; 4]) -> [u32; 4] {
        if BITS == 4 {
            [halves::<0>(x01, x45), halves::<1>(x01, x45), halves::<0>(x23, x67), halves::<1>(x23, x67)]
        } else {
            [halves::<0>(x01, x23), halves::<1>(x01, x23), halves::<0>(x45, x67), halves::<1>(x45, x67)]
        }
    }

    #[inline(always)]
    fn add(groups: &Groups, chunk: usize, sum: f32, product: f32) -> f32 {
        let scale = if SHARES { groups.scales[chunk / 2] >> (16 * (chunk % 2)) } else { groups.scales[0] };
        sum + product * T::widened(scale)
    }
}

/// Loads 8 elements of a row, starting at `at`. Elements beyond k are zero.
///
/// # Safety
///
/// The row must have k elements and start on a 16-byte boundary, and `at` must be a multiple of 8.
#[inline(always)]
pub(super) unsafe fn eight<T: WarpOperand, const KEPT: bool>(row: *const T, at: u32, k: u32) -> [u32; 4] {
    let from = row.wrapping_add(at as usize);
    // SAFETY: if the condition is true, all elements exist.
    let all = unsafe { load_or::<u32, 4, KEPT>(from.cast(), at + 8 <= k, [0; 4]) };
    if at >= k || at + 8 <= k {
        return all;
    }
    let mut words = [0; 4];
    let mut i = 0;
    while i < 7 {
        if at + i < k {
            // SAFETY: the element is inside the row.
            let bits = unsafe { from.add(i as usize).cast::<u16>().read() };
            words[i as usize / 2] |= u32::from(bits) << (16 * (i % 2));
        }
        i += 1;
    }
    words
}
