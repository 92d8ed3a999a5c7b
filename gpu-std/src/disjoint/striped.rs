//! [`Striped`]: a mapping that assigns each thread of a block every n-th element of the block's tile.
//!
//! # Why this is sound
//! In blocks of n threads, index i owns the elements `(i / n) * n * N + k * n + i % n` for k below `N`. The position of
//! an element determines the tile `i / n`, k, and `i % n`, so two indices never share an element. n is the same in all
//! threads of a launch.

use super::{DisjointMut, MutableView, OwnIndex};
use crate::block;

/// Mapping of a [`DisjointMut`] in which each block owns a tile of `N` elements per thread. Tiles of consecutive blocks
/// are adjacent. Thread t of n owns elements t, t + n, t + 2n, … of its block's tile, so adjacent threads own adjacent
/// elements.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Four elements a thread; a warp writes 32 neighbors at a time.
/// #[kernel]
/// fn double(x: &[f32], mut out: DisjointMut<f32, Striped<4>>) {
///     let own = thread::unique_index();
///     let first = block::linear_index() * block::threads() as usize * 4;
///     let items: [f32; 4] = gpu_std::exchange::load_striped(x, first, 0.0);
///     out.write(own, items.map(|item| 2.0 * item));
/// }
/// ```
pub enum Striped<const N: usize> {}

/// Returns the position of element `item` of the elements that `index` owns, for blocks of `threads` threads that own
/// `items` elements each. Returns `None` if the position exceeds the address space.
#[inline(always)]
fn place(index: usize, item: usize, threads: usize, items: usize) -> Option<usize> {
    // A tile belongs to at most 1024 threads with 65536 elements each, so only the tile's start and the final sum can
    // overflow.
    let tile = (index / threads).checked_mul(threads * items)?;
    tile.checked_add(item * threads + index % threads)
}

impl<T, const N: usize> DisjointMut<'_, T, Striped<N>> {
    /// Returns element `item` of the `N` elements of `index`, or `None` if the element is out of range.
    ///
    /// # Panics
    /// Panics if `item` is not less than `N`.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I, item: usize) -> Option<&mut T> {
        const { assert!(Self::WRONG.is_none()) };
        assert!(item < N, "an index has fewer elements of a striped view");
        let index = index.own();
        index.check();
        let place = place(index.get(), item, block::threads() as usize, N)?;
        if place < self.len {
            // SAFETY: the element is in range, and the module documentation explains why no other thread owns it.
            Some(unsafe { &mut *self.data.add(place) })
        } else {
            None
        }
    }

    /// Writes the elements of `index`, except those that are out of range.
    #[inline(always)]
    #[track_caller]
    pub fn write<I: OwnIndex>(&mut self, index: I, items: [T; N]) {
        const { assert!(Self::WRONG.is_none()) };
        let index = index.own();
        index.check();
        let threads = block::threads() as usize;
        let Some(mut place) = place(index.get(), 0, threads, N).filter(|&first| first < self.len) else {
            return;
        };
        for item in items {
            if place < self.len {
                // SAFETY: as in `get_mut`.
                unsafe { self.data.add(place).write(item) };
            }
            // Elements that are not zero-sized end below half of the address space, so the addition wraps only for
            // zero-sized elements.
            place = place.wrapping_add(threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn places_are_those_of_exact_arithmetic() {
        let seed = fastrand::u64(..);
        println!("seed {seed:#x}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..100_000 {
            let index = random.usize(..) >> random.u32(..usize::BITS);
            let (threads, items) = (random.usize(1..=1024), 1 << random.u32(..17));
            let item = random.usize(..items);
            let [i, n, k, of] = [index, threads, item, items].map(|number| number as u128);
            let exact = i / n * n * of + k * n + i % n;
            assert_eq!(place(index, item, threads, items), usize::try_from(exact).ok(), "{index} {item}");
        }
        assert_eq!(place(16, 0, 16, 1 << 16), Some(1 << 20));
        assert_eq!(place(usize::MAX, 0, 1, 2), None);
        assert_eq!(place(usize::MAX, 1, 1024, 1), None);
    }
}
