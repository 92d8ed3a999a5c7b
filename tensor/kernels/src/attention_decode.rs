//! Attention for decoding, with one query per sequence: `out = softmax(scale * q * k^T) * v`, with `mma.sync`.
//!
//! A *unit* is a sequence, a head of k and v, and up to 8 or 16 heads of q that share it. They are the columns of all
//! products, so that each key and each value is read once. The keys of a unit are split over blocks (split-KV), and the
//! tiles of [`TILE`] keys of a block over its warps. Each warp has a circular buffer of its own, which `cp.async` fills
//! [`STAGES`] - 1 tiles ahead. The loop over the tiles therefore contains no barrier.
//!
//! For each tile, a warp computes the transposed scores, which are the product of the keys and the queries. It applies
//! `exp2` relative to the running maximum of each query, and adds the product of the transposed values and the
//! probabilities to its sums. The warps of a block merge their sums through shared memory. The blocks of a unit store
//! theirs in a workspace, and the block that arrives last merges them.
//!
//! Design: Flash-Decoding (PyTorch blog, 2023) and FlashInfer (arXiv 2501.01005).

use core::array::from_fn;

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, dynamic_aligned, wait_copies, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{Half, MatrixTiles, PipelineState, SharedMemory};
use gpu_std::vectorized::{each, load, load_or, store};

use crate::mma::is_last;
use crate::sequences::HeadStrides;
use crate::tiles::divide;

/// Number of keys per tile.
pub const TILE: u32 = 16;
/// Number of heads of q per column group of the products.
pub const GROUP: u32 = 8;
/// Number of stages of each warp's circular buffer.
const STAGES: usize = 3;
/// Maximum number of units of a launch with several blocks per unit: the number of 32-bit counters at the start of the
/// workspace.
pub const COUNTERS: usize = 4096;
/// Number of elements after each row of sums in shared memory, which avoid bank conflicts.
const PADDING: usize = 4;
/// Number of partial results that a thread loads at once.
const BATCH: usize = 8;

/// Returns the number of warps per block for heads of `dim` elements.
pub const fn warps(dim: usize) -> u32 {
    if dim <= 128 { 4 } else { 2 }
}

/// Returns the number of threads per block for heads of `dim` elements.
pub const fn threads(dim: usize) -> u32 {
    32 * warps(dim)
}

/// Returns the bytes of dynamic shared memory per block for heads of `dim` elements.
pub const fn shared_bytes(dim: usize) -> u32 {
    SharedMemory::bytes(2 * 2 * TILE * dim as u32 * STAGES as u32 * warps(dim), 0)
}

/// Returns the bytes of the workspace for `blocks` blocks with `groups` column groups of heads of `dim` elements.
pub const fn workspace_bytes(dim: usize, groups: usize, blocks: usize) -> usize {
    size_of::<u32>() * COUNTERS + size_of::<f32>() * partial_len(dim, groups) * blocks
}

/// Number of elements of a block's partial result: for each head, its sums, its maximum and its sum of exponentials.
const fn partial_len(dim: usize, groups: usize) -> usize {
    GROUP as usize * groups * (dim + 2)
}

/// Sizes and strides of the heads, and the softmax scale.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct DecodeShape {
    /// Number of heads of k and v.
    pub kv_heads: u32,
    /// Number of heads of q per head of k and v.
    pub group: u32,
    /// Maximum number of blocks per unit.
    pub splits: u32,
    /// Maximum number of keys of a sequence.
    pub capacity: u32,
    /// Number of planes of k and v.
    pub planes: u32,
    /// Number of tiles per plane of k and v. The rows of a plane are a multiple of [`TILE`] if there is a block table.
    pub plane_tiles: u32,
    /// Softmax scale times log2(e); positive.
    pub scale: f32,
    /// Row stride of the block table.
    pub table_pitch: u64,
    /// Strides of q.
    pub q: HeadStrides,
    /// Strides of `out`.
    pub out: HeadStrides,
    /// Strides of k.
    pub k: HeadStrides,
    /// Strides of v.
    pub v: HeadStrides,
}

/// Computes attention of one query per sequence. Sequence i attends to its first `lengths[i]` keys, but at most to
/// `shape.capacity`. Without a block table, they are the rows of plane i. With a block table, its row i contains the
/// planes of the sequence (pages); keys in planes that do not exist are skipped. A query that attends to no keys yields
/// zeros.
///
/// # Safety
///
/// - The slices must contain the heads that `shape` describes, with `shape.kv_heads * shape.group` heads of q and
///   `out`. Rows must start on 16-byte boundaries. `lengths` has one element per sequence, and `table` one row per
///   sequence with enough columns for `shape.capacity` keys. Without a table, each sequence has a plane with
///   `shape.capacity` rows. `out` must not overlap other operands.
/// - The launch must have [`shared_bytes`] of dynamic shared memory. The grid must be one-dimensional, with
///   `shape.splits` consecutive blocks per unit. The units of each sequence are consecutive, and among them those of
///   each head of k and v, which has one unit per `GROUPS *` [`GROUP`] heads of q.
/// - If `shape.splits` is greater than 1, there must be at most [`COUNTERS`] units, and `workspace` must have
///   [`workspace_bytes`] and be aligned to 16 bytes. Its first [`COUNTERS`] words must be zero, and they are zero again
///   after the launch. Nothing else may use the workspace during the launch.
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 64, 128; GROUPS = 1, 2),
    arch = 80,
    block(threads(DIM)),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_decode<T: WarpOperand + Half, const DIM: usize, const GROUPS: usize>(
    q: &[T],
    k: &[T],
    v: &[T],
    out: DisjointMut<T>,
    lengths: &[u32],
    table: Option<&[u32]>,
    workspace: *mut u32,
    shape: DecodeShape,
) {
    let operands = Operands { q, k, v, lengths, table, workspace, shape };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            64 => decode::<T, 64, 4, GROUPS, 64>(operands, out),
            _ => decode::<T, 128, 8, GROUPS, 64>(operands, out),
        }
    }
}

/// Like [`attention_decode()`], but with heads of 256 elements, and one column group. The sums of a second one would not
/// fit in registers.
///
/// # Safety
///
/// The requirements of [`attention_decode()`] apply.
#[kernel(types(T = bf16, f16), arch = 80, block(threads(256)), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_decode_256<T: WarpOperand + Half>(
    q: &[T],
    k: &[T],
    v: &[T],
    out: DisjointMut<T>,
    lengths: &[u32],
    table: Option<&[u32]>,
    workspace: *mut u32,
    shape: DecodeShape,
) {
    let operands = Operands { q, k, v, lengths, table, workspace, shape };
    // SAFETY: guaranteed by the caller.
    unsafe { decode::<T, 256, 16, 1, 32>(operands, out) }
}

/// Parameters of the kernels.
#[derive(Clone, Copy)]
struct Operands<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    lengths: &'a [u32],
    table: Option<&'a [u32]>,
    workspace: *mut u32,
    shape: DecodeShape,
}

/// Body of the kernels for heads of `DIM = 16 * STEPS` elements and blocks of `ROWS / 16` warps.
///
/// # Safety
///
/// The requirements of [`attention_decode()`] apply.
#[inline(always)]
unsafe fn decode<T, const DIM: usize, const STEPS: usize, const GROUPS: usize, const ROWS: usize>(
    operands: Operands<'_, T>,
    mut out: DisjointMut<T>,
) where
    T: WarpOperand + Half,
{
    const { assert!(DIM == 16 * STEPS && ROWS as u32 == TILE * warps(DIM)) };
    let shape = operands.shape;
    let unit = Unit::new(&shape, GROUP * GROUPS as u32);
    // SAFETY: the caller guarantees one length per sequence.
    let length = unsafe { *operands.lengths.get_unchecked(unit.sequence as usize) }.min(shape.capacity);
    let tiles = length.div_ceil(TILE);
    let (rounds, _) = divide(tiles + shape.splits * warps(DIM) - 1, shape.splits * warps(DIM));
    let block_tiles = rounds.max(1) * warps(DIM);
    // A sequence without keys has one block, which stores zeros.
    let blocks = divide(tiles + block_tiles - 1, block_tiles).0.max(1);
    if unit.split >= blocks {
        return;
    }
    let first = unit.split * block_tiles;
    let warp = thread::thread_idx_x() / 32;
    let end = tiles.min(first + block_tiles);
    let keys = Keys { operands: &operands, unit, length, end };
    // SAFETY: guaranteed by the caller.
    let partial = unsafe { keys.attend::<DIM, STEPS, GROUPS, ROWS>(first + warp, warp) };

    // The sums reuse the memory of the copies.
    wait_copies();
    thread::sync_threads();
    // SAFETY: all threads call it, and the dynamic shared memory has enough room.
    unsafe { partial.share::<DIM>(warp, shape.scale) };
    thread::sync_threads();
    let merge = Merge { workspace: operands.workspace, unit, blocks, splits: shape.splits };
    let mut i = thread::thread_idx_x();
    while i < unit.heads * (DIM as u32 / 4) {
        let (head, column) = (i / (DIM as u32 / 4), 4 * (i % (DIM as u32 / 4)));
        let mut sums = Merged::new();
        // SAFETY: the warps have stored their sums before the barrier.
        let shared = from_fn::<_, 4, _>(|warp| unsafe {
            if warp < ROWS / 16 { shared_part::<DIM, GROUPS>(warp, head, column) } else { Part::NONE }
        });
        sums.add(&shared);
        // SAFETY: the place belongs to this thread, in `out` or in the workspace.
        unsafe {
            if blocks == 1 {
                sums.store(&mut out, &shape, unit, head, column);
            } else {
                merge.store::<DIM, GROUPS>(head, column, sums);
            }
        }
        i += threads(DIM);
    }
    if blocks == 1 {
        return;
    }
    // SAFETY: this is the counter of the unit, and all threads of all its blocks call it.
    if !unsafe { is_last(|| operands.workspace.wrapping_add(unit.index as usize), blocks) } {
        return;
    }
    let mut i = thread::thread_idx_x();
    while i < unit.heads * (DIM as u32 / 4) {
        let (head, column) = (i / (DIM as u32 / 4), 4 * (i % (DIM as u32 / 4)));
        let mut sums = Merged::new();
        let mut block = 0;
        while block < blocks {
            // SAFETY: these blocks have stored their sums.
            let parts = from_fn::<_, BATCH, _>(|i| unsafe {
                merge.load::<DIM, GROUPS>(block + i as u32, head, column)
            });
            sums.add(&parts);
            block += BATCH as u32;
        }
        // SAFETY: the elements of `out` belong to this thread.
        unsafe { sums.store(&mut out, &shape, unit, head, column) };
        i += threads(DIM);
    }
}

/// Place of the calling block.
#[derive(Clone, Copy)]
struct Unit {
    /// Index of the unit.
    index: u32,
    /// Index of the block in the unit.
    split: u32,
    sequence: u32,
    /// Head of k and v.
    kv_head: u32,
    /// First head of q, and number of heads.
    head: u32,
    heads: u32,
}

impl Unit {
    #[inline(always)]
    fn new(shape: &DecodeShape, most: u32) -> Self {
        let (index, split) = divide(thread::block_idx_x(), shape.splits);
        let (rest, part) = divide(index, shape.group.div_ceil(most));
        let (sequence, kv_head) = divide(rest, shape.kv_heads);
        let before = part * most;
        let head = kv_head * shape.group + before;
        Self { index, split, sequence, kv_head, head, heads: (shape.group - before).min(most) }
    }
}

/// Keys of a block.
struct Keys<'a, T> {
    operands: &'a Operands<'a, T>,
    unit: Unit,
    /// Number of keys of the sequence.
    length: u32,
    /// First tile after those of the block.
    end: u32,
}

/// Plane and first row of a tile in k and v. A plane of `u32::MAX` does not exist.
type TilePlace = (u32, u32);

impl<T: WarpOperand + Half> Keys<'_, T> {
    /// Returns the place of a tile.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply.
    #[inline(always)]
    unsafe fn place(&self, tile: u32) -> TilePlace {
        let shape = &self.operands.shape;
        let Some(table) = self.operands.table else { return (self.unit.sequence, TILE * tile) };
        let (page, in_page) = divide(tile, shape.plane_tiles);
        let at = u64::from(self.unit.sequence) * shape.table_pitch + u64::from(page);
        // SAFETY: the table contains the pages of all tiles, and nothing writes it during the launch.
        let [plane] = unsafe {
            load_or::<u32, 1, true>(table.as_ptr().wrapping_add(at as usize), tile < self.end, [u32::MAX])
        };
        (if plane < shape.planes { plane } else { u32::MAX }, TILE * in_page)
    }

    /// Returns the attention of the calling warp, whose tiles are every [`warps`]th tile from `first` on.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply. All warps of the block must call it.
    #[inline(always)]
    unsafe fn attend<const DIM: usize, const STEPS: usize, const GROUPS: usize, const ROWS: usize>(
        &self,
        first: u32,
        warp: u32,
    ) -> Partial<STEPS, GROUPS> {
        let Operands { q, k, v, shape, .. } = *self.operands;
        // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
        let mut memory = unsafe { SharedMemory::new() };
        let k_tiles: MatrixTiles<T, ROWS, DIM, STAGES> = memory.matrix_tiles();
        let v_tiles: MatrixTiles<T, ROWS, DIM, STAGES> = memory.matrix_tiles();
        let lane = warp::lane_id();
        let chunks = DIM as u32 / 8;
        let (row, chunk) = (lane / chunks, lane % chunks);
        let head = u64::from(self.unit.kv_head);
        let start = |elements: &[T], strides: HeadStrides| {
            let at = head * strides.head + u64::from(row) * strides.row + u64::from(8 * chunk);
            elements.as_ptr().wrapping_add(at as usize)
        };
        let (k, v) = (start(k, shape.k), start(v, shape.v));
        let (mut write, mut read) = (PipelineState::<STAGES>::new(), PipelineState::<STAGES>::new());
        // Each lane holds the place of one of 32 tiles. The places of the next 32 tiles are loaded in advance.
        // SAFETY: guaranteed by the caller.
        let places = |number: u32| unsafe { self.place(first + (number + lane) * warps(DIM)) };
        let (mut current, mut next) = (places(0), places(32));
        // Bit i is set if the plane of the tile exists that was copied i tiles ago.
        let mut exists = 0u32;
        let mut copied = 0;
        let mut copy = |exists: &mut u32| {
            let tile = first + copied * warps(DIM);
            if copied != 0 && copied % 32 == 0 {
                current = next;
                next = places(copied + 32);
            }
            let plane = warp::shuffle(!0, current.0, copied % 32);
            let first_row = warp::shuffle(!0, current.1, copied % 32);
            let is_there = plane != u32::MAX;
            *exists = *exists << 1 | u32::from(is_there);
            if tile < self.end {
                let rows = if is_there { self.length - TILE * tile } else { 0 };
                let copy = |tiles: &MatrixTiles<T, ROWS, DIM, STAGES>,
                            from: *const T,
                            strides: HeadStrides| {
                    let at = u64::from(plane) * strides.plane + u64::from(first_row) * strides.row;
                    let mut from = from.wrapping_add(at as usize);
                    let mut down = 0;
                    while down < TILE {
                        let exists = row + down < rows;
                        // SAFETY: the row exists if it is copied, and starts on a 16-byte boundary. The warp has read
                        // the tile that was in the slot.
                        unsafe { tiles.at(write).copy_chunk(TILE * warp + row + down, chunk, from, exists) };
                        from = from.wrapping_add((u64::from(32 / chunks) * strides.row) as usize);
                        down += 32 / chunks;
                    }
                };
                copy(&k_tiles, k, shape.k);
                copy(&v_tiles, v, shape.v);
            }
            commit_copies();
            write.advance();
            copied += 1;
        };
        let mut i = 0;
        while i < STAGES - 1 {
            copy(&mut exists);
            i += 1;
        }
        // SAFETY: guaranteed by the caller.
        let queries = unsafe { Queries::<STEPS, GROUPS>::load(q, &shape, self.unit) };
        let mut partial = Partial::<STEPS, GROUPS>::new();
        let mut tile = first;
        while tile < self.end {
            wait_copies_leaving::<{ STAGES - 2 }>();
            // All lanes have completed their copies of this tile, and have read the tile before.
            warp::sync_warp(!0);
            copy(&mut exists);
            let is_there = exists >> (STAGES - 1) & 1 != 0;
            let count = if is_there { (self.length - TILE * tile).min(TILE) } else { 0 };
            let (k_tile, v_tile) = (k_tiles.at(read), v_tiles.at(read));
            let mut scores = [[0.0f32; 4]; GROUPS];
            each::<STEPS>(|j| {
                // SAFETY: the copies of this warp's rows of the slot are complete.
                let keys = unsafe { k_tile.load_a(TILE * warp, 2 * j as u32) };
                each::<GROUPS>(|group| {
                    // SAFETY: all lanes of the warp call it together.
                    scores[group] = unsafe { mma::<T>(scores[group], keys, queries.elements[j][group]) };
                });
            });
            if count < TILE {
                let hide = |scores: &mut [f32; 4], half: usize| {
                    if lane / 4 + 8 * half as u32 >= count {
                        (scores[2 * half], scores[2 * half + 1]) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
                    }
                };
                each::<GROUPS>(|group| {
                    hide(&mut scores[group], 0);
                    hide(&mut scores[group], 1);
                });
            }
            let mut probabilities = [[0; 2]; GROUPS];
            each::<GROUPS>(|group| {
                let [a, b, c, d] = partial.probabilities(group, scores[group], shape.scale);
                probabilities[group] = [transposed(T::pack(a, b)), transposed(T::pack(c, d))];
            });
            each::<STEPS>(|j| {
                // SAFETY: as above.
                let values = unsafe { v_tile.load_a_transposed(TILE * warp, 2 * j as u32) };
                each::<GROUPS>(|group| {
                    let sums = &mut partial.sums[j][group];
                    // SAFETY: as above.
                    *sums = unsafe { mma::<T>(*sums, values, probabilities[group]) };
                });
            });
            read.advance();
            tile += warps(DIM);
        }
        partial
    }
}

/// Transposes an 8 x 8 matrix of 16-bit elements, of which each lane has elements `2 * (lane % 4)` and the next of row
/// `lane / 4`. Packed sums of [`mma`] are such a matrix, and its transpose is a register of an operand.
#[inline(always)]
fn transposed(elements: u32) -> u32 {
    let lane = warp::lane_id();
    let (row, pair) = (lane / 4, 2 * (lane % 4));
    let element = |i: u32| warp::shuffle(!0, elements, 4 * i + row / 2) >> (16 * (row % 2)) & 0xffff;
    element(pair) | element(pair + 1) << 16
}

/// Queries of a unit, as operands of [`mma`]: 16 elements of eight heads per operand.
struct Queries<const STEPS: usize, const GROUPS: usize> {
    elements: [[[u32; 2]; GROUPS]; STEPS],
}

impl<const STEPS: usize, const GROUPS: usize> Queries<STEPS, GROUPS> {
    /// Loads the queries. Heads that the unit does not have are zero.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply.
    #[inline(always)]
    unsafe fn load<T>(q: &[T], shape: &DecodeShape, unit: Unit) -> Self {
        let lane = warp::lane_id();
        let mut elements = [[[0; 2]; GROUPS]; STEPS];
        each::<GROUPS>(|group| {
            let head = GROUP * group as u32 + lane / 4;
            let at = shape.q.at(unit.sequence, unit.head + head, 0) + u64::from(2 * (lane % 4));
            let from = q.as_ptr().wrapping_add(at as usize);
            each::<STEPS>(|j| {
                // SAFETY: the head exists if it is loaded, and nothing writes it during the launch.
                elements[j][group] = [0, 8].map(|next| unsafe {
                    load_or::<u32, 1, true>(from.wrapping_add(16 * j + next).cast(), head < unit.heads, [0])
                        [0]
                });
            });
        });
        Self { elements }
    }
}

/// Attention of a warp over some of the keys. A lane has the heads `2 * (lane % 4)` and the next of each group of eight,
/// and the elements `lane / 4` and `lane / 4 + 8` of each 16.
struct Partial<const STEPS: usize, const GROUPS: usize> {
    /// Sums of the values, weighted by `exp2` relative to the maximum.
    sums: [[[f32; 4]; GROUPS]; STEPS],
    /// Maximum score of each head; `-inf` before the first.
    largest: [[f32; 2]; GROUPS],
    /// Sum of this lane's `exp2` values of each head.
    totals: [[f32; 2]; GROUPS],
}

impl<const STEPS: usize, const GROUPS: usize> Partial<STEPS, GROUPS> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            sums: [[[0.0; 4]; GROUPS]; STEPS],
            largest: [[f32::NEG_INFINITY; 2]; GROUPS],
            totals: [[0.0; 2]; GROUPS],
        }
    }

    /// Online softmax: returns the `exp2` of the scores relative to the running maximum, and scales the sums to it.
    #[inline(always)]
    fn probabilities(&mut self, group: usize, scores: [f32; 4], scale: f32) -> [f32; 4] {
        let mut all = scores;
        let mut factors = [0.0; 2];
        each::<2>(|i| {
            let before = self.largest[group][i];
            let largest = before.max(scores[i].max(scores[i + 2]));
            let largest = largest.max(warp::shuffle_xor(!0, largest, 4));
            let largest = largest.max(warp::shuffle_xor(!0, largest, 8));
            let largest = largest.max(warp::shuffle_xor(!0, largest, 16));
            let base = base(largest * scale);
            let factor = fast::exp2(before * scale - base);
            all[i] = fast::exp2(Math::mul_add(scores[i], scale, -base));
            all[i + 2] = fast::exp2(Math::mul_add(scores[i + 2], scale, -base));
            let total = &mut self.totals[group][i];
            *total = *total * factor + (all[i] + all[i + 2]);
            self.largest[group][i] = largest;
            factors[i] = factor;
        });
        each::<STEPS>(|j| {
            let sums = &mut self.sums[j][group];
            *sums = from_fn(|i| sums[i] * factors[i % 2]);
        });
        all
    }

    /// Stores the warp's sums in shared memory.
    ///
    /// # Safety
    ///
    /// All lanes of the warp must call it. The dynamic shared memory must have room for the sums of all warps, and no
    /// other warp may use the place of this one.
    #[inline(always)]
    unsafe fn share<const DIM: usize>(&self, warp: u32, scale: f32) {
        let lane = warp::lane_id();
        each::<GROUPS>(|group| {
            each::<2>(|i| {
                let head = GROUP * group as u32 + 2 * (lane % 4) + i as u32;
                let to = shared_row::<DIM, GROUPS>(warp as usize, head);
                let total = self.totals[group][i];
                let total = total + warp::shuffle_xor(!0, total, 4);
                let total = total + warp::shuffle_xor(!0, total, 8);
                let total = total + warp::shuffle_xor(!0, total, 16);
                // SAFETY: guaranteed by the caller; each element is stored by one lane.
                unsafe {
                    if lane < 4 {
                        to.wrapping_add(DIM).write(self.largest[group][i] * scale);
                        to.wrapping_add(DIM + 1).write(total);
                    }
                    each::<STEPS>(|j| {
                        let to = to.wrapping_add(16 * j + (lane / 4) as usize);
                        to.write(self.sums[j][group][i]);
                        to.wrapping_add(8).write(self.sums[j][group][i + 2]);
                    });
                }
            });
        });
    }
}

/// Returns the exponent that is subtracted from the exponents of scores up to `largest`.
#[inline(always)]
fn base(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// Returns the place of a warp's sums of a head in shared memory. The maximum and the sum of exponentials follow them.
#[inline(always)]
fn shared_row<const DIM: usize, const GROUPS: usize>(warp: usize, head: u32) -> *mut f32 {
    const { assert!(PADDING >= 2, "the padding has room for two numbers") };
    let row = warp * GROUP as usize * GROUPS + head as usize;
    dynamic_aligned::<f32>().wrapping_add(row * (DIM + PADDING))
}

/// Four sums of a part of the keys, with the largest exponent and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
struct Part {
    sums: [f32; 4],
    largest: f32,
    total: f32,
}

impl Part {
    /// Part without keys.
    const NONE: Self = Self { sums: [0.0; 4], largest: f32::NEG_INFINITY, total: 0.0 };
}

/// Returns four sums of a warp from shared memory.
///
/// # Safety
///
/// The warp must have stored the sums.
#[inline(always)]
unsafe fn shared_part<const DIM: usize, const GROUPS: usize>(warp: usize, head: u32, column: u32) -> Part {
    let from = shared_row::<DIM, GROUPS>(warp, head);
    // SAFETY: guaranteed by the caller; rows start on 16-byte boundaries.
    unsafe {
        let [largest, total] = load(from.wrapping_add(DIM));
        Part { sums: load(from.wrapping_add(column as usize)), largest, total }
    }
}

/// Sums of several parts of the keys.
struct Merged(Part);

impl Merged {
    #[inline(always)]
    fn new() -> Self {
        Self(Part::NONE)
    }

    /// Adds parts, scaled to the largest exponent.
    #[inline(always)]
    fn add<const N: usize>(&mut self, parts: &[Part; N]) {
        let mut largest = self.0.largest;
        each::<N>(|i| largest = largest.max(parts[i].largest));
        let base = base(largest);
        let factor = fast::exp2(self.0.largest - base);
        let mut all =
            Part { sums: self.0.sums.map(|sum| sum * factor), largest, total: self.0.total * factor };
        each::<N>(|i| {
            let factor = fast::exp2(parts[i].largest - base);
            all.sums = from_fn(|j| Math::mul_add(parts[i].sums[j], factor, all.sums[j]));
            all.total = Math::mul_add(parts[i].total, factor, all.total);
        });
        self.0 = all;
    }

    /// Stores the attention of four elements of a head.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply, and no other thread may access these elements.
    #[inline(always)]
    unsafe fn store<T: Half>(
        &self,
        out: &mut DisjointMut<T>,
        shape: &DecodeShape,
        unit: Unit,
        head: u32,
        column: u32,
    ) {
        let Part { sums, total, .. } = self.0;
        let [a, b, c, d] = sums.map(|sum| if total == 0.0 { 0.0 } else { sum / total });
        let at = shape.out.at(unit.sequence, unit.head + head, 0) + u64::from(column);
        // SAFETY: guaranteed by the caller; the row starts on a 16-byte boundary.
        unsafe {
            store(out.as_mut_ptr().wrapping_add(at as usize).cast::<u32>(), [T::pack(a, b), T::pack(c, d)])
        };
    }
}

/// Partial results of the blocks of a unit, in the workspace.
#[derive(Clone, Copy)]
struct Merge {
    workspace: *mut u32,
    unit: Unit,
    /// Number of blocks that have keys.
    blocks: u32,
    splits: u32,
}

impl Merge {
    /// Returns the addresses of a block's sums of a head, and of their maximum and sum of exponentials.
    #[inline(always)]
    fn at<const DIM: usize, const GROUPS: usize>(&self, block: u32, head: u32) -> (*mut f32, *mut f32) {
        let block = self.unit.index as usize * self.splits as usize + block as usize;
        let of_block = self.workspace.wrapping_add(COUNTERS + block * partial_len(DIM, GROUPS)).cast::<f32>();
        let beside = GROUP as usize * GROUPS * DIM + 2 * head as usize;
        (of_block.wrapping_add(head as usize * DIM), of_block.wrapping_add(beside))
    }

    /// Stores four sums of the calling block.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply, and no other thread may access the place.
    #[inline(always)]
    unsafe fn store<const DIM: usize, const GROUPS: usize>(&self, head: u32, column: u32, sums: Merged) {
        let Merged(Part { sums, largest, total }) = sums;
        let (to, beside) = self.at::<DIM, GROUPS>(self.unit.split, head);
        // SAFETY: guaranteed by the caller; both addresses are aligned to the vectors.
        unsafe {
            store(to.wrapping_add(column as usize), sums);
            if column == 0 {
                store(beside, [largest, total]);
            }
        }
    }

    /// Loads four sums of a block, or of no keys if the unit does not have this block.
    ///
    /// # Safety
    ///
    /// The requirements of [`attention_decode()`] apply, and the block must have stored the sums.
    #[inline(always)]
    unsafe fn load<const DIM: usize, const GROUPS: usize>(&self, block: u32, head: u32, column: u32) -> Part {
        if block >= self.blocks {
            return Part::NONE;
        }
        let (from, beside) = self.at::<DIM, GROUPS>(block, head);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let [largest, total] = load(beside);
            Part { sums: load(from.wrapping_add(column as usize)), largest, total }
        }
    }
}
