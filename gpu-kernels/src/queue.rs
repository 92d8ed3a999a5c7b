//! The tiles that blocks take in order, of kernels that look back over those before.

use gpu_std::atomic::Atomic;
use gpu_std::look_back::TileQueue;

/// The tiles of a launch, of a workspace given by its begin and words.
///
/// # Safety
///
/// The words are valid, and as [`TileQueue::new`] requires.
#[inline(always)]
pub(crate) unsafe fn queue<'a>((workspace, len): (*const u64, usize), tiles: usize) -> TileQueue<'a> {
    // SAFETY: by this function's contract; an atomic has the layout of its number.
    unsafe { TileQueue::new(core::slice::from_raw_parts(workspace.cast::<Atomic<u64>>(), len), tiles) }
}
