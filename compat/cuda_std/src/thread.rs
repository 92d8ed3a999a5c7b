//! Indices of a thread as vectors of glam, barriers of its block, and memory fences.

use glam::{UVec2, UVec3};
use gpu_std::thread;

pub use gpu_std::thread::{
    block_dim_x, block_dim_y, block_dim_z, block_fence, block_idx_x, block_idx_y, block_idx_z, device_fence,
    grid_dim_x, grid_dim_y, grid_dim_z, index_1d, nanosleep, sync_threads, system_fence, thread_idx_x,
    thread_idx_y, thread_idx_z,
};

/// The thread's index in its block.
#[inline(always)]
pub fn thread_idx() -> UVec3 {
    thread::thread_idx().into()
}

/// The block's index in the grid.
#[inline(always)]
pub fn block_idx() -> UVec3 {
    thread::block_idx().into()
}

/// The threads of a block along each axis.
#[inline(always)]
pub fn block_dim() -> UVec3 {
    thread::block_dim().into()
}

/// The blocks of the grid along each axis.
#[inline(always)]
pub fn grid_dim() -> UVec3 {
    thread::grid_dim().into()
}

/// The thread's index in the launch, of any number of dimensions: unique below 2³² threads.
#[inline(always)]
pub fn index() -> u32 {
    gpu_std::grid::rank() as u32
}

/// The thread's x and y index in a two-dimensional launch.
#[inline(always)]
pub fn index_2d() -> UVec2 {
    thread::index_2d().into()
}

/// The thread's x, y and z index in a three-dimensional launch.
#[inline(always)]
pub fn index_3d() -> UVec3 {
    thread::index_3d().into()
}

/// Whether this is thread 0 of block 0: true in exactly one thread of a launch.
#[inline(always)]
pub fn first() -> bool {
    block_idx() == UVec3::ZERO && thread_idx() == UVec3::ZERO
}

/// The threads of a warp: 32.
#[inline(always)]
pub fn warp_size() -> u32 {
    gpu_std::warp::WARP_SIZE
}

/// [`sync_threads`], and in how many threads `predicate` was not 0.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: u32) -> u32 {
    thread::sync_threads_count(predicate != 0)
}

/// [`sync_threads`], and 1 if `predicate` was not 0 in all threads, else 0.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: u32) -> u32 {
    thread::sync_threads_and(predicate != 0) as u32
}

/// [`sync_threads`], and 1 if `predicate` was not 0 in any thread, else 0.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: u32) -> u32 {
    thread::sync_threads_or(predicate != 0) as u32
}

/// Orders this thread's earlier memory accesses before its later ones, as all threads of the launch see them: the same as
/// [`device_fence`].
#[inline(always)]
pub fn grid_fence() {
    device_fence();
}
