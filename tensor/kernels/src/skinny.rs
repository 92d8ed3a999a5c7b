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
mod product;
mod row;

use gpu_std::prelude::*;

use self::columns::{Codes, Plain};
pub(crate) use self::columns::{Slot, load_bits, ordered};
use self::fp4::Fp4;
use self::product::{Norm, Place, product};
use crate::epilogue::EpilogueParams;
use crate::number4::Number4;

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
