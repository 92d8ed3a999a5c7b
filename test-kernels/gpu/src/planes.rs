//! Kernels in two and three dimensions, without `unsafe`.

use gpu_std::prelude::*;

/// Threads of a block along x and y.
const BLOCK_X: usize = 16;
/// See [`BLOCK_X`].
const BLOCK_Y: u32 = 16;

/// `out = a + b`, an element a thread.
#[kernel(block(BLOCK_X, BLOCK_Y))]
pub fn add_planes(a: Slice2<f32>, b: Slice2<f32>, mut out: DisjointMut2<f32>) {
    let cell = thread::unique_2d();
    if let (Some(a), Some(b), Some(out)) = (a.get(cell.get()), b.get(cell.get()), out.get_mut(cell)) {
        *out = *a + *b;
    }
}

/// A step of the heat equation: every element moves towards the mean of its neighbours. Those outside are as the element.
#[kernel(block(32, 8))]
pub fn heat_step(rate: f32, from: Slice2<f32>, mut to: DisjointMut2<f32>) {
    let cell = thread::unique_2d();
    let [row, column] = cell.get();
    if let (Some(to), Some(&own)) = (to.get_mut(cell), from.get([row, column])) {
        let at = |row: usize, column: usize| from.get([row, column]).copied().unwrap_or(own);
        let horizontal = at(row, column.wrapping_sub(1)) + at(row, column + 1);
        let around = horizontal + at(row.wrapping_sub(1), column) + at(row + 1, column);
        *to = own + rate * (around - 4.0 * own);
    }
}

/// Adds `value` to every element, in a loop over the plane: any launch in up to two dimensions is right.
#[kernel]
pub fn add_everywhere(value: f32, mut plane: DisjointMut2<f32>) {
    for cell in thread::grid_stride_2d(plane.width(), plane.height()) {
        if let Some(element) = plane.get_mut(cell) {
            *element += value;
        }
    }
}

/// Divides every row by its sum, a row a thread.
#[kernel]
pub fn normalise_rows(mut rows: DisjointMut2<f32, Rows>) {
    for index in thread::grid_stride(rows.height()) {
        if let Some(row) = rows.get_mut(index) {
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|value| *value /= sum);
        }
    }
}

/// Every element from the mirrored place, a tile of `TILE` x `TILE` elements a block.
#[kernel(consts(TILE = 16, 32), block(TILE, 8))]
pub fn mirror<const TILE: usize>(from: Slice2<f32>, mut to: DisjointMut2<f32, TransposedTiles<TILE, TILE>>) {
    let [top, left] = to.tile_origin();
    to.update_tile(|element, [row, column]| {
        if let Some(value) = from.get([left + column, top + row]) {
            *element = *value;
        }
    });
}

/// The mean of an element and the two in the planes beside it, where there are any.
#[kernel(block(8, 4, 4))]
pub fn smooth_planes(from: Slice3<f64>, mut to: DisjointMut3<f64>) {
    let cell = thread::unique_3d();
    let [plane, row, column] = cell.get();
    if let (Some(to), Some(&own)) = (to.get_mut(cell), from.get([plane, row, column])) {
        let at = |plane: usize| from.get([plane, row, column]).copied().unwrap_or(own);
        *to = (at(plane.wrapping_sub(1)) + own + at(plane + 1)) / 3.0;
    }
}

/// The number of a block in its cluster of two, for each thread.
#[kernel(block(32), cluster(2))]
pub fn cluster_ranks(mut out: DisjointMut<u32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = cluster::block_rank();
    }
}
