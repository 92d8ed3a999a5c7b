//! `C = A * B` for an A of few rows, as when a model generates one token after the other: bound by the memory of B, whose columns
//! are adjacent in memory, as 16-bit numbers or as 4-bit weights.
//!
//! Each lane copies 16 bytes of columns of B to places of its own in shared memory, several steps before it multiplies them by
//! `mma.m16n8k16`: B takes the side of 16 rows, the rows of A that of 8 columns. The warps of a block sum interleaved parts of K,
//! which are added in the order of the warps. Numbers of A come to registers a step ahead.
//!
//! Which numbers of a row meet in an instruction does not matter as long as both operands agree, so that no lane needs what
//! another has copied, and no barrier is between the copies and the products.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::shared::{self, commit_copies, copy_async, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::vectorized::{load, load_or};

use crate::epilogue::Finish;
use crate::number4::Number4;
use crate::tiles::divide;

/// Rows of A that an instruction multiplies.
pub const GROUP_M: u32 = 8;
/// Most rows of A that a block multiplies at once.
pub const MOST_M: u32 = 2 * GROUP_M;
/// Columns of B of an instruction.
pub const TILE_N: u32 = 16;
/// Columns of B to a scale of 4-bit weights.
pub const GROUP_K: u32 = 128;
/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS as u32;

const WARPS: usize = 8;
/// Steps whose columns of B have places: one that is multiplied, and those under way.
const STAGES: usize = 3;
/// The most chunks of a step.
const MOST_CHUNKS: usize = 4;
/// Columns of `A` in 16 bytes of each lane.
const CHUNK_K: u32 = 32;

/// Bytes of shared memory of a launch with this number of tiles: of 16-bit numbers, or of 4-bit weights.
///
/// The sums of the warps have room there at the end.
pub const fn shared_bytes(tiles: u32, is_4bit: bool) -> u32 {
    let loads = if is_4bit { 1 } else { 2 };
    16 * THREADS * 2 * tiles * loads * STAGES as u32
}

/// Blocks of a multiprocessor, for which the registers of a thread are bounded where that costs no spills.
const fn resident_4bit(groups: usize, tiles: usize) -> u32 {
    if groups * tiles < 4 { 2 } else { 1 }
}

/// What is multiplied; distances in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct FewRows {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// From a row of A to the next.
    pub a_pitch: u64,
    /// From a column of B to the next; 4-bit weights have none between.
    pub b_pitch: u64,
    /// From a row of C to the next.
    pub c_pitch: u64,
    /// From a matrix A to the next, or 0.
    pub a_plane: u64,
    /// From a matrix B to the next, or 0.
    pub b_plane: u64,
    /// From a matrix C to the next.
    pub c_plane: u64,
}

/// `c = activation(scale * a * b + bias)`: each block multiplies `8 * GROUPS` rows of A by `16 * TILES` columns of B. Successive
/// blocks have successive columns, then the next rows, and then the next matrices.
///
/// # Safety
///
/// - The slices have the matrices that `sizes` says, with m and n at least 1. Rows of A and columns of B begin at multiples of
///   16 bytes.
/// - `bias` has n elements. `c` overlaps neither `a` nor `b`.
/// - The grid has one dimension and covers columns, rows and matrices, and the launch has [`shared_bytes`].
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    block(THREADS),
    // By itself ptxas spills to have two.
    launch_bounds(THREADS, 1),
    no_panic
)]
pub unsafe fn few_rows<T: WarpOperand, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    finish: Finish,
) {
    let place = Place::new::<GROUPS, TILES>(&sizes);
    let from = b.as_ptr().wrapping_add((place.plane * sizes.b_plane) as usize);
    let b = Plain { from, pitch: sizes.b_pitch, k: sizes.k };
    // SAFETY: the caller's promise.
    unsafe { product::<T, _, GROUPS, TILES>(a, b, &mut c, bias, sizes, place, finish) }
}

/// As [`few_rows()`], with columns of B that are `scales * (codes - zeros)`: 4 bits a code, the lower first, and a scale and a zero
/// for each [`GROUP_K`] of them; without zeros these are 8.
///
/// # Safety
///
/// As for [`few_rows()`]; k is a multiple of [`GROUP_K`], `codes` has n * k / 2 bytes from a multiple of 16 bytes on, and `scales`
/// and `zeros` have n * k / [`GROUP_K`] elements, column by column.
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, resident_4bit(GROUPS, TILES)),
    no_panic
)]
pub unsafe fn few_rows_4bit<T: Number4, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[T],
    zeros: Option<&[u8]>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    finish: Finish,
) {
    let b = Codes { codes, scales, zeros, k: sizes.k };
    let place = Place::new::<GROUPS, TILES>(&sizes);
    // SAFETY: the caller's promise.
    unsafe { product::<T, _, GROUPS, TILES>(a, b, &mut c, bias, sizes, place, finish) }
}

/// What a block multiplies.
#[derive(Clone, Copy)]
struct Place {
    plane: u64,
    first_row: u32,
    first_column: u32,
}

impl Place {
    #[inline(always)]
    fn new<const GROUPS: usize, const TILES: usize>(sizes: &FewRows) -> Self {
        let (height, width) = (GROUP_M * GROUPS as u32, TILE_N * TILES as u32);
        let (number, column) = divide(thread::block_idx_x(), sizes.n.div_ceil(width));
        let (plane, row) = divide(number, sizes.m.div_ceil(height));
        Self { plane: plane.into(), first_row: row * height, first_column: column * width }
    }
}

/// The columns of B, as warps load them.
trait Columns<T>: Copy {
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
    /// `is_inside` says that the step ends before k.
    ///
    /// # Safety
    ///
    /// The column is one of B, `is_inside` is so, the places are in shared memory, and nothing else uses them until the copy is complete.
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
struct Plain<T> {
    from: *const T,
    pitch: u64,
    k: u32,
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
struct Codes<'a, T> {
    codes: &'a [u8],
    scales: &'a [T],
    zeros: Option<&'a [u8]>,
    k: u32,
}

/// The scale, by its bits, and the zero of a column's 32 codes of a lane: words, so that nothing waits for them to be packed.
#[derive(Clone, Copy)]
struct Group {
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
unsafe fn eight<T: WarpOperand, const KEPT: bool>(row: *const T, at: u32, k: u32) -> [u32; 4] {
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
            words[i as usize / 2] |=
                u32::from(unsafe { from.add(i as usize).cast::<u16>().read() }) << (16 * (i % 2));
        }
        i += 1;
    }
    words
}

/// # Safety
///
/// That of [`few_rows()`] and [`few_rows_4bit()`].
#[inline(always)]
unsafe fn product<T: WarpOperand, B: Columns<T>, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    b: B,
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    place: Place,
    finish: Finish,
) {
    /// Sums of a warp for each row of A: twice [`TILE_N`].
    const ROW: usize = 2 * TILE_N as usize;
    let FewRows { m, n, k, .. } = sizes;
    let Place { plane, first_row, first_column } = place;
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / 32);
    let (row, quarter) = (lane / 4, lane % 4);

    // What is beyond the matrices repeats the last and is not stored.
    let columns: [[u32; 2]; TILES] = from_fn(|tile| {
        from_fn(|half| (first_column + TILE_N * tile as u32 + 8 * half as u32 + row).min(n - 1))
    });
    let rows: [*const T; GROUPS] = from_fn(|group| {
        let row = (first_row + GROUP_M * group as u32 + row).min(m - 1);
        a.as_ptr().wrapping_add((plane * sizes.a_plane + u64::from(row) * sizes.a_pitch) as usize)
    });
    let step = CHUNK_K * B::CHUNKS as u32;
    let hop = WARPS as u32 * step;
    let places = shared::dynamic_aligned::<[u32; 4]>().wrapping_add(thread::thread_idx_x() as usize);
    let place = |stage: usize, tile: usize, half: usize| {
        places.wrapping_add(((stage * TILES + tile) * 2 + half) * B::LOADS * THREADS as usize)
    };
    let copy = |at: u32, stage: usize| {
        let copy = |is_inside: bool| {
            let mut i = 0;
            while i < 2 * TILES {
                // SAFETY: the columns are those of B. The places are this thread's, which has multiplied what was there.
                unsafe { b.copy(columns[i / 2][i % 2], at, quarter, is_inside, place(stage, i / 2, i % 2)) };
                i += 1;
            }
        };
        if at + step <= k {
            copy(true);
        } else {
            copy(false);
        }
        commit_copies();
    };
    // The numbers of A of a step: of each chunk those of each group of rows.
    let of_a = |at: u32| {
        let all = |is_inside: bool| {
            from_fn::<_, MOST_CHUNKS, _>(|chunk| {
                rows.map(|row| {
                    if chunk >= B::CHUNKS {
                        return [0; 4];
                    }
                    let first = at + B::at(chunk, quarter);
                    // SAFETY: these are rows of A.
                    unsafe {
                        if is_inside {
                            load::<u32, 4>(row.wrapping_add(first as usize).cast())
                        } else if B::IS_WHOLE {
                            [0; 4]
                        } else {
                            eight::<T, true>(row, first, k)
                        }
                    }
                })
            })
        };
        if at + step <= k { all(true) } else { all(false) }
    };
    // SAFETY: the columns are those of B.
    let beside = |at: u32| columns.map(|halves| halves.map(|column| unsafe { b.beside(column, at) }));

    let mut sums = [[[0.0f32; 4]; TILES]; GROUPS];
    let mut at = warp * step;
    let mut stage = 0;
    while stage < STAGES - 1 {
        copy(at + stage as u32 * hop, stage);
        stage += 1;
    }
    let (mut groups, mut numbers) = (beside(at), of_a(at));
    stage = 0;
    while at < k {
        // They arrive while those of this step are multiplied.
        let later = (beside(at + hop), of_a(at + hop));
        // The place of the step before, which has been multiplied.
        copy(at + (STAGES as u32 - 1) * hop, if stage == 0 { STAGES - 1 } else { stage - 1 });
        wait_copies_leaving::<{ STAGES - 1 }>();
        let loaded: [[B::Loaded; 2]; TILES] =
            // SAFETY: the copies of the stage are complete.
            from_fn(|tile| from_fn(|half| unsafe { B::loaded(place(stage, tile, half)) }));
        let mut products = [[[0.0f32; 4]; TILES]; GROUPS];
        let mut chunk = 0;
        while chunk < B::CHUNKS {
            let of_a = numbers[chunk].map(B::ordered);
            let mut tile = 0;
            while tile < TILES {
                // SAFETY: the step has not ended.
                let [low, high] =
                    [0, 1].map(|half| unsafe { B::numbers(&loaded[tile][half], &groups[tile][half], chunk) });
                let mut group = 0;
                while group < GROUPS {
                    let mut pair = 0;
                    while pair < 4 {
                        let of_b = [low[pair], high[pair], low[pair + 1], high[pair + 1]];
                        // SAFETY: the whole warp is here, as `at` is the same in it.
                        products[group][tile] = unsafe {
                            mma::<T>(products[group][tile], of_b, [of_a[group][pair], of_a[group][pair + 1]])
                        };
                        pair += 2;
                    }
                    group += 1;
                }
                tile += 1;
            }
            chunk += 1;
        }
        let mut tile = 0;
        while tile < TILES {
            let mut group = 0;
            while group < GROUPS {
                let mut i = 0;
                while i < 4 {
                    let sum = &mut sums[group][tile][i];
                    *sum = B::add(&groups[tile][i / 2], *sum, products[group][tile][i]);
                    i += 1;
                }
                group += 1;
            }
            tile += 1;
        }
        (groups, numbers) = later;
        at += hop;
        stage = if stage + 1 == STAGES { 0 } else { stage + 1 };
    }

    // The sums take the place of the copies.
    thread::sync_threads();
    let stage = shared::dynamic_aligned::<f32>();
    let mut group = 0;
    while group < GROUPS {
        let mut tile = 0;
        while tile < TILES {
            let mut i = 0;
            while i < 4 {
                let of_row = warp as usize * MOST_M as usize
                    + GROUP_M as usize * group
                    + (2 * quarter) as usize
                    + i % 2;
                let column = TILE_N as usize * tile + row as usize + 8 * (i / 2);
                // SAFETY: each sum of a warp has a place.
                unsafe { stage.add(of_row * ROW + column).write(sums[group][tile][i]) };
                i += 1;
            }
            tile += 1;
        }
        group += 1;
    }
    thread::sync_threads();

    let mut i = thread::thread_idx_x();
    while i < TILE_N * TILES as u32 * GROUP_M * GROUPS as u32 {
        let (row, column) = (i / (TILE_N * TILES as u32), i % (TILE_N * TILES as u32));
        let mut sum = 0.0;
        let mut warp = 0;
        while warp < WARPS {
            // SAFETY: it was written before the barrier.
            sum +=
                unsafe { stage.add((warp * MOST_M as usize + row as usize) * ROW + column as usize).read() };
            warp += 1;
        }
        let (row, column) = (first_row + row, first_column + column);
        if row < m && column < n {
            // SAFETY: the bias has an element for each column.
            let bias = bias.map(|bias| unsafe { *bias.get_unchecked(column as usize) }.cast::<f32>());
            let to = plane * sizes.c_plane + u64::from(row) * sizes.c_pitch + u64::from(column);
            // SAFETY: C has this element, which no other thread writes.
            unsafe { c.as_mut_ptr().add(to as usize).write(finish.of(sum, bias).cast::<T>()) };
        }
        i += THREADS;
    }
}
