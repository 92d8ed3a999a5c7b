//! Grouped GEMM: each group of rows is multiplied by its own matrix, as in mixture-of-experts layers.
//!
//! The group offsets are in device memory; the host does not read them. The grid therefore has the maximum number of
//! blocks that could be needed, and blocks without a tile exit immediately. Each block computes one tile, as in
//! [`non_persistent`](crate::non_persistent).

use gpu_std::prelude::*;
use gpu_std::tensor::{Columns, KMajor, Major, MnMajor, Output, SharedTile, TensorMap, Width};

use crate::epilogue::EpilogueParams;
use crate::matmul::GemmOperand;
use crate::non_persistent::{Plain, TileCoord, product, resident, threads};
use crate::sequences::Sequences;
use crate::tile_epilogue::OutputTile;
use crate::tiles::divide;

/// Problem size of a grouped GEMM.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Groups {
    /// Number of groups.
    pub count: u32,
    /// Total number of rows of A and C in all groups.
    pub m: u32,
    /// Number of columns of C.
    pub n: u32,
    /// Number of columns of A.
    pub k: u32,
    /// Number of tile rows per raster group, at least 1. Within a raster group, the blocks proceed from one tile column
    /// to the next.
    pub raster_group: u32,
    /// Row stride of C, in elements.
    pub pitch: u64,
}

impl Groups {
    /// Returns the number of blocks in a launch whose tiles have this size.
    pub const fn blocks(&self, [rows, columns]: [u32; 2]) -> u64 {
        (self.m / rows + self.count) as u64 * self.n.div_ceil(columns) as u64
    }

    /// Returns the tile of the calling block, or `None` if there are fewer tiles. All threads of the block must call
    /// this method.
    ///
    /// # Safety
    /// The length of `offsets` must be the number of groups plus one.
    #[inline(always)]
    pub(crate) unsafe fn tile(&self, [rows, columns]: [u32; 2], offsets: &[u32]) -> Option<GroupTile> {
        let Self { count, m, n, raster_group: height, .. } = *self;
        // Tile rasterization makes concurrently running blocks share tile rows and columns, which then stay in the L2
        // cache.
        let across = n.div_ceil(columns);
        let (raster_group, in_group) = divide(thread::block_idx_x(), height * across);
        let first = raster_group * height;
        let (most, _) = divide(m, rows);
        let (column, row) = divide(in_group, height.min((most + count).saturating_sub(first)));
        let sequences = Sequences { count, heads: 1, q_rows: m, k_rows: m, raster_group: 1 };
        // SAFETY: guaranteed by the caller.
        let group = unsafe { sequences.packed(first + row, rows, offsets, offsets) }?;
        let (first_row, length) = group.q;
        let (row, end) = (first_row + group.row, first_row + length);
        Some(GroupTile { group: group.sequence, row, end, column: column * columns })
    }
}

/// Tile of a group of rows.
#[derive(Clone, Copy)]
pub(crate) struct GroupTile {
    /// Index of the group.
    pub group: u32,
    /// First row in A and C.
    pub row: u32,
    /// End of the group's rows.
    pub end: u32,
    /// First column in C.
    pub column: u32,
}

/// Returns the bias of a group.
///
/// # Safety
/// The bias must have n elements for each group.
#[inline(always)]
pub(crate) unsafe fn group_bias<C>(bias: &[C], group: u32, n: u32) -> &[C] {
    // SAFETY: guaranteed by the caller.
    unsafe { core::slice::from_raw_parts(bias.as_ptr().add(group as usize * n as usize), n as usize) }
}

/// Number of stages of the circular buffer.
pub const STAGES: usize = 4;
/// Tile size of [`matmul_grouped()`].
pub const LARGE: [u32; 2] = [128, 256];
/// Tile size of [`matmul_grouped_small()`].
pub const SMALL: [u32; 2] = [64, 128];

/// Grouped GEMM: `c = activation(scale * a * b + bias)`, with tiles of 128 x 256. The rows of `a` from `offsets[i]` up
/// to, but not including, `offsets[i + 1]` are multiplied by plane i of `b`; row i of `bias` is added. Rows that belong
/// to no group are not written. `a` is K-major; `b` is column-major for [`KMajor`] and row-major for [`MnMajor`].
///
/// # Safety
/// The caller must uphold the safety contract of [`product`], where the map of `a` has one plane, and the map of `b`
/// has one plane per group. The grid must be one-dimensional, with `groups.blocks(LARGE)` blocks, each of which is a
/// cluster. The length of `offsets` is the number of groups plus one, and `bias` has n elements per group. `c` has m
/// rows and overlaps neither `a` nor `b`.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    arch = "90a",
    block(threads(128)),
    launch_bounds(threads(128), resident(128, 256)),
    no_panic
)]
pub unsafe fn matmul_grouped<T, B: Major>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T>,
    offsets: &[u32],
    bias: Option<&[T]>,
    groups: Groups,
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe { of_groups::<T, B, 128, 256>(a, b, &mut c, offsets, bias, groups, finish) }
}

/// Like [`matmul_grouped()`], but with tiles of 64 x 128, for small groups.
///
/// # Safety
/// The caller must uphold the safety contract of [`matmul_grouped()`], but with `groups.blocks(SMALL)` blocks.
#[kernel(
    types(T = bf16, f16; B = KMajor, MnMajor),
    arch = "90a",
    block(threads(64)),
    launch_bounds(threads(64), resident(64, 128)),
    no_panic
)]
pub unsafe fn matmul_grouped_small<T, B: Major>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    mut c: DisjointMut<T>,
    offsets: &[u32],
    bias: Option<&[T]>,
    groups: Groups,
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe { of_groups::<T, B, 64, 128>(a, b, &mut c, offsets, bias, groups, finish) }
}

/// # Safety
/// The caller must uphold the safety contract of [`matmul_grouped()`], but with tiles of `ROWS` x `COLUMNS`.
#[inline(always)]
unsafe fn of_groups<T, B: Major, const ROWS: usize, const COLUMNS: usize>(
    a: &TensorMap<T, 3>,
    b: &TensorMap<T, 3>,
    c: &mut DisjointMut<T>,
    offsets: &[u32],
    bias: Option<&[T]>,
    groups: Groups,
    finish: EpilogueParams,
) where
    T: GemmOperand<Sum = f32, Output = T> + Output<f32> + Into<f32>,
    Columns<COLUMNS>: Width,
{
    let Groups { n, k, pitch, .. } = groups;
    // SAFETY: guaranteed by the caller.
    let Some(tile) = (unsafe { groups.tile([ROWS as u32, COLUMNS as u32], offsets) }) else { return };
    let GroupTile { group, row, end, column } = tile;
    // SAFETY: the bias has n elements per group.
    let bias = bias.map(|bias| unsafe { group_bias(bias, group, n) });
    let stages = (0, k.div_ceil(SharedTile::<T, 64>::COLUMNS));
    let place = TileCoord { row, column, a_plane: 0, b_plane: group, stages, shared_by: 1 };
    let target = OutputTile {
        to: c.as_mut_ptr().wrapping_add((u64::from(row) * pitch) as usize),
        pitch,
        rows: end - row,
        column,
        n,
        bias,
        finish,
    };
    // SAFETY: the rows of C are the rows of the group; the caller guarantees the rest.
    unsafe { product::<T, T, B, ROWS, COLUMNS, STAGES, _>(a, b, place, Plain, target) }
}
