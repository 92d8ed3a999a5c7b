//! Mutable views that assign every [`Tile`] its own elements, for results of warps and sub-warp groups.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// `y = A x` for rows of any length, one after the other: 8 threads a row, any number of blocks.
//! #[kernel]
//! fn multiply(starts: &[u32], columns: &[u32], values: &[f32], x: &[f32], mut y: DisjointMut<f32, PerTile<8>>) {
//!     let tile = Tile::<8>::current();
//!     for row in tile.stride(y.len()) {
//!         let mut sum = 0.0;
//!         for i in (starts[row.get()] + tile.rank()..starts[row.get() + 1]).step_by(8) {
//!             sum += values[i as usize] * x[columns[i as usize] as usize];
//!         }
//!         let sum = tile.reduce_add(sum);
//!         // `Some` in the first thread of the tile.
//!         if let Some(y) = y.get_mut(row) {
//!             *y = sum;
//!         }
//!     }
//! }
//! ```
//!
//! # Why this is sound
//! The soundness argument of [`disjoint`](crate::disjoint) applies, with tiles instead of threads. [`Tile::current`]
//! panics if the block cannot be divided into tiles of `N` threads. In a launch of S threads, each of the S / N tiles
//! therefore consists of `N` threads of one block. The linear indices of these threads in the launch have the same
//! quotient by `N`. Index i belongs to tile i mod (S / N). [`Tile::unique_index`] and [`Tile::stride`] return only such
//! indices, and an index never leaves its thread. A view returns the element only to the thread whose linear index in
//! the block is a multiple of `N`. Each tile contains exactly one such thread. `N` is part of both the index type and
//! the view type.

use core::marker::PhantomData;

use crate::disjoint::{Claim, DisjointMut, GridStride, MutableView, linear_in_launch};
use crate::thread;
use crate::tile::Tile;

/// Mapping of a [`DisjointMut`] in which index i of a tile of `N` threads owns element i. Only the tile's first thread
/// can access it.
///
/// See the [example](self).
pub enum PerTile<const N: u32> {}

/// An index that no other tile of `N` threads in the launch can obtain. All threads of the tile have the same index.
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileIndex<const N: u32> {
    index: usize,
    /// Makes the type neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const ()>,
}

impl<const N: u32> Claim for TileIndex<N> {
    /// Creates an index that must belong to this tile: the index modulo the number of tiles must be the tile's index in
    /// the launch.
    #[inline(always)]
    fn at(index: usize) -> Self {
        Self { index, _of_this_thread: PhantomData }
    }
}

impl<const N: u32> TileIndex<N> {
    /// Returns the index.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.index
    }
}

/// Returns the number of tiles of `N` threads in the launch.
#[inline(always)]
fn tiles<const N: u32>() -> usize {
    thread::launch_size() / N as usize
}

/// Returns the index of the calling thread's tile in the launch.
#[inline(always)]
fn number<const N: u32>() -> usize {
    linear_in_launch() / N as usize
}

/// Iterator over the indices that [`Tile::stride`] assigns to a tile.
pub type TileStride<const N: u32> = GridStride<TileIndex<N>>;

impl<const N: u32> Tile<N> {
    /// Returns the tile's index in a launch of any number of dimensions. The index is the tile's claim to its elements
    /// of a view.
    #[inline(always)]
    pub fn unique_index(&self) -> TileIndex<N> {
        TileIndex::at(number::<N>())
    }

    /// Divides `0..len` among all tiles of a launch, regardless of its size. In a launch of S tiles, tile t receives t,
    /// t + S, t + 2S, …. All threads of a tile receive the same indices.
    #[inline(always)]
    pub fn stride(&self, len: usize) -> TileStride<N> {
        GridStride::new(number::<N>(), tiles::<N>(), len)
    }
}

impl<T, const N: u32> DisjointMut<'_, T, PerTile<N>> {
    /// In the tile's first thread, returns the element at `index`, or `None` if the index is out of range. In all other
    /// threads, returns `None`.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, index: TileIndex<N>) -> Option<&mut T> {
        const { assert!(Self::WRONG.is_none()) };
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            index.get() % tiles::<N>() == number::<N>(),
            "the index {} belongs to another tile of this or another launch",
            index.get()
        );
        if index.get() < self.len() && thread::linear_in_block().is_multiple_of(N) {
            // SAFETY: the index is in range, and the module documentation explains why no other thread owns the
            // element.
            Some(unsafe { &mut *self.as_mut_ptr().add(index.get()) })
        } else {
            None
        }
    }
}
