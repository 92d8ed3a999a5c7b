//! Products of 8-bit floating-point numbers with scales for blocks of [`BLOCK`] numbers along K.
//!
//! A stage of the ring has one block of K. The tensor cores add the products of a stage alone, and these sums, times both scales, are
//! added up in `f32`: so sums also have all bits of `f32`, of which the tensor cores keep some 14 while they add 8-bit numbers.
//!
//! Scheme of the scales: DeepSeek-V3 Technical Report, 2024, section 3.3.2; design of the promotion: DeepGEMM.

use gpu_std::prelude::*;
use gpu_std::tensor::{F8E4M3, KMajor, TensorMap};

use crate::epilogue::Finish;
use crate::matmul::Sizes;
use crate::one_tile::{COLUMNS, ROWS, RowStrides, Stage, THREADS_ALONE, TilePlace, product, target};

/// Numbers along K, and columns of B, of a scale.
pub const BLOCK: u32 = COLUMNS as u32;
/// Stages of the ring.
pub const STAGES: usize = 6;

/// The scales of a tile.
#[derive(Clone, Copy)]
struct Scales {
    /// Those of A: of each row one for each block of K.
    a: *const f32,
    /// The first row of the tile.
    first: u32,
    /// The last row of A.
    last: u32,
    /// Those of the columns of the tile.
    b: *const f32,
    /// Blocks of K.
    blocks: u32,
}

impl Stage for Scales {
    const IS_ALONE: bool = true;

    #[inline(always)]
    fn scales(self, stage: u32, row: u32) -> ([f32; 2], f32) {
        let of_row = |row: u32| {
            // Rows beyond A have those of the last.
            let row = (self.first + row).min(self.last) as usize;
            // SAFETY: A has a scale for each stage in each of its rows.
            unsafe { *self.a.add(row * self.blocks as usize + stage as usize) }
        };
        // SAFETY: B has a scale for each stage.
        ([of_row(row), of_row(row + 8)], unsafe { *self.b.add(stage as usize) })
    }
}

/// `c = activation(scale * a * b + bias)`, where the product of row i and column j in block l of K is multiplied by `a_scales[i, l]` and by
/// `b_scales[j / 128, l]`. Both matrices are K-major.
///
/// # Safety
///
/// That of [`product`]. The grid has one dimension, and a cluster for each `shared_by` tiles. There is one product, and
/// the `split_stages` of `sizes` are those of each block of a cluster but the last. `c` is where `rows` says, and overlaps neither `a`
/// nor `b`; `bias` has n elements, `a_scales` one for each row and block of K, and `b_scales` one for each [`BLOCK`] columns and block of
/// K.
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
    finish: Finish,
) {
    let (place, batch) = TilePlace::of_cluster::<F8E4M3>(&sizes, [ROWS, COLUMNS], shared_by);
    let blocks = sizes.k.div_ceil(BLOCK);
    let scales = Scales {
        a: a_scales.as_ptr(),
        first: place.row,
        last: sizes.m.wrapping_sub(1),
        b: b_scales.as_ptr().wrapping_add((place.column / BLOCK) as usize * blocks as usize),
        blocks,
    };
    // SAFETY: the caller's promise.
    unsafe {
        let target = target(&mut c, &sizes, place, batch, rows, bias, finish);
        product::<F8E4M3, bf16, KMajor, ROWS, COLUMNS, STAGES, _>(a, b, place, scales, target);
    }
}
