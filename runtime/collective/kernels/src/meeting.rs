//! [`Meeting`]: the memory in which the kernels of all ranks meet, and the barrier between them.
//!
//! Each rank has a *segment* that all ranks map: flags, then two halves that operations use in turn. Block b of rank r sets a
//! flag in every rank's segment, and waits until block b of every rank has set its flag in its own, so that each polls memory
//! of its own device. A flag is the number of the operation, its *epoch*, with the hash of what the rank does: ranks that do
//! different things find that out before they touch each other's data.
//!
//! Epochs are counted in device memory, so that a launch can be repeated by a graph. All kernels of a communicator run in
//! the order of one stream, so the counter changes between kernels only. In the order of that stream epoch e + 1 begins after
//! epoch e has ended; a rank that has met another in epoch e + 1 knows that the other has ended epoch e. Hence what is used by
//! epochs in turn (flags, halves) is free again when epoch e + 2 begins, and one barrier is enough in an epoch that reads what
//! the others have written before it.
//!
//! A kernel that waits for too long, that the host aborts, or that finds another operation, writes a [`Verdict`] into memory of
//! the host and ends, as do all that come after it. Nothing spins for ever.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use gpu_std::{KernelType, clock};

/// The most ranks.
pub const MAX_RANKS: usize = 8;
/// The most threads in a block.
pub const THREADS: u32 = 512;
/// The most blocks of a launch.
pub const MAX_BLOCKS: usize = 64;
/// The most barriers in an epoch.
pub const PHASES: usize = 2;
/// Bytes of a segment before its halves.
pub const FLAG_BYTES: usize = 2 * PHASES * MAX_RANKS * MAX_BLOCKS * size_of::<u64>();
/// Words at `control` of a [`Meeting`].
pub const CONTROL_WORDS: usize = MAX_BLOCKS + 1;
/// The word of them that says that a kernel has failed.
const FAILED: usize = MAX_BLOCKS;
/// Words at `host` of a [`Meeting`].
pub const HOST_WORDS: usize = 2;
/// The word of them by which the host aborts kernels, when it is not zero.
pub const ABORT: usize = 0;
/// The word of them with the first verdict that is not [`Verdict::None`].
pub const VERDICT: usize = 1;
/// How often a flag is read between two looks at the clock and at the host's word.
const POLLS: u32 = if cfg!(target_arch = "nvptx64") { 4096 } else { 64 };

/// Why a kernel has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has not.
    None,
    /// The host aborted it.
    Aborted,
    /// This rank did not come.
    TimedOut {
        /// The rank.
        rank: usize,
        /// The hash of the kernel's operation.
        hash: u32,
    },
    /// This rank does something else.
    Mismatched {
        /// The rank.
        rank: usize,
        /// The hash of the kernel's operation.
        hash: u32,
    },
}

impl Verdict {
    /// As a word.
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

    /// What [`Self::to_word`] makes a word of.
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

/// A rank's part of an operation, as its kernel gets it. Addresses are of memory that the rank's device reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Meeting {
    /// The addresses of the segments of all ranks: [`MAX_RANKS`] of `u64`.
    pub segments: u64,
    /// [`CONTROL_WORDS`] of `u32` of the rank's own, zero before its first operation: the last epoch, once for each
    /// block, and whether a kernel has failed.
    pub control: u64,
    /// [`HOST_WORDS`] of `u64` of memory of the host, zero before the first operation.
    pub host: u64,
    /// The addresses at which the program has the elements of all ranks, as [`Self::segments`], if they are reached directly.
    pub direct: u64,
    /// Where in there the operation's begin, in bytes.
    pub direct_offset: u64,
    /// Bytes of a half, a multiple of 16.
    pub half_bytes: u64,
    /// How long a barrier waits, in nanoseconds.
    pub timeout: u64,
    /// The hash of the operation: that of another operation is another.
    pub hash: u32,
    /// The rank.
    pub rank: u32,
    /// The number of ranks, [`MAX_RANKS`] at most.
    pub world: u32,
    /// The kernel's own.
    pub options: u32,
}

/// An epoch that a block takes part in.
#[derive(Clone, Copy)]
pub(crate) struct Epoch {
    /// Not a reference: as one that may be null it would keep the meeting in local memory.
    meeting: Meeting,
    number: u32,
}

impl Meeting {
    /// The address of a rank's segment.
    ///
    /// # Safety
    /// The table is valid, and has the rank.
    #[inline(always)]
    unsafe fn segment(&self, rank: usize) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { (self.segments as *const u64).add(rank).read() as usize }
    }

    #[inline(always)]
    fn control<'a>(&self, word: usize) -> &'a Atomic<u32> {
        // SAFETY: the word is there, and is used as an atomic alone, while the kernel runs.
        unsafe { Atomic::from_ptr((self.control as *mut u32).add(word)) }
    }

    #[inline(always)]
    fn host<'a>(&self, word: usize) -> &'a Atomic<u64, scope::System> {
        // SAFETY: as in `control`.
        unsafe { Atomic::from_ptr((self.host as *mut u64).add(word)) }
    }

    /// Begins the block's part of the next epoch. `None` once a kernel has failed.
    ///
    /// # Safety
    /// The addresses are valid, as their fields say. All threads of the block call it, once.
    #[inline(always)]
    pub(crate) unsafe fn begin(&self) -> Option<Epoch> {
        let last = self.control(thread::block_idx_x() as usize).load(Ordering::Relaxed);
        // All threads of the block decide alike, though a kernel on another stream might fail meanwhile.
        let has_failed = self.control(FAILED).load(Ordering::Relaxed) != 0;
        if thread::sync_threads_or(has_failed) {
            return None;
        }
        Some(Epoch { meeting: *self, number: last.wrapping_add(1) })
    }

    /// Says why the kernel fails.
    #[inline(always)]
    fn fail(&self, verdict: Verdict) {
        if self.control(FAILED).swap(1, Ordering::Relaxed) == 0 {
            self.host(VERDICT).store(verdict.to_word(), Ordering::Release);
        }
    }
}

impl Epoch {
    /// Where the epoch's half of a rank's segment begins.
    ///
    /// # Safety
    /// There is such a rank.
    #[inline(always)]
    pub(crate) unsafe fn half<T>(&self, rank: usize) -> *mut T {
        let half = (self.number & 1) as usize * self.meeting.half_bytes as usize;
        // SAFETY: passed on from the caller.
        unsafe { (self.meeting.segment(rank) + FLAG_BYTES + half) as *mut T }
    }

    /// Where a rank has elements that are reached directly.
    ///
    /// # Safety
    /// There is such a rank, and a table.
    #[inline(always)]
    pub(crate) unsafe fn direct<T>(&self, rank: usize) -> *mut T {
        // SAFETY: passed on from the caller.
        let start = unsafe { (self.meeting.direct as *const u64).add(rank).read() };
        (start + self.meeting.direct_offset) as *mut T
    }

    /// The flag that `from` sets in a segment in a phase of the epoch, for this block.
    #[inline(always)]
    fn flag<'a>(&self, segment: usize, phase: usize, from: usize) -> &'a Atomic<u64, scope::System> {
        let side = (self.number & 1) as usize;
        let index =
            ((side * PHASES + phase) * MAX_RANKS + from) * MAX_BLOCKS + thread::block_idx_x() as usize;
        // SAFETY: the flag is within the segment's flags, which are used as atomics alone, and is valid while the kernel runs.
        unsafe { Atomic::from_ptr((segment as *mut u64).add(index)) }
    }

    /// Waits until this block of every rank has come here; what each has written before is then seen. False if the kernel has to
    /// end: in all threads of the block.
    #[inline(always)]
    pub(crate) fn barrier(&self, phase: usize) -> bool {
        let meeting = &self.meeting;
        thread::sync_threads();
        let peer = thread::linear_in_block() as usize;
        let mut has_failed = false;
        if peer < meeting.world as usize {
            let own = meeting.rank as usize;
            let word = (self.number as u64) << 32 | meeting.hash as u64;
            // SAFETY: both ranks are of the world.
            let (theirs, ours) = unsafe { (meeting.segment(peer), meeting.segment(own)) };
            // It orders what all threads of the block have written: they have met above.
            self.flag(theirs, phase, own).store(word, Ordering::Release);
            has_failed = !self.await_flag(self.flag(ours, phase, peer), peer);
        }
        !thread::sync_threads_or(has_failed)
    }

    #[inline(always)]
    fn await_flag(&self, flag: &Atomic<u64, scope::System>, peer: usize) -> bool {
        let (mut polls, mut since) = (0u32, 0);
        loop {
            let found = flag.load(Ordering::Acquire);
            if (found >> 32) as u32 == self.number {
                let is_same = found as u32 == self.meeting.hash;
                if !is_same {
                    self.meeting.fail(Verdict::Mismatched { rank: peer, hash: self.meeting.hash });
                }
                return is_same;
            }
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(POLLS) {
                continue;
            }
            let now = clock::nanoseconds();
            if since == 0 {
                since = now;
            }
            if self.meeting.host(ABORT).load(Ordering::Relaxed) != 0 {
                self.meeting.fail(Verdict::Aborted);
                return false;
            }
            if now.wrapping_sub(since) > self.meeting.timeout {
                self.meeting.fail(Verdict::TimedOut { rank: peer, hash: self.meeting.hash });
                return false;
            }
            thread::system_pause();
        }
    }

    /// Ends the block's part. All threads of the block have met since they began.
    #[inline(always)]
    pub(crate) fn end(self) {
        // Each block counts for itself and for those that the grid does not have.
        let (blocks, threads) = (thread::grid_dim_x() as usize, thread::block_dim_x() as usize);
        let mut block = thread::block_idx_x() as usize + thread::thread_idx_x() as usize * blocks;
        while block < MAX_BLOCKS {
            self.meeting.control(block).store(self.number, Ordering::Relaxed);
            block += threads * blocks;
        }
    }
}
