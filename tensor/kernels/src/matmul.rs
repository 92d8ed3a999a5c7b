//! `C = A * B^T` of matrices of 16-bit numbers, row by row in memory, with sums of `f32`.
//!
//! A block has three warp groups. One thread of the first copies tiles of A and B into a ring of [`STAGES`] stages; the
//! others multiply them, each 64 rows of the block's [`TILE_M`] x [`TILE_N`] tile of C, convert it in shared memory and have
//! it copied out while they begin the next. Blocks walk over the tiles of C in bands of [`BAND`] columns of tiles, so that
//! those at work at a time use the same rows of A and B, which the L2 cache holds then. In a cluster of two blocks, one
//! above the other, each copies half of B to both.
//!
//! Design: that of CUTLASS's warp-specialised persistent kernels, and of pranjalssh/fast.cu.

use core::num::NonZeroU32;

use gpu_std::prelude::*;
use gpu_std::tensor::copy::{commit_stores, fence_tiles, wait_stores, wait_stores_read};
use gpu_std::tensor::{Accumulator, Operand, SharedMemory, Slot, TensorMap, barrier, warp_group};

/// Rows of C of a block's tile.
pub const TILE_M: u32 = 128;
/// Columns of C of a block's tile.
pub const TILE_N: u32 = 256;
/// Columns of A and B of a stage.
pub const TILE_K: u32 = 64;
/// Stages of the ring.
pub const STAGES: usize = 4;
/// Columns of tiles of a band.
pub const BAND: u32 = 8;
/// Threads of a block.
pub const THREADS: u32 = 3 * warp_group::THREADS;

/// Rows of a warp group's part of a tile, and of the boxes of C.
pub const GROUP_ROWS: u32 = 64;
/// Warp groups that multiply.
const CONSUMERS: u32 = TILE_M / GROUP_ROWS;
/// Tiles of 64 x 64 in which a warp group stages C.
const PARTS: usize = 2;
const STAGE_BYTES: u32 = 2 * TILE_K * (TILE_M + TILE_N);

/// Dynamic shared memory of a block.
pub const SHARED_BYTES: u32 =
    SharedMemory::bytes(STAGES as u32 * STAGE_BYTES + CONSUMERS * PARTS as u32 * 8192, 2 * STAGES as u32);

/// `c = a * b^T`, with `a` of m x k, `b` of n x k and `c` of m x n elements, in clusters of `CLUSTER` blocks along x.
///
/// # Safety
///
/// - The boxes of `a` have [`TILE_K`] columns and [`TILE_M`] rows, those of `b` [`TILE_N`] / `CLUSTER` rows, those of `c` 64
///   columns and [`GROUP_ROWS`] rows, all with `Swizzle::Bytes128`.
/// - m, n and k are the sizes of the matrices, at least 1 and below 2^31, and the launch has [`SHARED_BYTES`] of shared
///   memory and a one-dimensional grid.
/// - `c` overlaps neither `a` nor `b`.
#[kernel(
    types(T = bf16, f16),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    no_panic
)]
pub unsafe fn matmul_tn<T: Operand, const CLUSTER: u32>(
    a: &TensorMap<T, 2>,
    b: &TensorMap<T, 2>,
    c: &TensorMap<T, 2>,
    m: u32,
    n: u32,
    k: u32,
) {
    // SAFETY: the launch has this memory for it, by the kernel's contract.
    let mut memory = unsafe { SharedMemory::new() };
    let a_tiles = memory.tiles::<T, { TILE_M as usize }, { TILE_K as usize }, STAGES>();
    let b_tiles = memory.tiles::<T, { TILE_N as usize }, { TILE_K as usize }, STAGES>();
    let c_tiles = [memory.tiles::<T, 64, 64, PARTS>(), memory.tiles::<T, 64, 64, PARTS>()];
    let full = memory.barriers::<STAGES>();
    let empty = memory.barriers::<STAGES>();

    let rank = if CLUSTER > 1 { cluster::block_rank() } else { 0 };
    if thread::linear_in_block() == 0 {
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            full.init(1);
            empty.init(CLUSTER * CONSUMERS);
        }
        barrier::publish();
    }
    meet::<CLUSTER>();

    // What lies outside of the matrices is read as zero, and not written.
    let tiles = Tiles::new(m.div_ceil(TILE_M * CLUSTER), n.div_ceil(TILE_N));
    let (first, step) = (thread::block_idx_x() / CLUSTER, thread::grid_dim_x() / CLUSTER);
    let stages = k.div_ceil(TILE_K);
    let warp = warp_group::warp_index();
    let mut slot = Slot::new();

    if warp < 4 {
        // SAFETY: the block has a fixed size, and began with 168 registers a thread.
        unsafe { warp_group::release_registers::<40>() };
        if warp == 0 && warp_group::elect() {
            let mut tile = first;
            while tile < tiles.count() {
                let (row, column) = tiles.at(tile);
                let (row, column) = ((row * CLUSTER + rank) * TILE_M, column * TILE_N);
                let mut stage = 0;
                while stage < stages {
                    let (a_tile, b_tile, loaded) = (a_tiles.at(slot), b_tiles.at(slot), full.at(slot));
                    // SAFETY: the consumers of all blocks that the copies reach have read the stage. Each of these blocks
                    // expects the bytes of its own copy of A and of all parts of B.
                    unsafe {
                        empty.at(slot).wait(slot.parity() ^ 1);
                        loaded.arrive_expecting(STAGE_BYTES);
                        a.load(a_tile, [stage * TILE_K, row], loaded);
                        if CLUSTER > 1 {
                            let part = b_tile.rows::<{ TILE_N as usize / 2 }>(rank);
                            let column = column + rank * (TILE_N / 2);
                            b.load_multicast(part, [stage * TILE_K, column], loaded, 0b11);
                        } else {
                            b.load(b_tile, [stage * TILE_K, column], loaded);
                        }
                    }
                    slot.advance();
                    stage += 1;
                }
                tile += step;
            }
        }
        warp::sync_warp(!0);
    } else {
        // SAFETY: the block has a fixed size, and the producer releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
        unsafe { warp_group::acquire_registers::<232>() };
        let group = warp / 4 - 1;
        let leads = warp.is_multiple_of(4) && warp_group::elect();
        let own_tiles = c_tiles[if group == 0 { 0 } else { 1 }];
        let mut sums = Accumulator::<{ TILE_N as usize }>::new();
        let mut tile = first;
        while tile < tiles.count() {
            let (row, column) = tiles.at(tile);
            let mut running = sums.pending();
            let mut last = slot;
            let mut stage = 0;
            while stage < stages {
                // SAFETY: the stage is loaded, and read until the products of the batch are waited for. All threads of the
                // warp group do the same.
                unsafe {
                    full.at(slot).wait(slot.parity());
                    let a_tile = a_tiles.at(slot).rows::<64>(group);
                    let mut batch = running.begin();
                    batch.mma(a_tile, b_tiles.at(slot), stage > 0);
                    running = batch.commit();
                }
                running.wait_for_earlier();
                if stage > 0 {
                    // SAFETY: the products of the stage before are done.
                    unsafe { release::<CLUSTER>(empty.at(last), warp) };
                }
                last = slot;
                slot.advance();
                stage += 1;
            }
            sums = running.wait();
            // SAFETY: all products are done.
            unsafe { release::<CLUSTER>(empty.at(last), warp) };

            let row = (row * CLUSTER + rank) * TILE_M + group * GROUP_ROWS;
            let column = column * TILE_N;
            let registers = sums.registers();
            let mut part = 0;
            while part < 4 {
                if leads {
                    wait_stores_read();
                }
                // SAFETY: 128 threads of the block meet, at a barrier for each of the two warp groups.
                unsafe { warp_group::sync(1 + group, warp_group::THREADS) };
                let mut i = 0;
                while i < 4 * PARTS {
                    let at = (4 * part + i) * 8;
                    let pair = |offset: usize| T::pack(registers[at + offset], registers[at + offset + 1]);
                    let packed = [pair(0), pair(2), pair(4), pair(6)];
                    let into = if i < 4 { own_tiles.tile::<0>() } else { own_tiles.tile::<1>() };
                    // SAFETY: the copies before have read the tile.
                    unsafe { into.store_matrices((warp % 4) * 16, 2 * (i as u32 % 4), packed) };
                    i += 1;
                }
                fence_tiles();
                // SAFETY: as above.
                unsafe { warp_group::sync(1 + group, warp_group::THREADS) };
                if leads {
                    let column = column + 64 * part as u32;
                    // SAFETY: the tiles are written, and nothing writes them until they were read.
                    unsafe {
                        c.store(own_tiles.tile::<0>(), [column, row]);
                        c.store(own_tiles.tile::<1>(), [column + 64, row]);
                    }
                    commit_stores();
                }
                part += PARTS;
            }
            tile += step;
        }
        if leads {
            wait_stores();
        }
        warp::sync_warp(!0);
    }
    // No block ends while the other may copy into it or arrive at its barriers.
    if CLUSTER > 1 {
        cluster::sync();
    }
}

/// All threads that share the barriers meet.
#[inline(always)]
fn meet<const CLUSTER: u32>() {
    if CLUSTER > 1 { cluster::sync() } else { thread::sync_threads() }
}

/// Gives a stage back to the producers of all blocks of the cluster: one arrival for each warp group and block.
///
/// # Safety
///
/// The products that read the stage are done, in all threads of the warp group.
#[inline(always)]
unsafe fn release<const CLUSTER: u32>(empty: barrier::Barrier, warp: u32) {
    let lane = warp::lane_id();
    if warp.is_multiple_of(4) && lane < CLUSTER {
        // SAFETY: the caller's promise; a block of the cluster has this rank, and ends after a barrier of the cluster.
        unsafe {
            if CLUSTER > 1 {
                empty.arrive_at(lane);
            } else {
                empty.arrive();
            }
        }
    }
}

/// The tiles of C, in the order in which they are worked on: bands of [`BAND`] columns, row by row.
#[derive(Clone, Copy)]
struct Tiles {
    rows: u32,
    columns: u32,
}

impl Tiles {
    #[inline(always)]
    fn new(rows: u32, columns: u32) -> Self {
        Self { rows, columns }
    }

    #[inline(always)]
    fn count(self) -> u32 {
        self.rows.wrapping_mul(self.columns)
    }

    /// Row and column of tile `number`, below the count.
    #[inline(always)]
    fn at(self, number: u32) -> (u32, u32) {
        let (band, in_band) = divide(number, self.rows * BAND);
        // The last band may be narrower.
        let (row, column) = divide(in_band, BAND.min(self.columns - band * BAND));
        (row, band * BAND + column)
    }
}

/// `a / b` and `a % b`, for a `b` that is not 0, without a check: a panic would be a call.
#[inline(always)]
fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: the least is 1, which is what 0 becomes.
    let b = unsafe { NonZeroU32::new_unchecked(b.max(1)) };
    (a / b, a % b)
}
