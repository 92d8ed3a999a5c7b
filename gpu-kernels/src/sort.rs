//! Radix sorts of keys, of key-value pairs, and of segments.
//!
//! The sort is a stable LSD radix sort with 8-bit digits. [`radix_histogram()`] counts all digits in one pass over the
//! keys, and [`radix_starts()`] converts the counts to offsets. One pass per digit then reads and writes every pair
//! once, as in "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs" (Adinets, Merrill 2022). A block ranks
//! the digits of its tile, reorders the tile in shared memory, and writes it in runs of equal digits. The destination
//! of each run depends on the preceding tiles. The block determines the destination by decoupled look-back for each
//! digit.
//!
//! Keys are unsigned integers, sorted in the order that [`KeyTransform`] defines. The output contains the original
//! keys. There can be at most 2³² − 1 keys.

use core::cell::Cell;

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::look_back::TileQueue;
use gpu_std::prelude::*;
use gpu_std::radix;
use gpu_std::vectorized::{each, opaque};

use crate::key_transform::{Bits, KeyTransform};
use crate::queue::queue;

/// Number of values that a digit can have.
pub const DIGITS: usize = 256;
/// Bits per digit.
pub const DIGIT_BITS: u32 = 8;
/// Number of threads per block for every kernel of this module except [`radix_starts()`].
pub const THREADS: usize = 384;
const WARPS: usize = THREADS / 32;
/// Returns the number of items per thread for keys and values with these sizes. Without values, the value size is 0.
/// With this number of items, two blocks fit on an SM.
const fn items(key_bytes: usize, value_bytes: usize) -> usize {
    match (key_bytes, value_bytes) {
        (4, 0) => 23,
        (4, 4) => 19,
        _ => 11,
    }
}
/// Maximum total size, in bytes, of the keys (or of the values) that a thread holds in a tile.
const ITEM_BYTES: usize = 4 * items(4, 0);
/// Number of keys per thread in a tile of a segment.
const SEGMENT_ITEMS: usize = 8;

macro_rules! by_size {
    ($bytes:expr, $size:ident => $body:expr) => {
        match const { $bytes } {
            4 => {
                const $size: usize = 4;
                $body
            }
            _ => {
                const $size: usize = 8;
                $body
            }
        }
    };
}

/// Returns the number of items per tile. Keys must have 4 or 8 bytes. Values must have 4 or 8 bytes, or 0 for a sort
/// without values.
pub const fn tile_len(key_bytes: usize, value_bytes: usize) -> usize {
    THREADS * items(key_bytes, value_bytes)
}

/// Returns the number of workspace words for a pass over `len` pairs (see [`gpu_std::look_back`]).
pub const fn workspace_len(len: usize, key_bytes: usize, value_bytes: usize) -> usize {
    gpu_std::look_back::workspace_len(4, 0) + len.div_ceil(tile_len(key_bytes, value_bytes)) * DIGITS
}

/// Number of counters per block of the digit histogram. There are several counters for each value of each digit.
const COUNTERS: usize = 8192;

/// Adds the number of occurrences of each value of each digit to `counts`, for all digits of a key, starting with the
/// lowest digit.
#[kernel(types(K = u32, u64), block(384), launch_bounds(384, 4), bytes = keys.bytes())]
pub fn radix_histogram<K: Bits>(
    negative: K,
    always: K,
    nans: K,
    keys: &[K],
    mut local: Shared<[Atomic<u32, scope::Block>; 8192]>,
    counts: &[Atomic<u32>],
) {
    const ITEMS: usize = 8;
    let transform = KeyTransform { negative, always, nans };
    // Adjacent lanes use separate counters in adjacent banks.
    let copies = const { COUNTERS / DIGITS / size_of::<K>() };
    let local = local.zeroed();
    let copy = thread::linear_in_block() as usize % copies;
    let add = |key: K| {
        let key = key.transform(transform);
        by_size!(size_of::<K>(), PLACES => each::<PLACES>(|place| {
            let digit = key.digit(place as u32 * DIGIT_BITS) as usize;
            local[(place * DIGITS + digit) * copies + copy].fetch_add(1, Ordering::Relaxed);
        }));
    };
    let tile = THREADS * ITEMS;
    let mut first = block::linear_index() * tile + thread::linear_in_block() as usize;
    while first < keys.len() {
        let mut items = [None; ITEMS];
        each::<ITEMS>(|item| items[item] = keys.get(first + item * THREADS).copied());
        each::<ITEMS>(|item| {
            if let Some(key) = items[item] {
                add(key);
            }
        });
        first += thread::grid_dim_x() as usize * tile;
    }
    thread::sync_threads();
    let mut counter = thread::linear_in_block() as usize;
    while counter < DIGITS * size_of::<K>() {
        let mut count = 0;
        for copy in 0..copies {
            count += local[counter * copies + copy].load(Ordering::Relaxed);
        }
        if count > 0
            && let Some(total) = counts.get(counter)
        {
            total.fetch_add(count, Ordering::Relaxed);
        }
        counter += THREADS;
    }
}

/// Replaces the counts of each digit with their exclusive prefix sums, which are the numbers of keys with a lower digit
/// value. One block processes each digit.
#[kernel(block(256))]
pub fn radix_starts(mut counts: DisjointMut<u32>) {
    let own = thread::unique_index();
    let count = counts.get_mut(own).map_or(0, |count| *count);
    let start = block::exclusive_scan(count, 0, |a, b| a + b);
    if let Some(count) = counts.get_mut(own) {
        *count = start;
    }
}

/// The inputs and outputs of a pass.
#[derive(Clone, Copy)]
struct Pairs<K, V> {
    keys: *const K,
    /// As many values as keys, or null for a sort without values.
    values: *const V,
    keys_out: *mut K,
    values_out: *mut V,
    len: usize,
}

/// Shared memory for a tile, which contains the tile's items and the destination of each digit's run.
#[derive(Clone, Copy)]
struct Stage {
    items: *mut u8,
    offsets: *mut u32,
}

impl Stage {
    #[inline(always)]
    #[track_caller]
    fn new() -> Self {
        Self {
            items: shared_array![u128; THREADS * ITEM_BYTES / 16].cast(),
            offsets: shared_array![u32; DIGITS],
        }
    }
}

type Counters<'a> = Shared<'a, [[Atomic<u32, scope::Block>; DIGITS]; WARPS]>;

/// Writes each thread's items to their ranks in the stage, and reads them back in striped order.
///
/// # Safety
/// All threads of the block must call this function, and no thread may still be using the items of the stage. The ranks
/// must be a permutation of all indices of the tile.
#[inline(always)]
#[track_caller]
unsafe fn exchange<T: Copy, const ITEMS: usize>(
    stage: Stage,
    items: [T; ITEMS],
    ranks: [u32; ITEMS],
) -> [T; ITEMS] {
    let own = opaque(thread::linear_in_block()) as usize;
    let stage: *mut T = stage.items.cast();
    let mut sorted = items;
    // SAFETY: guaranteed by this function's contract; the items of a tile fit in the stage.
    unsafe {
        each::<ITEMS>(|item| stage.add(ranks[item] as usize).write(items[item]));
        thread::sync_threads();
        each::<ITEMS>(|item| sorted[item] = stage.add(own + item * THREADS).read());
    }
    sorted
}

/// Runs the sort pass for the digit that starts at bit `shift`.
///
/// # Safety
/// The arrays must be valid for their elements and must not overlap. `starts` must contain, for each digit value, the
/// number of keys with a lower value. `workspace` must meet the requirements of [`TileQueue::new`], and must have
/// [`workspace_len`] words.
#[inline(always)]
#[track_caller]
unsafe fn pass<K: Bits, V: Scalar, const ITEMS: usize>(
    (transform, shift): (KeyTransform<K>, u32),
    pairs: Pairs<K, V>,
    starts: &[u32],
    workspace: (*const u64, usize),
    counters: &mut Counters<'_>,
) {
    let Pairs { keys, values, keys_out, values_out, len } = pairs;
    let own = thread::linear_in_block() as usize;
    let stage = Stage::new();
    let tile_len = THREADS * ITEMS;
    // The first pass transforms the keys, and the last pass transforms them back.
    let changes = (transform.negative | transform.always) != K::ZERO;
    let is_first = changes & (shift == 0);
    let is_last = changes & (shift + DIGIT_BITS == 8 * size_of::<K>() as u32);
    // SAFETY: guaranteed by this function's contract.
    let mut queue = unsafe { queue(workspace, len.div_ceil(tile_len)) };
    while let Some(tile) = queue.next() {
        // Without `opaque`, the compiler would compute the positions of all items once and keep them in registers.
        let own = opaque(own as u32) as usize;
        let tile = tile as u32;
        let first = tile as usize * tile_len;
        let rest = if len - first < tile_len { (len - first) as u32 } else { tile_len as u32 };
        // Numbers of items from the thread's first item to the end of the array: in warp-striped order, and in striped
        // order.
        let own_place = radix::place::<ITEMS>(0) as u32;
        let (in_warps, in_block) = (rest.saturating_sub(own_place), rest.saturating_sub(own as u32));
        let is_whole = rest == tile_len as u32;
        // Padding after the last key has the largest digits, so that it sorts last.
        let mut items = [K::ALL_ONES; ITEMS];
        // SAFETY: the pointer is not used if there is no key.
        let source = keys.wrapping_add(first + own_place as usize);
        if is_whole {
            // SAFETY: all keys of the tile exist.
            each::<ITEMS>(|item| items[item] = unsafe { source.add(32 * item).read() });
        } else {
            each::<ITEMS>(|item| {
                items[item] = if in_warps > 32 * item as u32 {
                    // SAFETY: just checked.
                    unsafe { source.add(32 * item).read() }
                } else if is_first {
                    K::ALL_ONES.inverse_transform(transform)
                } else {
                    K::ALL_ONES
                };
            });
        }
        if is_first {
            each::<ITEMS>(|item| items[item] = items[item].transform(transform));
        }
        let beyond = if own == DIGITS - 1 { tile_len as u32 - rest } else { 0 };
        let words = queue.words();
        let publish = |count: u32, is_prefix: bool| {
            let epoch = (queue.epoch() as u64) << 33 | u64::from(is_prefix) << 32;
            let word = opaque(tile) as usize * DIGITS + own;
            // SAFETY: the workspace has one word for each digit of each tile.
            unsafe { words.get_unchecked(word) }.store(epoch | count as u64, Ordering::Relaxed);
        };
        // A digit is extracted from its key at each use, so that it does not occupy a register. The assembler cannot
        // infer that bit 31 of a count is 0, so it cannot reuse digits that were extracted earlier.
        let digits_from = Cell::new(shift);
        let digit = |item: usize| opaque(items[item]).digit(digits_from.get());
        let counted = |count: u32| {
            digits_from.set(shift + (count >> 31));
            if own < DIGITS {
                publish(count - beyond, tile == 0);
            }
        };
        let has_values = !values.is_null();
        let (mut ranks, staged) = ([0; ITEMS], stage.items.cast::<K>());
        let ranked = |item: usize, rank: u32| {
            // SAFETY: the ranks belong to the tile's items, for all of which the stage has space. All threads have read
            // the preceding tile before the barrier in `rank_with`.
            unsafe { staged.add(rank as usize).write(items[item]) };
            if has_values {
                ranks[item] = rank;
            }
        };
        let (start_in_tile, count) =
            radix::rank_with::<ITEMS, DIGITS, WARPS>(digit, counters, counted, ranked);
        thread::sync_threads();
        let mut sorted = [K::ZERO; ITEMS];
        // SAFETY: all items of the tile exist.
        each::<ITEMS>(|item| sorted[item] = unsafe { staged.add(own + item * THREADS).read() });

        if own < DIGITS {
            let mut before = 0;
            if tile > 0 {
                // SAFETY: the workspace has one word for each digit of each tile.
                before = unsafe { look_back(&queue, tile, own) };
                publish(before + count - beyond, true);
            }
            let start = starts.get(own).copied().unwrap_or(0);
            // SAFETY: each digit belongs to one thread.
            unsafe { stage.offsets.add(own).write((start + before).wrapping_sub(start_in_tile)) };
        }
        queue.prefetch();
        // The barrier also waits until all threads have read the stage.
        thread::sync_threads();
        let mut places = [0_u32; ITEMS];
        each::<ITEMS>(|item| {
            let rank = (own + item * THREADS) as u32;
            let digit = sorted[item].digit(shift);
            // SAFETY: the slot was written before the barrier.
            places[item] = unsafe { stage.offsets.add(digit as usize).read() }.wrapping_add(rank);
        });
        if is_last {
            each::<ITEMS>(|item| sorted[item] = sorted[item].inverse_transform(transform));
        }
        if is_whole {
            // SAFETY: the destinations of all tiles together are a permutation of all indices of the output.
            each::<ITEMS>(|item| unsafe { keys_out.add(places[item] as usize).write(sorted[item]) });
        } else {
            each::<ITEMS>(|item| {
                if in_block > (item * THREADS) as u32 {
                    // SAFETY: as above.
                    unsafe { keys_out.add(places[item] as usize).write(sorted[item]) };
                }
            });
        }
        if has_values {
            let mut items = [V::ZERO; ITEMS];
            let source = values.wrapping_add(first + own_place as usize);
            each::<ITEMS>(|item| {
                if in_warps > 32 * item as u32 {
                    // SAFETY: just checked.
                    items[item] = unsafe { source.add(32 * item).read() };
                }
            });
            // SAFETY: as for the keys, which all threads have read before the last barrier.
            let sorted = unsafe { exchange(stage, items, ranks) };
            each::<ITEMS>(|item| {
                if in_block > (item * THREADS) as u32 {
                    // SAFETY: as for the key.
                    unsafe { values_out.add(places[item] as usize).write(sorted[item]) };
                }
            });
        }
    }
}

/// Number of tiles that a thread reads per look-back step.
const LOOKED_AT: usize = 4;

/// Returns the number of keys that have this digit in the tiles before `tile`.
///
/// # Safety
/// The workspace must have one word for each digit of each tile up to `tile`, which must not be the first tile.
#[inline(always)]
unsafe fn look_back(queue: &TileQueue<'_>, tile: u32, digit: usize) -> u32 {
    let words = queue.words();
    let mut before = 0_u32;
    // Tiles from this index on have already been counted.
    let mut counted = tile;
    loop {
        let mut of_tiles = [0; LOOKED_AT];
        each::<LOOKED_AT>(|i| {
            let tile = counted.saturating_sub(1 + i as u32) as usize;
            // SAFETY: guaranteed by this function's contract.
            of_tiles[i] = unsafe { words.get_unchecked(tile * DIGITS + digit) }.load(Ordering::Relaxed);
        });
        let (mut goes_on, mut is_done) = (true, false);
        each::<LOOKED_AT>(|i| {
            goes_on &= (of_tiles[i] >> 33) as u32 == queue.epoch();
            if goes_on {
                before = before.wrapping_add(of_tiles[i] as u32);
                counted -= 1;
                // The first tile publishes only a prefix, so the look-back ends there.
                is_done = of_tiles[i] >> 32 & 1 == 1;
                goes_on = !is_done;
            }
        });
        if is_done {
            return before;
        }
    }
}

macro_rules! by_items {
    ($key:ty, $value_bytes:expr, $items:ident => $body:expr) => {
        by_size!(size_of::<$key>(), KEY => {
            const $items: usize = items(KEY, $value_bytes);
            $body
        })
    };
}

/// Runs the sort pass over keys without values for the digit that starts at bit `shift`.
///
/// # Safety
/// `keys_out` must be valid for as many elements as `keys` has, which must be fewer than 2³². Nothing else may access
/// `keys_out`. `starts` must be the result of [`radix_starts()`] for the counts of that digit. `workspace` must point
/// to `workspace_len` words that meet the requirements of [`TileQueue::new`], at least as many as [`workspace_len()`]
/// returns. The block must have 384 threads.
#[kernel(types(K = u32, u64), block(384), launch_bounds(384, 2), bytes = 2 * keys.bytes())]
pub unsafe fn radix_pass<K: Bits>(
    negative: K,
    always: K,
    nans: K,
    shift: u32,
    keys: &[K],
    starts: &[u32],
    workspace: *mut u64,
    workspace_len: usize,
    mut counters: Shared<[[Atomic<u32, scope::Block>; 256]; 12]>,
    keys_out: *mut K,
) {
    let (values, values_out) = (core::ptr::null::<u32>(), core::ptr::null_mut());
    let pairs = Pairs { keys: keys.as_ptr(), values, keys_out, values_out, len: keys.len() };
    let workspace = (workspace.cast_const(), workspace_len);
    by_items!(K, 0, ITEMS => {
        // SAFETY: guaranteed by this function's contract.
        unsafe { pass::<K, u32, ITEMS>((KeyTransform { negative, always, nans }, shift), pairs, starts, workspace, &mut counters) }
    })
}

/// Runs the sort pass over key-value pairs for the key digit that starts at bit `shift`.
///
/// # Safety
/// The caller must uphold the safety contract of [`radix_pass()`], and `values` and `values_out` must be as long as
/// `keys`.
#[kernel(
    types(K = u32, u64; V = u32, u64),
    block(384),
    launch_bounds(384, 2),
    bytes = 2 * keys.bytes() + 2 * values.bytes()
)]
pub unsafe fn radix_pass_pairs<K: Bits, V: Scalar>(
    negative: K,
    always: K,
    nans: K,
    shift: u32,
    keys: &[K],
    values: &[V],
    starts: &[u32],
    workspace: *mut u64,
    workspace_len: usize,
    mut counters: Shared<[[Atomic<u32, scope::Block>; 256]; 12]>,
    keys_out: *mut K,
    values_out: *mut V,
) {
    let pairs = Pairs { keys: keys.as_ptr(), values: values.as_ptr(), keys_out, values_out, len: keys.len() };
    let workspace = (workspace.cast_const(), workspace_len);
    by_size!(size_of::<V>(), VALUE => by_items!(K, VALUE, ITEMS => {
        // SAFETY: guaranteed by this function's contract.
        unsafe { pass::<K, V, ITEMS>((KeyTransform { negative, always, nans }, shift), pairs, starts, workspace, &mut counters) }
    }))
}

/// Sorts each segment of the keys, which extends from `offsets[i]` (inclusive) to `offsets[i + 1]` (exclusive). A
/// segment end beyond the last key is clamped to the number of keys. A segment whose start is after its end is empty.
/// Each segment is sorted by one block. A segment that fits in a tile is sorted in shared memory, and a longer one by
/// passes between `spare` and `keys_out`.
///
/// # Safety
/// `keys_out` and `spare` must be valid for as many elements as `keys` has, which must be fewer than 2³². Nothing else
/// may access `keys_out` and `spare`. The segments must not overlap. The block must have 384 threads.
#[kernel(types(K = u32, u64), block(384), launch_bounds(384, 1), bytes = 2 * keys.bytes())]
pub unsafe fn sort_segments<K: Bits>(
    negative: K,
    always: K,
    nans: K,
    keys: &[K],
    offsets: &[u64],
    mut counters: Shared<[[Atomic<u32, scope::Block>; 256]; 12]>,
    spare: *mut K,
    keys_out: *mut K,
) {
    let segments = offsets.len().saturating_sub(1);
    let transform = KeyTransform { negative, always, nans };
    for segment in block::stride(segments) {
        let clamp = |offset: u64| if offset < keys.len() as u64 { offset as usize } else { keys.len() };
        let start = clamp(offsets[segment.get()]);
        let end = clamp(offsets[segment.get() + 1]);
        if start >= end {
            continue;
        }
        // SAFETY: the segment lies within the arrays and belongs to one block.
        unsafe {
            let (keys, spare, out) = (keys.as_ptr().add(start), spare.add(start), keys_out.add(start));
            sort_segment::<K, SEGMENT_ITEMS>(transform, (keys, end - start), spare, out, &mut counters);
        }
    }
}

/// Sorts `keys` into `out`. If the keys do not fit in a tile, `spare` is the temporary buffer.
///
/// # Safety
/// All arrays must be valid for `len` elements and belong only to this block.
#[inline(always)]
#[track_caller]
unsafe fn sort_segment<K: Bits, const ITEMS: usize>(
    transform: KeyTransform<K>,
    (keys, len): (*const K, usize),
    spare: *mut K,
    out: *mut K,
    counters: &mut Counters<'_>,
) {
    let stage = Stage::new();
    let own = thread::linear_in_block() as usize;
    let tile_len = THREADS * ITEMS;
    // `opaque` prevents the compiler from unrolling the passes.
    let places = opaque(size_of::<K>()) as u32;
    // After this barrier, all threads have read the stage of the preceding segment, so the stage can be overwritten.
    thread::sync_threads();
    if len <= tile_len {
        // The keys are transformed so that the padding after the last key is the largest.
        let mut items = [K::ALL_ONES; ITEMS];
        each::<ITEMS>(|item| {
            let place = radix::place::<ITEMS>(item);
            if place < len {
                // SAFETY: just checked.
                items[item] = unsafe { keys.add(place).read() }.transform(transform);
            }
        });
        let mut place = 0;
        while place < places {
            let mut digits = [0_u32; ITEMS];
            each::<ITEMS>(|item| digits[item] = items[item].digit(place * DIGIT_BITS));
            let ranked = radix::rank::<ITEMS, DIGITS, WARPS>(digits, counters);
            let staged: *mut K = stage.items.cast();
            // SAFETY: the ranks belong to the tile's items, and all threads have read the stage before the barriers of
            // `rank`.
            unsafe {
                each::<ITEMS>(|item| staged.add(ranked.ranks[item] as usize).write(items[item]));
                thread::sync_threads();
                each::<ITEMS>(|item| items[item] = staged.add(radix::place::<ITEMS>(item)).read());
            }
            place += 1;
        }
        each::<ITEMS>(|item| {
            let place = radix::place::<ITEMS>(item);
            if place < len {
                // SAFETY: the position was just checked, and the segment belongs to this block.
                unsafe { out.add(place).write(items[item].inverse_transform(transform)) };
            }
        });
        return;
    }
    let mut place = 0;
    while place < places {
        // The number of passes is even, so the last pass writes to `out`.
        let from = match place {
            0 => keys,
            _ if place % 2 == 0 => out.cast_const(),
            _ => spare.cast_const(),
        };
        let to = if place % 2 == 0 { spare } else { out };
        let shift = place * DIGIT_BITS;
        // Number of keys with each digit, in one row of counters per warp.
        let mut count = 0;
        {
            let counters = counters.zeroed();
            let mut i = own;
            while i < len {
                // SAFETY: the index is in range, and the key was written before the barrier at the end of the preceding
                // pass.
                let digit = unsafe { from.add(i).read() }.transform(transform).digit(shift);
                counters[own / 32][digit as usize].fetch_add(1, Ordering::Relaxed);
                i += THREADS;
            }
            thread::sync_threads();
            if own < DIGITS {
                for counters in counters {
                    count += counters[own].load(Ordering::Relaxed);
                }
            }
        }
        // In thread d, the destination of the next key with digit d.
        let mut next = block::exclusive_scan(count, 0, |a, b| a + b);
        let mut first = 0;
        while first < len {
            let rest = if len - first < tile_len { (len - first) as u32 } else { tile_len as u32 };
            let (mut items, mut digits) = ([K::ALL_ONES; ITEMS], [DIGITS as u32 - 1; ITEMS]);
            each::<ITEMS>(|item| {
                let place = radix::place::<ITEMS>(item);
                if place < rest as usize {
                    // SAFETY: the index is in range, and the key was written before the barrier at the end of the
                    // preceding pass.
                    items[item] = unsafe { from.add(first + place).read() };
                    digits[item] = items[item].transform(transform).digit(shift);
                }
            });
            let ranked = radix::rank::<ITEMS, DIGITS, WARPS>(digits, counters);
            // SAFETY: as in `pass`.
            let sorted = unsafe { exchange(stage, items, ranked.ranks) };
            if own < DIGITS {
                // SAFETY: each digit belongs to one thread, and no thread has read its offset since the barriers of
                // `rank`.
                unsafe { stage.offsets.add(own).write(next.wrapping_sub(ranked.start)) };
                next += ranked.count - if own == DIGITS - 1 { tile_len as u32 - rest } else { 0 };
            }
            thread::sync_threads();
            each::<ITEMS>(|item| {
                let rank = (own + item * THREADS) as u32;
                let digit = sorted[item].transform(transform).digit(shift);
                if rank < rest {
                    // SAFETY: the offsets were written before the barrier, and each key of this segment has its own
                    // destination.
                    unsafe {
                        let place = stage.offsets.add(digit as usize).read().wrapping_add(rank);
                        to.add(place as usize).write(sorted[item]);
                    }
                }
            });
            first += tile_len;
        }
        // The next pass reads keys that other threads wrote in this pass.
        thread::sync_threads();
        place += 1;
    }
}
