//! [`Columns`]: the columns of B that skinny GEMMs load, as 16-bit elements ([`Plain`]) or packed int4 weights
//! ([`Codes`]).

use core::array::from_fn;

use gpu_std::shared::copy_async;
use gpu_std::tensor::mma::WarpOperand;
use gpu_std::vectorized::{load, load_or};

use super::{CHUNK_K, GROUP_K, THREADS};
use crate::number4::Number4;

/// Columns of B, as warps load them.
pub(super) trait Columns<T>: Copy {
    /// Number of chunks per step.
    const CHUNKS: usize;
    /// Number of 16-byte loads per lane, column and step.
    const LOADS: usize;
    /// True if k must be a multiple of the step size.
    const IS_WHOLE: bool;
    /// A column's additional data for a step, such as its scale and zero point.
    type Beside: Copy;
    /// A column's data that has been loaded for a step, or the data's address.
    type Loaded: Copy;

    /// Returns which column of `A`, relative to the step, contains the first of the lane's 8 elements in `chunk`.
    fn at(chunk: usize, quarter: u32) -> u32;

    /// Starts copying the elements from `at` on to the slot `to` and to every [`THREADS`]-th slot after it. `is_inside`
    /// is true if the step does not extend beyond k. Elements beyond k become zero or, if [`Self::IS_WHOLE`], are not
    /// copied at all.
    ///
    /// # Safety
    ///
    /// The column must be inside B, and `is_inside` may be true only for a step that does not extend beyond k. The
    /// slots must be in shared memory, and nothing else may use them until the copy is complete.
    unsafe fn copy(self, column: u32, at: u32, quarter: u32, is_inside: bool, to: *mut [u32; 4]);

    /// Loads the additional data of a column for the step that starts at `at`.
    ///
    /// # Safety
    ///
    /// The column must be inside B.
    unsafe fn beside(self, column: u32, at: u32) -> Self::Beside;

    /// Loads the data that [`Self::copy`] copied to `from`.
    ///
    /// # Safety
    ///
    /// The copy must be complete.
    unsafe fn loaded(from: *const [u32; 4]) -> Self::Loaded;

    /// Returns 8 elements as the operands of two instructions.
    ///
    /// # Safety
    ///
    /// The elements must belong to the current step.
    unsafe fn numbers(loaded: &Self::Loaded, beside: &Self::Beside, chunk: usize) -> [u32; 4];

    /// Reorders elements of A to match the order of [`Self::numbers`].
    fn ordered(of_a: [u32; 4]) -> [u32; 4];

    /// Returns `sum + product`, where the scale of the column is applied to the product.
    fn add(beside: &Self::Beside, sum: f32, product: f32) -> f32;
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
    type Beside = ();
    type Loaded = *const [u32; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        CHUNK_K * chunk as u32 + 8 * quarter
    }

    #[inline(always)]
    unsafe fn copy(self, column: u32, at: u32, quarter: u32, is_inside: bool, to: *mut [u32; 4]) {
        let column = self.from.wrapping_add((u64::from(column) * self.pitch) as usize);
        let mut chunk = 0;
        while chunk < 2 {
            let at = at + <Self as Columns<T>>::at(chunk, quarter);
            let to = to.wrapping_add(chunk * THREADS as usize);
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
    unsafe fn loaded(from: *const [u32; 4]) -> *const [u32; 4] {
        from
    }

    #[inline(always)]
    unsafe fn numbers(from: &*const [u32; 4], (): &(), chunk: usize) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { load(from.add(chunk * THREADS as usize).cast()) }
    }

    #[inline(always)]
    fn ordered(of_a: [u32; 4]) -> [u32; 4] {
        of_a
    }

    #[inline(always)]
    fn add((): &(), sum: f32, product: f32) -> f32 {
        sum + product
    }
}

/// Packed int4 weights.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a, T> {
    pub codes: &'a [u8],
    pub scales: &'a [T],
    pub zeros: Option<&'a [u8]>,
    pub k: u32,
}

/// Scale (as bits) and zero point of the 32 codes that the lane processes in a column. Both are stored in 32-bit words,
/// so that no instruction waits until they are packed.
#[derive(Clone, Copy)]
pub(super) struct Group {
    scale: u32,
    zero: u32,
}

impl<T: Number4> Columns<T> for Codes<'_, T> {
    const CHUNKS: usize = 4;
    const LOADS: usize = 1;
    const IS_WHOLE: bool = true;
    type Beside = Group;
    type Loaded = [u32; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        8 * chunk as u32 + CHUNK_K * quarter
    }

    #[inline(always)]
    unsafe fn copy(self, column: u32, at: u32, quarter: u32, is_inside: bool, to: *mut [u32; 4]) {
        let first = u64::from(column) * u64::from(self.k / 2) + u64::from((at + CHUNK_K * quarter) / 2);
        // SAFETY: each step covers exactly one group, so either all of its elements exist or none. Codes start on
        // 16-byte boundaries.
        unsafe {
            if is_inside {
                copy_async(self.codes.as_ptr().wrapping_add(first as usize).cast(), to);
            }
        }
    }

    #[inline(always)]
    unsafe fn beside(self, column: u32, at: u32) -> Group {
        let is_there = at < self.k;
        let group = u64::from(column) * u64::from(self.k / GROUP_K) + u64::from(at / GROUP_K);
        // SAFETY: as above.
        unsafe {
            let scales = self.scales.as_ptr().wrapping_add(group as usize);
            let [scale] = load_or::<u16, 1, true>(scales.cast(), is_there, [0]);
            let zero = match self.zeros {
                Some(zeros) if is_there => *zeros.get_unchecked(group as usize),
                _ => 8,
            };
            Group { scale: scale.into(), zero: zero.into() }
        }
    }

    #[inline(always)]
    unsafe fn loaded(from: *const [u32; 4]) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { load::<u32, 4>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn numbers(codes: &[u32; 4], group: &Group, chunk: usize) -> [u32; 4] {
        // The zero point has seven bits, like the mantissa of `bf16`.
        let zero = (T::UNIT | (group.zero & 0x7f)) * 0x1_0001;
        // Each word contains codes i and i + 4.
        from_fn(|i| T::subtract(of_unit::<T>(codes[chunk] >> (4 * i)), zero))
    }

    #[inline(always)]
    fn ordered([x01, x23, x45, x67]: [u32; 4]) -> [u32; 4] {
        [halves::<0>(x01, x45), halves::<1>(x01, x45), halves::<0>(x23, x67), halves::<1>(x23, x67)]
    }

    #[inline(always)]
    fn add(group: &Group, sum: f32, product: f32) -> f32 {
        sum + product * T::widened(group.scale)
    }
}

/// Inserts the codes, which are in the low bits of both halves, into the mantissas of [`Number4::UNIT`].
#[inline(always)]
fn of_unit<T: Number4>(codes: u32) -> u32 {
    const CODES: u32 = 0xf_000f;
    let unit = T::UNIT * 0x1_0001;
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: the instruction only computes a number. Without the inline assembly, ptxas emits two instructions
        // instead of one.
        unsafe {
            core::arch::asm!(
                "lop3.b32 {both}, {codes}, {mask}, {unit}, 0xea;",
                both = out(reg32) both, codes = in(reg32) codes, mask = in(reg32) CODES, unit = in(reg32) unit,
                options(pure, nomem, nostack)
            );
        }
        both
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        codes & CODES | unit
    }
}

/// Combines the lower halves of two words, or the upper halves if `UPPER` is 1.
#[inline(always)]
fn halves<const UPPER: u32>(x: u32, y: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: the instruction only computes a number.
        unsafe {
            core::arch::asm!(
                "prmt.b32 {both}, {x}, {y}, {selected};",
                both = out(reg32) both, x = in(reg32) x, y = in(reg32) y,
                selected = const if UPPER == 0 { 0x5410 } else { 0x7632 },
                options(pure, nomem, nostack)
            );
        }
        both
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        (x >> (16 * UPPER)) & 0xffff | (y >> (16 * UPPER)) << 16
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
