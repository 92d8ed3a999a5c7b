//! Attention forward kernel: `out = softmax(scale * q * k^T) * v`, per head.
//!
//! Each block has three warpgroups and processes [`TILE_Q`] rows of one head of q. One warp of the first warpgroup is
//! the producer: it copies the tile of q once, and copies blocks of k and v into two circular buffers. The two consumer
//! warpgroups process 64 rows each. For each block of k, a consumer multiplies q by k and applies `exp2` to the scores
//! relative to the running maximum of each row. The resulting probabilities stay in registers and are multiplied by v.
//! The QK product of one block and the PV product of the preceding block are in flight at the same time, so that the
//! tensor cores stay busy during `exp2`. Heads of up to 128 elements use ping-pong scheduling: the consumers alternate
//! in issuing `wgmma`, so that one computes `exp2` while the other multiplies.
//!
//! Blocks of k are processed from the last to the first, because only the last block, or the blocks on the diagonal,
//! need masking.
//!
//! Design: FlashAttention-2 and -3 (arXiv 2307.08691, 2407.08608).

use gpu_std::prelude::*;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Barrier, Barriers, Columns, Fragments, Half, MnMajor, PipelineState, SharedMemory,
    SharedTile, TensorMap, barrier, copy, warpgroup,
};

use crate::sequences::{HeadStrides, Sequences, coordinates};
use crate::softmax::{Keys, Rows, mask, reciprocals, scale};

/// Number of rows of q per block.
pub const TILE_Q: u32 = 128;
/// Number of stages of each circular buffer.
pub const STAGES: usize = 2;
/// Number of threads per block.
pub const THREADS: u32 = 3 * warpgroup::THREADS;
/// Number of elements per row of a TMA box, and number of rows per box of v.
pub const BOX: u32 = 64;

/// Number of rows of q per warpgroup.
const GROUP_ROWS: u32 = 64;
/// Number of consumer warpgroups.
const CONSUMERS: u32 = TILE_Q / GROUP_ROWS;
/// Number of bytes per row of a box.
const ROW_BYTES: u32 = 2 * BOX;

/// Sizes and strides of the heads, and the attention options.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Shape {
    /// The sequences and the number of q heads.
    pub sequences: Sequences,
    /// Number of q heads per k and v head.
    pub group: u32,
    /// 1 for a causal mask. In a sequence with n rows of q and m rows of k, row i of q then attends only to the rows of
    /// k up to and including row `i + m - n`.
    pub is_causal: u32,
    /// Softmax scale times log2(e); positive.
    pub scale: f32,
    /// Bit mask of the tensor maps whose row dimension comes before the head dimension: bit 0 for q, 1 for k, 2 for v.
    /// In the other maps, the head dimension comes first.
    pub rows_first: u32,
    /// Strides of `out`, multiples of 8.
    pub out: HeadStrides,
}

impl Shape {
    #[inline(always)]
    fn coordinates(&self, map: u32, column: u32, row: u32, head: u32, plane: u32) -> [u32; 4] {
        coordinates(self.rows_first, map, column, row, head, plane)
    }
}

/// Head dimension: [`Head64`], [`Head128`], [`Head256`].
pub trait Head: Send + Sync + 'static {
    /// Number of elements per row of a head.
    const DIM: u32;
    /// Number of rows per block of k and v.
    const KEYS: u32;
    /// Dynamic shared memory per thread block.
    const SHARED_BYTES: u32 =
        SharedMemory::bytes(2 * Self::DIM * (TILE_Q + 2 * STAGES as u32 * Self::KEYS), 4 + 4 * STAGES as u32);
    /// Body of the kernel.
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are the kernel's")]
    unsafe fn forward<T: Half>(
        q: &TensorMap<T, 4>,
        k: &TensorMap<T, 4>,
        v: &TensorMap<T, 4>,
        out: DisjointMut<T>,
        lse: Option<DisjointMut<f32>>,
        q_offsets: Option<&[u32]>,
        k_offsets: Option<&[u32]>,
        shape: Shape,
    );
}

macro_rules! heads {
    ($($(#[$doc:meta])* $name:ident: $dim:literal, $keys:literal;)*) => { $(
        $(#[$doc])*
        pub struct $name;

        impl Head for $name {
            const DIM: u32 = $dim;
            const KEYS: u32 = $keys;
            #[inline(always)]
            unsafe fn forward<T: Half>(
                q: &TensorMap<T, 4>,
                k: &TensorMap<T, 4>,
                v: &TensorMap<T, 4>,
                out: DisjointMut<T>,
                lse: Option<DisjointMut<f32>>,
                q_offsets: Option<&[u32]>,
                k_offsets: Option<&[u32]>,
                shape: Shape,
            ) {
                const Q_ROWS: usize = TILE_Q as usize * ($dim / 64);
                // SAFETY: guaranteed by the caller.
                unsafe {
                    forward::<T, $dim, $keys, Q_ROWS, { $keys * ($dim / 64) }>(
                        q, k, v, out, lse, q_offsets, k_offsets, shape,
                    )
                }
            }
        }
    )* };
}

heads! {
    /// Head dimension 64.
    Head64: 64, 128;
    /// Head dimension 128.
    Head128: 128, 128;
    /// Head dimension 256. Its accumulator leaves only enough registers for the scores of 64 rows of k.
    Head256: 256, 64;
}

/// Computes attention. `lse` receives the log-sum-exp of each row's scores. For a row that attends to no rows, `lse`
/// receives `-inf`, and the row of `out` is zero.
///
/// # Safety
///
/// - The launch must have `H::SHARED_BYTES` of dynamic shared memory, and one block per tile of [`Sequences::tiles`].
///   The maps must describe the elements, rows, heads and planes of `shape`; k and v have one head per group of q
///   heads. The dimensions are in this order, or with rows and heads swapped as `shape.rows_first` states. The boxes
///   use `Swizzle::Bytes128` and contain [`BOX`] elements of one head. Each box has [`TILE_Q`] rows for q, `H::KEYS`
///   rows for k and [`BOX`] rows for v. `out` starts on a 16-byte boundary and contains the rows that `shape`
///   describes. `lse` has one element per row of each head of each plane. The offsets are either both present or both
///   absent, and the length of each array is the number of sequences plus one.
#[kernel(
    types(T = bf16, f16; H = Head64, Head128, Head256),
    arch = "90a",
    block(THREADS),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention<T: Half, H: Head>(
    q: &TensorMap<T, 4>,
    k: &TensorMap<T, 4>,
    v: &TensorMap<T, 4>,
    out: DisjointMut<T>,
    lse: Option<DisjointMut<f32>>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: Shape,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { H::forward(q, k, v, out, lse, q_offsets, k_offsets, shape) }
}

/// Circular buffer of tiles of k or v.
type Ring<T, const ROWS: usize> = gpu_std::tensor::SharedTiles<T, ROWS, STAGES>;

/// Body of [`attention()`] for heads with `D` elements per row and blocks with `KEYS` rows of k. A tile consists of `D
/// / 64` boxes; all its boxes together have `Q_ROWS` rows for q, and `KV_ROWS` rows for k or v.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention()`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "they are the kernel's")]
unsafe fn forward<T: Half, const D: usize, const KEYS: usize, const Q_ROWS: usize, const KV_ROWS: usize>(
    q: &TensorMap<T, 4>,
    k: &TensorMap<T, 4>,
    v: &TensorMap<T, 4>,
    mut out: DisjointMut<T>,
    lse: Option<DisjointMut<f32>>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: Shape,
) where
    Columns<KEYS>: Depth,
    Columns<D>: Width,
{
    const {
        assert!(Q_ROWS == TILE_Q as usize * (D / 64) && KV_ROWS == KEYS * (D / 64));
    }
    let parts = D as u32 / BOX;
    let number = thread::block_idx_x();
    let is_packed = q_offsets.is_some();
    // SAFETY: guaranteed by the caller.
    let Some(place) = (unsafe { shape.sequences.place(number, TILE_Q, q_offsets, k_offsets) }) else {
        return;
    };
    let keys = Keys::new(&place, shape.is_causal != 0);
    let blocks = keys.before(place.row + TILE_Q - 1).div_ceil(KEYS as u32);

    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let q_tile = memory.tiles::<T, Q_ROWS, 1>().tile::<0>();
    let k_tiles: Ring<T, KV_ROWS> = memory.tiles();
    let v_tiles: Ring<T, KV_ROWS> = memory.tiles();
    let once = memory.barriers::<2>();
    let (k_full, k_empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    let (v_full, v_empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    let [q_full, v_partial] = both(once);
    let ping_pong = memory.barriers::<2>();
    if thread::linear_in_block() == 0 {
        q.prefetch();
        k.prefetch();
        v.prefetch();
        // SAFETY: the barriers have not been used yet; all threads synchronize after the initialization.
        unsafe {
            once.init(1);
            k_full.init(1);
            v_full.init(1);
            k_empty.init(CONSUMERS);
            v_empty.init(CONSUMERS);
            ping_pong.init(warpgroup::THREADS / 32);
        }
        barrier::publish();
    }
    thread::sync_threads();

    let warp = warpgroup::warp_index();
    let (mut k_slot, mut v_slot) = (PipelineState::new(), PipelineState::new());
    if warp < 4 {
        // SAFETY: the block size is fixed, and each thread started with 168 registers.
        unsafe { warpgroup::release_registers::<40>() };
        if warp == 0 {
            // SAFETY: all lanes of the warp execute this call.
            let leads = unsafe { warpgroup::elect() };
            let kv_head = crate::tiles::divide(place.head, shape.group).0;
            if leads {
                // SAFETY: nothing has accessed the tile yet.
                unsafe {
                    q_full.arrive_expecting(TILE_Q * parts * ROW_BYTES);
                    let mut part = 0;
                    while part < parts {
                        let row = place.q.0 + place.row;
                        let at = shape.coordinates(0, BOX * part, row, place.head, place.plane);
                        q.load(q_tile.rows::<{ TILE_Q as usize }>(part), at, q_full);
                        part += 1;
                    }
                }
            }
            let load_k = |slot: PipelineState<STAGES>, block: u32| {
                if leads {
                    let (tile, loaded) = (k_tiles.at(slot), k_full.at(slot));
                    // SAFETY: the consumers have finished reading this stage.
                    unsafe {
                        k_empty.at(slot).wait(slot.parity() ^ 1);
                        loaded.arrive_expecting(KV_ROWS as u32 * ROW_BYTES);
                        let mut part = 0;
                        while part < parts {
                            let row = place.k.0 + block * KEYS as u32;
                            let at = shape.coordinates(1, BOX * part, row, kv_head, place.plane);
                            k.load(tile.rows::<KEYS>(part), at, loaded);
                            part += 1;
                        }
                    }
                }
            };
            let mut block = blocks;
            if block > 0 {
                load_k(k_slot, block - 1);
                k_slot.advance();
            }
            while block > 0 {
                block -= 1;
                if block > 0 {
                    load_k(k_slot, block - 1);
                    k_slot.advance();
                }
                let first = block * KEYS as u32;
                // The rows that follow a sequence belong to the next one. They may contain NaN, which multiplying by a
                // probability of 0 would not remove.
                let is_partial = is_packed && first + KEYS as u32 > place.k.1;
                let tile = v_tiles.at(v_slot);
                let loaded = if is_partial { v_partial } else { v_full.at(v_slot) };
                if leads {
                    // SAFETY: as above.
                    unsafe {
                        v_empty.at(v_slot).wait(v_slot.parity() ^ 1);
                        loaded.arrive_expecting(KV_ROWS as u32 * ROW_BYTES);
                        let mut part = 0;
                        while part < KV_ROWS as u32 / BOX {
                            let (rows, columns) = (part / parts * BOX, part % parts * BOX);
                            let row = place.k.0 + first + rows;
                            let at = shape.coordinates(2, columns, row, kv_head, place.plane);
                            v.load(tile.rows::<{ BOX as usize }>(part), at, loaded);
                            part += 1;
                        }
                    }
                }
                if is_partial {
                    // SAFETY: only one block is partial. The tile is loaded, and no other thread uses it before the
                    // barrier signals that it is full.
                    unsafe {
                        warp::sync_warp(!0);
                        loaded.wait(0);
                        clear::<T, D, KV_ROWS>(tile, place.k.1 - first, KEYS as u32);
                        copy::fence_tiles();
                        warp::sync_warp(!0);
                        if leads {
                            v_full.at(v_slot).arrive();
                        }
                    }
                }
                v_slot.advance();
            }
        }
        warp::sync_warp(!0);
        return;
    }

    // SAFETY: the block size is fixed, and the producer releases 128 registers per thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warpgroup::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let lane = warp::lane_id();
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // Exclusive end of the blocks to which all rows of the warpgroup attend in full.
    let whole = keys.before(group_row) / KEYS as u32;
    let limits = [keys.before(row), keys.before(row + 8)].map(|limit| limit as i32 - (lane % 4 * 2) as i32);
    let is_ping_pong = D <= 128;
    let [first_turn, second_turn] = both(ping_pong);
    let (own_turn, other_turn) =
        if group == 0 { (first_turn, second_turn) } else { (second_turn, first_turn) };
    // The first turn of the first warpgroup starts without an arrival at the barrier.
    let mut turn = 1 - group;
    let mut rows = Rows::new();
    let mut scores = Accumulator::<KEYS>::new();
    let mut values = Accumulator::<D>::new();
    // SAFETY: all threads of the warpgroup execute the same code. Each stage is read only while it is full, and is
    // released only after the `wgmma` operations that read it are complete.
    unsafe {
        q_full.wait(0);
        let mut block = blocks;
        if block > 0 {
            block -= 1;
            k_full.at(k_slot).wait(k_slot.parity());
            let mut batch = scores.pending().begin();
            let mut part = 0;
            while part < parts {
                let q_rows = q_tile.rows::<{ TILE_Q as usize }>(part).rows::<64>(group);
                batch.mma(q_rows, k_tiles.at(k_slot).rows::<KEYS>(part), part > 0);
                part += 1;
            }
            scores = batch.commit().wait();
            release(k_empty.at(k_slot), warp);
            k_slot.advance();
            let registers = scores.registers_mut();
            if block >= whole {
                mask(registers.as_mut(), limits, block * KEYS as u32);
            }
            rows.probabilities(registers.as_mut(), shape.scale);
            let mut weights = Fragments::<T, KEYS>::new(registers);
            let mut is_first = true;
            while block > 0 {
                block -= 1;
                k_full.at(k_slot).wait(k_slot.parity());
                if is_ping_pong {
                    own_turn.wait(turn);
                    turn ^= 1;
                }
                let mut batch = scores.pending().begin();
                let mut part = 0;
                while part < parts {
                    let q_rows = q_tile.rows::<{ TILE_Q as usize }>(part).rows::<64>(group);
                    batch.mma(q_rows, k_tiles.at(k_slot).rows::<KEYS>(part), part > 0);
                    part += 1;
                }
                let next = batch.commit();
                v_full.at(v_slot).wait(v_slot.parity());
                let mut batch = values.pending().begin_with(weights);
                let mut part = 0;
                while part < KEYS as u32 / BOX {
                    let v_rows = v_tiles.at(v_slot).rows::<D>(part);
                    batch.mma_fragments::<MnMajor>(part, v_rows, !is_first || part > 0);
                    part += 1;
                }
                let products = batch.commit();
                is_first = false;
                // Every warp arrives, so that no warp of the other warpgroup can miss a phase.
                if is_ping_pong && lane == 0 {
                    other_turn.arrive();
                }
                scores = next.wait_leaving::<1>();
                release(k_empty.at(k_slot), warp);
                k_slot.advance();
                let registers = scores.registers_mut();
                if block >= whole {
                    mask(registers.as_mut(), limits, block * KEYS as u32);
                }
                let factors = rows.probabilities(registers.as_mut(), shape.scale);
                values = products.wait();
                release(v_empty.at(v_slot), warp);
                v_slot.advance();
                scale(values.registers_mut().as_mut(), factors);
                weights = Fragments::new(scores.registers());
            }
            v_full.at(v_slot).wait(v_slot.parity());
            let mut batch = values.pending().begin_with(weights);
            let mut part = 0;
            while part < KEYS as u32 / BOX {
                let v_rows = v_tiles.at(v_slot).rows::<D>(part);
                batch.mma_fragments::<MnMajor>(part, v_rows, !is_first || part > 0);
                part += 1;
            }
            values = batch.commit().wait();
        }
    }

    let totals = rows.totals();
    if let Some(mut lse) = lse {
        // SAFETY: `lse` has one element per row, and no other thread writes the elements of these rows.
        unsafe { rows.store_lse(&mut lse, &place, &shape.sequences, row, totals, shape.scale) };
    }
    scale(values.registers_mut().as_mut(), reciprocals(totals));

    // The output is staged in the tile of q, which the warpgroup has finished reading. SAFETY: 128 threads of the block
    // synchronize, and each warpgroup has its own barrier. The rows of `out` are in bounds, start on 16-byte
    // boundaries, and belong to no other block.
    unsafe {
        warpgroup::sync(1 + group, warpgroup::THREADS);
        if group_row < place.q.1 {
            let at = shape.out.at(place.plane, place.head, place.q.0 + group_row);
            let (to, rows) = (out.as_mut_ptr().wrapping_add(at as usize), place.q.1 - group_row);
            write_rows::<T, D, Q_ROWS>(
                values.registers().as_ref(),
                q_tile,
                (group, warp),
                to,
                shape.out.row,
                rows,
            );
        }
    }
}

/// Returns the rows of this warpgroup in part `part` of a tile with `D / 64` boxes of [`TILE_Q`] rows.
///
/// # Safety
/// The tile must contain these rows.
#[inline(always)]
pub(crate) unsafe fn own_rows<T: Half, const ROWS: usize>(
    tile: SharedTile<T, ROWS>,
    part: u32,
    group: u32,
) -> SharedTile<T, 64> {
    // SAFETY: guaranteed by the caller.
    unsafe { tile.rows::<64>(part * CONSUMERS + group) }
}

/// Rounds the rows of a warpgroup and writes them to memory. The rows are first staged in a tile that only this
/// warpgroup uses, so that each warp writes whole sectors.
///
/// # Safety
/// All threads of the warpgroup must call this function, and nothing else may use the warpgroup's rows of the tile.
/// `to` must point to the warpgroup's first row and be aligned to 16 bytes. `to` must be valid for `rows` rows whose
/// stride is `pitch` elements, a multiple of 8.
#[inline(always)]
pub(crate) unsafe fn write_rows<T: Half, const D: usize, const ROWS: usize>(
    sums: &[f32],
    tile: SharedTile<T, ROWS>,
    (group, warp): (u32, u32),
    to: *mut T,
    pitch: u64,
    rows: u32,
) {
    let lane = warp::lane_id();
    let mut part = 0;
    while part < D as u32 / BOX {
        // SAFETY: each warp uses only its own 16 rows; the caller guarantees the rest.
        unsafe {
            let tile = own_rows(tile, part, group);
            let mut i = 0;
            while i < BOX / 16 {
                let at = (part * 32 + i * 8) as usize;
                T::store(tile, warp % 4 * 16, i, core::array::from_fn(|j| sums[at + j]));
                i += 1;
            }
            warp::sync_warp(!0);
            let mut i = 0;
            while i < 4 {
                let row = warp % 4 * 16 + i * 4 + lane / 8;
                if row < rows {
                    let at = u64::from(row) * pitch + u64::from(part * BOX + lane % 8 * 8);
                    let chunk = tile.load_chunk(row, lane % 8);
                    to.add(at as usize).cast::<Chunk>().write(Chunk(chunk));
                }
                i += 1;
            }
        }
        part += 1;
    }
}

/// Splits a pair of barriers into its two barriers.
#[inline(always)]
fn both(barriers: Barriers<2>) -> [Barrier; 2] {
    let (first, mut second) = (PipelineState::new(), PipelineState::new());
    second.advance();
    [barriers.at(first), barriers.at(second)]
}

/// Eight 16-bit elements that are stored in one access.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Chunk(pub [u32; 4]);

/// Zeros rows `from..to` of a tile of `D` columns that consists of boxes of 64 x 64 elements. All lanes of the warp
/// must call this function.
///
/// # Safety
/// The tile must contain the rows, and nothing else may use them during the call.
#[inline(always)]
pub(crate) unsafe fn clear<T: Half, const D: usize, const KV_ROWS: usize>(
    tile: SharedTile<T, KV_ROWS>,
    from: u32,
    to: u32,
) {
    let chunks = D as u32 / 8;
    let mut i = from * chunks + warp::lane_id();
    while i < to * chunks {
        let (row, chunk) = (i / chunks, i % chunks);
        let index = row / BOX * (D as u32 / BOX) + chunk / 8;
        // SAFETY: the box contains the row and the chunk.
        unsafe { tile.rows::<{ BOX as usize }>(index).store_chunk(row % BOX, chunk % 8, [0; 4]) };
        i += 32;
    }
}

/// Releases a stage to the producer, with one arrival per warpgroup.
///
/// # Safety
/// In all threads of the warpgroup, the `wgmma` operations that read the stage must be complete.
#[inline(always)]
pub(crate) unsafe fn release(empty: Barrier, warp: u32) {
    if warp.is_multiple_of(4) && warp::lane_id() == 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { empty.arrive() };
    }
}
