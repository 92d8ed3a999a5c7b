//! [`product`]: non-persistent GEMM. A cluster computes one or two tiles, with split-K across its blocks.
//!
//! Each block has one consumer warpgroup per [`GROUP_ROWS`] rows of the tile, and a producer warp that copies tiles
//! of A and B into a circular buffer. With split-K, each block writes its partial sums to its own shared memory.
//! Through distributed shared memory, each block then adds the partial sums of all blocks of the cluster, in block
//! order, for its share of the columns. Split-K therefore requires neither a workspace nor a second kernel. The threads
//! store the rows of C, so C does not have to be aligned, and partial tiles are possible. A cluster can contain two
//! vertically adjacent tiles. In this case, each of the two blocks multicasts half of a tile of B to both.
//!
//! With programmatic dependent launch, the prologue overlaps the tail of the preceding launch.
//!
//! If the tiles do not fill a wave of blocks, or are partial, this kernel is faster than [`matmul`](mod@crate::matmul).
//! Otherwise `matmul` is faster, because its persistent blocks overlap the epilogue of a tile with the mainloop of the
//! next tile.

use gpu_std::prelude::*;
use gpu_std::tensor::{
    Accumulator, Columns, F8E4M3, KMajor, Major, MnMajor, Multiply, Output, PipelineState, SharedMemory,
    SharedTile, TensorMap, Width, barrier, warpgroup,
};

use crate::epilogue::EpilogueParams;
use crate::matmul::{BOX, GROUP_ROWS, GemmOperand, ROW_BYTES, Sizes, release};
use crate::tile_epilogue::{OutputTile, SUM_TILES, add, leave, store_own};
use crate::tiles::{Tiles, divide};

/// Number of rows of a tile, for kernels that support only one tile size.
pub const ROWS: usize = 128;
/// Number of columns of a tile, for kernels that support only one tile size.
pub const COLUMNS: usize = 128;
/// Returns the number of stages in a circular buffer that has one tile per operand and stage. The number is the maximum
/// that fits in shared memory with one or two blocks per SM.
pub const fn stages(rows: usize, columns: usize) -> usize {
    match (rows, columns) {
        (128, 128) => 6,
        (64, 256) | (128, 192) => 5,
        (64, 192) => 6,
        _ => 4,
    }
}
/// Maximum number of blocks per cluster.
pub const MAX_IN_CLUSTER: u32 = 8;

/// Returns the number of threads per block for tiles of `rows` rows (64 or 128).
pub const fn threads(rows: usize) -> u32 {
    rows as u32 / GROUP_ROWS * warpgroup::THREADS + 32
}

/// Threads per block of kernels that accumulate the sums of the stages outside the tensor cores. Such kernels have
/// three warpgroups, so that the producer warpgroup can release registers to the consumers.
pub const THREADS_ALONE: u32 = 3 * warpgroup::THREADS;

/// Returns the dynamic shared memory per block, in bytes, for tiles of `rows` x `columns` and `stages` pipeline stages
/// with `parts` tiles per operand each.
pub const fn shared_bytes(rows: usize, columns: usize, stages: usize, parts: u32) -> u32 {
    SharedMemory::bytes(stages as u32 * parts * ROW_BYTES * (rows + columns) as u32, 2 * stages as u32)
}

/// Returns how many blocks can be resident per SM, as limited by shared memory. The number limits the registers per
/// thread.
pub const fn resident(rows: usize, columns: usize) -> u32 {
    if rows + columns <= 192 { 2 } else { 1 }
}

/// Position of a tile, and the range of stages along K that the calling block sums.
#[derive(Clone, Copy)]
pub struct TileCoord {
    /// Index of the tile's first row in the planes of A.
    pub row: u32,
    /// Index of the tile's first column in the planes of B.
    pub column: u32,
    /// Plane of A.
    pub a_plane: u32,
    /// Plane of B.
    pub b_plane: u32,
    /// Index of the first stage, and exclusive end of the stages.
    pub stages: (u32, u32),
    /// Number of vertically adjacent tiles per cluster: 1 or 2. Their blocks have consecutive ranks.
    pub shared_by: u32,
}

/// Operands of a stage, and how its sums are accumulated.
pub trait Stage: Copy {
    /// Number of tiles per operand and stage: 1, or 2 for numbers that are split into two parts; the second part is in
    /// the next plane.
    const PARTS: u32 = 1;
    /// True if the tensor cores add only products within a stage, and the sums of the stages are accumulated in `f32`.
    const IS_ALONE: bool = false;
    /// Returns a stage's scales: one for each of two rows that are 8 rows apart, and one that applies to all columns.
    #[inline(always)]
    fn scales(self, stage: u32, row: u32) -> ([f32; 2], f32) {
        let _ = (stage, row);
        ([1.0; 2], 1.0)
    }
}

/// Operands with a single part, whose sums the tensor cores accumulate.
#[derive(Clone, Copy)]
pub struct Plain;

impl Stage for Plain {}

/// Row and plane strides of matrices, in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct RowStrides {
    /// Row stride.
    pub pitch: u64,
    /// Plane stride.
    pub plane: u64,
}

/// GEMM of 16-bit elements, `c = activation(scale * a * b + bias)`, for each matrix of a batch, with tiles of `ROWS` x
/// `COLUMNS`. `a` is K-major; `b` is column-major for [`KMajor`] and row-major for [`MnMajor`].
///
/// # Safety
/// The caller must uphold the safety contract of [`product`]. The grid must be one-dimensional, with one cluster per
/// `shared_by` tiles of each matrix of the batch. `sizes.split_stages` must be the number of stages of each block of a
/// cluster except the last. `c` must contain the matrices with the strides `rows` and overlap neither `a` nor `b`;
/// `bias` must have n elements.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    consts(ROWS = 64, 128; COLUMNS = 128, 192, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    dependent,
    no_panic
)]
pub unsafe fn matmul_non_persistent<T, B: Major, const ROWS: usize, const COLUMNS: usize>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TileCoord::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        match stages(ROWS, COLUMNS) {
            6 => product::<T, T, B, ROWS, COLUMNS, 6, _>(a, b, place, Plain, target),
            5 => product::<T, T, B, ROWS, COLUMNS, 5, _>(a, b, place, Plain, target),
            _ => product::<T, T, B, ROWS, COLUMNS, 4, _>(a, b, place, Plain, target),
        }
    }
}

/// Like [`matmul_non_persistent()`], but for TF32 (the upper 19 bits of `f32`) and FP8 elements; both operands are
/// K-major.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul_non_persistent()`].
#[kernel(
    types(T = f32, F8E4M3),
    consts(ROWS = 64, 128; COLUMNS = 128, 192, 256),
    arch = "90a",
    block(threads(ROWS)),
    launch_bounds(threads(ROWS), resident(ROWS, COLUMNS)),
    dependent,
    no_panic
)]
pub unsafe fn matmul_non_persistent_tn<T: GemmOperand<Sum = f32>, const ROWS: usize, const COLUMNS: usize>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T::Output>,
    bias: Option<&[T::Output]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: EpilogueParams,
) where
    T::Output: Into<f32>,
    Columns<COLUMNS>: Width,
{
    let (place, batch) = TileCoord::of_cluster::<T>(&sizes, [ROWS, COLUMNS], shared_by);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        match stages(ROWS, COLUMNS) {
            6 => product::<T, T::Output, KMajor, ROWS, COLUMNS, 6, _>(a, b, place, Plain, target),
            5 => product::<T, T::Output, KMajor, ROWS, COLUMNS, 5, _>(a, b, place, Plain, target),
            _ => product::<T, T::Output, KMajor, ROWS, COLUMNS, 4, _>(a, b, place, Plain, target),
        }
    }
}

impl TileCoord {
    /// Returns the tile and the stages of the calling block, and its matrix index in the batch. The grid must have one
    /// cluster per `shared_by` tiles of `height` x `width`.
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

/// Returns the epilogue target of [`product`] for this tile, in a C with the strides `rows`.
#[inline(always)]
pub(crate) fn target<'a, C: KernelType>(
    c: &mut DisjointMut<C>,
    sizes: &Sizes,
    place: TileCoord,
    batch: u32,
    rows: RowStrides,
    bias: Option<&'a [C]>,
    finish: EpilogueParams,
) -> OutputTile<'a, C> {
    let first = u64::from(batch) * rows.plane + u64::from(place.row) * rows.pitch;
    OutputTile {
        to: c.as_mut_ptr().wrapping_add(first as usize),
        pitch: rows.pitch,
        rows: sizes.m.saturating_sub(place.row),
        column: place.column,
        n: sizes.n,
        bias,
        finish,
    }
}

/// Computes a tile of `a * b` and stores it to the rows of `target`. All threads of the blocks that compute this tile
/// must call this function.
///
/// # Safety
/// The kernel must be declared with `arch = "90a"` and `block(threads(ROWS))` or, for [`Stage::IS_ALONE`], with
/// `block(THREADS_ALONE)` and 128 rows. The launch must have `shared_bytes(ROWS, COLUMNS, STAGES, S::PARTS)` of shared
/// memory and clusters of 1, 2, 3, 4, 6 or 8 blocks, a multiple of `shared_by`. For 192 columns, the cluster size must
/// be 1. The maps must describe planes of matrices, with a K-major `a`. The boxes must have `Swizzle::Bytes128`, and
/// [`ROW_BYTES`] bytes per row. The boxes of `a` have `ROWS` rows, and the boxes of `b` have [`BOX`] rows. The planes
/// of `place` must exist in the maps. The row of `place` may be out of bounds; out-of-bounds elements are read as zero.
/// `place` must be the same in all threads of a block and, except for the stages, in all blocks that compute the tile.
/// Blocks that share tiles of B must have the same column, plane of B and stages.
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
    place: TileCoord,
    of_stage: S,
    target: OutputTile<'_, C>,
) where
    T: Multiply<Sum = f32>,
    C: Output<f32> + Into<f32>,
    Columns<COLUMNS>: Width,
{
    const {
        assert!(ROWS == 64 || ROWS == 128, "a tile must have 64 or 128 rows");
        assert!(
            COLUMNS == 128 || COLUMNS == 192 || COLUMNS == 256,
            "a tile must have 128, 192 or 256 columns"
        );
        assert!(
            S::PARTS == 1 || S::PARTS == 2 && S::IS_ALONE,
            "products of numbers in two parts are added alone"
        );
        assert!(!S::IS_ALONE || ROWS == 128, "two warpgroups get the registers of the third");
        let bytes = STAGES * S::PARTS as usize * ROW_BYTES as usize * (ROWS + COLUMNS);
        assert!(
            bytes >= (4 + size_of::<C>() / 2) * ROWS * COLUMNS,
            "the sums of a tile and its half fit into the ring"
        );
    }
    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let a_tiles = memory.tiles::<T, ROWS, STAGES>();
    let b_tiles = memory.tiles::<T, COLUMNS, STAGES>();
    let (a_second, b_second) = if S::PARTS == 2 {
        (memory.tiles::<T, ROWS, STAGES>(), memory.tiles::<T, COLUMNS, STAGES>())
    } else {
        (a_tiles, b_tiles)
    };
    // SAFETY: the memory is reused only while nothing reads or writes the circular buffer. It contains either the whole
    // tile, or the sums for other blocks together with the part of the tile that this block stores.
    let (left, staged_part, staged) = unsafe {
        // The sums occupy one tile per 32 columns.
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
        // All blocks of this launch are resident by now. The blocks of the next launch can therefore use the remaining
        // slots.
        grid::launch_dependents();
        a.prefetch();
        b.prefetch();
        // SAFETY: the barriers have not been used yet; all threads synchronize after the initialization.
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
    // Programmatic dependent launch lets the code above overlap the tail of the preceding launch.
    grid::dependency_wait();

    let tile_k = SharedTile::<T, 64>::COLUMNS;
    let warp = warpgroup::warp_index();
    let rank = cluster::block_rank();
    let (split, which) = divide(rank, place.shared_by);
    let parts = divide(cluster::blocks(), place.shared_by).0;
    let mut slot = PipelineState::new();
    let mut stage = place.stages.0;
    let copies = warp >= 4 * groups;
    if copies {
        if S::IS_ALONE {
            // SAFETY: the block size is fixed, and each thread started with 168 registers.
            unsafe { warpgroup::release_registers::<40>() };
        }
        // SAFETY: all lanes of the warp execute this call.
        if warp == 4 * groups && unsafe { warpgroup::elect() } {
            while stage < place.stages.1 {
                let loaded = full.at(slot);
                let at = stage * tile_k;
                // SAFETY: the warpgroups of all blocks that receive the copies have finished reading this stage. Each
                // of these blocks expects the bytes of its own copy of A and of all of B.
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
                        // If two blocks share B, each multicasts half of it to both.
                        let boxes = divide(COLUMNS as u32 / BOX, place.shared_by).0;
                        let mut number = which * boxes;
                        while number < (which + 1) * boxes {
                            let to = b_tile.rows::<{ BOX as usize }>(number);
                            let column = place.column + BOX * number;
                            let from =
                                if B::IS_TRANSPOSED { [column, at, plane] } else { [at, column, plane] };
                            if is_shared {
                                b.load_multicast(to, from, loaded, 0b11 << (2 * split));
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
            // SAFETY: the block size is fixed, and the producer releases 128 registers per thread:
            // 40 + 2 * 232 = 3 * 168.
            unsafe { warpgroup::acquire_registers::<232>() };
            let row = GROUP_ROWS * group + warp % 4 * 16 + warp::lane_id() / 4;
            let mut all = *sums.registers();
            // These are macros, because closures are not guaranteed to be inlined.
            macro_rules! begin {
                ($sums:ident) => {{
                    // SAFETY: the stage is loaded, and stays unchanged until the `wgmma` operations are complete. All
                    // threads of the warpgroup execute the same code.
                    unsafe {
                        full.at(slot).wait(slot.parity());
                        let mut batch = $sums.pending().begin();
                        let (x, y) = (a_tiles.at(slot).rows::<64>(group), b_tiles.at(slot));
                        if S::PARTS == 2 {
                            // The products that involve a low part are smaller, so they are added first.
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
                    // SAFETY: the `wgmma` operations of the stage are complete.
                    unsafe { release(empty.at($slot), warp, place.shared_by, rank - which) };
                    let mut i = 0;
                    while i < COLUMNS / 2 {
                        all.as_mut()[i] += $sums.registers().as_ref()[i] * factors[i % 4 / 2];
                        i += 1;
                    }
                }};
            }
            if stage < place.stages.1 {
                // The sums of one stage are accumulated while the `wgmma` operations of the next are in flight.
                let mut other = Accumulator::<COLUMNS, f32>::new();
                // The scales are loaded one stage ahead. ptxas may schedule the multiplication by the scales before the
                // `wgmma`, which must not wait for a load.
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
                    // SAFETY: exactly one batch was committed after this one.
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
            // SAFETY: all threads of the warpgroup execute the loop together.
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
                    // SAFETY: the `wgmma` operations of the preceding stage are complete.
                    unsafe { release(empty.at(last), warp, place.shared_by, rank - which) };
                }
                last = slot;
                slot.advance();
                stage += 1;
            }
            sums = running.wait();
        }
        // All warps have finished reading the tiles.
        // SAFETY: all warps except the producers synchronize at a barrier that nothing else uses.
        unsafe { warpgroup::sync(1, groups * warpgroup::THREADS) };
        let row = GROUP_ROWS * group + warp % 4 * 16;
        let registers = sums.registers().as_ref();
        if parts == 1 {
            if is_shared {
                cluster::arrive();
            }
            // SAFETY: nothing reads or writes the circular buffer at this point, and each warp uses only its own rows.
            unsafe { store_own::<C, ROWS, COLUMNS>(staged, row, registers, &target) };
        } else {
            let thread = 32 * warp + warp::lane_id();
            // SAFETY: as above.
            unsafe { leave::<ROWS, COLUMNS>(left, thread, registers) };
            cluster::sync();
            let (tiles, at) = ((left, staged_part), (row, thread));
            // SAFETY: all blocks have written their partial sums, and none exits before all have read them.
            unsafe {
                match parts {
                    // Split-K does not support tiles of 192 columns.
                    _ if COLUMNS == 192 => {}
                    2 => add::<C, ROWS, COLUMNS, 2, 4>(tiles, at, place.shared_by, &target),
                    3 => add::<C, ROWS, COLUMNS, 3, 3>(tiles, at, place.shared_by, &target),
                    4 => add::<C, ROWS, COLUMNS, 4, 2>(tiles, at, place.shared_by, &target),
                    _ => add::<C, ROWS, COLUMNS, 8, 1>(tiles, at, place.shared_by, &target),
                }
            }
        }
    }
    // A block must not exit while other blocks read its sums, copy into its shared memory, or arrive at its barriers.
    if is_shared || parts > 1 {
        cluster::wait();
    }
}
