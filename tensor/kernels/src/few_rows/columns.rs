//! [`Columns`]: the columns of B that products of few rows load, of 16-bit numbers ([`Plain`]) and of 4-bit weights ([`Codes`]).

use core::array::from_fn;

use gpu_std::shared::copy_async;
use gpu_std::tensor::mma::WarpOperand;
use gpu_std::vectorized::{load, load_or};

use super::{CHUNK_K, GROUP_K, THREADS};
use crate::number4::Number4;

/// The columns of B, as warps load them.
pub(super) trait Columns<T>: Copy {
    /// Chunks of a step.
    const CHUNKS: usize;
    /// Times 16 bytes of a column that a lane has of a step.
    const LOADS: usize;
    /// Whether k is a multiple of the columns of a step.
    const IS_WHOLE: bool;
    /// What belongs to a column in a step beside them.
    type Beside: Copy;
    /// What is read of them for a step, or where they are.
    type Loaded: Copy;

    /// The column of `A` of the first of 8 numbers of `chunk` in a lane's registers, from that of the step.
    fn at(chunk: usize, quarter: u32) -> u32;

    /// Begins to copy the numbers from `at` on to `to` and each [`THREADS`] places on: beyond k zeros, or nothing if steps are whole.
    /// `is_inside` says that the step ends at k or before.
    ///
    /// # Safety
    ///
    /// The column is one of B, `is_inside` is true only of such a step, the places are in shared memory, and nothing else uses them until the copy is complete.
    unsafe fn copy(self, column: u32, at: u32, quarter: u32, is_inside: bool, to: *mut [u32; 4]);

    /// # Safety
    ///
    /// The column is one of B.
    unsafe fn beside(self, column: u32, at: u32) -> Self::Beside;

    /// # Safety
    ///
    /// [`Self::copy`] to `from` is complete.
    unsafe fn loaded(from: *const [u32; 4]) -> Self::Loaded;

    /// 8 numbers as the operands of two instructions.
    ///
    /// # Safety
    ///
    /// The step has not ended.
    unsafe fn numbers(loaded: &Self::Loaded, beside: &Self::Beside, chunk: usize) -> [u32; 4];

    /// The numbers of A in the order of these.
    fn ordered(of_a: [u32; 4]) -> [u32; 4];

    /// `sums + products`, with the scale of the column.
    fn add(beside: &Self::Beside, sum: f32, product: f32) -> f32;
}

/// 16-bit numbers.
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
            // SAFETY: the column lies there, and begins at a multiple of 16 bytes; the caller's promise.
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
        // SAFETY: the caller's promise.
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

/// 4-bit numbers.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a, T> {
    pub codes: &'a [u8],
    pub scales: &'a [T],
    pub zeros: Option<&'a [u8]>,
    pub k: u32,
}

/// The scale, by its bits, and the zero of a column's 32 codes of a lane: words, so that nothing waits for them to be packed.
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
        // SAFETY: a step has the columns of a group, so that all are there or none. Codes lie at multiples of 16 bytes.
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
        // SAFETY: the caller's promise.
        unsafe { load::<u32, 4>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn numbers(codes: &[u32; 4], group: &Group, chunk: usize) -> [u32; 4] {
        // The mantissa of `bf16` has seven bits.
        let zero = (T::UNIT | (group.zero & 0x7f)) * 0x1_0001;
        // Codes i and i + 4.
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

/// The numbers whose mantissas are codes in the lower bits of both halves.
#[inline(always)]
fn of_unit<T: Number4>(codes: u32) -> u32 {
    const CODES: u32 = 0xf_000f;
    let unit = T::UNIT * 0x1_0001;
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: it computes a number. By itself ptxas makes two instructions of it.
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

/// The lower halves of two words, or with `UPPER` 1 the upper ones.
#[inline(always)]
fn halves<const UPPER: u32>(x: u32, y: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let both: u32;
        // SAFETY: it computes a number.
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

/// 8 numbers of a row from `at` on, or zeros beyond k.
///
/// # Safety
///
/// The row has k numbers and begins at a multiple of 16 bytes, and `at` is a multiple of 8.
#[inline(always)]
pub(super) unsafe fn eight<T: WarpOperand, const KEPT: bool>(row: *const T, at: u32, k: u32) -> [u32; 4] {
    let from = row.wrapping_add(at as usize);
    // SAFETY: all are there.
    let all = unsafe { load_or::<u32, 4, KEPT>(from.cast(), at + 8 <= k, [0; 4]) };
    if at >= k || at + 8 <= k {
        return all;
    }
    let mut words = [0; 4];
    let mut i = 0;
    while i < 7 {
        if at + i < k {
            // SAFETY: it is one of the row.
            let bits = unsafe { from.add(i as usize).cast::<u16>().read() };
            words[i as usize / 2] |= u32::from(bits) << (16 * (i % 2));
        }
        i += 1;
    }
    words
}
