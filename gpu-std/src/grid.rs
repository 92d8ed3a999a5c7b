//! All blocks of a launch, and the order between launches.
//!
//! [`sync`] waits for the whole grid. All its blocks have to be on the device at once for that, which a cooperative
//! launch sees to: a kernel that calls it says `#[kernel(cooperative)]`.
//!
//! [`launch_dependents`] and [`dependency_wait`] let the launch of the next kernel overlap the end of this one, see
//! the `dependent` option of [`kernel`](crate::kernel).
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

/// Blocks of the launch.
#[inline(always)]
pub fn blocks() -> usize {
    thread::grid_dim_x() as usize * thread::grid_dim_y() as usize * thread::grid_dim_z() as usize
}

/// The thread's linear index in the launch: below [`threads`].
#[inline(always)]
pub fn rank() -> usize {
    crate::block::linear_index() * crate::block::threads() as usize + thread::linear_in_block() as usize
}

/// Whether the launch is cooperative, so that [`sync`] can be called.
#[inline(always)]
pub fn is_cooperative() -> bool {
    gpu_or_host!(workspace() != 0, emulated::is_cooperative())
}

/// Waits until every thread of the grid has arrived. All writes to global memory before it are visible to all after it.
///
/// Every thread of the grid must come to the same barrier, also those that have nothing to do: one that has returned
/// leaves the others waiting. The emulated device reports that as a deadlock; a GPU hangs.
///
/// # Panics
///
/// In a launch of several blocks that is not cooperative. Those of `#[kernel(cooperative)]` always are.
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
            meet(workspace);
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
        "grid::sync needs a cooperative launch: write #[kernel(cooperative)], or launch with Launch::cooperative"
    );
}

/// The address of the memory that the driver gives a cooperative launch; 0 in any other.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn workspace() -> u64 {
    u64::from(nvvm::envreg1()) << 32 | u64::from(nvvm::envreg2())
}

/// Waits until one thread of each block is here.
///
/// The second word of the workspace counts arrivals: all of one barrier together add 2³¹, so that the highest bit
/// changes with the last of them and the other bits are zero again, ready for the next barrier.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn meet(workspace: u64) {
    const LAST: u32 = 1 << 31;
    let is_first = thread::block_idx_x() | thread::block_idx_y() | thread::block_idx_z() == 0;
    let share = if is_first { LAST - (blocks() as u32 - 1) } else { 1 };
    // SAFETY: the driver gives a cooperative launch this word, to be used in this way.
    let word = unsafe {
        let word = core::ptr::with_exposed_provenance_mut::<u32>(workspace as usize + 4);
        atomic::Atomic::<u32, atomic::scope::Device>::from_ptr(word)
    };
    // Releases what the block wrote: the barrier of the block before this orders it before the arrival.
    let before = word.fetch_add(share, atomic::Ordering::Release);
    while (word.load(atomic::Ordering::Acquire) ^ before) & LAST == 0 {}
}

/// Lets the launch that waits for this one begin as soon as every block has called this or ended, if it is a
/// dependent one. It still reads nothing that this one writes before its [`dependency_wait`], which waits for this
/// launch's end.
///
/// Call it early, in any one thread of a block. Blocks of the next launch then take the places that this one
/// leaves free. Does nothing below compute capability 9.0, on the emulated device, and if no dependent launch
/// follows.
#[inline(always)]
pub fn launch_dependents() {
    #[cfg(target_arch = "nvptx64")]
    if arch() >= 90 {
        nvvm::launch_dependents();
    }
}

/// Waits until the launches that this one depends on have ended, and what they wrote can be read.
///
/// In a dependent launch nothing that earlier launches on the stream write may be read before, and nothing that they
/// read may be written. A safe kernel with `#[kernel(dependent)]` begins with it. Does nothing in a launch that is
/// not dependent, below compute capability 9.0, and on the emulated device: there the launches before have ended.
#[inline(always)]
pub fn dependency_wait() {
    #[cfg(target_arch = "nvptx64")]
    if arch() >= 90 {
        nvvm::dependency_wait();
    }
}
