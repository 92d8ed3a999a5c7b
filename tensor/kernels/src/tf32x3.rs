//! Products of `f32` by three products of TF32: each number is the sum of a first part of 11 bits and a second part, and what is
//! left out is the product of the second parts.
//!
//! The tensor cores add with fewer bits than `f32` has, and cut what is beyond them: so they add the products of one stage of K
//! alone, and these sums are added up in `f32`.
//!
//! Source: Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
//! performance, 2022; CUTLASS's example 28.

use gpu_std::prelude::*;
use gpu_std::tensor::{KMajor, Major, MnMajor, TensorMap};
use gpu_std::vectorized::store_run;

use crate::epilogue::Finish;
use crate::matmul::Sizes;
use crate::one_tile::{COLUMNS, ROWS, RowStrides, Stage, THREADS_ALONE, TilePlace, product, target};
use crate::tiles::divide;

/// Stages of the ring, each of two tiles of both operands.
pub const STAGES: usize = 3;
/// Rows and columns of the tiles in which matrices are transposed.
pub const SIDE: u32 = 32;
/// Threads of a block that divides numbers.
pub const PARTING_THREADS: u32 = 256;

/// Numbers in two parts.
#[derive(Clone, Copy)]
struct TwoParts;

impl Stage for TwoParts {
    const PARTS: u32 = 2;
    const IS_ALONE: bool = true;
}

/// A matrix, or one for each product.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Whole {
    /// Rows, each of which becomes two.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
    /// Matrices.
    pub planes: u32,
    /// Where they are.
    pub from: RowStrides,
    /// From one row of parts to the next, a multiple of 4.
    pub pitch: u32,
}

impl Whole {
    /// Tiles of all matrices.
    pub const fn tiles(&self) -> u64 {
        self.rows.div_ceil(SIDE) as u64 * self.columns.div_ceil(SIDE) as u64 * self.planes as u64
    }
}

/// Divides each number into two parts, which go to two successive planes: the first part has 11 bits, the second the rest, also
/// rounded to 11 bits. [`KMajor`] is a matrix of rows, [`MnMajor`] one of columns. What is not finite has a second part of 0.
///
/// # Safety
///
/// `from` has the matrices that `whole` says, and `parts` twice as many planes of `rows * pitch` elements. The grid has one
/// dimension.
#[kernel(types(M = KMajor, MnMajor), arch = 80, block(PARTING_THREADS), no_panic)]
pub unsafe fn two_parts<M: Major>(from: &[f32], mut parts: DisjointMut<f32>, whole: Whole) {
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
            // Rows of 32 adjacent numbers of a column each.
            let mut i = own / SIDE;
            while i < SIDE {
                let (row, column) = (y * SIDE + own % SIDE, x * SIDE + i);
                if row < rows && column < columns {
                    let at = first + u64::from(column) * from_pitch + u64::from(row);
                    // SAFETY: the matrix has the number, and the tile this place, which no other thread writes.
                    unsafe { tile.add((own % SIDE * (SIDE + 1) + i) as usize).write(*from.add(at as usize)) };
                }
                i += PARTING_THREADS / SIDE;
            }
            thread::sync_threads();
        }
        // Four adjacent numbers of a row each.
        let (in_tile, column) = (own / (SIDE / 4), x * SIDE + own % (SIDE / 4) * 4);
        let row = y * SIDE + in_tile;
        if row < rows && column < columns {
            let count = (columns - column).min(4) as usize;
            let (mut large, mut small) = ([0.0f32; 4], [0.0f32; 4]);
            let mut i = 0;
            while i < 4 {
                if i < count {
                    // SAFETY: the tile has what was written before the barrier, the matrix the number.
                    let x = unsafe {
                        if M::IS_TRANSPOSED {
                            *tile.add((in_tile * (SIDE + 1) + own % (SIDE / 4) * 4) as usize + i)
                        } else {
                            let at = first + u64::from(row) * from_pitch + u64::from(column);
                            *from.add(at as usize + i)
                        }
                    };
                    (large[i], small[i]) = parts_of(x);
                }
                i += 1;
            }
            let at = u64::from(2 * plane) * plane_elements + u64::from(row) * u64::from(pitch);
            let at = (at + u64::from(column)) as usize;
            // SAFETY: both planes have these elements: the pitch is a multiple of 4.
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

/// The part of 11 bits, to nearest, and that of the rest. What is not finite has no rest.
#[inline(always)]
fn parts_of(x: f32) -> (f32, f32) {
    if !x.is_finite() {
        // The tensor cores cut bits by which a NaN may be one.
        return (if x.is_nan() { f32::NAN } else { x }, 0.0);
    }
    let nearest = rounded(x);
    let large = if nearest.is_finite() { nearest } else { f32::from_bits(x.to_bits() & !0x1fff) };
    (large, rounded(x - large))
}

/// `x` with 11 bits of mantissa, the leading one included: to nearest, ties away from zero.
#[inline(always)]
fn rounded(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(0x1000) & !0x1fff)
}

/// `c = activation(scale * a * b + bias)`, for each product of a batch, of numbers in two parts.
///
/// # Safety
///
/// That of [`product`]; matrix i of `a` and of `b` are planes `2 * i` and `2 * i + 1` of their maps. The grid has one dimension, and a
/// cluster for each `shared_by` tiles of each product. The `split_stages` of `sizes` are those of each block of a cluster but the
/// last. `c` has the products where `rows` says, and overlaps neither `a` nor `b`; `bias` has n elements.
#[kernel(arch = "90a", block(THREADS_ALONE), no_panic)]
pub unsafe fn matmul_tf32x3(
    a: &TensorMap<f32, 3>,
    b: &TensorMap<f32, 3>,
    mut c: DisjointMut<f32>,
    bias: Option<&[f32]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: Finish,
) {
    let (place, batch) = TilePlace::of_cluster::<f32>(&sizes, [ROWS, COLUMNS], shared_by);
    let place = TilePlace { a_plane: 2 * place.a_plane, b_plane: 2 * place.b_plane, ..place };
    // SAFETY: the caller's promise.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<f32, f32, KMajor, ROWS, COLUMNS, STAGES, _>(a, b, place, TwoParts, target);
    }
}
