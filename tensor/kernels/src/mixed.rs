//! Mixed-input GEMM, `C = A * B`, with quantized weights B and tens to hundreds of rows of A, as in batched decoding.
//! Each column of B is contiguous in memory.
//!
//! All threads of a block copy tiles of A and of the codes to a circular buffer with `cp.async`, several stages ahead
//! (multistage). Each of the eight warps computes 64 columns of up to 64 rows with `mma.m16n8k16`. Warps that do not
//! fit beside each other divide the K of a stage (sliced-K), and their sums are added at the end.
//!
//! Warps convert codes to `scale * (code - zero)`, rounded to the type of A, in registers. The order of elements along
//! K in an instruction does not matter as long as both operands agree. Each lane therefore converts 8 consecutive codes
//! of a column, and loads the same 8 consecutive elements of each row of A. Operands are loaded from shared memory one
//! chunk of K ahead.
//!
//! With split-K, several blocks compute parts of a tile's sums, and store them in a workspace. The block that arrives
//! last adds the parts in order.

use core::array::from_fn;
use core::marker::PhantomData;

use gpu_std::prelude::*;
use gpu_std::shared::{self, commit_copies, wait_copies, wait_copies_leaving};
use gpu_std::tensor::mma::mma;
use gpu_std::tensor::warpgroup;
use gpu_std::vectorized::{each, load, load_or, opaque, store, store_run};

use crate::epilogue::{EpilogueParams, silu};
use crate::mma::{COUNTERS, is_last};
use crate::number4::{Number4, both, e2m1, e4m3, halves, scales_of_fp4, signed};
use crate::skinny::{FP4, FP8, INT4, SkinnySizes, Slot, bits_of, load_bits, ordered};
use crate::tiles::divide;

/// Number of threads per block.
pub const THREADS: u32 = 32 * WARPS as u32;
/// Number of warps per block.
const WARPS: usize = 8;
/// Number of columns of C per warp.
const WARP_N: usize = 64;
/// Maximum number of rows of C per warp.
const WARP_M: usize = 64;
/// Number of columns of A per chunk. Each of the four lanes of a quad has 8 of them.
const CHUNK_K: usize = 32;
/// Maximum bytes of shared memory per block, which fit on all devices.
const MAX_BYTES: usize = 96 << 10;
/// Maximum number of stages.
const MAX_STAGES: usize = 6;
/// Number of elements between rows of sums in shared memory, so that lanes of different rows access different banks.
const PADDING: usize = 8;

/// Returns how many warps the rows of a tile have.
const fn warps_m(rows: usize) -> usize {
    rows.div_ceil(WARP_M)
}

/// Returns into how many parts the warps divide the K of a stage.
const fn warps_k(rows: usize, columns: usize) -> usize {
    WARPS / (warps_m(rows) * (columns / WARP_N))
}

/// Returns the number of columns of A per stage, for tiles of `rows` x `columns`.
pub const fn step(rows: usize, columns: usize) -> usize {
    let step = CHUNK_K * warps_k(rows, columns);
    if step < 64 { 64 } else { step }
}

/// Returns the 16-byte slots of a stage: of A, of the codes, and of the scales.
const fn slots(rows: usize, columns: usize, bits: usize) -> [usize; 3] {
    let step = step(rows, columns);
    [rows * step / 8, columns * step * bits / 128, columns * (step / CHUNK_K) / 4]
}

/// Returns the 16-byte slots per stage.
const fn stage_slots(rows: usize, columns: usize, bits: usize) -> usize {
    let [a, codes, scales] = slots(rows, columns, bits);
    a + codes + scales
}

/// Returns the number of pipeline stages.
const fn stages(rows: usize, columns: usize, bits: usize) -> usize {
    let stages = MAX_BYTES / (16 * stage_slots(rows, columns, bits));
    if stages > MAX_STAGES { MAX_STAGES } else { stages }
}

/// Returns the bytes of dynamic shared memory per block for tiles of `rows` x `columns` and codes of `bits` bits.
pub const fn shared_bytes(rows: usize, columns: usize, bits: usize) -> u32 {
    let stages = 16 * stage_slots(rows, columns, bits) * stages(rows, columns, bits);
    let sums = 4 * warps_k(rows, columns) * 16 * warps_m(rows) * (columns + PADDING);
    if stages > sums { stages as u32 } else { sums as u32 }
}

/// Mixed-input GEMM, `c = activation(scale * a * b + bias)`, where B is `scales * (codes - zeros)`, rounded to the type
/// of A. There is one scale and one zero point per `group` codes of a column. `CODES` is
/// [`INT4`] with or without `zeros`, [`INT8`](crate::skinny::INT8), [`FP8`] or [`FP4`]. Each block
/// computes `ROWS` rows of `COLUMNS` columns of B, over `part_k` columns of A. Consecutive blocks first process all
/// rows, then the next columns, and then the next part of K.
///
/// The result of a product with [`FP4`] weights is smaller by the factor [`Number4::FP4_SUM`].
///
/// For SwiGLU, as in [`matmul_skinny()`](crate::skinny::matmul_skinny()), a block has half as many columns of C.
///
/// # Safety
///
/// - The slices must contain the matrices that `sizes` describes, without batches; m and n must be at least 1, and k a
///   multiple of [`step()`]. Rows of A must start on 16-byte boundaries.
/// - `group` must be 32, 64, 128 or k or, for [`FP4`], 16 or 32. `codes` must have k codes per column of B and start on
///   a 16-byte boundary. `scales` must have k / `group` numbers of type T or, for [`FP4`], bytes per column, in
///   column-major order, and `zeros` as many. Both must start on 8-byte boundaries.
/// - `bias` must have one element per column of B. `c` must not overlap the other slices.
/// - The grid must be one-dimensional, with one block per tile and per part of K. `part_k` must be a multiple of
///   [`step()`]. The launch must have [`shared_bytes`] of dynamic shared memory.
/// - If there are several parts, there must be at most [`COUNTERS`] tiles, and `workspace` must have
///   [`workspace_bytes`](crate::mma::workspace_bytes()), with the contents that
///   [`matmul_mma()`](crate::mma::matmul_mma()) requires. Nothing else may use it during the launch.
#[kernel(
    types(T = bf16, f16),
    consts(ROWS = 32, 64, 128; COLUMNS = 128, 256; CODES = 0, 2, 3, 4),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 1),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_mixed<T: Number4, const ROWS: usize, const COLUMNS: usize, const CODES: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[u8],
    zeros: Option<&[T]>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    workspace: *mut u32,
    group: u32,
    part_k: u32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let tile = Tile::new::<ROWS, COLUMNS>(&sizes);
    let weights = Weights::<T, CODES>::new(codes, scales, zeros, sizes.k, group);
    let gemm = Gemm::<T, ROWS, COLUMNS, CODES> { a, weights, sizes, tile };
    grid::dependency_wait();
    // SAFETY: guaranteed by the caller.
    let sums = unsafe { gemm.product(part_k) };
    let output = Output { c: c.as_mut_ptr(), bias, finish, sizes, tile };
    // SAFETY: guaranteed by the caller; the copies of all threads are complete.
    unsafe { gemm.store(sums, output, workspace, part_k < sizes.k) }
}

/// Tile of a block.
#[derive(Clone, Copy)]
struct Tile {
    /// Index of the tile.
    number: u32,
    /// Number of tiles.
    count: u32,
    /// Index of the part of K.
    part: u32,
    first_row: u32,
    first_column: u32,
    /// Number of columns of C.
    width: u32,
}

impl Tile {
    #[inline(always)]
    fn new<const ROWS: usize, const COLUMNS: usize>(sizes: &SkinnySizes) -> Self {
        let width = if sizes.gate == 0 { COLUMNS as u32 } else { COLUMNS as u32 / 2 };
        let rows = sizes.m.div_ceil(ROWS as u32);
        let count = rows * sizes.n.div_ceil(width);
        let (part, number) = divide(thread::block_idx_x(), count);
        let (column, row) = divide(number, rows);
        let [first_row, first_column] = [row * ROWS as u32, column * width];
        Self { number, count, part, first_row, first_column, width }
    }

    /// Returns which column of B is column `local` of the tile. Columns beyond n repeat the last one.
    #[inline(always)]
    fn column(&self, local: u32, sizes: &SkinnySizes) -> u32 {
        let column = (self.first_column + (local & (self.width - 1))).min(sizes.n - 1);
        if local < self.width { column } else { column + sizes.gate }
    }
}

/// Quantized weights.
#[derive(Clone, Copy)]
struct Weights<'a, T, const CODES: usize> {
    codes: &'a [u8],
    scales: &'a [u8],
    zeros: Option<&'a [T]>,
    /// Number of bytes of codes per column.
    pitch: u64,
    /// Number of groups per column.
    groups: u32,
    /// Number of codes of a column that share a scale is 2 to the power of this number.
    shift: u32,
    element: PhantomData<T>,
}

/// Scales and zero points of the chunks of a column in a stage, as they are in memory.
#[derive(Clone, Copy)]
struct Scales {
    scales: [u32; 2],
    zeros: [u32; 2],
}

impl<'a, T: Number4, const CODES: usize> Weights<'a, T, CODES> {
    /// Number of bytes per scale.
    const SCALE: usize = if CODES == FP4 { 1 } else { size_of::<T>() };

    #[inline(always)]
    fn new(codes: &'a [u8], scales: &'a [u8], zeros: Option<&'a [T]>, k: u32, group: u32) -> Self {
        let shift = if group == k { 31 } else { group.trailing_zeros() };
        let groups = if group == k { 1 } else { k >> shift };
        let pitch = u64::from(k) * bits_of(CODES) as u64 / 8;
        Self { codes, scales, zeros, pitch, groups, shift, element: PhantomData }
    }

    /// Loads the scales and zero points of `chunks` chunks of a column from row `at` of B on.
    ///
    /// # Safety
    ///
    /// The column and the chunks must be inside B.
    #[inline(always)]
    unsafe fn scales(&self, column: u32, at: u32, chunks: u32) -> Scales {
        let first = u64::from(column) * u64::from(self.groups) + u64::from(at >> self.shift);
        let bytes = ((CHUNK_K as u32 * chunks) >> self.shift) * Self::SCALE as u32;
        let load = |from: *const u8| {
            let from = from.wrapping_add(first as usize * Self::SCALE).cast::<u32>();
            // SAFETY: guaranteed by the caller. The number of groups of a stage divides the index of the first one, so
            // the words are aligned.
            unsafe {
                match bytes {
                    8 => load_or::<u32, 2, true>(from, true, [0; 2]),
                    4 => [load_or::<u32, 1, true>(from, true, [0])[0], 0],
                    _ => [load_bits::<u16>(from.cast()), 0],
                }
            }
        };
        let zeros = self.zeros.map_or([both(T::narrowed(8.0)); 2], |zeros| load(zeros.as_ptr().cast()));
        Scales { scales: load(self.scales.as_ptr()), zeros }
    }

    /// Returns whether a group starts at row `at` of B.
    #[inline(always)]
    fn starts_group(&self, at: u32) -> bool {
        at & ((1 << self.shift) - 1) == 0
    }

    /// Returns the word of a chunk: its scale in the low bits, and for integers of 4 bits, the number that is added to
    /// its codes in the high bits. These are multiples of 1/64, so their scale is 64 times as large. For [`FP4`], the
    /// word contains the scales of both halves of the chunk.
    #[inline(always)]
    fn word(&self, scales: Scales, chunk: u32) -> u32 {
        let byte = ((CHUNK_K as u32 * chunk) >> self.shift) * Self::SCALE as u32;
        let [scale, zero] = [scales.scales, scales.zeros].map(|words| {
            let word = if byte < 4 { words[0] } else { words[1] };
            word >> (8 * (byte % 4)) & 0xffff
        });
        match CODES {
            FP4 => scales_of_fp4::<T>(scale, 1 << self.shift),
            INT4 => {
                let [scale, zero] = [(scale, 64.0), (zero, -1.0 / 64.0)]
                    .map(|(bits, factor)| T::narrowed(T::widened(bits) * factor));
                scale | zero << 16
            }
            _ => scale,
        }
    }

    /// Converts 8 codes with the scale and zero point of `word`, in the order of [`ordered`].
    #[inline(always)]
    fn numbers(codes: [u32; 2], word: u32) -> [u32; 4] {
        let minus_zero = both(0x8000);
        let scale = halves::<0>(word, word);
        if CODES == FP4 {
            return e2m1::<T>(codes[0], scale);
        }
        let numbers = if CODES == INT4 {
            let (offset, [shift, factor]) = (halves::<1>(word, word), T::SUBNORMAL);
            let [low, high] = [codes[0] << shift, codes[0] >> (8 - shift)];
            from_fn(|i| {
                let word = if i < 2 { low } else { high };
                if i % 2 == 0 {
                    T::multiply_add(word & both(0xf << shift), both(factor), offset)
                } else {
                    T::multiply_add(word & both(0xf0 << shift), both(T::SUBNORMAL_UPPER), offset)
                }
            })
        } else {
            let [[a, b], [c, d]] = codes.map(if CODES == FP8 { e4m3::<T> } else { signed::<T> });
            [a, b, c, d]
        };
        numbers.map(|pair| T::multiply_add(pair, scale, minus_zero))
    }
}

/// Sums of a thread: matrices of 16 rows, and matrices of 8 columns.
type Sums = [[[f32; 4]; WARP_N / 8]; WARP_M / 16];

/// Place of a warp in the tile.
#[derive(Clone, Copy)]
struct Place {
    /// First row and column.
    row: u32,
    column: u32,
    /// Index of the part of the stage's K.
    part: u32,
}

/// Arguments of the product.
struct Gemm<'a, T, const ROWS: usize, const COLUMNS: usize, const CODES: usize> {
    a: &'a [T],
    weights: Weights<'a, T, CODES>,
    sizes: SkinnySizes,
    tile: Tile,
}

impl<T: Number4, const ROWS: usize, const COLUMNS: usize, const CODES: usize>
    Gemm<'_, T, ROWS, COLUMNS, CODES>
{
    /// Number of bits per code.
    const BITS: usize = bits_of(CODES);
    /// Number of columns of A per stage.
    const STEP: usize = step(ROWS, COLUMNS);
    /// Number of chunks per stage.
    const CHUNKS: usize = Self::STEP / CHUNK_K;
    const STAGES: usize = stages(ROWS, COLUMNS, Self::BITS);
    /// Number of 16-byte slots of a row of A in a stage.
    const ROW_SLOTS: usize = Self::STEP / 8;
    /// Number of 16-byte slots of a column's chunk of codes.
    const CODE_SLOTS: usize = Self::BITS / 4;
    /// Number of matrices of 16 rows per warp.
    const MATRICES: usize = ROWS / warps_m(ROWS) / 16;
    /// Number of rows of a tile that are added at the same time.
    const STRIP: usize = 16 * warps_m(ROWS);

    /// Returns the place of the calling warp.
    #[inline(always)]
    fn place() -> Place {
        let warp = warpgroup::warp_index();
        let (rest, column) = (warp / (COLUMNS / WARP_N) as u32, warp % (COLUMNS / WARP_N) as u32);
        let (part, row) = (rest / warps_m(ROWS) as u32, rest % warps_m(ROWS) as u32);
        Place { row: row * WARP_M as u32, column: column * WARP_N as u32, part }
    }

    /// Computes the sums of the calling thread over part of K.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`matmul_mixed()`].
    #[inline(always)]
    unsafe fn product(&self, part_k: u32) -> Sums {
        let step = Self::STEP as u32;
        let first_k = self.tile.part * part_k;
        let k = self.sizes.k.min(first_k + part_k);
        let memory = shared::dynamic_aligned::<[u32; 4]>();
        let slots = const { stage_slots(ROWS, COLUMNS, bits_of(CODES)) };
        let thread = thread::thread_idx_x();
        let scaled_column = self.tile.column(thread % COLUMNS as u32, &self.sizes);
        let scales = |at: u32| {
            // SAFETY: the last stage is inside B.
            unsafe { self.weights.scales(scaled_column, at.min(self.sizes.k - step), Self::CHUNKS as u32) }
        };
        let copy = |at: u32, stage: u32, scales: Scales| {
            let place = memory.wrapping_add(stage as usize * slots);
            if at < k {
                // SAFETY: no thread uses the stage.
                unsafe { self.copy(at, place, scales) };
            }
            commit_copies();
        };
        let mut at = first_k;
        let mut stage = 0;
        while stage < Self::STAGES as u32 {
            copy(at, stage, scales(at));
            at += step;
            stage += 1;
        }
        let mut next_scales = scales(at);
        let place = Self::place();
        let of_warp = const { Self::CHUNKS / warps_k(ROWS, COLUMNS) } as u32;
        let first = place.part * of_warp;
        let mut sums: Sums = [[[0.0; 4]; WARP_N / 8]; WARP_M / 16];
        // Waits for the next stage. The copies of one stage fewer than there are have been committed after it.
        let wait = || {
            match const { stages(ROWS, COLUMNS, bits_of(CODES)) } {
                2 => wait_copies_leaving::<0>(),
                3 => wait_copies_leaving::<1>(),
                4 => wait_copies_leaving::<2>(),
                5 => wait_copies_leaving::<3>(),
                _ => wait_copies_leaving::<4>(),
            }
            thread::sync_threads();
        };
        wait();
        let mut read = 0;
        // SAFETY: a stage is read after all threads have waited for its copies, and overwritten after all threads have
        // loaded its last chunk.
        unsafe {
            let mut current = Self::load(memory, place, first);
            // `at` is the start of the stage that is copied next.
            while at < k + Self::STAGES as u32 * step {
                let from = memory.wrapping_add(read as usize * slots);
                if of_warp == 2 {
                    current.multiply::<T, ROWS, CODES, 0, 4>(&mut sums);
                    let next = Self::load(from, place, first + 1);
                    current.multiply::<T, ROWS, CODES, 4, 4>(&mut sums);
                    current = next;
                }
                current.multiply::<T, ROWS, CODES, 0, 4>(&mut sums);
                wait();
                let free = read;
                let following = if read + 1 == Self::STAGES as u32 { 0 } else { read + 1 };
                // After the last stage of K, its fragments are loaded again: with a short K, no copy has written the
                // following stage.
                read = if at + step < k + Self::STAGES as u32 * step { following } else { read };
                let next = Self::load(memory.wrapping_add(read as usize * slots), place, first);
                copy(at, free, next_scales);
                at += step;
                // Stages of the same group have the same scales.
                if self.weights.starts_group(at) {
                    next_scales = scales(at);
                }
                current.multiply::<T, ROWS, CODES, 4, 4>(&mut sums);
                current = next;
            }
        }
        wait_copies();
        thread::sync_threads();
        sums
    }

    /// Starts the copies of the calling thread of the stage that starts at `at`, and stores the scales of its column.
    ///
    /// # Safety
    ///
    /// The stage must be inside K, and nothing else may use its shared memory.
    #[inline(always)]
    unsafe fn copy(&self, at: u32, stage: *mut [u32; 4], scales: Scales) {
        let [of_a, of_codes, _] = const { slots(ROWS, COLUMNS, bits_of(CODES)) };
        let thread = thread::thread_idx_x();
        let to = Slot::new(stage);
        // Rows beyond m repeat the last one.
        let (slot, row) = (thread % Self::ROW_SLOTS as u32, thread / Self::ROW_SLOTS as u32);
        let from = self.a.as_ptr().wrapping_add((at + 8 * slot) as usize);
        let own = to.add(row * Self::ROW_SLOTS as u32 + (slot ^ key(row)));
        let mut i = 0;
        while i < of_a / THREADS as usize {
            let rows = const { THREADS / Self::ROW_SLOTS as u32 } * i as u32;
            let row = (self.tile.first_row + row + rows).min(self.sizes.m - 1);
            let from = from.wrapping_add((u64::from(row) * self.sizes.a_pitch) as usize);
            // SAFETY: guaranteed by the caller; the elements are inside A.
            unsafe { own.add(rows * Self::ROW_SLOTS as u32).copy(from.cast()) };
            i += 1;
        }
        // The lanes of a warp copy the chunks of some columns, each chunk by `CODE_SLOTS` lanes.
        let in_chunk = thread % Self::CODE_SLOTS as u32;
        let columns = const { THREADS / (Self::CHUNKS * Self::CODE_SLOTS) as u32 };
        let of_warp = columns / WARPS as u32;
        let (chunk, column) = divide(thread % 32 / Self::CODE_SLOTS as u32, of_warp);
        let column = column + of_warp * (thread / 32);
        let byte =
            at as usize * Self::BITS / 8 + 16 * (chunk as usize * Self::CODE_SLOTS + in_chunk as usize);
        let from = self.weights.codes.as_ptr().wrapping_add(byte);
        let own =
            to.add(of_a as u32 + (chunk * COLUMNS as u32 + column) * Self::CODE_SLOTS as u32 + in_chunk);
        let mut i = 0;
        while i < of_codes / THREADS as usize {
            let local = columns * i as u32;
            let column = self.tile.column(column + local, &self.sizes);
            let from = from.wrapping_add((u64::from(column) * self.weights.pitch) as usize);
            // SAFETY: as above; the codes are inside B.
            unsafe { own.add(local * Self::CODE_SLOTS as u32).copy(from.cast()) };
            i += 1;
        }
        if COLUMNS >= THREADS as usize || thread < COLUMNS as u32 {
            let to = stage.wrapping_add(of_a + of_codes).cast::<u32>().wrapping_add(thread as usize);
            each::<4>(|chunk| {
                if chunk < Self::CHUNKS {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        to.wrapping_add(chunk * COLUMNS).write(self.weights.word(scales, chunk as u32))
                    };
                }
            });
        }
    }

    /// Loads the operands of a warp's products of a chunk.
    ///
    /// # Safety
    ///
    /// The stage must be complete.
    #[inline(always)]
    unsafe fn load(stage: *const [u32; 4], place: Place, chunk: u32) -> Chunk {
        let [of_a, of_codes, _] = const { slots(ROWS, COLUMNS, bits_of(CODES)) };
        let lane = warp::lane_id();
        let (row, quarter) = (lane / 4, lane % 4);
        let rows = stage.wrapping_add(((place.row + row) * Self::ROW_SLOTS as u32) as usize);
        let rows = rows.wrapping_add(((4 * chunk + quarter) ^ key(row)) as usize);
        let column = (chunk * COLUMNS as u32 + place.column + row) as usize;
        let codes = stage.wrapping_add(of_a + column * Self::CODE_SLOTS).cast::<u32>();
        let codes = codes.wrapping_add(quarter as usize * Self::CODE_SLOTS);
        let scales = stage.wrapping_add(of_a + of_codes).cast::<u32>().wrapping_add(column);
        // SAFETY: guaranteed by the caller.
        unsafe {
            Chunk {
                a: from_fn(|matrix| {
                    from_fn(|half| {
                        if matrix >= Self::MATRICES {
                            return [0; 4];
                        }
                        let from = rows.wrapping_add((16 * matrix + 8 * half) * Self::ROW_SLOTS);
                        ordered::<CODES>(load(from.cast()))
                    })
                }),
                codes: from_fn(|i| {
                    let from = codes.wrapping_add(8 * i * 4 * Self::CODE_SLOTS);
                    if Self::BITS == 4 { [from.read(), 0] } else { load::<u32, 2>(from) }
                }),
                scales: from_fn(|i| {
                    let from = scales.wrapping_add(8 * i);
                    if CODES == FP4 {
                        from.cast::<u16>().wrapping_add(quarter as usize / 2).read().into()
                    } else {
                        from.read()
                    }
                }),
            }
        }
    }

    /// Calls a function for each four columns of a strip that belong to the thread: with the row in the strip, that in
    /// the tile, and the column.
    #[inline(always)]
    fn for_each(strip: u32, of: impl Fn(u32, u32, u32)) {
        let mut i = 4 * thread::thread_idx_x();
        while i < (Self::STRIP * COLUMNS) as u32 {
            let (row, column) = (i / COLUMNS as u32, i % COLUMNS as u32);
            of(row, row / 16 * WARP_M as u32 + 16 * strip + row % 16, column);
            i += 4 * THREADS;
        }
    }

    /// Adds the sums of the warps that share rows and columns, and stores the results, or with split-K, the partial
    /// sums. The block that arrives last then stores the results.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`matmul_mixed()`]. Nothing else may use the dynamic shared
    /// memory.
    #[inline(always)]
    unsafe fn store(&self, mut sums: Sums, output: Output<'_, T>, workspace: *mut u32, is_split: bool) {
        let pitch = COLUMNS + PADDING;
        let place = Self::place();
        let lane = warp::lane_id();
        let memory = shared::dynamic_aligned::<f32>();
        let own =
            (place.part as usize * Self::STRIP + (place.row as usize / WARP_M) * 16 + lane as usize / 4)
                * pitch;
        let own = memory.wrapping_add(own + place.column as usize + 2 * (lane as usize % 4));
        let tile = self.tile;
        let tile_sums = workspace.wrapping_add(COUNTERS).cast::<f32>();
        let part = |part: u32, row: u32, column: u32| {
            let tile = u64::from(part) * u64::from(tile.count) + u64::from(tile.number);
            let at = (tile * ROWS as u64 + u64::from(row)) * COLUMNS as u64 + u64::from(column);
            tile_sums.wrapping_add(at as usize)
        };
        let mut strip = 0;
        while strip < opaque(Self::MATRICES as u32) {
            each::<{ WARP_N / 8 }>(|of_columns| {
                let [a, b, c, d] = sums[0][of_columns];
                let to = own.wrapping_add(8 * of_columns);
                // SAFETY: each sum of a warp has its own place, and the sums of the preceding strip have been read.
                unsafe {
                    store(to, [a, b]);
                    store(to.wrapping_add(8 * pitch), [c, d]);
                }
            });
            // With an index that is not constant, the sums would be in local memory.
            let [first, second, third, fourth] = sums;
            sums = if Self::MATRICES == 2 {
                [second, first, third, fourth]
            } else {
                [second, third, fourth, first]
            };
            thread::sync_threads();
            Self::for_each(strip, |in_strip, row, column| {
                let four = |column: u32| {
                    let mut all = [0.0f32; 4];
                    let mut part = 0;
                    while part < const { warps_k(ROWS, COLUMNS) } {
                        let from = (part * Self::STRIP + in_strip as usize) * pitch + column as usize;
                        // SAFETY: the sums were written before the barrier.
                        let sums = unsafe { load::<f32, 4>(memory.wrapping_add(from)) };
                        all = from_fn(|i| all[i] + sums[i]);
                        part += 1;
                    }
                    all
                };
                // SAFETY: guaranteed by the caller; each thread has its own elements.
                unsafe {
                    if is_split {
                        store(part(tile.part, row, column), four(column));
                    } else {
                        output.store(row, column, four);
                    }
                }
            });
            thread::sync_threads();
            strip += 1;
        }
        // The next launch starts while this one adds its parts.
        grid::launch_dependents();
        if is_split {
            let (parts, _) = divide(thread::grid_dim_x(), tile.count);
            // SAFETY: this is the counter of the tile, and all threads of all its blocks call it.
            if !unsafe { is_last(|| workspace.wrapping_add(tile.number as usize), parts) } {
                return;
            }
            strip = 0;
            while strip < opaque(Self::MATRICES as u32) {
                Self::for_each(strip, |_, row, column| {
                    let four = |column: u32| {
                        let mut all = [0.0f32; 4];
                        let mut i = 0;
                        while i < parts {
                            // SAFETY: the blocks have written the sums.
                            let sums = unsafe { load::<f32, 4>(part(i, row, column)) };
                            all = from_fn(|i| all[i] + sums[i]);
                            i += 1;
                        }
                        all
                    };
                    // SAFETY: as above.
                    unsafe { output.store(row, column, four) };
                });
                strip += 1;
            }
        }
    }
}

/// Operands of a warp's products of a chunk.
#[derive(Clone, Copy)]
struct Chunk {
    /// Elements of A in the order of [`ordered`], for matrices of 16 rows: those of rows 0 to 7, and of rows 8 to 15.
    a: [[[u32; 4]; 2]; WARP_M / 16],
    /// Codes and scales, for matrices of 8 columns.
    codes: [[u32; 2]; WARP_N / 8],
    scales: [u32; WARP_N / 8],
}

impl Chunk {
    /// Adds the products with `COUNT` matrices of 8 columns from `FIRST` on.
    ///
    /// # Safety
    ///
    /// All lanes of the warp must call this function.
    #[inline(always)]
    unsafe fn multiply<
        T: Number4,
        const ROWS: usize,
        const CODES: usize,
        const FIRST: usize,
        const COUNT: usize,
    >(
        &self,
        sums: &mut Sums,
    ) {
        let matrices = const { ROWS / warps_m(ROWS) / 16 };
        each::<COUNT>(|i| {
            let of_columns = FIRST + i;
            let b = Weights::<T, CODES>::numbers(self.codes[of_columns], self.scales[of_columns]);
            each::<{ 2 * WARP_M / 16 }>(|i| {
                let (matrix, pair) = (i % (WARP_M / 16), i / (WARP_M / 16) * 2);
                if matrix < matrices {
                    let [low, high] = self.a[matrix];
                    let of_a = [low[pair], high[pair], low[pair + 1], high[pair + 1]];
                    let sum = &mut sums[matrix][of_columns];
                    // SAFETY: guaranteed by the caller.
                    *sum = unsafe { mma::<T>(*sum, of_a, [b[pair], b[pair + 1]]) };
                }
            });
        });
    }
}

/// Returns the key by which the slots of a row of A are permuted, so that lanes of adjacent rows access different
/// banks.
#[inline(always)]
fn key(row: u32) -> u32 {
    4 * (row % 2)
}

/// Results of a tile.
#[derive(Clone, Copy)]
struct Output<'a, T> {
    c: *mut T,
    bias: Option<&'a [T]>,
    finish: EpilogueParams,
    sizes: SkinnySizes,
    tile: Tile,
}

impl<T: Number4> Output<'_, T> {
    /// Applies the epilogue to the sums of four columns of a row of the tile, which `four` returns, and stores the
    /// results. Rows and columns beyond those of C are ignored.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`matmul_mixed()`], and no other thread may access the elements.
    #[inline(always)]
    unsafe fn store(&self, row: u32, column: u32, four: impl Fn(u32) -> [f32; 4]) {
        let Self { c, bias, finish, ref sizes, tile } = *self;
        let (to_row, to_column) = (tile.first_row + row, tile.first_column + column);
        if to_row >= sizes.m || to_column >= sizes.n || column >= tile.width {
            return;
        }
        let finished = |local: u32| {
            let sums = four(local);
            from_fn(|i| {
                let at = tile.column(local + i as u32, sizes) as usize;
                // SAFETY: the bias has one element per column of B.
                let bias = bias.map(|bias| unsafe { *bias.get_unchecked(at) }.cast::<f32>());
                finish.of(sums[i], bias)
            })
        };
        let mut values: [f32; 4] = finished(column);
        if sizes.gate != 0 {
            let up: [f32; 4] = finished(column + tile.width);
            values = from_fn(|i| silu(values[i]) * up[i]);
        }
        let count = (sizes.n - to_column).min(4) as usize;
        let first = (u64::from(to_row) * sizes.c_pitch + u64::from(to_column)) as usize;
        if finish.accumulates != 0 {
            each::<4>(|i| {
                if i < count {
                    // SAFETY: the element is inside C.
                    values[i] += unsafe { c.wrapping_add(first + i).read() }.cast::<f32>();
                }
            });
        }
        // SAFETY: the elements are inside C, and no other thread accesses them.
        unsafe { store_run::<T, 4>(c, first, count, values.map(|value| value.cast::<T>())) };
    }
}
