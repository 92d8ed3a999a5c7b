//! Indices and sizes as the running kernel queries them.
//!
//! Every function panics when it is called outside a kernel.
//!
//! In a program that `warpsmith check` builds none is inlined: the kernel's crate is instrumented, this one is not.

use crate::registers::running;

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
    /// Index of the thread in its block.
    thread_index: [u32; 3] = thread;
    /// Index of the thread in its block as one number, x fastest.
    linear_index: u32 = linear;
    /// Index of the block in the grid.
    block_index: [u32; 3] = block_index;
    /// Threads of a block in x, y and z.
    block_dim: [u32; 3] = block_dim;
    /// Blocks of the grid in x, y and z.
    grid_dim: [u32; 3] = grid_dim;
    /// Blocks of a cluster in x, y and z; `[1; 3]` in a launch without clusters.
    cluster_dim: [u32; 3] = cluster_dim;
    /// Dynamic shared memory of the block, in bytes.
    dynamic_shared_bytes: u32 = shared_bytes;
}

/// The block's linear index in its cluster, x fastest.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn cluster_rank() -> u32 {
    let registers = running("cluster_rank");
    registers.block().number % registers.set().grid.cluster_blocks
}

/// Whether the launch is cooperative: all its blocks run at once.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn is_cooperative() -> bool {
    running("is_cooperative").set().grid.cooperative
}

/// The thread's lane in its warp, 0 to 31.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn lane() -> u32 {
    running("lane").lane()
}

/// The lanes that exist in the thread's warp, as a mask: all ones but in the last warp of a block whose size is
/// no multiple of 32. Lanes whose thread has exited are included.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
pub fn warp_lanes() -> u32 {
    let registers = running("warp_lanes");
    let [x, y, z] = registers.block_dim.get();
    lanes_of_warp(x * y * z, registers.linear.get() / 32)
}

/// The lanes of warp `warp` in a block of `threads`, as a mask.
#[inline]
pub(crate) fn lanes_of_warp(threads: u32, warp: u32) -> u32 {
    let lanes = lanes_in_warp(threads, warp);
    if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 }
}

/// The number of lanes of warp `warp` in a block of `threads`.
#[inline]
pub(crate) fn lanes_in_warp(threads: u32, warp: u32) -> u32 {
    (threads - warp * 32).min(32)
}
