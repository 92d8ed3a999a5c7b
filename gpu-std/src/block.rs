//! The block that a thread belongs to.

use crate::thread;

pub use crate::thread::{
    block_dim as dim, block_idx as index, sync_threads, sync_threads_and, sync_threads_count, sync_threads_or,
};

/// Threads of a block; at most 1024.
#[inline(always)]
pub fn threads() -> u32 {
    thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z()
}

/// The block's linear index in the grid.
#[inline(always)]
pub fn linear_index() -> usize {
    let [x, y, z] = thread::block_idx();
    let [width, height, _] = thread::grid_dim();
    x as usize + width as usize * (y as usize + height as usize * z as usize)
}
