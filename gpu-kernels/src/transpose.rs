//! Transposes of one matrix, or of a batch of matrices of the same shape.
//!
//! [`transpose_tiles()`] requires aligned matrices whose sides are multiples of a tile's side. A block processes square
//! tiles with 16-byte accesses. If an access has n elements, each thread reads one access from each of n rows. It
//! transposes this square in registers, and writes each resulting row to shared memory in one access. An XOR swizzle
//! distributes the accesses over the banks, so that neither reads nor writes have bank conflicts.
//!
//! [`transpose_strips()`] supports any matrix. A block processes a segment of a narrow strip of columns from top to
//! bottom. In each step, the block loads 32 rows into a ring in shared memory, and writes 32 elements to each output
//! row. These writes start at a different row for each output row, so that they cover whole, aligned lines of 128 bytes.
//! The ring therefore holds the rows of two steps, and the rows whose loads are in flight. At the ends of segments, the
//! writes cover whole sectors of 32 bytes, for which each segment loads up to one sector of rows more than its own.

use core::mem::MaybeUninit;
use core::num::NonZeroUsize;

use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, copy_async, wait_copies_leaving};

use crate::tile::{each, in_first_row, lanewise, load, opaque, store, with_lanes};

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

/// Returns shared memory for the number of elements that `$len` returns for the element size.
macro_rules! shared_elements {
    ($t:ty, $len:ident) => {{
        const fn accesses(size: usize) -> usize {
            ($len(size) * size).div_ceil(16)
        }
        // A static cannot depend on `T`, so there is one static per size. The kernel contains only the static that it
        // uses.
        let memory: *mut $t = match const { size_of::<$t>() } {
            1 => shared_array![u128; accesses(1)].cast(),
            2 => shared_array![u128; accesses(2)].cast(),
            4 => shared_array![u128; accesses(4)].cast(),
            8 => shared_array![u128; accesses(8)].cast(),
            _ => shared_array![u128; accesses(16)].cast(),
        };
        memory
    }};
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
/// The launch must be one-dimensional, with blocks of [`threads`] threads. `from` and `to` must be valid for the
/// elements that `shape` describes, and must not overlap. Nothing else may write `from` or access `to` until the launch
/// ends. Both addresses and all strides must be multiples of 16 bytes, and the numbers of rows and columns must be
/// multiples of [`side`].
#[kernel(
    types(T = u8, u16, u32, u64, u128),
    launch_bounds(256, 1),
    bytes = 2 * shape.count as usize * shape.rows as usize * shape.columns as usize * size_of::<T>()
)]
pub unsafe fn transpose_tiles<T: KernelType>(shape: Matrices, from: *const T, to: *mut T) {
    const fn len(size: usize) -> usize {
        side(size) * side(size)
    }
    if !in_first_row() {
        return;
    }
    let tile = shared_elements!(T, len);
    let side = const { side(size_of::<T>()) };
    let (down, across) = (shape.rows as usize / side, shape.columns as usize / side);
    let tiles = shape.count as usize * down * across;
    let mut index = thread::block_idx_x() as usize;
    while index < tiles {
        // SAFETY: both are nonzero if there is at least one tile.
        let (down, across) =
            unsafe { (NonZeroUsize::new_unchecked(down), NonZeroUsize::new_unchecked(across)) };
        let (above, left) = (index / across, index % across * side);
        let (matrix, top) = (above / down, above % down * side);
        // SAFETY: the tile lies within the matrix, by this function's contract.
        unsafe {
            let source = from.add(matrix * shape.from[1] as usize + top * shape.from[0] as usize + left);
            let target = to.add(matrix * shape.to[1] as usize + left * shape.to[0] as usize + top);
            with_lanes!(16 / size_of::<T>(), N => {
                read_squares::<T, N>(source, shape.from[0] as usize, tile);
                thread::sync_threads();
                write_accesses::<T, N>(tile, target, shape.to[0] as usize);
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

/// Number of threads per block of [`transpose_strips()`].
pub const STRIP_THREADS: u32 = 256;
const WARPS: u32 = STRIP_THREADS / 32;

/// Number of rows per step.
pub const STEP: u32 = 32;

/// Number of steps whose rows fit in the ring: the two steps that are being written, and the steps whose loads are in
/// flight.
const SLOTS: u32 = 4;
const AHEAD: usize = SLOTS as usize - 2;

/// Maximum number of output rows that a thread writes to in a step.
const OUTPUTS: usize = 4;

/// Returns the number of columns of a strip.
pub const fn strip(size: usize) -> u32 {
    match size {
        1 | 2 | 4 => 128 / size as u32,
        8 => 32,
        _ => 16,
    }
}

/// Returns the number of elements per sector of 32 bytes.
const fn sector(size: usize) -> u32 {
    32 / size as u32
}

/// Returns the row pitch of the ring, in elements. With this pitch, the lanes that read one column access different
/// banks.
const fn pitch(size: usize) -> u32 {
    strip(size) + 1
}

/// Computes `to[m][column][row] = from[m][row][column]`, with one instance per element size. Each block processes
/// segments of `segment` steps.
///
/// # Safety
/// The launch must be one-dimensional, with blocks of [`STRIP_THREADS`] threads. `from` and `to` must be valid for the
/// elements that `shape` describes, and must not overlap. Nothing else may write `from` or access `to` until the launch
/// ends. `segment` must be from 1 to 2¹⁶.
#[kernel(
    types(T = u8, u16, u32, u64, u128),
    launch_bounds(256, 6),
    bytes = 2 * shape.count as usize * shape.rows as usize * shape.columns as usize * size_of::<T>()
)]
pub unsafe fn transpose_strips<T: KernelType>(shape: Matrices, segment: u32, from: *const T, to: *mut T) {
    const fn len(size: usize) -> usize {
        (SLOTS * STEP * pitch(size)) as usize
    }
    if !in_first_row() {
        return;
    }
    let ring = shared_elements!(T, len);
    let width = const { strip(size_of::<T>()) as usize };
    let (rows, columns) = (shape.rows as usize, shape.columns as usize);
    // SAFETY: guaranteed by this function's contract.
    let height = unsafe { NonZeroUsize::new_unchecked((segment * STEP) as usize) };
    let (down, across) = (rows.div_ceil(height.get()), columns.div_ceil(width));
    let strips = shape.count as usize * down * across;
    let mut index = thread::block_idx_x() as usize;
    while index < strips {
        // SAFETY: both are nonzero if there is at least one strip.
        let (down, across) =
            unsafe { (NonZeroUsize::new_unchecked(down), NonZeroUsize::new_unchecked(across)) };
        let (above, left) = (index / across, index % across * width);
        let (matrix, top) = (above / down, above % down * height.get());
        let min = |a: usize, b: usize| if a < b { a } else { b };
        // SAFETY: the segment starts within the matrix, by this function's contract.
        unsafe {
            let source = from.add(matrix * shape.from[1] as usize + top * shape.from[0] as usize + left);
            let target = to.add(matrix * shape.to[1] as usize + left * shape.to[0] as usize + top);
            let part = Part {
                rows: min(rows - top, height.get()) as u32,
                loaded: min(rows - top, height.get() + const { sector(size_of::<T>()) as usize }) as u32,
                width: min(columns - left, width) as u32,
                is_first: top == 0,
            };
            let pitches = (shape.from[0] as usize, shape.to[0] as usize);
            with_lanes!(if size_of::<T>() < 4 { 4 / size_of::<T>() } else { 1 }, N => {
                move_part::<T, N>(source, target, pitches, part, ring);
            });
        }
        thread::sync_threads();
        index += thread::grid_dim_x() as usize;
    }
}

/// A segment of a strip.
#[derive(Clone, Copy)]
struct Part {
    /// Number of rows.
    rows: u32,
    /// Number of rows to load: one sector more, up to the last row of the matrix.
    loaded: u32,
    /// Number of columns.
    width: u32,
    /// True if the segment starts at the first row of the matrix.
    is_first: bool,
}

/// Moves a segment of a strip, with `N` elements of an output row per lane.
///
/// # Safety
/// `source` must point to the first element of the segment, and `target` to its first output element. Both must be valid
/// for the rows that are loaded. Nothing else may access `ring`, and only other segments may access the outputs. All
/// threads of the block must call this function.
#[inline(always)]
unsafe fn move_part<T: KernelType, const N: usize>(
    source: *const T,
    target: *mut T,
    pitches: (usize, usize),
    part: Part,
    ring: *mut T,
) {
    let (width, pitch) = const { (strip(size_of::<T>()), pitch(size_of::<T>())) };
    let sector = const { sector(size_of::<T>()) };
    // Number of elements that a warp writes at aligned addresses.
    let line = const { if size_of::<T>() < 4 { STEP } else { 128 / size_of::<T>() as u32 } };
    let thread = thread::thread_idx_x();
    // SAFETY: all zeros is a valid value of any `KernelType`.
    let zero: T = unsafe { MaybeUninit::zeroed().assume_init() };

    let (x, y) = (thread % width, thread / width);
    let load_step = |step: u32| {
        let rows_at_once = const { STRIP_THREADS / strip(size_of::<T>()) };
        let from_pitch = opaque(pitches.0);
        let from = source.wrapping_add((step * STEP + y) as usize * from_pitch + x as usize);
        let to = ring.wrapping_add(((step % SLOTS * STEP + y) * pitch + x) as usize);
        let is_copied = const { size_of::<T>() >= 4 };
        let mut values = [zero; 16];
        each::<16>(|i| {
            let row = i as u32 * rows_at_once;
            if row < STEP && x < part.width && step * STEP + y + row < part.loaded {
                let from = from.wrapping_add(row as usize * from_pitch);
                // SAFETY: the element is within the matrix, and belongs to one thread. The last readers of its slot have
                // passed a barrier.
                unsafe {
                    if is_copied {
                        copy_async(from, to.wrapping_add((row * pitch) as usize));
                    } else {
                        values[i] = from.read();
                    }
                }
            }
        });
        each::<16>(|i| {
            let row = i as u32 * rows_at_once;
            if !is_copied && row < STEP {
                // SAFETY: as above. Rows and columns outside the matrix have slots, too.
                unsafe { to.wrapping_add((row * pitch) as usize).write(values[i]) };
            }
        });
    };

    let lanes = const { STEP / N as u32 };
    let columns_at_once = const { WARPS * N as u32 };
    let (first_row, first_column) = (thread % lanes * N as u32, thread / lanes);
    let first_target = target.wrapping_add(first_column as usize * pitches.1);
    let write_step = |step: u32| {
        // Without `opaque`, the compiler would keep the addresses of all output rows in registers.
        let (first_target, to_pitch) = (opaque(first_target), opaque(pitches.1));
        each::<OUTPUTS>(|i| {
            let column = first_column + i as u32 * columns_at_once;
            if i as u32 * columns_at_once >= width || column >= part.width {
                return;
            }
            let to = first_target.wrapping_add(i * columns_at_once as usize * to_pitch);
            let shift = ((to.addr() / size_of::<T>()) as u32).wrapping_neg();
            // The range of rows that the segment writes to this output row, and this thread's first row.
            let start = if part.is_first { 0 } else { shift % sector };
            let end = part.rows + shift % sector;
            let end = if end < part.loaded { end } else { part.loaded };
            let row = (step * STEP + shift % line + first_row).wrapping_sub(STEP);
            let read = |row: u32| {
                let slot = row % (SLOTS * STEP);
                // SAFETY: the element was loaded before the barrier.
                unsafe { ring.add((slot * pitch + column) as usize).read() }
            };
            if N > 1 && row >= start && row < end && end - row >= N as u32 {
                // SAFETY: the elements are within the output row and aligned, and only this thread writes them.
                unsafe { store(to.add(row as usize), lanewise::<_, N>(|item| read(row + item as u32))) };
            } else {
                each::<N>(|item| {
                    let row = row.wrapping_add(item as u32);
                    if row >= start && row < end {
                        // SAFETY: as above.
                        unsafe { to.add(row as usize).write(read(row)) };
                    }
                });
            }
        });
    };

    let steps = part.rows.div_ceil(STEP);
    each::<AHEAD>(|i| {
        load_step(i as u32);
        commit_copies();
    });
    let mut step = 0;
    // The last step writes the rows after the last aligned address.
    while step <= steps {
        wait_copies_leaving::<{ AHEAD - 1 }>();
        thread::sync_threads();
        load_step(step + AHEAD as u32);
        commit_copies();
        write_step(step);
        step += 1;
    }
}
