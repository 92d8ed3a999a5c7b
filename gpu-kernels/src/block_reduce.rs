//! The skeleton of every reduction: one launch, the last block finishes, the same bits every run.
//!
//! The order in which values are combined depends only on the length, the address of the first element modulo
//! `VECTOR`, and the launch configuration. Each block folds a strided share of the input, thread by thread into
//! `N` independent accumulators; the threads' partials are combined by a fixed tree of warp shuffles and shared
//! memory; thread 0 of each block writes the block's partial to the workspace and counts its block as done. The
//! block that completes the count combines all partials in index order and writes the result, whichever block
//! it is.

use core::mem::size_of;

use gpu_std::atomic::{Atomic, Ordering, scope::Device};
use gpu_std::prelude::*;
use gpu_std::{thread, warp};

use crate::tile::{Split, each, for_each, load};

/// A partial value of a reduction; at most 16 bytes, so that it fits a slot of shared memory.
pub(crate) trait Partial: Copy {
    /// The value that the thread `delta` lanes up holds.
    fn shuffle_down(self, mask: u32, delta: u32) -> Self;
}

impl<T: KernelType> Partial for T {
    #[inline(always)]
    fn shuffle_down(self, mask: u32, delta: u32) -> Self {
        warp::shuffle_down(mask, self, delta)
    }
}

/// A reduction: its values and operation.
pub(crate) trait Reduction<T> {
    /// The running value.
    type Partial: Partial;

    /// The running value of no elements.
    fn identity() -> Self::Partial;
    /// Takes in element `index`; called with increasing indices on one running value.
    fn fold(partial: Self::Partial, value: T, index: u64) -> Self::Partial;
    /// Joins the running values of two disjoint sets of elements.
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial;
}

/// Bytes of workspace before the blocks' partials; the counter of finished blocks is at the start.
const HEADER_BYTES: usize = 16;

/// Reduces `input`; `Some` in exactly one thread of the launch, which has the result.
///
/// # Safety
///
/// The launch is one-dimensional. `workspace` is aligned to 16 bytes and valid for 16 bytes plus 16 for each
/// block of the grid; its first 16 bytes are zero when the launch begins, and nothing else uses it until the
/// launch ends. They are zero again then.
#[inline(always)]
pub(crate) unsafe fn reduce<T: Copy, R: Reduction<T>, const ITEMS: usize, const N: usize>(
    input: &[T],
    workspace: *mut u64,
) -> Option<R::Partial> {
    const { assert!(size_of::<R::Partial>() <= 16) };
    let share = block_combine::<T, R>(thread_share::<T, R, ITEMS, N>(input));
    let blocks = thread::grid_dim_x();
    let first_thread = thread::thread_idx_x() == 0;
    if blocks == 1 {
        return first_thread.then_some(share);
    }

    let mut is_last = false;
    // SAFETY: by this function's contract the header is ours.
    let finished = unsafe { Atomic::<u32, Device>::from_ptr(workspace.cast()) };
    // SAFETY: the partials follow the header and are aligned to 16 bytes.
    let partials: *mut R::Partial = unsafe { workspace.byte_add(HEADER_BYTES).cast() };
    if first_thread {
        // SAFETY: slot `block_idx_x` is this block's.
        unsafe { partials.add(thread::block_idx_x() as usize).write(share) };
        // Releases this block's partial, and acquires those of the blocks that counted before.
        is_last = finished.fetch_add(1, Ordering::AcqRel) == blocks - 1;
    }
    // The barrier passes on to the whole block what thread 0 acquired, and keeps the slots of shared memory
    // that `block_combine` uses again from being overwritten while they are read.
    if !thread::sync_threads_or(is_last) {
        return None;
    }
    // SAFETY: every block has written its partial, as the counter says.
    let total = unsafe { combine_partials::<T, R>(partials) };
    if first_thread {
        finished.store(0, Ordering::Relaxed);
    }
    first_thread.then_some(total)
}

/// Combines the partials of all blocks of the grid, within the calling block; its thread 0 has the result. The caller
/// puts a barrier between this and [`block_combine`].
///
/// # Safety
///
/// `partials` has one for each block of a one-dimensional grid, all of them written, and what wrote them is ordered
/// before.
#[inline(always)]
unsafe fn combine_partials<T, R: Reduction<T>>(partials: *const R::Partial) -> R::Partial {
    let mut total = R::identity();
    let mut i = thread::thread_idx_x();
    while i < thread::grid_dim_x() {
        // SAFETY: by this function's contract.
        total = R::combine(total, unsafe { partials.add(i as usize).read() });
        i += thread::block_dim_x();
    }
    block_combine::<T, R>(total)
}

/// This thread's part of the input, folded: all threads of the launch divide the input among them.
#[inline(always)]
fn thread_share<T: Copy, R: Reduction<T>, const ITEMS: usize, const N: usize>(input: &[T]) -> R::Partial {
    let (ptr, len) = (input.as_ptr(), input.len());
    let split = Split::new::<T, N>(ptr, len);
    let mut lanes = [R::identity(); N];
    for_each::<[T; N], ITEMS>(
        split.vectors,
        // SAFETY: vector i covers elements head + i * N .. + N, all below `tail`, and is aligned by `Split`.
        |i| unsafe { load(ptr.add(split.head + i * N)) },
        |i, vector| {
            each::<N>(|lane| {
                lanes[lane] = R::fold(lanes[lane], vector[lane], (split.head + i * N + lane) as u64);
            });
        },
    );
    let mut partial = R::identity();
    // SAFETY: `edges` visits indices below `len` only.
    split.edges(len, |i| partial = R::fold(partial, unsafe { *ptr.add(i) }, i as u64));
    each::<N>(|lane| partial = R::combine(partial, lanes[lane]));
    partial
}

/// Combines the values of all threads of a one-dimensional block; thread 0 has the result. The caller puts a
/// barrier between two calls.
#[inline(always)]
fn block_combine<T, R: Reduction<T>>(value: R::Partial) -> R::Partial {
    let slots: *mut R::Partial = shared_array![u128; 32].cast();
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let (index, lane) = (thread / warp::WARP_SIZE, thread % warp::WARP_SIZE);
    let lanes = (threads - index * warp::WARP_SIZE).min(warp::WARP_SIZE);
    let total = warp_combine::<T, R>(value, lane, lanes);
    if threads <= warp::WARP_SIZE {
        return total;
    }
    if lane == 0 {
        // SAFETY: a slot of at least the partial's size and alignment for each of at most 32 warps.
        unsafe { slots.byte_add(index as usize * size_of::<u128>()).write(total) };
    }
    thread::sync_threads();
    // Every warp goes on, so that none waits for another at a branch; the result of the first one counts.
    let warps = threads.div_ceil(warp::WARP_SIZE);
    let value = if lane < warps {
        // SAFETY: warp `lane` wrote its slot before the barrier.
        unsafe { slots.byte_add(lane as usize * size_of::<u128>()).read() }
    } else {
        R::identity()
    };
    warp_combine::<T, R>(value, lane, lanes)
}

/// Combines the values of the first `lanes` lanes of a warp, which are all that it has; lane 0 has the result.
#[inline(always)]
fn warp_combine<T, R: Reduction<T>>(mut value: R::Partial, lane: u32, lanes: u32) -> R::Partial {
    let mask = if lanes == warp::WARP_SIZE { warp::FULL_MASK } else { (1 << lanes) - 1 };
    let mut delta = warp::WARP_SIZE / 2;
    while delta > 0 {
        let other = value.shuffle_down(mask, delta);
        if lane + delta < lanes {
            value = R::combine(value, other);
        }
        delta /= 2;
    }
    value
}
