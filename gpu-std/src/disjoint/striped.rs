//! [`Striped`]: a mapping that gives each thread of a block every n-th element of the block's tile.
//!
//! # Why this is sound
//!
//! In blocks of n threads, index i has the elements `(i / n) * n * N + k * n + i % n` for k below `N`. From such an element
//! the tile `i / n`, k, and `i % n` follow, so two indices have none in common. n is the same in all threads of a launch.

use super::{DisjointMut, OwnIndex};
use crate::block;

/// The mapping of a [`DisjointMut`] in which each block has a tile of `N` elements a thread, one block's after the other's,
/// and thread t of n has elements t, t + n, t + 2n, … of its block's: neighbouring threads have neighbouring elements.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Four elements a thread; a warp writes 32 neighbours at a time.
/// #[kernel]
/// fn double(x: &[f32], mut out: DisjointMut<f32, Striped<4>>) {
///     let own = thread::unique_index();
///     let first = block::linear_index() * block::threads() as usize * 4;
///     let items: [f32; 4] = gpu_std::exchange::load_striped(x, first, 0.0);
///     out.write(own, items.map(|item| 2.0 * item));
/// }
/// ```
pub enum Striped<const N: usize> {}

impl<T, const N: usize> DisjointMut<'_, T, Striped<N>> {
    /// Where element `item` of the index lies.
    #[inline(always)]
    fn place(index: usize, item: usize) -> usize {
        let threads = block::threads() as usize;
        index / threads * (threads * N) + item * threads + index % threads
    }

    /// Element `item` of the `N` that `index` has, or `None` past the end.
    ///
    /// # Panics
    ///
    /// If `item` is not below `N`.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I, item: usize) -> Option<&mut T> {
        assert!(item < N, "an index has fewer elements of a striped view");
        let index = index.own();
        index.check();
        let place = Self::place(index.get(), item);
        if place < self.len {
            // SAFETY: the element is in range; that no other thread has it is argued above.
            Some(unsafe { &mut *self.data.add(place) })
        } else {
            None
        }
    }

    /// Writes the elements of `index`; those past the end are left out.
    #[inline(always)]
    #[track_caller]
    pub fn write<I: OwnIndex>(&mut self, index: I, items: [T; N]) {
        let index = index.own();
        index.check();
        let (first, threads) = (Self::place(index.get(), 0), block::threads() as usize);
        let mut place = first;
        for item in items {
            if place < self.len {
                // SAFETY: as in `get_mut`.
                unsafe { self.data.add(place).write(item) };
            }
            place += threads;
        }
    }
}
