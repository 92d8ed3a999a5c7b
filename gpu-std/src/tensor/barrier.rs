//! [`Barrier`]: waits for arrivals of threads and for bytes of copies, phase by phase (`mbarrier`).

use super::gpu_asm;
use super::shared::SharedAddress;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::copies;

/// A barrier in shared memory. A phase is complete when the arrivals that [`Barrier::init`] stated have come and the bytes
/// that were expected in it have been copied; the next begins then.
///
/// Phases are waited for by their parity: the first has 0, the second 1, the third 0. A wait for parity 1 before the first
/// phase is complete returns at once, so that a producer can wait for a stage that is still empty.
#[derive(Debug, Clone, Copy)]
pub struct Barrier(pub(super) SharedAddress);

/// `COUNT` barriers of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Barriers<const COUNT: usize> {
    pub(super) first: Barrier,
}

impl<const COUNT: usize> Barriers<COUNT> {
    /// The barrier of a slot.
    #[inline(always)]
    pub fn at(&self, slot: Slot<COUNT>) -> Barrier {
        Barrier(self.first.0.add(8 * slot.index()))
    }

    /// Initializes all, for `arrivals` each. Called by one thread; [`publish`] follows.
    ///
    /// # Safety
    ///
    /// As [`Barrier::init`].
    #[inline(always)]
    pub unsafe fn init(&self, arrivals: u32) {
        let mut slot = Slot::new();
        for _ in 0..COUNT {
            // SAFETY: the caller's promise.
            unsafe { self.at(slot).init(arrivals) };
            slot.advance();
        }
    }
}

/// The position in a ring of `COUNT` stages, and the parity of its barriers' phase.
#[derive(Debug, Clone, Copy)]
pub struct Slot<const COUNT: usize> {
    index: u32,
    parity: u32,
}

impl<const COUNT: usize> Slot<COUNT> {
    /// The first.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "there is nothing that is more usual")]
    pub const fn new() -> Self {
        const { assert!(COUNT > 0, "a ring has stages") };
        Self { index: 0, parity: 0 }
    }

    /// The stage, below `COUNT`.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The parity that a consumer waits for; a producer waits for the other.
    #[inline(always)]
    pub const fn parity(self) -> u32 {
        self.parity
    }

    /// Goes on to the next stage.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.index += 1;
        if self.index == COUNT as u32 {
            self.index = 0;
            self.parity ^= 1;
        }
    }
}

/// Makes the barriers that the calling thread has initialized known to copies and to the other blocks of the cluster. All
/// threads meet after it, by `thread::sync_threads` or `cluster::sync`, before one uses a barrier.
#[inline(always)]
pub fn publish() {
    gpu_asm!(["fence.mbarrier_init.release.cluster; fence.proxy.async;", options(nostack)], ())
}

impl Barrier {
    /// Makes it a barrier of `arrivals` a phase.
    ///
    /// # Safety
    ///
    /// No thread and no copy uses it before [`publish`] and a barrier of the block or cluster.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn init(self, arrivals: u32) {
        gpu_asm!(
            ["mbarrier.init.shared::cta.b64 [{b}], {c};", b = in(reg32) self.0.0, c = in(reg32) arrivals, options(nostack)],
            // SAFETY: the caller's promise.
            unsafe { copies::init(self.0.0.cast(), arrivals) }
        )
    }

    /// Arrives. What the thread has read or written before is done for those that wait for the phase.
    ///
    /// # Safety
    ///
    /// The barrier is initialized, and a phase gets no more arrivals than stated.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive(self) {
        gpu_asm!(
            ["mbarrier.arrive.shared::cta.b64 _, [{b}];", b = in(reg32) self.0.0, options(nostack)],
            // SAFETY: the caller's promise.
            unsafe { copies::arrive(self.0.0.cast(), 0) }
        )
    }

    /// Arrives at the barrier at the same place in block `rank` of the cluster.
    ///
    /// It orders what `wgmma` has read, once that was waited for, and not the thread's own accesses to memory: that would
    /// take a fence of the cluster.
    ///
    /// # Safety
    ///
    /// As [`Self::arrive`]; `rank` is below `cluster::blocks()`, and that block has not ended.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_at(self, rank: u32) {
        gpu_asm!(
            [
                "{{ .reg .b32 r; mapa.shared::cluster.u32 r, {b}, {c}; mbarrier.arrive.shared::cluster.b64 _, [r]; }}",
                b = in(reg32) self.0.0, c = in(reg32) rank, options(nostack)
            ],
            // SAFETY: the caller's promise.
            unsafe { copies::arrive(crate::cluster::map_shared(self.0.0, rank).cast(), 0) }
        )
    }

    /// Arrives, and adds `bytes` to what the phase waits for: those of copies to this barrier, in full where a box lies
    /// outside of its tensor.
    ///
    /// # Safety
    ///
    /// As [`Self::arrive`]; fewer than 2^20 bytes are expected at a time.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        gpu_asm!(
            [
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{b}], {c};",
                b = in(reg32) self.0.0, c = in(reg32) bytes, options(nostack)
            ],
            // SAFETY: the caller's promise.
            unsafe { copies::arrive(self.0.0.cast(), bytes) }
        )
    }

    /// Waits until the phase of this parity is complete. What was copied and written for it is there then.
    ///
    /// # Safety
    ///
    /// The barrier is initialized, and the phase is the one under way or the one before.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait(self, parity: u32) {
        #[cfg(target_arch = "nvptx64")]
        loop {
            let done: u32;
            // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe {
            copies::wait(self.0.0.cast(), parity)
        }
    }
}
