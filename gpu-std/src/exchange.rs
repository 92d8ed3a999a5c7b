//! Blocked and striped arrangements of a tile's items, and exchanges between the two.
//!
//! In a block of n threads, a tile contains `ITEMS` items per thread. In *blocked* order, thread t owns the consecutive
//! items from `t * ITEMS` to `(t + 1) * ITEMS - 1`, as scans and comparisons with the next item require. In *striped*
//! order, thread t owns items t, t + n, t + 2n, …, so that accesses of a warp are coalesced.
//!
//! | | blocked | striped |
//! | --- | --- | --- |
//! | load | [`load_blocked`] | [`load_striped`] |
//! | store | [`DisjointMut<T, Chunks<ITEMS>>`](crate::Chunks) | [`DisjointMut<T, Striped<ITEMS>>`](crate::Striped) |
//! | exchange | [`blocked_to_striped`] | [`striped_to_blocked`] |
//!
//! ```
//! use gpu_std::exchange::{blocked_to_striped, load_striped, striped_to_blocked};
//! use gpu_std::prelude::*;
//!
//! /// The running sum within each tile of 128 * 5 items.
//! #[kernel(block(128))]
//! fn tile_sums(x: &[f32], mut tile: Shared<Padded<f32, 5, 128>>, mut out: DisjointMut<f32, Striped<5>>) {
//!     let items = load_striped(x, block::linear_index() * 128 * 5, 0.0);
//!     let mut items = striped_to_blocked(items, &mut tile);
//!     for i in 1..5 {
//!         items[i] += items[i - 1];
//!     }
//!     let below = block::exclusive_scan(items[4], 0.0, |a, b| a + b);
//!     let items = blocked_to_striped(items.map(|item| below + item), &mut tile);
//!     out.write(thread::unique_index(), items);
//! }
//! ```

use crate::element::KernelType;
use crate::shared::{Padded, Shared};
use crate::vector::Vector;
use crate::{block, thread};

/// Loads the calling thread's items of the tile that starts at `first`, in striped order. Items past the end are
/// replaced by `default`.
#[inline(always)]
pub fn load_striped<T: KernelType, const ITEMS: usize>(data: &[T], first: usize, default: T) -> [T; ITEMS] {
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    let mut items = [default; ITEMS];
    let mut place = first + own;
    for item in &mut items {
        if let Some(value) = data.get(place) {
            *item = *value;
        }
        place += threads;
    }
    items
}

/// Loads the calling thread's items of the tile that starts at `first`, in blocked order. Items past the end are
/// replaced by `default`.
///
/// If the thread's first item is aligned, the function uses accesses of up to 16 bytes. Otherwise, the function loads
/// each item separately. In both cases, the accesses of a warp are not coalesced. If each thread's items take 16 bytes
/// or more, [`load_striped`] followed by [`striped_to_blocked`] is faster.
#[inline(always)]
pub fn load_blocked<T: KernelType, const ITEMS: usize>(data: &[T], first: usize, default: T) -> [T; ITEMS] {
    let start = first + thread::linear_in_block() as usize * ITEMS;
    let vector = data.as_ptr().wrapping_add(start);
    if ITEMS > 0
        && start < data.len()
        && data.len() - start >= ITEMS
        && vector.addr().is_multiple_of(Vector::<T, ITEMS>::ALIGN)
    {
        // SAFETY: all items lie within the slice, and the first item is aligned.
        return unsafe { Vector::<T, ITEMS>::load(vector) }.to_array();
    }
    let mut items = [default; ITEMS];
    for (item, place) in items.iter_mut().zip(start..) {
        if let Some(value) = data.get(place) {
            *item = *value;
        }
    }
    items
}

/// Rearranges a tile from blocked to striped order. Returns the calling thread's items in striped order.
///
/// The function synchronizes the block through the array `tile`, as [`Shared`] operations do.
///
/// # Panics
/// Panics if the block does not have `THREADS` threads; specify that number with `#[kernel(block(…))]`.
#[inline(always)]
#[track_caller]
pub fn blocked_to_striped<T: KernelType, const ITEMS: usize, const THREADS: usize>(
    items: [T; ITEMS],
    tile: &mut Shared<'_, Padded<T, ITEMS, THREADS>>,
) -> [T; ITEMS] {
    let own = own::<THREADS>();
    let tile = write(items, tile, "blocked_to_striped");
    let mut place = own;
    items.map(|_| {
        // SAFETY: `own` is below `THREADS`, so the position is below `ITEMS * THREADS` and both indices are within the
        // array.
        let item = unsafe { *tile.get_unchecked(place % ITEMS, place / ITEMS) };
        place += THREADS;
        item
    })
}

/// Rearranges a tile from striped to blocked order. Returns the calling thread's items in blocked order.
///
/// The function synchronizes the block through the array `tile`, as [`Shared`] operations do. If `ITEMS` is odd, the
/// reads are free of bank conflicts.
///
/// # Panics
/// Panics in the same cases as [`blocked_to_striped`].
#[inline(always)]
#[track_caller]
pub fn striped_to_blocked<T: KernelType, const ITEMS: usize, const THREADS: usize>(
    items: [T; ITEMS],
    tile: &mut Shared<'_, Padded<T, ITEMS, THREADS>>,
) -> [T; ITEMS] {
    let own = own::<THREADS>();
    let tile = write(items, tile, "striped_to_blocked");
    let mut place = own * ITEMS;
    items.map(|_| {
        // SAFETY: as in `blocked_to_striped`.
        let item = unsafe { *tile.get_unchecked(place / THREADS, place % THREADS) };
        place += 1;
        item
    })
}

/// Returns the thread's index in its block. Panics if the block does not have `THREADS` threads.
#[inline(always)]
#[track_caller]
fn own<const THREADS: usize>() -> usize {
    assert!(
        block::threads() as usize == THREADS,
        "an exchange requires as many threads per block as the array has columns: declare #[kernel(block(…))]"
    );
    thread::linear_in_block() as usize
}

/// Writes the calling thread's items to its column. The block must have `THREADS` threads.
#[inline(always)]
#[track_caller]
fn write<'a, T: KernelType, const ITEMS: usize, const THREADS: usize>(
    items: [T; ITEMS],
    tile: &'a mut Shared<'_, Padded<T, ITEMS, THREADS>>,
    operation: &'static str,
) -> &'a Padded<T, ITEMS, THREADS> {
    const { assert!(size_of::<T>() == T::ELEMENT_BYTES, "the exchanged items cannot be arrays: use a struct") };
    let own = thread::linear_in_block() as usize;
    // SAFETY: in a block of `THREADS` threads, element `i * THREADS + own`, which is in row i, belongs to the calling
    // thread.
    unsafe {
        tile.write_own(operation, |array| {
            for (row, item) in items.into_iter().enumerate() {
                // SAFETY: the row is below `ITEMS`, and the column is below `THREADS`.
                Padded::element(array, row, own).write(item);
            }
        })
    }
}
