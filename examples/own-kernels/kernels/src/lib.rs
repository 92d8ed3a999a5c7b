//! The kernels: compiled for the GPU by `../build.rs`, and for the CPU like any crate.
#![no_std]

use gpu_std::prelude::*;

/// `y[i] += a * x[i]`. A launch in which `x` and `y` differ in length is an error.
#[kernel(same_len(x, y))]
pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
    for i in thread::grid_stride(x.len()) {
        if let Some(y) = y.get_mut(i) {
            *y += a * x[i.get()];
        }
    }
}

/// Threads of a block of [`smooth()`], at most.
pub const BLOCK: usize = 256;

/// `out[i]` is the mean of `data[i - 1]`, `data[i]` and `data[i + 1]`; the ends repeat. One thread an element.
#[kernel(launch_bounds(256), same_len(data, out, launch))]
pub fn smooth(data: &[f32], mut tile: Shared<[f32; BLOCK + 2]>, mut out: DisjointMut<f32>) {
    // The elements of the block with a neighbor on either side, read from global memory once.
    let first = block::linear_index() * block::threads() as usize;
    let tile = tile.fill(|[i]| data[(first + i).saturating_sub(1).min(data.len() - 1)]);
    let own = thread::linear_in_block() as usize;
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = (tile[own] + tile[own + 1] + tile[own + 2]) / 3.0;
    }
}
