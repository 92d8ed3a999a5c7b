//! [`Columns`]: the columns of B that skinny GEMMs load, as 16-bit elements ([`Plain`]) or quantized weights
//! ([`Codes`]).

use core::array::from_fn;

use gpu_std::math::Math;
use gpu_std::tensor::mma::WarpOperand;
use gpu_std::vectorized::{load, load_or};

use super::{CHUNK_K, FP8, INT4_ZEROS, INT8, LANES, bits_of};
use crate::number4::{Number4, both, e4m3, halves, insert};

/// 16 bytes of shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(super) pointer: *mut [u32; 4],
    /// Address as the instruction requires it, so that the main loop does not convert pointers.
    #[cfg(target_arch = "nvptx64")]
    address: u32,
}

impl Slot {
    #[inline(always)]
    pub fn new(pointer: *mut [u32; 4]) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            let address: u32;
            // SAFETY: the instruction only computes a number.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .u64 t; cvta.to.shared.u64 t, {pointer}; cvt.u32.u64 {address}, t; }}",
                    pointer = in(reg64) pointer, address = out(reg32) address,
                    options(pure, nomem, nostack)
                );
            }
            Self { pointer, address }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Self { pointer }
    }

    #[inline(always)]
    pub fn add(mut self, slots: u32) -> Self {
        self.pointer = self.pointer.wrapping_add(slots as usize);
        #[cfg(target_arch = "nvptx64")]
        {
            self.address = self.address.wrapping_add(16 * slots);
        }
        self
    }

    /// Starts a copy to the slot, like [`gpu_std::shared::copy_async`].
    ///
    /// # Safety
    ///
    /// `from` must be in global memory, and nothing may access the slot until the copy is complete.
    #[inline(always)]
    pub unsafe fn copy(self, from: *const [u32; 4]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            #[cfg(target_arch = "nvptx64")]
            core::arch::asm!(
                "{{ .reg .u64 f; cvta.to.global.u64 f, {from}; ",
                "cp.async.cg.shared.global.L2::128B [{to}], [f], 16; }}",
                from = in(reg64) from, to = in(reg32) self.address,
                options(nostack)
            );
            #[cfg(not(target_arch = "nvptx64"))]
            gpu_std::shared::copy_async(from, self.pointer);
        }
    }
}

/// Columns of B, as warps load them.
pub(super) trait Columns<T>: Copy {
    /// Number of chunks per step.
    const CHUNKS: usize;
    /// Number of 16-byte loads per lane, column and step.
    const LOADS: usize;
    /// True if k must be a multiple of the step size.
    const IS_WHOLE: bool;
    /// True if the lanes of a quad use each other's copies.
    const SHARES: bool;
    /// True if each chunk of a column has its own scale. Otherwise a step has one.
    const IS_FINE: bool;
    /// True if [`Self::add`] uses the sums of A.
    const USES_SUMS: bool;
    /// Number of parts whose sum is an element.
    const PARTS: usize;
    /// Addresses of a column's data.
    type Column: Copy;
    /// A column's additional data for a step, such as its scale and zero point.
    type Beside: Copy;
    /// A column's data that has been loaded for a step, or the data's address.
    type Loaded: Copy;

    /// Returns which column of `A`, relative to the step, contains the first of the lane's 8 elements in `chunk`. The
    /// result is the sum of a function of `chunk` and a function of `quarter`.
    fn at(chunk: usize, quarter: u32) -> u32;

    /// Returns at which place in the order of chunks and quarters the 8 elements with the number `unit` of a step are,
    /// which is the inverse of [`Self::at`]. The kernels for one row use it, for codes of 4 bits.
    #[inline(always)]
    fn place(unit: u32) -> u32 {
        unit
    }

    /// Returns the addresses of a column's data.
    fn column(self, column: u32) -> Self::Column;

    /// Starts copying the elements from `at` on that belong to a lane to the slot `to` and to every [`LANES`]-th slot
    /// after it. `is_inside` is true if the step does not extend beyond k. Elements beyond k become zero or, if
    /// [`Self::IS_WHOLE`], are not copied at all.
    ///
    /// # Safety
    ///
    /// The column must be inside B, and `is_inside` may be true only for a step that does not extend beyond k. The
    /// slots must be in shared memory, and nothing else may use them until the copy is complete.
    unsafe fn copy(self, column: Self::Column, at: u32, place: [u32; 2], is_inside: bool, to: Slot);

    /// Loads the additional data of a column for the step that starts at `at`.
    ///
    /// # Safety
    ///
    /// The column must be inside B.
    unsafe fn beside(self, column: Self::Column, at: u32) -> Self::Beside;

    /// Prefetches the additional data of a column for the step that starts at `at`.
    fn prefetch(self, column: Self::Column, at: u32);

    /// Loads the data that [`Self::copy`] copied. `from` is the first slot of the warp, and `place` contains the row
    /// and the quarter of the lane.
    ///
    /// # Safety
    ///
    /// The lane's copies must be complete or, if [`Self::SHARES`], those of all lanes.
    unsafe fn loaded(self, from: *const [u32; 4], beside: &Self::Beside, place: [u32; 2]) -> Self::Loaded;

    /// Returns a part of 8 elements as the operands of two instructions.
    ///
    /// # Safety
    ///
    /// The elements must belong to the current step.
    unsafe fn numbers(loaded: &Self::Loaded, chunk: usize, part: usize) -> [u32; 4];

    /// Reorders elements of A to match the order of [`Self::numbers`].
    fn ordered(of_a: [u32; 4]) -> [u32; 4];

    /// Returns `sum + product`, where the zero point and scale of the column and the chunk are applied to the product.
    /// `minus_a` is the sum of A's elements times [`Number4::MINUS_CODE`].
    fn add(self, beside: &Self::Beside, chunk: usize, sum: f32, product: f32, minus_a: f32) -> f32;
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
    const IS_FINE: bool = false;
    const USES_SUMS: bool = false;
    const PARTS: usize = 1;
    type Column = *const T;
    type Beside = ();
    type Loaded = *const [u32; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        CHUNK_K * chunk as u32 + 8 * quarter
    }

    #[inline(always)]
    fn column(self, column: u32) -> *const T {
        self.from.wrapping_add((u64::from(column) * self.pitch) as usize)
    }

    #[inline(always)]
    unsafe fn copy(self, column: *const T, at: u32, [_, quarter]: [u32; 2], is_inside: bool, to: Slot) {
        let mut chunk = 0;
        while chunk < 2 {
            let at = at + <Self as Columns<T>>::at(chunk, quarter);
            let to = to.add((chunk * LANES) as u32);
            // SAFETY: the column is stored at this address, which is a multiple of 16 bytes; the caller guarantees the
            // rest.
            unsafe {
                if is_inside || at + 8 <= self.k {
                    to.copy(column.wrapping_add(at as usize).cast());
                } else {
                    to.pointer.write(eight::<T, false>(column, at, self.k));
                }
            }
            chunk += 1;
        }
    }

    #[inline(always)]
    unsafe fn beside(self, _: *const T, _: u32) {}

    #[inline(always)]
    fn prefetch(self, _: *const T, _: u32) {}

    #[inline(always)]
    unsafe fn loaded(self, from: *const [u32; 4], (): &(), [row, quarter]: [u32; 2]) -> *const [u32; 4] {
        from.wrapping_add((4 * row + quarter) as usize)
    }

    #[inline(always)]
    unsafe fn numbers(from: &*const [u32; 4], chunk: usize, _: usize) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { load(from.add(chunk * LANES).cast()) }
    }

    #[inline(always)]
    fn ordered(of_a: [u32; 4]) -> [u32; 4] {
        of_a
    }

    #[inline(always)]
    fn add(self, (): &(), _: usize, sum: f32, product: f32, _: f32) -> f32 {
        sum + product
    }
}

/// Quantized weights of the kind `CODES`. If `FINE` is 1, the groups are shorter than a step.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a, T, const CODES: usize, const FINE: usize> {
    codes: &'a [u8],
    scales: &'a [T],
    zeros: Option<&'a [T]>,
    k: u32,
    /// Number of groups per column.
    groups: u32,
    /// Number of codes of a column that share a scale is 32 times 2 to the power of this number.
    shift: u32,
}

/// Addresses of the codes, scales and zero points of a column.
#[derive(Clone, Copy)]
pub(super) struct CodedColumn {
    codes: *const u8,
    scales: *const u16,
    zeros: *const u16,
}

/// Scales and zero points of a column's codes in a step, as bits: one of both or, if `FINE` is 1, two words of two.
/// The words belong to the first and the last two groups of 32, or both belong to the two groups of 64.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    scales: [u32; 2],
    zeros: [u32; 2],
}

impl<'a, T: Number4, const CODES: usize, const FINE: usize> Codes<'a, T, CODES, FINE> {
    /// Number of bits per code.
    const BITS: usize = bits_of(CODES);
    const HAS_ZEROS: bool = CODES == INT4_ZEROS;

    #[inline(always)]
    pub fn new(codes: &'a [u8], scales: &'a [T], zeros: Option<&'a [T]>, k: u32, group: u32) -> Self {
        let shift = if group == k { 31 } else { group.trailing_zeros() - 5 };
        Self { codes, scales, zeros, k, groups: if group == k { 1 } else { (k / 32) >> shift }, shift }
    }

    /// Returns the number of groups that both words of scales contain: 0 for groups of 32, and 2 for groups of 64.
    #[inline(always)]
    fn shared_groups(&self) -> u32 {
        if self.shift == 0 { 0 } else { 2 }
    }

    /// Returns the offset of a code in bytes; the number of codes before it is a multiple of 32.
    #[inline(always)]
    fn offset(at: u32) -> u32 {
        at / 32 * 4 * Self::BITS as u32
    }

    /// Returns the key by which the units of 16 bytes of a row are permuted, so that lanes of different rows access
    /// different banks.
    #[inline(always)]
    fn key(row: u32) -> u32 {
        if Self::BITS == 4 { row / 2 % 4 } else { row & 2 }
    }
}

impl<T: Number4, const CODES: usize, const FINE: usize> Columns<T> for Codes<'_, T, CODES, FINE> {
    const CHUNKS: usize = 4;
    const LOADS: usize = Self::BITS / 4;
    const IS_WHOLE: bool = true;
    const SHARES: bool = FINE == 1;
    const IS_FINE: bool = FINE == 1;
    const USES_SUMS: bool = Self::BITS == 4;
    /// Signed codes are the sum of the low bits and the sign bit.
    const PARTS: usize = if CODES == INT8 { 2 } else { 1 };
    type Column = CodedColumn;
    type Beside = Groups;
    /// The codes of each chunk; with 4 bits, they have only one word.
    type Loaded = [[u32; 2]; 4];

    #[inline(always)]
    fn at(chunk: usize, quarter: u32) -> u32 {
        let chunk = chunk as u32;
        match (FINE == 1, Self::BITS) {
            (true, _) => CHUNK_K * chunk + 8 * quarter,
            // The elements that a lane has copied.
            (false, 4) => 8 * chunk + CHUNK_K * quarter,
            (false, _) => 8 * (chunk % 2) + 64 * (chunk / 2) + 16 * quarter,
        }
    }

    #[inline(always)]
    fn place(unit: u32) -> u32 {
        if FINE == 1 { unit } else { 4 * (unit % 4) + unit / 4 }
    }

    #[inline(always)]
    fn column(self, column: u32) -> CodedColumn {
        let first = (u64::from(column) * u64::from(self.groups)) as usize;
        let codes = u64::from(column) * u64::from(Self::offset(self.k));
        CodedColumn {
            codes: self.codes.as_ptr().wrapping_add(codes as usize),
            scales: self.scales.as_ptr().wrapping_add(first).cast(),
            zeros: self.zeros.map_or(core::ptr::null(), |zeros| zeros.as_ptr().wrapping_add(first).cast()),
        }
    }

    #[inline(always)]
    unsafe fn copy(self, column: CodedColumn, at: u32, [row, quarter]: [u32; 2], is_inside: bool, to: Slot) {
        let unit = if FINE == 1 { quarter ^ Self::key(row) } else { quarter };
        let from = column.codes.wrapping_add(16 * unit as usize).wrapping_add(Self::offset(at) as usize);
        let mut load = 0;
        while load < Self::BITS / 4 {
            // SAFETY: k is a multiple of the step, so either all of its elements exist or none. Codes start on 16-byte
            // boundaries.
            unsafe {
                if is_inside {
                    to.add((load * LANES) as u32).copy(from.wrapping_add(64 * load).cast());
                }
            }
            load += 1;
        }
    }

    #[inline(always)]
    unsafe fn beside(self, column: CodedColumn, at: u32) -> Groups {
        let first = ((at / 32) >> self.shift) as usize;
        let scales = column.scales.wrapping_add(first);
        let zeros = column.zeros.wrapping_add(first);
        let second = 2 - self.shared_groups() as usize;
        // SAFETY: the groups of the step exist. Its number of groups divides the index of the first one, so the words
        // are aligned.
        unsafe {
            if FINE == 1 {
                let two = |from: *const u16| [0, second].map(|i| from.wrapping_add(i).cast::<u32>().read());
                let zeros = if Self::HAS_ZEROS { two(zeros) } else { [0; 2] };
                return Groups { scales: two(scales), zeros };
            }
            let zero = if Self::HAS_ZEROS { load_bits::<u16>(zeros) } else { 0 };
            Groups { scales: [load_bits::<u16>(scales), 0], zeros: [zero, 0] }
        }
    }

    #[inline(always)]
    fn prefetch(self, column: CodedColumn, at: u32) {
        let first = ((at / 32) >> self.shift) as usize;
        prefetch(column.scales.wrapping_add(first).cast());
        if Self::HAS_ZEROS {
            prefetch(column.zeros.wrapping_add(first).cast());
        }
    }

    #[inline(always)]
    unsafe fn loaded(self, from: *const [u32; 4], _: &Groups, [row, quarter]: [u32; 2]) -> [[u32; 2]; 4] {
        let own = from.wrapping_add((4 * row + quarter) as usize);
        // The slot of the lane of the quad that has copied these 16 bytes of the row.
        let slot = |unit: u32| from.wrapping_add((4 * row + (unit ^ Self::key(row))) as usize);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (FINE == 1, Self::BITS) {
                (true, 4) => from_fn(|chunk| {
                    let of_lane = slot(chunk as u32).cast::<u32>();
                    [of_lane.wrapping_add(quarter as usize).read(), 0]
                }),
                (true, _) => from_fn(|chunk| {
                    let of_lane = slot(2 * (chunk as u32 % 2) + quarter / 2).wrapping_add(chunk / 2 * LANES);
                    load::<u32, 2>(of_lane.cast::<u32>().wrapping_add(2 * (quarter % 2) as usize))
                }),
                (false, 4) => load::<u32, 4>(own.cast()).map(|word| [word, 0]),
                (false, _) => {
                    let [[a, b, c, d], [e, f, g, h]] =
                        [0, LANES].map(|slot| load::<u32, 4>(own.wrapping_add(slot).cast()));
                    [[a, b], [c, d], [e, f], [g, h]]
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn numbers(codes: &[[u32; 2]; 4], chunk: usize, part: usize) -> [u32; 4] {
        let words = codes[chunk];
        if Self::BITS == 4 {
            // Each word contains codes i and i + 4.
            return from_fn(|i| insert::<0xf>(words[0] >> (4 * i), both(T::CODE)));
        }
        // Each word contains codes i and i + 2.
        if CODES == FP8 {
            let [[a, b], [c, d]] = words.map(e4m3::<T>);
            return [a, b, c, d];
        }
        from_fn(|i| {
            let word = words[i / 2] >> (8 * (i % 2));
            if part == 0 {
                insert::<0x7f>(word, both(T::CODE))
            } else {
                insert::<0x80>(word, both(T::CODE | 0x8000))
            }
        })
    }

    #[inline(always)]
    fn ordered(of_a: [u32; 4]) -> [u32; 4] {
        ordered::<CODES>(of_a)
    }

    #[inline(always)]
    fn add(self, groups: &Groups, chunk: usize, sum: f32, product: f32, minus_a: f32) -> f32 {
        let (pair, of_pair) = match (FINE == 1, chunk) {
            (false, _) => (0, 0),
            // Scales of groups of 32, or of groups of 64.
            (true, 1) => (0, 1 - self.shared_groups() / 2),
            (true, 2) => (1, self.shared_groups() / 2),
            (true, _) => (chunk / 2, chunk as u32 % 2),
        };
        let [scale, zero] = [groups.scales[pair], groups.zeros[pair]].map(|bits| bits >> (16 * of_pair));
        let mut product = product;
        if Self::BITS == 4 {
            let zero = if Self::HAS_ZEROS { T::widened(zero) } else { 8.0 };
            product = Math::mul_add(zero + T::CODE_ZERO, minus_a, product);
        }
        let scale = T::widened(scale) * if CODES == FP8 { 1.0 } else { T::CODE_SCALE };
        Math::mul_add(scale, product, sum)
    }
}

/// Prefetches the line at an address in global memory to the L2 cache.
#[inline(always)]
fn prefetch(_from: *const u8) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: a prefetch changes no data.
    unsafe {
        core::arch::asm!("prefetch.global.L2 [{0}];", in(reg64) _from, options(nostack, readonly));
    }
}

/// Loads one or two bytes into a register of 32 bits, which needs no conversion.
///
/// # Safety
///
/// The bytes must exist in global memory, aligned, and nothing may write them while the kernel runs.
#[inline(always)]
pub(crate) unsafe fn load_bits<B: Copy + Into<u32>>(from: *const B) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let bits: u32;
        macro_rules! load {
            ($ty:literal) => {
                core::arch::asm!(
                    concat!(
                        "{{ .reg .u64 f; cvta.to.global.u64 f, {from}; ",
                        "ld.global.nc.", $ty, " {bits}, [f]; }}"
                    ),
                    from = in(reg64) from, bits = out(reg32) bits,
                    options(pure, readonly, nostack)
                )
            };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { if size_of::<B>() == 1 { load!("u8") } else { load!("u16") } }
        bits
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        from.read().into()
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

/// Reorders 8 elements of A to match the order in which codes are converted.
#[inline(always)]
pub(crate) fn ordered<const CODES: usize>([x01, x23, x45, x67]: [u32; 4]) -> [u32; 4] {
    if bits_of(CODES) == 4 {
        [halves::<0>(x01, x45), halves::<1>(x01, x45), halves::<0>(x23, x67), halves::<1>(x23, x67)]
    } else {
        [halves::<0>(x01, x23), halves::<1>(x01, x23), halves::<0>(x45, x67), halves::<1>(x45, x67)]
    }
}
