//! Block-scaled FP8 GEMM, with one scale per [`BLOCK`] elements along K.
//!
//! A pipeline stage covers one block along K. Tensor cores accumulate FP8 products with only about 14 bits of mantissa.
//! Therefore, they add only the products within a stage. These sums are multiplied by both scales and accumulated in
//! `f32` (promotion).
//!
//! Scaling scheme: DeepSeek-V3 Technical Report, 2024, section 3.3.2; design of the promotion: DeepGEMM.

use gpu_std::prelude::*;
use gpu_std::tensor::{F8E4M3, KMajor, TensorMap};

use crate::epilogue::EpilogueParams;
use crate::matmul::Sizes;
use crate::non_persistent::{COLUMNS, ROWS, RowStrides, Stage, THREADS_ALONE, TileCoord, product, target};

/// Number of elements along K that share a scale, and number of columns of B that share a scale.
pub const BLOCK: u32 = COLUMNS as u32;
/// Number of stages of the circular buffer.
pub const STAGES: usize = 6;

/// Scales of a tile.
#[derive(Clone, Copy)]
struct Scales {
    /// Scales of A. Each row of A has one scale per block along K.
    a: *const f32,
    /// First row of the tile.
    first: u32,
    /// Last row of A.
    last: u32,
    /// Scales of B that apply to the columns of the tile.
    b: *const f32,
    /// Number of blocks along K.
    blocks: u32,
}

impl Stage for Scales {
    const IS_ALONE: bool = true;

    #[inline(always)]
    fn scales(self, stage: u32, row: u32) -> ([f32; 2], f32) {
        let of_row = |row: u32| {
            // Rows beyond A use the scales of the last row, so that the load is in bounds.
            let row = (self.first + row).min(self.last) as usize;
            // SAFETY: there is one scale of A per row and stage.
            unsafe { *self.a.add(row * self.blocks as usize + stage as usize) }
        };
        // SAFETY: there is one scale of B per stage.
        ([of_row(row), of_row(row + 8)], unsafe { *self.b.add(stage as usize) })
    }
}

/// Block-scaled GEMM: `c = activation(scale * a * b + bias)`. The product of row i and column j in block l along K is
/// multiplied by `a_scales[i, l]` and `b_scales[j / 128, l]`. Both operands are K-major.
///
/// # Safety
/// The caller must uphold the safety contract of [`product`]. The grid must be one-dimensional, with one cluster per
/// `shared_by` tiles. There is no batch. `sizes.split_stages` must be the number of stages of each block of a cluster
/// except the last. `c` must have the strides `rows`, and must not overlap `a` or `b`. `bias` must have n elements.
/// `a_scales` has one element per row and block along K, and `b_scales` has one element per [`BLOCK`] columns and block
/// along K.
#[kernel(arch = "90a", block(THREADS_ALONE), no_panic)]
pub unsafe fn matmul_scaled(
    a: &TensorMap<F8E4M3, 3>,
    b: &TensorMap<F8E4M3, 3>,
    a_scales: &[f32],
    b_scales: &[f32],
    mut c: DisjointMut<bf16>,
    bias: Option<&[bf16]>,
    sizes: Sizes,
    rows: RowStrides,
    shared_by: u32,
    finish: EpilogueParams,
) {
    let (place, batch) = TileCoord::of_cluster::<F8E4M3>(&sizes, [ROWS, COLUMNS], shared_by);
    let blocks = sizes.k.div_ceil(BLOCK);
    let scales = Scales {
        a: a_scales.as_ptr(),
        first: place.row,
        last: sizes.m.wrapping_sub(1),
        b: b_scales.as_ptr().wrapping_add((place.column / BLOCK) as usize * blocks as usize),
        blocks,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<F8E4M3, bf16, KMajor, ROWS, COLUMNS, STAGES, _>(a, b, place, scales, target);
    }
}
