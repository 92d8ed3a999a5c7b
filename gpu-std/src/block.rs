//! Block-wide operations: reductions, scans and broadcasts.
//!
//! [`reduce`] and the scans combine one value per thread; [`scan_warps`] combines one value per warp. [`broadcast`]
//! passes the value of one thread to all threads. Every thread of the block must call these functions, because they
//! synchronize the block. These functions use shared memory for 32 values. The combination order depends only on the
//! block size, so the same values always give bit-identical results. Values can be of any [`KernelType`] that has no
//! padding and at most 256 bytes.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// Writes the numbers below `limit` one after the other, in any order of blocks; `count[0]` begins as 0.
//! ///
//! /// # Safety
//! ///
//! /// `out` has as many elements as `data` has.
//! #[kernel]
//! unsafe fn keep(limit: u32, data: &[u32], count: &[gpu_std::atomic::Atomic<u32>], out: *mut u32) {
//!     let start = shared_array![u32; 1];
//!     let value = data.get(grid::rank()).copied().filter(|value| *value < limit);
//!     let position = block::exclusive_scan(value.is_some() as u32, 0, |a, b| a + b);
//!     // The last thread knows the number of elements to keep.
//!     if thread::linear_in_block() + 1 == block::threads() {
//!         let kept = position + value.is_some() as u32;
//!         // SAFETY: one thread of the block writes, before the barrier.
//!         unsafe { start.write(count[0].fetch_add(kept, gpu_std::atomic::Ordering::Relaxed)) };
//!     }
//!     block::sync_threads();
//!     if let Some(value) = value {
//!         // SAFETY: written before the barrier; the positions of all blocks together are distinct numbers below the
//!         // number of elements.
//!         unsafe { out.add((start.read() + position) as usize).write(value) };
//!     }
//! }
//! ```

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::element::KernelType;
use crate::warp::{self, WARP_SIZE};
use crate::{shared_array, thread, words};

pub use crate::per_block::{stride, unique_index};
pub use crate::thread::{
    block_dim as dim, block_idx as index, sync_threads, sync_threads_and, sync_threads_count, sync_threads_or,
};

/// Returns the number of threads in a block, which is at most 1024.
#[inline(always)]
pub fn threads() -> u32 {
    thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z()
}

/// Returns the block's linear index in the grid.
#[inline(always)]
pub fn linear_index() -> usize {
    let [x, y, z] = thread::block_idx();
    let [width, height, _] = thread::grid_dim();
    x as usize + width as usize * (y as usize + height as usize * z as usize)
}

/// Combines the values of all threads in the order of their linear indices. `combine` must be associative, at least
/// approximately (like float addition). Every thread receives the bit-identical result.
#[inline(always)]
#[track_caller]
pub fn reduce<T: KernelType>(value: T, combine: impl Fn(T, T) -> T) -> T {
    let own = Warp::current();
    let mut total = value;
    let mut distance = 1;
    while distance < WARP_SIZE {
        let above = warp::shuffle_down(own.mask(), total, distance);
        if own.lane + distance < own.lanes {
            total = combine(total, above);
        }
        distance *= 2;
    }
    own.across(total, own.lane == 0, &combine).1
}

/// Combines the values of the threads up to and including the caller, in the order of their linear indices. `combine`
/// must be associative, at least approximately.
#[inline(always)]
#[track_caller]
pub fn inclusive_scan<T: KernelType>(value: T, combine: impl Fn(T, T) -> T) -> T {
    let own = Warp::current();
    let within = own.inclusive_scan(value, &combine);
    match own.below(within, &combine) {
        Some(below) => combine(below, within),
        None => within,
    }
}

/// Combines one value per warp, in the order of the warps. `combine` must be associative, at least approximately.
/// Returns the exclusive prefix of the caller's warp (`None` in the first warp) and the total of all warps. Lane 0 of
/// each warp supplies the value; values passed by other lanes are ignored. Use this function when the warps have
/// already combined the values of their threads.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Computes the start of each warp's even numbers, if a block writes its even numbers one after another.
/// #[kernel]
/// fn starts(data: &[u32], mut out: DisjointMut<u32>) {
///     let me = thread::unique_index();
///     let is_even = data.get(me.get()).is_some_and(|value| value % 2 == 0);
///     let of_warp = warp::ballot(warp::FULL_MASK, is_even).count_ones();
///     let (below, _of_all) = block::scan_warps(of_warp, |a, b| a + b);
///     if let Some(out) = out.get_mut(me) {
///         *out = below.unwrap_or(0);
///     }
/// }
/// ```
#[inline(always)]
#[track_caller]
pub fn scan_warps<T: KernelType>(value: T, combine: impl Fn(T, T) -> T) -> (Option<T>, T) {
    let own = Warp::current();
    own.across(value, own.lane == 0, combine)
}

/// Returns, in every thread of the block, the value passed by the thread with linear index `source`.
///
/// ```
/// use gpu_std::atomic::{Atomic, Ordering};
/// use gpu_std::prelude::*;
///
/// /// Blocks take rows in any order, until none is left; `next[0]` begins as 0.
/// #[kernel]
/// fn rows(count: u32, next: &[Atomic<u32>], done: &[Atomic<u32>]) {
///     loop {
///         let is_first = thread::linear_in_block() == 0;
///         let row = if is_first { next[0].fetch_add(1, Ordering::Relaxed) } else { 0 };
///         let row = block::broadcast(row, 0);
///         if row >= count {
///             return;
///         }
///         done[row as usize].fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
#[inline(always)]
#[track_caller]
pub fn broadcast<T: KernelType>(value: T, source: u32) -> T {
    let totals = Totals { slots: slots::<T>(), _value: PhantomData };
    if thread::linear_in_block() == source {
        totals.set(0, value);
    }
    thread::sync_threads();
    let value = totals.of(0);
    totals.done();
    value
}

/// Combines `identity` and the values of the threads before the caller, in the order of their linear indices. `combine`
/// must be associative, at least approximately.
#[inline(always)]
#[track_caller]
pub fn exclusive_scan<T: KernelType>(value: T, identity: T, combine: impl Fn(T, T) -> T) -> T {
    let own = Warp::current();
    let within = own.inclusive_scan(value, &combine);
    let start = match own.below(within, &combine) {
        Some(below) => combine(identity, below),
        None => identity,
    };
    let before = warp::shuffle_up(own.mask(), within, 1);
    if own.lane == 0 { start } else { combine(start, before) }
}

/// The calling thread's position among the warps of the block.
#[derive(Clone, Copy)]
struct Warp {
    index: u32,
    lane: u32,
    /// Number of lanes in the warp. The number is below 32 only in the block's last warp.
    lanes: u32,
}

impl Warp {
    #[inline(always)]
    fn current() -> Self {
        let thread = thread::linear_in_block();
        let (index, lane) = (thread / WARP_SIZE, thread % WARP_SIZE);
        let lanes = threads() - index * WARP_SIZE;
        Self { index, lane, lanes: if lanes < WARP_SIZE { lanes } else { WARP_SIZE } }
    }

    #[inline(always)]
    fn mask(self) -> u32 {
        u32::MAX >> (WARP_SIZE - self.lanes)
    }

    /// Returns the number of warps in the block.
    #[inline(always)]
    fn warps(self) -> u32 {
        threads().div_ceil(WARP_SIZE)
    }

    #[inline(always)]
    #[track_caller]
    fn inclusive_scan<T: KernelType>(self, value: T, combine: impl Fn(T, T) -> T) -> T {
        let mut total = value;
        let mut distance = 1;
        while distance < WARP_SIZE {
            let below = warp::shuffle_up(self.mask(), total, distance);
            if self.lane >= distance {
                total = combine(below, total);
            }
            distance *= 2;
        }
        total
    }

    /// Returns the combination of all lower warps, or `None` in the first warp. `within` is the result of the scan
    /// within the warp.
    #[inline(always)]
    #[track_caller]
    fn below<T: KernelType>(self, within: T, combine: impl Fn(T, T) -> T) -> Option<T> {
        self.across(within, self.lane + 1 == self.lanes, combine).0
    }

    /// Combines one value per warp, supplied by the lane for which `is_shown` is true. Returns the combination of all
    /// lower warps and the combination of all warps.
    #[inline(always)]
    #[track_caller]
    fn across<T: KernelType>(self, value: T, is_shown: bool, combine: impl Fn(T, T) -> T) -> (Option<T>, T) {
        let totals = self.share(value, is_shown);
        let warps = self.warps();
        let found = if threads().is_multiple_of(WARP_SIZE) {
            // Each warp has at least as many lanes as the block has warps.
            let mut total = totals.of(if self.lane < warps { self.lane } else { 0 });
            let mut distance = 1;
            while distance < warps {
                let below = warp::shuffle_up(warp::FULL_MASK, total, distance);
                if self.lane >= distance {
                    total = combine(below, total);
                }
                distance *= 2;
            }
            let below = warp::shuffle(warp::FULL_MASK, total, self.index.wrapping_sub(1));
            ((self.index > 0).then_some(below), warp::shuffle(warp::FULL_MASK, total, warps - 1))
        } else {
            let mut total = totals.of(0);
            let mut below = None;
            for warp in 1..warps {
                if warp == self.index {
                    below = Some(total);
                }
                total = combine(total, totals.of(warp));
            }
            (below, total)
        };
        totals.done();
        found
    }

    /// Publishes one value per warp, supplied by one of its lanes, to the whole block.
    #[inline(always)]
    #[track_caller]
    fn share<T: KernelType>(self, value: T, is_shown: bool) -> Totals<T> {
        let totals = Totals { slots: slots::<T>(), _value: PhantomData };
        if is_shown {
            totals.set(self.index, value);
        }
        thread::sync_threads();
        totals
    }
}

/// Returns shared memory for up to 32 values, in one slot per warp.
#[inline(always)]
#[track_caller]
fn slots<T>() -> *mut u8 {
    const { assert!(size_of::<T>() <= 256, "the threads of a block can exchange values of at most 256 bytes") };
    // A static cannot depend on `T`, so there is one static per size. The kernel contains only the statics that it
    // uses.
    match size_of::<T>() {
        0..=8 => shared_array![u64; 32].cast(),
        9..=16 => shared_array![[u64; 2]; 32].cast(),
        17..=32 => shared_array![[u64; 4]; 32].cast(),
        33..=64 => shared_array![[u64; 8]; 32].cast(),
        65..=128 => shared_array![[u64; 16]; 32].cast(),
        _ => shared_array![[u64; 32]; 32].cast(),
    }
}

/// One value per warp, in shared memory.
struct Totals<T> {
    slots: *mut u8,
    _value: PhantomData<T>,
}

impl<T: KernelType> Totals<T> {
    /// Number of 32-bit words per slot. Values of at most 8 bytes are stored as one 64-bit word instead.
    const WORDS: usize = size_of::<T>().div_ceil(4);

    #[inline(always)]
    fn set(&self, warp: u32, value: T) {
        if size_of::<T>() <= 8 {
            // SAFETY: a block has at most 32 warps, and one lane of each writes its slot.
            return unsafe { self.slots.cast::<u64>().add(warp as usize).write(words::bits(value)) };
        }
        let mut slot = self.slot(warp);
        words::map(value, |word| {
            // SAFETY: as above; `map` visits exactly as many words as a slot has.
            unsafe {
                slot.write(word);
                slot = slot.add(1);
            }
            word
        });
    }

    #[inline(always)]
    fn of(&self, warp: u32) -> T {
        if size_of::<T>() <= 8 {
            // SAFETY: the slot is one of 32 in shared memory, and its warp wrote it before the barrier. If threads of
            // that warp exited early, which is not allowed, the read returns arbitrary bits, which are still a valid
            // value.
            return words::of_bits(unsafe { self.slots.cast::<u64>().add(warp as usize).read_volatile() });
        }
        let mut slot = self.slot(warp);
        // SAFETY: any bit pattern is a valid value.
        let zeros = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
        words::map(zeros, |_| {
            // SAFETY: as above, for each word.
            let word = unsafe { slot.read_volatile() };
            slot = slot.wrapping_add(1);
            word
        })
    }

    /// Returns the first word of a slot.
    #[inline(always)]
    fn slot(&self, warp: u32) -> *mut u32 {
        self.slots.cast::<u32>().wrapping_add(warp as usize * Self::WORDS)
    }

    /// Waits until all threads have read the slots, after which the slots can be reused.
    #[inline(always)]
    #[track_caller]
    fn done(self) {
        thread::sync_threads();
    }
}
