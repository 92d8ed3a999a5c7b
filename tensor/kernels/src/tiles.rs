//! [`Tiles`]: the rasterization order of GEMM tiles.

use core::num::NonZeroU32;

use crate::matmul::{RASTER_GROUP, Sizes};

/// Tiles of a batch in raster order: one matrix after another, and in each matrix, one group of [`RASTER_GROUP`] tile
/// columns after another. The tiles of a group are in row-major order.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    rows: u32,
    columns: u32,
    batches: u32,
}

/// Tile of C.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Index in the batch.
    pub batch: u32,
    /// Tile row.
    pub row: u32,
    /// Tile column.
    pub column: u32,
}

impl Tiles {
    #[inline(always)]
    pub fn new(sizes: &Sizes, tile_m: u32, tile_n: u32) -> Self {
        let (rows, rest) = divide(sizes.m, tile_m);
        Self { rows: rows + u32::from(rest > 0), columns: sizes.n.div_ceil(tile_n), batches: sizes.batches }
    }

    #[inline(always)]
    pub fn count(self) -> u32 {
        self.rows.wrapping_mul(self.columns).wrapping_mul(self.batches)
    }

    /// Returns the tile with index `number`, which must be less than the count.
    #[inline(always)]
    pub fn at(self, number: u32) -> Tile {
        let (batch, number) = divide(number, self.rows.wrapping_mul(self.columns));
        let (raster_group, in_group) = divide(number, self.rows.wrapping_mul(RASTER_GROUP));
        // The last raster group may be narrower.
        let (row, column) = divide(in_group, RASTER_GROUP.min(self.columns - raster_group * RASTER_GROUP));
        Tile { batch, row, column: raster_group * RASTER_GROUP + column }
    }
}

/// Returns `a / b` and `a % b`. A `b` of 0 is replaced by 1, because a check could panic, and a panic would compile to
/// a call.
#[inline(always)]
pub(crate) fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: the value is at least 1, because 0 is replaced by 1.
    let b = unsafe { NonZeroU32::new_unchecked(b.max(1)) };
    (a / b, a % b)
}
