//! The same kernels with shared memory by raw pointers and by [`Shared`]: what the safe form costs.

use gpu_std::prelude::*;

/// Threads of a block along each side, in the heat kernels.
pub const SIDE: usize = 16;

/// One step of the heat equation, `alpha` being the step times the conductivity, with raw pointers. The border has the
/// temperature of the element next to it. Threads beyond the image do nothing.
///
/// # Safety
///
/// `image` and `out` have `width * height` elements, neither of them 0, and a block has 16 x 16 threads.
#[kernel(launch_bounds(256))]
pub unsafe fn heat_raw(width: u32, height: u32, alpha: f32, image: *const f32, out: *mut f32) {
    let tile = shared_array![[f32; SIDE + 2]; SIDE + 2];
    let [x, y] = thread::index_2d();
    let (column, row) = (thread::thread_idx_x() as usize + 1, thread::thread_idx_y() as usize + 1);
    // SAFETY: the position is in the image.
    let at = |x: u32, y: u32| unsafe {
        image.add(y.min(height - 1) as usize * width as usize + x.min(width - 1) as usize).read()
    };
    // SAFETY: rows and columns are those of a block's threads, and 0 and 17; no two threads write one.
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
        // SAFETY: written before the barrier.
        let get = |row: usize, column: usize| unsafe { (*tile.add(row))[column] };
        let centre = get(row, column);
        let around =
            get(row - 1, column) + get(row + 1, column) + get(row, column - 1) + get(row, column + 1);
        // SAFETY: the position is in the image, and the thread's own.
        unsafe {
            out.add(y as usize * width as usize + x as usize).write(centre + alpha * (around - 4.0 * centre))
        };
    }
}

/// [`heat_raw`] with a tile that the block fills.
///
/// # Safety
///
/// As for [`heat_raw`].
#[kernel(launch_bounds(256))]
pub unsafe fn heat_tiled(
    width: u32,
    height: u32,
    alpha: f32,
    image: &[f32],
    mut tile: Shared<[[f32; SIDE + 2]; SIDE + 2]>,
    out: *mut f32,
) {
    let [x, y] = thread::index_2d();
    let (left, top) = (x - thread::thread_idx_x(), y - thread::thread_idx_y());
    let tile = tile.fill(|[row, column]| {
        let x = (left + column as u32).saturating_sub(1).min(width - 1);
        let y = (top + row as u32).saturating_sub(1).min(height - 1);
        // SAFETY: the position is in the image.
        unsafe { *image.get_unchecked(y as usize * width as usize + x as usize) }
    });
    if x < width && y < height {
        let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
        let centre = tile[row + 1][column + 1];
        let around = tile[row][column + 1]
            + tile[row + 2][column + 1]
            + tile[row + 1][column]
            + tile[row + 1][column + 2];
        // SAFETY: the position is in the image, and the thread's own.
        unsafe {
            out.add(y as usize * width as usize + x as usize).write(centre + alpha * (around - 4.0 * centre))
        };
    }
}

/// The transpose of an image in tiles of 32 x 32, with raw pointers.
///
/// # Safety
///
/// `image` and `out` have `width * height` elements, and a block has 32 x 8 threads.
#[kernel(launch_bounds(256))]
pub unsafe fn transpose_raw(width: u32, height: u32, image: *const f32, out: *mut f32) {
    let tile = shared_array![[f32; 33]; 32];
    let (left, top) = (thread::block_idx_x() * 32, thread::block_idx_y() * 32);
    let (column, row) = (thread::thread_idx_x(), thread::thread_idx_y());
    for i in 0..4 {
        let (x, y) = (left + column, top + row + 8 * i);
        if x < width && y < height {
            // SAFETY: the position is in the image, and the tile's element the thread's own.
            unsafe {
                let value = image.add(y as usize * width as usize + x as usize).read();
                tile.add((row + 8 * i) as usize).cast::<f32>().add(column as usize).write(value);
            }
        }
    }
    block::sync_threads();
    for i in 0..4 {
        let (x, y) = (top + column, left + row + 8 * i);
        if x < height && y < width {
            // SAFETY: written before the barrier; the position is in the transposed image, and the thread's own.
            unsafe {
                let value = tile.add(column as usize).cast::<f32>().add((row + 8 * i) as usize).read();
                out.add(y as usize * height as usize + x as usize).write(value);
            }
        }
    }
}

/// [`transpose_raw`] with a tile that the block fills.
///
/// # Safety
///
/// As for [`transpose_raw`].
#[kernel(launch_bounds(256))]
pub unsafe fn transpose_tiled(
    width: u32,
    height: u32,
    image: &[f32],
    mut tile: Shared<Padded<f32, 32, 32>>,
    out: *mut f32,
) {
    let (left, top) = (thread::block_idx_x() * 32, thread::block_idx_y() * 32);
    let (column, row) = (thread::thread_idx_x(), thread::thread_idx_y());
    let tile = tile.fill(|[row, column]| {
        let (x, y) = (left + column as u32, top + row as u32);
        if x < width && y < height {
            // SAFETY: the position is in the image.
            unsafe { *image.get_unchecked(y as usize * width as usize + x as usize) }
        } else {
            0.0
        }
    });
    for i in 0..4 {
        let (x, y) = (top + column, left + row + 8 * i);
        if x < height && y < width {
            let value = tile[column as usize][(row + 8 * i) as usize];
            // SAFETY: the position is in the transposed image, and the thread's own.
            unsafe { out.add(y as usize * height as usize + x as usize).write(value) };
        }
    }
}
