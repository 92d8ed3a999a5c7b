//! Block operations: reductions, scans, and shared arrays between barriers.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;

use super::{THREADS, compose};

/// Reduction of all values in thread order.
#[inline(always)]
pub fn block_reduce(v: u64, n: u32) -> u64 {
    block::reduce(v.rotate_left(n), compose)
}

/// Minimum and maximum, in a struct of 16 bytes.
#[inline(always)]
pub fn block_extremes(v: u64, n: u32) -> u64 {
    let v = v.rotate_left(n);
    let [smallest, largest] = block::reduce([v, v], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
    smallest ^ largest.rotate_left(1)
}

/// Inclusive scan.
#[inline(always)]
pub fn block_scan(v: u64, n: u32) -> u64 {
    block::inclusive_scan(v.rotate_left(n), compose)
}

/// Exclusive scan.
#[inline(always)]
pub fn block_exclusive_scan(v: u64, n: u32) -> u64 {
    block::exclusive_scan(v, u64::from(n) | 3 << 32, compose)
}

/// Value of thread `n`, modulo the number of threads.
#[inline(always)]
pub fn broadcast(v: u64, n: u32) -> u64 {
    block::broadcast(v, n % block::threads())
}

/// Number of threads whose value has bit `n` set, and whether all or any of the values have it set.
#[inline(always)]
pub fn count(v: u64, n: u32) -> u64 {
    let has = v >> (n % 64) & 1 == 1;
    u64::from(block::sync_threads_count(has)) << 2
        | u64::from(block::sync_threads_and(has)) << 1
        | u64::from(block::sync_threads_or(has))
}

/// Value of the thread whose index is three times the caller's plus `n`, modulo the block size.
#[inline(always)]
pub fn exchange(v: u64, n: u32) -> u64 {
    let shared = shared_array![u64; THREADS];
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    // SAFETY: a block has at most `THREADS` threads, each writes its own element, and barriers separate writes from
    // reads.
    unsafe {
        shared.add(own).write(v);
        block::sync_threads();
        let other = shared.add((3 * own + n as usize) % threads).read();
        block::sync_threads();
        other
    }
}

/// Steps that combine every value with its neighbor's, in bytes and in words.
#[inline(always)]
pub fn stencil(v: u64, n: u32) -> u64 {
    let words = shared_array![u32; THREADS];
    let bytes = shared_array![u8; THREADS];
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    let mut x = v as u32;
    for round in 0..n % 4 + 1 {
        // SAFETY: as in `exchange`.
        unsafe {
            words.add(own).write(x);
            bytes.add(own).write(x as u8);
            block::sync_threads();
            let right = words.add((own + 1) % threads).read();
            let left = bytes.add((own + threads - 1) % threads).read();
            x = x.wrapping_mul(5).wrapping_add(right ^ u32::from(left)).rotate_left(round);
            block::sync_threads();
        }
    }
    u64::from(x)
}

/// Counts by value in shared memory, and the result of applying each bin's operation to all values.
#[inline(always)]
pub fn histogram(v: u64, n: u32) -> u64 {
    const BINS: usize = 8;
    let counts = shared_array![u32; BINS];
    let sums = shared_array![u64; 3];
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    // SAFETY: before the barrier each element belongs to one thread; after it all access is atomic until the next
    // barrier.
    unsafe {
        for bin in (own..BINS).step_by(threads) {
            counts.add(bin).write(0);
        }
        for sum in (own..3).step_by(threads) {
            sums.add(sum).write(0);
        }
        block::sync_threads();
        let count = Atomic::<u32, scope::Block>::from_ptr(counts.add((v >> (n % 60)) as usize % BINS));
        count.fetch_add(v as u32 | 1, Ordering::Relaxed);
        Atomic::<u64, scope::Block>::from_ptr(sums).fetch_xor(v, Ordering::Relaxed);
        Atomic::<u64, scope::Block>::from_ptr(sums.add(1)).fetch_max(v, Ordering::AcqRel);
        let third = Atomic::<u64, scope::Block>::from_ptr(sums.add(2));
        // Addition by compare-exchange.
        let mut seen = third.load(Ordering::Relaxed);
        while let Err(other) =
            third.compare_exchange(seen, seen.wrapping_add(v), Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = other;
        }
        block::sync_threads();
        let result = u64::from(counts.add(own % BINS).read())
            ^ sums.read()
            ^ sums.add(1).read().rotate_left(21)
            ^ sums.add(2).read().rotate_left(42);
        block::sync_threads();
        result
    }
}

/// Sorted values; each thread gets the one at its index. A bitonic sort of the next power of two elements.
#[inline(always)]
pub fn sort(v: u64, n: u32) -> u64 {
    let shared = shared_array![u64; THREADS];
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    let len = threads.next_power_of_two();
    let v = v.rotate_left(n);
    let mut i = own;
    while i < len {
        // SAFETY: `len` is at most `THREADS`, and each element belongs to one thread until the barrier.
        unsafe { shared.add(i).write(if i == own { v } else { u64::MAX }) };
        i += threads;
    }
    block::sync_threads();
    let mut size = 2;
    while size <= len {
        let mut distance = size / 2;
        while distance > 0 {
            let mut i = own;
            while i < len {
                let other = i ^ distance;
                if other > i {
                    // SAFETY: one thread of each pair has the lower index, and no element is in two pairs.
                    unsafe {
                        let (a, b) = (shared.add(i).read(), shared.add(other).read());
                        if (a > b) == (i & size == 0) {
                            shared.add(i).write(b);
                            shared.add(other).write(a);
                        }
                    }
                }
                i += threads;
            }
            block::sync_threads();
            distance /= 2;
        }
        size *= 2;
    }
    // SAFETY: written before the last barrier.
    let sorted = unsafe { shared.add(own).read() };
    block::sync_threads();
    sorted
}
