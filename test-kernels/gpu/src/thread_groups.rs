//! Kernels with one result per warp or part of a warp, and a kernel with a structure of arrays.

use gpu_std::prelude::*;

/// Computes `y = A x` for a sparse matrix in CSR format, with `N` threads per row and any number of blocks.
#[kernel(consts(N = 2, 8, 32), same_len(columns, values))]
pub fn multiply_rows<const N: u32>(
    starts: &[u32],
    columns: &[u32],
    values: &[f64],
    x: &[f64],
    mut y: DisjointMut<f64, PerTile<N>>,
) {
    let tile = Tile::<N>::current();
    for row in tile.stride(y.len()) {
        let mut sum = 0.0;
        let (start, end) = (starts[row.get()], starts[row.get() + 1]);
        for i in (start + tile.rank()..end).step_by(N as usize) {
            sum += values[i as usize] * x[columns[i as usize] as usize];
        }
        let sum = tile.reduce_add(sum);
        if let Some(y) = y.get_mut(row) {
            *y = sum;
        }
    }
}

/// Velocities of a D3Q19 lattice, as [x, y, z].
pub const DIRECTIONS: [[i32; 3]; 19] = [
    [0, 0, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0, 1, 0],
    [0, -1, 0],
    [0, 0, 1],
    [0, 0, -1],
    [1, 1, 0],
    [-1, -1, 0],
    [1, -1, 0],
    [-1, 1, 0],
    [1, 0, 1],
    [-1, 0, -1],
    [1, 0, -1],
    [-1, 0, 1],
    [0, 1, 1],
    [0, -1, -1],
    [0, 1, -1],
    [0, -1, 1],
];

/// A step of a lattice gas: each cell receives the populations that stream in from its neighbors, and half of each
/// relaxes to the mean of the cell. The box is periodic.
#[kernel(launch_bounds(128), same_len(from, to, launch))]
pub fn lattice_step(sides: [u32; 3], from: SlicePlanes<f32, 19>, mut to: DisjointMut<f32, Planes<19>>) {
    let [width, height, depth] = sides;
    let index = thread::unique_index();
    let i = index.get() as u32;
    let place = [i % width, i / width % height, i / (width * height)];
    let Some(mut cell) = to.get_mut(index) else { return };
    let mut came = [0.0; 19];
    let mut sum = 0.0;
    for (plane, direction) in DIRECTIONS.iter().enumerate() {
        let [x, y, z] = [(place[0], width, 0), (place[1], height, 1), (place[2], depth, 2)]
            .map(|(at, side, axis)| (at + side).wrapping_sub(direction[axis] as u32) % side);
        came[plane] = from[[plane, ((z * height + y) * width + x) as usize]];
        sum += came[plane];
    }
    for (plane, came) in came.into_iter().enumerate() {
        cell[plane] = 0.5 * (came + sum / 19.0);
    }
}
