//! Ordered tile queue for kernels that use decoupled look-back.

use gpu_std::atomic::Atomic;
use gpu_std::look_back::TileQueue;

/// Creates the tile queue of a launch from the address of a workspace and its length in words.
///
/// # Safety
/// The words must be valid and meet the requirements of [`TileQueue::new`].
#[inline(always)]
pub(crate) unsafe fn queue<'a>((workspace, len): (*const u64, usize), tiles: usize) -> TileQueue<'a> {
    // SAFETY: guaranteed by this function's contract; an atomic has the same layout as the number that it contains.
    unsafe { TileQueue::new(core::slice::from_raw_parts(workspace.cast::<Atomic<u64>>(), len), tiles) }
}
