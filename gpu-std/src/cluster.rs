//! Thread block clusters: groups of up to 16 blocks that run at the same time in one GPC and can access each other's
//! shared memory.
//!
//! A launch divides its grid into clusters. In a launch without clusters, each block is a cluster of one block, and all
//! functions of this module still work. This also applies below compute capability 9.0, which does not support
//! clusters. A kernel that needs clusters of several blocks must declare `arch = 90`.
//!
//! For distributed shared memory, [`map_shared`] returns the address at which the block can access another block's
//! shared memory. A block must not access another block's shared memory before that block has started or after it has
//! exited. To ensure this, call [`sync`] before the first access and after the last.
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::cluster;
//!
//! /// Gives each block the sum of `values` over the blocks of its cluster.
//! #[kernel(arch = 90)]
//! fn share(values: &[u32], mut sums: DisjointMut<u32>) {
//!     let slot = shared_array![u32; 1];
//!     if thread::linear_in_block() == 0 {
//!         // SAFETY: one thread of the block writes, before the barrier.
//!         unsafe { slot.write(values[block::linear_index()]) };
//!     }
//!     cluster::sync();
//!     let mut sum = 0;
//!     for rank in 0..cluster::blocks() {
//!         // SAFETY: its thread 0 has written it, and no thread writes it again.
//!         sum += unsafe { cluster::map_shared(slot, rank).read() };
//!     }
//!     if let Some(out) = sums.get_mut(thread::unique_index()) {
//!         *out = sum;
//!     }
//!     // No block ends while another may read its slot.
//!     cluster::sync();
//! }
//! ```

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::{collective, shared as emulated_shared, thread as emulated};
#[cfg(target_arch = "nvptx64")]
use crate::{arch, nvvm};
use crate::{block, thread};

/// Returns the number of blocks in the cluster along x, y and z.
#[inline(always)]
pub fn dim() -> [u32; 3] {
    gpu_or_host!(
        if arch() < 90 {
            [1; 3]
        } else {
            [nvvm::cluster_nctaid_x(), nvvm::cluster_nctaid_y(), nvvm::cluster_nctaid_z()]
        },
        emulated::cluster_dim()
    )
}

/// Returns the number of blocks in the cluster, from 1 to 16.
#[inline(always)]
pub fn blocks() -> u32 {
    gpu_or_host!(
        if arch() < 90 { 1 } else { nvvm::cluster_nctarank() },
        emulated::cluster_dim().iter().product()
    )
}

/// Returns the cluster's index in the grid along x, y and z.
#[inline(always)]
pub fn index() -> [u32; 3] {
    #[cfg(target_arch = "nvptx64")]
    {
        if arch() < 90 {
            return thread::block_idx();
        }
        [nvvm::clusterid_x(), nvvm::clusterid_y(), nvvm::clusterid_z()]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (block, size) = (thread::block_idx(), dim());
        [block[0] / size[0], block[1] / size[1], block[2] / size[2]]
    }
}

/// Returns the block's index in its cluster along x, y and z.
#[inline(always)]
pub fn block_index() -> [u32; 3] {
    #[cfg(target_arch = "nvptx64")]
    {
        if arch() < 90 {
            return [0; 3];
        }
        [nvvm::cluster_ctaid_x(), nvvm::cluster_ctaid_y(), nvvm::cluster_ctaid_z()]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (block, size) = (thread::block_idx(), dim());
        [block[0] % size[0], block[1] % size[1], block[2] % size[2]]
    }
}

/// Returns the block's linear index in its cluster.
#[inline(always)]
pub fn block_rank() -> u32 {
    gpu_or_host!(if arch() < 90 { 0 } else { nvvm::cluster_ctarank() }, emulated::cluster_rank())
}

/// Returns the number of threads in the cluster.
#[inline(always)]
pub fn threads() -> u32 {
    blocks() * block::threads()
}

/// Returns the thread's linear index in its cluster. Threads are numbered block by block.
#[inline(always)]
pub fn thread_rank() -> u32 {
    block_rank() * block::threads() + thread::linear_in_block()
}

/// Waits until every thread of the cluster has arrived. All writes that these threads made to shared or global memory
/// before the barrier are visible to all of them after it.
///
/// Every thread of the cluster that has not exited must reach the same barrier.
#[inline(always)]
#[track_caller]
pub fn sync() {
    #[cfg(target_arch = "nvptx64")]
    if arch() < 90 {
        thread::sync_threads();
    } else {
        nvvm::cluster_arrive();
        nvvm::cluster_wait();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    collective::cluster_sync("cluster::sync");
}

/// Like [`sync`], but makes only the writes of the threads for which `is_writer` is true visible to the other blocks.
/// This is faster, because the other threads do not wait for their writes to global memory.
///
/// ```
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// The first thread of each block passes the block's rank to the other block of the cluster.
/// #[kernel]
/// fn ranks(mut out: DisjointMut<u32>) {
///     let slot: *mut u32 = shared_array![u32; 1];
///     let is_writer = thread::linear_in_block() == 0;
///     // All blocks have started.
///     cluster::sync();
///     if is_writer {
///         // SAFETY: the other block reads its slot after the barrier.
///         unsafe { cluster::map_shared(slot, 1 - cluster::block_rank()).write(cluster::block_rank()) };
///     }
///     cluster::sync_writes(is_writer);
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         // SAFETY: the slot was written before the barrier.
///         *out = unsafe { slot.read() };
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut out = DeviceBuffer::<u32>::zeros(&stream, 64)?;
/// module.kernel::<ranks>()?.launch(&stream, Launch::grid_block(2, 32).cluster(2), (&mut out,))?;
/// assert_eq!(out.to_host()?[31..33], [1, 0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[inline(always)]
#[track_caller]
pub fn sync_writes(is_writer: bool) {
    #[cfg(target_arch = "nvptx64")]
    if arch() < 90 {
        thread::sync_threads();
    } else {
        if is_writer {
            // SAFETY: the instruction only orders the thread's accesses.
            unsafe { core::arch::asm!("fence.acq_rel.cluster;", options(nostack)) };
        }
        nvvm::cluster_arrive_relaxed();
        nvvm::cluster_wait();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = is_writer;
        collective::cluster_sync("cluster::sync_writes");
    }
}

/// First half of [`sync`]: signals that the thread has arrived, without waiting. Between `arrive` and [`wait`], the
/// thread can do work that neither writes data that other threads read nor reads data that other threads write.
///
/// Every thread of the cluster that has not exited must call `arrive` and then `wait`, and must not call other
/// synchronization functions of this module in between. The emulated device reports threads that break this rule. On a
/// GPU, the behavior is undefined in that case, as with incorrect masks in [`warp`](crate::warp).
///
/// ```
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// #[kernel(block(32))]
/// fn first(mut out: DisjointMut<u32>) {
///     let slot = shared_array![u32; 1];
///     if thread::linear_in_block() == 0 {
///         // SAFETY: one thread of the block writes, before the barrier.
///         unsafe { slot.write(10 + cluster::block_rank()) };
///     }
///     cluster::arrive();
///     // Work that uses neither the slots nor other shared data overlaps the wait.
///     let own = thread::linear_in_block();
///     cluster::wait();
///     // SAFETY: the first block of the cluster has written its slot.
///     let first = unsafe { cluster::map_shared(slot, 0).read() };
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         *out = first + own;
///     }
///     // No block ends while another may read its slot.
///     cluster::sync();
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut out = DeviceBuffer::<u32>::zeros(&stream, 64)?;
/// module.kernel::<first>()?.launch(&stream, Launch::grid_block(2, 32).cluster(2), (&mut out,))?;
/// assert_eq!(out.to_host()?[31..34], [41, 10, 11]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[inline(always)]
#[track_caller]
pub fn arrive() {
    #[cfg(target_arch = "nvptx64")]
    if arch() >= 90 {
        nvvm::cluster_arrive();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    collective::cluster_arrive("cluster::arrive");
}

/// Second half of [`sync`]: waits until every thread of the cluster has called [`arrive`].
///
/// See the example of [`arrive`].
#[inline(always)]
#[track_caller]
pub fn wait() {
    #[cfg(target_arch = "nvptx64")]
    if arch() < 90 {
        thread::sync_threads();
    } else {
        nvvm::cluster_wait();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    collective::cluster_wait("cluster::wait");
}

/// Returns the address of `pointer`'s counterpart in the shared memory of block `rank` of the cluster. The calling
/// thread can read, write and atomically update memory at that address.
///
/// See the [example](self).
///
/// # Safety
/// `pointer` must point into shared memory of the calling block, and `rank` must be below [`blocks`]. Block `rank` must
/// have started, and must not end before the last use of the address.
#[inline(always)]
#[track_caller]
pub unsafe fn map_shared<T>(pointer: *mut T, rank: u32) -> *mut T {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: guaranteed by the caller.
        if arch() < 90 { pointer } else { unsafe { nvvm::mapa(pointer.cast(), rank) }.cast() }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        emulated_shared::map_shared(pointer.cast_const().cast(), rank).cast()
    }
}

/// Returns the cluster rank of the block that owns the shared memory at `pointer`.
///
/// ```
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// #[kernel(block(32))]
/// fn ranks(mut out: DisjointMut<u32>) {
///     let slot = shared_array![u32; 1];
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         // SAFETY: the memory belongs to the calling block.
///         *out = unsafe { cluster::shared_rank(slot) };
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut out = DeviceBuffer::<u32>::zeros(&stream, 128)?;
/// module.kernel::<ranks>()?.launch(&stream, Launch::grid_block(4, 32).cluster(2), (&mut out,))?;
/// let out = out.to_host()?;
/// assert_eq!([out[0], out[32], out[64], out[96]], [0, 1, 0, 1]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Safety
/// `pointer` must point into the shared memory of one of the cluster's blocks.
#[inline(always)]
#[track_caller]
pub unsafe fn shared_rank<T>(pointer: *const T) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: guaranteed by the caller.
        if arch() < 90 { 0 } else { unsafe { nvvm::getctarank(pointer.cast()) } }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        emulated_shared::shared_rank(pointer.cast())
    }
}
