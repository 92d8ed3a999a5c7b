//! `f32` GEMM without tensor cores, `C = A * B`. Every multiplication and addition has the precision of `f32`.
//!
//! Each block computes a [`TILE`] x [`TILE`] tile of C, and each thread computes four squares of 4 x 4 sums in it. Each
//! step covers [`STEP_K`] columns of A and rows of B; steps alternate between two shared memory buffers (double
//! buffering). In the buffers, M or N is the contiguous dimension, so that a thread loads its operands with 16-byte
//! accesses. While a step is multiplied, the operands of the next step are prefetched to registers. The products are
//! added in the order of K.
//!
//! Design: CUTLASS's SIMT kernels (`cutlass/gemm/threadblock/mma_pipelined.h`).

use core::array::from_fn;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::tensor::{KMajor, Major, MnMajor};
use gpu_std::vectorized::{load, load_or, store};

use crate::epilogue::EpilogueParams;
use crate::matmul::Sizes;
use crate::tiles::Tiles;

/// Number of rows and columns of C per block.
pub const TILE: u32 = 128;
/// Number of columns of A per step.
pub const STEP_K: u32 = 8;
/// Number of threads per block.
pub const THREADS: u32 = 256;

/// Padded row stride of a buffer. The padding distributes the columns stored by a warp over all banks.
const PITCH: usize = TILE as usize + 4;
/// Number of elements per buffer of an operand.
const BUFFER: usize = STEP_K as usize * PITCH;
/// Number of sums per thread along a row or a column: two squares of 4 x 4 sums contribute 4 each.
const SUMS: usize = 8;
/// Distance from a thread's first square to its second square.
const HALF: u32 = TILE / 2;

/// Row stride and matrix stride of each operand and of C, in elements. A matrix stride of 0 broadcasts the matrix over
/// the batch.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Strides {
    /// Strides of A.
    pub a: [u64; 2],
    /// Strides of B.
    pub b: [u64; 2],
    /// Strides of C.
    pub c: [u64; 2],
    /// 1 for A if it is column-major, and 1 for B if it is row-major, otherwise 0. Only kernels without a layout
    /// parameter use this field.
    pub are_transposed: [u32; 2],
}

/// GEMM, `c = activation(scale * a * b + bias)`, for each matrix of a batch. A is row-major for [`KMajor`] and
/// column-major for [`MnMajor`]; for B, the layouts are reversed.
///
/// # Safety
/// The slices must contain the matrices that `sizes` and `strides` describe. `bias` must have n elements, and `c` must
/// overlap neither `a` nor `b`. The grid must be one-dimensional, with one block per tile of each matrix of the batch.
#[kernel(
    types(A = KMajor, MnMajor; B = KMajor, MnMajor),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, 2),
    no_panic
)]
pub unsafe fn matmul_simt<A: Major, B: Major>(
    a: &[f32],
    b: &[f32],
    mut c: DisjointMut<f32>,
    bias: Option<&[f32]>,
    sizes: Sizes,
    strides: Strides,
    finish: EpilogueParams,
) {
    let stage = shared_array![f32; 4 * BUFFER];
    let tile = Tiles::new(&sizes, TILE, TILE).at(thread::block_idx_x());
    let (first_row, first_column) = (tile.row * TILE, tile.column * TILE);
    let number = thread::thread_idx_x();
    let a = Operand::new::<A>(a, strides.a, tile.batch, first_row, (sizes.m, sizes.k));
    let b = Operand::new::<B>(b, strides.b, tile.batch, first_column, (sizes.n, sizes.k));

    // Each warp computes 4 x 8 squares, so that its loads from a row of a buffer are free of bank conflicts.
    let (warp, lane) = (number / 32, number % 32);
    let (row, column) = (4 * (warp / 2 * 4 + lane / 8), 4 * (warp % 2 * 8 + lane % 8));

    let mut sums = [[0.0f32; SUMS]; SUMS];
    // SAFETY: the fetched elements are inside the matrices. Each thread has its own slots in a buffer. No thread has
    // read these slots since the barrier before the last one, and threads read them only after the next barrier.
    unsafe {
        a.put::<A>(stage, number, a.fetch::<A>(number, 0));
        b.put::<B>(stage.add(BUFFER), number, b.fetch::<B>(number, 0));
        thread::sync_threads();
        let (mut at, mut current) = (0, 0);
        // Full steps of full tiles do not need bounds checks.
        let is_inner = first_row + TILE <= sizes.m && first_column + TILE <= sizes.n;
        let whole = if is_inner && a.is_aligned && b.is_aligned { sizes.k / STEP_K * STEP_K } else { 0 };
        let (mut from_a, mut from_b) = (a.address::<A>(number, STEP_K), b.address::<B>(number, STEP_K));
        while at + STEP_K < whole {
            let (of_a, of_b) = (load::<f32, 4>(from_a), load::<f32, 4>(from_b));
            from_a = from_a.wrapping_add(a.stride::<A>());
            from_b = from_b.wrapping_add(b.stride::<B>());
            let buffer = stage.add(2 * BUFFER * current);
            multiply(buffer.add(row as usize), buffer.add(BUFFER + column as usize), &mut sums);
            current ^= 1;
            a.put::<A>(stage.add(2 * BUFFER * current), number, of_a);
            b.put::<B>(stage.add(2 * BUFFER * current + BUFFER), number, of_b);
            thread::sync_threads();
            at += STEP_K;
        }
        loop {
            let next = at + STEP_K;
            let is_last = next >= sizes.k;
            let (mut of_a, mut of_b) = ([0.0; 4], [0.0; 4]);
            if !is_last {
                (of_a, of_b) = (a.fetch::<A>(number, next), b.fetch::<B>(number, next));
            }
            let buffer = stage.add(2 * BUFFER * current);
            multiply(buffer.add(row as usize), buffer.add(BUFFER + column as usize), &mut sums);
            if is_last {
                break;
            }
            current ^= 1;
            a.put::<A>(stage.add(2 * BUFFER * current), number, of_a);
            b.put::<B>(stage.add(2 * BUFFER * current + BUFFER), number, of_b);
            thread::sync_threads();
            at = next;
        }
    }

    let [pitch, plane] = strides.c;
    let to = c.as_mut_ptr().wrapping_add((u64::from(tile.batch) * plane) as usize);
    let is_aligned = to.addr().is_multiple_of(16) && pitch.is_multiple_of(4);
    let mut half = 0;
    while half < 2 {
        let column = first_column + column + half * HALF;
        let biases: [Option<f32>; 4] = from_fn(|j| {
            let column = (column as usize + j).min(sizes.n as usize - 1);
            // SAFETY: the bias has one element per column.
            bias.map(|bias| unsafe { *bias.get_unchecked(column) })
        });
        let mut i = 0;
        while i < SUMS {
            let row = first_row + row + i as u32 % 4 + i as u32 / 4 * HALF;
            let values: [f32; 4] = from_fn(|j| finish.of(sums[i][half as usize * 4 + j], biases[j]));
            let place = to.wrapping_add((u64::from(row) * pitch + u64::from(column)) as usize);
            if row < sizes.m {
                if is_aligned && column + 4 <= sizes.n {
                    // SAFETY: these four elements are inside C, and no other thread writes them.
                    unsafe { store::<f32, 4>(place, values) };
                } else {
                    let mut j = 0;
                    while j < 4 {
                        if column + (j as u32) < sizes.n {
                            // SAFETY: as above, for a single element.
                            unsafe { place.add(j).write(values[j]) };
                        }
                        j += 1;
                    }
                }
            }
            i += 1;
        }
        half += 1;
    }
}

/// Adds the products of a step to a thread's sums.
///
/// # Safety
/// The pointers must point to the thread's first squares in the first row of both buffers, and nothing may write to the
/// buffers during the call.
#[inline(always)]
unsafe fn multiply(rows: *const f32, columns: *const f32, sums: &mut [[f32; SUMS]; SUMS]) {
    let mut k = 0;
    while k < STEP_K as usize {
        // SAFETY: guaranteed by the caller.
        let (x, y) = unsafe { (eight(rows.add(k * PITCH)), eight(columns.add(k * PITCH))) };
        let mut i = 0;
        while i < SUMS {
            let mut j = 0;
            while j < SUMS {
                sums[i][j] = Math::mul_add(x[i], y[j], sums[i][j]);
                j += 1;
            }
            i += 1;
        }
        k += 1;
    }
}

/// Loads the eight rows or columns of a thread from one row of a buffer.
///
/// # Safety
/// `from` must point to the first square and be aligned to 16 bytes. Nothing may write to the buffer during the call.
#[inline(always)]
unsafe fn eight(from: *const f32) -> [f32; SUMS] {
    // SAFETY: guaranteed by the caller.
    let (low, high) = unsafe { (load::<f32, 4>(from), load::<f32, 4>(from.add(HALF as usize))) };
    from_fn(|i| if i < 4 { low[i] } else { high[i - 4] })
}

/// Rows of A, or columns of B, that belong to one tile.
#[derive(Clone, Copy)]
struct Operand {
    from: *const f32,
    pitch: u64,
    /// Number of rows of A, or columns of B, from the start of the tile to the end of the matrix.
    side: u32,
    k: u32,
    /// True if four adjacent elements can be loaded in one access.
    is_aligned: bool,
}

impl Operand {
    #[inline(always)]
    fn new<M: Major>(
        elements: &[f32],
        [pitch, plane]: [u64; 2],
        batch: u32,
        first: u32,
        (side, k): (u32, u32),
    ) -> Self {
        let along = if M::IS_TRANSPOSED { 1 } else { pitch };
        let from =
            elements.as_ptr().wrapping_add((u64::from(batch) * plane + u64::from(first) * along) as usize);
        let is_aligned = from.addr().is_multiple_of(16) && pitch.is_multiple_of(4);
        Self { from, pitch, side: side - first, k, is_aligned }
    }

    /// Returns the address of a thread's elements in the step that starts at `at`.
    #[inline(always)]
    fn address<M: Major>(&self, thread: u32, at: u32) -> *const f32 {
        let (side, k) = place::<M>(thread);
        let (row, first) = if M::IS_TRANSPOSED { (at + k, side) } else { (side, at + k) };
        self.from.wrapping_add((u64::from(row) * self.pitch + u64::from(first)) as usize)
    }

    /// Returns the distance, in elements, from a thread's elements to its elements in the next step.
    #[inline(always)]
    fn stride<M: Major>(&self) -> usize {
        if M::IS_TRANSPOSED { STEP_K as usize * self.pitch as usize } else { STEP_K as usize }
    }

    /// Loads four adjacent elements of a thread, in the step that starts at `at`. Elements outside the matrix are
    /// loaded as zero.
    ///
    /// # Safety
    /// The operand must describe a valid matrix.
    #[inline(always)]
    unsafe fn fetch<M: Major>(&self, thread: u32, at: u32) -> [f32; 4] {
        let (side, k) = place::<M>(thread);
        let (row, first, rows, columns) = if M::IS_TRANSPOSED {
            (at + k, side, self.k, self.side)
        } else {
            (side, at + k, self.side, self.k)
        };
        let from = self.address::<M>(thread, at);
        let is_whole = self.is_aligned && row < rows && first + 4 <= columns;
        // SAFETY: if `is_whole`, all four elements exist, and they start on a 16-byte boundary.
        let mut four = unsafe { load_or::<f32, 4, true>(from, is_whole, [0.0; 4]) };
        if !is_whole && row < rows {
            let mut i = 0;
            while i < 4 {
                if first + (i as u32) < columns {
                    // SAFETY: the element exists.
                    four[i] = unsafe { from.add(i).read() };
                }
                i += 1;
            }
        }
        four
    }

    /// Stores the elements in a buffer.
    ///
    /// # Safety
    /// The buffer must contain these slots, and nothing else may use them during the call.
    #[inline(always)]
    unsafe fn put<M: Major>(&self, buffer: *mut f32, thread: u32, four: [f32; 4]) {
        let (side, k) = place::<M>(thread);
        let at = buffer.wrapping_add(k as usize * PITCH + side as usize);
        // SAFETY: guaranteed by the caller.
        unsafe {
            if M::IS_TRANSPOSED {
                store::<f32, 4>(at, four);
            } else {
                let mut i = 0;
                while i < 4 {
                    at.add(i * PITCH).write(four[i]);
                    i += 1;
                }
            }
        }
    }
}

/// Returns the position of the first of a thread's four elements: the row or column in the tile, and the index along K
/// in the step.
#[inline(always)]
fn place<M: Major>(thread: u32) -> (u32, u32) {
    if M::IS_TRANSPOSED { (4 * (thread % 32), thread / 32) } else { (thread / 2, 4 * (thread % 2)) }
}
