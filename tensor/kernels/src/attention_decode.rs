//! Attention for decoding, with few queries per sequence: `out = softmax(scale * q * k^T) * v`, with `mma.sync`.
//!
//! A *unit* consists of a sequence, a head of k and v, and up to 8 or 16 queries of the heads of q that share it. These
//! queries are the columns of all products, so the unit reads each key and each value only once. The keys of a unit are
//! split across blocks (split-KV), and each block distributes its tiles of [`TILE`] keys over its warps. Each warp has
//! its own circular buffer, which `cp.async` fills two tiles ahead, so the loop over the tiles contains no barrier.
//!
//! For each tile, a warp computes the transposed scores, which are the product of the keys and the queries. It applies
//! `exp2` relative to the running maximum of each query, and adds the product of the transposed values and the
//! probabilities to its sums. The warps of a block merge their sums through shared memory. The blocks of a unit store
//! their sums in a workspace, and the last block to finish merges them.
//!
//! Design: Flash-Decoding (PyTorch blog, 2023) and FlashInfer (arXiv 2501.01005).

mod append;
mod merge;
mod queries;

use core::array::from_fn;

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, wait_copies, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{F8E4M3, Half, MatrixTiles, PipelineState, SharedMemory};
use gpu_std::vectorized::{each, load_or, opaque};

use self::append::New;
pub use self::append::NewShape;
use self::merge::{Merge, Merged, Part, base, shared_part, shared_row};
use self::queries::{Staged, staged_bytes};
use crate::cache_element::{CacheElement, Rounded};
use crate::mma::is_last;
use crate::number4::Number4;
use crate::sequences::HeadStrides;
use crate::tiles::divide;

/// Number of keys per tile.
pub const TILE: u32 = 16;
/// Number of queries per column group of the products.
pub const GROUP: u32 = 8;
/// Number of stages of each warp's circular buffer.
const STAGES: usize = 3;
/// Number of 32-bit counters at the start of the workspace. It limits the units in a launch with several blocks per
/// unit.
pub const COUNTERS: usize = 4096;
/// Number of padding elements after each row of sums in shared memory, to avoid bank conflicts.
const PADDING: usize = 4;
/// Number of partial results that a thread loads at once.
const BATCH: usize = 16;

/// Returns the number of warps per block for heads of `dim` elements.
pub const fn warps(dim: usize) -> u32 {
    if dim <= 128 { 4 } else { 2 }
}

/// Returns the number of threads per block for heads of `dim` elements.
pub const fn threads(dim: usize) -> u32 {
    32 * warps(dim)
}

/// Returns the dynamic shared memory per block, in bytes, for heads of `dim` elements and caches of elements of `size`
/// bytes.
pub const fn shared_bytes(dim: usize, size: usize) -> u32 {
    SharedMemory::bytes(tile_bytes(dim, size) + staged_bytes(dim), 0)
}

/// Returns the size of the tiles of k and v of a block, in bytes.
const fn tile_bytes(dim: usize, size: usize) -> u32 {
    2 * TILE * (dim * size) as u32 * STAGES as u32 * warps(dim)
}

/// Returns the workspace size, in bytes, for `blocks` blocks with `groups` column groups of queries of `dim` elements.
pub const fn workspace_bytes(dim: usize, groups: usize, blocks: usize) -> usize {
    size_of::<u32>() * COUNTERS + size_of::<f32>() * partial_len(dim, groups) * blocks
}

/// Number of elements of a block's partial result: for each query, its sums, its maximum and its sum of exponentials.
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
    /// Number of queries per sequence and head of q.
    pub queries: u32,
    /// Maximum number of keys to which a query attends.
    pub window: u32,
    /// Maximum number of blocks per unit.
    pub splits: u32,
    /// Maximum number of keys per sequence.
    pub capacity: u32,
    /// Number of planes of k and v.
    pub planes: u32,
    /// Number of tiles per plane of k and v. With a block table, the number of rows per plane is a multiple of
    /// [`TILE`].
    pub plane_tiles: u32,
    /// Factor of the scores, in the exponents of `exp2`: the softmax scale times log2(e), or with a soft cap, the cap
    /// times log2(e). It is positive.
    pub scale: f32,
    /// 2 * log2(e) * softmax scale / soft cap, or 0 without a soft cap.
    pub cap: f32,
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
    /// 1 if the kernel may read k, v, their scales, the lengths and the block table before the preceding launches have
    /// completed.
    pub reads_early: u32,
    /// Sizes and strides of the new tokens.
    pub new: NewShape,
}

/// Computes attention for the last `shape.queries` tokens of each sequence. Sequence i has `lengths[i]` keys, and at
/// most `shape.capacity` keys. Each query attends to the last `shape.window` keys up to its own (causal mask). Without
/// a block table, the keys are rows of plane i. With a block table, row i of the table lists the planes (pages) of
/// sequence i, and keys in nonexistent planes are skipped. `sinks` contains one logit per head of q, whose exponential
/// is added to the denominator of the softmax. `k_scales` and `v_scales` contain one positive factor of the cached keys
/// and values per head. The output of a query that attends to no keys is zero.
///
/// With `new_k`, the last token of each sequence is new: the kernel rotates its queries and its key like
/// [`rotary_append`](fn@crate::rotary_append::rotary_append), and appends the key and the value to `cache_k` and
/// `cache_v`, which replace `k` and `v`. If the position of the new token is negative, above the capacity or outside the
/// tables, its output is zero, and it is not appended.
///
/// # Safety
///
/// - The slices must contain the heads that `shape` describes, with `shape.kv_heads * shape.group` heads of q and
///   `out`. Rows must start on 16-byte boundaries. `sinks` must have one element per head of q, the scales one per head
///   of k and v, and `lengths` one per sequence. `table` must have one row per sequence, with enough columns for
///   `shape.capacity` keys. Without a table, each sequence must have a plane with `shape.capacity` rows. `out` must not
///   overlap any other operand.
/// - Either `k` and `v` or, with new tokens, `cache_k`, `cache_v`, `new_k`, `new_v`, `cos` and `sin` must exist. With new
///   tokens, `shape.queries` must be 1, `new_k` and `new_v` must have a row per sequence and head, and `cos` and `sin`
///   must have `shape.new.positions` rows of `DIM / 2` elements, which start on 16-byte boundaries. `q_norm` and `k_norm`
///   must both exist or not, have `DIM` elements, and start on 16-byte boundaries. The caches must not overlap any
///   other operand.
/// - If `shape.reads_early` is 1, no launch that may be running writes k, v, their scales, the lengths or the table.
/// - The launch must have [`shared_bytes`] of dynamic shared memory. The grid must be one-dimensional, with
///   `shape.splits` consecutive blocks per unit. Each head of k and v has one unit per `GROUPS *` [`GROUP`] queries of
///   its heads of q. Units are ordered by sequence, and then by head.
/// - If `shape.splits` is greater than 1, there must be at most [`COUNTERS`] units, and `workspace` must have
///   [`workspace_bytes`] and be aligned to 16 bytes. The first [`COUNTERS`] words of the workspace must be zero. The
///   kernel leaves them zero. Nothing else may use the workspace during the launch.
#[kernel(
    types(T = bf16, f16),
    consts(DIM = 64, 128; GROUPS = 1, 2),
    arch = 80,
    block(threads(DIM)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_decode<T: DecodeNumber, const DIM: usize, const GROUPS: usize>(
    q: &[T],
    k: Option<&[T]>,
    v: Option<&[T]>,
    out: DisjointMut<T>,
    sinks: Option<&[f32]>,
    k_scales: Option<&[f32]>,
    v_scales: Option<&[f32]>,
    lengths: &[u32],
    table: Option<&[u32]>,
    workspace: *mut u32,
    cache_k: Option<DisjointMut<T>>,
    cache_v: Option<DisjointMut<T>>,
    new_k: Option<&[T]>,
    new_v: Option<&[T]>,
    cos: Option<&[f32]>,
    sin: Option<&[f32]>,
    q_norm: Option<&[T]>,
    k_norm: Option<&[T]>,
    shape: DecodeShape,
) {
    let (new, [k, v]) = New::of([new_k, new_v], [cache_k, cache_v], [k, v], [cos, sin], [q_norm, k_norm]);
    let operands =
        Operands { q, k, v, sinks, scales: [k_scales, v_scales], lengths, table, workspace, new, shape };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            64 => decode::<T, T, 64, 4, GROUPS, 64, 64>(operands, out),
            _ => decode::<T, T, 128, 8, GROUPS, 64, 128>(operands, out),
        }
    }
}

/// Like [`attention_decode()`], but for heads of 256 elements, with one column group. The sums of a second column group
/// would not fit in registers.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`attention_decode()`].
#[kernel(types(T = bf16, f16), arch = 80, block(threads(256)), dependent, no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_decode_256<T: DecodeNumber>(
    q: &[T],
    k: Option<&[T]>,
    v: Option<&[T]>,
    out: DisjointMut<T>,
    sinks: Option<&[f32]>,
    k_scales: Option<&[f32]>,
    v_scales: Option<&[f32]>,
    lengths: &[u32],
    table: Option<&[u32]>,
    workspace: *mut u32,
    cache_k: Option<DisjointMut<T>>,
    cache_v: Option<DisjointMut<T>>,
    new_k: Option<&[T]>,
    new_v: Option<&[T]>,
    cos: Option<&[f32]>,
    sin: Option<&[f32]>,
    q_norm: Option<&[T]>,
    k_norm: Option<&[T]>,
    shape: DecodeShape,
) {
    let (new, [k, v]) = New::of([new_k, new_v], [cache_k, cache_v], [k, v], [cos, sin], [q_norm, k_norm]);
    let operands =
        Operands { q, k, v, sinks, scales: [k_scales, v_scales], lengths, table, workspace, new, shape };
    // SAFETY: guaranteed by the caller.
    unsafe { decode::<T, T, 256, 16, 1, 32, 256>(operands, out) }
}

/// Like [`attention_decode()`], but with 8-bit keys and values, which are converted to `T`, and with one column group.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`attention_decode()`].
#[kernel(
    types(T = bf16, f16; C = F8E4M3, i8),
    consts(DIM = 64, 128, 256),
    arch = 80,
    block(threads(DIM)),
    dependent,
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_decode_8bit<T: DecodeNumber, C: CacheElement<T> + Rounded, const DIM: usize>(
    q: &[T],
    k: Option<&[C]>,
    v: Option<&[C]>,
    out: DisjointMut<T>,
    sinks: Option<&[f32]>,
    k_scales: Option<&[f32]>,
    v_scales: Option<&[f32]>,
    lengths: &[u32],
    table: Option<&[u32]>,
    workspace: *mut u32,
    cache_k: Option<DisjointMut<C>>,
    cache_v: Option<DisjointMut<C>>,
    new_k: Option<&[T]>,
    new_v: Option<&[T]>,
    cos: Option<&[f32]>,
    sin: Option<&[f32]>,
    q_norm: Option<&[T]>,
    k_norm: Option<&[T]>,
    shape: DecodeShape,
) {
    let (new, [k, v]) = New::of([new_k, new_v], [cache_k, cache_v], [k, v], [cos, sin], [q_norm, k_norm]);
    let operands =
        Operands { q, k, v, sinks, scales: [k_scales, v_scales], lengths, table, workspace, new, shape };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match const { DIM } {
            64 => decode::<T, C, 64, 4, 1, 64, 32>(operands, out),
            128 => decode::<T, C, 128, 8, 1, 64, 64>(operands, out),
            _ => decode::<T, C, 256, 16, 1, 32, 128>(operands, out),
        }
    }
}

/// Element types of q and `out`.
pub trait DecodeNumber: WarpOperand + Half + Number4 + CacheElement<Self> + Rounded {}
impl<T: WarpOperand + Half + Number4 + CacheElement<T> + Rounded> DecodeNumber for T {}

/// Parameters that the kernels share.
#[derive(Clone, Copy)]
struct Operands<'a, T, C> {
    q: &'a [T],
    k: *const C,
    v: *const C,
    sinks: Option<&'a [f32]>,
    /// Scales of k and v.
    scales: [Option<&'a [f32]>; 2],
    lengths: &'a [u32],
    table: Option<&'a [u32]>,
    workspace: *mut u32,
    new: Option<New<'a, T, C>>,
    shape: DecodeShape,
}

/// Body of the kernels for heads of `DIM = 16 * STEPS` elements, blocks of `ROWS / 16` warps, and rows of k and v of
/// `2 * WIDTH` bytes.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`attention_decode()`].
#[inline(always)]
unsafe fn decode<
    T: DecodeNumber,
    C: CacheElement<T> + Rounded,
    const DIM: usize,
    const STEPS: usize,
    const GROUPS: usize,
    const ROWS: usize,
    const WIDTH: usize,
>(
    mut operands: Operands<'_, T, C>,
    mut out: DisjointMut<T>,
) {
    const { assert!(DIM == 16 * STEPS && ROWS as u32 == TILE * warps(DIM) && 2 * WIDTH == DIM * size_of::<C>()) };
    // Compute capabilities 8.6, 8.9 and 12.x have the least shared memory per block.
    const { assert!(shared_bytes(DIM, size_of::<C>()) <= 99 << 10) };
    // The next launch can copy its weights while this one runs.
    grid::launch_dependents();
    if operands.shape.reads_early == 0 {
        grid::dependency_wait();
    }
    let unit = Unit::new(&operands.shape, GROUP * GROUPS as u32);
    // SAFETY: the caller guarantees one scale per head of k.
    let scale =
        operands.scales[0].map_or(1.0, |scales| unsafe { *scales.get_unchecked(unit.kv_head as usize) });
    if operands.shape.cap == 0.0 {
        operands.shape.scale *= scale;
    } else {
        operands.shape.cap *= scale;
    }
    let shape = operands.shape;
    // SAFETY: the caller guarantees one length per sequence.
    let length = unsafe { *operands.lengths.get_unchecked(unit.sequence as usize) };
    let length = match operands.new {
        Some(_) if length > shape.capacity.min(shape.new.positions) => 0,
        _ => length.min(shape.capacity),
    };
    let keys = QueryKeys { length, queries: shape.queries, window: shape.window };
    let first_tile = keys.of(0).0 / TILE;
    let tiles = length.div_ceil(TILE).saturating_sub(first_tile);
    let (rounds, _) = divide(tiles + shape.splits * warps(DIM) - 1, shape.splits * warps(DIM));
    let block_tiles = rounds.max(1) * warps(DIM);
    // A sequence without keys has one block, which stores zeros.
    let blocks = divide(tiles + block_tiles - 1, block_tiles).0.max(1);
    if unit.split >= blocks {
        return;
    }
    let first = first_tile + unit.split * block_tiles;
    let warp = thread::thread_idx_x() / 32;
    let end = (first_tile + tiles).min(first + block_tiles);
    let keys = Keys { operands: &operands, unit, keys, end };
    // SAFETY: guaranteed by the caller.
    let partial = unsafe { keys.attend::<STEPS, GROUPS, ROWS, WIDTH>(first + warp, warp) };

    // The sums reuse the memory of the copied tiles.
    wait_copies();
    thread::sync_threads();
    // SAFETY: all lanes of the warp make this call, and the dynamic shared memory has enough space.
    unsafe { partial.share::<DIM>(warp, shape.scale, size_of::<C>() == 2) };
    thread::sync_threads();
    let merge = Merge { workspace: operands.workspace, unit, blocks, splits: shape.splits };
    let mut i = thread::thread_idx_x();
    while i < unit.queries * (DIM as u32 / 4) {
        let (query, column) = (i / (DIM as u32 / 4), 4 * (i % (DIM as u32 / 4)));
        let mut sums = Merged::new();
        // SAFETY: the warps have stored their sums before the barrier.
        let shared = from_fn::<_, 4, _>(|warp| unsafe {
            if warp < ROWS / 16 { shared_part::<DIM, GROUPS>(warp, query, column) } else { Part::NONE }
        });
        sums.add(&shared);
        // SAFETY: these elements of `out` or of the workspace belong to this thread.
        unsafe {
            if blocks == 1 {
                sums.finish(&operands, &mut out, unit, query, column);
            } else {
                merge.store::<DIM, GROUPS>(query, column, sums);
            }
        }
        i += threads(DIM);
    }
    if blocks == 1 {
        return;
    }
    // SAFETY: this counter belongs to the unit, and all threads of all its blocks make this call.
    if !unsafe { is_last(|| operands.workspace.wrapping_add(unit.index as usize), blocks) } {
        return;
    }
    let mut i = thread::thread_idx_x();
    while i < unit.queries * (DIM as u32 / 4) {
        let (query, column) = (i / (DIM as u32 / 4), 4 * (i % (DIM as u32 / 4)));
        let mut sums = Merged::new();
        let mut block = 0;
        while block < blocks {
            // SAFETY: these blocks have stored their sums.
            let parts = from_fn::<_, BATCH, _>(|i| unsafe {
                merge.load::<DIM, GROUPS>(block + i as u32, query, column)
            });
            sums.add(&parts);
            block += BATCH as u32;
        }
        // SAFETY: the elements of `out` belong to this thread.
        unsafe { sums.finish(&operands, &mut out, unit, query, column) };
        i += threads(DIM);
    }
}

/// The unit of the calling block, and the block's index in it.
#[derive(Clone, Copy)]
struct Unit {
    /// Index of the unit.
    index: u32,
    /// Index of the block in the unit.
    split: u32,
    sequence: u32,
    /// Index of the head of k and v.
    kv_head: u32,
    /// Index of the unit's first query among the queries that share the head of k and v. Consecutive queries belong to
    /// different heads of q.
    first: u32,
    /// Number of queries.
    queries: u32,
}

impl Unit {
    #[inline(always)]
    fn new(shape: &DecodeShape, most: u32) -> Self {
        let (index, split) = divide(thread::block_idx_x(), shape.splits);
        let all = shape.group * shape.queries;
        let (rest, part) = divide(index, all.div_ceil(most));
        let (sequence, kv_head) = divide(rest, shape.kv_heads);
        let first = part * most;
        Self { index, split, sequence, kv_head, first, queries: (all - first).min(most) }
    }

    /// Returns the head of q and the row of a query of the unit.
    #[inline(always)]
    fn place(&self, shape: &DecodeShape, query: u32) -> (u32, u32) {
        let (row, head) = divide(self.first + query, shape.group);
        (self.kv_head * shape.group + head, row)
    }
}

/// Keys to which the queries of a sequence attend.
#[derive(Clone, Copy)]
struct QueryKeys {
    /// Number of keys of the sequence.
    length: u32,
    /// Number of queries.
    queries: u32,
    /// Maximum number of keys per query.
    window: u32,
}

impl QueryKeys {
    /// Returns the first key to which a query attends, and the end of the keys.
    #[inline(always)]
    fn of(&self, row: u32) -> (u32, u32) {
        let end = (self.length + row + 1).saturating_sub(self.queries);
        (end.saturating_sub(self.window), end)
    }
}

/// The keys that a block processes.
struct Keys<'a, T, C> {
    operands: &'a Operands<'a, T, C>,
    unit: Unit,
    keys: QueryKeys,
    /// Exclusive end of the block's tiles.
    end: u32,
}

/// Plane and first row of a tile in k and v. The plane is `u32::MAX` if it does not exist.
type TilePlace = (u32, u32);

impl<T: DecodeNumber, C: CacheElement<T> + Rounded> Keys<'_, T, C> {
    /// Returns the location of a tile.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`].
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

    /// Computes the partial result of the calling warp, which processes every [`warps`]-th tile from `first` on.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`]. All warps of the block must call this
    /// method.
    #[inline(always)]
    unsafe fn attend<const STEPS: usize, const GROUPS: usize, const ROWS: usize, const WIDTH: usize>(
        &self,
        first: u32,
        warp: u32,
    ) -> Partial<STEPS, GROUPS> {
        let Operands { k, v, new, shape, .. } = *self.operands;
        // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
        let mut memory = unsafe { SharedMemory::new() };
        // 8-bit elements are stored in pairs, each pair as one 16-bit element.
        let k_tiles: MatrixTiles<u16, ROWS, WIDTH, STAGES> = memory.matrix_tiles();
        let v_tiles: MatrixTiles<u16, ROWS, WIDTH, STAGES> = memory.matrix_tiles();
        let is_wide = size_of::<C>() == 2;
        let (lane, warps) = (warp::lane_id(), ROWS as u32 / TILE);
        let chunks = WIDTH as u32 / 8;
        let (row, chunk) = (lane / chunks, lane % chunks);
        let head = u64::from(self.unit.kv_head);
        let start = |elements: *const C, strides: HeadStrides| {
            let in_row = u64::from(16 / size_of::<C>() as u32 * chunk);
            let at = head * strides.head + u64::from(row) * strides.row + in_row;
            elements.wrapping_add(at as usize)
        };
        let (k, v) = (start(k, shape.k), start(v, shape.v));
        let (mut write, mut read) = (PipelineState::<STAGES>::new(), PipelineState::<STAGES>::new());
        // Each lane holds the location of one of 32 tiles. The locations of the next 32 tiles are loaded in advance.
        // SAFETY: guaranteed by the caller.
        let places = |number: u32| unsafe { self.place(first + (number + lane) * warps) };
        let (mut current, mut next) = (places(0), places(32));
        // The key and the value of a new token are not in the cache yet.
        let cached = self.keys.length.saturating_sub(u32::from(new.is_some()));
        // Bit i is set if the tile that was copied i copies ago has a plane.
        let mut exists = 0u32;
        let mut copied = 0;
        let mut copy = |exists: &mut u32| {
            let tile = first + copied * warps;
            if copied != 0 && copied % 32 == 0 {
                current = next;
                next = places(copied + 32);
            }
            let plane = warp::shuffle(!0, current.0, copied % 32);
            let first_row = warp::shuffle(!0, current.1, copied % 32);
            let is_there = plane != u32::MAX;
            *exists = *exists << 1 | u32::from(is_there);
            if tile < self.end {
                // Rows that no query attends to are zeros, because a NaN in v times zero is NaN.
                let skipped = self.keys.of(0).0.saturating_sub(TILE * tile);
                let rows = if is_there { cached - TILE * tile } else { 0 };
                let copy = |tiles: &MatrixTiles<u16, ROWS, WIDTH, STAGES>,
                            from: *const C,
                            strides: HeadStrides| {
                    let at = u64::from(plane) * strides.plane + u64::from(first_row) * strides.row;
                    let mut from = from.wrapping_add(at as usize);
                    let mut down = 0;
                    while down < TILE {
                        let exists = row + down >= skipped && row + down < rows;
                        // SAFETY: a row that is copied exists and starts on a 16-byte boundary. The warp has read the
                        // previous tile in the slot.
                        unsafe {
                            tiles.at(write).copy_chunk(TILE * warp + row + down, chunk, from.cast(), exists)
                        };
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
        // The compiler does not unroll this loop: instructions that run once must be fetched first.
        while i < opaque(STAGES - 1) {
            copy(&mut exists);
            i += 1;
        }
        if shape.reads_early != 0 {
            grid::dependency_wait();
        }
        let position = (new.is_some() && self.keys.length > 0).then_some(cached);
        let new_tile = position.map_or(u32::MAX, |position| position / TILE);
        // SAFETY: guaranteed by the caller; the tables contain the position.
        let (staged, queries) = unsafe {
            let place = (new_tile >= first - warp && new_tile < self.end).then(|| {
                let (plane, row) = self.place(new_tile);
                (plane, row + cached % TILE)
            });
            let staged = Staged::<T, STEPS>::load(self.operands, self.unit, position, place);
            thread::sync_threads();
            (staged, staged.operands::<GROUPS>(self.unit))
        };
        // The next copies overwrite the queries in shared memory.
        thread::sync_threads();
        let mut partial = Partial::<STEPS, GROUPS>::new();
        // All queries attend to the keys of this range.
        let all = (self.keys.of(shape.queries - 1).0, self.keys.of(0).1);
        let mut tile = first;
        while tile < self.end {
            wait_copies_leaving::<{ STAGES - 2 }>();
            // After this point, all lanes have completed their copies of this tile and have read the preceding tile.
            warp::sync_warp(!0);
            copy(&mut exists);
            let is_there = exists >> (STAGES - 1) & 1 != 0;
            let key = TILE * tile;
            let (k_tile, v_tile) = (k_tiles.at(read), v_tiles.at(read));
            if tile == new_tile && is_there {
                // SAFETY: the lanes have completed their copies of this tile, and read it after the barrier.
                unsafe { staged.append([k_tile, v_tile], TILE * warp + cached % TILE, self.unit) };
                warp::sync_warp(!0);
            }
            let mut scores = [[0.0f32; 4]; GROUPS];
            let mut words = [0; 4];
            each::<STEPS>(|j| {
                let keys = if is_wide {
                    // SAFETY: the copies of this warp's rows of the slot are complete.
                    unsafe { k_tile.load_a(TILE * warp, 2 * j as u32) }
                } else {
                    if j % 2 == 0 {
                        // SAFETY: as above.
                        words = unsafe { k_tile.load_a(TILE * warp, j as u32) };
                    }
                    let [low, high] = [0, 1].map(|row| C::pairs(words[2 * (j % 2) + row]));
                    [low[0], high[0], low[1], high[1]]
                };
                each::<GROUPS>(|group| {
                    // SAFETY: all lanes of the warp make this call together.
                    scores[group] = unsafe { mma::<T>(scores[group], keys, queries[j][group]) };
                });
            });
            if shape.cap != 0.0 {
                // tanh(x) = 1 - 2 / (exp(2 * x) + 1)
                each::<GROUPS>(|group| {
                    scores[group] = scores[group]
                        .map(|score| 1.0 - 2.0 * fast::recip(fast::exp2(score * shape.cap) + 1.0));
                });
            }
            if !is_there || key < all.0 || key + TILE > all.1 {
                each::<GROUPS>(|group| {
                    each::<2>(|i| {
                        let query = GROUP * group as u32 + 2 * (lane % 4) + i as u32;
                        let (_, row) = self.unit.place(&shape, query);
                        let (first, end) = self.keys.of(row);
                        let hide = |key: u32, score: &mut f32| {
                            if !is_there || key < first || key >= end {
                                *score = f32::NEG_INFINITY;
                            }
                        };
                        hide(key + lane / 4, &mut scores[group][i]);
                        hide(key + lane / 4 + 8, &mut scores[group][i + 2]);
                    });
                });
            }
            let mut probabilities = [[0; 2]; GROUPS];
            each::<GROUPS>(|group| {
                let [a, b, c, d] = partial.probabilities(group, scores[group], shape.scale);
                probabilities[group] = [transposed(T::pack(a, b)), transposed(T::pack(c, d))];
            });
            each::<STEPS>(|j| {
                let values = if is_wide {
                    // SAFETY: as above.
                    unsafe { v_tile.load_a_transposed(TILE * warp, 2 * j as u32) }
                } else {
                    if j % 2 == 0 {
                        // SAFETY: as above.
                        words = unsafe { v_tile.load_a_transposed(TILE * warp, j as u32) };
                    }
                    // A word contains two adjacent elements of two keys.
                    let [[a, b], [c, d]] = [0, 2].map(|keys| C::pairs(words[j % 2 + keys]));
                    [a, b, c, d]
                };
                each::<GROUPS>(|group| {
                    let sums = &mut partial.sums[j][group];
                    // SAFETY: as above.
                    *sums = unsafe { mma::<T>(*sums, values, probabilities[group]) };
                });
            });
            read.advance();
            tile += warps;
        }
        partial
    }
}

/// Transposes an 8 x 8 matrix of 16-bit elements. Each lane holds elements `2 * (lane % 4)` and `2 * (lane % 4) + 1` of
/// row `lane / 4`. The function converts packed sums of [`mma`] to a register of an operand.
#[inline(always)]
fn transposed(elements: u32) -> u32 {
    let lane = warp::lane_id();
    let (row, pair) = (lane / 4, 2 * (lane % 4));
    let element = |i: u32| warp::shuffle(!0, elements, 4 * i + row / 2) >> (16 * (row % 2)) & 0xffff;
    element(pair) | element(pair + 1) << 16
}

/// Partial result of a warp over its keys. In each group of eight queries, a lane holds query `2 * (lane % 4)` and the
/// next. In each group of 16 elements, it holds elements `lane / 4` and `lane / 4 + 8`, or with values of 8 bits,
/// element `2 * (lane / 4)` and the next.
struct Partial<const STEPS: usize, const GROUPS: usize> {
    /// Sums of the values, weighted by `exp2` relative to the maximum.
    sums: [[[f32; 4]; GROUPS]; STEPS],
    /// Maximum score of each query; `-inf` before the first score.
    largest: [[f32; 2]; GROUPS],
    /// Sum of this lane's `exp2` values for each query.
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

    /// Performs a step of the online softmax: returns the `exp2` of the scores relative to the running maximum, and
    /// rescales the sums.
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

    /// Stores the warp's sums in shared memory. Values of 8 bits (`is_wide` is false) have their elements in another
    /// order.
    ///
    /// # Safety
    ///
    /// All lanes of the warp must call this method. The dynamic shared memory must have space for the sums of all
    /// warps, and no other warp may use the space of this warp.
    #[inline(always)]
    unsafe fn share<const DIM: usize>(&self, warp: u32, scale: f32, is_wide: bool) {
        let lane = warp::lane_id();
        each::<GROUPS>(|group| {
            each::<2>(|i| {
                let query = GROUP * group as u32 + 2 * (lane % 4) + i as u32;
                let to = shared_row::<DIM, GROUPS>(warp as usize, query);
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
                        let (stride, next) = if is_wide { (1, 8) } else { (2, 1) };
                        let to = to.wrapping_add(16 * j + stride * (lane / 4) as usize);
                        to.write(self.sums[j][group][i]);
                        to.wrapping_add(next).write(self.sums[j][group][i + 2]);
                    });
                }
            });
        });
    }
}
