//! [`TensorMap`]: copies of boxes of a tensor between device memory and shared memory, which a unit of their own makes.

use core::marker::PhantomData;

use gpu_spec::TensorMapData;

use super::barrier::Barrier;
use super::gpu_asm;
use super::shared::SharedTile;
use crate::KernelType;

#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_emulator::copies;

/// A tensor in device memory: a kernel's parameter, `map: &TensorMap<bf16, 2>`. The host makes it, with the box that each
/// copy moves, and it lies in the memory of the parameters.
///
/// Elements outside of the tensor are read as zero and not written.
#[repr(transparent)]
pub struct TensorMap<T, const RANK: usize = 2> {
    data: TensorMapData,
    element: PhantomData<T>,
}

impl<T: KernelType> TensorMap<T, 2> {
    /// Fetches the map itself into the cache, ahead of its first copy.
    #[inline(always)]
    pub fn prefetch(&self) {
        gpu_asm!(["prefetch.tensormap [{m}];", m = in(reg64) &raw const self.data, options(nostack)], ())
    }

    /// Begins to copy the box at `column`, `row` to `tile`; its bytes count for `barrier`. Called by one thread.
    ///
    /// # Safety
    ///
    /// The box is the tile's, its rows permuted as the tile's. No thread reads or writes the tile before it has waited for
    /// the barrier; what used it before is done.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<const ROWS: usize, const COLUMNS: usize>(
        &self,
        tile: SharedTile<T, ROWS, COLUMNS>,
        [column, row]: [u32; 2],
        barrier: Barrier,
    ) {
        gpu_asm!(
            [
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{d}], [{m}, {{{x}, {y}}}], [{b}];",
                d = in(reg32) tile.address.0, m = in(reg64) &raw const self.data,
                x = in(reg32) column, y = in(reg32) row, b = in(reg32) barrier.0.0, options(nostack)
            ],
            // SAFETY: the caller's promise.
            unsafe {
                copies::load(&self.data, &[column, row], tile.address.0, tile_bytes::<T, ROWS, COLUMNS>(), barrier.0.0.cast())
            }
        )
    }

    /// As [`Self::load`], to the same place in each block of the cluster whose rank is a bit of `blocks`, whose barriers at
    /// the same place count the bytes.
    ///
    /// # Safety
    ///
    /// As [`Self::load`], in each of these blocks, none of which has ended.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_multicast<const ROWS: usize, const COLUMNS: usize>(
        &self,
        tile: SharedTile<T, ROWS, COLUMNS>,
        [column, row]: [u32; 2],
        barrier: Barrier,
        blocks: u16,
    ) {
        gpu_asm!(
            [
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [{d}], [{m}, {{{x}, {y}}}], [{b}], {k};",
                d = in(reg32) tile.address.0, m = in(reg64) &raw const self.data,
                x = in(reg32) column, y = in(reg32) row, b = in(reg32) barrier.0.0, k = in(reg16) blocks, options(nostack)
            ],
            for rank in (0..16).filter(|rank| blocks >> rank & 1 == 1) {
                // SAFETY: the caller's promise.
                unsafe {
                    let tile = crate::cluster::map_shared(tile.address.0, rank);
                    let barrier = crate::cluster::map_shared(barrier.0.0, rank).cast();
                    copies::load(&self.data, &[column, row], tile, tile_bytes::<T, ROWS, COLUMNS>(), barrier)
                }
            }
        )
    }

    /// Begins to copy `tile` to the box at `column`, `row`. Called by one thread, which commits and waits for it by
    /// [`commit_stores`] and [`wait_stores_read`] or [`wait_stores`].
    ///
    /// # Safety
    ///
    /// The box is the tile's, its rows permuted as the tile's. The writes to the tile are ordered by [`fence_tiles`] in each
    /// thread that made them, and a barrier; nothing writes the tile until it has been read, and nothing uses the box until
    /// it is written.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store<const ROWS: usize, const COLUMNS: usize>(
        &self,
        tile: SharedTile<T, ROWS, COLUMNS>,
        [column, row]: [u32; 2],
    ) {
        gpu_asm!(
            [
                "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [{m}, {{{x}, {y}}}], [{s}];",
                s = in(reg32) tile.address.0, m = in(reg64) &raw const self.data,
                x = in(reg32) column, y = in(reg32) row, options(nostack)
            ],
            // SAFETY: the caller's promise.
            unsafe { copies::store(&self.data, &[column, row], tile.address.0, tile_bytes::<T, ROWS, COLUMNS>()) }
        )
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn tile_bytes<T: KernelType, const ROWS: usize, const COLUMNS: usize>() -> u32 {
    SharedTile::<T, ROWS, COLUMNS>::BYTES
}

/// Makes what the calling thread has written to shared memory visible to copies and to `wgmma`. A barrier of the threads
/// that wrote, and of the one that copies, follows.
#[inline(always)]
pub fn fence_tiles() {
    gpu_asm!(["fence.proxy.async.shared::cta;", options(nostack)], ())
}

/// Makes the stores that the calling thread has begun since the last call a group, to wait for.
#[inline(always)]
pub fn commit_stores() {
    gpu_asm!(["cp.async.bulk.commit_group;", options(nostack)], copies::commit_stores())
}

/// Waits until all committed stores of the calling thread have read their tiles, which can be written again then.
#[inline(always)]
#[track_caller]
pub fn wait_stores_read() {
    gpu_asm!(["cp.async.bulk.wait_group.read 0;", options(nostack)], copies::wait_stores())
}

/// Waits until all committed stores of the calling thread are done.
#[inline(always)]
#[track_caller]
pub fn wait_stores() {
    gpu_asm!(["cp.async.bulk.wait_group 0;", options(nostack)], copies::wait_stores())
}
