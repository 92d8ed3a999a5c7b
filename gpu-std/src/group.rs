//! Thread groups as types, for code that is generic over the group.
//!
//! ```
//! use gpu_std::group::{Block, Grid, Group};
//! use gpu_std::prelude::*;
//!
//! /// Calls `f` with each index below `count`, shared out among the threads of the group.
//! fn for_each(group: &impl Group, count: usize, mut f: impl FnMut(usize)) {
//!     let mut i = group.thread_rank();
//!     while i < count {
//!         f(i);
//!         i += group.size();
//!     }
//!     group.sync();
//! }
//!
//! /// # Safety
//! ///
//! /// `out` has 1000 elements.
//! #[kernel(cooperative)]
//! unsafe fn count(out: *mut usize) {
//!     // SAFETY: each index is of one thread of the grid.
//!     for_each(&Grid, 1000, |i| unsafe { out.add(i).write(i) });
//! }
//! ```

use crate::sealed::Sealed;
use crate::{block, cluster, grid, thread};

pub use crate::tile::Tile;

/// A group of threads that can wait for each other. A value represents the group of the calling thread.
///
/// The trait is sealed, so `unsafe` code can rely on its sizes and ranks.
///
/// See the [example](self).
pub trait Group: Sealed {
    /// Returns the number of threads in the group.
    fn size(&self) -> usize;

    /// Returns the calling thread's index in the group, which is less than [`size`](Self::size).
    fn thread_rank(&self) -> usize;

    /// Waits until every thread of the group has arrived. Writes that precede the barrier, to memory that all threads
    /// of the group can access, are visible to all of them after it.
    #[track_caller]
    fn sync(&self);
}

/// All threads of the launch. For the conditions of `sync`, see [`grid::sync`].
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid;

/// The threads of the cluster. For the conditions of `sync`, see [`cluster::sync`].
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster;

/// The threads of the block. For the conditions of `sync`, see [`block::sync_threads`].
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block;

macro_rules! groups {
    ($([$($parameter:tt)*] $group:ty: |$this:ident| $size:expr, $rank:expr, $sync:expr;)*) => { $(
        impl<$($parameter)*> Sealed for $group {}

        impl<$($parameter)*> Group for $group {
            #[inline(always)]
            fn size(&self) -> usize {
                $size
            }
            #[inline(always)]
            fn thread_rank(&self) -> usize {
                let $this = self;
                $rank
            }
            #[inline(always)]
            #[track_caller]
            fn sync(&self) {
                let $this = self;
                $sync;
            }
        }
    )* };
}

groups! {
    [] Grid: |_this| grid::threads(), grid::rank(), grid::sync();
    [] Cluster: |_this| cluster::threads() as usize, cluster::thread_rank() as usize, cluster::sync();
    [] Block: |_this| block::threads() as usize, thread::linear_in_block() as usize, thread::sync_threads();
    [const N: u32] Tile<N>: |this| N as usize, this.rank() as usize, Tile::sync(this);
}
