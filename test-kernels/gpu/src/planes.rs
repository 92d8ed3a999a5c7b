//! Kernels in two and three dimensions, without `unsafe`.

use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;

/// Threads per block along x.
const BLOCK_X: usize = 16;
/// Threads per block along y.
const BLOCK_Y: u32 = 16;

/// Computes `out = a + b`, one element per thread.
#[kernel(block(BLOCK_X, BLOCK_Y))]
pub fn add_planes(a: Slice2<f32>, b: Slice2<f32>, mut out: DisjointMut2<f32>) {
    let cell = thread::unique_2d();
    if let (Some(a), Some(b), Some(out)) = (a.get(cell.get()), b.get(cell.get()), out.get_mut(cell)) {
        *out = *a + *b;
    }
}

/// Computes `out = values * weights + bias` and sets `planes` to 1. Optional arrays that are not passed are left out.
#[kernel(no_panic)]
pub fn weigh(
    values: Slice2<f32>,
    weights: Option<Slice2<f32>>,
    mut out: Option<DisjointMut2<f32>>,
    mut planes: Option<DisjointMut3<u32>>,
    bias: Option<Slice3<f32>>,
) {
    let cell = thread::unique_2d();
    let [row, column] = cell.get();
    let Some(&value) = values.get([row, column]) else { return };
    let weight = weights.map_or(1.0, |weights| weights.get([row, column]).copied().unwrap_or(0.0));
    let bias = bias.and_then(|bias| bias.get([0, row, column])).copied().unwrap_or(0.0);
    if let Some(out) = out.as_mut().and_then(|out| out.get_mut(cell)) {
        *out = value * weight + bias;
    }
    if let Some(plane) = planes.as_mut().and_then(|planes| planes.get_mut(thread::unique_3d())) {
        *plane = 1;
    }
}

/// A step of the heat equation: every element moves toward the mean of its neighbors. Neighbors outside have the
/// value of the element.
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

/// Adds `value` to every element in a grid-stride loop over the plane: correct for any launch of up to two dimensions.
#[kernel]
pub fn add_everywhere(value: f32, mut plane: DisjointMut2<f32>) {
    for cell in thread::grid_stride_2d(plane.rows(), plane.columns()) {
        if let Some(element) = plane.get_mut(cell) {
            *element += value;
        }
    }
}

/// Adds `value` to every element in a grid-stride loop over the volume: correct for any launch.
#[kernel]
pub fn add_to_volume(value: f32, mut volume: DisjointMut3<f32>) {
    for cell in thread::grid_stride_3d(volume.planes(), volume.rows(), volume.columns()) {
        if let Some(element) = volume.get_mut(cell) {
            *element += value;
        }
    }
}

/// Counts the points, each given as row and column, per element. Points outside do not count.
#[kernel(no_panic)]
pub fn density(points: &[[i32; 2]], counts: Slice2<Atomic<u32>>) {
    for i in thread::grid_stride(points.len()) {
        if let Some(count) = counts.get(points[i.get()]) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Divides every row by its sum, one row per thread.
#[kernel]
pub fn normalize_rows(mut rows: DisjointMut2<f32, Rows>) {
    for index in thread::grid_stride(rows.rows()) {
        if let Some(row) = rows.get_mut(index) {
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|value| *value /= sum);
        }
    }
}

/// Transposes the plane, one tile of `TILE` x `TILE` elements per block.
#[kernel(consts(TILE = 16, 32), block(TILE, 8))]
pub fn mirror<const TILE: usize>(from: Slice2<f32>, mut to: DisjointMut2<f32, TransposedTiles<TILE, TILE>>) {
    let [top, left] = to.tile_origin();
    to.update_tile(|element, [row, column]| {
        if let Some(value) = from.get([left + column, top + row]) {
            *element = *value;
        }
    });
}

/// Mean of an element and its neighbors in the two adjacent planes, if these exist.
#[kernel(block(8, 4, 4))]
pub fn smooth_planes(from: Slice3<f64>, mut to: DisjointMut3<f64>) {
    let cell = thread::unique_3d();
    let [plane, row, column] = cell.get();
    if let (Some(to), Some(&own)) = (to.get_mut(cell), from.get([plane, row, column])) {
        let at = |plane: usize| from.get([plane, row, column]).copied().unwrap_or(own);
        *to = (at(plane.wrapping_sub(1)) + own + at(plane + 1)) / 3.0;
    }
}

/// Rank of a block in its cluster of two, written by each thread.
#[kernel(block(32), cluster(2))]
pub fn cluster_ranks(mut out: DisjointMut<u32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = cluster::block_rank();
    }
}
