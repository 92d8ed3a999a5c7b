//! [`DeviceComm`]: the memory that the kernels of all ranks share and the barrier between them.
//!
//! Each rank has a *segment* that all ranks map. A segment contains flags, then [words](crate::words), then halves.
//! Each of these parts has two *sides*, which operations use alternately. Block b of rank r sets a flag in every rank's
//! segment. The block then waits until block b of every other rank has set its flag in the segment of rank r. Each rank
//! thus polls only memory of its own device. A flag contains the sequence number of the operation, called its *epoch*,
//! and a hash of the operation that the rank runs. Ranks that run different operations therefore detect the mismatch
//! before they return any received data.
//!
//! Epochs are counted in device memory, so that a graph can repeat a launch. All kernels of a communicator run in
//! stream order, so the counter changes only between kernels. In this order, epoch e + 1 starts only after epoch e has
//! ended in all blocks. Before an epoch ends, every block of every kernel waits for the flags that all other ranks set
//! in that epoch. This applies to every kernel and every number of blocks, whether or not the rank receives any data.
//! When epoch e + 1 has ended on one rank, all other ranks have therefore started epoch e + 1, and epoch e has ended on
//! them. Hence, when epoch e + 2 starts, a whole side is free again, no matter which part of the side epoch e has used.
//! A rank may therefore write to that side from the start of the kernel, in its own segment or in that of another rank.
//! One barrier per epoch is enough if the epoch reads only data that other ranks wrote before the barrier.
//!
//! A kernel that waits too long, is aborted by the host, or detects a different operation writes a [`Verdict`] to host
//! memory and exits. All later kernels also exit. No kernel spins forever.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use gpu_std::{KernelType, clock};

use crate::words::SIDE_BYTES;

/// Maximum number of ranks.
pub const MAX_RANKS: usize = 8;
/// Maximum number of threads per block.
pub const THREADS: u32 = 512;
/// Maximum number of blocks per launch.
pub const MAX_BLOCKS: usize = 128;
/// Maximum number of barriers per epoch.
pub const PHASES: usize = 2;
/// Size of the flags of a segment, in bytes.
pub(crate) const FLAG_BYTES: usize = 2 * PHASES * MAX_RANKS * MAX_BLOCKS * size_of::<u64>();
/// Size of the part of a segment that precedes the halves (flags and words), in bytes. This part must be zero before
/// the first operation.
pub const HEAD_BYTES: usize = FLAG_BYTES + 2 * SIDE_BYTES;
/// Number of words at the address `control` of a [`DeviceComm`].
pub const CONTROL_WORDS: usize = MAX_BLOCKS + 1;
/// Index of the control word that is set if a kernel has failed.
const FAILED: usize = MAX_BLOCKS;
/// Number of words at the address `host` of a [`DeviceComm`].
pub const HOST_WORDS: usize = 2;
/// Index of the host word with which the host aborts kernels. Any nonzero value aborts them.
pub const ABORT: usize = 0;
/// Index of the host word that receives the first verdict other than [`Verdict::None`].
pub const VERDICT: usize = 1;
/// Number of flag reads between two checks of the clock and the host's abort word.
const POLLS: u32 = if cfg!(target_arch = "nvptx64") { 4096 } else { 64 };

/// Reason for a kernel's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel has not failed.
    None,
    /// The host aborted the kernel.
    Aborted,
    /// A rank did not arrive in time.
    TimedOut {
        /// Rank that did not arrive.
        rank: usize,
        /// Hash of the kernel's operation.
        hash: u32,
    },
    /// A rank is running a different operation.
    Mismatched {
        /// Rank that is running a different operation.
        rank: usize,
        /// Hash of the kernel's operation.
        hash: u32,
    },
}

impl Verdict {
    /// Encodes the verdict as a word of host memory.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        let (code, rank, hash) = match self {
            Self::None => (0, 0, 0),
            Self::Aborted => (1, 0, 0),
            Self::TimedOut { rank, hash } => (2, rank, hash),
            Self::Mismatched { rank, hash } => (3, rank, hash),
        };
        (code as u64) << 56 | (rank as u64) << 32 | hash as u64
    }

    /// Decodes a word that [`Self::to_word`] returned.
    pub const fn of_word(word: u64) -> Self {
        let (rank, hash) = ((word >> 32 & 0xFF) as usize, word as u32);
        match word >> 56 {
            0 => Self::None,
            1 => Self::Aborted,
            2 => Self::TimedOut { rank, hash },
            _ => Self::Mismatched { rank, hash },
        }
    }
}

/// One rank's view of an operation, passed to its kernel. All addresses must be accessible to the rank's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct DeviceComm {
    /// Addresses of the segments of all ranks.
    pub segments: [u64; MAX_RANKS],
    /// Address of [`CONTROL_WORDS`] words of `u32` that belong to the rank. For each block, there is one word with the
    /// last epoch; the remaining word is nonzero if a kernel has failed. Before the first operation, the epochs must be
    /// the same on all ranks, and the remaining word must be zero.
    pub control: u64,
    /// Address of [`HOST_WORDS`] words of `u64` in host memory, which must be zero before the first operation.
    pub host: u64,
    /// Address of a table of [`MAX_RANKS`] addresses (`u64`) of the program's elements on all ranks. Used if the
    /// elements are accessed directly.
    pub direct: u64,
    /// Offset, in bytes, of the operation's elements from the addresses in the table.
    pub direct_offset: u64,
    /// Size of a half in bytes, a multiple of 16.
    pub half_bytes: u64,
    /// Timeout of a barrier, in nanoseconds.
    pub timeout: u64,
    /// Hash of the operation; different operations have different hashes.
    pub hash: u32,
    /// This rank.
    pub rank: u32,
    /// Number of ranks, at most [`MAX_RANKS`].
    pub world: u32,
    /// Options that the kernel defines.
    pub options: u32,
}

/// Returns the epoch after `epoch`. Consecutive epochs use different sides. The result is never zero, because zero is
/// the initial value of the memory.
#[inline(always)]
const fn after(epoch: u32) -> u32 {
    if epoch == u32::MAX { 2 } else { epoch + 1 }
}

/// An epoch in which a block participates.
#[derive(Clone, Copy)]
pub(crate) struct Epoch {
    /// Copy of the communicator state, because a nullable reference would keep the state in local memory.
    pub(crate) comm: DeviceComm,
    pub(crate) number: u32,
}

impl DeviceComm {
    /// Returns the address of the segment of rank `rank`.
    #[inline(always)]
    pub(crate) fn segment(&self, rank: usize) -> usize {
        // Indexing, even in a loop, would move the communicator state to local memory.
        let [mut found, b, c, d, e, f, g, h] = self.segments;
        macro_rules! choose {
            ($($number:literal: $address:ident),*) => { $(
                found = core::hint::select_unpredictable(rank == $number, $address, found);
            )* };
        }
        choose!(1: b, 2: c, 3: d, 4: e, 5: f, 6: g, 7: h);
        found as usize
    }

    #[inline(always)]
    fn control<'a>(&self, word: usize) -> &'a Atomic<u32> {
        // SAFETY: the word exists, and it is accessed only atomically while the kernel runs.
        unsafe { Atomic::from_ptr((self.control as *mut u32).add(word)) }
    }

    #[inline(always)]
    fn host<'a>(&self, word: usize) -> &'a Atomic<u64, scope::System> {
        // SAFETY: as in `control`.
        unsafe { Atomic::from_ptr((self.host as *mut u64).add(word)) }
    }

    /// Starts the next epoch for the calling block. Returns `None` if a kernel has failed.
    ///
    /// # Safety
    /// The addresses must be valid, as documented for the fields. All threads of the block must call this function
    /// exactly once.
    #[inline(always)]
    pub(crate) unsafe fn begin(&self) -> Option<Epoch> {
        // SAFETY: guaranteed by the caller.
        let (epoch, has_failed) = unsafe { self.begin_alone() };
        // All threads of the block must take the same branch, even if a kernel in another stream fails in the meantime.
        if thread::sync_threads_or(has_failed) { None } else { Some(epoch) }
    }

    /// Starts the next epoch for the calling thread and returns whether a kernel has failed. The result may differ
    /// between the threads of a block.
    ///
    /// # Safety
    /// The addresses must be valid, as documented for the fields.
    #[inline(always)]
    pub(crate) unsafe fn begin_alone(&self) -> (Epoch, bool) {
        let last = self.control(thread::block_idx_x() as usize).load(Ordering::Relaxed);
        let has_failed = self.control(FAILED).load(Ordering::Relaxed) != 0;
        (Epoch { comm: *self, number: after(last) }, has_failed)
    }

    /// Records why the kernel has failed.
    #[inline(always)]
    pub(crate) fn fail(&self, verdict: Verdict) {
        if self.control(FAILED).swap(1, Ordering::Relaxed) == 0 {
            self.host(VERDICT).store(verdict.to_word(), Ordering::Release);
        }
    }
}

impl Epoch {
    /// Returns the side that this epoch uses.
    #[inline(always)]
    pub(crate) fn side(&self) -> usize {
        (self.number & 1) as usize
    }

    /// Returns the start of the half that this epoch uses in the segment of a rank.
    #[inline(always)]
    pub(crate) fn half<T>(&self, rank: usize) -> *mut T {
        let half = self.side() * self.comm.half_bytes as usize;
        (self.comm.segment(rank) + HEAD_BYTES + half) as *mut T
    }

    /// Returns the address of a rank's directly accessed elements.
    ///
    /// # Safety
    /// The rank and the table must exist.
    #[inline(always)]
    pub(crate) unsafe fn direct<T>(&self, rank: usize) -> *mut T {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { (self.comm.direct as *const u64).add(rank).read() };
        (start + self.comm.direct_offset) as *mut T
    }

    /// Returns the flag of the calling block that `from` sets in the segment of `of`, in the given phase of the epoch.
    #[inline(always)]
    pub(crate) fn flag<'a>(&self, of: usize, phase: usize, from: usize) -> &'a Atomic<u64, scope::System> {
        let index =
            ((self.side() * PHASES + phase) * MAX_RANKS + from) * MAX_BLOCKS + thread::block_idx_x() as usize;
        let segment = self.comm.segment(of) as *mut u64;
        // SAFETY: the address belongs to one of the segment's flags, which are accessed only atomically and stay valid
        // while the kernel runs.
        unsafe { Atomic::from_ptr(segment.add(index)) }
    }

    /// Returns the flag value of a rank that runs the same operation.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        (self.number as u64) << 32 | self.comm.hash as u64
    }

    /// Waits until the corresponding block of every rank has reached the barrier. Writes that these blocks made before
    /// the barrier are then visible. Returns false, in all threads of the block, if the kernel must end.
    #[inline(always)]
    pub(crate) fn barrier(&self, phase: usize) -> bool {
        thread::sync_threads();
        let (own, peer) = (self.comm.rank as usize, thread::linear_in_block() as usize);
        let mut has_failed = false;
        if peer < self.comm.world as usize {
            // The release store also covers the writes of all other threads of the block, because the block has
            // synchronized above.
            self.flag(peer, phase, own).store(self.word(), Ordering::Release);
            has_failed = !self.await_flag(self.flag(own, phase, peer), peer);
        }
        !thread::sync_threads_or(has_failed)
    }

    #[inline(always)]
    fn await_flag(&self, flag: &Atomic<u64, scope::System>, peer: usize) -> bool {
        let mut wait = Wait::default();
        loop {
            match self.is_set(flag.load(Ordering::Acquire), peer) {
                Some(is_same) => return is_same,
                None if wait.goes_on(&self.comm, peer) => {}
                None => return false,
            }
        }
    }

    /// Returns whether the rank that set the flag runs the same operation, or `None` if the flag belongs to another
    /// epoch. On a mismatch, the kernel fails.
    #[inline(always)]
    pub(crate) fn is_set(&self, flag: u64, peer: usize) -> Option<bool> {
        if (flag >> 32) as u32 != self.number {
            return None;
        }
        let is_same = flag == self.word();
        if !is_same {
            self.comm.fail(Verdict::Mismatched { rank: peer, hash: self.comm.hash });
        }
        Some(is_same)
    }

    /// Ends the epoch for the calling block. All threads of the block must have synchronized since the start of the
    /// epoch.
    #[inline(always)]
    pub(crate) fn end(self) {
        // Each block updates its own counter and a share of the counters of blocks that the grid does not contain.
        let (blocks, threads) = (thread::grid_dim_x() as usize, thread::block_dim_x() as usize);
        let mut block = thread::block_idx_x() as usize + thread::thread_idx_x() as usize * blocks;
        while block < MAX_BLOCKS {
            self.comm.control(block).store(self.number, Ordering::Relaxed);
            block += threads * blocks;
        }
    }
}

/// State of a waiting thread, with the start time of the wait.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wait {
    polls: u32,
    /// Start time of the wait, or zero before the clock is first read.
    since: u64,
}

impl Wait {
    /// Called after a poll has found no data from a rank. Returns whether to continue polling. If it returns false, the
    /// kernel must end.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, comm: &DeviceComm, peer: usize) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS) {
            return true;
        }
        let now = clock::nanoseconds();
        if self.since == 0 {
            self.since = now;
        }
        if comm.host(ABORT).load(Ordering::Relaxed) != 0 {
            comm.fail(Verdict::Aborted);
            return false;
        }
        if now.wrapping_sub(self.since) > comm.timeout {
            comm.fail(Verdict::TimedOut { rank: peer, hash: comm.hash });
            return false;
        }
        thread::system_pause();
        true
    }
}
