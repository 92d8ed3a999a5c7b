//! Scans of whole arrays in one launch: what scans, scans by key and a user's own consist of.
//!
//! [`#[scan]`](macro@crate::scan) makes an associative operator such a kernel, in one line. [`scan_slice`] is what its
//! kernels consist of; [`scan()`] is for kernels that do more, of several arrays.
//!
//! A scan reads each element once and writes each result once. A tile is `ITEMS` rows of vectors of `N` elements a
//! thread, warp after warp: a row of a warp is 32 neighbouring vectors, so that all accesses are of whole lines. A thread
//! adds up its vectors, the lanes of the warp scan their rows by shuffles, the warps of the block their totals in shared
//! memory, and the blocks theirs by [look-back](crate::look_back).
//!
//! The order in which elements are combined depends only on the length, the alignment of the first element, the threads of
//! a block, `ITEMS` and `N`: so do the bits of the result. It is a tree in which neighbours are joined: an operation that
//! is associative, or nearly as sums of floats are, need not commute.

use crate::atomic::Atomic;
use crate::disjoint::{DisjointMut, Unclaimed};
use crate::element::KernelType;
use crate::look_back::{LookBack, TileQueue, check};
use crate::vectorized::{aligned, each, lanes, load, opaque, store, with_lanes};
use crate::warp::{self, WARP_SIZE};
use crate::{block, shared_array, thread};

#[cfg(not(target_arch = "nvptx64"))]
pub use crate::family::Scan;

/// An associative operation.
pub trait Operation {
    /// An element as it is loaded.
    type Item: Copy;
    /// What elements are combined in.
    type Value: KernelType;
    /// A result.
    type Output: Copy;

    /// An item of which [`value`](Self::value) makes [`identity`](Self::identity), for the ends of the array.
    fn absent() -> Self::Item;
    /// The value with which every other combines to itself, every bit of it.
    fn identity() -> Self::Value;
    /// The element's value.
    fn value(item: Self::Item) -> Self::Value;
    /// Combines neighbours, in their order.
    fn combine(a: Self::Value, b: Self::Value) -> Self::Value;
    /// The result that a value stands for.
    fn output(value: Self::Value) -> Self::Output;
}

/// The array that a [`scan()`] reads, and the one that it writes.
///
/// Elements are counted from `head` elements before the first one: where `N` of them from there on are aligned to a vector.
///
/// # Safety
///
/// The methods need no more than the preconditions that they state.
pub unsafe trait Arrays<O: Operation, const N: usize> {
    /// Elements of the array.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements between an aligned address and the first one; less than `N`.
    fn head(&self) -> usize;

    /// Elements `i` to `i + N`.
    ///
    /// # Safety
    ///
    /// They are below the length, and `i + head` is a multiple of `N`.
    unsafe fn load_vector(&self, i: usize) -> [O::Item; N];

    /// Element `i`.
    ///
    /// # Safety
    ///
    /// It is below the length.
    unsafe fn load(&self, i: usize) -> O::Item;

    /// Writes results `i` to `i + N`.
    ///
    /// # Safety
    ///
    /// As [`load_vector`](Self::load_vector); no other thread reads or writes these elements.
    unsafe fn store_vector(&self, i: usize, values: [O::Value; N]);

    /// Writes result `i`.
    ///
    /// # Safety
    ///
    /// It is below the length; no other thread reads or writes this element.
    unsafe fn store(&self, i: usize, value: O::Value);
}

/// Elements of a tile of a [`scan()`] by blocks of `threads`.
#[inline(always)]
pub const fn tile_len(threads: usize, items: usize, lanes: usize) -> usize {
    threads * items * lanes
}

/// Tiles of a [`scan()`]: see [`tile_len`].
#[inline(always)]
pub const fn tiles(len: usize, head: usize, tile_len: usize) -> usize {
    if len == 0 { 0 } else { (head + len).div_ceil(tile_len) }
}

/// How an array is cut into tiles that begin where vectors do: places are counted from `head` elements before the first, as many as
/// the address of that has beyond a multiple of a vector's size.
#[derive(Debug, Clone, Copy)]
pub struct Tiling {
    /// Elements.
    pub len: usize,
    /// Places before the first.
    pub head: usize,
    /// Places of a tile: see [`tile_len`].
    pub tile_len: u32,
}

impl Tiling {
    /// How many there are.
    #[inline(always)]
    pub const fn tiles(&self) -> usize {
        tiles(self.len, self.head, self.tile_len as usize)
    }

    /// The places of a tile that have elements, from the tile's begin: the first, and the one behind the last.
    #[inline(always)]
    pub const fn bounds(&self, tile: u32) -> (u32, u32) {
        let (head, tile_len) = (self.head, self.tile_len);
        let left = head + self.len - tile as usize * tile_len as usize;
        (
            if tile == 0 { head as u32 } else { 0 },
            if left < tile_len as usize { left as u32 } else { tile_len },
        )
    }

    /// Whether all places of a tile with these bounds have elements.
    #[inline(always)]
    pub const fn is_whole(&self, bounds: (u32, u32)) -> bool {
        bounds.0 == 0 && bounds.1 == self.tile_len
    }

    /// The element at the begin of a tile; that of the first tile wraps to before the array.
    #[inline(always)]
    pub const fn first(&self, tile: u32) -> usize {
        (tile as usize * self.tile_len as usize).wrapping_sub(self.head)
    }
}

/// Tiles of a scan of `len` elements of `bytes` at any alignment, by accesses of `vector` bytes.
pub const fn most_tiles(len: usize, bytes: usize, threads: usize, items: usize, vector: usize) -> usize {
    let lanes = crate::vectorized::lanes_of(bytes, vector);
    tiles(len, lanes - 1, tile_len(threads, rows(bytes, items), lanes))
}

/// Accesses of a thread in a tile of [`scan_slice`], of `ITEMS`: half as many of elements of less and of more than 4 bytes, where
/// they can be halved. These take more registers, and blocks would not fit.
const fn rows(bytes: usize, items: usize) -> usize {
    if bytes != 4 && items > 1 && items.is_power_of_two() { items / 2 } else { items }
}

/// One array, and one of results that is as long.
struct Slices<O: Operation> {
    x: *const O::Item,
    out: *mut O::Output,
    len: usize,
    head: usize,
    /// Whether the output is aligned to vectors where the input is.
    out_fits: bool,
}

// SAFETY: `scan_slice` makes it of arrays of `len` elements.
unsafe impl<O: Operation, const N: usize> Arrays<O, N> for Slices<O> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }
    #[inline(always)]
    fn head(&self) -> usize {
        self.head
    }
    #[inline(always)]
    unsafe fn load_vector(&self, i: usize) -> [O::Item; N] {
        // SAFETY: the caller's promise.
        unsafe { load(self.x.add(i)) }
    }
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> O::Item {
        // SAFETY: the caller's promise.
        unsafe { self.x.add(i).read() }
    }
    #[inline(always)]
    unsafe fn store_vector(&self, i: usize, values: [O::Value; N]) {
        let mut results = [O::output(values[0]); N];
        each::<N>(|lane| {
            if lane > 0 {
                results[lane] = O::output(values[lane]);
            }
        });
        // SAFETY: the caller's promise; the address is aligned where `i + head` is a multiple of `N`.
        unsafe {
            if self.out_fits {
                store(self.out.add(i), results);
            } else {
                each::<N>(|lane| self.out.add(i + lane).write(results[lane]));
            }
        }
    }
    #[inline(always)]
    unsafe fn store(&self, i: usize, value: O::Value) {
        // SAFETY: the caller's promise.
        unsafe { self.out.add(i).write(O::output(value)) }
    }
}

/// Scans `x` to `out`, up to the length of the shorter: the results are those of [`scan()`], of `initial` too where they are
/// exclusive. `workspace` is its begin and its words.
///
/// All threads of all blocks call it, once in a launch; blocks have a multiple of 32 threads.
///
/// # Safety
///
/// Blocks have at most 256 threads. The workspace is as [`TileQueue::new`] requires for the [`most_tiles`] of the length, with
/// the words of [`workspace_len`](crate::look_back::workspace_len) for values of `O::Value`; nothing else uses it or `out`
/// until the launch ends.
#[inline(always)]
#[track_caller]
pub unsafe fn scan_slice<O: Operation, const ITEMS: usize, const VECTOR: usize>(
    exclusive: bool,
    initial: O::Value,
    x: &[O::Item],
    (workspace, workspace_len): (*mut u64, usize),
    mut out: DisjointMut<'_, O::Output, Unclaimed>,
) {
    let len = if x.len() < out.len() { x.len() } else { out.len() };
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
    // SAFETY: by this function's contract; an atomic has the layout of its number.
    let workspace =
        unsafe { core::slice::from_raw_parts(workspace.cast_const().cast::<Atomic<u64>>(), workspace_len) };
    let initial = if exclusive { initial } else { O::identity() };
    with_lanes!(lanes::<O::Item>(VECTOR), N => {
        let head = x.addr() % (N * size_of::<O::Item>()) / size_of::<O::Item>();
        let out_fits = aligned::<O::Output, N>(out.wrapping_sub(head));
        let slices = Slices::<O> { x, out, len, head, out_fits };
        let of_thread = const { rows(size_of::<O::Item>(), ITEMS) };
        let tiles = tiles(len, head, tile_len(block::threads() as usize, of_thread, N));
        // SAFETY: by this function's contract.
        unsafe {
            let mut queue = TileQueue::new(workspace, tiles);
            if const { rows(size_of::<O::Item>(), ITEMS) == ITEMS } {
                scan::<O, ITEMS, N>(&slices, &mut queue, initial, exclusive);
            } else {
                with_lanes!(rows(size_of::<O::Item>(), ITEMS), ROWS => {
                    scan::<O, ROWS, N>(&slices, &mut queue, initial, exclusive)
                });
            }
        }
    })
}

/// Writes `initial` combined with the elements up to and including each one, or, if `exclusive`, before it.
///
/// All threads of all blocks call it, once in a launch; blocks have a multiple of 32 threads. `queue` is of the
/// [`tiles`] of the array, and no tile of it was taken.
///
/// # Safety
///
/// Blocks have at most 256 threads. The queue's workspace has the words of [`workspace_len`](crate::look_back::workspace_len) for values of `O::Value`.
///
/// # Panics
///
/// On the emulated device, if the block has not a multiple of 32 threads up to 256, or the workspace is too small.
#[inline(always)]
#[track_caller]
pub unsafe fn scan<O: Operation, const ITEMS: usize, const N: usize>(
    arrays: &impl Arrays<O, N>,
    queue: &mut TileQueue<'_>,
    initial: O::Value,
    exclusive: bool,
) {
    let threads = block::threads();
    check(threads.is_multiple_of(WARP_SIZE), "a scan takes blocks of a multiple of 32 threads");
    check(threads as usize <= MOST_THREADS, "a scan takes blocks of up to 256 threads");
    // SAFETY: by this function's contract.
    let look_back = unsafe { LookBack::<O::Value>::new(queue) };
    let (own, lane) = (thread::linear_in_block(), warp::lane_id());
    let tile_len = tile_len(threads as usize, ITEMS, N) as u32;
    let tiling = Tiling { len: arrays.len(), head: arrays.head(), tile_len };
    let of_thread = (own / WARP_SIZE * ITEMS as u32 * WARP_SIZE + lane) * N as u32;
    let row_len = WARP_SIZE as usize * N;

    let read = |bounds: (u32, u32), first: usize| {
        let mut rows = [[O::absent(); N]; ITEMS];
        each::<ITEMS>(|row| {
            let in_row = row * row_len;
            if tiling.is_whole(bounds) {
                // SAFETY: the whole tile lies within the array; the thread's place and rows are multiples of `N`.
                rows[row] = unsafe { arrays.load_vector(first + in_row) };
            } else {
                each::<N>(|i| {
                    let place = of_thread + (in_row + i) as u32;
                    if place >= bounds.0 && place < bounds.1 {
                        // SAFETY: just checked.
                        rows[row][i] = unsafe { arrays.load(first.wrapping_add(in_row + i)) };
                    }
                });
            }
        });
        rows
    };
    // The thread's first element of a tile; that of the first may be before the array.
    let first = |tile: u32| tiling.first(tile).wrapping_add(of_thread as usize);

    // Where a thread keeps a row of its elements, so that they take no registers while the block waits for others, and are not read
    // from memory twice: of the tile that waits, and of the next one.
    let stages: *mut u128 = if const { is_kept::<O, ITEMS, N>() } {
        shared_array![u128; 2 * MOST_ROWS * MOST_THREADS]
    } else {
        core::ptr::null_mut()
    };
    let slot = |stage: usize, row: usize| -> *mut O::Item {
        stages.wrapping_add((stage * ITEMS + row) * threads as usize + own as usize).cast()
    };
    let mut stage = 0;

    // A tile whose total is published, and whose results are not written: what it waits for comes while the next one is read.
    let mut waiting: Option<Found<O::Value, ITEMS>> = None;
    loop {
        // There is no memory for 2^32 tiles.
        let next = queue.next().map(|tile| tile as u32);
        let mut rows = [[O::absent(); N]; ITEMS];
        if let Some(tile) = next {
            rows = read(tiling.bounds(tile), first(tile));
        }
        if own < WARP_SIZE
            && let Some(waiting) = &waiting
        {
            look_back.close(waiting.tile as usize, waiting.total, O::combine);
        }
        let mut found = None;
        if let Some(tile) = next {
            if const { is_kept::<O, ITEMS, N>() } {
                // SAFETY: the slots are the thread's own, and there are some for `MOST_ROWS` of `MOST_THREADS`.
                each::<ITEMS>(|row| unsafe { store(slot(stage, row), rows[row]) });
            }
            let scanned = Found::of::<O, N>(tile, rows);
            if own < WARP_SIZE {
                look_back.publish(tile as usize, scanned.total);
            }
            found = Some(scanned);
        }

        if let Some(Found { tile, total, befores }) = waiting {
            let prefix = look_back.published_prefix_of_block(tile as usize, total, O::combine);
            if next.is_some() {
                queue.prefetch();
            }
            let mut before = initial;
            if let Some(prefix) = prefix {
                before = O::combine(before, prefix);
            }
            let (bounds, first) = (tiling.bounds(tile), opaque(first(tile)));
            let mut rows = [[O::absent(); N]; ITEMS];
            if const { is_kept::<O, ITEMS, N>() } {
                each::<ITEMS>(|row| {
                    // SAFETY: the thread's own slot, which it has written.
                    rows[row] = unsafe { load(slot(1 - stage, row)) };
                });
            } else {
                rows = read(bounds, first);
            }
            each::<ITEMS>(|row| {
                let before = O::combine(before, befores[row]);
                let mut values = [before; N];
                let mut within = O::identity();
                each::<N>(|i| {
                    let value = O::value(rows[row][i]);
                    if exclusive && i > 0 {
                        values[i] = O::combine(before, within);
                    }
                    within = if i == 0 { value } else { O::combine(within, value) };
                    if !exclusive {
                        values[i] = O::combine(before, within);
                    }
                });
                let in_row = row * row_len;
                if tiling.is_whole(bounds) {
                    // SAFETY: as for the loads; the tile is the block's alone.
                    unsafe { arrays.store_vector(first + in_row, values) };
                } else {
                    each::<N>(|i| {
                        let place = of_thread + (in_row + i) as u32;
                        if place >= bounds.0 && place < bounds.1 {
                            // SAFETY: just checked; the tile is the block's alone.
                            unsafe { arrays.store(first.wrapping_add(in_row + i), values[i]) };
                        }
                    });
                }
            });
        }
        waiting = found;
        stage = 1 - stage;
        if waiting.is_none() {
            return;
        }
    }
}

/// The most threads of a block, and the most rows of a thread that are kept in shared memory.
const MOST_THREADS: usize = 256;
const MOST_ROWS: usize = 4;

/// Whether rows are kept in shared memory; others are read again.
const fn is_kept<O: Operation, const ITEMS: usize, const N: usize>() -> bool {
    size_of::<[O::Item; N]>() <= 16 && ITEMS <= MOST_ROWS
}

/// What a thread knows of a tile.
struct Found<V, const ITEMS: usize> {
    tile: u32,
    /// What the tile combines to.
    total: V,
    /// What comes in the tile before the thread's vector in each row.
    befores: [V; ITEMS],
}

impl<V: KernelType, const ITEMS: usize> Found<V, ITEMS> {
    /// Of the rows of a tile, by all threads of the block.
    #[inline(always)]
    #[track_caller]
    fn of<O: Operation<Value = V>, const N: usize>(tile: u32, rows: [[O::Item; N]; ITEMS]) -> Self {
        let lane = warp::lane_id();
        let mut totals = [O::identity(); ITEMS];
        each::<ITEMS>(|row| {
            let mut total = O::value(rows[row][0]);
            each::<N>(|i| {
                if i > 0 {
                    total = O::combine(total, O::value(rows[row][i]));
                }
            });
            totals[row] = total;
        });
        each::<5>(|step| {
            let distance = 1 << step;
            each::<ITEMS>(|row| {
                let below = warp::shuffle_up(warp::FULL_MASK, totals[row], distance);
                if lane >= distance {
                    totals[row] = O::combine(below, totals[row]);
                }
            });
        });
        let mut befores = [O::identity(); ITEMS];
        let mut of_warp = O::identity();
        each::<ITEMS>(|row| {
            let below = warp::shuffle_up(warp::FULL_MASK, totals[row], 1);
            let of_row = warp::shuffle(warp::FULL_MASK, totals[row], WARP_SIZE - 1);
            befores[row] = if lane == 0 { of_warp } else { O::combine(of_warp, below) };
            of_warp = O::combine(of_warp, of_row);
        });
        let (warps_below, total) = block::scan_warps(of_warp, O::combine);
        if let Some(warps_below) = warps_below {
            each::<ITEMS>(|row| befores[row] = O::combine(warps_below, befores[row]));
        }
        Self { tile, total, befores }
    }
}
