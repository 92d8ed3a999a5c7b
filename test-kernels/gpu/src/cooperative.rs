//! Kernels with barriers between blocks, and kernels with overlapping launches: for tests, benchmarks and the example
//! `cooperative`.
//!
//! | topic | kernels |
//! | --- | --- |
//! | grid barrier | `grid_sync_rounds`, `grid_sync_chain`, `cooperative_sum`, `diffuse`; without: `partial_sum`, `diffuse_step` |
//! | cluster barrier, distributed shared memory | `cluster_sync_rounds`, `cluster_sync_chain`, `cluster_histogram`; without: `global_histogram` |
//! | tiles and blocks | `tile_reduce`, `tile_scan`, `block_scan` |
//! | dependent launches | `spin_dependent`, `empty_dependent`; not dependent: `spin_plain`, `empty` |

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use gpu_std::{clock, cluster};

/// Maximum threads per block of [`cluster_sync_chain()`].
pub const CHAIN_BLOCK: usize = 256;

/// Number of bins of [`cluster_histogram()`] and [`global_histogram()`]: too many for the shared memory of one block.
pub const BINS: usize = 1 << 15;

/// Maximum bins per block of [`cluster_histogram()`]: a cluster needs at least 4 blocks.
const BLOCK_BINS: usize = 1 << 13;

/// Next value of a chain, computed from a neighbor's value. Values differ between all rounds and threads.
#[inline(always)]
pub const fn chain_step(value: u32, round: u32) -> u32 {
    (value ^ round).wrapping_mul(0x9E37_79B1).rotate_left(7)
}

/// Waits for the whole grid `rounds` times.
#[kernel(cooperative)]
pub fn grid_sync_rounds(rounds: u32) {
    for _ in 0..rounds {
        grid::sync();
    }
}

/// In each round every thread writes its value and waits for the grid. It then takes [`chain_step`] of the value that
/// the thread with the same index in the next block has written. The values start as the threads' ranks, and the final
/// values are written to `out`.
///
/// # Safety
/// `values` is valid for two elements per thread of the launch, and nothing else uses it.
#[kernel(cooperative)]
pub unsafe fn grid_sync_chain(rounds: u32, values: *mut u32, mut out: DisjointMut<u32>) {
    let (own, threads) = (grid::rank(), grid::threads());
    let next = (own + block::threads() as usize) % threads;
    let mut value = own as u32;
    for round in 0..rounds {
        // Double buffering, so that one barrier per round is enough.
        let side = threads * (round as usize % 2);
        // SAFETY: each thread writes its own element. The element that it reads was written before the barrier, and is
        // written again only after the next.
        unsafe {
            values.add(side + own).write(value);
            grid::sync();
            value = chain_step(values.add(side + next).read(), round);
        }
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = value;
    }
}

/// Writes the sum of `input` to `result`, in one cooperative launch: each block writes the sum of its share to
/// `partials`, and the first block sums the partial sums.
///
/// # Safety
/// The launch is one-dimensional. `partials` is valid for one element per block and `result` for one element. Nothing
/// else uses either until the launch ends.
#[kernel(cooperative, launch_bounds(512, 1))]
pub unsafe fn cooperative_sum(input: &[f32], partials: *mut f32, result: *mut f32) {
    // SAFETY: guaranteed by this function's contract.
    unsafe { sum_share(input, partials) };
    grid::sync();
    if thread::block_idx_x() == 0 {
        // SAFETY: every block has written its sum before the barrier.
        let sums = unsafe { core::slice::from_raw_parts(partials, thread::grid_dim_x() as usize) };
        let sum = sum_of(sums, thread::thread_idx_x() as usize, thread::block_dim_x() as usize);
        if thread::thread_idx_x() == 0 {
            // SAFETY: one thread of one block writes the result.
            unsafe { result.write(sum) };
        }
    }
}

/// Writes the sum of each block's share of `input` to `sums`. A second launch with one block over `sums` computes the
/// total, as [`cooperative_sum()`] does.
///
/// # Safety
/// The launch is one-dimensional, `sums` is valid for one element per block, and nothing else uses it until the launch
/// ends.
#[kernel(launch_bounds(512, 1))]
pub unsafe fn partial_sum(input: &[f32], sums: *mut f32) {
    // SAFETY: guaranteed by this function's contract.
    unsafe { sum_share(input, sums) };
}

/// Common part: writes the sum of a block's share.
///
/// # Safety
/// The conditions of [`partial_sum()`] apply.
#[inline(always)]
unsafe fn sum_share(input: &[f32], sums: *mut f32) {
    let sum = sum_of(input, grid::rank(), grid::threads());
    if thread::thread_idx_x() == 0 {
        // SAFETY: the element belongs to this block.
        unsafe { sums.add(thread::block_idx_x() as usize).write(sum) };
    }
}

/// Sum of the shares of the block's threads: every `step`-th element from `first` on.
#[inline(always)]
fn sum_of(data: &[f32], first: usize, step: usize) -> f32 {
    /// Loads in flight per thread.
    const AHEAD: usize = 8;
    let mut sums = [0.0; AHEAD];
    let mut i = first;
    while i + (AHEAD - 1) * step < data.len() {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += data[i + lane * step];
        }
        i += AHEAD * step;
    }
    while i < data.len() {
        sums[0] += data[i];
        i += step;
    }
    block::reduce(sums.iter().sum(), |a, b| a + b)
}

/// Runs `rounds` steps of [`diffuse_step()`], from `a` to `b`, back to `a` and so on, in one cooperative launch.
///
/// # Safety
/// `a` and `b` are valid for `len` elements, do not overlap, and nothing else uses them until the launch ends.
#[kernel(cooperative)]
pub unsafe fn diffuse(rounds: u32, a: *mut f32, b: *mut f32, len: usize) {
    let (mut from, mut to) = (a, b);
    for _ in 0..rounds {
        // SAFETY: no thread reads elements that another writes in the same round, and the barrier separates the rounds.
        unsafe { step(from, to, len) };
        grid::sync();
        (from, to) = (to, from);
    }
}

/// One step of the heat equation on a line: each element of `b` becomes the mean of three neighbors in `a`; the first
/// and the last element are kept.
///
/// # Safety
/// `a` and `b` are valid for `len` elements, do not overlap, and nothing else uses them until the launch ends.
#[kernel]
pub unsafe fn diffuse_step(a: *const f32, b: *mut f32, len: usize) {
    // SAFETY: guaranteed by this function's contract.
    unsafe { step(a, b, len) };
}

/// Common body of the kernels.
///
/// # Safety
/// The conditions of [`diffuse_step()`], for this step only.
#[inline(always)]
unsafe fn step(from: *const f32, to: *mut f32, len: usize) {
    for i in thread::grid_stride(len) {
        let i = i.get();
        // SAFETY: `i` is below `len`, its neighbors are read only if there are two, and no other thread writes element
        // `i`.
        unsafe {
            let value = if i == 0 || i + 1 == len {
                from.add(i).read()
            } else {
                (from.add(i - 1).read() + from.add(i).read() + from.add(i + 1).read()) * (1.0 / 3.0)
            };
            to.add(i).write(value);
        }
    }
}

/// Waits for the cluster `rounds` times.
#[kernel(arch = 90)]
pub fn cluster_sync_rounds(rounds: u32) {
    for _ in 0..rounds {
        cluster::sync();
    }
}

/// Like [`grid_sync_chain()`], but among the blocks of a cluster and through their shared memory: the neighbor is the
/// thread with the same index in the cluster's next block.
#[kernel(arch = 90, launch_bounds(256))]
pub fn cluster_sync_chain(rounds: u32, mut out: DisjointMut<u32>) {
    let values = shared_array![u32; 2 * CHAIN_BLOCK];
    let own = thread::linear_in_block() as usize;
    let next = if cluster::block_rank() + 1 < cluster::blocks() { cluster::block_rank() + 1 } else { 0 };
    let mut value = grid::rank() as u32;
    // No block accesses another block's shared memory before that block has started.
    cluster::sync();
    for round in 0..rounds {
        let side = CHAIN_BLOCK * (round as usize % 2);
        // SAFETY: `own` is below `CHAIN_BLOCK` by the launch bounds. Each thread writes its own element. The element
        // that it reads was written before the barrier, and is written again only after the next.
        unsafe {
            values.add(side + own).write(value);
            cluster::sync();
            value = chain_step(cluster::map_shared(values.add(side + own), next).read(), round);
        }
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = value;
    }
    // No block ends while another block still accesses its shared memory.
    cluster::sync();
}

/// Adds the histogram of `data` modulo [`BINS`] to `bins`. The blocks of a cluster each keep a part of the bins in
/// shared memory. The cluster counts its share there and adds the counts to `bins` at the end.
///
/// # Panics
/// Panics if a cluster has fewer than 4 blocks, if its number of blocks is not a power of two, or if `bins` has fewer
/// than [`BINS`] elements.
#[kernel(arch = 90, launch_bounds(1024))]
pub fn cluster_histogram(data: &[u32], bins: &[Atomic<u32>]) {
    let counts = shared_array![u32; BLOCK_BINS];
    let blocks = cluster::blocks();
    assert!(blocks >= 4 && blocks.is_power_of_two(), "the histogram needs clusters of 4, 8 or 16 blocks");
    let block_bins = BINS / blocks as usize;
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    let mut i = own;
    while i < block_bins {
        // SAFETY: a block keeps at most `BLOCK_BINS` counts, and each thread has its own.
        unsafe { counts.add(i).write(0) };
        i += threads;
    }
    cluster::sync();
    for i in thread::grid_stride(data.len()) {
        let bin = data[i.get()] as usize % BINS;
        // SAFETY: the rank is below the number of blocks, whose shared memory exists until the barrier below; all
        // accesses are atomic.
        let count = unsafe {
            let count = cluster::map_shared(counts.add(bin % block_bins), (bin / block_bins) as u32);
            Atomic::<u32, scope::Device>::from_ptr(count)
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    cluster::sync();
    let first = cluster::block_rank() as usize * block_bins;
    let mut i = own;
    while i < block_bins {
        // SAFETY: as above; the barrier has made the counts final.
        bins[first + i].fetch_add(unsafe { counts.add(i).read() }, Ordering::Relaxed);
        i += threads;
    }
}

/// Computes the same histogram with atomic operations on `bins` only.
///
/// # Panics
/// Panics if `bins` has fewer than [`BINS`] elements.
#[kernel(launch_bounds(1024))]
pub fn global_histogram(data: &[u32], bins: &[Atomic<u32>]) {
    for i in thread::grid_stride(data.len()) {
        bins[data[i.get()] as usize % BINS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes the sum of each tile of `N` neighboring elements to all of its elements. The launch has one thread per
/// element, and blocks of a multiple of `N` threads.
#[kernel(consts(N = 1, 2, 4, 8, 16, 32))]
pub fn tile_reduce<const N: u32>(input: &[f32], mut out: DisjointMut<f32>) {
    let tile = Tile::<N>::current();
    let index = thread::unique_index();
    let sum = tile.reduce_add(input.get(index.get()).copied().unwrap_or(0.0));
    if let Some(out) = out.get_mut(index) {
        *out = sum;
    }
}

/// Inclusive scan (prefix sums) of each tile of `N` neighboring elements. The launch has the shape of
/// [`tile_reduce()`].
#[kernel(consts(N = 1, 2, 4, 8, 16, 32))]
pub fn tile_scan<const N: u32>(input: &[u32], mut out: DisjointMut<u32>) {
    let tile = Tile::<N>::current();
    let index = thread::unique_index();
    let sum = tile.inclusive_scan(input.get(index.get()).copied().unwrap_or(0), u32::wrapping_add);
    if let Some(out) = out.get_mut(index) {
        *out = sum;
    }
}

/// Inclusive scan (prefix sums) of each block's part of the input; the sum of the part is written to the block's
/// element of `sums`. The launch has one thread per element.
///
/// # Safety
/// `sums` is valid for one element per block, and nothing else uses it until the launch ends.
#[kernel]
pub unsafe fn block_scan(input: &[u32], mut out: DisjointMut<u32>, sums: *mut u32) {
    let index = thread::unique_index();
    let value = input.get(index.get()).copied().unwrap_or(0);
    let scan = block::inclusive_scan(value, u32::wrapping_add);
    let sum = block::reduce(value, u32::wrapping_add);
    if let Some(out) = out.get_mut(index) {
        *out = scan;
    }
    if thread::linear_in_block() == 0 {
        // SAFETY: the element belongs to this block.
        unsafe { sums.add(block::linear_index()).write(sum) };
    }
}

/// Each thread of the first warp of each block spins for this many clock cycles; then each thread adds 1 to its element
/// of `counters`.
#[kernel]
pub fn spin_plain(cycles: u64, counters: DisjointMut<u32>) {
    spin(cycles, counters);
}

/// Does the same, and lets the next launch start meanwhile (programmatic dependent launch).
#[kernel(dependent)]
pub fn spin_dependent(cycles: u64, counters: DisjointMut<u32>) {
    grid::launch_dependents();
    spin(cycles, counters);
}

#[inline(always)]
fn spin(cycles: u64, mut counters: DisjointMut<u32>) {
    if thread::linear_in_block() < 32 {
        let start = clock::cycles();
        while clock::cycles().wrapping_sub(start) < cycles {}
    }
    if let Some(counter) = counters.get_mut(thread::unique_index()) {
        *counter += 1;
    }
}

/// Does nothing.
#[kernel]
pub fn empty() {}

/// Does nothing, and lets the next launch start meanwhile (programmatic dependent launch).
#[kernel(dependent)]
pub fn empty_dependent() {
    grid::launch_dependents();
}
