//! [`product`]: a tile of a product, or two, by a cluster whose blocks each sum a part of K.
//!
//! A block has a warp group for each [`GROUP_ROWS`] rows of the tile, and one warp more, which copies tiles of A and B into a ring
//! of stages. Then each block leaves its sums in its own shared memory, and adds some rows of those of all blocks, in
//! their order: there is no second launch, and no memory beside. The rows of C are written by the threads, so that C may begin
//! anywhere, and a tile may end in the middle. A cluster may have two tiles, one above the other: then each of two blocks copies half
//! of a tile of B to both.
//!
//! A product whose tiles are fewer than the blocks that run at a time, or end in the middle, is faster so; others by
//! [`matmul`](mod@crate::matmul), whose tiles are larger.

use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::{
    Accumulator, KMajor, Major, MnMajor, Multiply, Output, SharedMemory, SharedTile, SharedTiles, Slot,
    TensorMap, barrier, warp_group,
};

use crate::epilogue::Finish;
use crate::matmul::{BOX, Element, GROUP_ROWS, ROW_BYTES, Sizes, release};
use crate::tiles::{Tiles, divide};

/// Columns of C of a tile.
pub const TILE_N: u32 = 128;
/// Rows of a tile of kernels that have tiles of one size.
pub const ROWS: usize = 128;
/// Stages of the ring of numbers of one part.
pub const STAGES: usize = 4;
/// Tiles of 32 columns of sums.
const SUM_TILES: usize = TILE_N as usize / 32;
/// The most blocks of a cluster.
pub const MOST_IN_CLUSTER: u32 = 8;

/// Threads of a block whose tile has `rows` rows: 64 or 128.
pub const fn threads(rows: usize) -> u32 {
    rows as u32 / GROUP_ROWS * warp_group::THREADS + 32
}

/// Bytes of dynamic shared memory of a block whose tile has `rows` rows and whose ring has `stages` stages, each of `parts` tiles of each
/// operand.
pub const fn shared_bytes(rows: usize, stages: usize, parts: u32) -> u32 {
    SharedMemory::bytes(stages as u32 * parts * ROW_BYTES * (rows as u32 + TILE_N), 2 * stages as u32)
}

/// Blocks of a multiprocessor for which the registers of a thread are bounded.
pub const fn resident(rows: usize) -> u32 {
    128 / rows as u32
}

/// Where a tile begins, and which stages of K the calling block sums.
#[derive(Clone, Copy)]
pub struct TilePlace {
    /// The first row in the planes of A.
    pub row: u32,
    /// The first column in the planes of B.
    pub column: u32,
    /// The plane of A.
    pub a_plane: u32,
    /// The plane of B.
    pub b_plane: u32,
    /// The first stage, and the one behind the last.
    pub stages: (u32, u32),
    /// Tiles of the cluster, one above the other: 1 or 2, in blocks of successive ranks.
    pub shared_by: u32,
}

/// What the products of a stage are, and how they become sums.
pub trait Stage: Copy {
    /// Tiles of each operand of a stage: 1, or 2 for numbers in two parts, whose second is in the next plane.
    const PARTS: u32 = 1;
    /// Whether sums of a stage alone are made by the tensor cores, and added up in `f32`.
    const IS_ALONE: bool = false;
    /// What the sums of a stage of two rows, the second 8 rows further on, are multiplied by.
    #[inline(always)]
    fn factors(self, stage: u32, row: u32) -> [f32; 2] {
        let _ = (stage, row);
        [1.0; 2]
    }
}

/// Products that add to the same sums.
#[derive(Clone, Copy)]
pub struct Plain;

impl Stage for Plain {}

/// Where the rows of matrices lie in memory: from one row to the next, and from one plane to the next, in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct RowStrides {
    /// From one row to the next.
    pub pitch: u64,
    /// From one plane to the next.
    pub plane: u64,
}

/// `c = activation(scale * a * b + bias)` of 16-bit numbers, for each product of a batch, by tiles of `ROWS` rows. `a` is K-major;
/// [`KMajor`] is a `b` of columns, [`MnMajor`] one of rows.
///
/// # Safety
///
/// That of [`product`]. The grid has one dimension, and a cluster for each `shared_by` tiles of each product. `sizes` has no splits, and its
/// `split_stages` are those of each block of a cluster but the last. `c` has the products where `rows` says, and overlaps neither
/// `a` nor `b`; `bias` has n elements.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    consts(ROWS = 64, 128),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS)),
    no_panic
)]
pub unsafe fn matmul_one_tile<T, B: Major, const ROWS: usize>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: Finish,
) where
    T: Element<Sum = f32, Output = T> + Float,
{
    let (place, batch) = TilePlace::of_cluster::<T>(&sizes, ROWS as u32, shared_by);
    // SAFETY: the caller's promise.
    unsafe {
        let store = into_rows(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<T, B, ROWS, STAGES, _>(a, b, place, Plain, store);
    }
}

impl TilePlace {
    /// The tile and the stages of the calling block, where there is a cluster for each `shared_by` tiles of `height` rows; and the
    /// product.
    #[inline(always)]
    pub fn of_cluster<T: KernelType>(sizes: &Sizes, height: u32, shared_by: u32) -> (Self, u32) {
        let tile_k = SharedTile::<T, 64>::COLUMNS;
        let tiles = Tiles::new(sizes, height * shared_by, TILE_N, tile_k);
        let tile = tiles.at(divide(thread::block_idx_x(), cluster::blocks()).0);
        let (part, which) = divide(cluster::block_rank(), shared_by);
        let first = part * sizes.split_stages;
        let end = sizes.k.div_ceil(tile_k).min(first + sizes.split_stages);
        let place = Self {
            row: (tile.row * shared_by + which) * height,
            column: tile.column * TILE_N,
            a_plane: tile.batch.min(sizes.a_planes - 1),
            b_plane: tile.batch.min(sizes.b_planes - 1),
            stages: (first, end),
            shared_by,
        };
        (place, tile.batch)
    }
}

/// Finishes and stores what [`product`] gives, as far as it is in C.
///
/// # Safety
///
/// `c` has the products that `sizes` says where `rows` says, which nothing else uses, and the place is one of product `batch`; `bias` has
/// n elements.
#[inline(always)]
pub(crate) unsafe fn into_rows<C: Float>(
    c: &mut DisjointMut<C>,
    sizes: &Sizes,
    place: TilePlace,
    batch: u32,
    rows: RowStrides,
    bias: Option<&[C]>,
    finish: Finish,
) -> impl Fn(u32, u32, [f32; 4]) {
    let to = c.as_mut_ptr().wrapping_add((u64::from(batch) * rows.plane) as usize);
    let (m, n) = (sizes.m, sizes.n);
    move |row, column, sums| {
        let (row, column) = (place.row + row, place.column + column);
        if row < m && column < n {
            // SAFETY: the caller's promise; this thread alone has these sums.
            unsafe { finish.store(to, u64::from(row) * rows.pitch, column, n, bias, sums) };
        }
    }
}

/// A tile of `a * b`, by all threads of the blocks of a cluster that have it. `store` gets four sums that are adjacent in a row, by the
/// row and the first column in the tile, each once, in some thread of these.
///
/// # Safety
///
/// - The kernel has `arch = "90a"` and `block(threads(ROWS))`, with a `ROWS` of 64 or 128, and the launch
///   `shared_bytes(ROWS, STAGES, S::PARTS)` of shared memory and clusters of 1, 2, 4 or 8 blocks, a multiple of `shared_by`.
/// - The maps are of matrices of planes, `a` K-major. The boxes have `Swizzle::Bytes128` and [`ROW_BYTES`] of columns; those of
///   `a` have `ROWS` rows, those of a K-major `b` `TILE_N / shared_by`, and of an MN-major one [`BOX`].
/// - The place is in the planes of the maps. It is the same in all threads of a block, and but for the stages in all blocks that have
///   the tile; blocks that share tiles of B have the same column, plane of B and stages.
#[inline(always)]
pub unsafe fn product<T, B: Major, const ROWS: usize, const STAGES: usize, S: Stage>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    place: TilePlace,
    of_stage: S,
    store: impl Fn(u32, u32, [f32; 4]),
) where
    T: Multiply<Sum = f32>,
{
    const {
        assert!(ROWS == 64 || ROWS == 128, "a tile has 64 or 128 rows");
        assert!(
            S::PARTS == 1 || S::PARTS == 2 && S::IS_ALONE,
            "products of numbers in two parts are added alone"
        );
        let bytes = STAGES as u32 * S::PARTS * ROW_BYTES * (ROWS as u32 + TILE_N);
        assert!(bytes >= 4 * ROWS as u32 * TILE_N, "the sums of a tile fit into the ring");
    }
    // SAFETY: the launch has this memory for it, by the caller's promise.
    let mut memory = unsafe { SharedMemory::new() };
    let a_tiles = memory.tiles::<T, ROWS, STAGES>();
    let b_tiles = memory.tiles::<T, { TILE_N as usize }, STAGES>();
    let (a_second, b_second) = if S::PARTS == 2 {
        (memory.tiles::<T, ROWS, STAGES>(), memory.tiles::<T, { TILE_N as usize }, STAGES>())
    } else {
        (a_tiles, b_tiles)
    };
    // SAFETY: the sums are left there once nothing reads or writes the ring any more.
    let left = unsafe { memory.again() }.tiles::<f32, ROWS, SUM_TILES>();
    let full = memory.barriers::<STAGES>();
    let empty = memory.barriers::<STAGES>();
    let groups = ROWS as u32 / GROUP_ROWS;
    if thread::linear_in_block() == 0 {
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            full.init(1);
            empty.init(groups * place.shared_by);
        }
        barrier::publish();
    }
    let is_shared = place.shared_by > 1;
    if is_shared {
        cluster::sync();
    } else {
        thread::sync_threads();
    }

    let tile_k = SharedTile::<T, 64>::COLUMNS;
    let warp = warp_group::warp_index();
    let rank = cluster::block_rank();
    let (part_of_k, which) = divide(rank, place.shared_by);
    let mut slot = Slot::new();
    let mut stage = place.stages.0;
    if warp == 4 * groups {
        if warp_group::elect() {
            while stage < place.stages.1 {
                let loaded = full.at(slot);
                let at = stage * tile_k;
                // SAFETY: the warp groups of all blocks that the copies reach have read the stage. Each of these blocks expects the
                // bytes of its own copy of A and of all of B.
                unsafe {
                    empty.at(slot).wait(slot.parity() ^ 1);
                    loaded.arrive_expecting(S::PARTS * ROW_BYTES * (ROWS as u32 + TILE_N));
                    let mut part = 0;
                    while part < S::PARTS {
                        let (a_tiles, b_tiles) =
                            if part == 0 { (a_tiles, b_tiles) } else { (a_second, b_second) };
                        let b_tile = b_tiles.at(slot);
                        a.load(a_tiles.at(slot), [at, place.row, place.a_plane + part], loaded);
                        let plane = place.b_plane + part;
                        let column = |half| place.column + TILE_N / 2 * half;
                        if is_shared {
                            let half = b_tile.rows::<{ TILE_N as usize / 2 }>(which);
                            let (column, blocks) = (column(which), 0b11 << (2 * part_of_k));
                            let place =
                                if B::IS_TRANSPOSED { [column, at, plane] } else { [at, column, plane] };
                            b.load_multicast(half, place, loaded, blocks);
                        } else if B::IS_TRANSPOSED {
                            b.load(b_tile.rows::<{ BOX as usize }>(0), [column(0), at, plane], loaded);
                            b.load(b_tile.rows::<{ BOX as usize }>(1), [column(1), at, plane], loaded);
                        } else {
                            b.load(b_tile, [at, place.column, plane], loaded);
                        }
                        part += 1;
                    }
                }
                slot.advance();
                stage += 1;
            }
        }
        warp::sync_warp(!0);
    } else {
        let group = warp / 4;
        let mut sums = Accumulator::<{ TILE_N as usize }, f32>::new();
        if S::IS_ALONE {
            let row = GROUP_ROWS * group + warp % 4 * 16 + warp::lane_id() / 4;
            let mut all = *sums.registers();
            while stage < place.stages.1 {
                let [upper, lower] = of_stage.factors(stage, row);
                // SAFETY: the stage is loaded, and read until the products are waited for. All threads of the warp group do the
                // same.
                unsafe {
                    full.at(slot).wait(slot.parity());
                    let mut batch = sums.pending().begin();
                    let (x, y) = (a_tiles.at(slot).rows::<64>(group), b_tiles.at(slot));
                    if S::PARTS == 2 {
                        // The smallest first.
                        let (x_second, y_second) = (a_second.at(slot).rows::<64>(group), b_second.at(slot));
                        batch.mma_of::<KMajor, B, T, T>(x_second, y, false);
                        batch.mma_of::<KMajor, B, T, T>(x, y_second, true);
                    }
                    batch.mma_of::<KMajor, B, T, T>(x, y, S::PARTS == 2);
                    sums = batch.commit().wait();
                    release(empty.at(slot), warp, place.shared_by, rank - which);
                }
                let mut i = 0;
                while i < TILE_N as usize / 2 {
                    all[i] += sums.registers()[i] * if i % 4 < 2 { upper } else { lower };
                    i += 1;
                }
                slot.advance();
                stage += 1;
            }
            *sums.registers_mut() = all;
        } else if stage < place.stages.1 {
            let mut running = sums.pending();
            let mut last = slot;
            while stage < place.stages.1 {
                // SAFETY: as above.
                unsafe {
                    full.at(slot).wait(slot.parity());
                    let mut batch = running.begin();
                    batch.mma_of::<KMajor, B, T, T>(
                        a_tiles.at(slot).rows::<64>(group),
                        b_tiles.at(slot),
                        stage > place.stages.0,
                    );
                    running = batch.commit();
                }
                running.wait_for_earlier();
                if stage > place.stages.0 {
                    // SAFETY: the products of the stage before are done.
                    unsafe { release(empty.at(last), warp, place.shared_by, rank - which) };
                }
                last = slot;
                slot.advance();
                stage += 1;
            }
            sums = running.wait();
        }
        // The tiles of both groups have been read by all.
        // SAFETY: all warps but the one that copies meet at a barrier that nothing else uses.
        unsafe { warp_group::sync(1, groups * warp_group::THREADS) };
        // SAFETY: nothing reads or writes the ring any more; each warp has rows of its own.
        unsafe { leave(left, GROUP_ROWS * group + warp % 4 * 16, sums.registers()) };
    }

    cluster::sync();
    // SAFETY: all blocks have left their sums, and none ends before all have read them.
    unsafe { add_all(left, warp, place.shared_by, &store) };
    cluster::sync();
}

/// Stores a warp's sums, of 16 rows from `row` on, in tiles of 32 columns each.
///
/// # Safety
///
/// Nothing else uses these rows of the tiles.
#[inline(always)]
unsafe fn leave<const ROWS: usize>(
    tiles: SharedTiles<f32, ROWS, SUM_TILES>,
    row: u32,
    sums: &[f32; TILE_N as usize / 2],
) {
    let mut block = 0;
    while block < TILE_N as usize / 16 {
        let eight = core::array::from_fn(|i| sums[8 * block + i]);
        // SAFETY: there are four tiles, of 32 columns of `f32` each; the rest is the caller's promise.
        unsafe { f32::store(tiles.at_index(block as u32 / 2), row, block as u32 % 2, eight) };
        block += 1;
    }
}

/// Adds the sums of all blocks that have the calling block's tile, of the rows that it has of them.
///
/// # Safety
///
/// All blocks of the cluster have left their sums in the tiles, and none ends before all have returned from this.
#[inline(always)]
unsafe fn add_all<const ROWS: usize>(
    tiles: SharedTiles<f32, ROWS, SUM_TILES>,
    warp: u32,
    shared_by: u32,
    store: &impl Fn(u32, u32, [f32; 4]),
) {
    let (blocks, lane) = (cluster::blocks(), warp::lane_id());
    let (part_of_k, which) = divide(cluster::block_rank(), shared_by);
    let (rows, warps) = (divide(ROWS as u32 * shared_by, blocks).0, threads(ROWS) / 32);
    let first = part_of_k * rows;
    let mut row = warp;
    while row < rows {
        let mut sums = [0.0f32; 4];
        let mut block = which;
        while block < blocks {
            // SAFETY: there are four tiles, each of which has eight chunks of four sums in this row; nothing writes them.
            let four = unsafe { tiles.at_index(lane / 8).load_chunk_of(block, first + row, lane % 8) };
            let mut i = 0;
            while i < 4 {
                sums[i] += f32::from_bits(four[i]);
                i += 1;
            }
            block += shared_by;
        }
        store(first + row, 4 * lane, sums);
        row += warps;
    }
}
