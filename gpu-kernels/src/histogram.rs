//! Histograms, which count the elements per bin and channel, with even bins or with given edges.
//!
//! Channels are interleaved: element i belongs to channel `i % channels`. `counts` contains the bins of channel 0,
//! followed by the bins of channel 1, and so on. A launch adds to the existing counts. If the counters fit in shared
//! memory, each block counts there. Each block uses several copies of the counters to reduce atomic contention if many
//! elements fall into the same bin. At the end, each block adds its counts to the result. Counts are exact, so the
//! result does not depend on the launch.

use core::num::{NonZeroU32, NonZeroU64};

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;

use crate::access::access;
pub use crate::bins::{Binned, Bins, Edges, edge};
use crate::tile::{Split, each, for_each, in_first_row, lanes, load, with_lanes};

/// A block's counters: several copies, each of which contains all bins of all channels. If the number of copies is 0,
/// the block adds to the counts in global memory directly.
type Local<'a> = Shared<'a, [Atomic<u32, scope::Block>]>;

/// Counts each element of `x` in the bin that `bin` returns, or skips the element if `bin` returns `None`. The returned
/// bins must be below `bins`.
#[inline(always)]
fn count<T: Scalar, const ITEMS: usize, const N: usize>(
    x: &[T],
    [channels, bins]: [u32; 2],
    local: &mut Local<'_>,
    counts: &[Atomic<u64>],
    bin: impl Fn(T) -> Option<u32>,
) {
    let counters = channels as usize * bins as usize;
    let copies = local.len().checked_div(counters).unwrap_or(0);
    let local = local.zeroed();
    let own = if copies == 0 { 0 } else { thread::linear_in_block() as usize % copies * counters };
    let several = NonZeroU32::new(channels).filter(|_| channels > 1);
    let channel_of = |i: usize| match several {
        None => 0,
        // A 32-bit division takes a third as long as a 64-bit division.
        Some(several) if i >> 32 == 0 => i as u32 % several,
        Some(several) => (i as u64 % NonZeroU64::from(several)) as u32,
    };
    // `start` is the first counter of a channel.
    let add = |start: u32, item: T| {
        let Some(bin) = bin(item) else { return };
        let counter = (start + bin) as usize;
        if copies > 0 {
            // SAFETY: the index of a counter is below `counters`, because `bin` returns bins below `bins`. If there are
            // copies, there is at least one bin. `own` is the start of one of the copies.
            unsafe { local.get_unchecked(own + counter) }.fetch_add(1, Ordering::Relaxed);
        } else if let Some(counter) = counts.get(counter) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    if in_first_row() {
        let split = Split::new::<T, N>(x.as_ptr(), x.len());
        for_each::<[T; N], ITEMS>(
            split.vectors,
            // SAFETY: vector i covers the `N` elements from `head + i * N` on, which are all below `tail`, and `Split`
            // aligns it.
            |i| unsafe { load(x.as_ptr().add(split.head + i * N)) },
            |i, vector| {
                let mut start = channel_of(split.head + i * N) * bins;
                each::<N>(|lane| {
                    add(start, vector[lane]);
                    start = if start + bins == counters as u32 { 0 } else { start + bins };
                });
            },
        );
        // SAFETY: `edges` visits only indices less than the length.
        split.edges(x.len(), |i| add(channel_of(i) * bins, unsafe { *x.as_ptr().add(i) }));
    }
    if copies == 0 {
        return;
    }
    thread::sync_threads();
    let mut counter = thread::linear_in_block() as usize;
    while counter < counters {
        let mut sum = 0;
        for copy in 0..copies {
            sum +=
                local.get(copy * counters + counter).map_or(0, |count| count.load(Ordering::Relaxed) as u64);
        }
        if sum > 0
            && let Some(count) = counts.get(counter)
        {
            count.fetch_add(sum, Ordering::Relaxed);
        }
        counter += block::threads() as usize;
    }
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
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(256, 4),
    bytes = x.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub fn histogram_even<T: Binned, const ITEMS: usize, const VECTOR: usize>(
    channels: u32,
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
    let shape = [channels, bins.count];
    if has_room {
        let bin = |item: T| item.bin(&bins, Edges::Table(table));
        with_lanes!(lanes::<T>(access::<T>(VECTOR)), N => {
            count::<T, ITEMS, N>(x, shape, &mut local, counts, bin);
        })
    } else {
        // With this many bins, the atomic operations on the counts in global memory dominate the time.
        count::<T, ITEMS, 1>(x, shape, &mut local, counts, |item| item.bin(&bins, Edges::Exact(edges)));
    }
}

/// Adds the number of elements of `x` between each pair of adjacent `edges` to `counts`. Bin i covers the interval from
/// `edges[i]` (inclusive) to `edges[i + 1]` (exclusive), so the edges must be in ascending order. Each block must
/// process fewer than 2³² elements. `table` must have space for all edges, or be empty.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(256, 4),
    bytes = x.bytes()
)]
pub fn histogram_edges<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    channels: u32,
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
        count::<T, ITEMS, N>(x, [channels, bins], &mut local, counts, bin);
    })
}
