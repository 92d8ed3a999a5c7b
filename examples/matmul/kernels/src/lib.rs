//! Four kernels for the product of two matrices. Each kernel reuses loaded values more often than the previous one.
//! `docs/projects/matmul.md` explains the steps. Matrices are row-major: `a` is m×k, `b` is k×n, `c` is m×n.
#![no_std]

use gpu_std::prelude::*;
use gpu_std::tensor::mma::mma;
use gpu_std::vectorized::each;

/// One thread per element of `c`.
#[kernel]
pub fn naive(a: Slice2<f32>, b: Slice2<f32>, mut c: DisjointMut2<f32>) {
    let cell = thread::unique_2d();
    let [row, column] = cell.get();
    if let Some(c) = c.get_mut(cell) {
        *c = (0..a.columns()).map(|k| a[[row, k]] * b[[k, column]]).sum();
    }
}

/// Rows and columns of the tiles of [`tiled()`].
const SIDE: usize = 32;

/// One thread per element of `c`, one block per tile of 32 x 32. The block loads tiles of `a` and `b` to shared memory.
#[kernel(block(32, 32))]
pub fn tiled(
    a: Slice2<f32>,
    b: Slice2<f32>,
    mut a_tile: Shared<[[f32; SIDE]; SIDE]>,
    mut b_tile: Shared<[[f32; SIDE]; SIDE]>,
    mut c: DisjointMut2<f32>,
) {
    let [block_x, block_y, _] = block::index();
    let (top, left) = (SIDE * block_y as usize, SIDE * block_x as usize);
    let (row, column) = (thread::thread_idx_y() as usize, thread::thread_idx_x() as usize);
    let mut sum = 0.0;
    for first in (0..a.columns()).step_by(SIDE) {
        let a = a_tile.fill(|[row, k]| a.get([top + row, first + k]).copied().unwrap_or(0.0));
        let b = b_tile.fill(|[k, column]| b.get([first + k, left + column]).copied().unwrap_or(0.0));
        for k in 0..SIDE {
            sum += a[row][k] * b[k][column];
        }
    }
    if let Some(c) = c.get_mut(thread::unique_2d()) {
        *c = sum;
    }
}

/// Rows and columns of the tile of a block of [`registers()`].
pub const TILE: usize = 128;
/// Threads of a block along each side.
const THREADS: usize = 16;
/// Elements of `c` of a thread along each side.
const ITEMS: usize = TILE / THREADS;

/// 8 x 8 elements of `c` per thread, in registers; `DEPTH` steps of k per tile. A launch has one block per tile.
#[kernel(consts(DEPTH = 8, 16), block(16, 16))]
pub fn registers<const DEPTH: usize>(
    a: Slice2<f32>,
    b: Slice2<f32>,
    mut a_tile: Shared<Padded<f32, TILE, DEPTH>>,
    mut b_tile: Shared<[[f32; TILE]; DEPTH]>,
    mut c: DisjointMut2<f32>,
) {
    let [block_x, block_y, _] = block::index();
    let (top, left) = (TILE * block_y as usize, TILE * block_x as usize);
    let (row, column) = (thread::thread_idx_y() as usize, thread::thread_idx_x() as usize);
    let mut sums = [[0.0; ITEMS]; ITEMS];
    for first in (0..a.columns()).step_by(DEPTH) {
        let a = a_tile.fill(|[row, k]| a.get([top + row, first + k]).copied().unwrap_or(0.0));
        let b = b_tile.fill(|[k, column]| b.get([first + k, left + column]).copied().unwrap_or(0.0));
        for k in 0..DEPTH {
            // 16 loads from shared memory for 64 products.
            let of_a: [f32; ITEMS] = core::array::from_fn(|i| a[row + THREADS * i][k]);
            let of_b: [f32; ITEMS] = core::array::from_fn(|j| b[k][column + THREADS * j]);
            for (i, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum += of_a[i] * of_b[j];
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (j, sum) in sums.iter().enumerate() {
            // SAFETY: no other thread of the block has this row and column of the tile, no other block has the tile.
            unsafe { store(&mut c, [top + row + THREADS * i, left + column + THREADS * j], *sum) };
        }
    }
}

/// Writes an element, unless it is outside the matrix.
///
/// # Safety
/// No other thread of the launch accesses the element.
#[inline(always)]
unsafe fn store(c: &mut DisjointMut2<f32>, [row, column]: [usize; 2], value: f32) {
    if row < c.rows() && column < c.columns() {
        let element = c.as_mut_ptr().wrapping_add(row * c.row_stride() + column);
        // SAFETY: the element is in range, and belongs to the caller.
        unsafe { element.write(value) };
    }
}

/// Rows and columns of the tile of a block of [`tensor_cores()`].
pub const MMA_TILE: usize = 64;
/// Pairs of adjacent k in a tile: two instructions of 16 steps.
const PAIRS: usize = 16;

/// One block of four warps per tile of 64 x 64, one warp per 32 x 32 elements of `c`, computed with `mma.m16n8k16`. A
/// launch has one block per tile.
#[kernel(arch = 80, block(128))]
pub fn tensor_cores(
    a: Slice2<bf16>,
    b: Slice2<bf16>,
    mut a_tile: Shared<Padded<u32, MMA_TILE, PAIRS, 4>>,
    mut b_tile: Shared<Padded<u32, PAIRS, MMA_TILE, 8>>,
    mut c: DisjointMut2<f32>,
) {
    let [block_x, block_y, _] = block::index();
    let (top, left) = (MMA_TILE * block_y as usize, MMA_TILE * block_x as usize);
    let own = thread::linear_in_block() as usize;
    let (warp, lane) = (own / 32, own % 32);
    // The quarter of the warp, and the lane's place in the fragments of the instruction.
    let (row, column) = (32 * (warp / 2) + lane / 4, 32 * (warp % 2));
    let (b_column, pair) = (column + lane / 4, lane % 4);

    let mut sums = [[[0.0; 4]; 4]; 2];
    for first in (0..a.columns()).step_by(2 * PAIRS) {
        let a = a_tile.fill(|[row, pair]| packed(|i| a.get([top + row, first + 2 * pair + i])));
        let b = b_tile.fill(|[pair, column]| packed(|i| b.get([first + 2 * pair + i, left + column])));
        // Unrolled calls: all indices of `sums` are constants, so that it is in registers.
        each::<2>(|step| {
            let k = 8 * step;
            let of_a: [[u32; 4]; 2] = core::array::from_fn(|i| {
                let (above, below) = (&a[row + 16 * i], &a[row + 16 * i + 8]);
                [above[k + pair], below[k + pair], above[k + pair + 4], below[k + pair + 4]]
            });
            each::<4>(|j| {
                let of_b = [b[k + pair][b_column + 8 * j], b[k + pair + 4][b_column + 8 * j]];
                each::<2>(|i| {
                    // SAFETY: all lanes of the warp execute it, and the kernel requires compute capability 8.0.
                    sums[i][j] = unsafe { mma::<bf16>(sums[i][j], of_a[i], of_b) };
                });
            });
        });
    }
    for (i, sums) in sums.iter().enumerate() {
        for (j, sums) in sums.iter().enumerate() {
            for (item, sum) in sums.iter().enumerate() {
                let row = top + row + 16 * i + 8 * (item / 2);
                let column = left + column + 8 * j + 2 * pair + item % 2;
                // SAFETY: no other lane of the warp has this place in the fragment, no other warp has the quarter.
                unsafe { store(&mut c, [row, column], *sum) };
            }
        }
    }
}

/// Two numbers in one register, the first in its low half; 0 where there is none.
#[inline(always)]
fn packed<'a>(number: impl Fn(usize) -> Option<&'a bf16>) -> u32 {
    let bits = |i| number(i).map_or(0, |number| u32::from(number.to_bits()));
    bits(0) | bits(1) << 16
}
