//! [`product`]: a tile of a product, or two, by a cluster whose blocks each sum a part of K.
//!
//! A block has a warp group for each [`GROUP_ROWS`] rows of the tile, and one warp more, which copies tiles of A and B into a ring
//! of stages. Where several blocks have parts of K, each then leaves its sums in its own shared memory, and adds some columns of those
//! of all blocks, in their order: there is no second launch, and no memory beside. The rows of C are written by the threads, so that C
//! may begin anywhere, and a tile may end in the middle. A cluster may have two tiles, one above the other: then each of two blocks
//! copies half of a tile of B to both.
//!
//! A launch that is dependent prepares its blocks while those of the launch before end.
//!
//! A product whose tiles are fewer than the blocks that run at a time, or end in the middle, is faster so; others by
//! [`matmul`](mod@crate::matmul), whose blocks store a tile while they multiply the next.

use gpu_std::prelude::*;
use gpu_std::tensor::{
    Accumulator, Columns, F8E4M3, KMajor, Major, MnMajor, Multiply, Output, SharedMemory, SharedTile, Slot,
    TensorMap, Width, barrier, warp_group,
};

use crate::epilogue::Finish;
use crate::matmul::{BOX, Element, GROUP_ROWS, ROW_BYTES, Sizes, release};
use crate::tile_end::{SUM_TILES, Target, add, leave, store_own};
use crate::tiles::{Tiles, divide};

/// Rows of a tile of kernels that have tiles of one size.
pub const ROWS: usize = 128;
/// Columns of a tile of kernels that have tiles of one size.
pub const COLUMNS: usize = 128;
/// Stages of the ring of numbers of one part: as many as there is shared memory for, or for two blocks.
pub const fn stages(rows: usize, columns: usize) -> usize {
    match (rows, columns) {
        (128, 128) => 6,
        (64, 256) | (128, 192) => 5,
        (64, 192) => 6,
        _ => 4,
    }
}
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
    /// What the sums of a stage are multiplied by: of two rows, the second 8 rows further on, and of all columns.
    #[inline(always)]
    fn scales(self, stage: u32, row: u32) -> ([f32; 2], f32) {
        let _ = (stage, row);
        ([1.0; 2], 1.0)
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
    consts(ROWS = 64, 128; COLUMNS = 128, 192, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    dependent,
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
    T: Element<Sum = f32, Output = T> + Output<f32> + Into<f32>,
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TilePlace::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: the caller's promise.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        match stages(ROWS, COLUMNS) {
            6 => product::<T, T, B, ROWS, COLUMNS, 6, _>(a, b, place, Plain, target),
            5 => product::<T, T, B, ROWS, COLUMNS, 5, _>(a, b, place, Plain, target),
            _ => product::<T, T, B, ROWS, COLUMNS, 4, _>(a, b, place, Plain, target),
        }
    }
}

/// [`matmul_one_tile()`] of `f32`, whose upper 19 bits are multiplied (TF32), and of 8-bit floating-point numbers, both K-major.
///
/// # Safety
///
/// That of [`matmul_one_tile()`].
#[kernel(
    types(T = f32, F8E4M3),
    consts(ROWS = 64, 128; COLUMNS = 128, 192, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    dependent,
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
    T::Output: Into<f32>,
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TilePlace::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: the caller's promise.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        match stages(ROWS, COLUMNS) {
            6 => product::<T, T::Output, KMajor, ROWS, COLUMNS, 6, _>(a, b, place, Plain, target),
            5 => product::<T, T::Output, KMajor, ROWS, COLUMNS, 5, _>(a, b, place, Plain, target),
            _ => product::<T, T::Output, KMajor, ROWS, COLUMNS, 4, _>(a, b, place, Plain, target),
        }
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

/// Where [`product`] of this place stores the rows of a C that has the products where `rows` says.
#[inline(always)]
pub(crate) fn target<'a, C: KernelType>(
    c: &mut DisjointMut<C>,
    sizes: &Sizes,
    place: TilePlace,
    batch: u32,
    rows: RowStrides,
    bias: Option<&'a [C]>,
    finish: Finish,
) -> Target<'a, C> {
    let first = u64::from(batch) * rows.plane + u64::from(place.row) * rows.pitch;
    Target {
        to: c.as_mut_ptr().wrapping_add(first as usize),
        pitch: rows.pitch,
        rows: sizes.m.saturating_sub(place.row),
        column: place.column,
        n: sizes.n,
        bias,
        finish,
    }
}

/// A tile of `a * b`, by all threads of the blocks of a cluster that have it, into the rows of `target`.
///
/// # Safety
///
/// - The kernel has `arch = "90a"` and `block(threads(ROWS))`, or with [`Stage::IS_ALONE`] `block(THREADS_ALONE)` and 128 rows, and the launch `shared_bytes(ROWS, COLUMNS, STAGES, S::PARTS)` of shared
///   memory and clusters of 1, 2, 3, 4, 6 or 8 blocks, a multiple of `shared_by`; of 1 for 192 columns.
/// - The maps are of matrices of planes, `a` K-major. The boxes have `Swizzle::Bytes128` and [`ROW_BYTES`] of columns; those of
///   `a` have `ROWS` rows, those of `b` [`BOX`].
/// - The planes of the place are those of the maps; its row may be beyond them, where all is zero. It is the same in all threads of a block, and but for the stages in all blocks that have
///   the tile; blocks that share tiles of B have the same column, plane of B and stages.
#[inline(always)]
pub unsafe fn product<
    T,
    C,
    B: Major,
    const ROWS: usize,
    const COLUMNS: usize,
    const STAGES: usize,
    S: Stage,
>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    place: TilePlace,
    of_stage: S,
    target: Target<'_, C>,
) where
    T: Multiply<Sum = f32>,
    C: Output<f32> + Into<f32>,
    Columns<COLUMNS>: Width,
{
    const {
        assert!(ROWS == 64 || ROWS == 128, "a tile has 64 or 128 rows");
        assert!(COLUMNS == 128 || COLUMNS == 192 || COLUMNS == 256, "a tile has 128, 192 or 256 columns");
        assert!(
            S::PARTS == 1 || S::PARTS == 2 && S::IS_ALONE,
            "products of numbers in two parts are added alone"
        );
        assert!(!S::IS_ALONE || ROWS == 128, "two warp groups get the registers of the third");
        let bytes = STAGES * S::PARTS as usize * ROW_BYTES as usize * (ROWS + COLUMNS);
        assert!(
            bytes >= (4 + size_of::<C>() / 2) * ROWS * COLUMNS,
            "the sums of a tile and its half fit into the ring"
        );
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
    // SAFETY: they are used once nothing reads or writes the ring any more: the sums that are left for other blocks, with the half of
    // the tile that a block stores of it then; or the whole tile.
    let (left, staged_part, staged) = unsafe {
        // The sums are as many tiles as there are 32 columns.
        let (mut rest, left) = (memory.again(), memory.again().tiles::<f32, ROWS, SUM_TILES>());
        rest.tiles::<f32, ROWS, 4>();
        if COLUMNS > 128 {
            rest.tiles::<f32, ROWS, 4>();
        }
        (left, rest.tiles::<C, ROWS, SUM_TILES>(), memory.again().tiles::<C, ROWS, SUM_TILES>())
    };
    let full = memory.barriers::<STAGES>();
    let empty = memory.barriers::<STAGES>();
    let groups = ROWS as u32 / GROUP_ROWS;
    if thread::linear_in_block() == 0 {
        // All blocks of the launch have their places by then; those of the next take what they leave free.
        grid::launch_dependents();
        a.prefetch();
        b.prefetch();
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
    // What is above may overlap the end of the launch before.
    grid::dependency_wait();

    let tile_k = SharedTile::<T, 64>::COLUMNS;
    let warp = warp_group::warp_index();
    let rank = cluster::block_rank();
    let (part_of_k, which) = divide(rank, place.shared_by);
    let parts = divide(cluster::blocks(), place.shared_by).0;
    let mut slot = Slot::new();
    let mut stage = place.stages.0;
    let copies = warp >= 4 * groups;
    if copies {
        if S::IS_ALONE {
            // SAFETY: the block has a fixed size, and began with 168 registers a thread.
            unsafe { warp_group::release_registers::<40>() };
        }
        // SAFETY: all lanes of the warp are here.
        if warp == 4 * groups && unsafe { warp_group::elect() } {
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
        if parts > 1 {
            cluster::sync();
        }
        if is_shared || parts > 1 {
            cluster::arrive();
        }
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
                ($sums:ident, $scales:ident, $slot:ident) => {{
                    let (rows, columns) = $scales;
                    let factors = rows.map(|row| row * columns);
                    // SAFETY: the products of the stage are done.
                    unsafe { release(empty.at($slot), warp, place.shared_by, rank - which) };
                    let mut i = 0;
                    while i < COLUMNS / 2 {
                        all.as_mut()[i] += $sums.registers().as_ref()[i] * factors[i % 4 / 2];
                        i += 1;
                    }
                }};
            }
            if stage < place.stages.1 {
                // The sums of one stage are added while the products of the next are under way.
                let mut other = Accumulator::<COLUMNS, f32>::new();
                // Loaded a stage before they are used: ptxas may multiply them ahead of the products, which must not wait for a load.
                let mut ahead = of_stage.scales(stage, row);
                macro_rules! scales {
                    () => {{
                        let scales = ahead;
                        ahead = of_stage.scales((stage + 1).min(place.stages.1 - 1), row);
                        scales
                    }};
                }
                let (mut last, mut scales) = (slot, scales!());
                let mut running = begin!(sums);
                loop {
                    slot.advance();
                    stage += 1;
                    if stage == place.stages.1 {
                        sums = running.wait();
                        add!(sums, scales, last);
                        break;
                    }
                    let others = scales!();
                    let running_other = begin!(other);
                    // SAFETY: one batch was committed after it.
                    sums = unsafe { running.wait_leaving::<1>() };
                    add!(sums, scales, last);
                    last = slot;
                    slot.advance();
                    stage += 1;
                    if stage == place.stages.1 {
                        other = running_other.wait();
                        add!(other, others, last);
                        break;
                    }
                    scales = scales!();
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
            // SAFETY: all threads of the warp group go through the loop together.
            let mut running = unsafe { sums.pending() };
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
        // SAFETY: all warps but those that copy meet at a barrier that nothing else uses.
        unsafe { warp_group::sync(1, groups * warp_group::THREADS) };
        let row = GROUP_ROWS * group + warp % 4 * 16;
        let registers = sums.registers().as_ref();
        if parts == 1 {
            if is_shared {
                cluster::arrive();
            }
            // SAFETY: nothing reads or writes the ring any more; each warp has rows of its own.
            unsafe { store_own::<C, ROWS, COLUMNS>(staged, row, registers, &target) };
        } else {
            let thread = 32 * warp + warp::lane_id();
            // SAFETY: as above.
            unsafe { leave::<ROWS, COLUMNS>(left, thread, registers) };
            cluster::sync();
            let (tiles, at) = ((left, staged_part), (row, thread));
            // SAFETY: all blocks have left their sums, and none ends before all have read them.
            unsafe {
                match parts {
                    // Tiles of 192 columns have one part.
                    _ if COLUMNS == 192 => {}
                    2 => add::<C, ROWS, COLUMNS, 2, 4>(tiles, at, place.shared_by, &target),
                    3 => add::<C, ROWS, COLUMNS, 3, 3>(tiles, at, place.shared_by, &target),
                    4 => add::<C, ROWS, COLUMNS, 4, 2>(tiles, at, place.shared_by, &target),
                    _ => add::<C, ROWS, COLUMNS, 8, 1>(tiles, at, place.shared_by, &target),
                }
            }
        }
    }
    // No block ends while others read what it has left, copy into it, or arrive at its barriers.
    if is_shared || parts > 1 {
        cluster::wait();
    }
}
