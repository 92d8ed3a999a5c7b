//! 3xTF32: `f32` GEMM as three TF32 GEMMs. Each number is split into the sum of a high and a low part of 11 bits each.
//! The product of the two low parts is omitted.
//!
//! The tensor cores accumulate with fewer bits than the mantissa of `f32`, and truncate the sums. Therefore, they add
//! only the products within a stage of K, and the sums of the stages are accumulated in `f32`.
//!
//! Source: Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//! theoretical peak performance, 2022; CUTLASS's example 28.

use gpu_std::prelude::*;
use gpu_std::tensor::{KMajor, Major, MnMajor, TensorMap};
use gpu_std::vectorized::store_run;

use crate::epilogue::EpilogueParams;
use crate::matmul::Sizes;
use crate::non_persistent::{COLUMNS, ROWS, RowStrides, Stage, THREADS_ALONE, TileCoord, product, target};
use crate::tiles::divide;

/// Number of stages of the circular buffer; each has two tiles per operand.
pub const STAGES: usize = 3;
/// Number of rows and columns of the tiles in which matrices are transposed.
pub const SIDE: u32 = 32;
/// Number of threads per block of the kernel that splits numbers.
pub const SPLIT_THREADS: u32 = 256;

/// Operands that are split into two parts.
#[derive(Clone, Copy)]
struct HighLow;

impl Stage for HighLow {
    const PARTS: u32 = 2;
    const IS_ALONE: bool = true;
}

/// Matrix or batch of matrices to split.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Whole {
    /// Number of rows per matrix.
    pub rows: u32,
    /// Number of columns.
    pub columns: u32,
    /// Number of matrices.
    pub planes: u32,
    /// Strides of the matrices.
    pub from: RowStrides,
    /// Row stride of the parts, a multiple of 4.
    pub pitch: u32,
}

impl Whole {
    /// Returns the total number of tiles in all matrices.
    pub const fn tiles(&self) -> u64 {
        self.rows.div_ceil(SIDE) as u64 * self.columns.div_ceil(SIDE) as u64 * self.planes as u64
    }
}

/// Splits each number into two parts and writes them to two consecutive planes. The high part has 11 bits. The low part
/// is the remainder, also rounded to 11 bits; it is 0 if the number is not finite. The matrix is row-major for
/// [`KMajor`] and column-major for [`MnMajor`].
///
/// # Safety
/// `from` must contain the matrices that `whole` describes. `parts` must have twice as many planes, of `rows * pitch`
/// elements each. The grid must be one-dimensional.
#[kernel(types(M = KMajor, MnMajor), arch = 80, block(SPLIT_THREADS), no_panic)]
pub unsafe fn split_tf32<M: Major>(from: &[f32], mut parts: DisjointMut<f32>, whole: Whole) {
    let tile = shared_array![f32; (SIDE * (SIDE + 1)) as usize];
    let Whole { rows, columns, planes, from: RowStrides { pitch: from_pitch, plane: from_plane }, pitch } =
        whole;
    let (from, parts) = (from.as_ptr(), parts.as_mut_ptr());
    let plane_elements = u64::from(rows) * u64::from(pitch);
    let (across, down) = (columns.div_ceil(SIDE), rows.div_ceil(SIDE));
    let own = thread::thread_idx_x();
    let mut number = thread::block_idx_x();
    while number < across * down * planes {
        let (rest, x) = divide(number, across);
        let (plane, y) = divide(rest, down);
        let first = u64::from(plane) * from_plane;
        if M::IS_TRANSPOSED {
            // Each row of threads loads 32 adjacent numbers of a column of the source.
            let mut i = own / SIDE;
            while i < SIDE {
                let (row, column) = (y * SIDE + own % SIDE, x * SIDE + i);
                if row < rows && column < columns {
                    let at = first + u64::from(column) * from_pitch + u64::from(row);
                    // SAFETY: the number is inside the matrix. The slot is inside the tile, and no other thread writes
                    // it.
                    unsafe { tile.add((own % SIDE * (SIDE + 1) + i) as usize).write(*from.add(at as usize)) };
                }
                i += SPLIT_THREADS / SIDE;
            }
            thread::sync_threads();
        }
        // Each thread writes four adjacent numbers of a row.
        let (in_tile, column) = (own / (SIDE / 4), x * SIDE + own % (SIDE / 4) * 4);
        let row = y * SIDE + in_tile;
        if row < rows && column < columns {
            let count = (columns - column).min(4) as usize;
            let (mut large, mut small) = ([0.0f32; 4], [0.0f32; 4]);
            let mut i = 0;
            while i < 4 {
                if i < count {
                    // SAFETY: the tile contains the numbers, which were written before the barrier, and the number is
                    // inside the matrix.
                    let x = unsafe {
                        if M::IS_TRANSPOSED {
                            *tile.add((in_tile * (SIDE + 1) + own % (SIDE / 4) * 4) as usize + i)
                        } else {
                            let at = first + u64::from(row) * from_pitch + u64::from(column);
                            *from.add(at as usize + i)
                        }
                    };
                    (large[i], small[i]) = high_low(x);
                }
                i += 1;
            }
            let at = u64::from(2 * plane) * plane_elements + u64::from(row) * u64::from(pitch);
            let at = (at + u64::from(column)) as usize;
            // SAFETY: both planes contain these elements, because the pitch is a multiple of 4.
            unsafe {
                store_run::<f32, 4>(parts, at, 4, large);
                store_run::<f32, 4>(parts, at + plane_elements as usize, 4, small);
            }
        }
        if M::IS_TRANSPOSED {
            thread::sync_threads();
        }
        number += thread::grid_dim_x();
    }
}

/// Splits a number into a part that is rounded to 11 bits, to nearest, and the remainder, which is also rounded. The
/// remainder is 0 if the number is not finite.
#[inline(always)]
fn high_low(x: f32) -> (f32, f32) {
    if !x.is_finite() {
        // The tensor cores truncate the low bits, which may be the only nonzero mantissa bits of a NaN.
        return (if x.is_nan() { f32::NAN } else { x }, 0.0);
    }
    let nearest = rounded(x);
    let large = if nearest.is_finite() { nearest } else { f32::from_bits(x.to_bits() & !0x1fff) };
    (large, rounded(x - large))
}

/// Rounds `x` to 11 bits of mantissa, including the leading one. Rounds to nearest, ties away from zero.
#[inline(always)]
fn rounded(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(0x1000) & !0x1fff)
}

/// GEMM, `c = activation(scale * a * b + bias)`, for each matrix of a batch. Both operands have been split into two
/// parts.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`]. Matrix i of `a` and of `b` consists of planes `2 * i` and
/// `2 * i + 1` of its map. The grid must be one-dimensional, with one cluster per `shared_by` tiles of each matrix of
/// the batch. `sizes.split_stages` must be the number of stages of each block of a cluster except the last. `c` must
/// have the strides `rows` and overlap neither `a` nor `b`; `bias` must have n elements.
#[kernel(arch = "90a", block(THREADS_ALONE), no_panic)]
pub unsafe fn matmul_tf32x3(
    a: &TensorMap<f32, 3>,
    b: &TensorMap<f32, 3>,
    mut c: DisjointMut<f32>,
    bias: Option<&[f32]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: EpilogueParams,
) {
    let (place, batch) = TileCoord::of_cluster::<f32>(&sizes, [ROWS, COLUMNS], shared_by);
    let place = TileCoord { a_plane: 2 * place.a_plane, b_plane: 2 * place.b_plane, ..place };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<f32, f32, KMajor, ROWS, COLUMNS, STAGES, _>(a, b, place, HighLow, target);
    }
}
