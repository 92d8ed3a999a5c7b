//! `transpose`: rows become columns, of one matrix or of many of one shape.
//!
//! A block takes square tiles of 16-byte accesses. A thread reads as many rows as an access has elements, turns that
//! square in its registers, and writes its rows to shared memory as accesses; these are spread over the banks by an
//! exclusive or, so that neither side has a conflict. Where rows are not aligned to 16 bytes, and at the edges, a tile
//! is read or written element by element, neighbouring threads with neighbouring elements.

use core::mem::MaybeUninit;
use core::num::NonZeroUsize;

use gpu_std::prelude::*;

use crate::tile::{each, in_first_row, load, store, with_lanes};

/// Accesses of 16 bytes in a row of a tile.
const fn chunks(size: usize) -> usize {
    // A tile of bytes with 16 would be 64 KiB.
    if size == 1 { 8 } else { 16 }
}

/// Threads of a block: one for each square of accesses in a tile.
pub const fn threads(size: usize) -> u32 {
    (chunks(size) * chunks(size)) as u32
}

/// Elements of a side of a tile.
pub const fn side(size: usize) -> usize {
    chunks(size) * (16 / size)
}

/// Shared memory for a tile: of bytes and of four 16 KiB, of two 32, of eight 8, of sixteen 4.
#[inline(always)]
fn shared_tile<T>() -> *mut T {
    // A static cannot depend on `T`. Of these, a kernel has the one that it uses.
    match const { side(size_of::<T>()) * side(size_of::<T>()) * size_of::<T>() } {
        4096 => shared_array![u128; 256].cast(),
        8192 => shared_array![u128; 512].cast(),
        16384 => shared_array![u128; 1024].cast(),
        _ => shared_array![u128; 2048].cast(),
    }
}

/// Matrices in memory.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Matrices {
    /// Matrices.
    pub count: u64,
    /// Rows of each, as they are read.
    pub rows: u64,
    /// Elements of a row, as they are read.
    pub columns: u64,
    /// Elements from row to row and from matrix to matrix, as they are read.
    pub from: [u64; 2],
    /// The same, as they are written.
    pub to: [u64; 2],
}

/// `to[m][column][row] = from[m][row][column]`, by element size.
///
/// # Safety
///
/// The launch is one-dimensional, in blocks of [`threads`] threads. `from` and `to` are valid for the elements that `shape`
/// says, and do not overlap; nothing else writes `from` or uses `to` until the launch ends.
#[kernel(
    types(T = u8, u16, u32, u64, u128),
    launch_bounds(256, 1),
    bytes = 2 * shape.count as usize * shape.rows as usize * shape.columns as usize * size_of::<T>()
)]
pub unsafe fn transpose<T: KernelType>(shape: Matrices, from: *const T, to: *mut T) {
    if !in_first_row() {
        return;
    }
    let tile = shared_tile::<T>();
    let (rows, columns) = (shape.rows as usize, shape.columns as usize);
    let side = const { side(size_of::<T>()) };
    let (down, across) = (rows.div_ceil(side), columns.div_ceil(side));
    let tiles = shape.count as usize * down * across;
    let is_aligned = |address: usize, strides: [u64; 2]| {
        let of_strides =
            (strides[0] | if shape.count > 1 { strides[1] } else { 0 }) as usize * size_of::<T>();
        (address | of_strides).is_multiple_of(16)
    };
    let (reads, writes) = (is_aligned(from.addr(), shape.from), is_aligned(to.addr(), shape.to));
    let mut index = thread::block_idx_x() as usize;
    while index < tiles {
        // SAFETY: there is a tile.
        let (down, across) =
            unsafe { (NonZeroUsize::new_unchecked(down), NonZeroUsize::new_unchecked(across)) };
        let (above, left) = (index / across, index % across * side);
        let (matrix, top) = (above / down, above % down * side);
        // SAFETY: the tile begins within the matrix, by this function's contract.
        unsafe {
            let source = from.add(matrix * shape.from[1] as usize + top * shape.from[0] as usize + left);
            let target = to.add(matrix * shape.to[1] as usize + left * shape.to[0] as usize + top);
            let place = Tile { height: (rows - top).min(side), width: (columns - left).min(side) };
            let is_whole = place.height == side && place.width == side;
            with_lanes!(16 / size_of::<T>(), N => {
                if reads && is_whole {
                    read_squares::<T, N>(source, shape.from[0] as usize, tile);
                } else {
                    read_elements::<T, N>(source, shape.from[0] as usize, place, tile);
                }
                thread::sync_threads();
                if writes && is_whole {
                    write_accesses::<T, N>(tile, target, shape.to[0] as usize);
                } else {
                    write_elements::<T, N>(tile, target, shape.to[0] as usize, place);
                }
            });
        }
        thread::sync_threads();
        index += thread::grid_dim_x() as usize;
    }
}

/// The part of a tile that lies in the matrix.
#[derive(Clone, Copy)]
struct Tile {
    /// Rows as they are read.
    height: usize,
    /// Elements of a row as they are read.
    width: usize,
}

/// Where element `row` of column `column` lies in a turned tile: accesses of `N` elements of one column follow each other,
/// and begin elsewhere in each group of `N` columns.
#[inline(always)]
fn place<const N: usize>(size: usize, column: usize, row: usize) -> usize {
    let chunk = (row / N) ^ ((column / N) % 8);
    (column * chunks(size) + chunk) * N + row % N
}

/// Reads a whole tile, aligned, and turns it in squares.
#[inline(always)]
unsafe fn read_squares<T: KernelType, const N: usize>(source: *const T, pitch: usize, tile: *mut T) {
    let (chunks, thread) = (const { chunks(size_of::<T>()) }, thread::thread_idx_x() as usize);
    let (across, down) = (thread % chunks, thread / chunks);
    // SAFETY: zeros are a value of a `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut square = [[zero; N]; N];
    // SAFETY: within the tile, and aligned.
    each::<N>(|row| square[row] = unsafe { load(source.add((down * N + row) * pitch + across * N)) });
    each::<N>(|column| {
        let mut turned = [zero; N];
        each::<N>(|row| turned[row] = square[row][column]);
        let at = place::<N>(size_of::<T>(), across * N + column, down * N);
        // SAFETY: this thread's own, within the tile, and aligned.
        unsafe { store(tile.add(at), turned) };
    });
}

/// Elements that a thread has on the way at once.
const AHEAD: usize = 8;

/// Moves the elements below `count`: each thread reads some, then writes them. `address` gives where an element is read and
/// written, or `None` of one that is not moved.
///
/// # Safety
///
/// What it gives is valid, and no element is written twice.
#[inline(always)]
unsafe fn move_elements<T: KernelType>(count: usize, address: impl Fn(usize) -> Option<(*const T, *mut T)>) {
    let threads = thread::block_dim_x() as usize;
    let mut first = thread::thread_idx_x() as usize;
    while first < count {
        // SAFETY: zeros are a value of a `KernelType`.
        let mut values: [T; AHEAD] = unsafe { MaybeUninit::zeroed().assume_init() };
        let place = |i: usize| address(first + i * threads).filter(|_| first + i * threads < count);
        each::<AHEAD>(|i| {
            if let Some((from, _)) = place(i) {
                // SAFETY: by this function's contract.
                values[i] = unsafe { from.read() };
            }
        });
        each::<AHEAD>(|i| {
            if let Some((_, to)) = place(i) {
                // SAFETY: as above.
                unsafe { to.write(values[i]) };
            }
        });
        first += AHEAD * threads;
    }
}

/// Reads what there is of a tile, element by element.
#[inline(always)]
unsafe fn read_elements<T: KernelType, const N: usize>(
    source: *const T,
    pitch: usize,
    part: Tile,
    tile: *mut T,
) {
    let side = const { side(size_of::<T>()) };
    // SAFETY: within the matrix and the tile; each element is one thread's.
    unsafe {
        move_elements(side * part.height, |element| {
            let (row, column) = (element / side, element % side);
            let from = source.wrapping_add(row * pitch + column);
            let to = tile.wrapping_add(place::<N>(size_of::<T>(), column, row));
            (column < part.width).then_some((from, to))
        });
    }
}

/// Writes a whole tile, aligned.
#[inline(always)]
unsafe fn write_accesses<T: KernelType, const N: usize>(tile: *const T, target: *mut T, pitch: usize) {
    let (chunks, thread) = (const { chunks(size_of::<T>()) }, thread::thread_idx_x() as usize);
    let (across, down) = (thread % chunks, thread / chunks);
    // All are read before the first is written: they wait for shared memory together.
    // SAFETY: zeros are a value of a `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut values = [[zero; N]; N];
    each::<N>(|part| {
        let at = place::<N>(size_of::<T>(), down + part * chunks, across * N);
        // SAFETY: within the tile, and aligned.
        values[part] = unsafe { load(tile.add(at)) };
    });
    each::<N>(|part| {
        // SAFETY: within the tile of the output, aligned, and this thread's own.
        unsafe { store(target.add((down + part * chunks) * pitch + across * N), values[part]) };
    });
}

/// Writes what there is of a tile, element by element.
#[inline(always)]
unsafe fn write_elements<T: KernelType, const N: usize>(
    tile: *const T,
    target: *mut T,
    pitch: usize,
    part: Tile,
) {
    let side = const { side(size_of::<T>()) };
    // SAFETY: within the tile and the matrix; each element is one thread's.
    unsafe {
        move_elements(side * part.width, |element| {
            let (column, row) = (element / side, element % side);
            let from = tile.wrapping_add(place::<N>(size_of::<T>(), column, row));
            (row < part.height).then_some((from, target.wrapping_add(column * pitch + row)))
        });
    }
}
