//! Mappings that give a whole tile of rows to each block: [`Tiles`] and [`TransposedTiles`].
//!
//! # Why this is sound
//!
//! The mapping is a type, so all threads agree on the tile of each block. Different blocks of a launch of at most two
//! dimensions have tiles at different places, which do not overlap, because the tile of block (x, y) begins at a
//! multiple of its sides that only that block has. Within a tile, element i (row after row) belongs to the thread of the
//! block whose linear index is i modulo the block's threads. Point 4 of the parent module holds for the iterator as for
//! `get_mut`: it borrows the view, and gives each element once.

use core::iter::FusedIterator;
use core::marker::PhantomData;

use super::DisjointMut2;
use crate::thread;

/// The mapping of a [`DisjointMut2`] in which block (x, y) has the tile of `COLUMNS` x `ROWS` elements that begins at
/// element (`x * COLUMNS`, `y * ROWS`).
pub struct Tiles<const COLUMNS: usize, const ROWS: usize>(());

/// The mapping of a [`DisjointMut2`] in which block (x, y) has the tile of `COLUMNS` x `ROWS` elements that begins at
/// element (`y * COLUMNS`, `x * ROWS`): the tile at the mirrored place, for kernels that transpose.
pub struct TransposedTiles<const COLUMNS: usize, const ROWS: usize>(());

/// A mapping that gives each block a tile.
pub trait TileMapping: sealed::Tile {}

mod sealed {
    pub trait Tile {
        const COLUMNS: usize;
        const ROWS: usize;
        /// The tile's place among tiles: x and y.
        fn place() -> [u32; 2];
    }
}

impl<const COLUMNS: usize, const ROWS: usize> sealed::Tile for Tiles<COLUMNS, ROWS> {
    const COLUMNS: usize = COLUMNS;
    const ROWS: usize = ROWS;

    #[inline(always)]
    fn place() -> [u32; 2] {
        [thread::block_idx_x(), thread::block_idx_y()]
    }
}

impl<const COLUMNS: usize, const ROWS: usize> sealed::Tile for TransposedTiles<COLUMNS, ROWS> {
    const COLUMNS: usize = COLUMNS;
    const ROWS: usize = ROWS;

    #[inline(always)]
    fn place() -> [u32; 2] {
        [thread::block_idx_y(), thread::block_idx_x()]
    }
}

impl<const COLUMNS: usize, const ROWS: usize> TileMapping for Tiles<COLUMNS, ROWS> {}
impl<const COLUMNS: usize, const ROWS: usize> TileMapping for TransposedTiles<COLUMNS, ROWS> {}

impl<T, M: TileMapping> DisjointMut2<'_, T, M> {
    /// Where the block's tile begins: x and y of its first element.
    #[inline(always)]
    pub fn tile_origin(&self) -> (usize, usize) {
        let [x, y] = M::place();
        (x as usize * M::COLUMNS, y as usize * M::ROWS)
    }

    /// The elements of the block's tile that belong to the calling thread, with their column and row in the tile: every
    /// n-th of them in a block of n threads, row after row, so that the threads of a warp have neighbours. Elements
    /// beyond the view's sides are left out.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// Each element from the mirrored place, 32 x 32 elements a block.
    /// #[kernel(block(32, 8))]
    /// fn transpose(image: Slice2<f32>, mut out: DisjointMut2<f32, TransposedTiles<32, 32>>) {
    ///     let (left, top) = out.tile_origin();
    ///     for (column, row, out) in out.tile_mut() {
    ///         *out = image[(top + row, left + column)];
    ///     }
    /// }
    /// ```
    #[inline(always)]
    pub fn tile_mut(&mut self) -> TileMut<'_, T, M> {
        const { assert!(M::COLUMNS > 0 && M::ROWS > 0, "a tile has at least one element") };
        let (left, top) = self.tile_origin();
        let rest = |side: usize, start: usize| side.saturating_sub(start);
        TileMut {
            data: self.data.wrapping_add(top * self.pitch() + left),
            pitch: self.pitch(),
            columns: rest(self.width(), left),
            rows: rest(self.height(), top),
            next: thread::linear_in_block() as usize,
            step: crate::block::threads() as usize,
            _view: PhantomData,
        }
    }

    /// Writes the elements of the block's tile that belong to the calling thread: those of [`Self::tile_mut`], each with
    /// the value for its column and row in the tile.
    ///
    /// There is no barrier in it. Every thread of the block has to call it, or elements stay as they are.
    #[inline(always)]
    pub fn write_tile(&mut self, mut value: impl FnMut(usize, usize) -> T) {
        for (column, row, element) in self.tile_mut() {
            *element = value(column, row);
        }
    }
}

/// The elements that [`DisjointMut2::tile_mut`] gives to a thread: column, row and element.
#[derive(Debug)]
pub struct TileMut<'a, T, M> {
    /// The tile's first element, if it is within the view.
    data: *mut T,
    pitch: usize,
    /// Columns and rows of the view from the tile's first element on.
    columns: usize,
    rows: usize,
    next: usize,
    step: usize,
    _view: PhantomData<(&'a mut [T], fn() -> M)>,
}

impl<'a, T, M: TileMapping> Iterator for TileMut<'a, T, M> {
    type Item = (usize, usize, &'a mut T);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        while self.next < M::COLUMNS * M::ROWS {
            let (column, row) = (self.next % M::COLUMNS, self.next / M::COLUMNS);
            self.next += self.step;
            if column < self.columns && row < self.rows {
                // SAFETY: the element is within the view's sides; no other thread has it, as the module argues, and
                // `next` never comes to it again.
                return Some((column, row, unsafe { &mut *self.data.add(row * self.pitch + column) }));
            }
        }
        None
    }
}

impl<T, M: TileMapping> FusedIterator for TileMut<'_, T, M> {}
