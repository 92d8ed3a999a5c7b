//! Mappings that assign each block a 2-D tile: [`Tiles`] and [`TransposedTiles`].
//!
//! # Why this is sound
//! The mapping is a type, so all threads agree on the tile of each block. In a launch of at most two dimensions, each
//! block's tile starts at multiples of the tile's sides, at an origin that no other block has. Tiles of different
//! blocks therefore do not overlap. Within a tile, element i in row-major order belongs to the thread of the block
//! whose linear index is i modulo the block's threads. Point 4 of the parent module's documentation applies to these
//! references as it does to the references that `get_mut` returns. The view stays borrowed while the kernel holds a
//! reference to an element, so the kernel holds at most one such reference.

use super::DisjointMut2;
use crate::thread;

/// Mapping of a [`DisjointMut2`] in which block (x, y) owns the tile of `ROWS` x `COLUMNS` elements that starts at
/// element `[y * ROWS, x * COLUMNS]`.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::disjoint::Tiles;
///
/// /// Fills each tile of 16 x 16 elements with the number of its column of tiles.
/// #[kernel(block(16, 16))]
/// fn number(mut out: DisjointMut2<u32, Tiles<16, 16>>) {
///     out.write_tile(|_| thread::block_idx_x());
/// }
/// ```
pub struct Tiles<const ROWS: usize, const COLUMNS: usize>(());

/// Mapping of a [`DisjointMut2`] in which block (x, y) owns the tile of `ROWS` x `COLUMNS` elements that starts at
/// element `[x * ROWS, y * COLUMNS]`. Use it in kernels that transpose a matrix.
///
/// See the example of [`DisjointMut2::write_tile`].
pub struct TransposedTiles<const ROWS: usize, const COLUMNS: usize>(());

/// A mapping that assigns each block a tile.
///
/// See the example of [`Tiles`].
pub trait TileMapping: sealed::Tile {}

mod sealed {
    pub trait Tile {
        const ROWS: usize;
        const COLUMNS: usize;
        /// Returns the row and column of the block's tile among all tiles.
        fn place() -> [u32; 2];
    }
}

impl<const ROWS: usize, const COLUMNS: usize> sealed::Tile for Tiles<ROWS, COLUMNS> {
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;

    #[inline(always)]
    fn place() -> [u32; 2] {
        [thread::block_idx_y(), thread::block_idx_x()]
    }
}

impl<const ROWS: usize, const COLUMNS: usize> sealed::Tile for TransposedTiles<ROWS, COLUMNS> {
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;

    #[inline(always)]
    fn place() -> [u32; 2] {
        [thread::block_idx_x(), thread::block_idx_y()]
    }
}

impl<const ROWS: usize, const COLUMNS: usize> TileMapping for Tiles<ROWS, COLUMNS> {}
impl<const ROWS: usize, const COLUMNS: usize> TileMapping for TransposedTiles<ROWS, COLUMNS> {}

impl<T, M: TileMapping> DisjointMut2<'_, T, M> {
    /// Returns the row and column of the first element of the block's tile.
    #[inline(always)]
    pub fn tile_origin(&self) -> [usize; 2] {
        let [row, column] = M::place();
        const { assert!(super::is_tile(M::ROWS, M::COLUMNS), "a tile must have 1 to 4096 rows and columns") };
        [row as usize * M::ROWS, column as usize * M::COLUMNS]
    }

    /// Writes the calling thread's elements of the block's tile. `value` computes each element from its row and column
    /// in the tile. In a block of n threads, each thread writes every n-th element in row-major order, so that accesses
    /// of a warp are coalesced. Elements outside the view are skipped.
    ///
    /// The method contains no barrier. Every thread of the block must call it. Otherwise, some elements keep their old
    /// values.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// Each element from the mirrored place, 32 x 32 elements a block.
    /// #[kernel(block(32, 8))]
    /// fn transpose(image: Slice2<f32>, mut out: DisjointMut2<f32, TransposedTiles<32, 32>>) {
    ///     let [top, left] = out.tile_origin();
    ///     out.write_tile(|[row, column]| image[[left + column, top + row]]);
    /// }
    /// ```
    #[inline(always)]
    pub fn write_tile(&mut self, mut value: impl FnMut([usize; 2]) -> T) {
        self.update_tile(|element, indices| *element = value(indices));
    }

    /// Calls `update` for each of the calling thread's elements of the block's tile, with the element's row and column
    /// in the tile. Elements are divided among threads as in [`Self::write_tile`].
    #[inline(always)]
    pub fn update_tile(&mut self, mut update: impl FnMut(&mut T, [usize; 2])) {
        const { assert!(super::is_tile(M::ROWS, M::COLUMNS), "a tile must have 1 to 4096 rows and columns") };
        let [top, left] = self.tile_origin();
        // The result is at most one side of the view, which fits in 32 bits.
        let columns = self.columns().saturating_sub(left) as u32;
        let rows = self.rows().saturating_sub(top) as u32;
        let (data, row_stride) =
            (self.data.wrapping_add(top.wrapping_mul(self.row_stride()) + left), self.row_stride());
        let (own, threads) = (thread::linear_in_block(), crate::block::threads());
        // The loop counter excludes the thread's index, so that the number of iterations is constant if the block size
        // is constant.
        let mut round = 0;
        while round < (M::COLUMNS * M::ROWS) as u32 {
            let index = round + own;
            round += threads;
            let (column, row) = (index % M::COLUMNS as u32, index / M::COLUMNS as u32);
            if (row < M::ROWS as u32) & (column < columns) & (row < rows) {
                let (column, row) = (column as usize, row as usize);
                // SAFETY: the element is within the view, and the module documentation explains why no other thread
                // owns it.
                update(unsafe { &mut *data.add(row * row_stride + column) }, [row, column]);
            }
        }
    }
}
