//! GEMM for compute capability 8.0 and later, `C = A * B`, with `mma.sync`.
//!
//! Each warp of a block computes 64 x 64 elements of the block's tile of C. All threads copy tiles of A and B into a
//! circular buffer with `cp.async`, two or three stages ahead (multistage). Warps load 32 bytes along K of A and B at a
//! time to registers (`ldmatrix`), one group ahead of the products.
//!
//! A stage has the same number of bytes for all element types. If an operand is contiguous along K, the fragments of
//! all types have the same byte layout, so `ldmatrix` loads every type as 16-bit words.
//!
//! Elements of FP8 are converted to `f16` in registers. `mma.sync` multiplies FP8 only from compute capability 8.9
//! on.
//!
//! Where the rows of an operand do not start on 16-byte boundaries, threads copy its elements one by one.
//!
//! With split-K, several blocks compute parts of a tile's sums, and store them in a workspace. The block that arrives
//! last adds the parts in order.
//!
//! Design: CUTLASS's multistage kernels (`cutlass/gemm/threadblock/mma_multistage.h`).

use core::array::from_fn;
use core::marker::PhantomData;

use gpu_std::atomic::{Atomic, Ordering, scope::Device};
use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, wait_copies, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{
    F8E4M3, KMajor, Major, MatrixTiles, MnMajor, Output, PipelineState, SharedMemory, Sum, warpgroup,
};
use gpu_std::vectorized::{load, load_or, opaque, store};

use crate::epilogue::EpilogueParams;
use crate::grouped::{GroupTile, Groups, group_bias};
use crate::matmul::{GemmOperand, Sizes};
use crate::number4::e4m3;
use crate::simt::Strides;
use crate::tile_epilogue::{Finish, OutputTile, stage, store_staged};
use crate::tiles::{Tiles, divide};

/// Repeats the body without a loop, for each of the literals below `count`, so that arrays stay in registers.
macro_rules! unroll {
    ($count:expr, |$i:ident: $($value:literal)*| $body:expr) => { $(
        if const { $value < $count } {
            #[allow(non_upper_case_globals, reason = "it is used like a variable")]
            let $i: u32 = $value;
            $body;
        }
    )* };
}

/// Element types of the kernels.
pub trait MmaNumber: GemmOperand {
    /// Type that `mma.sync` multiplies.
    type Operand: WarpOperand<Sum = Self::Sum>;
    /// Number of operands of `mma.sync` per 32 bytes of a row.
    const PARTS: usize = 1;
    /// Converts a register to registers of [`Self::PARTS`] operands. Elements may be permuted along K.
    fn parts(register: u32) -> [u32; 2];
}

macro_rules! numbers {
    ($($ty:ty),*) => { $(
        impl MmaNumber for $ty {
            type Operand = Self;
            #[inline(always)]
            fn parts(register: u32) -> [u32; 2] {
                [register, 0]
            }
        }
    )* };
}
numbers!(bf16, f16, f32, i8);

impl MmaNumber for F8E4M3 {
    type Operand = f16;
    const PARTS: usize = 2;
    #[inline(always)]
    fn parts(register: u32) -> [u32; 2] {
        e4m3::<f16>(register)
    }
}

/// Number of rows and columns of C per warp.
const WARP_TILE: u32 = 64;
/// Returns the number of columns of A per stage, for tiles of `rows` x `columns`.
pub const fn step<T>(rows: usize, columns: usize) -> usize {
    words(rows, columns) * 2 / size_of::<T>()
}

/// Returns the number of 16-bit words along K per stage.
const fn words(rows: usize, columns: usize) -> usize {
    if rows * columns == 128 * 128 { 64 } else { 32 }
}

/// Returns the number of pipeline stages. The shared memory per block fits on all devices: at most 96 KiB.
const fn stages(rows: usize, columns: usize) -> usize {
    if words(rows, columns) == 64 { 3 } else { 4 }
}

/// Number of 16 x 16 matrices of A per warp and group.
const MATRICES: usize = WARP_TILE as usize / 16;
/// Number of 8-column matrices of B per warp and group.
const COLUMNS: usize = WARP_TILE as usize / 8;
/// Maximum number of tiles of a launch with split-K: the number of 32-bit counters at the start of the workspace.
pub const COUNTERS: usize = 4096;

/// Sums of a thread.
type Sums<S> = [[[S; 4]; COLUMNS]; MATRICES];

/// Returns the number of threads per block for tiles of `rows` x `columns`.
pub const fn threads(rows: usize, columns: usize) -> u32 {
    (rows * columns) as u32 / (WARP_TILE * WARP_TILE) * 32
}

/// Returns the bytes of dynamic shared memory per block for tiles of `rows` x `columns`.
pub const fn shared_bytes(rows: usize, columns: usize) -> u32 {
    SharedMemory::bytes((stages(rows, columns) * 2 * words(rows, columns) * (rows + columns)) as u32, 0)
}

/// Returns the bytes of the workspace for split-K with `parts` parts of tiles of `rows` x `columns`.
pub const fn workspace_bytes(rows: usize, columns: usize, parts: usize) -> usize {
    size_of::<u32>() * COUNTERS + size_of::<u32>() * rows * columns * parts
}

/// Returns the number of resident blocks per SM, which limits the registers per thread.
const fn resident(threads: u32) -> u32 {
    256 / threads
}

/// Returns the number of threads in `warps` warps.
const fn of_warps(warps: usize) -> u32 {
    32 * warps as u32
}

/// GEMM of 16-bit elements, `c = activation(scale * a * b + bias)`, for each matrix of a batch. The tile of a block is
/// 64 x 128 for 2 `WARPS`, 128 x 128 for 4, and 128 x 256 for 8. A is row-major for [`KMajor`] and column-major for
/// [`MnMajor`]; for B, the layouts are reversed.
///
/// # Safety
/// The slices must contain the matrices that `sizes` and `strides` describe. `bias` must have n elements, and `c` must
/// overlap neither `a` nor `b`. The launch must have [`shared_bytes`] of dynamic shared memory. In memory, rows of A
/// and B must start on 16-byte boundaries, and their lengths must be multiples of 16 bytes.
///
/// The grid must be one-dimensional, with one block per tile of each matrix of the batch and per part of
/// `sizes.split_stages` * [`step()`] columns of A. If there are several parts, there must be at most [`COUNTERS`]
/// tiles, and `workspace` must have [`workspace_bytes`] and be aligned to 16 bytes. Its first [`COUNTERS`] words must
/// be zero, and they are zero again after the launch. Nothing else may use the workspace during the launch.
#[kernel(
    types(T = bf16, f16; A = KMajor, MnMajor; B = KMajor, MnMajor),
    consts(WARPS = 2, 4, 8),
    arch = 80,
    block(of_warps(WARPS)),
    launch_bounds(of_warps(WARPS), resident(of_warps(WARPS))),
    no_panic
)]
pub unsafe fn matmul_mma<T, A: Major, B: Major, const WARPS: usize>(
    a: &[T],
    b: &[T],
    c: DisjointMut<T>,
    bias: Option<&[T]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: MmaNumber<Sum = f32> + Output<f32> + Into<f32>,
{
    let are_transposed = [A::IS_TRANSPOSED, B::IS_TRANSPOSED];
    let gemm = Gemm { a, b, are_transposed, c, bias, workspace, sizes, strides, finish };
    // SAFETY: guaranteed by the caller.
    unsafe { gemm.by_warps::<A, B, _, WARPS>(Batch) }
}

/// Like [`matmul_mma()`], but for TF32 (the upper 19 bits of `f32`), FP8 and integers; both operands are K-major. Sums
/// of integers wrap around and have no epilogue.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul_mma()`].
#[kernel(
    types(T = f32, F8E4M3, i8),
    consts(WARPS = 2, 4, 8),
    arch = 80,
    block(of_warps(WARPS)),
    launch_bounds(of_warps(WARPS), resident(of_warps(WARPS))),
    no_panic
)]
pub unsafe fn matmul_mma_tn<T: MmaNumber, const WARPS: usize>(
    a: &[T],
    b: &[T],
    c: DisjointMut<T::Output>,
    bias: Option<&[T::Output]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T::Output: Finish<T::Sum>,
{
    let gemm = Gemm { a, b, are_transposed: [false; 2], c, bias, workspace, sizes, strides, finish };
    // SAFETY: guaranteed by the caller.
    unsafe { gemm.by_warps::<KMajor, KMajor, _, WARPS>(Batch) }
}

/// Like [`matmul_mma()`], but for all types, with operands of any alignment and layout, and tiles of 128 x 128. Threads
/// copy the elements one by one, through registers.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul_mma()`], except those for the alignment of A and B.
#[kernel(
    types(T = bf16, f16, f32, F8E4M3, i8),
    arch = 80,
    block(threads(128, 128)),
    launch_bounds(threads(128, 128), resident(threads(128, 128))),
    no_panic
)]
pub unsafe fn matmul_mma_unaligned<T: MmaNumber>(
    a: &[T],
    b: &[T],
    c: DisjointMut<T::Output>,
    bias: Option<&[T::Output]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T::Output: Finish<T::Sum>,
{
    let are_transposed = strides.are_transposed.map(|is_transposed| is_transposed != 0);
    let gemm = Gemm { a, b, are_transposed, c, bias, workspace, sizes, strides, finish };
    // SAFETY: guaranteed by the caller.
    unsafe { gemm.product::<KMajor, KMajor, _, 128, 128, 64, 3, false>(Batch) }
}

/// Grouped GEMM of 16-bit elements, as [`matmul_grouped()`](crate::grouped::matmul_grouped()), with tiles of 64 x 128 for
/// 2 `WARPS`, and 128 x 256 for 8.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul_mma()`] for A, which has `groups.m` rows, for B, which has
/// one matrix per group, and for C, with these strides. The grid must be one-dimensional, with `groups.blocks()` blocks
/// for the tile. The length of `offsets` is the number of groups plus one, and `bias` has n elements per group.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    consts(WARPS = 2, 8),
    arch = 80,
    block(of_warps(WARPS)),
    launch_bounds(of_warps(WARPS), resident(of_warps(WARPS))),
    no_panic
)]
pub unsafe fn matmul_mma_grouped<T, B: Major, const WARPS: usize>(
    a: &[T],
    b: &[T],
    c: DisjointMut<T>,
    offsets: &[u32],
    bias: Option<&[T]>,
    groups: Groups,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: MmaNumber<Sum = f32> + Output<f32> + Into<f32>,
{
    let Groups { count, m, n, k, .. } = groups;
    // There is no split-K.
    let sizes = Sizes { m, n, k, batches: 1, a_planes: 1, b_planes: count, split_stages: 0 };
    let (are_transposed, workspace) = ([false, B::IS_TRANSPOSED], core::ptr::null_mut());
    let gemm = Gemm { a, b, are_transposed, c, bias, workspace, sizes, strides, finish };
    // SAFETY: guaranteed by the caller.
    unsafe { gemm.by_warps::<KMajor, B, _, WARPS>(OfGroups { groups, offsets }) }
}

/// Arguments of the kernels.
struct Gemm<'a, T, C> {
    a: &'a [T],
    b: &'a [T],
    /// True for operands that are not contiguous along K in global memory.
    are_transposed: [bool; 2],
    c: DisjointMut<'a, C>,
    bias: Option<&'a [C]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
}

impl<T: MmaNumber, C: Finish<T::Sum>> Gemm<'_, T, C> {
    /// Computes the tile of C of the calling block of `WARPS` warps, or a part of its sums.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`matmul_mma()`].
    #[inline(always)]
    unsafe fn by_warps<A: Major, B: Major, P: Places, const WARPS: usize>(self, places: P) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if const { WARPS == 2 } {
                self.product::<A, B, P, 64, 128, 32, 4, true>(places);
            } else if const { WARPS == 4 } {
                self.product::<A, B, P, 128, 128, 64, 3, true>(places);
            } else {
                self.product::<A, B, P, 128, 256, 32, 4, true>(places);
            }
        }
    }

    /// Computes the tile of C of the calling block, or a part of its sums. `STEP` is the number of 16-bit words along K
    /// per stage. `A` and `B` are the layouts in shared memory.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`matmul_mma()`], except that A and B need no alignment unless
    /// `ALIGNED` is true. If it is true, the layouts must be the same in shared memory and in global memory.
    #[inline(always)]
    unsafe fn product<
        A: Major,
        B: Major,
        P: Places,
        const ROWS: usize,
        const WIDTH: usize,
        const STEP: usize,
        const STAGES: usize,
        const ALIGNED: bool,
    >(
        self,
        places: P,
    ) {
        let Self { a, b, are_transposed: [a_transposed, b_transposed], mut c, bias, .. } = self;
        let Self { workspace, sizes, strides, finish, .. } = self;
        const { assert!(STEP == words(ROWS, WIDTH) && STAGES == stages(ROWS, WIDTH)) };
        let groups = const { STEP as u32 / 16 };
        let step_k = const { step::<T>(ROWS, WIDTH) as u32 };
        let Some(place) = places.place::<ROWS, WIDTH>(&sizes) else { return };
        let part_k = if P::IS_BATCH { sizes.split_stages * step_k } else { sizes.k };
        let first_k = place.part * part_k;
        let k = (sizes.k - first_k).min(part_k);
        let a = Operand::new(a, a_transposed, strides.a, place.a_plane, [place.row, first_k], [place.end, k]);
        let b =
            Operand::new(b, b_transposed, strides.b, place.b_plane, [place.column, first_k], [sizes.n, k]);
        let (thread, warp) = (thread::thread_idx_x(), warpgroup::warp_index());
        let (warp_m, warp_n) = (warp % (ROWS as u32 / WARP_TILE), warp / (ROWS as u32 / WARP_TILE));
        // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
        let mut memory = unsafe { SharedMemory::new() };
        // SAFETY: the memory is reused after the last product.
        let staged = unsafe { memory.again() };
        let a_tiles = SharedOperand::<A, ROWS, STEP, STAGES>::new(&mut memory);
        let b_tiles = SharedOperand::<B, WIDTH, STEP, STAGES>::new(&mut memory);
        let threads = threads(ROWS, WIDTH);
        let mut a = a.of_thread::<ROWS, STEP, ALIGNED>(thread, threads);
        let mut b = b.of_thread::<WIDTH, STEP, ALIGNED>(thread, threads);
        let (mut write, mut read) = (PipelineState::<STAGES>::new(), PipelineState::<STAGES>::new());

        macro_rules! copy_b {
            () => {{
                b_tiles.copy::<T, ALIGNED>(&mut b, write);
                commit_copies();
                write.advance();
            }};
        }
        macro_rules! copy_stage {
            () => {{
                a_tiles.copy::<T, ALIGNED>(&mut a, write);
                copy_b!();
            }};
        }
        // Waits for the stage after `read`. The copies of the stage after that have been committed, and later copies
        // have not.
        macro_rules! wait_stage {
            () => {{
                wait_copies_leaving::<1>();
                thread::sync_threads();
            }};
        }
        let mut sums: Sums<T::Sum> = [[[T::Sum::ZERO; 4]; COLUMNS]; MATRICES];
        let mut current = Fragments { a: [[0; 4]; MATRICES], b: [[0; 2]; COLUMNS] };
        // SAFETY: a slot is written only after all threads have read its previous contents, and read only after all
        // threads have waited for its copies.
        unsafe {
            let mut i = 0;
            while i < STAGES - 1 {
                copy_stage!();
                i += 1;
            }
            wait_stage!();
            current.load(&a_tiles, &b_tiles, read, [warp_m, warp_n], 0);
            let mut step = 0;
            while step < k {
                unroll!(STEP / 16, |group: 0 1 2 3| {
                    if group + 1 == groups {
                        wait_stage!();
                        read.advance();
                    }
                    // Elements on their way through registers and the next operands would need too many registers.
                    if group == 0 && !ALIGNED {
                        copy_stage!();
                    }
                    // The conversion needs the registers of the next operands.
                    if const { T::PARTS > 1 } {
                        current.multiply::<T>(&mut sums);
                    }
                    let mut next = current;
                    next.load(&a_tiles, &b_tiles, read, [warp_m, warp_n], (group + 1) % groups);
                    if ALIGNED && group == 0 {
                        a_tiles.copy::<T, ALIGNED>(&mut a, write);
                    }
                    if ALIGNED && group == 1 {
                        copy_b!();
                    }
                    if const { T::PARTS == 1 } {
                        current.multiply::<T>(&mut sums);
                    }
                    current = next;
                });
                step += step_k;
            }
            wait_copies();
            thread::sync_threads();
            let sizes = Sizes { m: opaque(sizes.m), n: opaque(sizes.n), ..sizes };
            // The place in a batch is computed again, because it would occupy registers during the products.
            let place = if P::IS_BATCH { Batch.of::<ROWS, WIDTH>(&sizes) } else { place };
            if part_k < sizes.k {
                let (tile, part) = (place.tile, place.part);
                let tiles = Tiles::new(&sizes, ROWS as u32, WIDTH as u32).count();
                let (parts, _) = divide(thread::grid_dim_x(), tiles);
                if !(Partial { workspace, tile, tiles, part, parts, threads }).add(&mut sums) {
                    return;
                }
            }
            let (row, column) = (place.row + warp_m * WARP_TILE, place.column + warp_n * WARP_TILE);
            let [pitch, plane] = strides.c;
            let first = u64::from(place.c_plane) * plane + u64::from(row) * pitch;
            let bias = match bias {
                Some(bias) if !P::IS_BATCH => Some(group_bias(bias, place.b_plane, sizes.n)),
                bias => bias,
            };
            let target = OutputTile {
                to: c.as_mut_ptr().wrapping_add(first as usize),
                pitch,
                rows: place.end.saturating_sub(row),
                column,
                n: sizes.n,
                bias,
                finish,
            };
            // The staged rows of eight warps have 64 KiB.
            if const { size_of::<C>() == 2 } {
                store_sums::<C, T::Sum, { 8 * 64 }, 4>(staged, warp, &sums, target);
            } else {
                store_sums::<C, T::Sum, { 8 * 32 }, 2>(staged, warp, &sums, target);
            }
        }
    }
}

/// Applies the epilogue to the sums of a warp, and stores them. Each warp stages the rows of `COUNT` matrices at a time
/// in its own part of `ROWS` rows of shared memory.
///
/// # Safety
/// Only this warp may use its rows in shared memory. `target` must contain the warp's rows and columns, and no other
/// thread may write them; its bias must have n elements.
#[inline(always)]
unsafe fn store_sums<C: Finish<S>, S: Sum, const ROWS: usize, const COUNT: usize>(
    mut memory: SharedMemory,
    warp: u32,
    sums: &Sums<S>,
    target: OutputTile<'_, C>,
) {
    let staged = memory.tiles::<C, ROWS, 8>();
    let rows = const { 16 * COUNT as u32 };
    // The warp's rows in shared memory start at `own`.
    let own = warp * rows;
    unroll!(MATRICES / COUNT, |pass: 0 1| {
        let before = pass * rows;
        let offset = u64::from(before).wrapping_sub(u64::from(own)).wrapping_mul(target.pitch);
        let target = OutputTile {
            to: target.to.wrapping_add(offset as usize),
            rows: target.rows.saturating_sub(before) + own,
            ..target
        };
        // SAFETY: guaranteed by the caller. The other lanes have read the rows of the preceding pass.
        unsafe {
            if pass > 0 {
                warp::sync_warp(!0);
            }
            unroll!(COUNT, |i: 0 1 2 3| {
                let sums = sums[pass as usize * COUNT + i as usize].as_flattened();
                stage::<C, S, ROWS, { WARP_TILE as usize }>(staged, own + 16 * i, sums, &target);
            });
            // Unrolled, the stores would be half of the code.
            store_staged(staged, (own, opaque(rows)), (0, WARP_TILE), &target);
        }
    });
}

/// Place of a block's tile in the matrices.
#[derive(Clone, Copy)]
struct Place {
    /// Index of the tile.
    tile: u32,
    /// Index of the part of K.
    part: u32,
    /// Index of the matrix of A.
    a_plane: u32,
    /// Index of the matrix of B.
    b_plane: u32,
    /// Index of the matrix of C.
    c_plane: u32,
    /// First row in A and C.
    row: u32,
    /// End of the rows in A and C.
    end: u32,
    /// First column in C.
    column: u32,
}

/// Assignment of tiles to blocks.
trait Places: Copy {
    /// True for [`Batch`].
    const IS_BATCH: bool;
    /// Returns the place of the calling block, or `None` if there are fewer tiles.
    fn place<const ROWS: usize, const WIDTH: usize>(self, sizes: &Sizes) -> Option<Place>;
}

/// Matrices of a batch, whose tiles can be split along K.
#[derive(Clone, Copy)]
struct Batch;

impl Batch {
    #[inline(always)]
    fn of<const ROWS: usize, const WIDTH: usize>(self, sizes: &Sizes) -> Place {
        let tiles = Tiles::new(sizes, ROWS as u32, WIDTH as u32);
        let (part, index) = divide(thread::block_idx_x(), tiles.count());
        let tile = tiles.at(index);
        let (row, column) = (tile.row * ROWS as u32, tile.column * WIDTH as u32);
        let plane = tile.batch;
        Place { tile: index, part, a_plane: plane, b_plane: plane, c_plane: plane, row, end: sizes.m, column }
    }
}

impl Places for Batch {
    const IS_BATCH: bool = true;
    #[inline(always)]
    fn place<const ROWS: usize, const WIDTH: usize>(self, sizes: &Sizes) -> Option<Place> {
        Some(self.of::<ROWS, WIDTH>(sizes))
    }
}

/// Groups of rows of one matrix, each with its own B.
#[derive(Clone, Copy)]
struct OfGroups<'a> {
    groups: Groups,
    /// One more than there are groups.
    offsets: &'a [u32],
}

impl Places for OfGroups<'_> {
    const IS_BATCH: bool = false;
    #[inline(always)]
    fn place<const ROWS: usize, const WIDTH: usize>(self, _: &Sizes) -> Option<Place> {
        // SAFETY: the caller of the kernel guarantees the length of the offsets.
        let tile = unsafe { self.groups.tile([ROWS as u32, WIDTH as u32], self.offsets) }?;
        let GroupTile { group, row, end, column } = tile;
        Some(Place { tile: 0, part: 0, a_plane: 0, b_plane: group, c_plane: 0, row, end, column })
    }
}

/// Partial sums of a tile, computed by the calling block over its part of K (split-K).
struct Partial {
    workspace: *mut u32,
    /// Index of the tile.
    tile: u32,
    /// Number of tiles.
    tiles: u32,
    /// Index of the block's part of K.
    part: u32,
    /// Number of parts into which K is split.
    parts: u32,
    /// Number of threads per block.
    threads: u32,
}

impl Partial {
    /// Split-K reduction: stores the sums in the workspace. If the workspace already contains the other parts of the
    /// tile, the function replaces the sums with the totals of all parts, and returns true.
    ///
    /// # Safety
    /// The requirements of [`matmul_mma()`] for the workspace apply, and all threads of the block must call it.
    #[inline(always)]
    unsafe fn add<S: Sum>(&self, sums: &mut Sums<S>) -> bool {
        unroll!(MATRICES, |i: 0 1 2 3| unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
            // SAFETY: the caller guarantees that the workspace has room for these sums, which are the thread's own.
            unsafe { store(self.sums(self.part, i, j), sums[i as usize][j as usize]) };
        }));
        // SAFETY: this is the counter of the tile, and all threads of all its blocks call it.
        if !unsafe { is_last(|| self.workspace.wrapping_add(self.tile as usize), self.parts) } {
            return false;
        }
        *sums = [[[S::ZERO; 4]; COLUMNS]; MATRICES];
        let mut part = 0;
        while part < self.parts {
            unroll!(MATRICES, |i: 0 1 2 3| unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
                // SAFETY: the corresponding thread of that block has written the sums.
                let more = unsafe { load::<S, 4>(self.sums(part, i, j)) };
                let sum = &mut sums[i as usize][j as usize];
                *sum = from_fn(|lane| sum[lane].wrapping_add(more[lane]));
            }));
            part += 1;
        }
        true
    }

    /// Returns the address of the calling thread's sums of matrices `i` and `j`, in a part of the tile. Consecutive
    /// threads use consecutive addresses.
    #[inline(always)]
    fn sums<S: Sum>(&self, part: u32, i: u32, j: u32) -> *mut S {
        let block = u64::from(part) * u64::from(self.tiles) + u64::from(self.tile);
        let four = block * (MATRICES * COLUMNS) as u64 + u64::from(i * COLUMNS as u32 + j);
        let four = four * u64::from(self.threads) + u64::from(thread::thread_idx_x());
        self.workspace.wrapping_add(COUNTERS + 4 * four as usize).cast()
    }
}

/// Returns true in the last of `count` blocks to call it. This block can then read what all threads of the other blocks
/// wrote before their calls.
///
/// # Safety
/// All threads of the blocks must call it. `arrived` must return a counter in global memory that is 0 and that nothing
/// else accesses. It is 0 again when all blocks have called it.
#[inline(always)]
pub(crate) unsafe fn is_last(arrived: impl FnOnce() -> *mut u32, count: u32) -> bool {
    // All threads have written before this barrier.
    thread::sync_threads();
    let mut last = false;
    if thread::thread_idx_x() == 0 {
        // SAFETY: guaranteed by the caller.
        let arrived = unsafe { Atomic::<u32, Device>::from_ptr(arrived()) };
        // Releases the writes of this block, and acquires those of the blocks that arrived earlier.
        last = arrived.fetch_add(1, Ordering::AcqRel) == count - 1;
        if last {
            arrived.store(0, Ordering::Relaxed);
        }
    }
    thread::sync_threads_or(last)
}

/// Operands of a warp's products in one group of 32 bytes along K.
#[derive(Clone, Copy)]
struct Fragments {
    a: [[u32; 4]; MATRICES],
    b: [[u32; 2]; COLUMNS],
}

impl Fragments {
    /// Loads group `group` of a slot.
    ///
    /// # Safety
    /// The slot must be complete.
    #[inline(always)]
    unsafe fn load<
        A: Major,
        B: Major,
        const ROWS: usize,
        const WIDTH: usize,
        const STEP: usize,
        const STAGES: usize,
    >(
        &mut self,
        a: &SharedOperand<A, ROWS, STEP, STAGES>,
        b: &SharedOperand<B, WIDTH, STEP, STAGES>,
        slot: PipelineState<STAGES>,
        warp: [u32; 2],
        group: u32,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            unroll!(MATRICES, |i: 0 1 2 3| {
                self.a[i as usize] = a.load_a(slot, warp[0] * WARP_TILE + 16 * i, group);
            });
            unroll!(COLUMNS / 2, |i: 0 1 2 3| {
                let i = i as usize;
                [self.b[2 * i], self.b[2 * i + 1]] = b.load_b(slot, warp[1] * WARP_TILE + 16 * i as u32, group);
            });
        }
    }

    /// Adds the products to the sums.
    ///
    /// # Safety
    /// All lanes of the warp must call it together.
    #[inline(always)]
    unsafe fn multiply<T: MmaNumber>(&self, sums: &mut Sums<T::Sum>) {
        unroll!(T::PARTS as u32, |part: 0 1| {
            let of_part = |register: u32| T::parts(register)[part as usize];
            let a = self.a.map(|registers| registers.map(of_part));
            unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
                let b = self.b[j as usize].map(of_part);
                unroll!(MATRICES, |i: 0 1 2 3| {
                    let (i, j) = (i as usize, j as usize);
                    // SAFETY: guaranteed by the caller.
                    sums[i][j] = unsafe { mma::<T::Operand>(sums[i][j], a[i], b) };
                });
            });
        });
    }
}

/// Rows of A, or columns of B, that belong to one tile.
#[derive(Clone, Copy)]
struct Operand<T> {
    from: *const T,
    /// True if the elements are not contiguous along K.
    is_transposed: bool,
    pitch: u64,
    /// Number of rows of A, or columns of B, from the start of the tile to the end of the matrix.
    side: u32,
    k: u32,
}

impl<T: Copy> Operand<T> {
    /// Number of elements per chunk of 16 bytes.
    const CHUNK: u32 = 16 / size_of::<T>() as u32;

    /// Returns the rows or columns from `first` on; `k` columns of A, or rows of B, from `first_k` on.
    #[inline(always)]
    fn new(
        elements: &[T],
        is_transposed: bool,
        [pitch, plane]: [u64; 2],
        batch: u32,
        [first, first_k]: [u32; 2],
        [side, k]: [u32; 2],
    ) -> Self {
        let (row, column) = if is_transposed { (first_k, first) } else { (first, first_k) };
        let at = u64::from(batch) * plane + u64::from(row) * pitch + u64::from(column);
        Self {
            from: elements.as_ptr().wrapping_add(at as usize),
            is_transposed,
            pitch,
            side: side - first,
            k,
        }
    }

    /// Returns the chunks that a thread copies. If they are `ALIGNED`, their elements are contiguous, and they become
    /// chunks of the same layout in shared memory. Otherwise, they become chunks along K. Threads with adjacent indices
    /// read adjacent elements.
    #[inline(always)]
    fn of_thread<const SIDE: usize, const STEP: usize, const ALIGNED: bool>(
        self,
        thread: u32,
        threads: u32,
    ) -> Chunks<T> {
        let step = const { (STEP * 2 / size_of::<T>()) as u64 };
        let (side, k) = (self.side as i32, self.k as i32);
        let next = if self.is_transposed { step * self.pitch } else { step };
        let from = |row: u32, chunk: u32, [row_stride, stride]: [u64; 2]| {
            let first = u64::from(row) * row_stride + u64::from(Self::CHUNK * chunk) * stride;
            self.from.wrapping_add(first as usize)
        };
        if !ALIGNED && self.is_transposed {
            let (row, chunk, chunks) = (thread % SIDE as u32, thread / SIDE as u32, threads / SIDE as u32);
            Chunks {
                from: from(row, chunk, [1, self.pitch]),
                stride: (u64::from(Self::CHUNK * chunks) * self.pitch) as usize,
                next: next as usize,
                element: self.pitch as usize,
                row,
                rows: 0,
                chunk,
                chunks,
                left: (side - row as i32, k - (Self::CHUNK * chunk) as i32),
            }
        } else {
            let in_row = if self.is_transposed { SIDE } else { STEP } as u32 / 8;
            let (row, chunk, rows) = (thread / in_row, thread % in_row, threads / in_row);
            let (height, width) = if self.is_transposed { (k, side) } else { (side, k) };
            Chunks {
                from: from(row, chunk, [self.pitch, 1]),
                stride: (u64::from(rows) * self.pitch) as usize,
                next: next as usize,
                element: 1,
                row,
                rows,
                chunk,
                chunks: 0,
                left: (height - row as i32, width - (Self::CHUNK * chunk) as i32),
            }
        }
    }
}

/// Loads the elements of a chunk one by one. Those from `count` on are zero.
///
/// # Safety
/// The first `count` elements, with a stride of `stride` elements, must exist, and nothing may write them during the
/// launch.
#[inline(always)]
unsafe fn gather<T>(from: *const T, stride: usize, count: i32) -> [u32; 4] {
    macro_rules! of_words {
        ($word:ty) => {{
            let from = from.cast::<$word>();
            let mut all = [0; 4];
            unroll!(16 / size_of::<$word>() as u32, |i: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15| {
                let at = from.wrapping_add(i as usize * stride);
                // SAFETY: guaranteed by the caller.
                let [word] = unsafe { load_or::<$word, 1, true>(at, (i as i32) < count, [0]) };
                let byte = i as usize * size_of::<$word>();
                all[byte / 4] |= u32::from(word) << (byte % 4 * 8);
            });
            all
        }};
    }
    match size_of::<T>() {
        1 => of_words!(u8),
        2 => of_words!(u16),
        _ => of_words!(u32),
    }
}

/// Chunks that a thread copies per stage: from chunk `chunk` of row `row` on, in steps of `rows` rows and `chunks`
/// chunks.
#[derive(Clone, Copy)]
struct Chunks<T> {
    from: *const T,
    /// Distance from one chunk to the next, in elements.
    stride: usize,
    /// Distance from a stage to the next, in elements.
    next: usize,
    /// Distance from one element of a chunk to the next, in elements.
    element: usize,
    row: u32,
    rows: u32,
    chunk: u32,
    chunks: u32,
    /// Number of rows of the operand from `row` on, and number of elements of a row from the chunk on.
    left: (i32, i32),
}

/// Tiles of an operand in shared memory, which consist of 16-bit words.
struct SharedOperand<M, const SIDE: usize, const STEP: usize, const STAGES: usize> {
    tiles: MatrixTiles<u16, SIDE, STEP, STAGES>,
    major: PhantomData<M>,
}

impl<M: Major, const SIDE: usize, const STEP: usize, const STAGES: usize>
    SharedOperand<M, SIDE, STEP, STAGES>
{
    #[inline(always)]
    fn new(memory: &mut SharedMemory) -> Self {
        Self { tiles: memory.matrix_tiles(), major: PhantomData }
    }

    /// Copies the chunks of a thread, and advances them to the next stage.
    ///
    /// # Safety
    /// Nothing else may use the slot.
    #[inline(always)]
    unsafe fn copy<T: Copy, const ALIGNED: bool>(&self, chunks: &mut Chunks<T>, slot: PipelineState<STAGES>) {
        let step = const { (STEP * 2 / size_of::<T>()) as i32 };
        if ALIGNED {
            // SAFETY: guaranteed by the caller.
            unsafe { self.copy_aligned(*chunks, slot) };
        } else {
            // SAFETY: guaranteed by the caller.
            unsafe { self.copy_elements(*chunks, slot) };
        }
        chunks.from = chunks.from.wrapping_add(chunks.next);
        if M::IS_TRANSPOSED {
            chunks.left.0 -= step;
        } else {
            chunks.left.1 -= step;
        }
    }

    /// Copies chunks asynchronously.
    ///
    /// # Safety
    /// Nothing else may use the slot.
    #[inline(always)]
    unsafe fn copy_aligned<T: Copy>(&self, chunks: Chunks<T>, slot: PipelineState<STAGES>) {
        let height = if M::IS_TRANSPOSED { STEP } else { SIDE } as u32;
        let (rows, columns) = chunks.left;
        let tile = self.tiles.at(slot);
        let (mut down, mut from) = (0, chunks.from);
        while down < height {
            let (row, is_there) = (chunks.row + down, columns > 0 && rows > down as i32);
            // SAFETY: guaranteed by the caller; the elements are inside the matrix.
            unsafe {
                if M::IS_TRANSPOSED {
                    tile.reshaped().copy_chunk(row, chunks.chunk, from.cast(), is_there);
                } else {
                    tile.copy_chunk(row, chunks.chunk, from.cast(), is_there);
                }
            }
            from = from.wrapping_add(chunks.stride);
            down += chunks.rows;
        }
    }

    /// Copies the elements of chunks one by one.
    ///
    /// # Safety
    /// Nothing else may use the slot.
    #[inline(always)]
    unsafe fn copy_elements<T: Copy>(&self, mut chunks: Chunks<T>, slot: PipelineState<STAGES>) {
        let tile = self.tiles.at(slot);
        let threads = threads(SIDE, SIDE);
        // Unrolled, the loads of single elements would need more registers than there are.
        let mut left = opaque((SIDE * STEP / 8) as u32 / threads);
        while left > 0 {
            let (rows, columns) = chunks.left;
            // SAFETY: guaranteed by the caller; the elements are inside the matrix.
            unsafe {
                let elements = gather(chunks.from, chunks.element, if rows > 0 { columns } else { 0 });
                tile.store_chunk(chunks.row, chunks.chunk, elements);
            }
            chunks.from = chunks.from.wrapping_add(chunks.stride);
            chunks.row += chunks.rows;
            chunks.chunk += chunks.chunks;
            chunks.left.0 -= chunks.rows as i32;
            chunks.left.1 -= (Operand::<T>::CHUNK * chunks.chunks) as i32;
            left -= 1;
        }
    }

    /// Loads 16 rows of A from `row` on, in group `group` of a slot.
    ///
    /// # Safety
    /// The slot must be complete.
    #[inline(always)]
    unsafe fn load_a(&self, slot: PipelineState<STAGES>, row: u32, group: u32) -> [u32; 4] {
        let tile = self.tiles.at(slot);
        // SAFETY: guaranteed by the caller.
        unsafe {
            if M::IS_TRANSPOSED {
                tile.reshaped().load_a_transposed(16 * group, row / 8)
            } else {
                tile.load_a(row, 2 * group)
            }
        }
    }

    /// Loads 16 columns of B from `column` on, in group `group` of a slot.
    ///
    /// # Safety
    /// The slot must be complete.
    #[inline(always)]
    unsafe fn load_b(&self, slot: PipelineState<STAGES>, column: u32, group: u32) -> [[u32; 2]; 2] {
        let tile = self.tiles.at(slot);
        // SAFETY: guaranteed by the caller.
        unsafe {
            if M::IS_TRANSPOSED {
                tile.reshaped().load_b_transposed(16 * group, column / 8)
            } else {
                tile.load_b(column, 2 * group)
            }
        }
    }
}
