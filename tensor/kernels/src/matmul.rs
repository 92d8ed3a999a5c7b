//! `C = A * B` on tensor cores: the kernels, and [`product`], of which other crates make kernels with epilogues of their own.
//!
//! A block has three warp groups. One thread of the first copies tiles of A and B into a ring of [`STAGES`] stages; the
//! others multiply them, each 64 rows of the block's [`TILE_M`] x [`TILE_N`] tile of C, finish and convert it in shared memory
//! and have it copied out while they begin the next. Blocks walk over the tiles of C in bands of [`BAND`] columns of tiles,
//! so that those at work at a time use the same rows of A and columns of B, which the L2 cache holds then. In a cluster of
//! two blocks, one above the other, each copies half of B to both.
//!
//! A row of a tile has 128 bytes, whatever the type: a stage has as many bytes of each, and 64 columns of A of 16-bit numbers,
//! 32 of 32-bit ones.
//!
//! Design: that of CUTLASS's warp-specialised persistent kernels, and of pranjalssh/fast.cu.

use gpu_std::prelude::*;
use gpu_std::tensor::copy::{commit_stores, fence_tiles, wait_stores, wait_stores_read};
use gpu_std::tensor::{
    Accumulator, F8E4M3, KMajor, Major, MnMajor, Multiply, Output, SharedMemory, SharedTile, Slot, TensorMap,
    barrier, warp_group,
};

use crate::epilogue::Finish;
use crate::tiles::Tiles;

/// Rows of C of a block's tile.
pub const TILE_M: u32 = 128;
/// Columns of C of a block's tile.
pub const TILE_N: u32 = 256;
/// Bytes of a row of a tile in shared memory.
pub const ROW_BYTES: u32 = 128;
/// Rows of the boxes of an MN-major operand, along K, and their columns.
pub const BOX: u32 = 64;
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
/// Tiles of 64 rows in which a warp group stages C.
const PARTS: usize = 2;
const STAGE_BYTES: u32 = ROW_BYTES * (TILE_M + TILE_N);

/// Dynamic shared memory of a block.
pub const SHARED_BYTES: u32 = SharedMemory::bytes(
    STAGES as u32 * STAGE_BYTES + CONSUMERS * PARTS as u32 * GROUP_ROWS * ROW_BYTES,
    2 * STAGES as u32,
);

/// What is multiplied. All are at least 1 and below 2^31.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Sizes {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Products.
    pub batches: u32,
    /// Matrices of A: as many as products, or one for all.
    pub a_planes: u32,
    /// Matrices of B, likewise.
    pub b_planes: u32,
    /// Stages of the part of K that a block of a cluster sums, where they divide K. The last has fewer, and some may have none.
    pub split_stages: u32,
}

/// Where in C two sums lie.
#[derive(Clone, Copy)]
pub struct At {
    /// The product.
    pub batch: u32,
    /// The row, which may be beyond C.
    pub row: u32,
    /// The column of the first; that of the second is the next. Both may be beyond C.
    pub column: u32,
}

/// Types of matrices, with what their products are stored as.
pub trait Element: Multiply {
    /// The type of C.
    type Output: Output<Self::Sum>;
}

macro_rules! elements {
    ($($ty:ty => $output:ty),*) => { $(
        impl Element for $ty {
            type Output = $output;
        }
    )* };
}
elements!(bf16 => bf16, f16 => f16, f32 => f32, F8E4M3 => bf16, i8 => i32);

/// `c = activation(scale * a * b + bias)` of 16-bit numbers, for each product of a batch, in clusters of `CLUSTER` blocks.
/// [`KMajor`] is an A of rows and a B of columns, [`MnMajor`] an A of columns and a B of rows.
///
/// # Safety
///
/// That of [`product`]; `bias` has n elements.
#[kernel(
    types(T = bf16, f16; A = KMajor, MnMajor; B = KMajor, MnMajor),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    dependent,
    no_panic
)]
pub unsafe fn matmul<T, A: Major, B: Major, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<T, 3>,
    bias: Option<&[T]>,
    sizes: Sizes,
    finish: Finish,
) where
    T: Element<Sum = f32, Output = T> + Output<f32> + Into<f32>,
{
    let finish = |sums: &mut [f32; TILE_N as usize / 2], at: At| finish.apply(sums, bias, at);
    // SAFETY: the caller's promise.
    unsafe { product::<T, T, A, B, CLUSTER>(a, b, c, sizes, finish) }
}

/// [`matmul()`] of `f32`, whose upper 19 bits are multiplied (TF32), and of 8-bit floating-point numbers, both K-major.
///
/// # Safety
///
/// That of [`matmul()`].
#[kernel(
    types(T = f32, F8E4M3),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    dependent,
    no_panic
)]
pub unsafe fn matmul_tn<T: Element<Sum = f32>, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<T::Output, 3>,
    bias: Option<&[T::Output]>,
    sizes: Sizes,
    finish: Finish,
) where
    T::Output: Into<f32>,
{
    let finish = |sums: &mut [f32; TILE_N as usize / 2], at: At| finish.apply(sums, bias, at);
    // SAFETY: the caller's promise.
    unsafe { product::<T, T::Output, KMajor, KMajor, CLUSTER>(a, b, c, sizes, finish) }
}

/// `c = a * b` of integers, both K-major, whose sums wrap.
///
/// # Safety
///
/// That of [`product`].
#[kernel(
    types(T = i8),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    dependent,
    no_panic
)]
pub unsafe fn matmul_integers<T: Element<Sum = i32, Output = i32>, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<i32, 3>,
    sizes: Sizes,
) {
    // SAFETY: the caller's promise.
    unsafe { product::<T, i32, KMajor, KMajor, CLUSTER>(a, b, c, sizes, |_, _| ()) }
}

/// `c = a * b` for each product of a batch, in clusters of `CLUSTER` blocks along x: the whole of a kernel, by all threads of
/// a launch. `finish` gets the sums of a thread before they are stored: sum `4 * j + 2 * h + i` is that of row
/// `at.row + 8 * h` and column `at.column + 8 * j + i`.
///
/// # Safety
///
/// - The kernel has `arch = "90a"`, `block(THREADS)` and `cluster(CLUSTER)`, and the launch [`SHARED_BYTES`] of shared memory
///   and a one-dimensional grid of whole clusters.
/// - The maps are of the matrices that `sizes` says, their third dimension the planes. The boxes have `Swizzle::Bytes128` and
///   [`ROW_BYTES`] of columns. Those of a K-major A have [`TILE_M`] rows and of a K-major B [`TILE_N`] / `CLUSTER`; those of
///   an MN-major matrix have [`BOX`] rows, and those of C [`GROUP_ROWS`].
/// - `c` overlaps neither `a` nor `b`, and has a plane for each product.
#[inline(always)]
pub unsafe fn product<T: Multiply, C: Output<T::Sum>, A: Major, B: Major, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<C, 3>,
    sizes: Sizes,
    finish: impl Fn(&mut [T::Sum; TILE_N as usize / 2], At),
) {
    // SAFETY: the launch has this memory for it, by the caller's promise.
    let mut memory = unsafe { SharedMemory::new() };
    let a_tiles = memory.tiles::<T, { TILE_M as usize }, STAGES>();
    let b_tiles = memory.tiles::<T, { TILE_N as usize }, STAGES>();
    let c_tiles = [memory.tiles::<C, 64, PARTS>(), memory.tiles::<C, 64, PARTS>()];
    let full = memory.barriers::<STAGES>();
    let empty = memory.barriers::<STAGES>();

    let rank = if CLUSTER > 1 { cluster::block_rank() } else { 0 };
    if thread::linear_in_block() == 0 {
        a.prefetch();
        b.prefetch();
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            full.init(1);
            empty.init(CLUSTER * CONSUMERS);
        }
        barrier::publish();
    }
    meet::<CLUSTER>();
    // What is above may overlap the end of the launch before.
    grid::dependency_wait();

    // What lies outside of the matrices is read as zero, and not written.
    let tile_k = SharedTile::<T, 64>::COLUMNS;
    let tiles = Tiles::new(&sizes, TILE_M * CLUSTER, TILE_N);
    let stages = sizes.k.div_ceil(tile_k);
    let (first, step) = (thread::block_idx_x() / CLUSTER, thread::grid_dim_x() / CLUSTER);
    let warp = warp_group::warp_index();
    let mut slot = Slot::new();

    if warp < 4 {
        // SAFETY: the block has a fixed size, and began with 168 registers a thread.
        unsafe { warp_group::release_registers::<40>() };
        // SAFETY: all lanes of the warp are here.
        if warp == 0 && unsafe { warp_group::elect() } {
            let mut number = first;
            while number < tiles.count() {
                let tile = tiles.at(number);
                let row = (tile.row * CLUSTER + rank) * TILE_M;
                let column = tile.column * TILE_N;
                let (a_plane, b_plane) =
                    (tile.batch.min(sizes.a_planes - 1), tile.batch.min(sizes.b_planes - 1));
                let mut stage = 0;
                while stage < stages {
                    let (a_tile, b_tile, loaded) = (a_tiles.at(slot), b_tiles.at(slot), full.at(slot));
                    let at = stage * tile_k;
                    // SAFETY: the consumers of all blocks that the copies reach have read the stage. Each of these blocks
                    // expects the bytes of its own copy of A and of all parts of B.
                    unsafe {
                        empty.at(slot).wait(slot.parity() ^ 1);
                        loaded.arrive_expecting(STAGE_BYTES);
                        if A::IS_TRANSPOSED {
                            let mut part = 0;
                            while part < TILE_M / BOX {
                                a.load(a_tile.rows::<64>(part), [row + BOX * part, at, a_plane], loaded);
                                part += 1;
                            }
                        } else {
                            a.load(a_tile, [at, row, a_plane], loaded);
                        }
                        if B::IS_TRANSPOSED {
                            let mut i = 0;
                            while i < TILE_N / BOX / CLUSTER {
                                let part = rank * (TILE_N / BOX / CLUSTER) + i;
                                let (tile, place) =
                                    (b_tile.rows::<64>(part), [column + BOX * part, at, b_plane]);
                                if CLUSTER > 1 {
                                    b.load_multicast(tile, place, loaded, 0b11);
                                } else {
                                    b.load(tile, place, loaded);
                                }
                                i += 1;
                            }
                        } else if CLUSTER > 1 {
                            let part = b_tile.rows::<{ TILE_N as usize / 2 }>(rank);
                            b.load_multicast(part, [at, column + rank * (TILE_N / 2), b_plane], loaded, 0b11);
                        } else {
                            b.load(b_tile, [at, column, b_plane], loaded);
                        }
                    }
                    slot.advance();
                    stage += 1;
                }
                number += step;
            }
            grid::launch_dependents();
        }
        warp::sync_warp(!0);
    } else {
        // SAFETY: the block has a fixed size, and the producer releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
        unsafe { warp_group::acquire_registers::<232>() };
        let group = warp / 4 - 1;
        // SAFETY: all lanes of the warp are here.
        let leads = warp.is_multiple_of(4) && unsafe { warp_group::elect() };
        let own_tiles = c_tiles[if group == 0 { 0 } else { 1 }];
        let in_warp = (warp % 4 * 16 + warp::lane_id() / 4, warp::lane_id() % 4 * 2);
        let mut sums = Accumulator::<{ TILE_N as usize }, T::Sum>::new();
        let mut number = first;
        while number < tiles.count() {
            let tile = tiles.at(number);
            // SAFETY: all threads of the warp group go through the loop together.
            let mut running = unsafe { sums.pending() };
            let mut last = slot;
            let mut stage = 0;
            while stage < stages {
                // SAFETY: the stage is loaded, and read until the products of the batch are waited for. All threads of the
                // warp group do the same.
                unsafe {
                    full.at(slot).wait(slot.parity());
                    let a_tile = a_tiles.at(slot).rows::<64>(group);
                    let mut batch = running.begin();
                    batch.mma_of::<A, B, T, T>(a_tile, b_tiles.at(slot), stage > 0);
                    running = batch.commit();
                }
                running.wait_for_earlier();
                if stage > 0 {
                    // SAFETY: the products of the stage before are done.
                    unsafe { release(empty.at(last), warp, CLUSTER, 0) };
                }
                last = slot;
                slot.advance();
                stage += 1;
            }
            sums = running.wait();
            // SAFETY: all products are done.
            unsafe { release(empty.at(last), warp, CLUSTER, 0) };

            let row = (tile.row * CLUSTER + rank) * TILE_M + group * GROUP_ROWS;
            let column = tile.column * TILE_N;
            let registers = sums.registers_mut();
            finish(registers, At { batch: tile.batch, row: row + in_warp.0, column: column + in_warp.1 });
            let columns = SharedTile::<C, 64>::COLUMNS;
            let mut part = 0;
            while part < TILE_N {
                if leads {
                    wait_stores_read();
                }
                // SAFETY: 128 threads of the block meet, at a barrier for each of the two warp groups.
                unsafe { warp_group::sync(1 + group, warp_group::THREADS) };
                let mut i = 0;
                while i < PARTS as u32 * columns / 16 {
                    let at = (part / 2 + i * 8) as usize;
                    let block = core::array::from_fn(|j| registers[at + j]);
                    let is_first = i < columns / 16;
                    let into = if is_first { own_tiles.tile::<0>() } else { own_tiles.tile::<1>() };
                    let in_tile = if is_first { i } else { i - columns / 16 };
                    // SAFETY: the copies before have read the tile.
                    unsafe { C::store(into, warp % 4 * 16, in_tile, block) };
                    i += 1;
                }
                fence_tiles();
                // SAFETY: as above.
                unsafe { warp_group::sync(1 + group, warp_group::THREADS) };
                if leads {
                    let column = column + part;
                    // SAFETY: the tiles are written, and nothing writes them until they were read.
                    unsafe {
                        c.store(own_tiles.tile::<0>(), [column, row, tile.batch]);
                        c.store(own_tiles.tile::<1>(), [column + columns, row, tile.batch]);
                    }
                    commit_stores();
                }
                part += PARTS as u32 * columns;
            }
            number += step;
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

/// Gives a stage back to those that copy to it, in `shared_by` blocks of the cluster from rank `first` on: one arrival for each warp group
/// and block.
///
/// # Safety
///
/// The products that read the stage are done, in all threads of the warp group.
#[inline(always)]
pub(crate) unsafe fn release(empty: barrier::Barrier, warp: u32, shared_by: u32, first: u32) {
    let lane = warp::lane_id();
    if warp.is_multiple_of(4) && lane < shared_by {
        // SAFETY: the caller's promise; a block of the cluster has this rank, and ends after a barrier of the cluster.
        unsafe {
            if shared_by > 1 {
                empty.arrive_at(first + lane);
            } else {
                empty.arrive();
            }
        }
    }
}
