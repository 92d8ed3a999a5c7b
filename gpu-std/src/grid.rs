//! Grid-wide barrier and programmatic dependent launch.
//!
//! [`sync`] waits for the whole grid. All blocks must therefore be resident at the same time, which only a cooperative
//! launch guarantees. A kernel that calls `sync` must be declared with `#[kernel(cooperative)]`.
//!
//! [`launch_dependents`] and [`dependency_wait`] let the start of the next kernel overlap the end of this one (see the
//! `dependent` option of [`kernel`](crate::kernel)).
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// `data[i] += data[n - 1 - i]`, of the values before the launch.
//! ///
//! /// # Safety
//! ///
//! /// `data` and `copy` have an element for each thread of the launch.
//! #[kernel(cooperative)]
//! unsafe fn add_mirrored(data: *mut f32, copy: *mut f32) {
//!     let (own, other) = (grid::rank(), grid::threads() - 1 - grid::rank());
//!     // SAFETY: the arrays have an element for each thread, and no thread reads what another writes before the
//!     // barrier between.
//!     unsafe {
//!         copy.add(own).write(data.add(own).read());
//!         grid::sync();
//!         data.add(own).write(data.add(own).read() + copy.add(other).read());
//!     }
//! }
//! ```

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::{collective, thread as emulated};
use crate::thread;
#[cfg(target_arch = "nvptx64")]
use crate::{arch, atomic, nvvm};

pub use crate::thread::{grid_dim as dim, launch_size as threads};

/// Returns the number of blocks in the launch.
#[inline(always)]
pub fn blocks() -> usize {
    thread::grid_dim_x() as usize * thread::grid_dim_y() as usize * thread::grid_dim_z() as usize
}

/// Returns the thread's linear index in the launch, from 0 to [`threads`] − 1.
#[inline(always)]
pub fn rank() -> usize {
    crate::block::linear_index() * crate::block::threads() as usize + thread::linear_in_block() as usize
}

/// Returns true if the launch is cooperative, in which case [`sync`] can be called.
#[inline(always)]
pub fn is_cooperative() -> bool {
    gpu_or_host!(workspace() != 0, emulated::is_cooperative())
}

/// Waits until every thread of the grid has arrived. All writes to global memory before the barrier are visible to all
/// threads after it.
///
/// Every thread of the grid must reach the same barrier, including threads that have no work. If a thread has already
/// returned, the others wait forever. The emulated device reports this case as a deadlock; a GPU hangs.
///
/// See the [example](self).
///
/// # Panics
/// Panics if the launch has several blocks but is not cooperative. Launches of `#[kernel(cooperative)]` kernels are
/// always cooperative.
#[inline(always)]
#[track_caller]
pub fn sync() {
    #[cfg(target_arch = "nvptx64")]
    {
        let workspace = workspace();
        thread::sync_threads();
        if workspace == 0 {
            check_cooperative(blocks() == 1);
            return;
        }
        if thread::thread_idx_x() | thread::thread_idx_y() | thread::thread_idx_z() == 0 {
            sync_blocks(workspace);
        }
        thread::sync_threads();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        check_cooperative(blocks() == 1 || is_cooperative());
        collective::grid_barrier();
    }
}

#[inline(always)]
#[track_caller]
fn check_cooperative(is_cooperative: bool) {
    assert!(
        is_cooperative,
        "grid::sync requires a cooperative launch: write #[kernel(cooperative)], or launch with Launch::cooperative"
    );
}

/// Returns the address of the memory that the driver provides for a cooperative launch, or 0 in any other launch.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn workspace() -> u64 {
    u64::from(nvvm::envreg1()) << 32 | u64::from(nvvm::envreg2())
}

/// Waits until one thread of every block has arrived.
///
/// The second word of the workspace counts arrivals. The arrivals of one barrier add up to 2³¹, so the last of them
/// flips the highest bit. The other bits are then zero again, as the next barrier requires.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn sync_blocks(workspace: u64) {
    const LAST: u32 = 1 << 31;
    let is_first = thread::block_idx_x() | thread::block_idx_y() | thread::block_idx_z() == 0;
    let share = if is_first { LAST - (blocks() as u32 - 1) } else { 1 };
    // SAFETY: the driver provides this word to cooperative launches for this purpose.
    let word = unsafe {
        let word = core::ptr::with_exposed_provenance_mut::<u32>(workspace as usize + 4);
        atomic::Atomic::<u32, atomic::scope::Device>::from_ptr(word)
    };
    // Releases the writes of the block, which the preceding block barrier orders before this arrival.
    let before = word.fetch_add(share, atomic::Ordering::Release);
    while (word.load(atomic::Ordering::Acquire) ^ before) & LAST == 0 {}
}

/// Allows the next launch, if it is dependent, to start once every block has called this function or exited. The
/// dependent launch must still call [`dependency_wait`] before it reads memory that this launch writes, because only
/// that call waits until this launch has completed.
///
/// Call this function early, from any one thread of each block. Blocks of the next launch then use the SM resources
/// that this launch leaves free. The call has no effect below compute capability 9.0, on the emulated device, or if no
/// dependent launch follows.
///
/// See the example of [`dependency_wait`].
#[inline(always)]
pub fn launch_dependents() {
    #[cfg(target_arch = "nvptx64")]
    if arch() >= 90 {
        nvvm::launch_dependents();
    }
}

/// Waits until the launches on which this one depends have completed and their writes are visible.
///
/// Before this call, a dependent launch must neither read memory that earlier launches on the stream write, nor write
/// memory that they read. A safe kernel with `#[kernel(dependent)]` calls this function automatically at its start. The
/// function has no effect in a launch that is not dependent, or below compute capability 9.0. It also has no effect on
/// the emulated device, where the earlier launches have already completed.
///
/// ```
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// Adds 1 to each number.
/// ///
/// /// # Safety
/// /// `x` must point to `n` numbers that only this launch and earlier launches on the stream use.
/// #[kernel(dependent)]
/// unsafe fn increment(x: *mut u32, n: usize) {
///     // Work before the wait, such as this, overlaps the end of the preceding launch.
///     let i = grid::rank();
///     grid::dependency_wait();
///     if i < n {
///         // SAFETY: the preceding launch has completed, and each thread has its own number.
///         unsafe { *x.add(i) += 1 };
///     }
///     // Lets the next launch start before this one has ended.
///     grid::launch_dependents();
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut x = DeviceBuffer::<u32>::zeros(&stream, 100)?;
/// let kernel = module.kernel::<increment>()?;
/// for _ in 0..3 {
///     // SAFETY: the buffer has 100 numbers.
///     unsafe { kernel.launch_unsafe(&stream, Launch::auto(100).dependent(), (&mut x, 100_usize))? };
/// }
/// assert_eq!(x.to_host()?, [3; 100]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[inline(always)]
pub fn dependency_wait() {
    #[cfg(target_arch = "nvptx64")]
    if arch() >= 90 {
        nvvm::dependency_wait();
    }
}
