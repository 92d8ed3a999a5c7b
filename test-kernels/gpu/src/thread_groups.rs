//! Kernels with one result per warp or part of a warp, and a kernel whose arrays have one length.

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

/// Adds `x` to `sums`. Both arrays have one element per thread of the launch.
#[kernel(same_len(x, sums, launch))]
pub fn add_each(x: &[f32], mut sums: DisjointMut<f32>) {
    let index = thread::unique_index();
    if let (Some(sum), Some(x)) = (sums.get_mut(index), x.get(index.get())) {
        *sum += x;
    }
}
