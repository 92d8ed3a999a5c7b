//! The same kernels with shared memory accessed through raw pointers and through [`Shared`], to measure the cost of the
//! safe form.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;

/// Threads per block along each side, in the heat kernels.
pub const SIDE: usize = 16;

/// One step of the heat equation with raw pointers; `alpha` is the time step times the conductivity. The border has the
/// temperature of the adjacent element. Threads beyond the image do nothing.
///
/// # Safety
/// `image` and `out` have `width * height` elements, neither of them 0, and a block has 16 x 16 threads.
#[kernel(block(SIDE, SIDE))]
pub unsafe fn heat_raw(width: u32, height: u32, alpha: f32, image: *const f32, out: *mut f32) {
    let tile = shared_array![[f32; SIDE + 2]; SIDE + 2];
    let [x, y] = thread::index_2d();
    let (column, row) = (thread::thread_idx_x() as usize + 1, thread::thread_idx_y() as usize + 1);
    // SAFETY: the position is clamped to the image.
    let at = |x: u32, y: u32| unsafe {
        image.add(y.min(height - 1) as usize * width as usize + x.min(width - 1) as usize).read()
    };
    // SAFETY: row and column are those of a thread of the block, or 0 or 17; no two threads write the same element.
    let put = |row: usize, column: usize, value: f32| unsafe { (*tile.add(row))[column] = value };
    put(row, column, at(x, y));
    if column == 1 {
        put(row, 0, at(x.saturating_sub(1), y));
    }
    if column == SIDE {
        put(row, SIDE + 1, at(x + 1, y));
    }
    if row == 1 {
        put(0, column, at(x, y.saturating_sub(1)));
    }
    if row == SIDE {
        put(SIDE + 1, column, at(x, y + 1));
    }
    block::sync_threads();
    if x < width && y < height {
        // SAFETY: the element was written before the barrier.
        let get = |row: usize, column: usize| unsafe { (*tile.add(row))[column] };
        let center = get(row, column);
        let around =
            get(row - 1, column) + get(row + 1, column) + get(row, column - 1) + get(row, column + 1);
        // SAFETY: the position is in the image and belongs to this thread.
        unsafe {
            out.add(y as usize * width as usize + x as usize).write(center + alpha * (around - 4.0 * center))
        };
    }
}

/// The same as [`heat_raw()`] in safe code.
#[kernel(block(SIDE, SIDE), no_panic)]
pub fn heat_tiled(
    alpha: f32,
    image: Slice2<f32>,
    mut tile: Shared<[[f32; SIDE + 2]; SIDE + 2]>,
    mut out: DisjointMut2<f32>,
) {
    let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (left, top) = (thread::block_idx_x() * SIDE as u32, thread::block_idx_y() * SIDE as u32);
    let (right, bottom) = (image.columns() as u32 - 1, image.rows() as u32 - 1);
    let tile = tile.fill(|[row, column]| {
        let (x, y) = ((left + column as u32).saturating_sub(1), (top + row as u32).saturating_sub(1));
        image.get([y.min(bottom), x.min(right)]).copied().unwrap_or(0.0)
    });
    let cell = thread::unique_2d();
    if let Some(out) = out.get_mut(cell) {
        let center = tile[row + 1][column + 1];
        let around = tile[row][column + 1]
            + tile[row + 2][column + 1]
            + tile[row + 1][column]
            + tile[row + 1][column + 2];
        *out = center + alpha * (around - 4.0 * center);
    }
}

/// Transposes an image in tiles of 32 x 32, with raw pointers.
///
/// # Safety
/// `image` and `out` have `width * height` elements, and a block has 32 x 8 threads.
#[kernel(block(32, 8))]
pub unsafe fn transpose_raw(width: u32, height: u32, image: *const f32, out: *mut f32) {
    let tile = shared_array![[f32; 33]; 32];
    let (left, top) = (thread::block_idx_x() * 32, thread::block_idx_y() * 32);
    let (column, row) = (thread::thread_idx_x(), thread::thread_idx_y());
    for i in 0..4 {
        let (x, y) = (left + column, top + row + 8 * i);
        // SAFETY: the position is in the image, and the element of the tile belongs to this thread.
        unsafe {
            let is_inside = x < width && y < height;
            let value =
                if is_inside { image.add(y as usize * width as usize + x as usize).read() } else { 0.0 };
            tile.add((row + 8 * i) as usize).cast::<f32>().add(column as usize).write(value);
        }
    }
    block::sync_threads();
    for i in 0..4 {
        let (x, y) = (top + column, left + row + 8 * i);
        if x < height && y < width {
            // SAFETY: the element was written before the barrier; the position is in the transposed image and belongs
            // to this thread.
            unsafe {
                let value = tile.add(column as usize).cast::<f32>().add((row + 8 * i) as usize).read();
                out.add(y as usize * height as usize + x as usize).write(value);
            }
        }
    }
}

/// The same as [`transpose_raw()`] in safe code.
#[kernel(block(32, 8), no_panic)]
pub fn transpose_tiled(
    image: Slice2<f32>,
    mut tile: Shared<Padded<f32, 32, 32>>,
    mut out: DisjointMut2<f32, TransposedTiles<32, 32>>,
) {
    let [left, top] = out.tile_origin();
    let tile = tile.fill(|[row, column]| image.get([top + row, left + column]).copied().unwrap_or(0.0));
    out.write_tile(|[row, column]| tile[column][row]);
}

/// Matrix product: `out` has the rows of `a` and the columns of `b`. Each step loads a tile of both in one phase, while
/// the tiles of the previous step may still be in use.
#[kernel(types(T = f32, f64), block(SIDE, SIDE), no_panic)]
pub fn matmul_tiled<T: Float>(
    a: Slice2<T>,
    b: Slice2<T>,
    mut tiles: DoubleBuffer<[[[T; SIDE]; SIDE]; 2]>,
    mut out: DisjointMut2<T>,
) {
    let cell = thread::unique_2d();
    let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (left, top) = (thread::block_idx_x() * SIDE as u32, thread::block_idx_y() * SIDE as u32);
    let mut sum = T::ZERO;
    let mut first = 0;
    while first < a.columns() as u32 {
        let [of_a, of_b] = tiles.fill(|[which, row, column]| {
            let (row, column) = (row as u32, column as u32);
            let element = match which {
                0 => a.get([top + row, first + column]),
                _ => b.get([first + row, left + column]),
            };
            element.copied().unwrap_or(T::ZERO)
        });
        for (a, of_b) in of_a[row].iter().zip(of_b) {
            sum = sum + *a * of_b[column];
        }
        first += SIDE as u32;
    }
    if let Some(out) = out.get_mut(cell) {
        *out = sum;
    }
}

/// Histogram of `data`. Each block counts in shared memory, and adds its counts to `totals`, which has `BINS` elements.
#[kernel(consts(BINS = 16, 256), no_panic)]
pub fn histogram_tiled<const BINS: usize>(
    data: &[u8],
    mut counts: Shared<[Atomic<u32, scope::Block>; BINS]>,
    totals: &[Atomic<u32>],
) {
    let counted = counts.zeroed();
    for i in thread::grid_stride(data.len()) {
        counted[data[i.get()] as usize % BINS].fetch_add(1, Ordering::Relaxed);
    }
    counts.update(|count, [bin]| {
        if let Some(total) = totals.get(bin) {
            total.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
}

/// A score and its index.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Candidate {
    /// The score.
    pub score: f32,
    /// Index of the score.
    pub index: u32,
}

impl Candidate {
    /// Returns the better of two; of equal scores, the first.
    pub fn better(self, other: Self) -> Self {
        let is_other = other.score > self.score || (other.score == self.score && other.index < self.index);
        if is_other { other } else { self }
    }
}

/// Best of each 256 scores: each block writes one element of `bests`.
#[kernel(block(256), no_panic)]
pub fn argmax_tiled(
    scores: &[f32],
    mut candidates: DoubleBuffer<[Candidate; 256]>,
    mut bests: DisjointMut<Candidate, PerBlock>,
) {
    let first = block::linear_index() * 256;
    candidates.fill(|[i]| Candidate {
        score: scores.get(first + i).copied().unwrap_or(f32::NEG_INFINITY),
        index: (first + i) as u32,
    });
    let mut half = 128;
    while half > 0 {
        candidates.step(|old, [i]| if i < half { old[i].better(old[i + half]) } else { old[i] });
        half /= 2;
    }
    let best = candidates.current()[0];
    if let Some(out) = bests.get_mut(block::unique_index()) {
        *out = best;
    }
}

/// Fills a tile after the threads of the block from `threads` on have returned. The others read their own elements.
#[kernel(block(256))]
pub fn fill_without_returned(threads: u32, mut tile: Shared<[u32; 256]>, mut out: DisjointMut<u32>) {
    let own = thread::thread_idx_x();
    if own >= threads {
        return;
    }
    let mut sum = 0;
    for round in 0..10 {
        let tile = tile.fill(|[i]| i as u32 + round);
        let next = (own + 1) % threads;
        sum += tile[next as usize];
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = sum;
    }
}
