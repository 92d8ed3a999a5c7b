//! Stream compaction: copies the selected elements in order, and counts them.
//!
//! Each operation is a single launch, which reads every element once and uses decoupled look-back
//! ([`gpu_std::look_back`]). The block size must be a multiple of 32 threads, and at most 256. A block compacts the
//! selected elements of a tile in shared memory, and writes them contiguously once it knows the prefix of the tile. In
//! the meantime, the block compacts its next tile, and loads the one after it.
//!
//! All kernels take a workspace of [`workspace_len`] words, as described in [`gpu_std::look_back`]. The result does not
//! depend on the grid.

use gpu_std::look_back::LookBack;
use gpu_std::prelude::*;
use gpu_std::scan::{Tiling, tile_len};
use gpu_std::vectorized::{each, opaque};

use crate::access::access;
use crate::key_transform::{Bits, KeyTransform};
use crate::queue::queue;
use crate::tile::{aligned, lanes, load, with_lanes};

pub use gpu_std::look_back::workspace_len;

/// Bytes of shared memory per tile, for 256 threads with five 16-byte accesses each.
const STAGE_BYTES: usize = 256 * 5 * 16;

/// Number of elements that a thread writes at once.
const AHEAD: usize = 4;

/// Returns the number of accesses per thread and tile of [`compact_compared()`], computed from its `ITEMS`. Elements of
/// other sizes than 4 bytes have one access less, because they take more registers.
pub const fn accesses<T>(items: usize) -> usize {
    if size_of::<T>() == 4 || items < 2 { items } else { items - 1 }
}

/// Selection predicate.
///
/// # Safety
/// The methods must read only elements at the given indices.
unsafe trait Select<T: Copy, const N: usize> {
    /// Returns whether element `i`, whose value is `item`, is selected.
    ///
    /// # Safety
    /// `i` must be less than the length.
    unsafe fn element(&self, i: usize, item: T) -> bool;

    /// Returns the selection mask of elements `i..i + N`, with the first element in the lowest bit.
    ///
    /// # Safety
    /// The elements must be in bounds, and the first must be aligned to a vector.
    #[inline(always)]
    unsafe fn vector(&self, i: usize, items: [T; N]) -> u32 {
        let mut mask = 0;
        each::<N>(|lane| {
            // SAFETY: guaranteed by the caller.
            mask |= u32::from(unsafe { self.element(i + lane, items[lane]) }) << lane;
        });
        mask
    }
}

/// The outputs: the selected elements, their indices (or null), the other elements (or null), and the number of
/// selected elements. All arrays except the last must have the length of the input.
#[derive(Clone, Copy)]
struct Targets<T> {
    selected: *mut T,
    indices: *mut u32,
    rejected: *mut T,
    count: *mut u64,
}

/// Common body of this module's kernels, for the first `len` elements of `x`.
///
/// # Safety
/// `x` and `targets` must be valid for `len` elements, and `len` must be at most 2³² if `indices` is not null.
/// `workspace` must meet the requirements of [`TileQueue::new`](gpu_std::look_back::TileQueue::new), and nothing else
/// may access any of these arrays until the launch ends. The block size must be a multiple of 32 threads, and at
/// most 256.
#[inline(always)]
#[track_caller]
unsafe fn compact<T: Copy, const ITEMS: usize, const N: usize>(
    (x, len): (*const T, usize),
    select: impl Select<T, N>,
    workspace: (*const u64, usize),
    targets: Targets<T>,
) {
    let threads = block::threads();
    let tile_len = tile_len(threads as usize, ITEMS, N) as u32;
    // Two stages are used: one for the tile that is being written, and one for the next tile.
    let stages: *mut T = shared_array![u128; 2 * (STAGE_BYTES / 16)].cast();
    let head = x.addr() % (N * size_of::<T>()) / size_of::<T>();
    let tiling = Tiling { len, head, tile_len };
    let tiles = tiling.tiles();
    // SAFETY: guaranteed by this function's contract.
    let mut queue = unsafe { queue(workspace, tiles) };
    // SAFETY: as above.
    let look_back = unsafe { LookBack::<u64>::new(&queue) };
    let (own, lane) = (thread::linear_in_block(), warp::lane_id());
    let of_thread = (own / 32 * ITEMS as u32 * 32 + lane) * N as u32;
    let row_len = 32 * N;
    let keeps_others = !targets.rejected.is_null();
    // SAFETY: the array has at least one element.
    let some = unsafe { x.read() };
    // Loads the thread's elements of a tile, unless the tile is partial.
    let load_rows = |tile: Option<u32>| {
        let mut rows = [[some; N]; ITEMS];
        if let Some(tile) = tile
            && tiling.is_whole(tiling.bounds(tile))
        {
            let start = tiling.first(tile) + of_thread as usize;
            // SAFETY: the whole tile lies within the array, which is aligned `head` elements before its first element.
            each::<ITEMS>(|row| rows[row] = unsafe { load(x.add(start + row * row_len)) });
        }
        rows
    };
    // No array has 2^32 tiles, because such an array would not fit in memory.
    let mut next = queue.next().map(|tile| tile as u32);
    let mut rows = load_rows(next);
    // The tile that is staged but not written yet.
    let mut waiting: Option<Staged<ITEMS>> = None;
    let mut next_stage = 0;
    loop {
        // Blocks of later groups wait for the total of the previous tile's group, if this tile is the last of its group.
        if own < 32
            && let Some(Staged { tile, count, .. }) = waiting
        {
            look_back.close(tile as usize, u64::from(count), |a, b| a + b);
        }
        let (low, high) = tiling.bounds(next.unwrap_or(0));
        let is_whole = tiling.is_whole((low, high));
        // The thread's first element of the tile. In the first tile, this element may lie before the array.
        let start = tiling.first(next.unwrap_or(0)).wrapping_add(of_thread as usize);

        let mut staged = None;
        if let Some(tile) = next {
            // Bit i is set if element i of a vector is selected.
            let mut chosen = [0_u32; ITEMS];
            each::<ITEMS>(|row| {
                let in_row = row * row_len;
                if is_whole {
                    // SAFETY: the whole tile lies within the array.
                    chosen[row] = unsafe { select.vector(start + in_row, rows[row]) };
                } else if const { size_of::<T>() == 4 }
                    && of_thread + in_row as u32 >= low
                    && of_thread + (in_row + N) as u32 <= high
                {
                    let first = start.wrapping_add(in_row);
                    // SAFETY: the vector lies within the array.
                    unsafe {
                        rows[row] = load(x.add(first));
                        chosen[row] = select.vector(first, rows[row]);
                    }
                } else {
                    each::<N>(|i| {
                        let (place, index) =
                            (of_thread + (in_row + i) as u32, start.wrapping_add(in_row + i));
                        if place >= low && place < high {
                            // SAFETY: just checked.
                            let item = unsafe { x.add(index).read() };
                            rows[row][i] = item;
                            // SAFETY: just checked.
                            chosen[row] |= u32::from(unsafe { select.element(index, item) }) << i;
                        }
                    });
                }
            });
            let (befores, count) = ranks::<ITEMS, N>(&chosen, lane);
            if own < 32 {
                look_back.publish(tile as usize, u64::from(count));
            }
            // The stage contains first the selected elements and then, if they are requested, the others. The tile
            // before the previous one has been written, because a barrier in `ranks` has passed since then.
            let stage = stages.wrapping_byte_add(next_stage);
            // Narrow selected and rejected elements are staged in the same loop, so that their vectors stay packed in
            // registers.
            let together = const { size_of::<T>() < 4 };
            each::<ITEMS>(|row| {
                // Index among the tile's elements. The index wraps for elements outside the tile.
                let place = (of_thread + (row * row_len) as u32).wrapping_sub(low);
                let mut rank = befores[row];
                each::<N>(|i| {
                    let is_chosen = chosen[row] >> i & 1 == 1;
                    let in_tile = place.wrapping_add(i as u32);
                    if is_chosen || (together && keeps_others && in_tile < high - low) {
                        let slot = if is_chosen { rank } else { count + in_tile - rank };
                        // SAFETY: selected elements have the ranks below `count`, and the others have the ranks from
                        // `count` on. All ranks are less than the number of elements in the tile, and each slot belongs
                        // to one thread.
                        unsafe { stage.add(slot as usize).write(rows[row][i]) };
                    }
                    rank += u32::from(is_chosen);
                });
            });
            if keeps_others && !together {
                each::<ITEMS>(|row| {
                    let place = (of_thread + (row * row_len) as u32).wrapping_sub(low);
                    // Without `opaque`, the compiler would keep each element's state from the previous loop in
                    // registers.
                    let (mut rank, chosen) = (befores[row], opaque(chosen[row]));
                    each::<N>(|i| {
                        let is_chosen = chosen >> i & 1 == 1;
                        let in_tile = place.wrapping_add(i as u32);
                        if !is_chosen && in_tile < high - low {
                            // SAFETY: as above.
                            unsafe { stage.add((count + in_tile - rank) as usize).write(rows[row][i]) };
                        }
                        rank += u32::from(is_chosen);
                    });
                });
            }
            let mut of_rows = befores;
            each::<ITEMS>(|row| of_rows[row] = befores[row] << 16 | chosen[row]);
            staged = Some(Staged { tile, count, rows: of_rows, stage: next_stage });
            next_stage = STAGE_BYTES - next_stage;
            queue.prefetch();
        }

        // Barriers have followed the staging, so all threads can read the elements.
        let prefix = waiting.and_then(|Staged { tile, count, .. }| {
            look_back.published_prefix_of_block(tile as usize, u64::from(count), |a, b| a + b)
        });
        let before = prefix.unwrap_or(0) as usize;
        if staged.is_some() {
            // The loads of the next tile overlap with the writes of the previous one. An earlier load would delay the
            // blocks that wait for the total of the next tile.
            next = queue.next().map(|tile| tile as u32);
            rows = load_rows(next);
        }
        if let Some(Staged { tile, count, rows, stage }) = waiting {
            let (low, high) = tiling.bounds(tile);
            let first = tiling.first(tile).wrapping_add(low as usize);
            let stage = stages.wrapping_byte_add(stage);
            let staged = if keeps_others { high - low } else { count };
            let mut own_slot = own;
            while own_slot < staged {
                // Several elements are read at once so that their shared memory latencies overlap.
                let mut items = [some; AHEAD];
                each::<AHEAD>(|i| {
                    let slot = own_slot + i as u32 * threads;
                    if slot < staged {
                        // SAFETY: the slot has been written.
                        items[i] = unsafe { stage.add(slot as usize).read() };
                    }
                });
                each::<AHEAD>(|i| {
                    let slot = own_slot + i as u32 * threads;
                    // SAFETY: the prefix counts of selected and of other elements determine this tile's ranges in the
                    // outputs, and each range belongs to one block.
                    unsafe {
                        if slot < count {
                            targets.selected.add(before + slot as usize).write(items[i]);
                        } else if slot < staged {
                            targets.rejected.add(first - before + (slot - count) as usize).write(items[i]);
                        }
                    }
                });
                own_slot += AHEAD as u32 * threads;
            }
            if !targets.indices.is_null() {
                each::<ITEMS>(|row| {
                    let place = tiling.first(tile).wrapping_add(of_thread as usize + row * row_len);
                    let mut rank = before + (rows[row] >> 16) as usize;
                    each::<N>(|i| {
                        if rows[row] >> i & 1 == 1 {
                            // SAFETY: as above.
                            unsafe { targets.indices.add(rank).write(place.wrapping_add(i) as u32) };
                            rank += 1;
                        }
                    });
                });
            }
            if tile as usize + 1 == tiles && own == 0 {
                // SAFETY: exactly one thread of one block reaches this line, and `count` is valid.
                unsafe { targets.count.write(before as u64 + u64::from(count)) };
            }
        }
        waiting = staged;
        if waiting.is_none() {
            return;
        }
    }
}

/// A tile whose elements are staged, as seen by one thread.
#[derive(Clone, Copy)]
struct Staged<const ITEMS: usize> {
    tile: u32,
    /// Number of selected elements in the tile.
    count: u32,
    /// For each row of the thread, the number of preceding selected elements (upper 16 bits) and the selection mask
    /// (lower 16 bits). A tile has fewer than 2^16 elements, and a vector has at most 16.
    rows: [u32; ITEMS],
    /// Offset of the stage, in bytes.
    stage: usize,
}

/// Returns the number of selected elements that precede each of the thread's rows in the tile, and the total number of
/// selected elements.
#[inline(always)]
#[track_caller]
fn ranks<const ITEMS: usize, const N: usize>(chosen: &[u32; ITEMS], lane: u32) -> ([u32; ITEMS], u32) {
    // The warp scans the counts of several rows at once, which are packed in one word. A row has 32 N elements.
    let bits = const { if 32 * N < 1 << 8 { 8 } else { 16 } };
    let of_word = const { if 32 * N < 1 << 8 { 4 } else { 2 } };
    let place = |row: usize| (row / of_word, row % of_word * bits);
    let mut sums = [0_u32; ITEMS];
    each::<ITEMS>(|row| {
        let (word, shift) = place(row);
        sums[word] += chosen[row].count_ones() << shift;
    });
    each::<5>(|step| {
        let distance = 1 << step;
        each::<ITEMS>(|word| {
            if word * of_word < ITEMS {
                let below = warp::shuffle_up(warp::FULL_MASK, sums[word], distance);
                sums[word] += if lane >= distance { below } else { 0 };
            }
        });
    });
    let mut totals = sums;
    each::<ITEMS>(|word| {
        if word * of_word < ITEMS {
            totals[word] = warp::shuffle(warp::FULL_MASK, sums[word], 31);
        }
    });
    let mut of_warp = 0;
    let mut befores = [0_u32; ITEMS];
    each::<ITEMS>(|row| {
        let (word, shift) = place(row);
        let count_of = |sums: u32| sums >> shift & ((1 << bits) - 1);
        befores[row] = of_warp + count_of(sums[word]) - chosen[row].count_ones();
        of_warp += count_of(totals[word]);
    });
    let (warps_below, count) = block::scan_warps(of_warp, |a, b| a + b);
    let warps_below = warps_below.unwrap_or(0);
    each::<ITEMS>(|row| befores[row] += warps_below);
    (befores, count)
}

/// Selects elements by flags. Every nonzero flag byte selects its element.
struct Flagged {
    flags: *const u8,
    /// True if the flags of a vector are aligned so that they can be loaded at once.
    fits: bool,
}

// SAFETY: there are as many flags as there are elements.
unsafe impl<T: Copy, const N: usize> Select<T, N> for Flagged {
    #[inline(always)]
    unsafe fn element(&self, i: usize, _: T) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.flags.add(i).read() != 0 }
    }
    #[inline(always)]
    unsafe fn vector(&self, i: usize, _: [T; N]) -> u32 {
        let mut flags = [0_u8; N];
        if self.fits {
            // SAFETY: guaranteed by the caller.
            flags = unsafe { load(self.flags.add(i)) };
        } else {
            // SAFETY: guaranteed by the caller.
            each::<N>(|lane| flags[lane] = unsafe { self.flags.add(i + lane).read() });
        }
        let mut mask = 0;
        each::<N>(|lane| mask |= u32::from(flags[lane] != 0) << lane);
        mask
    }
}

/// Selects the elements whose keys are inside (or outside) a range.
struct Between<T> {
    transform: KeyTransform<T>,
    first: T,
    /// Difference between the last and the first key. The range is not empty.
    span: T,
    is_inverted: bool,
}

impl<T: Bits> Between<T> {
    #[inline(always)]
    fn new(transform: KeyTransform<T>, first: T, last: T, is_inverted: bool) -> Self {
        if first <= last {
            Self { transform, first, span: last.wrapping_sub(first), is_inverted }
        } else {
            Self { transform, first, span: T::ALL_ONES, is_inverted: !is_inverted }
        }
    }
}

// SAFETY: the implementation reads nothing.
unsafe impl<T: Bits, const N: usize> Select<T, N> for Between<T> {
    #[inline(always)]
    unsafe fn element(&self, _: usize, item: T) -> bool {
        let key = item.transform(self.transform);
        (key.wrapping_sub(self.first) <= self.span) != self.is_inverted
    }
}

/// Defines when two elements are equal.
#[derive(Debug, Clone, Copy)]
struct Equality<T> {
    /// Bits of the magnitude, which are all bits except a float's sign.
    magnitude: T,
    /// Largest magnitude of a number. Larger values are NaN.
    most: T,
}

impl<T: Bits> Equality<T> {
    #[inline(always)]
    fn holds(&self, a: T, b: T) -> bool {
        let is_number = a & self.magnitude <= self.most;
        let are_zero = (a | b) & self.magnitude == T::ZERO;
        ((a == b) & is_number) | are_zero
    }
}

/// Selects the first element of each run of equal elements.
struct First<T> {
    x: *const T,
    equality: Equality<T>,
}

// SAFETY: if an element is not the first of the array, the element before it is also in bounds.
unsafe impl<T: Bits, const N: usize> Select<T, N> for First<T> {
    #[inline(always)]
    unsafe fn element(&self, i: usize, item: T) -> bool {
        // SAFETY: see above.
        i == 0 || !self.equality.holds(unsafe { self.x.add(i - 1).read() }, item)
    }
    #[inline(always)]
    unsafe fn vector(&self, i: usize, items: [T; N]) -> u32 {
        // SAFETY: guaranteed by the caller.
        let mut mask = u32::from(unsafe { Select::<T, N>::element(self, i, items[0]) });
        each::<N>(|lane| {
            if lane > 0 {
                mask |= u32::from(!self.equality.holds(items[lane - 1], items[lane])) << lane;
            }
        });
        mask
    }
}

/// Writes the elements of `x` whose flag is not 0 to `selected`, and writes their number to `count`. If `rejected` is
/// not null, the other elements are written to it.
///
/// # Safety
/// `flags`, `selected` and `rejected` must be valid for as many elements as `x` has, which must be at least one.
/// `workspace` must point to `workspace_len` words that meet the requirements of
/// [`TileQueue::new`](gpu_std::look_back::TileQueue::new) and suffice for the tiles. Nothing else may access the
/// outputs until the launch ends. The block size must be a multiple of 32 threads, and at most 256.
#[kernel(
    types(T = u8, u16, u32, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(256, 3),
    bytes = x.bytes() + flags.bytes()
)]
pub unsafe fn compact_flagged<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    x: &[T],
    flags: &[u8],
    workspace: *mut u64,
    workspace_len: usize,
    selected: *mut T,
    rejected: *mut T,
    count: *mut u64,
) {
    let workspace = (workspace.cast_const(), workspace_len);
    let targets = Targets { selected, indices: core::ptr::null_mut(), rejected, count };
    with_lanes!(lanes::<T>(access::<T>(VECTOR)), N => {
        let head = x.as_ptr().addr() % (N * size_of::<T>()) / size_of::<T>();
        let fits = aligned::<u8, N>(flags.as_ptr().wrapping_sub(head));
        let select = Flagged { flags: flags.as_ptr(), fits };
        // SAFETY: guaranteed by this function's contract.
        unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
    })
}

/// Writes the elements of `x` whose transformed keys are in the range from `first` to `last` (both inclusive) to
/// `selected`, and writes their number to `count`. If `rejected` is not null, the other elements are written to it. If
/// `is_inverted` is set, the elements outside the range are selected instead. Such a range can express any comparison
/// with a number, for any type that has the same size as `T`.
///
/// # Safety
/// The caller must uphold the safety contract of [`compact_flagged()`].
#[kernel(
    types(T = u16, u32, u64),
    consts(ITEMS = 5; VECTOR = 16),
    launch_bounds(256, 3),
    bytes = x.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn compact_compared<T: Bits, const ITEMS: usize, const VECTOR: usize>(
    negative: T,
    always: T,
    first: T,
    last: T,
    is_inverted: bool,
    x: &[T],
    workspace: *mut u64,
    workspace_len: usize,
    selected: *mut T,
    rejected: *mut T,
    count: *mut u64,
) {
    let workspace = (workspace.cast_const(), workspace_len);
    let targets = Targets { selected, indices: core::ptr::null_mut(), rejected, count };
    let select = Between::new(KeyTransform { negative, always, nans: T::ZERO }, first, last, is_inverted);
    with_lanes!(lanes::<T>(VECTOR), N => {
        if const { accesses::<T>(ITEMS) == ITEMS } {
            // SAFETY: guaranteed by this function's contract.
            unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
        } else {
            with_lanes!(accesses::<T>(ITEMS), ROWS => {
                // SAFETY: guaranteed by this function's contract.
                unsafe { compact::<T, ROWS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
            })
        }
    })
}

/// Writes the first element of each run of equal elements of `x` to `selected`, and writes the number of runs to
/// `count`. If `indices` is not null, writes the indices of these elements to it. The bits in `magnitude` form the
/// magnitude of an element. Two elements whose magnitude is 0 are equal, and an element whose magnitude is above `most`
/// does not equal any element. For integers, both parameters must have all bits set.
///
/// # Safety
/// The caller must uphold the safety contract of [`compact_flagged()`], and its conditions for `out` apply to `indices`
/// as well. If `indices` is not null, `x` must have at most 2³² elements.
#[kernel(
    types(T = u16, u32, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(256, 2),
    bytes = x.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn compact_runs<T: Bits, const ITEMS: usize, const VECTOR: usize>(
    magnitude: T,
    most: T,
    x: &[T],
    workspace: *mut u64,
    workspace_len: usize,
    selected: *mut T,
    indices: *mut u32,
    count: *mut u64,
) {
    let workspace = (workspace.cast_const(), workspace_len);
    let targets = Targets { selected, indices, rejected: core::ptr::null_mut(), count };
    let select = First { x: x.as_ptr(), equality: Equality { magnitude, most } };
    with_lanes!(lanes::<T>(VECTOR), N => {
        // SAFETY: guaranteed by this function's contract.
        unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
    })
}

/// Computes `lengths[i] = starts[i + 1] - starts[i]` for each i below `count[0]`. For the last run, `len` takes the
/// place of `starts[i + 1]`.
#[kernel]
pub fn run_lengths(len: u32, count: &[u64], starts: &[u32], mut lengths: DisjointMut<u64>) {
    let runs = count.first().map_or(0, |count| *count as usize);
    for i in thread::grid_stride(runs) {
        let next = if i.get() + 1 < runs { starts.get(i.get() + 1).copied() } else { Some(len) };
        if let (Some(start), Some(next), Some(length)) = (starts.get(i.get()), next, lengths.get_mut(i)) {
            *length = next.wrapping_sub(*start).into();
        }
    }
}
