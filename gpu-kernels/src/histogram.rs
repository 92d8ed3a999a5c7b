//! Histograms, which count the elements per bin, with even bins or with given edges.
//!
//! A launch adds to the existing counts. If the counters fit in shared memory, each block counts there, in several
//! copies of the counters. The copies of a counter are adjacent, and adjacent lanes use different copies. With 32
//! copies, each lane of a warp therefore has its own bank, so that atomic operations have no bank conflicts, regardless
//! of the data. At the end, each block adds its counts to the result. Counts are exact, so the result does not depend
//! on the launch.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;

use crate::access::access;
pub use crate::bins::{Binned, Bins, edge};
use crate::tile::{Split, each, in_first_row, lanes, lanewise, load, opaque, with_lanes};

/// A block's counters: several copies of the counter of each bin, and of a counter for elements that no bin counts. The
/// number of copies is the largest power of two that fits. If no copy fits, the block adds to the counts in global
/// memory directly.
type Local<'a> = Shared<'a, [Atomic<u32, scope::Block>]>;

/// Counts each element of `x` in the bin that `bin` returns, or skips the element if `bin` returns `None`. The returned
/// bins must be below `bins`. `bins_of` returns the same as `bin`, for the elements of a vector.
#[inline(always)]
fn count<T: Scalar, const ITEMS: usize, const N: usize>(
    x: &[T],
    bins: u32,
    local: &mut Local<'_>,
    counts: &[Atomic<u64>],
    bin: impl Fn(T) -> Option<u32>,
    bins_of: impl Fn([T; N]) -> [Option<u32>; N],
) {
    let counters = Some(bins).filter(|&bins| bins > 0 && bins < u32::MAX);
    let copies = counters.and_then(|counters| (local.len() as u32 / (counters + 1)).checked_ilog2());
    let Some(log) = copies else {
        let add = |item: T| {
            if let Some(bin) = bin(item)
                && let Some(count) = counts.get(bin as usize)
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        // The atomic operations on the counts in global memory dominate the time.
        return visit::<T, 1, 1>(x, add, |[item]| add(item));
    };
    let (local, copies) = (local.zeroed(), 1_u32 << log);
    // The copy that this thread uses.
    let own = thread::linear_in_block() & (copies - 1);
    let add = |bin: Option<u32>| {
        let counter = bin.unwrap_or(bins);
        // SAFETY: there are `bins + 1` counters. The index of a counter is at most `bins`, because `bin` returns bins
        // below `bins`, and `own` is below `copies`.
        unsafe { local.get_unchecked((counter * copies + own) as usize) }.fetch_add(1, Ordering::Relaxed);
    };
    let add_vector = |items: [T; N]| {
        let found = bins_of(items);
        each::<N>(|lane| add(found[lane]));
    };
    visit::<T, ITEMS, N>(x, |item| add(bin(item)), add_vector);
    thread::sync_threads();
    let mut counter = thread::linear_in_block();
    while counter < bins {
        let mut sum = 0;
        for copy in 0..copies {
            // Adjacent lanes start at different copies, which are in different banks.
            let copy = (copy + counter) & (copies - 1);
            let count = local.get((counter * copies + copy) as usize);
            sum += count.map_or(0, |count| count.load(Ordering::Relaxed) as u64);
        }
        if sum > 0
            && let Some(count) = counts.get(counter as usize)
        {
            count.fetch_add(sum, Ordering::Relaxed);
        }
        counter += block::threads();
    }
}

/// Passes each element of `x` to `add_one` or, as part of a vector, to `add_vector`.
#[inline(always)]
fn visit<T: Scalar, const ITEMS: usize, const N: usize>(
    x: &[T],
    add_one: impl Fn(T),
    add_vector: impl Fn([T; N]),
) {
    if !in_first_row() {
        return;
    }
    let split = Split::new::<T, N>(x.as_ptr(), x.len());
    // SAFETY: vector i covers the `N` elements from `head + i * N` on, which are all below `tail`, and `Split` aligns it.
    let load_one = |i: usize| -> [T; N] { unsafe { load(x.as_ptr().add(split.head + i * N)) } };
    // While the elements of a tile are counted, the loads of the next tile are in flight.
    let step = thread::block_dim_x() as usize;
    let mut first = thread::block_idx_x() as usize * ITEMS * step + thread::thread_idx_x() as usize;
    let is_full = |first: usize| first < split.vectors && split.vectors - first > (ITEMS - 1) * step;
    if is_full(first) {
        let load_tile = |first: usize| {
            // Without `opaque`, the compiler would keep an address for each item in registers.
            let step = opaque(step);
            lanewise::<_, ITEMS>(|item| load_one(first + item * step))
        };
        let mut vectors = load_tile(first);
        loop {
            let next = first + thread::grid_dim_x() as usize * ITEMS * step;
            let is_next_full = is_full(next);
            let following = if is_next_full { load_tile(next) } else { vectors };
            each::<ITEMS>(|item| add_vector(vectors[item]));
            (first, vectors) = (next, following);
            if !is_next_full {
                break;
            }
        }
    }
    while first < split.vectors {
        add_vector(load_one(first));
        first += step;
    }
    // SAFETY: `edges` visits only indices less than the length.
    split.edges(x.len(), |i| add_one(unsafe { *x.as_ptr().add(i) }));
}

/// Writes the lower [edge](edge()) of each bin to `edges`, whose length is the number of bins.
#[kernel]
pub fn even_edges(lower: f64, upper: f64, mut edges: DisjointMut<f64>) {
    let (place, count) = (thread::unique_index(), edges.len() as u32);
    if let Some(out) = edges.get_mut(place) {
        *out = edge(lower, upper, place.get() as u32, count);
    }
}

/// Adds the number of elements of `x` in each bin to `counts`. The parameters describe the [`Bins`]. For floats,
/// `edges` must contain the result of [`even_edges()`]. Each block must process fewer than 2³² elements. `table` must
/// have space for all edges, or be empty.
#[kernel(
    types(T = f32, f64, f16, bf16, u8, i32, u32),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(256, 3),
    bytes = x.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub fn histogram_even<T: Binned, const ITEMS: usize, const VECTOR: usize>(
    bins: u32,
    lower: T,
    last: T,
    factors: [f64; 2],
    fraction: u32,
    slack: u32,
    edges: &[f64],
    x: &[T],
    mut table: Shared<[T]>,
    mut local: Shared<[Atomic<u32, scope::Block>]>,
    counts: &[Atomic<u64>],
) {
    let bins = Bins { count: bins, lower, last, factors, fraction, slack };
    let has_room = table.len() == edges.len();
    let table = table.fill(|[i]| edges.get(i).map_or(lower, |&edge| T::at_or_above(edge)));
    if has_room {
        let bin = |item: T| T::bins_of([item], &bins, table)[0];
        with_lanes!(lanes::<T>(access::<T>(VECTOR)), N => {
            let bins_of = |items: [T; N]| T::bins_of(items, &bins, table);
            count::<T, ITEMS, N>(x, bins.count, &mut local, counts, bin, bins_of);
        })
    } else {
        let bin = |item: T| item.bin(&bins, edges);
        count::<T, ITEMS, 1>(x, bins.count, &mut local, counts, bin, |[item]| [bin(item)]);
    }
}

/// Adds the number of elements of `x` between each pair of adjacent `edges` to `counts`. Bin i covers the interval from
/// `edges[i]` (inclusive) to `edges[i + 1]` (exclusive), so the edges must be in ascending order. Each block must
/// process fewer than 2³² elements. `table` must have space for all edges, or be empty.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(256, 3),
    bytes = x.bytes()
)]
pub fn histogram_edges<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    edges: &[T],
    x: &[T],
    mut table: Shared<[T]>,
    mut local: Shared<[Atomic<u32, scope::Block>]>,
    counts: &[Atomic<u64>],
) {
    let bins = (edges.len() as u32).saturating_sub(1);
    let has_room = table.len() == edges.len();
    let table = table.fill(|[i]| edges.get(i).copied().unwrap_or(T::ZERO));
    let edges = if has_room { table } else { edges };
    let bin = |item: T| {
        let item = item.to_acc();
        // Counts the edges that are not above the element. For NaN, the number of these edges is 0.
        let (mut first, mut count) = (0, edges.len());
        while count > 0 {
            let half = count / 2;
            let is_reached = edges.get(first + half).is_some_and(|edge| edge.to_acc() <= item);
            (first, count) = if is_reached { (first + half + 1, count - half - 1) } else { (first, half) };
        }
        (first as u32).checked_sub(1).filter(|&bin| bin < bins)
    };
    with_lanes!(lanes::<T>(access::<T>(VECTOR)), N => {
        let bins_of = |items: [T; N]| lanewise::<_, N>(|lane| bin(items[lane]));
        count::<T, ITEMS, N>(x, bins, &mut local, counts, bin, bins_of);
    })
}
