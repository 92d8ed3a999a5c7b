//! Mutable views that assign every block its own elements, for block-wide results.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// The sum of each row of `width` elements; any number of blocks.
//! #[kernel]
//! fn row_sums(width: u32, rows: &[f32], mut sums: DisjointMut<f32, PerBlock>) {
//!     let width = width as usize;
//!     for row in block::stride(sums.len()) {
//!         let row_of = &rows[row.get() * width..][..width];
//!         let mut sum = 0.0;
//!         for x in row_of.iter().skip(thread::linear_in_block() as usize).step_by(block::threads() as usize) {
//!             sum += x;
//!         }
//!         let sum = block::reduce(sum, |a, b| a + b);
//!         // `Some` in the first thread of the block.
//!         if let Some(out) = sums.get_mut(row) {
//!             *out = sum;
//!         }
//!     }
//! }
//! ```
//!
//! # Why this is sound
//! The soundness argument of [`disjoint`](crate::disjoint) applies, with blocks instead of threads. In a launch of B
//! blocks, index i belongs to the block whose linear index is i mod B. [`unique_index`] and [`stride`] return only such
//! indices, and an index never leaves its thread. A view returns the element only to the first thread of the block, so
//! no two threads of a launch access the same element. The mapping is part of the parameter's type, so no thread
//! accesses the memory through another mapping.

use core::marker::PhantomData;

use crate::disjoint::{Claim, DisjointMut, GridStride};
use crate::{block, thread};

/// Mapping of a [`DisjointMut`] in which a block's index i owns element i. Only the block's first thread can access it.
///
/// See the [example](self).
pub enum PerBlock {}

/// An index that no other block of the launch can obtain. All threads of the block have the same index.
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockIndex {
    index: usize,
    /// Makes the type neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const ()>,
}

impl Claim for BlockIndex {
    /// Creates an index that must belong to this block: the index modulo the number of blocks must be the block's
    /// linear index.
    #[inline(always)]
    fn at(index: usize) -> Self {
        Self { index, _of_this_thread: PhantomData }
    }
}

impl BlockIndex {
    /// Returns the index.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.index
    }
}

/// Returns the number of blocks in the launch.
#[inline(always)]
fn blocks() -> usize {
    let [x, y, z] = thread::grid_dim();
    x as usize * y as usize * z as usize
}

/// Returns the block's linear index in a grid of any number of dimensions. The index is the block's claim to its
/// elements of a view.
#[inline(always)]
pub fn unique_index() -> BlockIndex {
    BlockIndex::at(block::linear_index())
}

/// Divides `0..len` among all blocks of a launch, regardless of its size. In a launch of B blocks, block b receives b,
/// b + B, b + 2B, …. All threads of a block receive the same indices.
#[inline(always)]
pub fn stride(len: usize) -> BlockStride {
    GridStride::new(block::linear_index(), blocks(), len)
}

/// Iterator over the indices that [`stride`] assigns to a block.
pub type BlockStride = GridStride<BlockIndex>;

impl<T> DisjointMut<'_, T, PerBlock> {
    /// Returns the element at `index` in the block's first thread. Returns `None` in all other threads, and if the
    /// index is out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, index: BlockIndex) -> Option<&mut T> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            index.get() % blocks() == block::linear_index(),
            "the index {} belongs to another block of this or another launch",
            index.get()
        );
        if index.get() < self.len() && thread::linear_in_block() == 0 {
            // SAFETY: the index is in range, and the module documentation explains why no other thread owns the
            // element.
            Some(unsafe { &mut *self.as_mut_ptr().add(index.get()) })
        } else {
            None
        }
    }
}
