//! Persistent GEMM on tensor cores, `C = A * B`: the kernels, and their body [`product`], from which other crates
//! build kernels with their own epilogues.
//!
//! A block has three warpgroups. One thread of the first warpgroup is the producer: it copies tiles of A and B into a
//! circular buffer of [`STAGES`] stages. The two consumer warpgroups each compute 64 rows of the block's [`TILE_M`] x
//! [`TILE_N`] tile of C. They apply the epilogue, convert the tile in shared memory, and store it with TMA while the
//! mainloop of the next tile starts. The kernel is persistent: blocks loop over the tiles of C. Tiles are rasterized in
//! groups of [`RASTER_GROUP`] tile columns, so that concurrently running blocks share rows of A and columns of B
//! through the L2 cache. In a cluster of two vertically adjacent blocks, each block multicasts half of B to both.
//!
//! A tile row has 128 bytes for every element type, so the size of a stage in bytes does not depend on the type. For
//! example, a stage covers 64 columns of A for 16-bit elements, and 32 columns for 32-bit elements.
//!
//! Design: the warp-specialized persistent kernels of CUTLASS, and pranjalssh/fast.cu.

use gpu_std::prelude::*;
use gpu_std::tensor::copy::{commit_stores, fence_tiles, wait_stores, wait_stores_read};
use gpu_std::tensor::{
    Accumulator, F8E4M3, KMajor, Major, MnMajor, Multiply, Output, PipelineState, SharedMemory, SharedTile,
    TensorMap, barrier, warpgroup,
};

use crate::epilogue::{EpilogueParams, silu};
use crate::tiles::Tiles;

/// Number of rows of C per tile.
pub const TILE_M: u32 = 128;
/// Number of columns of C per tile.
pub const TILE_N: u32 = 256;
/// Number of bytes per row of a tile in shared memory.
pub const ROW_BYTES: u32 = 128;
/// Number of rows (along K) and number of columns per box of an MN-major operand.
pub const BOX: u32 = 64;
/// Number of stages of the circular buffer.
pub const STAGES: usize = 4;
/// Number of tile columns per raster group.
pub const RASTER_GROUP: u32 = 8;
/// Number of threads per block.
pub const THREADS: u32 = 3 * warpgroup::THREADS;

/// Number of rows of a tile per warpgroup, which is also the number of rows per box of C.
pub const GROUP_ROWS: u32 = 64;
/// Number of consumer warpgroups.
const CONSUMERS: u32 = TILE_M / GROUP_ROWS;
/// Number of 64-row tiles in which a warpgroup stages C.
const PARTS: usize = 2;
const STAGE_BYTES: u32 = ROW_BYTES * (TILE_M + TILE_N);

/// Dynamic shared memory per block.
pub const SHARED_BYTES: u32 = SharedMemory::bytes(
    STAGES as u32 * STAGE_BYTES + CONSUMERS * PARTS as u32 * GROUP_ROWS * ROW_BYTES,
    2 * STAGES as u32,
);

/// Problem size of a GEMM. All sizes must be at least 1 and less than 2^31.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Sizes {
    /// Number of rows of A and C.
    pub m: u32,
    /// Number of columns of B and C.
    pub n: u32,
    /// Number of columns of A, which is also the number of rows of B.
    pub k: u32,
    /// Number of matrices in the batch.
    pub batches: u32,
    /// Number of A matrices: `batches`, or 1 if A is broadcast.
    pub a_planes: u32,
    /// Number of B matrices: `batches`, or 1 if B is broadcast.
    pub b_planes: u32,
    /// Number of stages per block of a cluster, for split-K. The last block may process fewer stages or no stages.
    pub split_stages: u32,
}

/// Position of two horizontally adjacent sums in C.
#[derive(Clone, Copy)]
pub struct At {
    /// Index of the matrix in the batch.
    pub batch: u32,
    /// Row, which may be out of bounds.
    pub row: u32,
    /// Column of the first sum; the second sum belongs to the next column. Both may be out of bounds.
    pub column: u32,
}

/// Element types of A and B, each with the corresponding type of C.
pub trait GemmOperand: Multiply {
    /// Type of C.
    type Output: Output<Self::Sum>;
}

macro_rules! elements {
    ($($ty:ty => $output:ty),*) => { $(
        impl GemmOperand for $ty {
            type Output = $output;
        }
    )* };
}
elements!(bf16 => bf16, f16 => f16, f32 => f32, F8E4M3 => bf16, i8 => i32);

/// GEMM of 16-bit elements, `c = activation(scale * a * b + bias)`, for each matrix of a batch. A cluster has `CLUSTER`
/// blocks. A is row-major for [`KMajor`] and column-major for [`MnMajor`]; for B, the layouts are reversed.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`]; `bias` must have n elements.
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
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
{
    let finish = |sums: &mut [f32; TILE_N as usize / 2], at: At| finish.apply(sums, bias, at);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, T, A, B, CLUSTER>(a, b, c, sizes, finish) }
}

/// Like [`matmul()`], but `c = silu(scale * a * gate + bias) * (scale * a * up + bias)`: plane 0 of `b` is `gate`, and
/// plane 1 is `up`. All operands are K-major, and there is one matrix. Each block of a cluster copies one of the planes,
/// so a tile of C has half as many columns as a tile of sums.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`], except for the planes of `b`; `bias` must have 2 * n
/// elements.
#[kernel(types(T = bf16, f16), arch = "90a", block(THREADS), cluster(2), dependent, no_panic)]
pub unsafe fn matmul_swiglu<T>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<T, 3>,
    bias: Option<&[T]>,
    sizes: Sizes,
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
{
    let bias_of = |column: u32| match bias {
        // SAFETY: the index is below the length, 2 * n.
        Some(bias) => unsafe { *bias.get_unchecked(column.min(2 * sizes.n - 1) as usize) }.into(),
        None => 0.0,
    };
    let finish = |sums: &mut [f32; TILE_N as usize / 2], at: At| {
        let (gates, factors) = sums.split_at_mut(const { TILE_N as usize / 4 });
        let mut i = 0;
        while i < const { TILE_N as usize / 4 } {
            let column = at.column + (i as u32 / 4) * 8 + i as u32 % 2;
            let gate = gates[i] * finish.scale + bias_of(column);
            gates[i] = silu(gate) * (factors[i] * finish.scale + bias_of(sizes.n + column));
            i += 1;
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { pairs::<T, T, KMajor, KMajor, 2, true>(a, b, c, sizes, finish) }
}

/// Like [`matmul()`], but for TF32 (the upper 19 bits of `f32`) and FP8 elements; both operands are K-major.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul()`].
#[kernel(
    types(T = f32, F8E4M3),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    dependent,
    no_panic
)]
pub unsafe fn matmul_tn<T: GemmOperand<Sum = f32>, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<T::Output, 3>,
    bias: Option<&[T::Output]>,
    sizes: Sizes,
    finish: EpilogueParams,
) where
    T::Output: Into<f32>,
{
    let finish = |sums: &mut [f32; TILE_N as usize / 2], at: At| finish.apply(sums, bias, at);
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, T::Output, KMajor, KMajor, CLUSTER>(a, b, c, sizes, finish) }
}

/// GEMM of integers, `c = a * b`; both operands are K-major. Sums wrap around.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`].
#[kernel(
    types(T = i8),
    consts(CLUSTER = 1, 2),
    arch = "90a",
    block(THREADS),
    cluster(CLUSTER),
    dependent,
    no_panic
)]
pub unsafe fn matmul_integers<T: GemmOperand<Sum = i32, Output = i32>, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<i32, 3>,
    sizes: Sizes,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { product::<T, i32, KMajor, KMajor, CLUSTER>(a, b, c, sizes, |_, _| ()) }
}

/// Body of a GEMM kernel that computes `c = a * b` for each matrix of a batch, in clusters of `CLUSTER` blocks along x.
/// All threads of the launch must call this function. `finish` is the epilogue; it is called with each thread's sums
/// before they are stored. Sum `4 * j + 2 * h + i` belongs to row `at.row + 8 * h` and column `at.column + 8 * j + i`.
///
/// # Safety
///
/// - The kernel must be declared with `arch = "90a"`, `block(THREADS)` and `cluster(CLUSTER)`. The launch must have
///   [`SHARED_BYTES`] of dynamic shared memory and a one-dimensional grid of whole clusters. The maps must describe the
///   matrices of `sizes`, with the batch as the third dimension. The boxes must have `Swizzle::Bytes128`, and
///   [`ROW_BYTES`] bytes per row. The boxes of a K-major A have [`TILE_M`] rows, and the boxes of a K-major B have
///   [`TILE_N`] / `CLUSTER` rows. The boxes of an MN-major matrix have [`BOX`] rows, and the boxes of C have
///   [`GROUP_ROWS`] rows.
/// - `c` overlaps neither `a` nor `b`, and contains one plane per matrix of the batch.
#[inline(always)]
pub unsafe fn product<T: Multiply, C: Output<T::Sum>, A: Major, B: Major, const CLUSTER: u32>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<C, 3>,
    sizes: Sizes,
    finish: impl Fn(&mut [T::Sum; TILE_N as usize / 2], At),
) {
    // SAFETY: guaranteed by the caller.
    unsafe { pairs::<T, C, A, B, CLUSTER, false>(a, b, c, sizes, finish) }
}

/// Body of all kernels. If `PAIRED` is true, the columns of a tile of B are half of plane 0 and half of plane 1, the
/// first half of the sums becomes C, and `CLUSTER` must be 2.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`].
#[inline(always)]
unsafe fn pairs<
    T: Multiply,
    C: Output<T::Sum>,
    A: Major,
    B: Major,
    const CLUSTER: u32,
    const PAIRED: bool,
>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &TensorMap<C, 3>,
    sizes: Sizes,
    finish: impl Fn(&mut [T::Sum; TILE_N as usize / 2], At),
) {
    const { assert!(!PAIRED || CLUSTER == 2 && !B::IS_TRANSPOSED) };
    let width = const { if PAIRED { TILE_N / 2 } else { TILE_N } };
    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
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
        // SAFETY: the barriers have not been used yet; all threads synchronize after the initialization.
        unsafe {
            full.init(1);
            empty.init(CLUSTER * CONSUMERS);
        }
        barrier::publish();
    }
    sync_cluster::<CLUSTER>();
    // Programmatic dependent launch lets the code above overlap the tail of the preceding launch.
    grid::dependency_wait();

    // TMA reads out-of-bounds elements as zero and does not write them.
    let tile_k = SharedTile::<T, 64>::COLUMNS;
    let tiles = Tiles::new(&sizes, TILE_M * CLUSTER, width);
    let stages = sizes.k.div_ceil(tile_k);
    let (first, step) = (thread::block_idx_x() / CLUSTER, thread::grid_dim_x() / CLUSTER);
    let warp = warpgroup::warp_index();
    let mut slot = PipelineState::new();

    if warp < 4 {
        // SAFETY: the block size is fixed, and each thread started with 168 registers.
        unsafe { warpgroup::release_registers::<40>() };
        // SAFETY: all lanes of the warp execute this call.
        if warp == 0 && unsafe { warpgroup::elect() } {
            let mut number = first;
            while number < tiles.count() {
                let tile = tiles.at(number);
                let row = (tile.row * CLUSTER + rank) * TILE_M;
                let column = tile.column * width;
                let (a_plane, b_plane) =
                    (tile.batch.min(sizes.a_planes - 1), tile.batch.min(sizes.b_planes - 1));
                let mut stage = 0;
                while stage < stages {
                    let (a_tile, b_tile, loaded) = (a_tiles.at(slot), b_tiles.at(slot), full.at(slot));
                    let at = stage * tile_k;
                    // SAFETY: the consumers of all blocks that receive the copies have finished reading this stage.
                    // Each of these blocks expects the bytes of its own copy of A and of all parts of B.
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
                            let place = if PAIRED {
                                [at, column, rank]
                            } else {
                                [at, column + rank * (TILE_N / 2), b_plane]
                            };
                            b.load_multicast(part, place, loaded, 0b11);
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
        // SAFETY: the block size is fixed, and the producer releases 128 registers per thread: 40 + 2 * 232 = 3 * 168.
        unsafe { warpgroup::acquire_registers::<232>() };
        let group = warp / 4 - 1;
        // SAFETY: all lanes of the warp execute this call.
        let leads = warp.is_multiple_of(4) && unsafe { warpgroup::elect() };
        let own_tiles = c_tiles[if group == 0 { 0 } else { 1 }];
        let in_warp = (warp % 4 * 16 + warp::lane_id() / 4, warp::lane_id() % 4 * 2);
        let mut sums = Accumulator::<{ TILE_N as usize }, T::Sum>::new();
        let mut number = first;
        while number < tiles.count() {
            let tile = tiles.at(number);
            // SAFETY: all threads of the warpgroup execute the loop together.
            let mut running = unsafe { sums.pending() };
            let mut last = slot;
            let mut stage = 0;
            while stage < stages {
                // SAFETY: the stage is loaded, and stays unchanged until the `wgmma` operations of the batch are
                // complete. All threads of the warpgroup execute the same code.
                unsafe {
                    full.at(slot).wait(slot.parity());
                    let a_tile = a_tiles.at(slot).rows::<64>(group);
                    let mut batch = running.begin();
                    batch.mma_of::<A, B, T, T>(a_tile, b_tiles.at(slot), stage > 0);
                    running = batch.commit();
                }
                running.wait_for_earlier();
                if stage > 0 {
                    // SAFETY: the `wgmma` operations of the preceding stage are complete.
                    unsafe { release(empty.at(last), warp, CLUSTER, 0) };
                }
                last = slot;
                slot.advance();
                stage += 1;
            }
            sums = running.wait();
            // SAFETY: all `wgmma` operations are complete.
            unsafe { release(empty.at(last), warp, CLUSTER, 0) };

            let row = (tile.row * CLUSTER + rank) * TILE_M + group * GROUP_ROWS;
            let column = tile.column * width;
            let registers = sums.registers_mut();
            finish(registers, At { batch: tile.batch, row: row + in_warp.0, column: column + in_warp.1 });
            let columns = SharedTile::<C, 64>::COLUMNS;
            let mut part = 0;
            while part < width {
                if leads {
                    wait_stores_read();
                }
                // SAFETY: 128 threads of the block synchronize, and each warpgroup has its own barrier.
                unsafe { warpgroup::sync(1 + group, warpgroup::THREADS) };
                let mut i = 0;
                while i < PARTS as u32 * columns / 16 {
                    let at = (part / 2 + i * 8) as usize;
                    let block = core::array::from_fn(|j| registers[at + j]);
                    let is_first = i < columns / 16;
                    let into = if is_first { own_tiles.tile::<0>() } else { own_tiles.tile::<1>() };
                    let in_tile = if is_first { i } else { i - columns / 16 };
                    // SAFETY: the preceding TMA stores have finished reading the tile.
                    unsafe { C::store(into, warp % 4 * 16, in_tile, block) };
                    i += 1;
                }
                fence_tiles();
                // SAFETY: as above.
                unsafe { warpgroup::sync(1 + group, warpgroup::THREADS) };
                if leads {
                    let column = column + part;
                    // SAFETY: the tiles are written, and nothing overwrites them until TMA has read them.
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
    // A block must not exit while the other block can still copy into its shared memory or arrive at its barriers.
    if CLUSTER > 1 {
        cluster::sync();
    }
}

/// Synchronizes all threads that share the barriers.
#[inline(always)]
fn sync_cluster<const CLUSTER: u32>() {
    if CLUSTER > 1 { cluster::sync() } else { thread::sync_threads() }
}

/// Releases a stage to its producers in the `shared_by` cluster blocks whose ranks start at `first`. The barrier of
/// each of these blocks receives one arrival per warpgroup.
///
/// # Safety
/// In all threads of the warpgroup, the `wgmma` operations that read the stage must be complete.
#[inline(always)]
pub(crate) unsafe fn release(empty: barrier::Barrier, warp: u32, shared_by: u32, first: u32) {
    let lane = warp::lane_id();
    if warp.is_multiple_of(4) && lane < shared_by {
        // SAFETY: the cluster contains a block with this rank, and the block exits only after a cluster barrier; the
        // caller guarantees the rest.
        unsafe {
            if shared_by > 1 {
                empty.arrive_at(first + lane);
            } else {
                empty.arrive();
            }
        }
    }
}
