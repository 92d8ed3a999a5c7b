//! Skinny GEMM, `C = A * B` with M ≤ 16, as in token-by-token decoding. The kernel is bound by the memory traffic of B.
//! Each column of B is contiguous in memory, stored as 16-bit elements or as packed int4 weights.
//!
//! Each lane prefetches its own 16-byte chunks of columns of B to shared memory with `cp.async`, several K-steps ahead
//! (multistage), and multiplies them with `mma.m16n8k16`. The operands are swapped, so B is the operand with 16 rows
//! and A the operand with 8 columns. Each warp of a block accumulates an interleaved part of K, and the warps' partial
//! sums are added in warp order. Elements of A are loaded to registers one step ahead.
//!
//! With one row of A and codes of 4 bits, the number of instructions limits the speed. Each block then stores the row
//! in shared memory once, after the RMS norm, in the order of the operands, and with the sums of its groups.
//!
//! Codes of 4 bits become numbers by inserting them into the bits of a power of two. This offset and the zero points
//! are not subtracted from each number: the sums of A, which are products with a matrix of -1, are multiplied by them,
//! per group. Codes of 8 bits are two numbers, whose offsets cancel.
//!
//! The order of elements along K in an instruction does not matter as long as both operands agree. Each lane therefore
//! uses only data that it copied itself, and no barrier is needed between copies and `mma`. The exception is quantized
//! weights whose groups are shorter than a step: all elements of an instruction must have the same scale, so the lanes
//! of a quad share their copies.

mod columns;
mod fp4;

use core::array::from_fn;
use core::mem::MaybeUninit;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::shared::{self, commit_copies, wait_copies_leaving};
use gpu_std::tensor::mma::mma;
use gpu_std::vectorized::{each, load, load_or};

use self::columns::{Codes, Columns, Plain, eight};
pub(crate) use self::columns::{Slot, load_bits, ordered};
use self::fp4::Fp4;
use crate::epilogue::{EpilogueParams, silu};
use crate::number4::{Number4, both};
use crate::tiles::divide;

/// Number of rows of A per instruction.
pub const GROUP_M: u32 = 8;
/// Maximum number of rows of A per block.
pub const MAX_M: u32 = 2 * GROUP_M;
/// Number of columns of B per instruction.
pub const TILE_N: u32 = 16;
/// Number of rows of quantized weights per step, which is the largest group size except for one group per column.
pub const GROUP_K: u32 = 128;
/// Maximum number of threads per block.
const THREADS: u32 = 32 * MAX_WARPS as u32;
/// Maximum number of warps per block.
pub const MAX_WARPS: usize = 8;
/// Number of pipeline stages. One stage is multiplied while the others are in flight.
const STAGES: usize = 3;
/// Number of threads per warp.
const LANES: usize = 32;
/// Maximum number of chunks per step.
const MAX_CHUNKS: usize = 4;
/// Number of columns of `A` per chunk. Each of the four lanes of a quad loads 16 bytes of A.
const CHUNK_K: u32 = 32;

/// Codes of 4 bits without a sign, two per byte, the first in the lower four bits. Their zero point is 8.
pub const INT4: usize = 0;
/// Like [`INT4`], with a zero point per group.
pub const INT4_ZEROS: usize = 1;
/// Signed codes of 8 bits.
pub const INT8: usize = 2;
/// E4M3 numbers.
pub const FP8: usize = 3;
/// E2M1 numbers, two per byte, the first in the lower four bits. Groups of 16 have E4M3 scales (NVFP4), and groups of
/// 32 have E8M0 scales (MXFP4).
pub const FP4: usize = 4;
/// K of [`FP4`] weights must be a multiple of this number.
pub const FP4_K: u32 = 64;

/// Returns the number of bits per code.
pub const fn bits_of(codes: usize) -> usize {
    if codes == INT8 || codes == FP8 { 8 } else { 4 }
}

/// Returns the dynamic shared memory per block, in bytes, with `warps` warps and `tiles` column tiles, for 16-bit
/// elements or packed int4 weights.
///
/// At the end of the kernel, the sums of the warps are stored in the same memory.
pub const fn shared_bytes(warps: u32, tiles: u32, is_4bit: bool) -> u32 {
    let loads = if is_4bit { 1 } else { 2 };
    16 * 32 * warps * 2 * tiles * loads * STAGES as u32
}

/// Returns the additional shared memory of the kernels for one row, in bytes: the row of A with its sums.
pub const fn row_bytes(k: u32) -> u32 {
    let steps = k.div_ceil(GROUP_K);
    2 * GROUP_K * steps + 16 * steps
}

/// Returns the minimum number of resident blocks per SM, which limits the registers per thread. The minimum exceeds 1
/// only for instances that do not spill with this limit, except for a few bytes on compute capability 10.0
/// and 12.x.
const fn resident_quantized(groups: usize, tiles: usize, codes: usize, fine: usize) -> u32 {
    match (groups, tiles, codes, fine) {
        (2, 2, _, _) | (1, 2, 1, _) | (1, 2, 2, 1) | (2, 1, _, 1) => 1,
        _ => 2,
    }
}

/// Like [`resident_quantized`], for the kernels for one row, which do not spill with these limits either.
const fn resident_row(tiles: usize) -> u32 {
    if tiles == 1 { 3 } else { 2 }
}

/// Problem size; strides in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct SkinnySizes {
    /// Number of rows of A and C.
    pub m: u32,
    /// Number of columns of C. B has the same number, or twice as many for SwiGLU.
    pub n: u32,
    /// Number of columns of A, which is also the number of rows of B.
    pub k: u32,
    /// For SwiGLU, n: the distance between the columns of the gate and those of the factor. Otherwise 0.
    pub gate: u32,
    /// 1 if the kernel may read B before the preceding launches have completed.
    pub reads_early: u32,
    /// Row stride of A.
    pub a_pitch: u64,
    /// Column stride of B; packed int4 weights have no gaps.
    pub b_pitch: u64,
    /// Row stride of C.
    pub c_pitch: u64,
    /// Stride between A matrices, or 0 to broadcast A.
    pub a_plane: u64,
    /// Stride between B matrices, or 0 to broadcast B.
    pub b_plane: u64,
    /// Stride between C matrices.
    pub c_plane: u64,
}

/// Skinny GEMM, `c = activation(scale * a * b + bias)`, with 16-bit elements. Each block multiplies `8 * GROUPS` rows
/// of A by `16 * TILES` columns of B. Consecutive blocks first process all columns, then the next rows, and then the
/// next matrix.
///
/// With `norm`, the kernel multiplies A by the weight `norm`, and the sums of each row by
/// `1 / sqrt(mean(a * a) + epsilon)`, so the result is that of the RMS norm of A.
///
/// For SwiGLU, `c = silu(scale * a * gate + bias) * (scale * a * up + bias)`, where the first n columns of B are the
/// gate and the other n columns are `up`. Each block computes 16 columns of C.
///
/// # Safety
///
/// - The slices must contain the matrices that `sizes` describes; m and n must be at least 1. Rows of A and columns of
///   B must start on 16-byte boundaries.
/// - If `reads_early` is 1, no launch that may be running writes B.
/// - `bias` has as many elements as B has columns. `norm` has k elements and starts on a 16-byte boundary. `c` must
///   overlap neither `a` nor `b`. SwiGLU requires that `TILES` is 2.
/// - The grid must be one-dimensional and cover all columns, rows and matrices. Each block must have 1 to [`MAX_WARPS`]
///   whole warps and [`shared_bytes`] of dynamic shared memory.
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    // Without this bound, ptxas would spill registers so that two blocks fit on an SM.
    launch_bounds(THREADS, 1),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_skinny<T: Number4, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Option<&[T]>,
    epsilon: f32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let place = Place::new::<GROUPS, TILES>(&sizes);
    let from = b.as_ptr().wrapping_add((place.plane * sizes.b_plane) as usize);
    let b = Plain { from, pitch: sizes.b_pitch, k: sizes.k };
    let norm = Norm { weight: norm, epsilon };
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, _, GROUPS, TILES, false>(a, b, &mut c, bias, norm, sizes, place, finish) }
}

/// Like [`matmul_skinny()`], but with packed quantized weights (W4A16 and W8A16): B is `scales * (codes - zeros)`.
/// There is one scale and one zero point per `group` codes of a column. `CODES` is [`INT4`], [`INT4_ZEROS`], [`INT8`] or
/// [`FP8`]; only [`INT4_ZEROS`] has `zeros`. `FINE` is 1 if the groups are shorter than [`GROUP_K`].
///
/// # Safety
///
/// The caller must uphold the safety contract of [`matmul_skinny()`]; k must be a multiple of [`GROUP_K`]. `group` must
/// be [`GROUP_K`] or k or, if `FINE` is 1, 32 or 64. `codes` must have n * k codes and start on a 16-byte boundary.
/// `scales` and `zeros` must have n * k / `group` elements, in column-major order, and start on
/// 8-byte boundaries.
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2; CODES = 0, 1, 2, 3; FINE = 0, 1),
    arch = 80,
    launch_bounds(THREADS, resident_quantized(GROUPS, TILES, CODES, FINE)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_skinny_quantized<
    T: Number4,
    const GROUPS: usize,
    const TILES: usize,
    const CODES: usize,
    const FINE: usize,
>(
    a: &[T],
    codes: &[u8],
    scales: &[T],
    zeros: Option<&[T]>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Option<&[T]>,
    epsilon: f32,
    group: u32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let place = Place::new::<GROUPS, TILES>(&sizes);
    let norm = Norm { weight: norm, epsilon };
    let b = Codes::<T, CODES, FINE>::new(codes, scales, zeros, sizes.k, group);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, _, GROUPS, TILES, false>(a, b, &mut c, bias, norm, sizes, place, finish) }
}

/// Like [`matmul_skinny()`], but with weights of the kind [`FP4`]. Each weight is multiplied by its scale, rounded to
/// the type of A, before the product. The result of the product is smaller by the factor [`Number4::FP4_SUM`]. `group`
/// is 16 or 32.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`matmul_skinny()`]; k must be a multiple of [`FP4_K`]. `codes` must
/// have n * k codes and start on a 16-byte boundary. `scales` must have n * k / `group` bytes, in column-major order,
/// and start on a 2-byte boundary.
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    launch_bounds(THREADS, resident_quantized(GROUPS, TILES, FP4, 0)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_skinny_fp4<T: Number4, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[u8],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Option<&[T]>,
    epsilon: f32,
    group: u32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let place = Place::new::<GROUPS, TILES>(&sizes);
    let norm = Norm { weight: norm, epsilon };
    let b = Fp4::new(codes, scales, sizes.k, group);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, _, GROUPS, TILES, false>(a, b, &mut c, bias, norm, sizes, place, finish) }
}

/// Like [`matmul_skinny_quantized()`] with one row of A and `CODES` of 4 bits. Each block stores the row in shared
/// memory, after the RMS norm, in the order in which the instructions use it, and with its sums.
///
/// # Safety
///
/// As for [`matmul_skinny_quantized()`], with m = 1 and [`row_bytes`] more of dynamic shared memory.
#[kernel(
    types(T = bf16, f16),
    consts(TILES = 1, 2; CODES = 0, 1; FINE = 0, 1),
    arch = 80,
    launch_bounds(THREADS, resident_row(TILES)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_row_quantized<T: Number4, const TILES: usize, const CODES: usize, const FINE: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[T],
    zeros: Option<&[T]>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Option<&[T]>,
    epsilon: f32,
    group: u32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let place = Place::new::<1, TILES>(&sizes);
    let norm = Norm { weight: norm, epsilon };
    let b = Codes::<T, CODES, FINE>::new(codes, scales, zeros, sizes.k, group);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, _, 1, TILES, true>(a, b, &mut c, bias, norm, sizes, place, finish) }
}

/// Like [`matmul_skinny_fp4()`] with one row of A, as [`matmul_row_quantized()`] multiplies it.
///
/// # Safety
///
/// As for [`matmul_skinny_fp4()`], with m = 1 and [`row_bytes`] more of dynamic shared memory.
#[kernel(
    types(T = bf16, f16),
    consts(TILES = 1, 2),
    arch = 80,
    launch_bounds(THREADS, resident_row(TILES)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn matmul_row_fp4<T: Number4, const TILES: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[u8],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Option<&[T]>,
    epsilon: f32,
    group: u32,
    sizes: SkinnySizes,
    finish: EpilogueParams,
) {
    let place = Place::new::<1, TILES>(&sizes);
    let norm = Norm { weight: norm, epsilon };
    let b = Fp4::new(codes, scales, sizes.k, group);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, _, 1, TILES, true>(a, b, &mut c, bias, norm, sizes, place, finish) }
}

/// Tile of a block.
#[derive(Clone, Copy)]
struct Place {
    plane: u64,
    first_row: u32,
    first_column: u32,
}

impl Place {
    #[inline(always)]
    fn new<const GROUPS: usize, const TILES: usize>(sizes: &SkinnySizes) -> Self {
        let (height, width) = (GROUP_M * GROUPS as u32, width::<TILES>(sizes));
        let (number, column) = divide(thread::block_idx_x(), sizes.n.div_ceil(width));
        let (plane, row) = divide(number, sizes.m.div_ceil(height));
        Self { plane: plane.into(), first_row: row * height, first_column: column * width }
    }
}

/// Returns the number of columns of C per block, a power of two.
#[inline(always)]
fn width<const TILES: usize>(sizes: &SkinnySizes) -> u32 {
    if TILES == 2 && sizes.gate == 0 { 2 * TILE_N } else { TILE_N }
}

/// RMS norm of the rows of A.
#[derive(Clone, Copy)]
struct Norm<'a, T> {
    /// Factor of each column of A. Without it, the rows are not normalized.
    weight: Option<&'a [T]>,
    /// Number that is added to the mean of the squares.
    epsilon: f32,
}

/// Computes the tile of a block. If `IS_ROW`, A has one row, which the block stores in shared memory.
///
/// # Safety
///
/// The caller must uphold the safety contracts of the kernels.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "they are those of the kernels")]
unsafe fn product<T: Number4, B: Columns<T>, const GROUPS: usize, const TILES: usize, const IS_ROW: bool>(
    a: &[T],
    b: B,
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Norm<'_, T>,
    sizes: SkinnySizes,
    place: Place,
    finish: EpilogueParams,
) {
    /// Length of a row of sums in shared memory, twice [`TILE_N`]. Each warp has one row of sums for each row of A.
    const ROW: usize = 2 * TILE_N as usize;
    let SkinnySizes { m, n, k, gate, reads_early, .. } = sizes;
    let Place { plane, first_row, first_column } = place;
    if reads_early == 0 {
        grid::dependency_wait();
    }
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / 32);
    let warps = thread::block_dim_x() / 32;
    let (row, quarter) = (lane / 4, lane % 4);

    // Out-of-bounds columns repeat the last column and are not stored.
    let width = width::<TILES>(&sizes);
    let columns: [[B::Column; 2]; TILES] = from_fn(|tile| {
        let tile = tile as u32;
        let first = first_column + ((TILE_N * tile) & (width - 1));
        from_fn(|half| b.column((first + 8 * half as u32 + row).min(n - 1) + tile * gate))
    });
    let rows: [*const T; GROUPS] = from_fn(|group| {
        let row = (first_row + GROUP_M * group as u32 + row).min(m - 1);
        a.as_ptr().wrapping_add((plane * sizes.a_plane + u64::from(row) * sizes.a_pitch) as usize)
    });
    let step = CHUNK_K * B::CHUNKS as u32;
    let hop = warps * step;
    // Each warp has its own stages.
    let memory = shared::dynamic_aligned::<[u32; 4]>();
    let of_warp = const { STAGES * TILES * 2 * B::LOADS * LANES };
    let places = memory.wrapping_add(warp as usize * of_warp);
    let stored_row = Row::new::<T, B>(memory.wrapping_add(warps as usize * of_warp), k);
    let place = |stage: u32, tile: usize, half: usize| {
        let of_stage = places.wrapping_add((stage * (TILES * 2 * B::LOADS * LANES) as u32) as usize);
        of_stage.wrapping_add((tile * 2 + half) * B::LOADS * LANES)
    };
    let own = Slot::new(places.wrapping_add(lane as usize));
    // A single branch covers all copies of a step.
    let copy = |at: u32, stage: u32| {
        let to = own.add(stage * (TILES * 2 * B::LOADS * LANES) as u32);
        let copy = |is_inside: bool| {
            let mut i = 0;
            while i < 2 * TILES {
                let to = to.add((i * B::LOADS * LANES) as u32);
                // SAFETY: the columns are inside B. The slots belong to this thread, and the lanes that read them no
                // longer need their previous contents.
                unsafe { b.copy(columns[i / 2][i % 2], at, [row, quarter], is_inside, to) };
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
    // If all steps are whole, the loads of a step that does not exist are those of the last step.
    let existing = |at: u32| if B::IS_WHOLE { at.min(k - step) } else { at };
    // SAFETY: these are rows of A.
    let of_a = |at: u32| unsafe { chunks::<T, B, GROUPS>(rows, existing(at), quarter, k) };
    let beside = |at: u32| {
        // SAFETY: the columns are inside B.
        columns.map(|halves| halves.map(|column| unsafe { b.beside(column, existing(at)) }))
    };

    let prefetch = |at: u32| columns.map(|halves| halves.map(|column| b.prefetch(column, existing(at))));
    // Four values, so that each has its own register and the loop does not copy them. If sums of A are used, k is a
    // multiple of the step.
    let minus_ones: [u32; 4] = from_fn(|i| both(T::MINUS_CODE) | (k % step) << i);
    let mut sums = [[[0.0f32; 4]; TILES]; GROUPS];
    // The sum of the lanes of a quad is that of the row.
    let mut squares = [0.0f32; GROUPS];
    let mut at = warp * step;
    let has_steps = at < k;
    // Scales come from memory. Those of steps with one scale per column are loaded two steps before they are used.
    // Steps with several scales would need too many registers; their scales are prefetched to the L2 cache.
    let mut scales = MaybeUninit::uninit();
    if has_steps {
        scales.write([beside(at), beside(at + hop)]);
        let mut stage = 0;
        while stage < STAGES as u32 - 1 {
            if B::IS_FINE {
                prefetch(at + stage * hop);
            }
            copy(at + stage * hop, stage);
            stage += 1;
        }
    }
    grid::dependency_wait();
    if !has_steps {
        grid::launch_dependents();
    }
    let mut square_of_row = 0.0;
    if IS_ROW {
        // SAFETY: the row has k elements, and all threads execute this call.
        square_of_row = unsafe { stored_row.fill::<T, B>(rows[0], norm.weight, k) };
        thread::sync_threads();
    }
    let mut numbers = if IS_ROW || !has_steps { [[[0; 4]; GROUPS]; MAX_CHUNKS] } else { of_a(at) };
    let mut stage = 0;
    while at < k {
        let weight = norm.weight.filter(|_| !IS_ROW);
        // SAFETY: the weight has k elements.
        let weights = weight.map(|weight| unsafe { chunks::<T, B, 1>([weight.as_ptr()], at, quarter, k) });
        // This copy reuses the stage of the preceding step, whose products have been computed.
        if B::SHARES {
            warp::sync_warp(!0);
        }
        // SAFETY: these scales have been loaded, because a step exists.
        let [first, second] = unsafe { scales.assume_init() };
        let groups = if B::IS_FINE { beside(at) } else { first };
        // For one row, the registers of the second scales are worth more than their earlier load.
        let second = if IS_ROW && !B::IS_FINE { beside(at + hop) } else { second };
        let next = at + (STAGES as u32 - 1) * hop;
        if next + hop >= k {
            // The next launch starts its copies of B when this one has issued its last ones.
            grid::launch_dependents();
        }
        if B::IS_FINE {
            prefetch(next);
        }
        copy(next, if stage == 0 { STAGES as u32 - 1 } else { stage - 1 });
        wait_copies_leaving::<{ STAGES - 1 }>();
        if B::SHARES {
            warp::sync_warp(!0);
        }
        if let Some(weights) = weights {
            each::<GROUPS>(|group| {
                // The products of the rows with each other. Those of a row with itself are on the diagonal.
                let mut products = [0.0; 4];
                each::<MAX_CHUNKS>(|chunk| {
                    if chunk < B::CHUNKS {
                        let of_a = &mut numbers[chunk][group];
                        let [x, y, z, w] = *of_a;
                        // SAFETY: the whole warp executes this call, because `at` is the same in all lanes.
                        products = unsafe {
                            mma::<T>(mma::<T>(products, [x, x, y, y], [x, y]), [z, z, w, w], [z, w])
                        };
                        each::<4>(|i| of_a[i] = T::multiply_add(of_a[i], weights[chunk][0][i], 0x8000_8000));
                    }
                });
                // The lane has the products of its row with two others, of which one may be the row itself.
                if quarter == row / 2 {
                    squares[group] += if row % 2 == 0 { products[0] } else { products[1] };
                }
            });
        }
        let loaded: [[B::Loaded; 2]; TILES] = from_fn(|tile| {
            from_fn(|half| {
                // SAFETY: the copies of the stage are complete.
                unsafe { b.loaded(place(stage, tile, half), &groups[tile][half], [row, quarter]) }
            })
        });
        let mut products = [[[0.0f32; 4]; TILES]; GROUPS];
        let mut minus_a = [[0.0f32; 4]; GROUPS];
        let mut chunk = 0;
        while chunk < B::CHUNKS {
            let of_a = if IS_ROW {
                // SAFETY: the row has been stored.
                [unsafe { stored_row.elements(at, chunk, quarter) }; GROUPS]
            } else {
                numbers[chunk].map(B::ordered)
            };
            if B::USES_SUMS && !IS_ROW {
                each::<GROUPS>(|group| {
                    let [x, y, z, w] = of_a[group];
                    // SAFETY: the whole warp executes this call, because `at` is the same in all lanes.
                    minus_a[group] =
                        unsafe { mma::<T>(mma::<T>(minus_a[group], minus_ones, [x, y]), minus_ones, [z, w]) };
                });
            }
            let mut tile = 0;
            while tile < TILES {
                let mut part = 0;
                while part < B::PARTS {
                    let [low, high] = loaded[tile].each_ref().map(|loaded| {
                        // SAFETY: the elements belong to the current step.
                        unsafe { B::numbers(loaded, chunk, part) }
                    });
                    let mut i = 0;
                    while i < 2 * GROUPS {
                        let (group, pair) = (i / 2, i % 2 * 2);
                        let of_b = [low[pair], high[pair], low[pair + 1], high[pair + 1]];
                        // SAFETY: as above.
                        products[group][tile] = unsafe {
                            mma::<T>(products[group][tile], of_b, [of_a[group][pair], of_a[group][pair + 1]])
                        };
                        i += 1;
                    }
                    part += 1;
                }
                tile += 1;
            }
            if B::IS_FINE || chunk + 1 == B::CHUNKS {
                if B::USES_SUMS && IS_ROW {
                    // SAFETY: the sums have been stored.
                    minus_a = [[unsafe { stored_row.minus_sum::<T, B>(at, chunk) }; 4]; GROUPS];
                }
                let mut i = 0;
                while i < GROUPS * TILES {
                    let (group, tile) = (i / TILES, i % TILES);
                    sums[group][tile] = from_fn(|i| {
                        // Odd numbers belong to odd rows of A.
                        if IS_ROW && i % 2 == 1 {
                            return 0.0;
                        }
                        let (sum, product) = (sums[group][tile][i], products[group][tile][i]);
                        b.add(&groups[tile][i / 2], chunk, sum, product, minus_a[group][i])
                    });
                    products[group][tile] = [0.0; 4];
                    i += 1;
                }
                minus_a = [[0.0; 4]; GROUPS];
            }
            chunk += 1;
        }
        at += hop;
        // These loads complete while the warp waits for the next copies.
        if !IS_ROW {
            numbers = of_a(at);
        }
        scales.write([second, if IS_ROW { second } else { beside(at + hop) }]);
        stage = if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
    }
    // The sums reuse the memory of the copied elements.
    thread::sync_threads();
    let stage = shared::dynamic_aligned::<f32>();
    let squares_at = warps as usize * MAX_M as usize * ROW;
    let mut group = 0;
    while group < GROUPS {
        let mut tile = 0;
        while tile < TILES {
            let mut i = 0;
            while i < 4 {
                let of_row = warp as usize * MAX_M as usize
                    + GROUP_M as usize * group
                    + (2 * quarter) as usize
                    + i % 2;
                let column = TILE_N as usize * tile + row as usize + 8 * (i / 2);
                // SAFETY: each sum of a warp has its own slot.
                unsafe { stage.add(of_row * ROW + column).write(sums[group][tile][i]) };
                i += 1;
            }
            tile += 1;
        }
        let mut square = if IS_ROW { square_of_row } else { squares[group] };
        let mut distance = 1;
        while distance < if IS_ROW { 32 } else { 4 } {
            square += warp::shuffle_xor(!0, square, distance);
            distance *= 2;
        }
        let of_row = warp as usize * MAX_M as usize + GROUP_M as usize * group + row as usize;
        if quarter == 0 {
            // SAFETY: each row of a warp has its own slot, after the sums.
            unsafe { stage.add(squares_at + of_row).write(square) };
        }
        group += 1;
    }
    thread::sync_threads();

    let mut i = thread::thread_idx_x();
    while i < width * GROUP_M * GROUPS as u32 {
        let (row, column) = (i >> width.trailing_zeros(), i & (width - 1));
        // Adds one value per warp: that of the first warp is at `first`, and the next ones follow at distance `pitch`.
        let sum = |first: usize, pitch: usize| {
            let mut sum = 0.0;
            each::<MAX_WARPS>(|warp| {
                if (warp as u32) < warps {
                    // SAFETY: the value was written before the barrier.
                    sum += unsafe { stage.add(first + warp * pitch).read() };
                }
            });
            sum
        };
        let (to_row, to_column) = (first_row + row, first_column + column);
        let mut factor = 1.0;
        if norm.weight.is_some() {
            let square = sum(squares_at + row as usize, MAX_M as usize);
            factor = Math::rsqrt(square / k.max(1) as f32 + norm.epsilon);
        }
        if to_row < m && to_column < n {
            let result = |tile: u32| {
                let at = (to_column + tile * gate) as usize;
                // SAFETY: the bias has one element per column of B.
                let bias = bias.map(|bias| unsafe { *bias.get_unchecked(at) }.cast::<f32>());
                let sum = sum(row as usize * ROW + (column + TILE_N * tile) as usize, MAX_M as usize * ROW);
                finish.of(factor * sum, bias)
            };
            let to = plane * sizes.c_plane + u64::from(to_row) * sizes.c_pitch + u64::from(to_column);
            let to = c.as_mut_ptr().wrapping_add(to as usize);
            let mut value = result(0);
            if TILES == 2 && gate != 0 {
                value = silu(value) * result(1);
            }
            // SAFETY: the element is inside C, and no other thread accesses it.
            unsafe {
                if finish.accumulates != 0 {
                    value += to.read().cast::<f32>();
                }
                to.write(value.cast::<T>());
            }
        }
        i += thread::block_dim_x();
    }
}

/// A row of A in shared memory, in the order in which the instructions use it, and its sums.
#[derive(Clone, Copy)]
struct Row {
    units: *mut [u32; 4],
    /// Sums of the elements that share a scale in a step, times [`Number4::MINUS_CODE`].
    sums: *mut f32,
}

impl Row {
    #[inline(always)]
    fn new<T, B: Columns<T>>(memory: *mut [u32; 4], k: u32) -> Self {
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
    unsafe fn fill<T: Number4, B: Columns<T>>(self, row: *const T, weight: Option<&[T]>, k: u32) -> f32 {
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
    unsafe fn elements(self, at: u32, chunk: usize, quarter: u32) -> [u32; 4] {
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
    unsafe fn minus_sum<T, B: Columns<T>>(self, at: u32, chunk: usize) -> f32 {
        let of_chunk = if B::IS_FINE { chunk } else { 0 };
        let from = self.sums.wrapping_add((at / (8 * Self::units_per_sum::<T, B>())) as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { from.add(of_chunk).read() }
    }
}

/// Loads the lane's elements of some rows for the step that starts at `at`. Elements beyond k are zero.
///
/// # Safety
///
/// The rows must have k elements and start on 16-byte boundaries. If [`Columns::IS_WHOLE`], the step must be inside K.
#[inline(always)]
unsafe fn chunks<T: Number4, B: Columns<T>, const N: usize>(
    rows: [*const T; N],
    at: u32,
    quarter: u32,
    k: u32,
) -> [[[u32; 4]; N]; MAX_CHUNKS] {
    let all = |is_inside: bool| {
        from_fn(|chunk| {
            rows.map(|row| {
                if chunk >= B::CHUNKS {
                    return [0; 4];
                }
                let first = at + B::at(chunk, quarter);
                // SAFETY: the rows contain all elements of a step that is entirely inside K.
                unsafe {
                    if is_inside {
                        let of_lane = row.wrapping_add((at + B::at(0, quarter)) as usize);
                        // Otherwise, LLVM would move the loads of the next step to where the elements are used.
                        load_or::<u32, 4, true>(
                            of_lane.wrapping_add(B::at(chunk, 0) as usize).cast(),
                            true,
                            [0; 4],
                        )
                    } else {
                        eight::<T, true>(row, first, k)
                    }
                }
            })
        })
    };
    if B::IS_WHOLE || at + CHUNK_K * B::CHUNKS as u32 <= k { all(true) } else { all(false) }
}
