//! [`Tiles`]: the order in which tiles of products are worked on.

use core::num::NonZeroU32;

use crate::matmul::{BAND, Sizes};

/// The tiles of all products, and of all parts of their sums: product by product, in each bands of [`BAND`] columns of tiles,
/// row by row.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    rows: u32,
    columns: u32,
    planes: u32,
    splits: u32,
    stages: u32,
    split_stages: u32,
}

/// A tile of C and the stages that are summed in it.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The product.
    pub batch: u32,
    /// The plane of C.
    pub plane: u32,
    /// The row of tiles.
    pub row: u32,
    /// The column of tiles.
    pub column: u32,
    /// The first stage, and the one behind the last.
    pub stages: (u32, u32),
}

impl Tiles {
    #[inline(always)]
    pub fn new(sizes: &Sizes, tile_m: u32, tile_n: u32, tile_k: u32) -> Self {
        let (rows, rest) = divide(sizes.m, tile_m);
        Self {
            rows: rows + u32::from(rest > 0),
            columns: sizes.n.div_ceil(tile_n),
            planes: sizes.batches.wrapping_mul(sizes.splits),
            splits: sizes.splits,
            stages: sizes.k.div_ceil(tile_k),
            split_stages: sizes.split_stages,
        }
    }

    #[inline(always)]
    pub fn count(self) -> u32 {
        self.rows.wrapping_mul(self.columns).wrapping_mul(self.planes)
    }

    /// Tile `number`, below the count.
    #[inline(always)]
    pub fn at(self, number: u32) -> Tile {
        let (plane, number) = divide(number, self.rows.wrapping_mul(self.columns));
        let (batch, split) = divide(plane, self.splits);
        let (band, in_band) = divide(number, self.rows.wrapping_mul(BAND));
        // The last band may be narrower.
        let (row, column) = divide(in_band, BAND.min(self.columns - band * BAND));
        let first = split * self.split_stages;
        let stages = (first, self.stages.min(first + self.split_stages));
        Tile { batch, plane, row, column: band * BAND + column, stages }
    }
}

/// `a / b` and `a % b`, for a `b` that is not 0, without a check: a panic would be a call.
#[inline(always)]
pub(crate) fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: the least is 1, which is what 0 becomes.
    let b = unsafe { NonZeroU32::new_unchecked(b.max(1)) };
    (a / b, a % b)
}
