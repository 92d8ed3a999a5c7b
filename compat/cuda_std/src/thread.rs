//! Thread indices as glam vectors, block barriers, and memory fences.

use glam::{UVec2, UVec3};
use gpu_std::thread;

pub use gpu_std::thread::{
    block_dim_x, block_dim_y, block_dim_z, block_fence, block_idx_x, block_idx_y, block_idx_z, device_fence,
    grid_dim_x, grid_dim_y, grid_dim_z, index_1d, nanosleep, sync_threads, system_fence, thread_idx_x,
    thread_idx_y, thread_idx_z,
};

/// Returns the index of the thread in its block.
#[inline(always)]
pub fn thread_idx() -> UVec3 {
    thread::thread_idx().into()
}

/// Returns the index of the block in the grid.
#[inline(always)]
pub fn block_idx() -> UVec3 {
    thread::block_idx().into()
}

/// Returns the number of threads per block along each axis.
#[inline(always)]
pub fn block_dim() -> UVec3 {
    thread::block_dim().into()
}

/// Returns the number of blocks in the grid along each axis.
#[inline(always)]
pub fn grid_dim() -> UVec3 {
    thread::grid_dim().into()
}

/// Returns the linear index of the thread in a launch of any number of dimensions. The index is unique in launches of
/// fewer than 2³² threads.
#[inline(always)]
pub fn index() -> u32 {
    gpu_std::grid::rank() as u32
}

/// Returns the index of the thread in x and y, in a two-dimensional launch.
#[inline(always)]
pub fn index_2d() -> UVec2 {
    thread::index_2d().into()
}

/// Returns the index of the thread in x, y and z, in a three-dimensional launch.
#[inline(always)]
pub fn index_3d() -> UVec3 {
    thread::index_3d().into()
}

/// Returns true in thread 0 of block 0, which is exactly one thread of the launch.
#[inline(always)]
pub fn first() -> bool {
    block_idx() == UVec3::ZERO && thread_idx() == UVec3::ZERO
}

/// Returns the number of threads per warp, which is 32.
#[inline(always)]
pub fn warp_size() -> u32 {
    gpu_std::warp::WARP_SIZE
}

/// Calls [`sync_threads`] and returns the number of threads whose `predicate` was not 0.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: u32) -> u32 {
    thread::sync_threads_count(predicate != 0)
}

/// Calls [`sync_threads`] and returns 1 if `predicate` was not 0 in all threads, and 0 otherwise.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: u32) -> u32 {
    thread::sync_threads_and(predicate != 0) as u32
}

/// Calls [`sync_threads`] and returns 1 if `predicate` was not 0 in at least one thread, and 0 otherwise.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: u32) -> u32 {
    thread::sync_threads_or(predicate != 0) as u32
}

/// Memory fence that orders this thread's earlier memory accesses before its later ones, as observed by all threads of
/// the launch. It is the same as [`device_fence`].
#[inline(always)]
pub fn grid_fence() {
    device_fence();
}
