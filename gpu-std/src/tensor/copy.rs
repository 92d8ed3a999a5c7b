//! [`TensorMap`]: TMA copies (`cp.async.bulk.tensor`) of tensor boxes between device memory and shared memory.

use core::marker::PhantomData;

use gpu_spec::TensorMapData;

use super::barrier::Barrier;
use super::gpu_asm;
use super::shared::SharedTile;
use crate::KernelType;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::copies;

/// Emits a copy instruction with as many coordinates as the tensor has dimensions. On the emulated device, calls a
/// function instead.
macro_rules! tensor_copy {
    ($rank:ident, $at:ident, $form:literal, $end:literal, $operands:tt, $host:expr) => {{
        const { assert!($rank >= 1 && $rank <= 5, "a tensor map must have 1 to 5 dimensions") };
        #[cfg(target_arch = "nvptx64")]
        {
            let at = |i: usize| if i < $rank { $at[i] } else { 0 };
            // SAFETY: guaranteed by the caller of the enclosing function.
            unsafe {
                match $rank {
                    1 => tensor_copy!(@asm ".1d", $form, "{x}", $end, $operands, x = in(reg32) at(0)),
                    2 => tensor_copy!(@asm ".2d", $form, "{x}, {y}", $end, $operands, x = in(reg32) at(0), y = in(reg32) at(1)),
                    3 => tensor_copy!(
                        @asm ".3d", $form, "{x}, {y}, {z}", $end, $operands,
                        x = in(reg32) at(0), y = in(reg32) at(1), z = in(reg32) at(2)
                    ),
                    4 => tensor_copy!(
                        @asm ".4d", $form, "{x}, {y}, {z}, {u}", $end, $operands,
                        x = in(reg32) at(0), y = in(reg32) at(1), z = in(reg32) at(2), u = in(reg32) at(3)
                    ),
                    _ => tensor_copy!(
                        @asm ".5d", $form, "{x}, {y}, {z}, {u}, {v}", $end, $operands,
                        x = in(reg32) at(0), y = in(reg32) at(1), z = in(reg32) at(2), u = in(reg32) at(3), v = in(reg32) at(4)
                    ),
                }
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $host
        }
    }};
    (@asm $rank:literal, $form:literal, $at:literal, $end:literal, [$($operands:tt)*], $($coordinates:tt)*) => {
        core::arch::asm!(
            concat!("cp.async.bulk.tensor", $rank, $form, $at, $end),
            $($operands)* $($coordinates)*, options(nostack)
        )
    };
}

/// A tensor in device memory, as a kernel parameter: `map: &TensorMap<bf16, 2>`. The host creates the map, including
/// the size of the box that each copy transfers, and the launch stores the map in parameter memory.
///
/// Copies read elements outside the tensor as zero, and never write them.
///
/// See the [example](crate::tensor#example).
#[repr(transparent)]
pub struct TensorMap<T, const RANK: usize = 2> {
    data: TensorMapData,
    element: PhantomData<T>,
}

impl<T: KernelType, const RANK: usize> TensorMap<T, RANK> {
    /// Prefetches the map itself (not the tensor) into the cache before its first copy.
    #[inline(always)]
    pub fn prefetch(&self) {
        gpu_asm!(["prefetch.tensormap [{m}];", m = in(reg64) &raw const self.data, options(nostack)], ())
    }

    /// Starts a copy of the box at `at` to `tile`. The copied bytes count toward `barrier`. Exactly one thread must
    /// call this method.
    ///
    /// See the [example](crate::tensor#example).
    ///
    /// # Safety
    /// The box must have the size and swizzle of the tile. No thread may read or write the tile before it has waited
    /// for the barrier. Earlier accesses to the tile must be complete.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<const ROWS: usize>(
        &self,
        tile: SharedTile<T, ROWS>,
        at: [u32; RANK],
        barrier: Barrier,
    ) {
        tensor_copy!(
            RANK, at, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [{d}], [{m}, {{", "}}], [{b}];",
            [d = in(reg32) tile.address.0, m = in(reg64) &raw const self.data, b = in(reg32) barrier.0.0,],
            // SAFETY: guaranteed by the caller.
            unsafe {
                copies::load(&self.data, &at, tile.address.0, tile_bytes::<T, ROWS>(), barrier.0.0.cast())
            }
        )
    }

    /// Like [`Self::load`], but with TMA multicast: copies the box to the corresponding tile in each block of the
    /// cluster whose rank is set in the bit mask `blocks`. In each block, the corresponding barrier counts the bytes.
    ///
    /// See the [example](crate::tensor#example). In a cluster of one block, `blocks` is 1.
    ///
    /// # Safety
    /// The conditions of [`Self::load`] apply in each of these blocks, and none of these blocks may have exited.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_multicast<const ROWS: usize>(
        &self,
        tile: SharedTile<T, ROWS>,
        at: [u32; RANK],
        barrier: Barrier,
        blocks: u16,
    ) {
        tensor_copy!(
            RANK, at, ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [{d}], [{m}, {{",
            "}}], [{b}], {k};",
            [
                d = in(reg32) tile.address.0, m = in(reg64) &raw const self.data, b = in(reg32) barrier.0.0,
                k = in(reg16) blocks,
            ],
            for rank in (0..16).filter(|rank| blocks >> rank & 1 == 1) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let tile = crate::cluster::map_shared(tile.address.0, rank);
                    let barrier = crate::cluster::map_shared(barrier.0.0, rank).cast();
                    copies::load(&self.data, &at, tile, tile_bytes::<T, ROWS>(), barrier)
                }
            }
        )
    }

    /// Starts a copy of `tile` to the box at `at`. One thread must call this method, commit the copy with
    /// [`commit_stores`], and wait with [`wait_stores_read`] or [`wait_stores`].
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use gpu_std::tensor::copy::{commit_stores, fence_tiles, wait_stores};
    /// use gpu_std::tensor::{SharedMemory, TensorMap};
    /// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Swizzle, TensorLayout};
    ///
    /// /// Fills a box of 8 rows of 32 numbers.
    /// ///
    /// /// # Safety
    /// /// The boxes must have this size, and the launch must provide shared memory for one.
    /// #[kernel(arch = "90a", block(64))]
    /// unsafe fn fill(value: u32, to: &TensorMap<u32>, at: [u32; 2]) {
    ///     // SAFETY: guaranteed by the caller; each thread writes its own chunk before the barrier.
    ///     unsafe {
    ///         let tile = SharedMemory::new().tiles::<u32, 8, 1>().tile::<0>();
    ///         let thread = thread::linear_in_block();
    ///         tile.store_chunk(thread / 8, thread % 8, [value; 4]);
    ///         fence_tiles();
    ///         thread::sync_threads();
    ///         if thread == 0 {
    ///             to.store(tile, at);
    ///             commit_stores();
    ///             wait_stores();
    ///         }
    ///     }
    /// }
    ///
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # let stream = Device::emulated(0)?.default_stream();
    /// # let module = stream.device().load(&IMAGE)?;
    /// let mut out = DeviceBuffer::<u32>::zeros(&stream, 16 * 32)?;
    /// let layout = TensorLayout::packed([32, 16], [32, 8], Swizzle::Bytes128);
    /// let map = out.as_mut_slice().tensor_map_mut(&layout)?;
    /// let launch = Launch::grid_block(1, 64).shared(1024);
    /// // SAFETY: the boxes and the shared memory have the required sizes.
    /// unsafe { module.kernel::<fill>()?.launch_unsafe(&stream, launch, (7_u32, map, [0_u32, 8]))? };
    /// let out = out.to_host()?;
    /// assert!(out[..256].iter().all(|x| *x == 0) && out[256..].iter().all(|x| *x == 7));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// The box must have the size and swizzle of the tile. After writing to the tile, each thread must call
    /// [`fence_tiles`], and a barrier must follow before the copy. Nothing may write the tile until the copy has read
    /// it, and nothing may access the box until the copy has written it.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store<const ROWS: usize>(&self, tile: SharedTile<T, ROWS>, at: [u32; RANK]) {
        tensor_copy!(
            RANK, at, ".global.shared::cta.tile.bulk_group [{m}, {{", "}}], [{s}];",
            [s = in(reg32) tile.address.0, m = in(reg64) &raw const self.data,],
            // SAFETY: guaranteed by the caller.
            unsafe { copies::store(&self.data, &at, tile.address.0, tile_bytes::<T, ROWS>()) }
        )
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn tile_bytes<T: KernelType, const ROWS: usize>() -> u32 {
    SharedTile::<T, ROWS>::BYTES
}

/// Makes the calling thread's writes to shared memory visible to the async proxy: TMA copies and `wgmma`. A barrier
/// that includes the writing threads and the copying thread must follow.
#[inline(always)]
pub fn fence_tiles() {
    gpu_asm!(["fence.proxy.async.shared::cta;", options(nostack)], ())
}

/// Commits all stores that the calling thread has started since its last commit as one group.
#[inline(always)]
pub fn commit_stores() {
    gpu_asm!(["cp.async.bulk.commit_group;", options(nostack)], copies::commit_stores())
}

/// Waits until all committed stores of the calling thread have read their tiles, so that the tiles can be overwritten.
#[inline(always)]
#[track_caller]
pub fn wait_stores_read() {
    gpu_asm!(["cp.async.bulk.wait_group.read 0;", options(nostack)], copies::wait_stores())
}

/// Waits until all committed stores of the calling thread are complete.
#[inline(always)]
#[track_caller]
pub fn wait_stores() {
    gpu_asm!(["cp.async.bulk.wait_group 0;", options(nostack)], copies::wait_stores())
}
