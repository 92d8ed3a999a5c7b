//! `out = softmax(scale * q * k^T) * v` of heads of attention: the kernel.
//!
//! A block has three warp groups, for [`TILE_Q`] rows of a head of q. One warp of the first copies these rows, and blocks of k
//! and v into two rings; the other groups have 64 rows each. For each block of k they multiply q and k, take the powers of two
//! of the scores relative to the greatest of each row so far, and multiply them by v from registers. The scores of one block
//! and the products with v of the one before are under way together, so that the tensor cores work while powers are taken.
//! Heads of up to 128 elements leave time for one group to take powers while the other multiplies: the groups take turns in
//! issuing products.
//!
//! Blocks of k are worked on from the last to the first: masks are needed in the last alone, or in those on the diagonal.
//!
//! Design: that of FlashAttention-2 and -3 (arXiv 2307.08691, 2407.08608).

use gpu_std::math::fast;
use gpu_std::prelude::*;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Barrier, Barriers, Columns, Fragments, Half, MnMajor, SharedMemory, SharedTile, Slot,
    TensorMap, barrier, copy, warp_group,
};

use crate::sequences::{HeadStrides, Sequences, coordinates};
use crate::softmax::{Keys, Rows, mask, scale};

/// Rows of q of a block.
pub const TILE_Q: u32 = 128;
/// Stages of each ring.
pub const STAGES: usize = 2;
/// Threads of a block.
pub const THREADS: u32 = 3 * warp_group::THREADS;
/// Elements of a row of a box, and rows of those of v.
pub const BOX: u32 = 64;

/// Rows of q of a warp group.
const GROUP_ROWS: u32 = 64;
/// Warp groups that multiply.
const CONSUMERS: u32 = TILE_Q / GROUP_ROWS;
/// Bytes of a row of a box.
const ROW_BYTES: u32 = 2 * BOX;

/// Where heads lie, and how their rows attend.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Shape {
    /// The sequences, and the heads of q.
    pub sequences: Sequences,
    /// Heads of q for each head of k and v.
    pub group: u32,
    /// Whether row i of a sequence of n rows of q and m of k attends to no rows of k beyond i + m - n.
    pub is_causal: u32,
    /// The factor of scores, times log2(e): positive.
    pub scale: f32,
    /// Which maps have rows before heads: bit 0 for q, 1 for k, 2 for v. The others have heads before rows.
    pub rows_first: u32,
    /// Where the rows of out lie, at multiples of 8.
    pub out: HeadStrides,
}

impl Shape {
    #[inline(always)]
    fn coordinates(&self, map: u32, column: u32, row: u32, head: u32, plane: u32) -> [u32; 4] {
        coordinates(self.rows_first, map, column, row, head, plane)
    }
}

/// The elements of heads: [`Head64`], [`Head128`], [`Head256`].
pub trait Head: Send + Sync + 'static {
    /// Elements of a row of a head.
    const DIM: u32;
    /// Rows of a block of k and v.
    const KEYS: u32;
    /// Dynamic shared memory of a block of threads.
    const SHARED_BYTES: u32 =
        SharedMemory::bytes(2 * Self::DIM * (TILE_Q + 2 * STAGES as u32 * Self::KEYS), 4 + 4 * STAGES as u32);
    /// The whole of the kernel.
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are the kernel's")]
    unsafe fn forward<T: Half>(
        q: &TensorMap<T, 4>,
        k: &TensorMap<T, 4>,
        v: &TensorMap<T, 4>,
        out: DisjointMut<T>,
        sums: Option<DisjointMut<f32>>,
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
                sums: Option<DisjointMut<f32>>,
                q_offsets: Option<&[u32]>,
                k_offsets: Option<&[u32]>,
                shape: Shape,
            ) {
                const Q_ROWS: usize = TILE_Q as usize * ($dim / 64);
                // SAFETY: the caller's promise.
                unsafe {
                    forward::<T, $dim, $keys, Q_ROWS, { $keys * ($dim / 64) }>(
                        q, k, v, out, sums, q_offsets, k_offsets, shape,
                    )
                }
            }
        }
    )* };
}

heads! {
    /// 64 elements.
    Head64: 64, 128;
    /// 128 elements.
    Head128: 128, 128;
    /// 256 elements: their sums leave registers for the scores of 64 rows of k.
    Head256: 256, 64;
}

/// Attention. `sums` gets the natural logarithm of the sum of the exponentials of each row's scores, and `-inf` where there are
/// none, whose row of `out` is zero.
///
/// # Safety
///
/// - The launch has `H::SHARED_BYTES`, and a block for each tile of [`Sequences::tiles`].
/// - The maps are of the elements, rows, heads and planes that `shape` says; k and v have a head for each group of heads of q.
///   Their dimensions are in this order, or rows and heads in the other. The boxes have `Swizzle::Bytes128` and [`BOX`] elements of one head: of [`TILE_Q`] rows of q, `H::KEYS` of k, [`BOX`] of v.
/// - `out` begins at a multiple of 16 bytes and has the rows that `shape` says, `sums` an element for each row of each head of
///   each plane. Both offsets or none are there, with an element more than there are sequences.
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
    sums: Option<DisjointMut<f32>>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    shape: Shape,
) {
    // SAFETY: the caller's promise.
    unsafe { H::forward(q, k, v, out, sums, q_offsets, k_offsets, shape) }
}

/// The rows of a ring of tiles of k and v.
type Ring<T, const ROWS: usize> = gpu_std::tensor::SharedTiles<T, ROWS, STAGES>;

/// [`attention()`] of heads of `D` elements with `KEYS` rows in a block of k. Tiles of `D / 64` boxes have `Q_ROWS` and `KV_ROWS`.
///
/// # Safety
///
/// That of [`attention()`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "they are the kernel's")]
unsafe fn forward<T: Half, const D: usize, const KEYS: usize, const Q_ROWS: usize, const KV_ROWS: usize>(
    q: &TensorMap<T, 4>,
    k: &TensorMap<T, 4>,
    v: &TensorMap<T, 4>,
    mut out: DisjointMut<T>,
    sums: Option<DisjointMut<f32>>,
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
    let place = match (q_offsets, k_offsets) {
        // SAFETY: the caller's promise.
        (Some(q), Some(k)) => match unsafe { shape.sequences.packed(number, TILE_Q, q, k) } {
            Some(place) => place,
            None => return,
        },
        _ => shape.sequences.equal(number, TILE_Q),
    };
    let keys = Keys::new(&place, shape.is_causal != 0);
    let blocks = keys.before(place.row + TILE_Q - 1).div_ceil(KEYS as u32);

    // SAFETY: the launch has this memory for it, by the caller's promise.
    let mut memory = unsafe { SharedMemory::new() };
    let q_tile = memory.tiles::<T, Q_ROWS, 1>().tile::<0>();
    let k_tiles: Ring<T, KV_ROWS> = memory.tiles();
    let v_tiles: Ring<T, KV_ROWS> = memory.tiles();
    let once = memory.barriers::<2>();
    let (k_full, k_empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    let (v_full, v_empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    let [q_full, v_partial] = both(once);
    let turns = memory.barriers::<2>();
    if thread::linear_in_block() == 0 {
        q.prefetch();
        k.prefetch();
        v.prefetch();
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            once.init(1);
            k_full.init(1);
            v_full.init(1);
            k_empty.init(CONSUMERS);
            v_empty.init(CONSUMERS);
            turns.init(warp_group::THREADS / 32);
        }
        barrier::publish();
    }
    thread::sync_threads();

    let warp = warp_group::warp_index();
    let (mut k_slot, mut v_slot) = (Slot::new(), Slot::new());
    if warp < 4 {
        // SAFETY: the block has a fixed size, and began with 168 registers a thread.
        unsafe { warp_group::release_registers::<40>() };
        if warp == 0 {
            // SAFETY: all lanes of the warp are here.
            let leads = unsafe { warp_group::elect() };
            let kv_head = crate::tiles::divide(place.head, shape.group).0;
            if leads {
                // SAFETY: nothing has used the tile.
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
            let load_k = |slot: Slot<STAGES>, block: u32| {
                if leads {
                    let (tile, loaded) = (k_tiles.at(slot), k_full.at(slot));
                    // SAFETY: the consumers have read the stage.
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
                // What follows a sequence belongs to another: a factor of 0 would not keep its NaN away.
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
                    // SAFETY: one block alone is partial. The tile is loaded, and nothing else uses it before the barrier
                    // says that it is full.
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

    // SAFETY: the block has a fixed size, and the producer releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warp_group::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let lane = warp::lane_id();
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // Blocks that all rows of the group attend to.
    let whole = keys.before(group_row) / KEYS as u32;
    let limits = [keys.before(row), keys.before(row + 8)].map(|limit| limit as i32 - (lane % 4 * 2) as i32);
    let takes_turns = D <= 128;
    let [first_turn, second_turn] = both(turns);
    let (own_turn, other_turn) =
        if group == 0 { (first_turn, second_turn) } else { (second_turn, first_turn) };
    // The first group's first turn has come without an arrival.
    let mut turn = 1 - group;
    let mut rows = Rows::new();
    let mut scores = Accumulator::<KEYS>::new();
    let mut values = Accumulator::<D>::new();
    // SAFETY: all threads of the warp group do the same. Stages are read when they are full, and given back when the products
    // that read them are done.
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
            rows.weigh(registers.as_mut(), shape.scale);
            let mut weights = Fragments::<T, KEYS>::new(registers);
            let mut is_first = true;
            while block > 0 {
                block -= 1;
                k_full.at(k_slot).wait(k_slot.parity());
                if takes_turns {
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
                // Of each warp, so that none of the other group sees two turns in one.
                if takes_turns && lane == 0 {
                    other_turn.arrive();
                }
                scores = next.wait_leaving::<1>();
                release(k_empty.at(k_slot), warp);
                k_slot.advance();
                let registers = scores.registers_mut();
                if block >= whole {
                    mask(registers.as_mut(), limits, block * KEYS as u32);
                }
                let factors = rows.weigh(registers.as_mut(), shape.scale);
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
    if let Some(mut sums) = sums
        && lane.is_multiple_of(4)
    {
        let head = u64::from(place.plane) * u64::from(shape.sequences.heads) + u64::from(place.head);
        let first = head * u64::from(shape.sequences.q_rows) + u64::from(place.q.0);
        let mut half = 0;
        while half < 2 {
            let row = row + 8 * half as u32;
            if row < place.q.1 {
                let logarithm =
                    (rows.base(half, shape.scale) + fast::log2(totals[half])) * core::f32::consts::LN_2;
                // SAFETY: there is an element for each row, which no other thread writes.
                unsafe { sums.as_mut_ptr().add((first + u64::from(row)) as usize).write(logarithm) };
            }
            half += 1;
        }
    }
    // Rows that attend to nothing have sums of 0; NaN stays NaN.
    scale(
        values.registers_mut().as_mut(),
        totals.map(|total| if total == 0.0 { 0.0 } else { fast::recip(total) }),
    );

    // By way of q's tile, which the group has read to the end.
    // SAFETY: 128 threads of the block meet, at a barrier for each of the two warp groups. The rows of out are within it and multiples
    // of 16 bytes, and no other block has them.
    unsafe {
        warp_group::sync(1 + group, warp_group::THREADS);
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

/// The rows of part `part` of a tile that a warp group has, of `D / 64` boxes of [`TILE_Q`] rows.
///
/// # Safety
///
/// The tile has them.
#[inline(always)]
pub(crate) unsafe fn own_rows<T: Half, const ROWS: usize>(
    tile: SharedTile<T, ROWS>,
    part: u32,
    group: u32,
) -> SharedTile<T, 64> {
    // SAFETY: the caller's promise.
    unsafe { tile.rows::<64>(part * CONSUMERS + group) }
}

/// Rounds the rows of a warp group and writes them, by way of a tile that the group alone uses, so that a warp writes whole sectors.
///
/// # Safety
///
/// All threads of the group call it. Nothing else uses its rows of the tile. `to` begins at a multiple of 16 bytes and has `rows` rows
/// every `pitch` elements, a multiple of 8, from that of the group's first row on.
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
        // SAFETY: a warp uses its own 16 rows; the rest is the caller's promise.
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

/// Two barriers, one by one.
#[inline(always)]
fn both(barriers: Barriers<2>) -> [Barrier; 2] {
    let (first, mut second) = (Slot::new(), Slot::new());
    second.advance();
    [barriers.at(first), barriers.at(second)]
}

/// Eight elements, which are stored at once.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Chunk(pub [u32; 4]);

/// Zeros rows `from..to` of a tile of `D` columns, in boxes of 64 x 64, row of boxes by row of boxes. Called by a warp.
///
/// # Safety
///
/// The tile has the rows, and nothing else uses them meanwhile.
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
        // SAFETY: the box is the one of the row and the chunk.
        unsafe { tile.rows::<{ BOX as usize }>(index).store_chunk(row % BOX, chunk % 8, [0; 4]) };
        i += 32;
    }
}

/// Gives a stage back to the producer: one arrival for each warp group.
///
/// # Safety
///
/// The products that read the stage are done, in all threads of the warp group.
#[inline(always)]
pub(crate) unsafe fn release(empty: Barrier, warp: u32) {
    if warp.is_multiple_of(4) && warp::lane_id() == 0 {
        // SAFETY: the caller's promise.
        unsafe { empty.arrive() };
    }
}
