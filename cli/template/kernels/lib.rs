//! The kernels: compiled for the GPU by `../build.rs`, and for the CPU like any crate.
#![no_std]

use gpu_std::prelude::*;

/// `y[i] += a * x[i]`.
#[kernel]
pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
    for i in thread::grid_stride(x.len()) {
        if let Some(y) = y.get_mut(i) {
            *y += a * x[i.get()];
        }
    }
}

/// Threads of a block of [`smooth`].
pub const BLOCK: usize = 256;

/// `out[i]` is the mean of `data[i - 1]`, `data[i]` and `data[i + 1]`; the ends repeat. One thread an element.
#[kernel(launch_bounds(256))]
pub fn smooth(data: &[f32], mut out: DisjointMut<f32>) {
    // A tile of the block's elements with one neighbour on either side, read from global memory once.
    let tile = shared_array![f32; BLOCK + 2];
    let index = thread::unique_index();
    let own = thread::linear_in_block() as usize;
    let threads = block::threads() as usize;
    let at = |i: usize| data[i.min(data.len() - 1)];

    if !data.is_empty() {
        // SAFETY: `own` < threads <= BLOCK, so own + 1 and threads + 1 are in the tile; each element is written
        // by one thread.
        unsafe {
            tile.add(own + 1).write(at(index.get()));
            if own == 0 {
                tile.write(at(index.get().saturating_sub(1)));
                tile.add(threads + 1).write(at(index.get() + threads));
            }
        }
    }
    thread::sync_threads();
    if index.get() < data.len()
        && let Some(out) = out.get_mut(index)
    {
        // SAFETY: every element up to threads + 1 was written before the barrier.
        let [left, middle, right] = unsafe { [0, 1, 2].map(|offset| tile.add(own + offset).read()) };
        *out = (left + middle + right) / 3.0;
    }
}
