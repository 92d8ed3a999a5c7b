//! Attention backward kernels for compute capability 8.0 and later, with `mma.sync`, for the equations of
//! [`attention_backward`](mod@crate::attention_backward).
//!
//! One kernel computes all gradients with five GEMMs. Each block processes a tile of rows of k and v, and loops over
//! the tiles of rows of q of all heads that attend to them:
//!
//! ```text
//! s = q * k^T          dp = dout * v^T
//! p = exp2(s)          ds = p * (dp - delta)       to shared memory
//! dv += p^T * dout     dk += ds^T * q              in registers
//! dq += ds * k                                     in global memory
//! ```
//!
//! The blocks of a head add to `dq` without atomic additions. For each tile of q, a counter holds the number of tiles
//! of k that have been added. A block waits until the counter reaches the index of its tile of k, uses the partial sums
//! as the initial values of its product, and stores the new sums. The block with the last tile of k stores the
//! gradient. The order of the additions is therefore fixed, and the partial sums need not be cleared or converted.
//! Blocks take their tiles from a counter, so that the blocks that a block waits for have always started. They process
//! the tiles of q from the last to the first: the last row of q attends to every row of k, even with a causal mask.
//!
//! One warp waits for the counters and another one advances them, before their parts of the first two products, which
//! the other warps compute in the meantime. The warps divide each matrix into matrices of 16 rows and 16 columns, in an
//! interleaved order.
//!
//! Design: FlashAttention-2 (arXiv 2307.08691), with ordered additions.

use core::array::from_fn;

use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::shared::wait_copies;
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{Half, MatrixTiles, PipelineState, SharedMemory, warpgroup};
use gpu_std::vectorized::{each, load, store};

use crate::attention_backward::base_of;
use crate::attention_mma::Source;
use crate::sequences::{HeadStrides, Place, Sequences};
use crate::softmax::{Keys, mask};
use crate::tiles::divide;

/// Number of threads per block, except for [`attention_backward_mma_narrow()`].
const THREADS: u32 = 256;
/// Number of threads per block of [`attention_backward_mma_narrow()`].
const NARROW_THREADS: u32 = 128;

/// Sizes of the tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Number of rows of q per step.
    pub rows: usize,
    /// Number of rows of k and v per block.
    pub keys: usize,
    /// Number of stages of q and `dout`.
    pub stages: usize,
    /// Number of threads per block.
    pub threads: u32,
}

impl Tiling {
    /// Returns the tiling for heads of `dim` elements. A block with the small tiling has at most 99 KiB of shared
    /// memory, the maximum of compute capabilities 8.6, 8.9 and 12.0, and a block with the large one at most 163 KiB.
    pub const fn new(dim: usize, is_small: bool) -> Self {
        let (rows, keys, stages, threads) = match (dim, is_small) {
            (64, _) | (96 | 128, false) => (64, 128, 2, THREADS),
            (96, true) => (64, 64, 1, THREADS),
            (128, true) => (32, 64, 2, THREADS),
            (192, false) => (64, 64, 2, THREADS),
            (192, true) => (32, 64, 1, THREADS),
            (_, false) => (32, 64, 2, THREADS),
            (_, true) => (32, 32, 1, NARROW_THREADS),
        };
        Self { rows, keys, stages, threads }
    }

    /// Returns the bytes of dynamic shared memory per block, for heads of `dim` elements.
    pub const fn shared_bytes(self, dim: usize) -> u32 {
        let width = dim.next_multiple_of(64);
        let rows = 2 * self.keys + 2 * self.stages * self.rows;
        SharedMemory::bytes((2 * rows * width + 2 * 2 * self.rows * self.keys.next_multiple_of(64)) as u32, 0)
    }
}

/// Sizes and strides of the heads, and the attention options.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct BackwardShape {
    /// The sequences. The q sizes come before the k sizes.
    pub sequences: Sequences,
    /// Number of q heads per k and v head.
    pub group: u32,
    /// 1 for a causal mask, as in [`Shape`](crate::attention::Shape).
    pub is_causal: u32,
    /// Softmax scale; positive.
    pub scale: f32,
    /// Softmax scale times log2(e).
    pub factor: f32,
    /// Strides of q.
    pub q: HeadStrides,
    /// Strides of k.
    pub k: HeadStrides,
    /// Strides of v.
    pub v: HeadStrides,
    /// Strides of the gradient of `out`.
    pub dout: HeadStrides,
    /// Strides of the q gradient.
    pub dq: HeadStrides,
    /// Strides of the k gradient.
    pub dk: HeadStrides,
    /// Strides of the v gradient.
    pub dv: HeadStrides,
}

/// Computes the gradients of q, k and v, with the large tiling. Gradient rows that belong to no sequence are not
/// written, and neither are the q gradients of sequences without rows of k.
///
/// # Safety
///
/// - The launch must have [`Tiling::shared_bytes`] of dynamic shared memory, and one block per tile of
///   [`Sequences::tiles`] with [`Tiling::keys`] rows of the heads of k.
/// - The slices must contain the heads that `shape` describes; k and v have one head per group of q heads. Rows must
///   start on 16-byte boundaries. The gradients must not overlap other operands. `lse` and `delta` have one element per
///   row of each head of each plane of q.
/// - `counters` must have one element more than there are tiles of [`Tiling::rows`] rows of q, and be zero. `partials`
///   must have the elements of these tiles and start on a 16-byte boundary.
/// - The offsets are either both present or both absent, and the length of each array is the number of sequences plus
///   one.
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 64, 96, 128, 192, 256),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 1),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_backward_mma<T: WarpOperand + Half, const DIM: usize>(
    q: &[T],
    k: &[T],
    v: &[T],
    dout: &[T],
    lse: &[f32],
    delta: &[f32],
    dq: DisjointMut<T>,
    dk: DisjointMut<T>,
    dv: DisjointMut<T>,
    partials: DisjointMut<f32>,
    counters: &[Atomic<u32>],
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: BackwardShape,
) {
    let operands = Operands { q, k, v, dout, lse, delta, counters, q_offsets, k_offsets, shape };
    let gradients = (dq, dk, dv, partials);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            64 => {
                backward::<T, 64, 64, 64, 128, 128, 2, 2, 2, 2, 2, 1, 2, THREADS, false>(operands, gradients)
            }
            96 => {
                backward::<T, 96, 128, 64, 128, 128, 2, 2, 2, 2, 3, 1, 3, THREADS, false>(operands, gradients)
            }
            128 => backward::<T, 128, 128, 64, 128, 128, 2, 2, 2, 2, 4, 2, 2, THREADS, false>(
                operands, gradients,
            ),
            192 => {
                backward::<T, 192, 192, 64, 64, 64, 2, 2, 1, 2, 3, 2, 3, THREADS, false>(operands, gradients)
            }
            _ => {
                backward::<T, 256, 256, 32, 64, 64, 2, 1, 1, 2, 4, 1, 4, THREADS, false>(operands, gradients)
            }
        }
    }
}

/// Like [`attention_backward_mma()`], with the small tiling.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_mma()`].
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 96, 128, 192),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 1),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_backward_mma_small<T: WarpOperand + Half, const DIM: usize>(
    q: &[T],
    k: &[T],
    v: &[T],
    dout: &[T],
    lse: &[f32],
    delta: &[f32],
    dq: DisjointMut<T>,
    dk: DisjointMut<T>,
    dv: DisjointMut<T>,
    partials: DisjointMut<f32>,
    counters: &[Atomic<u32>],
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: BackwardShape,
) {
    let operands = Operands { q, k, v, dout, lse, delta, counters, q_offsets, k_offsets, shape };
    let gradients = (dq, dk, dv, partials);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            96 => backward::<T, 96, 128, 64, 64, 64, 1, 2, 1, 1, 3, 1, 3, THREADS, true>(operands, gradients),
            128 => {
                backward::<T, 128, 128, 32, 64, 64, 2, 1, 1, 2, 2, 1, 2, THREADS, true>(operands, gradients)
            }
            _ => backward::<T, 192, 192, 32, 64, 64, 1, 1, 1, 2, 3, 1, 3, THREADS, true>(operands, gradients),
        }
    }
}

/// Like [`attention_backward_mma()`], with the small tiling of heads of 256 elements.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_mma()`].
#[kernel(types(T = bf16, f16), arch = 80, block(NARROW_THREADS), launch_bounds(NARROW_THREADS, 1), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_backward_mma_narrow<T: WarpOperand + Half>(
    q: &[T],
    k: &[T],
    v: &[T],
    dout: &[T],
    lse: &[f32],
    delta: &[f32],
    dq: DisjointMut<T>,
    dk: DisjointMut<T>,
    dv: DisjointMut<T>,
    partials: DisjointMut<f32>,
    counters: &[Atomic<u32>],
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: BackwardShape,
) {
    let operands = Operands { q, k, v, dout, lse, delta, counters, q_offsets, k_offsets, shape };
    let gradients = (dq, dk, dv, partials);
    // SAFETY: guaranteed by the caller.
    unsafe {
        backward::<T, 256, 256, 32, 32, 64, 1, 1, 1, 1, 8, 1, 8, NARROW_THREADS, true>(operands, gradients)
    }
}

/// Writes zeros to the q gradients of sequences without rows of k.
///
/// # Safety
/// There must be one block per tile of [`Sequences::tiles`] with [`ZERO_ROWS`] rows of q. `dq` must contain the heads
/// of `dim` elements that `sequences` and `strides` describe, and rows must start on 16-byte boundaries. The offsets
/// are as for [`attention_backward_mma()`].
#[kernel(types(T = bf16, f16), arch = 80, block(ZERO_THREADS), no_panic)]
pub unsafe fn attention_backward_zero<T: Half>(
    mut dq: DisjointMut<T>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    sequences: Sequences,
    strides: HeadStrides,
    dim: u32,
) {
    // SAFETY: guaranteed by the caller.
    let place = unsafe { sequences.place(thread::block_idx_x(), ZERO_ROWS, q_offsets, k_offsets) };
    let Some(place) = place else { return };
    let rows = if place.k.1 == 0 { ZERO_ROWS.min(place.q.1 - place.row) } else { 0 };
    let mut i = thread::thread_idx_x();
    while i < rows * (dim / 8) {
        let (row, chunk) = divide(i, dim / 8);
        let at = strides.at(place.plane, place.head, place.q.0 + place.row + row) + u64::from(8 * chunk);
        // SAFETY: the chunk is in the row, and starts on a 16-byte boundary.
        unsafe { store(dq.as_mut_ptr().wrapping_add(at as usize).cast::<u32>(), [0; 4]) };
        i += ZERO_THREADS;
    }
}

/// Number of rows of q per block of [`attention_backward_zero()`].
pub const ZERO_ROWS: u32 = 64;
/// Number of threads per block of [`attention_backward_zero()`].
pub const ZERO_THREADS: u32 = 256;

/// Parameters of the kernels.
#[derive(Clone, Copy)]
struct Operands<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    dout: &'a [T],
    lse: &'a [f32],
    delta: &'a [f32],
    counters: &'a [Atomic<u32>],
    q_offsets: Option<&'a [u32]>,
    k_offsets: Option<&'a [u32]>,
    shape: BackwardShape,
}

/// Sums of a warp: `M` matrices of 16 rows and `N` of 16 columns, each as two matrices of 8 columns.
type Sums<const M: usize, const N: usize> = [[[[f32; 4]; 2]; N]; M];

/// Body of the kernels for heads of `DIM` elements. A row in shared memory has room for `WIDTH` elements, and a row of
/// scores for `SCORES`. A warp has `SM` matrices of 16 rows and `SN` of 16 columns of the scores, `GM` and `GN` of the
/// gradients of k and v, and `QM` and `QN` of the gradient of q.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_mma()`].
#[inline(always)]
unsafe fn backward<
    T,
    const DIM: usize,
    const WIDTH: usize,
    const ROWS: usize,
    const KEYS: usize,
    const SCORES: usize,
    const STAGES: usize,
    const SM: usize,
    const SN: usize,
    const GM: usize,
    const GN: usize,
    const QM: usize,
    const QN: usize,
    const THREADS: u32,
    const IS_SMALL: bool,
>(
    operands: Operands<'_, T>,
    (mut dq, mut dk, mut dv, mut partials): (
        DisjointMut<T>,
        DisjointMut<T>,
        DisjointMut<T>,
        DisjointMut<f32>,
    ),
) where
    T: WarpOperand + Half,
{
    const {
        let Tiling { rows, keys, stages, threads } = Tiling::new(DIM, IS_SMALL);
        assert!(ROWS == rows && KEYS == keys && STAGES == stages && THREADS == threads);
        let warps = THREADS as usize / 32;
        assert!(WIDTH == DIM.next_multiple_of(64) && SCORES == KEYS.next_multiple_of(64));
        assert!(ROWS * KEYS == 256 * warps * SM * SN);
        assert!(KEYS * DIM == 256 * warps * GM * GN);
        assert!(ROWS * DIM == 256 * warps * QM * QN);
    }
    let shape = operands.shape;
    let Sequences { count, heads, q_rows, k_rows, raster_group } = shape.sequences;
    let kv_heads = divide(heads, shape.group).0;
    let of_keys = Sequences { count, heads: kv_heads, q_rows: k_rows, k_rows: q_rows, raster_group };
    let mut number = 0;
    if thread::thread_idx_x() == 0 {
        // SAFETY: the caller guarantees that there is a counter.
        number = unsafe { operands.counters.get_unchecked(0) }.fetch_add(1, Ordering::Relaxed);
    }
    let number = block::broadcast(number, 0);
    // SAFETY: guaranteed by the caller.
    let turned = unsafe { of_keys.place(number, KEYS as u32, operands.k_offsets, operands.q_offsets) };
    let Some(turned) = turned else { return };
    // The first tile comes first, because the later ones wait for it.
    let row = (turned.q.1.div_ceil(KEYS as u32) - 1) * KEYS as u32 - turned.row;
    let place = Place { q: turned.k, k: turned.q, row, ..turned };
    let index = divide(row, KEYS as u32).0;
    let keys = Keys::new(&place, shape.is_causal != 0);
    // The block of the first tile of k also stores the zero gradients of rows of q that attend to no rows.
    let first_step = if index == 0 { 0 } else { keys.first_row(row) / ROWS as u32 };
    let end_step = place.q.1.div_ceil(ROWS as u32);
    let (per_head, before) = match operands.q_offsets {
        Some(_) => (q_rows / ROWS as u32 + count, place.q.0 / ROWS as u32 + place.sequence),
        None => (q_rows.div_ceil(ROWS as u32), 0),
    };
    // Index of a tile of q among those of all heads.
    let tile_of = |at: Step| (place.plane * heads + at.head) * per_head + before + at.step;
    let mut at = Step { head: place.head * shape.group, step: end_step.wrapping_sub(1) };
    let next = |at: Step| match at.step > first_step {
        true => Step { step: at.step - 1, ..at },
        false => Step { head: at.head + 1, step: end_step - 1 },
    };
    let mut left = shape.group * (end_step - first_step);

    // SAFETY: the caller guarantees that each tile of q has a counter.
    let counter = |at| unsafe { operands.counters.get_unchecked(1 + tile_of(at) as usize) };

    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let k_tile = memory.matrix_tiles::<T, KEYS, WIDTH, 1>().at(PipelineState::new());
    let v_tile = memory.matrix_tiles::<T, KEYS, WIDTH, 1>().at(PipelineState::new());
    let q_tiles: MatrixTiles<T, ROWS, WIDTH, STAGES> = memory.matrix_tiles();
    let dout_tiles: MatrixTiles<T, ROWS, WIDTH, STAGES> = memory.matrix_tiles();
    let p_tile = memory.matrix_tiles::<T, ROWS, SCORES, 1>().at(PipelineState::new());
    let ds_tile = memory.matrix_tiles::<T, ROWS, SCORES, 1>().at(PipelineState::new());
    let mut slot = PipelineState::<STAGES>::new();
    let copy = |at: Step, slot: PipelineState<STAGES>| {
        let first = at.step * ROWS as u32;
        // SAFETY: no thread uses the tiles before it has waited for the copies of all threads.
        unsafe {
            let q = Source::<T, THREADS>::new(operands.q, shape.q, place.plane, at.head, place.q);
            q.copy::<ROWS, WIDTH, DIM>(q_tiles.at(slot), first);
            let dout = Source::<T, THREADS>::new(operands.dout, shape.dout, place.plane, at.head, place.q);
            dout.copy::<ROWS, WIDTH, DIM>(dout_tiles.at(slot), first);
        }
    };
    if left > 0 {
        // SAFETY: as above.
        unsafe {
            let k = Source::<T, THREADS>::new(operands.k, shape.k, place.plane, place.head, place.k);
            k.copy::<KEYS, WIDTH, DIM>(k_tile, row);
            let v = Source::<T, THREADS>::new(operands.v, shape.v, place.plane, place.head, place.k);
            v.copy::<KEYS, WIDTH, DIM>(v_tile, row);
        }
        copy(at, slot);
    }

    let (warp, lane) = (warpgroup::warp_index(), warp::lane_id());
    // Number of warps that divide the rows and the columns of each product.
    let [s_down, s_across] = const { [(ROWS / (16 * SM)) as u32, (KEYS / (16 * SN)) as u32] };
    let [g_down, g_across] = const { [(KEYS / (16 * GM)) as u32, (DIM / (16 * GN)) as u32] };
    let [q_down, q_across] = const { [(ROWS / (16 * QM)) as u32, (DIM / (16 * QN)) as u32] };
    let (s_row, s_column) = (warp / s_across, warp % s_across);
    let (g_row, g_column) = (warp / g_across, warp % g_across);
    let (q_row, q_column) = (warp / q_across, warp % q_across);
    let mut of_k: Sums<GM, GN> = [[[[0.0; 4]; 2]; GN]; GM];
    let mut of_v: Sums<GM, GN> = [[[[0.0; 4]; 2]; GN]; GM];
    let mut previous = None;
    while left > 0 {
        wait_copies();
        thread::sync_threads();
        let (q_tile, dout_tile) = (q_tiles.at(slot), dout_tiles.at(slot));
        slot.advance();
        let following = next(at);
        left -= 1;
        if const { STAGES > 1 } && left > 0 {
            copy(following, slot);
        }
        if warp == 0 {
            if lane == 0
                && let Some(previous) = previous
            {
                counter(previous).store(index + 1, Ordering::Release);
            }
            warp::sync_warp(!0);
        }
        previous = Some(at);
        if warp == 1 && index > 0 {
            while lane == 0 && counter(at).load(Ordering::Acquire) < index {}
            warp::sync_warp(!0);
        }
        let first = at.step * ROWS as u32;
        let own_row = first + 16 * s_row + lane / 4;
        let head = u64::from(place.plane * heads + at.head) * u64::from(q_rows) + u64::from(place.q.0);
        let mut bases = [[f32::INFINITY; 2]; SM];
        let mut deltas = [[0.0; 2]; SM];
        each::<SM>(|m| {
            each::<2>(|half| {
                let row = own_row + 16 * s_down * m as u32 + 8 * half as u32;
                if row < place.q.1 {
                    let at = (head + u64::from(row)) as usize;
                    // SAFETY: both arrays have one element per row.
                    unsafe {
                        bases[m][half] = base_of(*operands.lse.get_unchecked(at));
                        deltas[m][half] = *operands.delta.get_unchecked(at);
                    }
                }
            });
        });
        // SAFETY: the tiles are complete, and all lanes of the warp execute the same code.
        unsafe {
            let mut scores: Sums<SM, SN> = [[[[0.0; 4]; 2]; SN]; SM];
            // Both products in one loop have more independent instructions than one after the other.
            let mut slopes: Sums<SM, SN> = [[[[0.0; 4]; 2]; SN]; SM];
            let (q_loads, k_loads) = (q_tile.loads_a(16 * s_row), k_tile.loads_b(16 * s_column));
            let (dout_loads, v_loads) = (dout_tile.loads_a(16 * s_row), v_tile.loads_b(16 * s_column));
            each::<16>(|step| {
                if step < DIM / 16 {
                    let chunk = 2 * step as u32;
                    let q: [_; SM] = from_fn(|m| q_loads.load(16 * s_down * m as u32, chunk));
                    let dout: [_; SM] = from_fn(|m| dout_loads.load(16 * s_down * m as u32, chunk));
                    add::<T, SM, SN>(&mut scores, q, |n| k_loads.load(16 * s_across * n, chunk));
                    add::<T, SM, SN>(&mut slopes, dout, |n| v_loads.load(16 * s_across * n, chunk));
                }
            });
            if keys.before(first) < row + KEYS as u32 {
                each::<SM>(|m| {
                    let q_row = own_row + 16 * s_down * m as u32;
                    let limits = [keys.before(q_row), keys.before(q_row + 8)];
                    let limits = limits.map(|limit| limit as i32 - (lane % 4 * 2) as i32);
                    each::<SN>(|n| {
                        let first = row + 16 * (s_column + s_across * n as u32);
                        mask(scores[m][n].as_flattened_mut(), limits, first);
                    });
                });
            }
            let p_stores = p_tile.stores(16 * s_row, 2 * s_column);
            each::<SM>(|m| {
                each::<SN>(|n| {
                    each::<2>(|eight| {
                        each::<2>(|half| {
                            let [a, b] = [0, 1].map(|i| {
                                let score = &mut scores[m][n][eight][2 * half + i];
                                *score = fast::exp2(Math::mul_add(*score, shape.factor, -bases[m][half]));
                                *score
                            });
                            let chunk = (2 * s_across) * n as u32 + eight as u32;
                            p_stores.store(16 * s_down * m as u32 + 8 * half as u32, chunk, T::pack(a, b));
                        });
                    });
                });
            });
            let ds_stores = ds_tile.stores(16 * s_row, 2 * s_column);
            each::<SM>(|m| {
                each::<SN>(|n| {
                    each::<2>(|eight| {
                        each::<2>(|half| {
                            let [a, b] = [2 * half, 2 * half + 1]
                                .map(|i| (slopes[m][n][eight][i] - deltas[m][half]) * scores[m][n][eight][i]);
                            let chunk = (2 * s_across) * n as u32 + eight as u32;
                            ds_stores.store(16 * s_down * m as u32 + 8 * half as u32, chunk, T::pack(a, b));
                        });
                    });
                });
            });
            thread::sync_threads();

            // Threads access adjacent groups of four sums, so that a warp accesses 512 adjacent bytes.
            let tile = tile_of(at);
            let partial = u64::from(tile) * (ROWS * DIM) as u64 + u64::from(4 * thread::thread_idx_x());
            let partial = partials.as_mut_ptr().wrapping_add(partial as usize);
            let part = |m: usize, n: usize, eight: usize| {
                partial.wrapping_add(((m * QN + n) * 2 + eight) * 4 * THREADS as usize)
            };
            // These loads overlap with the next two products.
            let mut of_q: Sums<QM, QN> = [[[[0.0; 4]; 2]; QN]; QM];
            if index > 0 {
                each::<QM>(|m| {
                    each::<QN>(|n| {
                        each::<2>(|eight| {
                            of_q[m][n][eight] = load(part(m, n, eight).cast_const());
                        });
                    });
                });
            }
            let (a, b) = (p_tile.loads_a_transposed(0), dout_tile.loads_b_transposed(0));
            let (a, b) = (a.from_chunk(2 * g_row), b.from_chunk(2 * g_column));
            multiply::<T, GM, GN>(
                &mut of_v,
                ROWS / 16,
                |m, step| a.load(16 * step, 2 * g_down * m),
                |n, step| b.load(16 * step, 2 * g_across * n),
            );
            let (a, b) = (ds_tile.loads_a_transposed(0), q_tile.loads_b_transposed(0));
            let (a, b) = (a.from_chunk(2 * g_row), b.from_chunk(2 * g_column));
            multiply::<T, GM, GN>(
                &mut of_k,
                ROWS / 16,
                |m, step| a.load(16 * step, 2 * g_down * m),
                |n, step| b.load(16 * step, 2 * g_across * n),
            );
            let (a, b) = (ds_tile.loads_a(16 * q_row), k_tile.loads_b_transposed(0).from_chunk(2 * q_column));
            multiply::<T, QM, QN>(
                &mut of_q,
                KEYS / 16,
                |m, step| a.load(16 * q_down * m, 2 * step),
                |n, step| b.load(16 * step, 2 * q_across * n),
            );
            if keys.before(first + ROWS as u32 - 1) > row + KEYS as u32 {
                each::<QM>(|m| {
                    each::<QN>(|n| {
                        each::<2>(|eight| {
                            store(part(m, n, eight), of_q[m][n][eight]);
                        });
                    });
                });
            } else {
                let to = shape.dq.at(place.plane, at.head, place.q.0 + first);
                let to = dq.as_mut_ptr().wrapping_add(to as usize);
                let places = [[q_row, q_down], [q_column, q_across]];
                store_rows(&of_q, shape.scale, to, shape.dq.row, places, place.q.1 - first);
            }
            if const { STAGES == 1 } && left > 0 {
                thread::sync_threads();
                copy(following, slot);
            }
        }
        at = following;
    }
    thread::sync_threads();
    if thread::thread_idx_x() == 0
        && let Some(previous) = previous
    {
        counter(previous).store(index + 1, Ordering::Release);
    }
    // SAFETY: the rows belong to this block, and all lanes of the warp execute the same code.
    unsafe {
        let places = [[g_row, g_down], [g_column, g_across]];
        let to = |strides: HeadStrides| strides.at(place.plane, place.head, place.k.0 + row) as usize;
        let rows = place.k.1 - row;
        let to_k = dk.as_mut_ptr().wrapping_add(to(shape.dk));
        store_rows(&of_k, shape.scale, to_k, shape.dk.row, places, rows);
        let to_v = dv.as_mut_ptr().wrapping_add(to(shape.dv));
        store_rows(&of_v, 1.0, to_v, shape.dv.row, places, rows);
    }
}

/// Position in a block's loop over the tiles of q.
#[derive(Clone, Copy)]
struct Step {
    /// Head of q.
    head: u32,
    /// Index of the tile in the sequence.
    step: u32,
}

/// Adds a product of `16 * steps` elements per sum. `a` loads the matrix `m` of 16 rows, and `b` the matrix `n` of 16
/// columns, of the 16 elements of a step.
///
/// # Safety
/// All lanes of the warp must call it together.
#[inline(always)]
unsafe fn multiply<T: WarpOperand<Sum = f32>, const M: usize, const N: usize>(
    sums: &mut Sums<M, N>,
    steps: usize,
    a: impl Fn(u32, u32) -> [u32; 4],
    b: impl Fn(u32, u32) -> [u32; 4],
) {
    each::<16>(|step| {
        if step < steps {
            let step = step as u32;
            // SAFETY: guaranteed by the caller.
            unsafe { add::<T, M, N>(sums, from_fn(|m| a(m as u32, step)), |n| b(n, step)) };
        }
    });
}

/// Adds a product of 16 elements per sum. `b` loads the matrix `n` of 16 columns.
///
/// # Safety
/// All lanes of the warp must call it together.
#[inline(always)]
unsafe fn add<T: WarpOperand<Sum = f32>, const M: usize, const N: usize>(
    sums: &mut Sums<M, N>,
    a: [[u32; 4]; M],
    b: impl Fn(u32) -> [u32; 4],
) {
    each::<N>(|n| {
        let [b0, b1, b2, b3] = b(n as u32);
        each::<M>(|m| {
            let [low, high] = sums[m][n];
            // SAFETY: guaranteed by the caller.
            sums[m][n] = unsafe { [mma::<T>(low, a[m], [b0, b1]), mma::<T>(high, a[m], [b2, b3])] };
        });
    });
}

/// Stores a warp's sums, multiplied by `scale`, to the first `rows` rows from `to` on, whose stride is `pitch`.
/// `places` are the index of the warp and the number of warps, among those that divide the rows and the columns.
///
/// # Safety
/// The rows must exist and start on 16-byte boundaries, and no other thread may access the warp's elements.
#[inline(always)]
unsafe fn store_rows<T: Half, const M: usize, const N: usize>(
    sums: &Sums<M, N>,
    scale: f32,
    to: *mut T,
    pitch: u64,
    [[row, down], [column, across]]: [[u32; 2]; 2],
    rows: u32,
) {
    let lane = warp::lane_id();
    each::<M>(|m| {
        each::<2>(|half| {
            let row = 16 * (row + down * m as u32) + 8 * half as u32 + lane / 4;
            if row < rows {
                let at = u64::from(row) * pitch + u64::from(16 * column + lane % 4 * 2);
                let to = to.wrapping_add(at as usize);
                each::<N>(|n| {
                    each::<2>(|eight| {
                        let [low, high] = [0, 1].map(|i| sums[m][n][eight][2 * half + i] * scale);
                        let to = to.wrapping_add(16 * across as usize * n + 8 * eight).cast::<u32>();
                        // SAFETY: guaranteed by the caller.
                        unsafe { store(to, [T::pack(low, high)]) };
                    });
                });
            }
        });
    });
}
