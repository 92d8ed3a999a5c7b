//! `transpose`: transposes one matrix, or a batch of matrices of the same shape.
//!
//! A block processes square tiles with 16-byte accesses. If an access has n elements, each thread reads one access from
//! each of n rows. It transposes this square in registers, and writes each resulting row to shared memory in one
//! access. An XOR swizzle distributes the accesses over the banks, so that neither reads nor writes have bank
//! conflicts.
//!
//! If a tile is at an edge or its rows are not aligned to 16 bytes, it is moved element by element, with adjacent
//! threads accessing adjacent elements. The output rows of such a tile start on 32-byte sector boundaries. Otherwise,
//! two blocks would write parts of the same sector, which takes twice as long. For this alignment, each tile reads a
//! few more rows than its own.

use core::mem::MaybeUninit;
use core::num::NonZeroUsize;

use gpu_std::prelude::*;
use gpu_std::shared::{copy_async, wait_copies};

use crate::tile::{each, in_first_row, load, store, with_lanes};

/// Returns the number of 16-byte accesses per row of a tile.
const fn chunks(size: usize) -> usize {
    // A tile of bytes with 16 accesses per row would take 64 KiB.
    if size == 1 { 8 } else { 16 }
}

/// Returns the number of threads per block. Each thread moves one square of accesses in a tile.
pub const fn threads(size: usize) -> u32 {
    (chunks(size) * chunks(size)) as u32
}

/// Returns the side length of a tile, in elements.
pub const fn side(size: usize) -> usize {
    chunks(size) * (16 / size)
}

/// Returns the number of elements per sector. The rows of an unaligned tile are shifted by at most one sector.
const fn sector(size: usize) -> usize {
    32 / size
}

/// Returns the row pitch, in elements, of a tile that is moved element by element. With this pitch, elements of one
/// column in adjacent rows are in adjacent banks, or in every second bank.
const fn pitch(size: usize) -> usize {
    side(size) + if size < 4 { 4 / size } else { 1 }
}

/// Returns how many threads move one row of a tile, if the tile is moved element by element. The other threads move
/// other rows.
const fn in_row(size: usize) -> usize {
    let threads = threads(size) as usize;
    if threads < side(size) { threads } else { side(size) }
}

/// Returns the shared memory for a tile. Both methods of moving a tile use it.
#[inline(always)]
fn shared_tile<T>() -> *mut T {
    const fn accesses(size: usize) -> usize {
        ((side(size) + sector(size)) * pitch(size) * size).div_ceil(16)
    }
    // A static cannot depend on `T`, so there is one static per size. The kernel contains only the static that it uses.
    match const { size_of::<T>() } {
        1 => shared_array![u128; accesses(1)].cast(),
        2 => shared_array![u128; accesses(2)].cast(),
        4 => shared_array![u128; accesses(4)].cast(),
        8 => shared_array![u128; accesses(8)].cast(),
        _ => shared_array![u128; accesses(16)].cast(),
    }
}

/// A batch of matrices in memory.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Matrices {
    /// Number of matrices.
    pub count: u64,
    /// Number of rows per source matrix.
    pub rows: u64,
    /// Number of elements per source row.
    pub columns: u64,
    /// Row stride and matrix stride of the source, in elements.
    pub from: [u64; 2],
    /// Row stride and matrix stride of the destination, in elements.
    pub to: [u64; 2],
}

/// Computes `to[m][column][row] = from[m][row][column]`, with one instance per element size.
///
/// # Safety
///
/// The launch must be one-dimensional, with blocks of [`threads`] threads. `from` and `to` must be valid for the
/// elements that `shape` describes, and must not overlap. Nothing else may write `from` or access `to` until the launch
/// ends.
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
        // SAFETY: both are nonzero if there is at least one tile.
        let (down, across) =
            unsafe { (NonZeroUsize::new_unchecked(down), NonZeroUsize::new_unchecked(across)) };
        let (above, left) = (index / across, index % across * side);
        let (matrix, top) = (above / down, above % down * side);
        // SAFETY: the tile starts within the matrix, by this function's contract.
        unsafe {
            let source = from.add(matrix * shape.from[1] as usize + top * shape.from[0] as usize + left);
            let target = to.add(matrix * shape.to[1] as usize + left * shape.to[0] as usize + top);
            let (height, width) = ((rows - top).min(side), (columns - left).min(side));
            let pitches = (shape.from[0] as usize, shape.to[0] as usize);
            with_lanes!(16 / size_of::<T>(), N => {
                if reads && writes && height == side && width == side {
                    read_squares::<T, N>(source, pitches.0, tile);
                    thread::sync_threads();
                    write_accesses::<T, N>(tile, target, pitches.1);
                } else {
                    let part = Part { rows: rows - top, width, is_first: top == 0, is_shifted: !writes };
                    move_elements(source, target, pitches, part, tile);
                }
            });
        }
        thread::sync_threads();
        index += thread::grid_dim_x() as usize;
    }
}

/// Returns the swizzled index, in a transposed tile, of element `row` of column `column`. The `N`-element accesses of
/// one column are consecutive, and start at a different position for each group of `N` columns.
#[inline(always)]
fn place<const N: usize>(size: usize, column: usize, row: usize) -> usize {
    let chunk = (row / N) ^ ((column / N) % 8);
    (column * chunks(size) + chunk) * N + row % N
}

/// Reads a whole, aligned tile, and transposes it in squares.
#[inline(always)]
unsafe fn read_squares<T: KernelType, const N: usize>(source: *const T, pitch: usize, tile: *mut T) {
    let (chunks, thread) = (const { chunks(size_of::<T>()) }, thread::thread_idx_x() as usize);
    let (across, down) = (thread % chunks, thread / chunks);
    // SAFETY: all zeros is a valid value of any `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut square = [[zero; N]; N];
    // SAFETY: the access is within the tile and aligned.
    each::<N>(|row| square[row] = unsafe { load(source.add((down * N + row) * pitch + across * N)) });
    each::<N>(|column| {
        let mut turned = [zero; N];
        each::<N>(|row| turned[row] = square[row][column]);
        let at = place::<N>(size_of::<T>(), across * N + column, down * N);
        // SAFETY: the access belongs to this thread, is within the tile, and is aligned.
        unsafe { store(tile.add(at), turned) };
    });
}

/// Number of elements that a thread writes at once.
const AHEAD: usize = 8;

/// Bounds of a tile that is partial or unaligned.
#[derive(Clone, Copy)]
struct Part {
    /// Number of rows of the matrix, starting at the tile's first row.
    rows: usize,
    /// Number of elements per row of the tile.
    width: usize,
    /// True if the tile is the first in its rows.
    is_first: bool,
    /// True if the output rows start at the first sector boundary of the tile and end within the first sector after the
    /// tile.
    is_shifted: bool,
}

/// Moves a tile element by element.
///
/// # Safety
///
/// `source` and `target` must be valid for the tile within the bounds of `part`, and nothing else may access the memory
/// of the tile. All threads of the block must call this function.
#[inline(always)]
unsafe fn move_elements<T: KernelType>(
    source: *const T,
    target: *mut T,
    pitches: (usize, usize),
    part: Part,
    tile: *mut T,
) {
    let (side, sector, pitch) =
        const { (side(size_of::<T>()), sector(size_of::<T>()), pitch(size_of::<T>())) };
    let (in_row, step) =
        const { (in_row(size_of::<T>()), threads(size_of::<T>()) as usize / in_row(size_of::<T>())) };
    let thread = thread::thread_idx_x() as usize;
    let (x, y) = (thread % in_row, thread / in_row);
    // SAFETY: all zeros is a valid value of any `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };

    let beyond = if part.is_shifted { sector } else { 0 };
    let height = part.rows.min(side + beyond);
    let mut column = x;
    while column < part.width {
        let (mut row, mut from) = (y, source.wrapping_add(y * pitches.0 + column));
        while row < height {
            // SAFETY: the access is within the matrix and the tile, and each element belongs to one thread.
            unsafe { copy_async(from, tile.add(row * pitch + column)) };
            from = from.wrapping_add(step * pitches.0);
            row += step;
        }
        column += in_row;
    }
    wait_copies();
    thread::sync_threads();

    // In each row, the loop writes the elements from the first sector boundary on. In the first tile, the loop also
    // writes the elements before that boundary.
    let most = if part.is_first { side + beyond } else { side };
    let mut first = x;
    while first < most {
        let (mut column, mut to) = (y, target.wrapping_add(y * pitches.1));
        while column < part.width {
            let mut values = [zero; AHEAD];
            let start = to;
            let range = |to: *mut T| {
                let shift =
                    if part.is_shifted { (to.addr() / size_of::<T>()).wrapping_neg() % sector } else { 0 };
                (if part.is_first { first } else { first + shift }, (side + shift).min(part.rows))
            };
            each::<AHEAD>(|i| {
                let (row, end) = range(to);
                if column + i * step < part.width && row < end {
                    // SAFETY: the slot was written before the barrier.
                    values[i] = unsafe { tile.add(row * pitch + column + i * step).read() };
                }
                to = to.wrapping_add(step * pitches.1);
            });
            to = start;
            each::<AHEAD>(|i| {
                let (row, end) = range(to);
                if column + i * step < part.width && row < end {
                    // SAFETY: the element is within the matrix. The distance between tiles is a multiple of a sector,
                    // so a row has the same shift in all tiles, and each element belongs to only one tile.
                    unsafe { to.add(row).write(values[i]) };
                }
                to = to.wrapping_add(step * pitches.1);
            });
            column += AHEAD * step;
        }
        first += in_row;
    }
}

/// Writes a whole, aligned tile.
#[inline(always)]
unsafe fn write_accesses<T: KernelType, const N: usize>(tile: *const T, target: *mut T, pitch: usize) {
    let (chunks, thread) = (const { chunks(size_of::<T>()) }, thread::thread_idx_x() as usize);
    let (across, down) = (thread % chunks, thread / chunks);
    // All accesses are read before the first one is written, so that their shared memory latencies overlap. SAFETY: all
    // zeros is a valid value of any `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut values = [[zero; N]; N];
    each::<N>(|part| {
        let at = place::<N>(size_of::<T>(), down + part * chunks, across * N);
        // SAFETY: the access is within the tile and aligned.
        values[part] = unsafe { load(tile.add(at)) };
    });
    each::<N>(|part| {
        // SAFETY: the access is within the tile of the output, is aligned, and belongs to this thread.
        unsafe { store(target.add((down + part * chunks) * pitch + across * N), values[part]) };
    });
}
