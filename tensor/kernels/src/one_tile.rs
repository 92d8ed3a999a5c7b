//! [`product`]: a tile of a product, or two, by a cluster whose blocks each sum a part of K.
//!
//! A block has a warp group for each [`GROUP_ROWS`] rows of the tile, and one warp more, which copies tiles of A and B into a ring
//! of stages. Then each block leaves its sums in its own shared memory, and adds some rows of those of all blocks, in
//! their order: there is no second launch, and no memory beside. The rows of C are written by the threads, so that C may begin
//! anywhere, and a tile may end in the middle. A cluster may have two tiles, one above the other: then each of two blocks copies half
//! of a tile of B to both.
//!
//! A product whose tiles are fewer than the blocks that run at a time, or end in the middle, is faster so; others by
//! [`matmul`](mod@crate::matmul), whose blocks store a tile while they multiply the next.

use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::{
    Accumulator, Columns, F8E4M3, KMajor, Major, MnMajor, Multiply, Output, SharedMemory, SharedTile,
    SharedTiles, Slot, TensorMap, Width, barrier, warp_group,
};

use crate::epilogue::Finish;
use crate::matmul::{BOX, Element, GROUP_ROWS, ROW_BYTES, Sizes, release};
use crate::tiles::{Tiles, divide};

/// Rows of a tile of kernels that have tiles of one size.
pub const ROWS: usize = 128;
/// Columns of a tile of kernels that have tiles of one size.
pub const COLUMNS: usize = 128;
/// Stages of the ring of numbers of one part.
pub const STAGES: usize = 4;
/// The most tiles of 32 columns of sums.
const SUM_TILES: usize = 8;
/// The most blocks of a cluster.
pub const MOST_IN_CLUSTER: u32 = 8;

/// Threads of a block whose tile has `rows` rows: 64 or 128.
pub const fn threads(rows: usize) -> u32 {
    rows as u32 / GROUP_ROWS * warp_group::THREADS + 32
}

/// Threads of a block of kernels that add the sums of stages themselves: three warp groups, so that the one that copies has registers to
/// give to the others.
pub const THREADS_ALONE: u32 = 3 * warp_group::THREADS;

/// Bytes of dynamic shared memory of a block whose tile has `rows` rows and `columns` columns and whose ring has `stages` stages, each
/// of `parts` tiles of each operand.
pub const fn shared_bytes(rows: usize, columns: usize, stages: usize, parts: u32) -> u32 {
    SharedMemory::bytes(stages as u32 * parts * ROW_BYTES * (rows + columns) as u32, 2 * stages as u32)
}

/// Blocks of a multiprocessor, for which the registers of a thread are bounded: as many as there is shared memory for.
pub const fn resident(rows: usize, columns: usize) -> u32 {
    if rows + columns <= 192 { 2 } else { 1 }
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

/// `c = activation(scale * a * b + bias)` of 16-bit numbers, for each product of a batch, by tiles of `ROWS` x `COLUMNS`. `a` is
/// K-major; [`KMajor`] is a `b` of columns, [`MnMajor`] one of rows.
///
/// # Safety
///
/// That of [`product`]. The grid has one dimension, and a cluster for each `shared_by` tiles of each product. The `split_stages` of `sizes`
/// are those of each block of a cluster but the last. `c` has the products where `rows` says, and overlaps neither
/// `a` nor `b`; `bias` has n elements.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    consts(ROWS = 64, 128; COLUMNS = 128, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    no_panic
)]
pub unsafe fn matmul_one_tile<T, B: Major, const ROWS: usize, const COLUMNS: usize>(
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
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TilePlace::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: the caller's promise.
    unsafe {
        let store = into_rows(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<T, B, ROWS, COLUMNS, STAGES, _>(a, b, place, Plain, store);
    }
}

/// [`matmul_one_tile()`] of `f32`, whose upper 19 bits are multiplied (TF32), and of 8-bit floating-point numbers, both K-major.
///
/// # Safety
///
/// That of [`matmul_one_tile()`].
#[kernel(
    types(T = f32, F8E4M3),
    consts(ROWS = 64, 128; COLUMNS = 128, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    no_panic
)]
pub unsafe fn matmul_one_tile_tn<T: Element<Sum = f32>, const ROWS: usize, const COLUMNS: usize>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T::Output>,
    bias: Option<&[T::Output]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: Finish,
) where
    T::Output: Float,
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TilePlace::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: the caller's promise.
    unsafe {
        let store = into_rows(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<T, KMajor, ROWS, COLUMNS, STAGES, _>(a, b, place, Plain, store);
    }
}

impl TilePlace {
    /// The tile and the stages of the calling block, where there is a cluster for each `shared_by` tiles of `height` x `width`; and
    /// the product.
    #[inline(always)]
    pub fn of_cluster<T: KernelType>(
        sizes: &Sizes,
        [height, width]: [usize; 2],
        shared_by: u32,
    ) -> (Self, u32) {
        let (height, width) = (height as u32, width as u32);
        let tile_k = SharedTile::<T, 64>::COLUMNS;
        let tiles = Tiles::new(sizes, height * shared_by, width);
        let tile = tiles.at(divide(thread::block_idx_x(), cluster::blocks()).0);
        let (part, which) = divide(cluster::block_rank(), shared_by);
        let first = part * sizes.split_stages;
        let end = sizes.k.div_ceil(tile_k).min(first + sizes.split_stages);
        let place = Self {
            row: (tile.row * shared_by + which) * height,
            column: tile.column * width,
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
/// - The kernel has `arch = "90a"` and `block(threads(ROWS))`, or with [`Stage::IS_ALONE`] `block(THREADS_ALONE)` and 128 rows, and the launch `shared_bytes(ROWS, COLUMNS, STAGES, S::PARTS)` of shared
///   memory and clusters of 1, 2, 4 or 8 blocks, a multiple of `shared_by`.
/// - The maps are of matrices of planes, `a` K-major. The boxes have `Swizzle::Bytes128` and [`ROW_BYTES`] of columns; those of
///   `a` have `ROWS` rows, those of `b` [`BOX`].
/// - The planes of the place are those of the maps; its row may be beyond them, where all is zero. It is the same in all threads of a block, and but for the stages in all blocks that have
///   the tile; blocks that share tiles of B have the same column, plane of B and stages.
#[inline(always)]
pub unsafe fn product<T, B: Major, const ROWS: usize, const COLUMNS: usize, const STAGES: usize, S: Stage>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    place: TilePlace,
    of_stage: S,
    store: impl Fn(u32, u32, [f32; 4]),
) where
    T: Multiply<Sum = f32>,
    Columns<COLUMNS>: Width,
{
    const {
        assert!(ROWS == 64 || ROWS == 128, "a tile has 64 or 128 rows");
        assert!(COLUMNS == 128 || COLUMNS == 256, "a tile has 128 or 256 columns");
        assert!(
            S::PARTS == 1 || S::PARTS == 2 && S::IS_ALONE,
            "products of numbers in two parts are added alone"
        );
        assert!(!S::IS_ALONE || ROWS == 128, "two warp groups get the registers of the third");
        let bytes = STAGES * S::PARTS as usize * ROW_BYTES as usize * (ROWS + COLUMNS);
        assert!(bytes >= 4 * ROWS * COLUMNS, "the sums of a tile fit into the ring");
    }
    // SAFETY: the launch has this memory for it, by the caller's promise.
    let mut memory = unsafe { SharedMemory::new() };
    let a_tiles = memory.tiles::<T, ROWS, STAGES>();
    let b_tiles = memory.tiles::<T, COLUMNS, STAGES>();
    let (a_second, b_second) = if S::PARTS == 2 {
        (memory.tiles::<T, ROWS, STAGES>(), memory.tiles::<T, COLUMNS, STAGES>())
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
    let copies = warp >= 4 * groups;
    if copies {
        if S::IS_ALONE {
            // SAFETY: the block has a fixed size, and began with 168 registers a thread.
            unsafe { warp_group::release_registers::<40>() };
        }
        if warp == 4 * groups && warp_group::elect() {
            while stage < place.stages.1 {
                let loaded = full.at(slot);
                let at = stage * tile_k;
                // SAFETY: the warp groups of all blocks that the copies reach have read the stage. Each of these blocks expects the
                // bytes of its own copy of A and of all of B.
                unsafe {
                    empty.at(slot).wait(slot.parity() ^ 1);
                    loaded.arrive_expecting(S::PARTS * ROW_BYTES * (ROWS + COLUMNS) as u32);
                    let mut part = 0;
                    while part < S::PARTS {
                        let (a_tiles, b_tiles) =
                            if part == 0 { (a_tiles, b_tiles) } else { (a_second, b_second) };
                        let b_tile = b_tiles.at(slot);
                        a.load(a_tiles.at(slot), [at, place.row, place.a_plane + part], loaded);
                        let plane = place.b_plane + part;
                        // Each of two blocks that share B copies half of it to both.
                        let boxes = divide(COLUMNS as u32 / BOX, place.shared_by).0;
                        let mut number = which * boxes;
                        while number < (which + 1) * boxes {
                            let to = b_tile.rows::<{ BOX as usize }>(number);
                            let column = place.column + BOX * number;
                            let from =
                                if B::IS_TRANSPOSED { [column, at, plane] } else { [at, column, plane] };
                            if is_shared {
                                b.load_multicast(to, from, loaded, 0b11 << (2 * part_of_k));
                            } else {
                                b.load(to, from, loaded);
                            }
                            number += 1;
                        }
                        part += 1;
                    }
                }
                slot.advance();
                stage += 1;
            }
        }
        warp::sync_warp(!0);
        cluster::sync();
    } else {
        let group = warp / 4;
        let mut sums = Accumulator::<COLUMNS, f32>::new();
        if S::IS_ALONE {
            // SAFETY: the block has a fixed size, and the copying warp group releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
            unsafe { warp_group::acquire_registers::<232>() };
            let row = GROUP_ROWS * group + warp % 4 * 16 + warp::lane_id() / 4;
            let mut all = *sums.registers();
            // Closures are not inlined for certain.
            macro_rules! begin {
                ($sums:ident) => {{
                    // SAFETY: the stage is loaded, and read until the products are waited for. All threads of the warp group do
                    // the same.
                    unsafe {
                        full.at(slot).wait(slot.parity());
                        let mut batch = $sums.pending().begin();
                        let (x, y) = (a_tiles.at(slot).rows::<64>(group), b_tiles.at(slot));
                        if S::PARTS == 2 {
                            // The smallest first.
                            let (x_second, y_second) =
                                (a_second.at(slot).rows::<64>(group), b_second.at(slot));
                            batch.mma_of::<KMajor, B, T, T>(x_second, y, false);
                            batch.mma_of::<KMajor, B, T, T>(x, y_second, true);
                        }
                        batch.mma_of::<KMajor, B, T, T>(x, y, S::PARTS == 2);
                        batch.commit()
                    }
                }};
            }
            macro_rules! add {
                ($sums:ident, $factors:ident, $slot:ident) => {{
                    // SAFETY: the products of the stage are done.
                    unsafe { release(empty.at($slot), warp, place.shared_by, rank - which) };
                    let mut i = 0;
                    while i < COLUMNS / 2 {
                        all.as_mut()[i] += $sums.registers().as_ref()[i] * $factors[i % 4 / 2];
                        i += 1;
                    }
                }};
            }
            if stage < place.stages.1 {
                // The sums of one stage are added while the products of the next are under way.
                let mut other = Accumulator::<COLUMNS, f32>::new();
                let (mut last, mut factors) = (slot, of_stage.factors(stage, row));
                let mut running = begin!(sums);
                loop {
                    slot.advance();
                    stage += 1;
                    if stage == place.stages.1 {
                        sums = running.wait();
                        add!(sums, factors, last);
                        break;
                    }
                    let others = of_stage.factors(stage, row);
                    let running_other = begin!(other);
                    // SAFETY: one batch was committed after it.
                    sums = unsafe { running.wait_leaving::<1>() };
                    add!(sums, factors, last);
                    last = slot;
                    slot.advance();
                    stage += 1;
                    if stage == place.stages.1 {
                        other = running_other.wait();
                        add!(other, others, last);
                        break;
                    }
                    factors = of_stage.factors(stage, row);
                    running = begin!(sums);
                    // SAFETY: as above.
                    other = unsafe { running_other.wait_leaving::<1>() };
                    add!(other, others, last);
                    last = slot;
                }
            }
            sums = Accumulator::new();
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
        unsafe {
            leave::<ROWS, COLUMNS>(left, GROUP_ROWS * group + warp % 4 * 16, sums.registers().as_ref())
        };
        cluster::sync();
        // SAFETY: all blocks have left their sums, and none ends before all have read them.
        unsafe { add_all::<ROWS, COLUMNS>(left, warp, place.shared_by, &store) };
    }

    cluster::sync();
}

/// Stores a warp's sums, of 16 rows from `row` on, in tiles of 32 columns each.
///
/// # Safety
///
/// Nothing else uses these rows of the tiles.
#[inline(always)]
unsafe fn leave<const ROWS: usize, const COLUMNS: usize>(
    tiles: SharedTiles<f32, ROWS, SUM_TILES>,
    row: u32,
    sums: &[f32],
) {
    let mut block = 0;
    while block < COLUMNS / 16 {
        let eight = core::array::from_fn(|i| sums[8 * block + i]);
        // SAFETY: there is a tile for 32 columns of `f32`; the rest is the caller's promise.
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
unsafe fn add_all<const ROWS: usize, const COLUMNS: usize>(
    tiles: SharedTiles<f32, ROWS, SUM_TILES>,
    warp: u32,
    shared_by: u32,
    store: &impl Fn(u32, u32, [f32; 4]),
) {
    let parts = divide(cluster::blocks(), shared_by).0;
    // SAFETY: the caller's promise.
    unsafe {
        match parts {
            1 => add::<ROWS, COLUMNS, 1, 8>(tiles, warp, shared_by, store),
            2 => add::<ROWS, COLUMNS, 2, 4>(tiles, warp, shared_by, store),
            4 => add::<ROWS, COLUMNS, 4, 2>(tiles, warp, shared_by, store),
            _ => add::<ROWS, COLUMNS, 8, 1>(tiles, warp, shared_by, store),
        }
    }
}

/// [`add_all`] of `PARTS` blocks, whose sums are read together, `ITEMS` of each at a time.
///
/// # Safety
///
/// That of [`add_all`].
#[inline(always)]
unsafe fn add<const ROWS: usize, const COLUMNS: usize, const PARTS: usize, const ITEMS: usize>(
    tiles: SharedTiles<f32, ROWS, SUM_TILES>,
    warp: u32,
    shared_by: u32,
    store: &impl Fn(u32, u32, [f32; 4]),
) {
    const { assert!(PARTS * ITEMS == 8, "rounds are whole") };
    let lane = warp::lane_id();
    let (part_of_k, which) = divide(cluster::block_rank(), shared_by);
    // Of rows of 128 columns each of the warps that have multiplied takes 16 or 32 by the number of parts: whole rounds of `ITEMS`.
    let (rows, wide, warps) = (ROWS as u32 / PARTS as u32, COLUMNS as u32 / 128, ROWS as u32 / 16);
    let mut first = warp;
    while first < rows * wide {
        let place = |item: usize| {
            let number = first + warps * item as u32;
            (part_of_k * rows + number / wide, number % wide * 32 + lane)
        };
        let mut all = [[[0u32; 4]; PARTS]; ITEMS];
        let mut item = 0;
        while item < ITEMS {
            let (row, chunk) = place(item);
            let mut part = 0;
            while part < PARTS {
                let block = part as u32 * shared_by + which;
                // SAFETY: there is a tile for each eight chunks of four sums; nothing writes them.
                all[item][part] = unsafe { tiles.at_index(chunk / 8).load_chunk_of(block, row, chunk % 8) };
                part += 1;
            }
            item += 1;
        }
        item = 0;
        while item < ITEMS {
            let (row, chunk) = place(item);
            let mut sums = [0.0f32; 4];
            let mut part = 0;
            while part < PARTS {
                let mut i = 0;
                while i < 4 {
                    sums[i] += f32::from_bits(all[item][part][i]);
                    i += 1;
                }
                part += 1;
            }
            store(row, 4 * chunk, sums);
            item += 1;
        }
        first += warps * ITEMS as u32;
    }
}
