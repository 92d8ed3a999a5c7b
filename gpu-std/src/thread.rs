//! Thread indices, block barriers and memory fences.
//!
//! A launch is a grid of blocks, which consist of threads. Grid and blocks have up to three dimensions. Indices have
//! the same meaning as in CUDA. In linear indices, x varies fastest, then y, then z.

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::{collective, thread as emulated};
#[cfg(target_arch = "nvptx64")]
use crate::nvvm;

pub use crate::disjoint::{
    GridStride, GridStride2d, GridStride3d, Unique2d, Unique3d, UniqueIndex, grid_stride, grid_stride_2d,
    grid_stride_3d, unique_2d, unique_3d, unique_index,
};

macro_rules! coordinates {
    ($($(#[$doc:meta])* $name:ident = $intrinsic:ident, $emulated:ident[$axis:literal];)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            gpu_or_host!(nvvm::$intrinsic(), emulated::$emulated()[$axis])
        }
    )* };
}

coordinates! {
    /// Returns the thread's x index in its block (CUDA `threadIdx.x`).
    thread_idx_x = tid_x, thread_index[0];
    /// Returns the thread's y index in its block.
    thread_idx_y = tid_y, thread_index[1];
    /// Returns the thread's z index in its block.
    thread_idx_z = tid_z, thread_index[2];
    /// Returns the block's x index in the grid (CUDA `blockIdx.x`).
    block_idx_x = ctaid_x, block_index[0];
    /// Returns the block's y index in the grid.
    block_idx_y = ctaid_y, block_index[1];
    /// Returns the block's z index in the grid.
    block_idx_z = ctaid_z, block_index[2];
    /// Returns the number of threads per block along x.
    block_dim_x = ntid_x, block_dim[0];
    /// Returns the number of threads per block along y.
    block_dim_y = ntid_y, block_dim[1];
    /// Returns the number of threads per block along z.
    block_dim_z = ntid_z, block_dim[2];
    /// Returns the number of blocks in the grid along x.
    grid_dim_x = nctaid_x, grid_dim[0];
    /// Returns the number of blocks in the grid along y.
    grid_dim_y = nctaid_y, grid_dim[1];
    /// Returns the number of blocks in the grid along z.
    grid_dim_z = nctaid_z, grid_dim[2];
}

/// Returns the thread's index in its block along x, y and z.
#[inline(always)]
pub fn thread_idx() -> [u32; 3] {
    [thread_idx_x(), thread_idx_y(), thread_idx_z()]
}

/// Returns the block's index in the grid along x, y and z.
#[inline(always)]
pub fn block_idx() -> [u32; 3] {
    [block_idx_x(), block_idx_y(), block_idx_z()]
}

/// Returns the number of threads per block along x, y and z.
#[inline(always)]
pub fn block_dim() -> [u32; 3] {
    [block_dim_x(), block_dim_y(), block_dim_z()]
}

/// Returns the number of blocks in the grid along x, y and z.
#[inline(always)]
pub fn grid_dim() -> [u32; 3] {
    [grid_dim_x(), grid_dim_y(), grid_dim_z()]
}

/// Returns the thread's index in a one-dimensional launch: `block_idx_x * block_dim_x + thread_idx_x`.
///
/// The index wraps at 2³²; the result of [`unique_index`] does not.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x().wrapping_mul(block_dim_x()).wrapping_add(thread_idx_x())
}

/// Returns the thread's x and y indices in a two-dimensional launch. [`unique_2d`] returns a claim to the element in
/// row y and column x.
#[inline(always)]
pub fn index_2d() -> [u32; 2] {
    [index_1d(), block_idx_y().wrapping_mul(block_dim_y()).wrapping_add(thread_idx_y())]
}

/// Returns the thread's x, y and z indices in a three-dimensional launch. [`unique_3d`] returns a claim to the element
/// in plane z, row y and column x.
#[inline(always)]
pub fn index_3d() -> [u32; 3] {
    let [x, y] = index_2d();
    [x, y, block_idx_z().wrapping_mul(block_dim_z()).wrapping_add(thread_idx_z())]
}

/// Returns the thread's linear index in its block.
#[inline(always)]
pub fn linear_in_block() -> u32 {
    thread_idx_x() + block_dim_x() * (thread_idx_y() + block_dim_y() * thread_idx_z())
}

/// Returns the number of threads in the launch.
#[inline(always)]
pub fn launch_size() -> usize {
    let blocks = grid_dim_x() as usize * grid_dim_y() as usize * grid_dim_z() as usize;
    blocks * (block_dim_x() * block_dim_y() * block_dim_z()) as usize
}

/// Waits until every thread of the block has arrived (CUDA `__syncthreads`). Writes to shared or global memory that
/// precede the barrier are visible to all threads of the block after it.
///
/// Every thread of the block that has not returned must reach a barrier. If a thread never reaches one, the emulated
/// device reports a deadlock and a GPU hangs. The threads of a warp may diverge. The barrier is PTX's `barrier.sync`
/// without `.aligned`, which is also defined in divergent code.
#[inline(always)]
#[track_caller]
pub fn sync_threads() {
    #[cfg(target_arch = "nvptx64")]
    nvvm::barrier(0);
    #[cfg(not(target_arch = "nvptx64"))]
    collective::barrier(false);
}

/// Synchronizes like [`sync_threads`], and returns the number of threads whose `predicate` is true.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: bool) -> u32 {
    gpu_or_host!(nvvm::barrier_count(0, predicate), collective::barrier(predicate).count)
}

/// Synchronizes like [`sync_threads`], and returns whether `predicate` is true in all threads.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: bool) -> bool {
    gpu_or_host!(nvvm::barrier_and(0, predicate), collective::barrier(predicate).and)
}

/// Synchronizes like [`sync_threads`], and returns whether `predicate` is true in any thread.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: bool) -> bool {
    gpu_or_host!(nvvm::barrier_or(0, predicate), collective::barrier(predicate).or)
}

/// Orders this thread's earlier memory accesses before its later ones, as observed by other threads of the block.
/// Equivalent to [`atomic::fence`](crate::atomic::fence) with `AcqRel` in block scope.
#[inline(always)]
pub fn block_fence() {
    crate::atomic::fence::<crate::atomic::scope::Block>(core::sync::atomic::Ordering::AcqRel);
}

/// Orders this thread's earlier memory accesses before its later ones, as observed by all threads of the device.
/// Equivalent to [`atomic::fence`](crate::atomic::fence) with `AcqRel` in device scope. An atomic store after the fence
/// publishes the writes that precede the fence.
#[inline(always)]
pub fn device_fence() {
    crate::atomic::fence::<crate::atomic::scope::Device>(core::sync::atomic::Ordering::AcqRel);
}

/// Orders this thread's earlier memory accesses before its later ones, as observed by the host and other devices.
/// Equivalent to [`atomic::fence`](crate::atomic::fence) with `AcqRel` in system scope.
#[inline(always)]
pub fn system_fence() {
    crate::atomic::fence::<crate::atomic::scope::System>(core::sync::atomic::Ordering::AcqRel);
}

/// Suspends the calling thread for about `nanoseconds` (between zero and twice that time), and for at most one
/// millisecond. Use it in loops that wait for another thread. On the emulated device, the function lets other threads
/// run.
#[inline(always)]
#[track_caller]
pub fn nanosleep(nanoseconds: u32) {
    #[cfg(target_arch = "nvptx64")]
    nvvm::nanosleep(nanoseconds);
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = nanoseconds;
        collective::spin_hint();
    }
}

/// Pauses in a loop that waits for another device or the host. The loop must still read the atomic variable. On the
/// emulated device, the host thread sleeps briefly, because the awaited work may need the CPU. On the GPU, the function
/// does nothing.
#[inline(always)]
#[track_caller]
pub fn system_pause() {
    #[cfg(not(target_arch = "nvptx64"))]
    {
        std::thread::sleep(std::time::Duration::from_micros(20));
        collective::spin_hint();
    }
}
