//! [`Tiles`]: the order in which tiles of products are worked on.

use core::num::NonZeroU32;

use crate::matmul::{BAND, Sizes};

/// The tiles of all products: product by product, in each bands of [`BAND`] columns of tiles, row by row.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    rows: u32,
    columns: u32,
    batches: u32,
}

/// A tile of C.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The product.
    pub batch: u32,
    /// The row of tiles.
    pub row: u32,
    /// The column of tiles.
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

    /// Tile `number`, below the count.
    #[inline(always)]
    pub fn at(self, number: u32) -> Tile {
        let (batch, number) = divide(number, self.rows.wrapping_mul(self.columns));
        let (band, in_band) = divide(number, self.rows.wrapping_mul(BAND));
        // The last band may be narrower.
        let (row, column) = divide(in_band, BAND.min(self.columns - band * BAND));
        Tile { batch, row, column: band * BAND + column }
    }
}

/// `a / b` and `a % b`, for a `b` that is not 0, without a check: a panic would be a call.
#[inline(always)]
pub(crate) fn divide(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: the least is 1, which is what 0 becomes.
    let b = unsafe { NonZeroU32::new_unchecked(b.max(1)) };
    (a / b, a % b)
}
