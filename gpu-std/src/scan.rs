//! Single-pass scans of whole arrays, for `#[scan]` and handwritten kernels.
//!
//! [`#[scan]`](macro@crate::scan) generates a scan kernel from an associative operator. The generated kernels call
//! [`scan_slice`]. Use [`scan()`] for kernels that do more, such as scans of several arrays.
//!
//! A scan reads each element once and writes each result once. In each tile, a thread processes `ITEMS` vectors of `N`
//! elements, one per row. The warps' parts of a tile follow one another. A row of a warp consists of 32 adjacent
//! vectors, so that all accesses cover whole cache lines. Each thread combines the elements of its vectors. The lanes
//! of a warp scan their rows with shuffles, and the warps of a block scan their totals in shared memory. The blocks
//! scan their totals by [decoupled look-back](crate::look_back).
//!
//! The combination order, and therefore every bit of the result, depends only on the length, the alignment of the first
//! element, the number of threads per block, `ITEMS` and `N`. The operation must be associative, at least approximately
//! (like float addition). It need not be commutative, because the combination tree joins only neighbors.
//!
//! # Example
//! The running sum of an array:
//!
//! ```
//! use gpu_std::disjoint::Unclaimed;
//! use gpu_std::look_back::workspace_len;
//! use gpu_std::prelude::*;
//! use gpu_std::scan::{Operation, max_tiles, scan_slice};
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
//!
//! struct Sum;
//!
//! impl Operation for Sum {
//!     type Item = u32;
//!     type Value = u32;
//!     type Output = u32;
//!
//!     fn absent() -> u32 {
//!         0
//!     }
//!     fn identity() -> u32 {
//!         0
//!     }
//!     fn value(item: u32) -> u32 {
//!         item
//!     }
//!     fn combine(a: u32, b: u32) -> u32 {
//!         a.wrapping_add(b)
//!     }
//!     fn output(value: u32) -> u32 {
//!         value
//!     }
//! }
//!
//! /// # Safety
//! /// The requirements of [`scan_slice`] apply.
//! #[kernel(block(64))]
//! unsafe fn running_sum(x: &[u32], workspace: *mut u64, words: usize, out: DisjointMut<u32, Unclaimed>) {
//!     // SAFETY: guaranteed by the caller.
//!     unsafe { scan_slice::<Sum, 4, 16>(false, 0, x, (workspace, words), out) }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let x = DeviceBuffer::from_host(&stream, &[1_u32, 2, 3, 4])?;
//! let mut out = DeviceBuffer::<u32>::zeros(&stream, 4)?;
//! let words = workspace_len(4, max_tiles(4, 4, 64, 4, 16));
//! let mut workspace = DeviceBuffer::<u64>::zeros(&stream, words)?;
//! let args = (&x, &mut workspace, words, &mut out);
//! // SAFETY: the workspace is zeroed and large enough.
//! unsafe { module.kernel::<running_sum>()?.launch_unsafe(&stream, Launch::grid_block(2, 64), args)? };
//! assert_eq!(out.to_host()?, [1, 3, 6, 10]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

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
///
/// See the [example](self#example).
pub trait Operation {
    /// Type of an element as loaded from memory.
    type Item: Copy;
    /// Type in which elements are combined.
    type Value: KernelType;
    /// Type of a result.
    type Output: Copy;

    /// Returns an item whose [`value`](Self::value) is [`identity`](Self::identity), for positions outside the array.
    fn absent() -> Self::Item;
    /// Returns the identity. Combining it with any value must return the bit-identical value.
    fn identity() -> Self::Value;
    /// Returns the value of an element.
    fn value(item: Self::Item) -> Self::Value;
    /// Combines two adjacent values, in the order of their elements.
    fn combine(a: Self::Value, b: Self::Value) -> Self::Value;
    /// Converts a combined value to a result.
    fn output(value: Self::Value) -> Self::Output;
}

/// The input and output arrays of a [`scan()`].
///
/// Position 0 is `head` elements before the first element, at an address that is aligned for vectors of `N` elements.
///
/// ```
/// use gpu_std::atomic::Atomic;
/// use gpu_std::look_back::{TileQueue, workspace_len};
/// use gpu_std::prelude::*;
/// use gpu_std::scan::{Arrays, Operation, scan, tile_len, tiles};
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
/// # struct Sum;
/// #
/// # impl Operation for Sum {
/// #     type Item = u32;
/// #     type Value = u32;
/// #     type Output = u32;
/// #
/// #     fn absent() -> u32 {
/// #         0
/// #     }
/// #     fn identity() -> u32 {
/// #         0
/// #     }
/// #     fn value(item: u32) -> u32 {
/// #         item
/// #     }
/// #     fn combine(a: u32, b: u32) -> u32 {
/// #         a.wrapping_add(b)
/// #     }
/// #     fn output(value: u32) -> u32 {
/// #         value
/// #     }
/// # }
///
/// /// The running sum of the products of two arrays, with one element per access.
/// struct Products {
///     x: *const u32,
///     y: *const u32,
///     out: *mut u32,
///     len: usize,
/// }
///
/// // SAFETY: the methods access only the elements that their callers name.
/// unsafe impl Arrays<Sum, 1> for Products {
///     fn len(&self) -> usize {
///         self.len
///     }
///     fn head(&self) -> usize {
///         0
///     }
///     unsafe fn load_vector(&self, i: usize) -> [u32; 1] {
///         // SAFETY: guaranteed by the caller.
///         unsafe { [self.load(i)] }
///     }
///     unsafe fn load(&self, i: usize) -> u32 {
///         // SAFETY: guaranteed by the caller.
///         unsafe { self.x.add(i).read().wrapping_mul(self.y.add(i).read()) }
///     }
///     unsafe fn store_vector(&self, i: usize, [value]: [u32; 1]) {
///         // SAFETY: guaranteed by the caller.
///         unsafe { self.store(i, value) }
///     }
///     unsafe fn store(&self, i: usize, value: u32) {
///         // SAFETY: guaranteed by the caller.
///         unsafe { self.out.add(i).write(value) }
///     }
/// }
///
/// /// # Safety
/// /// `y` and `out` must be as long as `x`, and the workspace must meet the requirements of [`scan()`].
/// #[kernel(block(64))]
/// unsafe fn scan_products(x: &[u32], y: *const u32, workspace: &[Atomic<u64>], out: *mut u32) {
///     let products = Products { x: x.as_ptr(), y, out, len: x.len() };
///     // SAFETY: guaranteed by the caller.
///     unsafe {
///         let mut queue = TileQueue::new(workspace, tiles(x.len(), 0, tile_len(64, 4, 1)));
///         scan::<Sum, 4, 1>(&products, &mut queue, 0, false);
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let x = DeviceBuffer::from_host(&stream, &[1_u32, 2, 3])?;
/// let y = DeviceBuffer::from_host(&stream, &[10_u32, 10, 100])?;
/// let mut out = DeviceBuffer::<u32>::zeros(&stream, 3)?;
/// let mut workspace = DeviceBuffer::<u64>::zeros(&stream, workspace_len(4, 1))?;
/// let args = (&x, &y, &mut workspace, &mut out);
/// // SAFETY: all arrays have 3 elements; the workspace is zeroed and large enough for one tile.
/// unsafe { module.kernel::<scan_products>()?.launch_unsafe(&stream, Launch::grid_block(1, 64), args)? };
/// assert_eq!(out.to_host()?, [10, 30, 330]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Safety
/// The methods must not have preconditions other than those stated here.
pub unsafe trait Arrays<O: Operation, const N: usize> {
    /// Returns the number of elements.
    fn len(&self) -> usize;

    /// Returns true if there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements between the last aligned address and the first element, from 0 to `N` − 1.
    fn head(&self) -> usize;

    /// Loads elements `i..i + N`.
    ///
    /// # Safety
    /// The elements must be in bounds, and `i + head` must be a multiple of `N`.
    unsafe fn load_vector(&self, i: usize) -> [O::Item; N];

    /// Loads element `i`.
    ///
    /// # Safety
    /// `i` must be less than the length.
    unsafe fn load(&self, i: usize) -> O::Item;

    /// Writes results `i..i + N`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`load_vector`](Self::load_vector), and no other thread may read
    /// or write these results.
    unsafe fn store_vector(&self, i: usize, values: [O::Value; N]);

    /// Writes result `i`.
    ///
    /// # Safety
    /// `i` must be less than the length, and no other thread may read or write this result.
    unsafe fn store(&self, i: usize, value: O::Value);
}

/// Returns the number of elements per tile in a [`scan()`] whose blocks have `threads` threads.
#[inline(always)]
pub const fn tile_len(threads: usize, items: usize, lanes: usize) -> usize {
    threads * items * lanes
}

/// Returns the number of tiles of a [`scan()`]; see [`tile_len`] for their length.
#[inline(always)]
pub const fn tiles(len: usize, head: usize, tile_len: usize) -> usize {
    if len == 0 { 0 } else { (head + len).div_ceil(tile_len) }
}

/// Divides an array into tiles that start at aligned vectors. Position 0 is `head` elements before the first element,
/// at the last address that is aligned to the vector size.
///
/// ```
/// use gpu_std::scan::Tiling;
///
/// // 100 elements in tiles of 64, of which the first starts at the second position of a vector.
/// let tiling = Tiling { len: 100, head: 1, tile_len: 64 };
/// assert_eq!(tiling.tiles(), 2);
/// assert_eq!((tiling.bounds(0), tiling.bounds(1)), ((1, 64), (0, 37)));
/// assert_eq!(tiling.first(1), 63);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Tiling {
    /// Number of elements.
    pub len: usize,
    /// Number of positions before the first element.
    pub head: usize,
    /// Number of positions per tile (see [`tile_len`]).
    pub tile_len: u32,
}

impl Tiling {
    /// Returns the number of tiles.
    #[inline(always)]
    pub const fn tiles(&self) -> usize {
        tiles(self.len, self.head, self.tile_len as usize)
    }

    /// Returns the range of positions in a tile that contain elements, relative to the tile's start: the first
    /// position, and one past the last.
    #[inline(always)]
    pub const fn bounds(&self, tile: u32) -> (u32, u32) {
        let (head, tile_len) = (self.head, self.tile_len);
        let left = head + self.len - tile as usize * tile_len as usize;
        (
            if tile == 0 { head as u32 } else { 0 },
            if left < tile_len as usize { left as u32 } else { tile_len },
        )
    }

    /// Returns true if a tile with these bounds is full, that is, if every position in it contains an element.
    #[inline(always)]
    pub const fn is_whole(&self, bounds: (u32, u32)) -> bool {
        bounds.0 == 0 && bounds.1 == self.tile_len
    }

    /// Returns the index of the element at the start of a tile. For the first tile, the index may wrap because the
    /// position lies before the array.
    #[inline(always)]
    pub const fn first(&self, tile: u32) -> usize {
        (tile as usize * self.tile_len as usize).wrapping_sub(self.head)
    }
}

/// Returns the maximum number of tiles, over all alignments, in a scan of `len` elements. Each element has `bytes`
/// bytes, and each access covers `vector` bytes.
pub const fn max_tiles(len: usize, bytes: usize, threads: usize, items: usize, vector: usize) -> usize {
    let lanes = crate::vectorized::lanes_of(bytes, vector);
    tiles(len, lanes - 1, tile_len(threads, rows(bytes, items), lanes))
}

/// Returns the number of accesses per thread and tile of [`scan_slice`], computed from `ITEMS`. Elements of other sizes
/// than 4 bytes take more registers or code, so threads make at most four accesses of smaller elements, and half as many
/// of larger ones, if that is a power of two.
const fn rows(bytes: usize, items: usize) -> usize {
    if bytes > 4 && (items / 2).is_power_of_two() {
        items / 2
    } else if bytes < 4 && items == MAX_ROWS {
        items - 1
    } else {
        items
    }
}

/// An input array and an output array of the same length.
struct Slices<O: Operation> {
    x: *const O::Item,
    out: *mut O::Output,
    len: usize,
    head: usize,
    /// True if the vectors of the input and of the output start at the same elements.
    out_fits: bool,
}

// SAFETY: `scan_slice` creates the value from arrays of `len` elements.
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
        // SAFETY: guaranteed by the caller.
        unsafe { load(self.x.add(i)) }
    }
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> O::Item {
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller; the address is aligned because `i + head` is a multiple of `N`.
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
        // SAFETY: guaranteed by the caller.
        unsafe { self.out.add(i).write(O::output(value)) }
    }
}

/// Scans `x` into `out`, up to the length of the shorter array. The results equal those of [`scan()`]. Exclusive
/// results include `initial`. `workspace` is a pointer to the workspace and its length in words.
///
/// All threads of all blocks must call the function once per launch. The block size must be a multiple of 32 threads.
///
/// See the [example](self#example).
///
/// # Safety
/// Blocks must have at most 256 threads. The workspace must meet the requirements of [`TileQueue::new`] for the
/// [`max_tiles`] of the length. It must contain [`workspace_len`](crate::look_back::workspace_len) words for values of
/// type `O::Value`. Nothing else may use the workspace or `out` until the launch ends.
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
    // SAFETY: guaranteed by this function's contract; an atomic has the same layout as the number that it contains.
    let workspace =
        unsafe { core::slice::from_raw_parts(workspace.cast_const().cast::<Atomic<u64>>(), workspace_len) };
    let initial = if exclusive { initial } else { O::identity() };
    with_lanes!(lanes::<O::Item>(VECTOR), N => {
        let head = x.addr() % (N * size_of::<O::Item>()) / size_of::<O::Item>();
        let out_fits = aligned::<O::Output, N>(out.wrapping_sub(head));
        let slices = Slices::<O> { x, out, len, head, out_fits };
        let of_thread = const { rows(size_of::<O::Item>(), ITEMS) };
        let tiles = tiles(len, head, tile_len(block::threads() as usize, of_thread, N));
        // SAFETY: guaranteed by this function's contract.
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

/// Scans an array. Each result combines `initial` with the elements up to and including its own position, or only
/// before it if `exclusive` is true.
///
/// All threads of all blocks must call the function once per launch. The block size must be a multiple of 32 threads.
/// `queue` must cover the [`tiles`] of the array, and no tile may have been taken from it yet.
///
/// See the example of [`Arrays`].
///
/// # Safety
/// Blocks must have at most 256 threads. The queue's workspace must contain
/// [`workspace_len`](crate::look_back::workspace_len) words for values of type `O::Value`.
///
/// # Panics
/// Panics on the emulated device if the block size is not a multiple of 32 or exceeds 256, or if the workspace is too
/// small.
#[inline(always)]
#[track_caller]
pub unsafe fn scan<O: Operation, const ITEMS: usize, const N: usize>(
    arrays: &impl Arrays<O, N>,
    queue: &mut TileQueue<'_>,
    initial: O::Value,
    exclusive: bool,
) {
    let threads = block::threads();
    check(threads.is_multiple_of(WARP_SIZE), "the block size of a scan must be a multiple of 32 threads");
    check(threads as usize <= MAX_THREADS, "the block size of a scan can be at most 256 threads");
    // SAFETY: guaranteed by this function's contract.
    let look_back = unsafe { LookBack::<O::Value>::new(queue) };
    let (own, lane) = (thread::linear_in_block(), warp::lane_id());
    let tile_len = tile_len(threads as usize, ITEMS, N) as u32;
    let tiling = Tiling { len: arrays.len(), head: arrays.head(), tile_len };
    let of_thread = (own / WARP_SIZE * ITEMS as u32 * WARP_SIZE + lane) * N as u32;
    let row_len = WARP_SIZE as usize * N;

    // True if the tile, which is partial, contains the thread's whole vector of this row.
    let has_vector = |bounds: (u32, u32), row: usize| {
        let place = of_thread + (row * row_len) as u32;
        N == 4 && place >= bounds.0 && place + N as u32 <= bounds.1
    };
    let read = |bounds: (u32, u32), first: usize| {
        let mut rows = [[O::absent(); N]; ITEMS];
        each::<ITEMS>(|row| {
            let in_row = row * row_len;
            if tiling.is_whole(bounds) {
                // SAFETY: the whole tile lies within the array, and the thread's position and the rows are multiples of
                // `N`.
                rows[row] = unsafe { arrays.load_vector(first + in_row) };
            } else if has_vector(bounds, row) {
                // SAFETY: the vector lies within the array.
                rows[row] = unsafe { arrays.load_vector(first.wrapping_add(in_row)) };
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
    // The thread's first element of a tile. In the first tile, this element may lie before the array.
    let first = |tile: u32| tiling.first(tile).wrapping_add(of_thread as usize);

    // Shared memory in which a thread stores its rows of elements for two tiles: the waiting tile and the next one. The
    // rows then take no registers while the block waits for other blocks, and are not loaded from global memory twice.
    let stages: *mut u128 = if const { is_kept::<O, ITEMS, N>() } {
        shared_array![u128; 2 * MAX_ROWS * MAX_THREADS]
    } else {
        core::ptr::null_mut()
    };
    let slot = |stage: usize, row: usize| -> *mut O::Item {
        stages.wrapping_add((stage * ITEMS + row) * threads as usize + own as usize).cast()
    };
    let mut stage = 0;

    // The tile whose total is published but whose results are not yet stored. Its prefix arrives while the block loads
    // the next tile.
    let mut waiting: Option<Found<O::Value, ITEMS>> = None;
    loop {
        // No array has 2^32 tiles.
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
                // SAFETY: the slots belong to this thread, and there are `MAX_ROWS` slots for each of `MAX_THREADS`
                // threads.
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
                    // SAFETY: the slot belongs to this thread, which has written it.
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
                    // SAFETY: as for the loads; only this block owns the tile.
                    unsafe { arrays.store_vector(first + in_row, values) };
                } else if has_vector(bounds, row) {
                    // SAFETY: the vector lies within the array; only this block owns the tile.
                    unsafe { arrays.store_vector(first.wrapping_add(in_row), values) };
                } else {
                    each::<N>(|i| {
                        let place = of_thread + (in_row + i) as u32;
                        if place >= bounds.0 && place < bounds.1 {
                            // SAFETY: the position was just checked; only this block owns the tile.
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

/// Maximum number of threads per block, and maximum number of rows per thread that are kept in shared memory.
const MAX_THREADS: usize = 256;
const MAX_ROWS: usize = 5;

/// Returns true if rows are kept in shared memory. Rows that are not kept are loaded again.
const fn is_kept<O: Operation, const ITEMS: usize, const N: usize>() -> bool {
    size_of::<[O::Item; N]>() <= 16 && ITEMS <= MAX_ROWS
}

/// A thread's intermediate results for a tile.
struct Found<V, const ITEMS: usize> {
    tile: u32,
    /// Combined value of the whole tile.
    total: V,
    /// For each row, the exclusive prefix of the thread's vector within the tile.
    befores: [V; ITEMS],
}

impl<V: KernelType, const ITEMS: usize> Found<V, ITEMS> {
    /// Scans the rows of a tile with all threads of the block.
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
