//! The kernels. `../build.rs` compiles them for GPUs, and cargo compiles them for the CPU.
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

/// Maximum number of threads per block of [`smooth()`].
pub const BLOCK: usize = 256;

/// `out[i]` is the mean of `data[i - 1]`, `data[i]` and `data[i + 1]`; at the ends, the missing neighbor is `data[i]`
/// itself. Each thread computes one element.
#[kernel(launch_bounds(256), same_len(data, out, launch))]
pub fn smooth(data: &[f32], mut tile: Shared<[f32; BLOCK + 2]>, mut out: DisjointMut<f32>) {
    // The block's elements and one neighbor on each side, read from global memory only once.
    let first = block::linear_index() * block::threads() as usize;
    let tile = tile.fill(|[i]| data[(first + i).saturating_sub(1).min(data.len() - 1)]);
    let own = thread::linear_in_block() as usize;
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = (tile[own] + tile[own + 1] + tile[own + 2]) / 3.0;
    }
}
