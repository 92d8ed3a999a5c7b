//! Mutable views of which every block gets its own elements: where block-wide results go.
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
//!
//! As for [`disjoint`](crate::disjoint), with blocks in the place of threads: in a launch of B blocks, index i belongs to
//! the block whose linear index is i mod B, and [`unique_index`] and [`stride`] give a block only such indices, none of
//! which leaves its thread. A view gives its element only to the first thread of that block, so no two threads of a launch
//! reach the same. The mapping is part of the parameter's type: no thread sees the memory as one of another mapping.

use core::marker::PhantomData;

use crate::disjoint::{Claim, DisjointMut, GridStride};
use crate::{block, thread};

/// The mapping of a [`DisjointMut`] in which the block's index i has element i, which its first thread reaches.
pub enum PerBlock {}

/// An index that no other block of the launch has. All threads of the block have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockIndex {
    index: usize,
    /// Neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const ()>,
}

impl Claim for BlockIndex {
    type Place = usize;

    /// The index belongs to this block: modulo the number of blocks it is the block's linear index.
    #[inline(always)]
    fn at(index: usize) -> Self {
        Self { index, _of_this_thread: PhantomData }
    }
}

impl BlockIndex {
    /// The index.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.index
    }
}

/// Blocks of the launch.
#[inline(always)]
fn blocks() -> usize {
    let [x, y, z] = thread::grid_dim();
    x as usize * y as usize * z as usize
}

/// The block's linear index in the grid, in one to three dimensions, as a claim to its elements of a view.
#[inline(always)]
pub fn unique_index() -> BlockIndex {
    BlockIndex::at(block::linear_index())
}

/// Divides `0..len` among all blocks of the launch, however many there are: block b gets b, b + B, b + 2B, … for B
/// blocks. All threads of a block get the same.
#[inline(always)]
pub fn stride(len: usize) -> BlockStride {
    GridStride::new(block::linear_index(), blocks(), len)
}

/// The indices that [`stride`] gives to a block.
pub type BlockStride = GridStride<BlockIndex>;

impl<T> DisjointMut<'_, T, PerBlock> {
    /// Element `index`, in the block's first thread; `None` in all others, and past the end.
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
            // SAFETY: the index is in range; that no other thread has the element is argued above.
            Some(unsafe { &mut *self.as_mut_ptr().add(index.get()) })
        } else {
            None
        }
    }
}
