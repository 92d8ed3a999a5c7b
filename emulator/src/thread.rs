//! Indices and sizes that the running kernel queries.
//!
//! Every function except [`running_indices`] panics if it is called outside of a kernel.
//!
//! In a program that `warpsmith check` builds, none of these functions is inlined, because the kernel's crate is
//! instrumented but this crate is not.

use crate::order::lanes_in_warp;
use crate::registers::{registers, running};

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $register:ident;)*) => { $(
        $(#[$doc])*
        #[cfg_attr(not(warpsmith_check), inline)]
        #[cfg_attr(warpsmith_check, inline(never))]
        pub fn $name() -> $type {
            running(stringify!($name)).$register.get()
        }
    )* };
}

registers! {
    /// Index of the thread in the block.
    thread_index: [u32; 3] = thread;
    /// Linear index of the thread in the block. The x coordinate varies fastest.
    linear_index: u32 = linear;
    /// Index of the block in the grid.
    block_index: [u32; 3] = block_index;
    /// Block size in threads: x, y and z.
    block_dim: [u32; 3] = block_dim;
    /// Grid size in blocks: x, y and z.
    grid_dim: [u32; 3] = grid_dim;
    /// Cluster size in blocks: x, y and z; `[1; 3]` in a launch without clusters.
    cluster_dim: [u32; 3] = cluster_dim;
    /// Dynamic shared memory of the block, in bytes.
    dynamic_shared_bytes: u32 = shared_bytes;
}

/// Returns the index of the block in the grid and the index of the thread in the block, for a debugger. The result is
/// unspecified outside of a kernel. This function cannot panic, so the optimizer removes calls whose result is unused.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn running_indices() -> ([u32; 3], [u32; 3]) {
    let registers = registers();
    (registers.block_index.get(), registers.thread.get())
}

/// Returns the linear index of the block in its cluster. The x coordinate varies fastest.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn cluster_rank() -> u32 {
    let registers = running("cluster_rank");
    registers.block().number % registers.set().grid.cluster_blocks
}

/// Returns true if the launch is cooperative, that is, if all its blocks run concurrently.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn is_cooperative() -> bool {
    running("is_cooperative").set().grid.cooperative
}

/// Returns the lane of the thread in its warp, from 0 to 31.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn lane() -> u32 {
    running("lane").lane()
}

/// Returns the mask of the existing lanes in the thread's warp. All bits are set, except in the last warp of a block
/// whose size is not a multiple of 32. Exited lanes are included.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn warp_lanes() -> u32 {
    let registers = running("warp_lanes");
    let [x, y, z] = registers.block_dim.get();
    lanes_of_warp(x * y * z, registers.linear.get() / 32)
}

/// Returns the mask of the lanes of warp `warp` in a block of `threads` threads.
#[inline]
pub(crate) fn lanes_of_warp(threads: u32, warp: u32) -> u32 {
    let lanes = lanes_in_warp(threads, warp);
    if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 }
}
