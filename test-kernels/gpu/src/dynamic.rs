//! Kernels that launch kernels, and kernels that set the conditions of a graph: for tests and benchmarks of dynamic
//! parallelism and of conditional nodes.
//!
//! Failed launches are counted in `refused`: element 0 contains their number, and element 1 contains the `cudaError` of
//! one of them.

use core::ptr::slice_from_raw_parts_mut;

use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::dynamic::{self, LaunchError};
use gpu_std::graph::set_condition;
use gpu_std::prelude::*;

/// Records a launch that failed.
#[inline(always)]
fn note(launched: Result<(), LaunchError>, refused: &[Atomic<u32>]) {
    if let Err(error) = launched {
        refused[0].fetch_add(1, Ordering::Relaxed);
        refused[1].store(error.code(), Ordering::Relaxed);
    }
}

/// Computes `row[i] = row[i] * factor + weights[i]`; each thread processes `ITEMS` elements at a time.
#[kernel(consts(ITEMS = 1, 4))]
pub fn refine_row<const ITEMS: usize>(
    factor: u32,
    weights: &[u32],
    mut row: DisjointMut<u32, Chunks<ITEMS>>,
) {
    for chunk in thread::grid_stride(row.chunks()) {
        let first = chunk.get() * ITEMS;
        for (x, weight) in row.get_mut(chunk).into_iter().flatten().zip(&weights[first..]) {
            *x = *x * factor + *weight;
        }
    }
}

/// Launches [`refine_row()`] for each row of `rows` that starts with an odd number: one thread and one launch per row.
/// `rows` has `count` rows, which are as long as `weights`.
///
/// # Safety
///
/// `rows` is valid for all rows, and nothing else uses it until the launch is done.
#[kernel]
pub unsafe fn refine_odd_rows(
    rows: *mut u32,
    count: usize,
    factor: u32,
    weights: &[u32],
    refused: &[Atomic<u32>],
) {
    for index in thread::grid_stride(count) {
        // SAFETY: the row is in range.
        let row = unsafe { rows.add(index.get() * weights.len()) };
        // SAFETY: only this thread uses the row before its child does.
        if !weights.is_empty() && unsafe { row.read() } % 2 == 1 {
            let row = slice_from_raw_parts_mut(row, weights.len());
            // SAFETY: the child has exclusive access to the row; nothing writes the weights.
            let launched = unsafe { dynamic::launch::<refine_row<4>>(2, 64, 0, (factor, weights, row)) };
            note(launched, refused);
        }
    }
}

/// Adds 1 to each element by recursive halving: a grid with more than `smallest` elements launches itself for each
/// half.
///
/// # Safety
///
/// `data` is valid for `len` elements, and nothing else uses it until the launch is done.
#[kernel]
pub unsafe fn halve(data: *mut u32, len: usize, smallest: usize, refused: &[Atomic<u32>]) {
    if len <= smallest || len < 2 {
        for i in thread::grid_stride(len) {
            // SAFETY: the index is in range, and no other thread uses it.
            unsafe { *data.add(i.get()) += 1 };
        }
    } else if thread::index_1d() == 0 {
        let half = len / 2;
        // SAFETY: the halves do not overlap.
        let (low, high) = unsafe {
            (
                dynamic::launch::<halve>(1, 32, 0, (data, half, smallest, refused)),
                dynamic::launch::<halve>(1, 32, 0, (data.add(half), len - half, smallest, refused)),
            )
        };
        note(low, refused);
        note(high, refused);
    }
}

/// Launches itself until `levels` kernels have run or a launch is rejected; each adds 1 to `ran[0]`.
#[kernel]
pub fn go_deeper(levels: u32, ran: &[Atomic<u32>], refused: &[Atomic<u32>]) {
    if thread::index_1d() == 0 {
        ran[0].fetch_add(1, Ordering::Relaxed);
        if levels > 1 {
            // SAFETY: all accesses are atomic.
            note(unsafe { dynamic::launch::<go_deeper>(1, 1, 0, (levels - 1, ran, refused)) }, refused);
        }
    }
}

/// Adds 1 to `ran[0]` once per block.
#[kernel]
pub fn count_blocks(ran: &[Atomic<u32>]) {
    if thread::linear_in_block() == 0 {
        ran[0].fetch_add(1, Ordering::Relaxed);
    }
}

/// Does nothing.
#[kernel]
pub fn nothing() {}

/// Launches [`count_blocks()`] with one block, `launches` times, from the first thread.
#[kernel]
pub fn count_launches(launches: u32, ran: &[Atomic<u32>], refused: &[Atomic<u32>]) {
    if thread::index_1d() == 0 {
        for _ in 0..launches {
            // SAFETY: all accesses are atomic.
            note(unsafe { dynamic::launch::<count_blocks>(1, 32, 0, (ran,)) }, refused);
        }
    }
}

/// Launches [`nothing()`] `launches` times from all threads together, with one block of 32 threads: measures the cost
/// of a launch from a kernel.
///
/// # Panics
///
/// Panics if a launch is rejected; a GPU accepts [`MAX_PENDING`](dynamic::MAX_PENDING) pending launches.
#[kernel]
pub fn launch_many(launches: u32) {
    for _ in thread::grid_stride(launches as usize) {
        // SAFETY: the child uses no memory.
        let launched = unsafe { dynamic::launch::<nothing>(1, 32, 0, ()) };
        assert!(launched.is_ok(), "a launch was refused");
    }
}

/// Launches [`nothing()`] with `threads` threads per block, to test impossible block sizes.
#[kernel]
pub fn launch_with_block(threads: u32, refused: &[Atomic<u32>]) {
    if thread::index_1d() == 0 {
        // SAFETY: the child uses no memory.
        note(unsafe { dynamic::launch::<nothing>(1, threads, 0, ()) }, refused);
    }
}

/// Computes `out[i] = i * factor`.
#[kernel]
pub fn multiples(factor: u32, mut out: DisjointMut<u32>) {
    for i in thread::grid_stride(out.len()) {
        if let Some(x) = out.get_mut(i) {
            *x = i.get() as u32 * factor;
        }
    }
}

/// Writes the sum of `data` modulo 2^32 to `sum[0]`.
#[kernel]
pub fn sum_up(data: &[u32], mut sum: DisjointMut<u32>) {
    if let Some(sum) = sum.get_mut(thread::unique_index())
        && thread::index_1d() == 0
    {
        *sum = data.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
    }
}

/// Fills `data` with [`multiples()`] of 3, one child per `part` elements, and sums it with [`sum_up()`] in a tail
/// launch. The tail launch comes first in the code but runs last.
///
/// # Safety
///
/// `data` is valid for `len` elements and `sum` for one; nothing else uses them until the launch is done.
#[kernel]
pub unsafe fn fill_then_sum(data: *mut u32, len: usize, part: usize, sum: *mut u32, refused: &[Atomic<u32>]) {
    if thread::index_1d() != 0 {
        return;
    }
    let arguments = (slice_from_raw_parts_mut(data, len).cast_const(), slice_from_raw_parts_mut(sum, 1));
    // SAFETY: the launch runs after everything else that uses the memory.
    note(unsafe { dynamic::launch_tail::<sum_up>(1, 32, 0, arguments) }, refused);
    let mut start = 0;
    while start < len {
        let end = if len - start < part { len } else { start + part };
        // SAFETY: the range lies within the data.
        let out = slice_from_raw_parts_mut(unsafe { data.add(start) }, end - start);
        // SAFETY: each child has its own range.
        note(unsafe { dynamic::launch::<multiples>(1, 64, 0, (3u32, out)) }, refused);
        start = end;
    }
}

/// Launches [`diagnose_panic`](crate::diagnostic::diagnose_panic()), whose thread 5 panics.
#[kernel]
pub fn launch_panic() {
    if thread::index_1d() == 0 {
        // SAFETY: the child uses no memory.
        let launched = unsafe { dynamic::launch::<crate::diagnostic::diagnose_panic>(1, 32, 0, (5u32,)) };
        assert!(launched.is_ok(), "the launch was refused");
    }
}

/// Decrements `counter[0]`, down to 0, and sets the condition to whether it is above 0.
///
/// # Safety
///
/// `condition` is a condition of the graph that runs the kernel.
#[kernel]
pub unsafe fn count_down(condition: u64, mut counter: DisjointMut<u32>) {
    let me = thread::unique_index();
    if me.get() == 0
        && let Some(counter) = counter.get_mut(me)
    {
        *counter = counter.saturating_sub(1);
        // SAFETY: guaranteed by the caller; only one thread sets it.
        unsafe { set_condition(condition, (*counter > 0).into()) };
    }
}

/// Sets the condition to `data[0]`.
///
/// # Safety
///
/// `condition` is a condition of the graph that runs the kernel.
#[kernel]
pub unsafe fn set_from(condition: u64, data: &[u32]) {
    if thread::index_1d() == 0 {
        // SAFETY: guaranteed by the caller; only one thread sets it.
        unsafe { set_condition(condition, data[0]) };
    }
}
