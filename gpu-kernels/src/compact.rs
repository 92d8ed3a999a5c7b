//! Compaction: elements that are selected, one after the other in their order, and how many there are.
//!
//! One launch each that reads every element once and writes what is selected, by [`gpu_std::look_back`]; blocks have a
//! multiple of 32 threads, 256 at most. A block compacts the selected elements of a tile in shared memory, and writes them
//! contiguously once the prefix of the tile is known. Meanwhile it loads and compacts its next tile.
//!
//! All take a workspace of [`workspace_len`] words, as [`gpu_std::look_back`] describes. The result does not depend on
//! the grid.

use gpu_std::look_back::LookBack;
use gpu_std::prelude::*;
use gpu_std::scan::{Tiling, tile_len};
use gpu_std::vectorized::{each, opaque};

use crate::access::access;
use crate::queue::queue;
use crate::tile::{aligned, lanes, load, with_lanes};
use crate::twist::{Bits, Twist};

pub use gpu_std::look_back::workspace_len;

/// Bytes of shared memory for a tile: of 256 threads with four accesses of 16 bytes.
const STAGE_BYTES: usize = 256 * 4 * 16;

/// Elements that a thread writes at once.
const AHEAD: usize = 4;

/// Which elements are selected.
///
/// # Safety
///
/// The methods read within the elements that they are given alone.
unsafe trait Select<T: Copy, const N: usize> {
    /// Whether element `i`, which is `item`, is selected.
    ///
    /// # Safety
    ///
    /// It is below the length.
    unsafe fn element(&self, i: usize, item: T) -> bool;

    /// The same of elements `i` to `i + N`, the first in the lowest bit.
    ///
    /// # Safety
    ///
    /// They are below the length, and the first is aligned to a vector.
    #[inline(always)]
    unsafe fn vector(&self, i: usize, items: [T; N]) -> u32 {
        let mut mask = 0;
        each::<N>(|lane| {
            // SAFETY: the caller's promise.
            mask |= u32::from(unsafe { self.element(i + lane, items[lane]) }) << lane;
        });
        mask
    }
}

/// What is written: the selected elements, where they were (or null), the others (or null), and the number of the selected
/// ones. All but the last are as long as the input.
#[derive(Clone, Copy)]
struct Targets<T> {
    selected: *mut T,
    places: *mut u32,
    rejected: *mut T,
    count: *mut u64,
}

/// The common body of the kernels below, over the first `len` elements of `x`.
///
/// # Safety
///
/// `x` and `targets` are valid for `len` elements, `len` is 2³² at most if `places` is not null, `workspace` is as
/// [`TileQueue::new`](gpu_std::look_back::TileQueue::new) requires, and nothing else uses any of it until the launch ends. Blocks have
/// a multiple of 32 threads, 256 at most.
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
    // Those of a tile that is written, and of the next one.
    let stages: *mut T = shared_array![u128; 2 * (STAGE_BYTES / 16)].cast();
    let head = x.addr() % (N * size_of::<T>()) / size_of::<T>();
    let tiling = Tiling { len, head, tile_len };
    let tiles = tiling.tiles();
    // SAFETY: by this function's contract.
    let mut queue = unsafe { queue(workspace, tiles) };
    // SAFETY: as above.
    let look_back = unsafe { LookBack::<u64>::new(&queue) };
    let (own, lane) = (thread::linear_in_block(), warp::lane_id());
    let of_thread = (own / 32 * ITEMS as u32 * 32 + lane) * N as u32;
    let row_len = 32 * N;
    let keeps_others = !targets.rejected.is_null();
    // A tile that is staged, and not written.
    let mut waiting: Option<Staged<ITEMS>> = None;
    let mut next_stage = 0;
    loop {
        // There is no memory for 2^32 tiles.
        let next = queue.next().map(|tile| tile as u32);
        let (low, high) = tiling.bounds(next.unwrap_or(0));
        let is_whole = tiling.is_whole((low, high));
        // The thread's first element of the tile; that of the first tile may be before the array.
        let start = tiling.first(next.unwrap_or(0)).wrapping_add(of_thread as usize);
        // SAFETY: the array has an element.
        let mut rows = [[unsafe { x.read() }; N]; ITEMS];
        if next.is_some() && is_whole {
            each::<ITEMS>(|row| {
                // SAFETY: the whole tile lies within the array, which is aligned `head` elements before its first.
                rows[row] = unsafe { load(x.add(start + row * row_len)) };
            });
        }
        if own < 32
            && let Some(Staged { tile, count, .. }) = waiting
        {
            look_back.close(tile as usize, u64::from(count), |a, b| a + b);
        }

        let mut staged = None;
        if let Some(tile) = next {
            // Bit i for element i of a vector: whether it is selected.
            let mut chosen = [0_u32; ITEMS];
            each::<ITEMS>(|row| {
                let in_row = row * row_len;
                if is_whole {
                    // SAFETY: the whole tile lies within the array.
                    chosen[row] = unsafe { select.vector(start + in_row, rows[row]) };
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
            let (befores, count) = ranks(&chosen, lane);
            if own < 32 {
                look_back.publish(tile as usize, u64::from(count));
            }
            // Selected elements first, the others after them, if they are requested. The tile before the last was written: a
            // barrier of the ranks is behind it.
            let stage = stages.wrapping_byte_add(next_stage);
            // Both at once where elements are narrow: their vectors stay packed in registers then.
            let together = const { size_of::<T>() < 4 };
            each::<ITEMS>(|row| {
                // Of the tile's elements: those of other vectors wrap.
                let place = (of_thread + (row * row_len) as u32).wrapping_sub(low);
                let mut rank = befores[row];
                each::<N>(|i| {
                    let is_chosen = chosen[row] >> i & 1 == 1;
                    let in_tile = place.wrapping_add(i as u32);
                    if is_chosen || (together && keeps_others && in_tile < high - low) {
                        let slot = if is_chosen { rank } else { count + in_tile - rank };
                        // SAFETY: selected elements have the ranks below `count`, the others those from there on, of
                        // which a tile has no more than elements; each is of one thread.
                        unsafe { stage.add(slot as usize).write(rows[row][i]) };
                    }
                    rank += u32::from(is_chosen);
                });
            });
            if keeps_others && !together {
                each::<ITEMS>(|row| {
                    let place = (of_thread + (row * row_len) as u32).wrapping_sub(low);
                    // The compiler would keep what the loop above knows of each element.
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
            let mut rows = befores;
            each::<ITEMS>(|row| rows[row] = befores[row] << 16 | chosen[row]);
            staged = Some(Staged { tile, count, rows, stage: next_stage });
            next_stage = STAGE_BYTES - next_stage;
        }

        if let Some(Staged { tile, count, rows, stage }) = waiting {
            let (low, high) = tiling.bounds(tile);
            let first = tiling.first(tile).wrapping_add(low as usize);
            let stage = stages.wrapping_byte_add(stage);
            // Barriers since they were staged let all threads read them.
            let prefix = look_back.published_prefix_of_block(tile as usize, u64::from(count), |a, b| a + b);
            let before = prefix.unwrap_or(0) as usize;
            if next.is_some() {
                queue.prefetch();
            }
            let staged = if keeps_others { high - low } else { count };
            let mut own_slot = own;
            while own_slot < staged {
                // Several at a time, so that they wait for shared memory together.
                // SAFETY: the array has an element.
                let mut items = [unsafe { x.read() }; AHEAD];
                each::<AHEAD>(|i| {
                    let slot = own_slot + i as u32 * threads;
                    if slot < staged {
                        // SAFETY: the slot was written.
                        items[i] = unsafe { stage.add(slot as usize).read() };
                    }
                });
                each::<AHEAD>(|i| {
                    let slot = own_slot + i as u32 * threads;
                    // SAFETY: the numbers of selected and of other elements before this tile are those of this tile's places
                    // in the outputs, of which each is of one block.
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
            if !targets.places.is_null() {
                each::<ITEMS>(|row| {
                    let place = tiling.first(tile).wrapping_add(of_thread as usize + row * row_len);
                    let mut rank = before + (rows[row] >> 16) as usize;
                    each::<N>(|i| {
                        if rows[row] >> i & 1 == 1 {
                            // SAFETY: as above.
                            unsafe { targets.places.add(rank).write(place.wrapping_add(i) as u32) };
                            rank += 1;
                        }
                    });
                });
            }
            if tile as usize + 1 == tiles && own == 0 {
                // SAFETY: one thread of one block gets here, and `count` is valid.
                unsafe { targets.count.write(before as u64 + u64::from(count)) };
            }
        }
        waiting = staged;
        if waiting.is_none() {
            return;
        }
    }
}

/// A tile whose elements are brought together, as a thread knows it.
#[derive(Clone, Copy)]
struct Staged<const ITEMS: usize> {
    tile: u32,
    /// Selected elements.
    count: u32,
    /// Of each row of the thread: how many selected elements are before it, in the upper 16 bits, and which of it are, in the
    /// lower. No tile has 2^16 elements, and no vector more than 16.
    rows: [u32; ITEMS],
    /// Where they are staged, in bytes.
    stage: usize,
}

/// How many selected elements of the tile are before those of each row of the thread, and how many there are.
#[inline(always)]
#[track_caller]
fn ranks<const ITEMS: usize>(chosen: &[u32; ITEMS], lane: u32) -> ([u32; ITEMS], u32) {
    let mut sums = [0_u32; ITEMS];
    each::<ITEMS>(|row| sums[row] = chosen[row].count_ones());
    each::<5>(|step| {
        let distance = 1 << step;
        each::<ITEMS>(|row| {
            let below = warp::shuffle_up(warp::FULL_MASK, sums[row], distance);
            sums[row] += if lane >= distance { below } else { 0 };
        });
    });
    let mut of_warp = 0;
    let mut befores = [0_u32; ITEMS];
    each::<ITEMS>(|row| {
        befores[row] = of_warp + sums[row] - chosen[row].count_ones();
        of_warp += warp::shuffle(warp::FULL_MASK, sums[row], 31);
    });
    let (warps_below, count) = block::scan_warps(of_warp, |a, b| a + b);
    let warps_below = warps_below.unwrap_or(0);
    each::<ITEMS>(|row| befores[row] += warps_below);
    (befores, count)
}

/// Selects by flags, of which every byte but 0 selects.
struct Flagged {
    flags: *const u8,
    /// Whether the flags of a vector are aligned to be read at once.
    fits: bool,
}

// SAFETY: the flags are as many as the elements.
unsafe impl<T: Copy, const N: usize> Select<T, N> for Flagged {
    #[inline(always)]
    unsafe fn element(&self, i: usize, _: T) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.flags.add(i).read() != 0 }
    }
    #[inline(always)]
    unsafe fn vector(&self, i: usize, _: [T; N]) -> u32 {
        let mut flags = [0_u8; N];
        if self.fits {
            // SAFETY: the caller's promise.
            flags = unsafe { load(self.flags.add(i)) };
        } else {
            // SAFETY: the caller's promise.
            each::<N>(|lane| flags[lane] = unsafe { self.flags.add(i + lane).read() });
        }
        let mut mask = 0;
        each::<N>(|lane| mask |= u32::from(flags[lane] != 0) << lane);
        mask
    }
}

/// Selects what has its key in a range, or what has not.
struct Between<T> {
    twist: Twist<T>,
    first: T,
    last: T,
    is_inverted: bool,
}

// SAFETY: it reads nothing.
unsafe impl<T: Bits, const N: usize> Select<T, N> for Between<T> {
    #[inline(always)]
    unsafe fn element(&self, _: usize, item: T) -> bool {
        let key = item.twist(self.twist);
        ((key >= self.first) & (key <= self.last)) != self.is_inverted
    }
}

/// What makes two elements equal.
#[derive(Debug, Clone, Copy)]
struct Equality<T> {
    /// The bits of a magnitude: all but a float's sign.
    magnitude: T,
    /// The greatest magnitude of a number: what is above is NaN.
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

/// Selects the first element of each run of equal ones.
struct First<T> {
    x: *const T,
    equality: Equality<T>,
}

// SAFETY: the element before one that is not the first is below the length too.
unsafe impl<T: Bits, const N: usize> Select<T, N> for First<T> {
    #[inline(always)]
    unsafe fn element(&self, i: usize, item: T) -> bool {
        // SAFETY: see above.
        i == 0 || !self.equality.holds(unsafe { self.x.add(i - 1).read() }, item)
    }
    #[inline(always)]
    unsafe fn vector(&self, i: usize, items: [T; N]) -> u32 {
        // SAFETY: the caller's promise.
        let mut mask = u32::from(unsafe { Select::<T, N>::element(self, i, items[0]) });
        each::<N>(|lane| {
            if lane > 0 {
                mask |= u32::from(!self.equality.holds(items[lane - 1], items[lane])) << lane;
            }
        });
        mask
    }
}

/// Writes the elements of `x` whose flag is not 0 to `selected` and their number to `count`; the others to `rejected`,
/// unless that is null.
///
/// # Safety
///
/// `flags`, `selected` and `rejected` are valid for as many elements as `x` has, at least one; `workspace` points to
/// `workspace_len` words that are as [`TileQueue::new`](gpu_std::look_back::TileQueue::new) requires, enough for the tiles.
/// Nothing else uses what is written until the launch ends. Blocks have a multiple of 32 threads, 256 at most.
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
    let targets = Targets { selected, places: core::ptr::null_mut(), rejected, count };
    with_lanes!(lanes::<T>(access::<T>(VECTOR)), N => {
        let head = x.as_ptr().addr() % (N * size_of::<T>()) / size_of::<T>();
        let fits = aligned::<u8, N>(flags.as_ptr().wrapping_sub(head));
        let select = Flagged { flags: flags.as_ptr(), fits };
        // SAFETY: by this function's contract.
        unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
    })
}

/// Writes the elements of `x` whose key, which is what the twist makes of them, is from `first` to `last`, both included, to
/// `selected` and their number to `count`; the others to `rejected`, unless that is null. With `is_inverted`, selected are
/// those whose key is not. Any comparison with a number is such a range, of any type of the size of `T`.
///
/// # Safety
///
/// As [`compact_flagged()`].
#[kernel(
    types(T = u16, u32, u64),
    consts(ITEMS = 4; VECTOR = 16),
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
    let targets = Targets { selected, places: core::ptr::null_mut(), rejected, count };
    let select = Between { twist: Twist { negative, always, nans: T::ZERO }, first, last, is_inverted };
    with_lanes!(lanes::<T>(VECTOR), N => {
        // SAFETY: by this function's contract.
        unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
    })
}

/// Writes the first element of each run of equal ones of `x` to `selected`, their number to `count`, and their places to
/// `places`, unless that is null. The bits `magnitude` of an element are its magnitude: two that have none are equal, and one
/// that has more than `most` equals nothing. For integers both have all bits.
///
/// # Safety
///
/// As [`compact_flagged()`], of `places` too; `x` has 2³² elements at most if it is not null.
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
    places: *mut u32,
    count: *mut u64,
) {
    let workspace = (workspace.cast_const(), workspace_len);
    let targets = Targets { selected, places, rejected: core::ptr::null_mut(), count };
    let select = First { x: x.as_ptr(), equality: Equality { magnitude, most } };
    with_lanes!(lanes::<T>(VECTOR), N => {
        // SAFETY: by this function's contract.
        unsafe { compact::<T, ITEMS, N>((x.as_ptr(), x.len()), select, workspace, targets) }
    })
}

/// `lengths[i] = starts[i + 1] - starts[i]` for each i below `count[0]`, with `len` after the last start.
#[kernel]
pub fn run_lengths(len: u32, count: &[u64], starts: &[u32], mut lengths: DisjointMut<u32>) {
    let runs = count.first().map_or(0, |count| *count as usize);
    for i in thread::grid_stride(runs) {
        let next = if i.get() + 1 < runs { starts.get(i.get() + 1).copied() } else { Some(len) };
        if let (Some(start), Some(next), Some(length)) = (starts.get(i.get()), next, lengths.get_mut(i)) {
            *length = next.wrapping_sub(*start);
        }
    }
}
