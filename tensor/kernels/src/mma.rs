//! GEMM for compute capability 8.0 and later, `C = A * B`, with `mma.sync`.
//!
//! A block computes a tile of [`ROWS`] x 128 or [`ROWS`] x 256 elements of C, and each of its warps 64 x 64 of them.
//! All threads copy tiles of A and B into a circular buffer with `cp.async`, [`STAGES`] - 1 stages ahead (multistage).
//! Warps load 16 columns of A and 16 rows of B at a time to registers (`ldmatrix`), one group ahead of the products.
//!
//! Where the rows of an operand do not start on 16-byte boundaries, threads copy its elements one by one.
//!
//! Design: CUTLASS's multistage kernels (`cutlass/gemm/threadblock/mma_multistage.h`).

use core::marker::PhantomData;

use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, wait_copies, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{KMajor, Major, MatrixTiles, MnMajor, Output, PipelineState, SharedMemory, warpgroup};
use gpu_std::vectorized::{load_or, opaque};

use crate::epilogue::EpilogueParams;
use crate::matmul::Sizes;
use crate::simt::Strides;
use crate::tile_epilogue::{OutputTile, store_own};
use crate::tiles::Tiles;

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
pub const WARP_TILE: u32 = 64;
/// Number of rows of C per block.
pub const ROWS: usize = 128;
/// Number of columns of A per stage.
pub const STEP: usize = 16 * GROUPS;
/// Number of pipeline stages.
pub const STAGES: usize = 4;
/// Number of groups per stage.
const GROUPS: usize = 2;
/// Number of 16 x 16 matrices of A per warp and group.
const MATRICES: usize = WARP_TILE as usize / 16;
/// Number of 8-column matrices of B per warp and group.
const COLUMNS: usize = WARP_TILE as usize / 8;

/// Returns the number of threads per block for tiles of `rows` x `columns`.
pub const fn threads(rows: usize, columns: usize) -> u32 {
    (rows * columns) as u32 / (WARP_TILE * WARP_TILE) * 32
}

/// Returns the bytes of dynamic shared memory per block for tiles of `rows` x `columns`, and `stages` stages of `step`
/// columns of A.
pub const fn shared_bytes(rows: usize, columns: usize, step: usize, stages: usize) -> u32 {
    SharedMemory::bytes((stages * 2 * step * (rows + columns)) as u32, 0)
}

/// Returns the number of resident blocks per SM, which limits the registers per thread.
pub const fn resident(rows: usize, columns: usize) -> u32 {
    256 / threads(rows, columns)
}

/// GEMM of 16-bit elements, `c = activation(scale * a * b + bias)`, for each matrix of a batch, with tiles of `ROWS` x
/// `WIDTH`. A is row-major for [`KMajor`] and column-major for [`MnMajor`]; for B, the layouts are reversed.
///
/// # Safety
///
/// The slices must contain the matrices that `sizes` and `strides` describe. `bias` must have n elements, and `c` must
/// overlap neither `a` nor `b`. The grid must be one-dimensional, with one block per tile of each matrix of the batch,
/// and the launch must have [`shared_bytes`] of dynamic shared memory. In memory, rows of A and B must start on 16-byte
/// boundaries, and their lengths must be multiples of 16 bytes.
#[kernel(
    types(T = bf16, f16; A = KMajor, MnMajor; B = KMajor, MnMajor),
    consts(WIDTH = 128, 256),
    arch = 80,
    block(threads(ROWS, WIDTH)),
    launch_bounds(threads(ROWS, WIDTH), resident(ROWS, WIDTH)),
    no_panic
)]
pub unsafe fn matmul_mma<T, A: Major, B: Major, const WIDTH: usize>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        product::<T, A, B, ROWS, WIDTH, STEP, GROUPS, STAGES, true>(
            a, b, &mut c, bias, sizes, strides, finish,
        )
    }
}

/// Like [`matmul_mma()`], but with operands of any alignment, and tiles of [`ROWS`] x 128. Threads copy the elements
/// one by one, through registers.
///
/// # Safety
///
/// The requirements of [`matmul_mma()`] apply, except those for the alignment of A and B.
#[kernel(
    types(T = bf16, f16; A = KMajor, MnMajor; B = KMajor, MnMajor),
    arch = 80,
    block(threads(ROWS, 128)),
    launch_bounds(threads(ROWS, 128), resident(ROWS, 128)),
    no_panic
)]
pub unsafe fn matmul_mma_unaligned<T, A: Major, B: Major>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        product::<T, A, B, ROWS, 128, STEP, GROUPS, STAGES, false>(a, b, &mut c, bias, sizes, strides, finish)
    }
}

/// Computes the tile of C of the calling block. A stage covers `STEP` columns of A in `GROUPS` groups of 16.
///
/// # Safety
///
/// The requirements of [`matmul_mma()`] apply, for tiles of `ROWS` x `WIDTH` and [`shared_bytes`] of dynamic shared
/// memory.
#[inline(always)]
pub unsafe fn product<
    T,
    A: Major,
    B: Major,
    const ROWS: usize,
    const WIDTH: usize,
    const STEP: usize,
    const GROUPS: usize,
    const STAGES: usize,
    const ALIGNED: bool,
>(
    a: &[T],
    b: &[T],
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) where
    T: WarpOperand + Output<f32> + Into<f32>,
{
    const { assert!(STEP == 16 * GROUPS && GROUPS.is_multiple_of(2), "a stage has an even number of groups") };
    let tile = Tiles::new(&sizes, ROWS as u32, WIDTH as u32).at(thread::block_idx_x());
    let (row, column) = (tile.row * ROWS as u32, tile.column * WIDTH as u32);
    let a = Operand::new::<A>(a, strides.a, tile.batch, row, (sizes.m, sizes.k));
    let b = Operand::new::<B>(b, strides.b, tile.batch, column, (sizes.n, sizes.k));
    let [pitch, plane] = strides.c;
    let first = u64::from(tile.batch) * plane + u64::from(row) * pitch;
    let target = OutputTile {
        to: c.as_mut_ptr().wrapping_add(first as usize),
        pitch,
        rows: sizes.m - row,
        column,
        n: sizes.n,
        bias,
        finish,
    };
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

    let mut sums = [[[0.0f32; 4]; COLUMNS]; MATRICES];
    let mut current = Fragments { a: [[0; 4]; MATRICES], b: [[0; 2]; COLUMNS] };
    // SAFETY: a slot is written only after all threads have read its previous contents, and read only after all threads
    // have waited for its copies.
    unsafe {
        let mut i = 0;
        while i < STAGES - 1 {
            a_tiles.copy::<ALIGNED>(&mut a, write);
            b_tiles.copy::<ALIGNED>(&mut b, write);
            commit_copies();
            write.advance();
            i += 1;
        }
        wait_stage::<STAGES>();
        thread::sync_threads();
        current.load(&a_tiles, &b_tiles, read, [warp_m, warp_n], 0);
        let mut step = 0;
        while step < sizes.k {
            unroll!(GROUPS, |group: 0 1 2 3| {
                if group + 1 == GROUPS as u32 {
                    wait_stage::<STAGES>();
                    thread::sync_threads();
                    read.advance();
                }
                let mut next = current;
                next.load(&a_tiles, &b_tiles, read, [warp_m, warp_n], (group + 1) % GROUPS as u32);
                if group == 0 {
                    a_tiles.copy::<ALIGNED>(&mut a, write);
                    b_tiles.copy::<ALIGNED>(&mut b, write);
                    commit_copies();
                    write.advance();
                }
                current.multiply::<T>(&mut sums);
                current = next;
            });
            step += STEP as u32;
        }
        wait_copies();
        thread::sync_threads();
        // Each warp stages 16 rows at a time in its own rows of shared memory.
        let staged = staged.tiles::<T, 128, 8>();
        let own = warp * 16;
        unroll!(MATRICES, |i: 0 1 2 3| {
            let row = warp_m * WARP_TILE + 16 * i;
            let first = u64::from(row).wrapping_sub(own.into()).wrapping_mul(target.pitch);
            let target = OutputTile {
                to: target.to.wrapping_add(first as usize),
                rows: target.rows.saturating_sub(row) + own,
                column: target.column + warp_n * WARP_TILE,
                ..target
            };
            store_own::<T, 128, { WARP_TILE as usize }>(staged, own, sums[i as usize].as_flattened(), &target);
            warp::sync_warp(!0);
        });
    }
}

/// Waits until the oldest of the stages in flight is complete.
#[inline(always)]
fn wait_stage<const STAGES: usize>() {
    const { assert!(STAGES >= 2 && STAGES <= 5, "there are 2 to 5 stages") };
    match STAGES {
        2 => wait_copies_leaving::<0>(),
        3 => wait_copies_leaving::<1>(),
        4 => wait_copies_leaving::<2>(),
        _ => wait_copies_leaving::<3>(),
    }
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
    #[inline(always)]
    fn new<M: Major>(
        elements: &[T],
        [pitch, plane]: [u64; 2],
        batch: u32,
        first: u32,
        (side, k): (u32, u32),
    ) -> Self {
        let along = if M::IS_TRANSPOSED { 1 } else { pitch };
        let from =
            elements.as_ptr().wrapping_add((u64::from(batch) * plane + u64::from(first) * along) as usize);
        Self { from, pitch, side: side - first, k }
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
