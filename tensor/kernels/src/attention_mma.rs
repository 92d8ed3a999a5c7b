//! Attention forward kernels for compute capability 8.0 and later, `out = softmax(scale * q * k^T) * v`, with
//! `mma.sync`.
//!
//! Each block has four warps and processes [`tile_q`] rows of one head of q. It copies the rows to shared memory once,
//! and loops over tiles of [`KEYS`] rows of k and v, which all threads copy with `cp.async`. With two stages, the next
//! tiles of k and v are copied during the products. With one stage, v is copied during the product of q and k, and the
//! next tile of k during the product of the probabilities and v.
//!
//! Each warp computes the scores of 32 rows, or of 16 rows of heads with more than 128 elements. The scores stay in
//! registers, where they become the left operand of the second product. The sums are scaled to a new maximum only if
//! `exp2` values relative to the previous maximum could exceed 256.
//!
//! Tiles of k are processed from the last to the first, because only the last tile, or the tiles on the diagonal, need
//! masking.
//!
//! Design: FlashAttention-2 (arXiv 2307.08691); conditional scaling as in FlashAttention-4.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::shared::wait_copies;
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{Half, MatrixLoads, MatrixTile, MatrixTiles, PipelineState, SharedMemory, warpgroup};
use gpu_std::vectorized::{each, store};

use crate::sequences::{HeadStrides, Place, Sequences};
use crate::softmax::{Keys, Rows, mask, reciprocals, scale};
use crate::tiles::divide;

/// Number of rows per tile of k and v.
pub const KEYS: usize = 64;
/// Number of threads per block.
pub const THREADS: u32 = 32 * WARPS;
/// Number of warps per block.
const WARPS: u32 = 4;
/// Number of elements per row that are copied together.
const PART: u32 = 64;

/// Returns the number of 16-row matrices of q per warp, for heads of `dim` elements.
const fn matrices(dim: usize) -> u32 {
    if dim <= 128 { 2 } else { 1 }
}

/// Returns the number of rows of q per block, for heads of `dim` elements.
pub const fn tile_q(dim: usize) -> u32 {
    16 * WARPS * matrices(dim)
}

/// Returns the bytes of dynamic shared memory per block, for heads of `dim` elements.
pub const fn shared_bytes(dim: usize, stages: usize) -> u32 {
    let width = dim.next_multiple_of(PART as usize) as u32;
    SharedMemory::bytes(2 * width * (tile_q(dim) + 2 * (stages * KEYS) as u32), 0)
}

/// Sizes and strides of the heads, and the attention options.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct MmaShape {
    /// Sequences, and the number of heads of q.
    pub sequences: Sequences,
    /// Number of q heads per k and v head.
    pub group: u32,
    /// 1 for a causal mask, as in [`Shape`](crate::attention::Shape).
    pub is_causal: u32,
    /// Softmax scale times log2(e); positive.
    pub scale: f32,
    /// Strides of q.
    pub q: HeadStrides,
    /// Strides of k.
    pub k: HeadStrides,
    /// Strides of v.
    pub v: HeadStrides,
    /// Strides of `out`.
    pub out: HeadStrides,
}

/// Computes attention of heads with up to 128 elements, as [`attention()`](crate::attention::attention()) does.
///
/// # Safety
///
/// - The launch must have [`shared_bytes`] of dynamic shared memory, and one block per tile of [`Sequences::tiles`]
///   with [`tile_q`] rows.
/// - The slices must contain the heads that `shape` describes; k and v have one head per group of q heads. Rows must
///   start on 16-byte boundaries. `out` must not overlap other operands. `lse` has one element per row of each head of
///   each plane.
/// - The offsets are either both present or both absent, and the length of each array is the number of sequences plus
///   one.
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 64, 96, 128; STAGES = 1, 2),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 2),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_mma<T: WarpOperand + Half, const DIM: usize, const STAGES: usize>(
    q: &[T],
    k: &[T],
    v: &[T],
    out: DisjointMut<T>,
    lse: Option<DisjointMut<f32>>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: MmaShape,
) {
    let operands = Operands { q, k, v, q_offsets, k_offsets, shape };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            64 => forward::<T, 64, 64, 4, 2, 128, STAGES>(operands, out, lse),
            96 => forward::<T, 96, 128, 6, 2, 128, STAGES>(operands, out, lse),
            _ => forward::<T, 128, 128, 8, 2, 128, STAGES>(operands, out, lse),
        }
    }
}

/// Computes attention of heads with more than 128 elements.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_mma()`].
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 192, 256),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 2),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_mma_wide<T: WarpOperand + Half, const DIM: usize>(
    q: &[T],
    k: &[T],
    v: &[T],
    out: DisjointMut<T>,
    lse: Option<DisjointMut<f32>>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: MmaShape,
) {
    let operands = Operands { q, k, v, q_offsets, k_offsets, shape };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            192 => forward::<T, 192, 192, 12, 1, 64, 1>(operands, out, lse),
            _ => forward::<T, 256, 256, 16, 1, 64, 1>(operands, out, lse),
        }
    }
}

/// Parameters of the kernels.
#[derive(Clone, Copy)]
struct Operands<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    q_offsets: Option<&'a [u32]>,
    k_offsets: Option<&'a [u32]>,
    shape: MmaShape,
}

/// Body of the kernels for heads of `DIM = 16 * STEPS` elements, of which a row in shared memory has room for `WIDTH`.
/// A warp has `MATRICES` matrices of 16 rows, and a block `TILE` rows.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_mma()`].
#[inline(always)]
unsafe fn forward<
    T,
    const DIM: usize,
    const WIDTH: usize,
    const STEPS: usize,
    const MATRICES: usize,
    const TILE: usize,
    const STAGES: usize,
>(
    operands: Operands<'_, T>,
    mut out: DisjointMut<T>,
    lse: Option<DisjointMut<f32>>,
) where
    T: WarpOperand + Half,
{
    const {
        assert!(DIM == 16 * STEPS && WIDTH == DIM.next_multiple_of(PART as usize));
        assert!(TILE as u32 == tile_q(DIM) && MATRICES as u32 == matrices(DIM));
    }
    let shape = operands.shape;
    let (q_offsets, k_offsets) = (operands.q_offsets, operands.k_offsets);
    let number = thread::block_idx_x();
    // SAFETY: guaranteed by the caller.
    let place = unsafe { shape.sequences.place(number, TILE as u32, q_offsets, k_offsets) };
    let Some(place) = place else { return };
    let keys = Keys::new(&place, shape.is_causal != 0);
    let mut block = keys.before(place.row + TILE as u32 - 1).div_ceil(KEYS as u32);

    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let q_tile = memory.matrix_tiles::<T, TILE, WIDTH, 1>().at(PipelineState::new());
    let k_tiles: MatrixTiles<T, KEYS, WIDTH, STAGES> = memory.matrix_tiles();
    let v_tiles: MatrixTiles<T, KEYS, WIDTH, STAGES> = memory.matrix_tiles();
    let kv_head = divide(place.head, shape.group).0;
    let k = Source::<T, THREADS>::new(operands.k, shape.k, place.plane, kv_head, place.k);
    let v = Source::<T, THREADS>::new(operands.v, shape.v, place.plane, kv_head, place.k);
    let (mut write, mut read) = (PipelineState::<STAGES>::new(), PipelineState::<STAGES>::new());
    // SAFETY: no thread reads the tiles before it has waited for the copies of all threads.
    unsafe {
        let q = Source::<T, THREADS>::new(operands.q, shape.q, place.plane, place.head, place.q);
        q.copy::<TILE, WIDTH, DIM>(q_tile, place.row);
        if block > 0 {
            k.copy::<KEYS, WIDTH, DIM>(k_tiles.at(write), (block - 1) * KEYS as u32);
            if const { STAGES > 1 } {
                v.copy::<KEYS, WIDTH, DIM>(v_tiles.at(write), (block - 1) * KEYS as u32);
            }
            write.advance();
        }
    }

    let in_tile = warpgroup::warp_index() * 16 * MATRICES as u32;
    let row = place.row + in_tile;
    let last = row + 16 * MATRICES as u32 - 1;
    // Ends of the tiles to which all rows of the warp attend in full, and of those to which at least one row attends.
    let whole = keys.before(row) / KEYS as u32;
    let attended = if row < place.q.1 { keys.before(last).div_ceil(KEYS as u32) } else { 0 };
    let mut warp = Warp::<STEPS, MATRICES>::new();
    while block > 0 {
        block -= 1;
        wait_copies();
        thread::sync_threads();
        let (k_tile, v_tile) = (k_tiles.at(read), v_tiles.at(read));
        let first = block * KEYS as u32;
        let next = first.wrapping_sub(KEYS as u32);
        // SAFETY: all threads have read the contents that the copies overwrite.
        unsafe {
            if const { STAGES == 1 } {
                v.copy::<KEYS, WIDTH, DIM>(v_tile, first);
            } else if block > 0 {
                k.copy::<KEYS, WIDTH, DIM>(k_tiles.at(write), next);
                v.copy::<KEYS, WIDTH, DIM>(v_tiles.at(write), next);
            }
        }
        let mut scores = [[[[0.0; 4]; 2]; KEYS / 16]; MATRICES];
        if block < attended {
            // SAFETY: the tiles are complete, and all lanes of the warp call it together.
            scores = unsafe {
                products::<T, TILE, WIDTH, STEPS, MATRICES>(q_tile.loads_a(in_tile), k_tile.loads_b(0))
            };
        }
        if const { STAGES == 1 } {
            wait_copies();
            thread::sync_threads();
            if block > 0 {
                // SAFETY: all threads have read the tile.
                unsafe { k.copy::<KEYS, WIDTH, DIM>(k_tile, next) };
            }
        }
        if block < attended {
            if block >= whole {
                hide(&mut scores, keys, row, first);
            }
            // SAFETY: as above.
            unsafe { warp.attend::<T, WIDTH>(scores, v_tile.loads_b_transposed(0), shape.scale) };
        }
        write.advance();
        read.advance();
    }
    // SAFETY: guaranteed by the caller; these rows belong to this warp.
    unsafe { warp.store(&mut out, lse, &shape, &place, row) };
}

/// Scores of a warp for a tile of k. For each matrix of q, two matrices of 8 columns for each 16 rows of k.
type Scores<const MATRICES: usize> = [[[[f32; 4]; 2]; KEYS / 16]; MATRICES];

/// Multiplies rows of q by a tile of k.
///
/// # Safety
/// The tiles must be complete, and all lanes of the warp must call it together.
#[inline(always)]
unsafe fn products<T, const ROWS: usize, const WIDTH: usize, const STEPS: usize, const MATRICES: usize>(
    q: MatrixLoads<T, ROWS, WIDTH, false, true>,
    k: MatrixLoads<T, KEYS, WIDTH, false, false>,
) -> Scores<MATRICES>
where
    T: WarpOperand<Sum = f32>,
{
    let mut scores = [[[[0.0; 4]; 2]; KEYS / 16]; MATRICES];
    each::<STEPS>(|step| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let q: [[u32; 4]; MATRICES] = from_fn(|m| q.load(16 * m as u32, 2 * step as u32));
            each::<{ KEYS / 16 }>(|i| {
                let [a, b, c, d] = k.load(16 * i as u32, 2 * step as u32);
                each::<MATRICES>(|m| {
                    let [left, right] = scores[m][i];
                    scores[m][i] = [mma::<T>(left, q[m], [a, b]), mma::<T>(right, q[m], [c, d])];
                });
            });
        }
    });
    scores
}

/// Masks the scores of rows of k to which the warp's rows of q do not attend. `row` is the first row of q, and `first`
/// the first row of k.
#[inline(always)]
fn hide<const MATRICES: usize>(scores: &mut Scores<MATRICES>, keys: Keys, row: u32, first: u32) {
    let lane = warp::lane_id();
    each::<MATRICES>(|m| {
        let row = row + 16 * m as u32 + lane / 4;
        let limits =
            [keys.before(row), keys.before(row + 8)].map(|limit| limit as i32 - (lane % 4 * 2) as i32);
        mask(scores[m].as_flattened_mut().as_flattened_mut(), limits, first);
    });
}

/// Attention of a warp's rows over the rows of k so far.
struct Warp<const STEPS: usize, const MATRICES: usize> {
    rows: [Rows; MATRICES],
    /// Sums of the values, weighted by `exp2`: per matrix of q, two matrices of 8 columns for each 16 columns of v.
    values: [[[[f32; 4]; 2]; STEPS]; MATRICES],
}

impl<const STEPS: usize, const MATRICES: usize> Warp<STEPS, MATRICES> {
    #[inline(always)]
    fn new() -> Self {
        Self { rows: from_fn(|_| Rows::new()), values: [[[[0.0; 4]; 2]; STEPS]; MATRICES] }
    }

    /// Online softmax: adds the rows of a tile of v, weighted by the `exp2` of their scores.
    ///
    /// # Safety
    /// The tile must be complete, and all lanes of the warp must call it together.
    #[inline(always)]
    unsafe fn attend<T, const WIDTH: usize>(
        &mut self,
        mut scores: Scores<MATRICES>,
        v: MatrixLoads<T, KEYS, WIDTH, true, true>,
        factor: f32,
    ) where
        T: WarpOperand + Half,
    {
        let mut largest = [[0.0; 2]; MATRICES];
        let mut rises = false;
        each::<MATRICES>(|m| {
            each::<2>(|half| {
                let scores = scores[m].as_flattened().as_flattened();
                largest[m][half] = self.rows[m].raised(half, scores, factor);
                rises |= self.rows[m].is_below(half, largest[m][half]);
            });
        });
        if warp::any(!0, rises) {
            each::<MATRICES>(|m| {
                let factors = [0, 1].map(|half| self.rows[m].raise(half, largest[m][half], factor));
                scale(self.values[m].as_flattened_mut().as_flattened_mut(), factors);
            });
        }
        each::<MATRICES>(|m| {
            each::<2>(|half| self.rows[m].exponentials(half, scores[m][0].as_flattened_mut(), factor));
        });
        each::<{ KEYS / 16 }>(|i| {
            let probabilities: [[u32; 4]; MATRICES] = from_fn(|m| {
                let [[a, b, c, d], [e, f, g, h]] = scores[m][i];
                [T::pack(a, b), T::pack(c, d), T::pack(e, f), T::pack(g, h)]
            });
            each::<STEPS>(|step| {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let [a, b, c, d] = v.load(16 * i as u32, 2 * step as u32);
                    each::<MATRICES>(|m| {
                        let [left, right] = self.values[m][step];
                        let p = probabilities[m];
                        self.values[m][step] = [mma::<T>(left, p, [a, b]), mma::<T>(right, p, [c, d])];
                    });
                }
                // The exponentials for the next rows of v overlap with the products.
                let interval = const { STEPS / (2 * MATRICES) };
                let part = step / interval;
                if i + 1 < KEYS / 16 && step.is_multiple_of(interval) && part < 2 * MATRICES {
                    let scores = scores[part / 2][i + 1].as_flattened_mut();
                    self.rows[part / 2].exponentials(part % 2, scores, factor);
                }
            });
        });
    }

    /// Divides the values by the sums of the `exp2`, and stores them and the log-sum-exp. `row` is the warp's first row
    /// in its sequence.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`attention_mma()`], no other thread may access the rows, and all
    /// lanes of the warp must call it together.
    #[inline(always)]
    unsafe fn store<T: Half>(
        &mut self,
        out: &mut DisjointMut<T>,
        mut lse: Option<DisjointMut<f32>>,
        shape: &MmaShape,
        place: &Place,
        row: u32,
    ) {
        let lane = warp::lane_id();
        each::<MATRICES>(|m| {
            let row = row + 16 * m as u32 + lane / 4;
            let totals = self.rows[m].totals();
            if let Some(lse) = &mut lse {
                // SAFETY: guaranteed by the caller.
                unsafe { self.rows[m].store_lse(lse, place, &shape.sequences, row, totals, shape.scale) };
            }
            let values = &mut self.values[m];
            scale(values.as_flattened_mut().as_flattened_mut(), reciprocals(totals));
            each::<2>(|half| {
                let row = row + 8 * half as u32;
                if row < place.q.1 {
                    let at = shape.out.at(place.plane, place.head, place.q.0 + row) + u64::from(lane % 4 * 2);
                    let to = out.as_mut_ptr().wrapping_add(at as usize);
                    each::<STEPS>(|step| {
                        each::<2>(|eight| {
                            let [low, high] = [0, 1].map(|i| values[step][eight][2 * half + i]);
                            let to = to.wrapping_add(16 * step + 8 * eight).cast::<u32>();
                            // SAFETY: the row exists and starts on a 16-byte boundary; the caller guarantees the rest.
                            unsafe { store(to, [T::pack(low, high)]) };
                        });
                    });
                }
            });
        });
    }
}

/// Rows of a head that the calling thread copies, as one of `THREADS` threads: every `THREADS / 8`th.
#[derive(Clone, Copy)]
pub(crate) struct Source<T, const THREADS: u32> {
    /// The thread's first chunk.
    from: *const T,
    /// Row stride.
    pitch: u64,
    /// Number of rows of the sequence.
    rows: u32,
}

impl<T: WarpOperand, const THREADS: u32> Source<T, THREADS> {
    /// Returns the rows of a sequence, which starts at row `rows.0` of a head and has `rows.1` rows.
    #[inline(always)]
    pub fn new(elements: &[T], strides: HeadStrides, plane: u32, head: u32, rows: (u32, u32)) -> Self {
        let (row, chunk) = Self::of_thread();
        let at = strides.at(plane, head, rows.0 + row) + u64::from(8 * chunk);
        Self { from: elements.as_ptr().wrapping_add(at as usize), pitch: strides.row, rows: rows.1 }
    }

    /// Returns the calling thread's first row and chunk of each tile.
    #[inline(always)]
    fn of_thread() -> (u32, u32) {
        let thread = thread::thread_idx_x();
        (thread / (PART / 8), thread % (PART / 8))
    }

    /// Starts copies of the thread's chunks of the tile that starts at row `first`. Rows that do not exist are zero.
    ///
    /// # Safety
    /// Nothing else may use the tile.
    #[inline(always)]
    pub unsafe fn copy<const ROWS: usize, const WIDTH: usize, const DIM: usize>(
        self,
        tile: MatrixTile<T, ROWS, WIDTH>,
        first: u32,
    ) {
        let (row, chunk) = Self::of_thread();
        let left = self.rows as i32 - (first + row) as i32;
        let mut from = self.from.wrapping_add((u64::from(first) * self.pitch) as usize);
        let step = THREADS / (PART / 8);
        let mut down = 0;
        while down < ROWS as u32 {
            let mut part = 0;
            while part < WIDTH as u32 / PART {
                let chunk = chunk + part * PART / 8;
                if WIDTH == DIM || chunk < DIM as u32 / 8 {
                    let from = from.wrapping_add((part * PART) as usize);
                    // SAFETY: guaranteed by the caller; the chunk is in the row.
                    unsafe { tile.copy_chunk(row + down, chunk, from, (down as i32) < left) };
                }
                part += 1;
            }
            from = from.wrapping_add((u64::from(step) * self.pitch) as usize);
            down += step;
        }
    }
}
