//! [`Barrier`]: a barrier (`mbarrier`) that waits for thread arrivals and copied bytes in each phase.
//!
//! # Example
//! A pipeline of two stages: one thread copies boxes of 8 rows, and a warp adds the rows.
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::tensor::{PipelineState, SharedMemory, SharedTile, TensorMap, barrier};
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Swizzle, TensorLayout};
//!
//! /// Sums each of 32 columns of `8 * boxes` rows.
//! ///
//! /// # Safety
//! /// The boxes must have 8 rows of 32 elements, and the launch must provide shared memory for two boxes and
//! /// four barriers.
//! #[kernel(arch = "90a", block(64))]
//! unsafe fn column_sums(x: &TensorMap<f32>, boxes: u32, mut out: DisjointMut<f32>) {
//!     // SAFETY: guaranteed by the caller. All barriers are initialized before they are used. A box is read
//!     // after its copy, and overwritten after all lanes have read it.
//!     unsafe {
//!         let mut memory = SharedMemory::new();
//!         let tiles = memory.tiles::<f32, 8, 2>();
//!         let (full, empty) = (memory.barriers::<2>(), memory.barriers::<2>());
//!         let thread = thread::linear_in_block();
//!         if thread == 0 {
//!             full.init(1);
//!             empty.init(32);
//!             barrier::publish();
//!         }
//!         thread::sync_threads();
//!         let mut slot = PipelineState::new();
//!         if thread == 32 {
//!             for i in 0..boxes {
//!                 // Passes at once while the stage has not been used.
//!                 empty.at(slot).wait(slot.parity() ^ 1);
//!                 full.at(slot).arrive_expecting(SharedTile::<f32, 8>::BYTES);
//!                 x.load(tiles.at(slot), [0, 8 * i], full.at(slot));
//!                 slot.advance();
//!             }
//!         }
//!         if thread < 32 {
//!             let mut sum = 0.0;
//!             for _ in 0..boxes {
//!                 full.at(slot).wait(slot.parity());
//!                 for row in 0..8 {
//!                     let chunk = tiles.at(slot).load_chunk(row, thread / 4);
//!                     sum += f32::from_bits(chunk[thread as usize % 4]);
//!                 }
//!                 empty.at(slot).arrive();
//!                 slot.advance();
//!             }
//!             if let Some(out) = out.get_mut(thread::unique_index()) {
//!                 *out = sum;
//!             }
//!         }
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let x = DeviceBuffer::from_host(&stream, &std::array::from_fn::<f32, 1280, _>(|i| (i % 32) as f32))?;
//! let mut out = DeviceBuffer::<f32>::zeros(&stream, 32)?;
//! let map = x.as_slice().tensor_map(&TensorLayout::packed([32, 40], [32, 8], Swizzle::Bytes128))?;
//! let launch = Launch::grid_block(1, 64).shared(SharedMemory::bytes(2 * SharedTile::<f32, 8>::BYTES, 4));
//! // SAFETY: the boxes and the shared memory have the required sizes.
//! unsafe { module.kernel::<column_sums>()?.launch_unsafe(&stream, launch, (&map, 5_u32, &mut out))? };
//! assert!(out.to_host()?.into_iter().eq((0..32).map(|column| 40.0 * column as f32)));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use super::gpu_asm;
use super::shared::SharedAddress;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::copies;

/// A barrier in shared memory (`mbarrier`). A phase completes when all arrivals that [`Barrier::init`] specified have
/// occurred and all expected bytes have been copied. The next phase then starts.
///
/// A wait identifies a phase by its parity: 0 for the first phase, 1 for the second, 0 for the third, and so on. A wait
/// for parity 1 returns immediately if the first phase is not yet complete. Therefore, a producer does not block on a
/// stage that is still empty.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct Barrier(pub(super) SharedAddress);

/// The `COUNT` barriers of a multistage pipeline (circular buffer).
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct Barriers<const COUNT: usize> {
    pub(super) first: Barrier,
}

impl<const COUNT: usize> Barriers<COUNT> {
    /// Returns the barrier of a pipeline slot.
    #[inline(always)]
    pub fn at(&self, slot: PipelineState<COUNT>) -> Barrier {
        Barrier(self.first.0.add(8 * slot.index()))
    }

    /// Initializes all barriers, each with `arrivals` arrivals per phase. One thread must call this method, and then
    /// call [`publish`].
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Barrier::init`].
    #[inline(always)]
    pub unsafe fn init(&self, arrivals: u32) {
        let mut slot = PipelineState::new();
        for _ in 0..COUNT {
            // SAFETY: guaranteed by the caller.
            unsafe { self.at(slot).init(arrivals) };
            slot.advance();
        }
    }
}

/// Position in a circular buffer of `COUNT` stages, and the phase parity of the barriers at that position.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct PipelineState<const COUNT: usize> {
    index: u32,
    parity: u32,
}

impl<const COUNT: usize> PipelineState<COUNT> {
    /// Returns the first slot.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "there is nothing that is more usual")]
    pub const fn new() -> Self {
        const { assert!(COUNT > 0, "a ring must have at least one stage") };
        Self { index: 0, parity: 0 }
    }

    /// Returns the index of the stage, from 0 to `COUNT` − 1.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the parity for which a consumer waits. A producer waits for the other parity.
    #[inline(always)]
    pub const fn parity(self) -> u32 {
        self.parity
    }

    /// Advances to the next stage.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.index += 1;
        if self.index == COUNT as u32 {
            self.index = 0;
            self.parity ^= 1;
        }
    }
}

/// Makes the barriers that the calling thread has initialized visible to TMA copies and to the other blocks of the
/// cluster. All threads must then synchronize with `thread::sync_threads` or `cluster::sync` before any of them uses a
/// barrier.
#[inline(always)]
pub fn publish() {
    gpu_asm!(["fence.mbarrier_init.release.cluster; fence.proxy.async;", options(nostack)], ())
}

impl Barrier {
    /// Initializes the barrier with `arrivals` arrivals per phase.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// No thread or TMA copy may use the barrier before a call of [`publish`] followed by a barrier of the block or
    /// cluster.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn init(self, arrivals: u32) {
        gpu_asm!(
            ["mbarrier.init.shared::cta.b64 [{b}], {c};", b = in(reg32) self.0.0, c = in(reg32) arrivals, options(nostack)],
            // SAFETY: guaranteed by the caller.
            unsafe { copies::init(self.0.0.cast(), arrivals) }
        )
    }

    /// Arrives at the barrier. The thread's earlier reads and writes are complete before any thread that waits for the
    /// phase continues.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The barrier must be initialized, and no phase may receive more arrivals than [`Barrier::init`] specified.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive(self) {
        gpu_asm!(
            ["mbarrier.arrive.shared::cta.b64 _, [{b}];", b = in(reg32) self.0.0, options(nostack)],
            // SAFETY: guaranteed by the caller.
            unsafe { copies::arrive(self.0.0.cast(), 0) }
        )
    }

    /// Arrives at the corresponding barrier in block `rank` of the cluster.
    ///
    /// The arrival orders the reads of those `wgmma` operations for which the thread has waited. It does not order the
    /// thread's own memory accesses, which would require a cluster-scope fence.
    ///
    /// See the [example](self#example), in which `empty.at(slot).arrive_at(cluster::block_rank())` has the same effect.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::arrive`], `rank` must be below `cluster::blocks()`, and
    /// block `rank` must not have exited.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_at(self, rank: u32) {
        gpu_asm!(
            [
                "{{ .reg .b32 r; mapa.shared::cluster.u32 r, {b}, {c}; mbarrier.arrive.shared::cluster.b64 _, [r]; }}",
                b = in(reg32) self.0.0, c = in(reg32) rank, options(nostack)
            ],
            // SAFETY: guaranteed by the caller.
            unsafe { copies::arrive(crate::cluster::map_shared(self.0.0, rank).cast(), 0) }
        )
    }

    /// Arrives, and adds `bytes` to the transaction count of the phase. `bytes` is the number of bytes of the copies
    /// that signal this barrier. A box that is partly outside its tensor counts in full.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::arrive`], and the barrier must expect fewer than 2^20
    /// bytes at any time.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        gpu_asm!(
            [
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{b}], {c};",
                b = in(reg32) self.0.0, c = in(reg32) bytes, options(nostack)
            ],
            // SAFETY: guaranteed by the caller.
            unsafe { copies::arrive(self.0.0.cast(), bytes) }
        )
    }

    /// Waits until the phase with this parity is complete. After the wait, the phase's copies and writes are visible.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The barrier must be initialized, and the phase must be the current or the preceding phase.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait(self, parity: u32) {
        #[cfg(target_arch = "nvptx64")]
        loop {
            let done: u32;
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{b}], {c}; selp.u32 {r}, 1, 0, p; }}",
                    b = in(reg32) self.0.0, c = in(reg32) parity, r = out(reg32) done, options(nostack)
                );
            }
            if done != 0 {
                return;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller.
        unsafe {
            copies::wait(self.0.0.cast(), parity)
        }
    }
}
