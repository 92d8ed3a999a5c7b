//! GEMM for compute capability 8.0 and later, `C = A * B`, with `mma.sync`.
//!
//! Each warp of a block computes 64 x 64 elements of the block's tile of C. All threads copy tiles of A and B into a
//! circular buffer with `cp.async`, two or three stages ahead (multistage). Warps load 16 columns of A and 16 rows of B
//! at a time to registers (`ldmatrix`), one group ahead of the products.
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
use gpu_std::tensor::{KMajor, Major, MatrixTiles, MnMajor, Output, PipelineState, SharedMemory, warpgroup};
use gpu_std::vectorized::{load, load_or, opaque, store};

use crate::epilogue::EpilogueParams;
use crate::matmul::Sizes;
use crate::simt::Strides;
use crate::tile_epilogue::{OutputTile, stage, store_staged};
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

/// Number of rows and columns of C per warp.
const WARP_TILE: u32 = 64;
/// Returns the number of columns of A per stage, for tiles of `rows` x `columns`.
pub const fn step(rows: usize, columns: usize) -> usize {
    if rows * columns == 128 * 128 { 64 } else { 32 }
}

/// Returns the number of pipeline stages. The shared memory per block fits on all devices: at most 96 KiB.
const fn stages(rows: usize, columns: usize) -> usize {
    if step(rows, columns) == 64 { 3 } else { 4 }
}

/// Number of 16 x 16 matrices of A per warp and group.
const MATRICES: usize = WARP_TILE as usize / 16;
/// Number of 8-column matrices of B per warp and group.
const COLUMNS: usize = WARP_TILE as usize / 8;
/// Maximum number of tiles of a launch with split-K: the number of 32-bit counters at the start of the workspace.
pub const COUNTERS: usize = 4096;

/// Sums of a thread.
type Sums = [[[f32; 4]; COLUMNS]; MATRICES];

/// Returns the number of threads per block for tiles of `rows` x `columns`.
pub const fn threads(rows: usize, columns: usize) -> u32 {
    (rows * columns) as u32 / (WARP_TILE * WARP_TILE) * 32
}

/// Returns the bytes of dynamic shared memory per block for tiles of `rows` x `columns`.
pub const fn shared_bytes(rows: usize, columns: usize) -> u32 {
    SharedMemory::bytes((stages(rows, columns) * 2 * step(rows, columns) * (rows + columns)) as u32, 0)
}

/// Returns the bytes of the workspace for split-K with `parts` parts of tiles of `rows` x `columns`.
pub const fn workspace_bytes(rows: usize, columns: usize, parts: usize) -> usize {
    size_of::<u32>() * COUNTERS + size_of::<f32>() * rows * columns * parts
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
///
/// The slices must contain the matrices that `sizes` and `strides` describe. `bias` must have n elements, and `c` must
/// overlap neither `a` nor `b`. The launch must have [`shared_bytes`] of dynamic shared memory. In memory, rows of A
/// and B must start on 16-byte boundaries, and their lengths must be multiples of 16 bytes.
///
/// The grid must be one-dimensional, with one block per tile of each matrix of the batch and per part of
/// `sizes.split_stages` * [`step()`] columns of A. If there are several parts, there must be at most [`COUNTERS`] tiles,
/// and `workspace` must have [`workspace_bytes`] and be aligned to 16 bytes. Its first [`COUNTERS`] words must be zero,
/// and they are zero again after the launch. Nothing else may use the workspace during the launch.
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
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        if const { WARPS == 2 } {
            product::<T, A, B, 64, 128, 32, 4, true>(a, b, &mut c, bias, workspace, sizes, strides, finish)
        } else if const { WARPS == 4 } {
            product::<T, A, B, 128, 128, 64, 3, true>(a, b, &mut c, bias, workspace, sizes, strides, finish)
        } else {
            product::<T, A, B, 128, 256, 32, 4, true>(a, b, &mut c, bias, workspace, sizes, strides, finish)
        }
    }
}

/// Like [`matmul_mma()`], but with operands of any alignment, and tiles of 128 x 128. Threads copy the elements one by
/// one, through registers.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`matmul_mma()`], except those for the alignment of A and B.
#[kernel(
    types(T = bf16, f16; A = KMajor, MnMajor; B = KMajor, MnMajor),
    arch = 80,
    block(threads(128, 128)),
    launch_bounds(threads(128, 128), resident(threads(128, 128))),
    no_panic
)]
pub unsafe fn matmul_mma_unaligned<T, A: Major, B: Major>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        product::<T, A, B, 128, 128, 64, 3, false>(a, b, &mut c, bias, workspace, sizes, strides, finish)
    }
}

/// Computes the tile of C of the calling block, or a part of its sums.
///
/// # Safety
///
/// The caller must uphold the safety contract of [`matmul_mma()`], except that A and B need no alignment unless
/// `ALIGNED` is true.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the parameters of the kernels")]
unsafe fn product<
    T,
    A: Major,
    B: Major,
    const ROWS: usize,
    const WIDTH: usize,
    const STEP: usize,
    const STAGES: usize,
    const ALIGNED: bool,
>(
    a: &[T],
    b: &[T],
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    workspace: *mut u32,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    const { assert!(STEP == step(ROWS, WIDTH) && STAGES == stages(ROWS, WIDTH)) };
    let groups = const { STEP as u32 / 16 };
    let tiles = Tiles::new(&sizes, ROWS as u32, WIDTH as u32);
    let place = Place::of::<ROWS, WIDTH>(tiles, thread::block_idx_x());
    let part_k = sizes.split_stages * STEP as u32;
    let first_k = place.part * part_k;
    let k = (sizes.k - first_k).min(part_k);
    let a = Operand::new::<A>(a, strides.a, place.batch, [place.row, first_k], [sizes.m, k]);
    let b = Operand::new::<B>(b, strides.b, place.batch, [place.column, first_k], [sizes.n, k]);
    let (thread, warp) = (thread::thread_idx_x(), warpgroup::warp_index());
    let (warp_m, warp_n) = (warp % (ROWS as u32 / WARP_TILE), warp / (ROWS as u32 / WARP_TILE));
    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    // SAFETY: the memory is reused after the last product.
    let mut staged = unsafe { memory.again() };
    let a_tiles = SharedOperand::<T, A, ROWS, STEP, STAGES>::new(&mut memory);
    let b_tiles = SharedOperand::<T, B, WIDTH, STEP, STAGES>::new(&mut memory);
    let threads = threads(ROWS, WIDTH);
    let mut a = a.of_thread::<A, ROWS, STEP>(thread, threads);
    let mut b = b.of_thread::<B, WIDTH, STEP>(thread, threads);
    let (mut write, mut read) = (PipelineState::<STAGES>::new(), PipelineState::<STAGES>::new());

    macro_rules! copy_b {
        () => {{
            b_tiles.copy::<ALIGNED>(&mut b, write);
            commit_copies();
            write.advance();
        }};
    }
    macro_rules! copy_stage {
        () => {{
            a_tiles.copy::<ALIGNED>(&mut a, write);
            copy_b!();
        }};
    }
    macro_rules! wait_stage {
        () => {{
            if const { STAGES == 3 } {
                wait_copies_leaving::<1>();
            } else {
                wait_copies_leaving::<2>();
            }
            thread::sync_threads();
        }};
    }
    let mut sums: Sums = [[[0.0; 4]; COLUMNS]; MATRICES];
    let mut current = Fragments { a: [[0; 4]; MATRICES], b: [[0; 2]; COLUMNS] };
    // SAFETY: a slot is written only after all threads have read its previous contents, and read only after all threads
    // have waited for its copies.
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
                let mut next = current;
                next.load(&a_tiles, &b_tiles, read, [warp_m, warp_n], (group + 1) % groups);
                if ALIGNED && group == 0 {
                    a_tiles.copy::<ALIGNED>(&mut a, write);
                }
                if ALIGNED && group == 1 {
                    copy_b!();
                }
                current.multiply::<T>(&mut sums);
                current = next;
            });
            step += STEP as u32;
        }
        wait_copies();
        thread::sync_threads();
        // The place is computed again, because it would occupy registers during the products.
        let sizes = Sizes { m: opaque(sizes.m), n: opaque(sizes.n), ..sizes };
        let tiles = Tiles::new(&sizes, ROWS as u32, WIDTH as u32);
        let place = Place::of::<ROWS, WIDTH>(tiles, thread::block_idx_x());
        if part_k < sizes.k {
            let (tile, part, tiles) = (place.tile, place.part, tiles.count());
            let (parts, _) = divide(thread::grid_dim_x(), tiles);
            if !(Partial { workspace, tile, tiles, part, parts, threads }).add(&mut sums) {
                return;
            }
        }
        let (row, column) = (place.row + warp_m * WARP_TILE, place.column + warp_n * WARP_TILE);
        let [pitch, plane] = strides.c;
        // The rows of a warp in shared memory start at `own`.
        let own = warp * WARP_TILE;
        let first = u64::from(place.batch) * plane + u64::from(row) * pitch;
        let first = first.wrapping_sub(u64::from(own) * pitch);
        let target = OutputTile {
            to: c.as_mut_ptr().wrapping_add(first as usize),
            pitch,
            rows: sizes.m.saturating_sub(row) + own,
            column,
            n: sizes.n,
            bias,
            finish,
        };
        let staged = staged.tiles::<T, { WARP_TILE as usize * 8 }, 8>();
        unroll!(MATRICES, |i: 0 1 2 3| {
            let sums = sums[i as usize].as_flattened();
            stage::<T, { WARP_TILE as usize * 8 }, { WARP_TILE as usize }>(staged, own + 16 * i, sums, &target);
        });
        // Unrolled, the stores would be half of the code.
        store_staged(staged, (own, opaque(WARP_TILE)), (0, WARP_TILE), &target);
    }
}

/// Place of a block's tile in the batch.
struct Place {
    /// Index of the tile.
    tile: u32,
    /// Index of the part of K.
    part: u32,
    /// Index in the batch.
    batch: u32,
    /// First row in C.
    row: u32,
    /// First column in C.
    column: u32,
}

impl Place {
    /// Returns the place of a block.
    #[inline(always)]
    fn of<const ROWS: usize, const WIDTH: usize>(tiles: Tiles, block: u32) -> Self {
        let (part, index) = divide(block, tiles.count());
        let tile = tiles.at(index);
        let (row, column) = (tile.row * ROWS as u32, tile.column * WIDTH as u32);
        Self { tile: index, part, batch: tile.batch, row, column }
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
    ///
    /// The requirements of [`matmul_mma()`] for the workspace apply, and all threads of the block must call it.
    #[inline(always)]
    unsafe fn add(&self, sums: &mut Sums) -> bool {
        unroll!(MATRICES, |i: 0 1 2 3| unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
            // SAFETY: the caller guarantees that the workspace has room for these sums, which are the thread's own.
            unsafe { store(self.sums(self.part, i, j), sums[i as usize][j as usize]) };
        }));
        // SAFETY: this is the counter of the tile, and all threads of all its blocks call it.
        if !unsafe { is_last(|| self.workspace.wrapping_add(self.tile as usize), self.parts) } {
            return false;
        }
        *sums = [[[0.0; 4]; COLUMNS]; MATRICES];
        let mut part = 0;
        while part < self.parts {
            unroll!(MATRICES, |i: 0 1 2 3| unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
                // SAFETY: the corresponding thread of that block has written the sums.
                let more = unsafe { load::<f32, 4>(self.sums(part, i, j)) };
                let sum = &mut sums[i as usize][j as usize];
                *sum = from_fn(|lane| sum[lane] + more[lane]);
            }));
            part += 1;
        }
        true
    }

    /// Returns the address of the calling thread's sums of matrices `i` and `j`, in a part of the tile. Consecutive
    /// threads use consecutive addresses.
    #[inline(always)]
    fn sums(&self, part: u32, i: u32, j: u32) -> *mut f32 {
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
///
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

/// Operands of a warp's products in one group of 16 columns of A.
#[derive(Clone, Copy)]
struct Fragments {
    a: [[u32; 4]; MATRICES],
    b: [[u32; 2]; COLUMNS],
}

impl Fragments {
    /// Loads group `group` of a slot.
    ///
    /// # Safety
    ///
    /// The slot must be complete.
    #[inline(always)]
    unsafe fn load<
        T: WarpOperand,
        A: Major,
        B: Major,
        const ROWS: usize,
        const WIDTH: usize,
        const STEP: usize,
        const STAGES: usize,
    >(
        &mut self,
        a: &SharedOperand<T, A, ROWS, STEP, STAGES>,
        b: &SharedOperand<T, B, WIDTH, STEP, STAGES>,
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
    ///
    /// All lanes of the warp must call it together.
    #[inline(always)]
    unsafe fn multiply<T: WarpOperand>(&self, sums: &mut [[[f32; 4]; COLUMNS]; MATRICES]) {
        unroll!(COLUMNS, |j: 0 1 2 3 4 5 6 7| {
            unroll!(MATRICES, |i: 0 1 2 3| {
                let (i, j) = (i as usize, j as usize);
                // SAFETY: guaranteed by the caller.
                sums[i][j] = unsafe { mma::<T>(sums[i][j], self.a[i], self.b[j]) };
            });
        });
    }
}

/// Rows of A, or columns of B, that belong to one tile.
#[derive(Clone, Copy)]
struct Operand<T> {
    from: *const T,
    pitch: u64,
    /// Number of rows of A, or columns of B, from the start of the tile to the end of the matrix.
    side: u32,
    k: u32,
}

impl<T: Copy> Operand<T> {
    /// Returns the rows or columns from `first` on; `k` columns of A, or rows of B, from `first_k` on.
    #[inline(always)]
    fn new<M: Major>(
        elements: &[T],
        [pitch, plane]: [u64; 2],
        batch: u32,
        [first, first_k]: [u32; 2],
        [side, k]: [u32; 2],
    ) -> Self {
        let (row, column) = if M::IS_TRANSPOSED { (first_k, first) } else { (first, first_k) };
        let at = u64::from(batch) * plane + u64::from(row) * pitch + u64::from(column);
        Self { from: elements.as_ptr().wrapping_add(at as usize), pitch, side: side - first, k }
    }

    /// Returns the chunks that a thread copies.
    #[inline(always)]
    fn of_thread<M: Major, const SIDE: usize, const STEP: usize>(
        self,
        thread: u32,
        threads: u32,
    ) -> Chunks<T> {
        let in_row = if M::IS_TRANSPOSED { SIDE } else { STEP } as u32 / 8;
        let (row, chunk) = (thread / in_row, thread % in_row);
        let rows = threads / in_row;
        let from = self.from.wrapping_add((u64::from(row) * self.pitch + u64::from(8 * chunk)) as usize);
        let stride = u64::from(rows) * self.pitch;
        let next = if M::IS_TRANSPOSED { STEP as u64 * self.pitch } else { STEP as u64 };
        let (side, k) = (self.side as i32, self.k as i32);
        let (height, width) = if M::IS_TRANSPOSED { (k, side) } else { (side, k) };
        let left = (height - row as i32, width - 8 * chunk as i32);
        Chunks { from, stride: stride as usize, next: next as usize, row, rows, chunk, left }
    }
}

/// Loads eight elements, of which those from `count` on are zero.
///
/// # Safety
///
/// The first `count` elements must exist, and nothing may write them during the launch.
#[inline(always)]
unsafe fn eight<T>(from: *const T, count: i32) -> [u32; 4] {
    let from = from.cast::<u16>();
    let mut all = [0; 4];
    unroll!(8, |i: 0 1 2 3 4 5 6 7| {
        // SAFETY: guaranteed by the caller.
        let [element] = unsafe { load_or::<u16, 1, true>(from.wrapping_add(i as usize), (i as i32) < count, [0]) };
        all[i as usize / 2] |= u32::from(element) << (i % 2 * 16);
    });
    all
}

/// Chunks that a thread copies per stage: chunk `chunk` of every `rows`th row from `row` on.
#[derive(Clone, Copy)]
struct Chunks<T> {
    from: *const T,
    /// Distance from one chunk to the next, in elements.
    stride: usize,
    /// Distance from a stage to the next, in elements.
    next: usize,
    row: u32,
    rows: u32,
    chunk: u32,
    /// Number of rows of the operand from `row` on, and number of elements of a row from the chunk on.
    left: (i32, i32),
}

impl<T> Chunks<T> {
    #[inline(always)]
    fn advance<M: Major, const STEP: usize>(&mut self) {
        self.from = self.from.wrapping_add(self.next);
        if M::IS_TRANSPOSED {
            self.left.0 -= STEP as i32;
        } else {
            self.left.1 -= STEP as i32;
        }
    }
}

/// Tiles of an operand in shared memory.
struct SharedOperand<T, M, const SIDE: usize, const STEP: usize, const STAGES: usize> {
    tiles: MatrixTiles<T, SIDE, STEP, STAGES>,
    major: PhantomData<M>,
}

impl<T: WarpOperand, M: Major, const SIDE: usize, const STEP: usize, const STAGES: usize>
    SharedOperand<T, M, SIDE, STEP, STAGES>
{
    #[inline(always)]
    fn new(memory: &mut SharedMemory) -> Self {
        Self { tiles: memory.matrix_tiles(), major: PhantomData }
    }

    /// Copies the chunks of a thread, and advances them to the next stage.
    ///
    /// # Safety
    ///
    /// Nothing else may use the slot.
    #[inline(always)]
    unsafe fn copy<const ALIGNED: bool>(&self, chunks: &mut Chunks<T>, slot: PipelineState<STAGES>) {
        let height = if M::IS_TRANSPOSED { STEP } else { SIDE } as u32;
        let (rows, columns) = chunks.left;
        // Unrolled, the loads of single elements would need more registers than there are.
        let every = if ALIGNED { chunks.rows } else { opaque(chunks.rows) };
        let (mut down, mut from) = (0, chunks.from);
        while down < height {
            let (row, is_there) = (chunks.row + down, columns > 0 && rows > down as i32);
            let tile = self.tiles.at(slot);
            // SAFETY: guaranteed by the caller; the elements are inside the matrix.
            unsafe {
                if ALIGNED {
                    if M::IS_TRANSPOSED {
                        tile.reshaped().copy_chunk(row, chunks.chunk, from, is_there);
                    } else {
                        tile.copy_chunk(row, chunks.chunk, from, is_there);
                    }
                } else {
                    let eight = eight(from, if is_there { columns } else { 0 });
                    if M::IS_TRANSPOSED {
                        tile.reshaped().store_chunk(row, chunks.chunk, eight);
                    } else {
                        tile.store_chunk(row, chunks.chunk, eight);
                    }
                }
            }
            from = from.wrapping_add(chunks.stride);
            down += every;
        }
        chunks.advance::<M, STEP>();
    }

    /// Loads 16 rows of A from `row` on, in group `group` of a slot.
    ///
    /// # Safety
    ///
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
    ///
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
