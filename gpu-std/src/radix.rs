//! Stable ranks of digits within a block, for radix sorts, partitions by key and bucketing.
//!
//! The items of a tile are in *warp-striped* order: warp w owns `32 * ITEMS` consecutive items, and its lane l owns
//! items l, l + 32, l + 64, … of them. The rank of an item is its index after a stable sort of the tile by digit.
//!
//! The algorithm follows "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs" (Adinets, Merrill 2022).
//! Lanes of a warp that have the same digit find each other by warp votes. The highest of these lanes adds the number
//! of matching lanes to the warp's counter of that digit.
//!
//! ```
//! use gpu_std::atomic::{Atomic, scope};
//! use gpu_std::prelude::*;
//! use gpu_std::radix;
//!
//! /// Sorts each 512 bytes by their lowest four bits.
//! #[kernel(block(128))]
//! unsafe fn by_nibble(
//!     data: &[u8],
//!     mut counters: Shared<[[Atomic<u32, scope::Block>; 16]; 4]>,
//!     out: *mut u8,
//! ) {
//!     let first = block::linear_index() * 512;
//!     let items: [u8; 4] = std::array::from_fn(|i| data[first + radix::place::<4>(i)]);
//!     let ranked = radix::rank::<4, 16, 4>(items.map(|item| u32::from(item % 16)), &mut counters);
//!     for (item, rank) in items.into_iter().zip(ranked.ranks) {
//!         // SAFETY: the ranks of a block are the numbers below 512.
//!         unsafe { out.add(first + rank as usize).write(item) };
//!     }
//! }
//! ```

use crate::atomic::{Atomic, Ordering, scope};
use crate::shared::Shared;
use crate::vectorized::each;
use crate::warp::{self, WARP_SIZE};
use crate::{block, thread};

/// Result of [`rank()`].
///
/// See the [example](self).
#[derive(Debug, Clone, Copy)]
pub struct Ranks<const ITEMS: usize> {
    /// Ranks of the thread's items. An item's rank is its index in the sorted tile.
    pub ranks: [u32; ITEMS],
    /// In thread d, the first index of digit d in the sorted tile. In threads beyond the last digit, 0.
    pub start: u32,
    /// In thread d, the number of items with digit d in the tile. In threads beyond the last digit, 0.
    pub count: u32,
}

/// Returns the index of the calling thread's item `item` in a tile in warp-striped order.
#[inline(always)]
pub fn place<const ITEMS: usize>(item: usize) -> usize {
    let thread = thread::linear_in_block();
    let (warp, lane) = (thread / WARP_SIZE, thread % WARP_SIZE);
    (warp * WARP_SIZE) as usize * ITEMS + item * WARP_SIZE as usize + lane as usize
}

/// Ranks the digits of the block's items, which must be in warp-striped order ([`place`]). Only the lowest log2(`BINS`)
/// bits of each digit are used, so `BINS` must be a power of two.
///
/// The function synchronizes the block with [`sync_threads`](crate::thread::sync_threads), and with operations on the
/// [`Shared`] array `counters`. A caller that afterwards writes memory that other threads read before this call must
/// first synchronize the block.
///
/// # Panics
/// Panics if the block does not have exactly 32 threads for each of `WARPS` warps, or has fewer threads than `BINS`.
/// Specify the block shape with `#[kernel(block(…))]`. Does not compile if `BINS` is less than 2 or not a power of two,
/// or if `ITEMS` exceeds 32.
#[inline(always)]
#[track_caller]
pub fn rank<const ITEMS: usize, const BINS: usize, const WARPS: usize>(
    digits: [u32; ITEMS],
    counters: &mut Shared<'_, [[Atomic<u32, scope::Block>; BINS]; WARPS]>,
) -> Ranks<ITEMS> {
    let mut ranks = [0; ITEMS];
    let (start, count) = rank_with::<ITEMS, BINS, WARPS>(
        |item| digits[item],
        counters,
        |_| (),
        |item, rank| ranks[item] = rank,
    );
    Ranks { ranks, start, count }
}

/// Ranks items like [`rank()`], but calls `digit` for the digit of each item. The function calls `digit` more than once
/// per item, so that digits need not be stored. It calls `counted` in every thread once the thread's `count` is known,
/// for kernels that publish the count to other blocks. It then calls `ranked` with each of the thread's items and the
/// item's rank, so that ranks need not be stored either. Returns the thread's `start` and `count`, as in [`Ranks`].
///
/// All threads pass a barrier inside this function before it calls `counted`.
///
/// # Panics
/// Panics in the same cases as [`rank()`].
#[inline(always)]
#[track_caller]
pub fn rank_with<const ITEMS: usize, const BINS: usize, const WARPS: usize>(
    digit: impl Fn(usize) -> u32,
    counters: &mut Shared<'_, [[Atomic<u32, scope::Block>; BINS]; WARPS]>,
    counted: impl FnOnce(u32),
    mut ranked: impl FnMut(usize, u32),
) -> (u32, u32) {
    const {
        assert!(
            BINS.is_power_of_two() && BINS >= 2,
            "the number of digits must be a power of two of at least 2"
        )
    };
    const { assert!(BINS <= 1 << 10, "a block that ranks digits must have one thread per digit value") };
    let (own, threads) = (thread::linear_in_block(), block::threads() as usize);
    assert!(threads == WARPS * WARP_SIZE as usize, "the counters must have one row per warp of the block");
    assert!(threads >= BINS, "a block that ranks digits must have one thread per digit value");
    let counters = counters.zeroed();
    let of_warp = &counters[(own / WARP_SIZE) as usize];
    let up_to_own = warp::FULL_MASK >> (WARP_SIZE - 1 - own % WARP_SIZE);
    let digit = |item: usize| digit(item) % BINS as u32;
    each::<ITEMS>(|item| {
        of_warp[digit(item) as usize].fetch_add(1, Ordering::Relaxed);
    });
    thread::sync_threads();

    // Thread d computes the number of items with digit d, and the start position of each warp's items with that digit.
    let is_digit = (own as usize) < BINS;
    let mut count = 0;
    if is_digit {
        for of_warp in counters {
            count += of_warp[own as usize].load(Ordering::Relaxed);
        }
    }
    counted(count);
    let start = block::exclusive_scan(count, 0, |a, b| a + b);
    if is_digit {
        let mut next = start;
        for of_warp in counters {
            let counter = &of_warp[own as usize];
            let here = counter.load(Ordering::Relaxed);
            counter.store(next, Ordering::Relaxed);
            next += here;
        }
    }
    thread::sync_threads();

    each::<ITEMS>(|item| {
        let digit = digit(item);
        let same = match_digit::<BINS>(digit);
        let counter = &of_warp[digit as usize];
        // Position of the next item with this digit.
        let next = counter.load(Ordering::Relaxed) + (same & up_to_own).count_ones();
        warp::sync_warp(warp::FULL_MASK);
        store_if(same & !up_to_own == 0, counter, next);
        warp::sync_warp(warp::FULL_MASK);
        ranked(item, next - 1);
    });
    (if is_digit { start } else { 0 }, count)
}

/// Stores `count` to a counter in shared memory if the condition is true. The store is predicated because the lanes of
/// a warp would have to reconverge after a branch.
#[inline(always)]
fn store_if(condition: bool, counter: &Atomic<u32, scope::Block>, count: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the counter is valid, lies in shared memory, and is only accessed atomically.
    unsafe {
        core::arch::asm!(
            "{{ .reg .pred p; .reg .b64 a;",
            "setp.ne.u32 p, {condition}, 0;",
            "cvta.to.shared.u64 a, {counter};",
            "@p st.relaxed.cta.shared.u32 [a], {count}; }}",
            condition = in(reg32) u32::from(condition),
            counter = in(reg64) counter.as_ptr(),
            count = in(reg32) count,
            options(nostack),
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    if condition {
        counter.store(count, Ordering::Relaxed);
    }
}

/// Returns the mask of lanes that have the same digit as the caller. Digits must be below `BINS`.
#[inline(always)]
fn match_digit<const BINS: usize>(digit: u32) -> u32 {
    macro_rules! by_bits {
        ($($bits:literal)*) => {
            match const { BINS.trailing_zeros() } {
                $($bits => warp::match_bits::<$bits>(warp::FULL_MASK, digit),)*
                _ => warp::match_any(warp::FULL_MASK, digit),
            }
        };
    }
    by_bits!(1 2 3 4 5 6 7 8 9 10)
}
