//! [`Meeting`]: the memory in which the kernels of all ranks meet, and the barrier between them.
//!
//! Each rank has a *segment* that all ranks map: flags, then [words](crate::words), then halves; of each two *sides* that
//! operations use in turn. Block b of rank r sets a flag in every rank's segment, and waits until block b of every rank has set
//! its flag in its own, so that each polls memory of its own device. A flag is the number of the operation, its *epoch*, with
//! the hash of what the rank does: ranks that do different things find that out before they return what they have received.
//!
//! Epochs are counted in device memory, so that a launch can be repeated by a graph. All kernels of a communicator run in
//! the order of one stream, so the counter changes between kernels only. In the order of that stream epoch e + 1 begins after
//! epoch e has ended, in all blocks. Every block of every kernel waits, before it ends, for the flags that all other ranks set in
//! that epoch, whatever the kernel is, how many blocks it has, and whether the rank gets anything. So a rank that has ended
//! epoch e + 1 knows that all others have begun it, and have ended epoch e. Hence a side is free again when epoch e + 2 begins,
//! all of it, whichever part of it epoch e has used: a rank may write there, in its own segment or in another's, from the
//! beginning of the kernel on. And one barrier is enough in an epoch that reads what the others have written before it.
//!
//! A kernel that waits for too long, that the host aborts, or that finds another operation, writes a [`Verdict`] into memory of
//! the host and ends, as do all that come after it. Nothing spins for ever.

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use gpu_std::{KernelType, clock};

use crate::words::SIDE_BYTES;

/// The most ranks.
pub const MAX_RANKS: usize = 8;
/// The most threads in a block.
pub const THREADS: u32 = 512;
/// The most blocks of a launch.
pub const MAX_BLOCKS: usize = 128;
/// The most barriers in an epoch.
pub const PHASES: usize = 2;
/// Bytes of the flags of a segment.
pub(crate) const FLAG_BYTES: usize = 2 * PHASES * MAX_RANKS * MAX_BLOCKS * size_of::<u64>();
/// Bytes of a segment before its halves: flags and words. They are zero before the first operation.
pub const HEAD_BYTES: usize = FLAG_BYTES + 2 * SIDE_BYTES;
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
    /// The addresses of the segments of all ranks.
    pub segments: [u64; MAX_RANKS],
    /// [`CONTROL_WORDS`] of `u32` of the rank's own: the last epoch, once for each block, the same on all ranks before the first
    /// operation; and whether a kernel has failed, which is zero then.
    pub control: u64,
    /// [`HOST_WORDS`] of `u64` of memory of the host, zero before the first operation.
    pub host: u64,
    /// Where the addresses lie at which the program has the elements of all ranks, [`MAX_RANKS`] of `u64`, if they are reached
    /// directly.
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

/// The epoch after another: on the other side, and never zero, which is what memory has in the beginning.
#[inline(always)]
const fn after(epoch: u32) -> u32 {
    if epoch == u32::MAX { 2 } else { epoch + 1 }
}

/// An epoch that a block takes part in.
#[derive(Clone, Copy)]
pub(crate) struct Epoch {
    /// Not a reference: as one that may be null it would keep the meeting in local memory.
    pub(crate) meeting: Meeting,
    pub(crate) number: u32,
}

impl Meeting {
    /// The address of a rank's segment.
    #[inline(always)]
    pub(crate) fn segment(&self, rank: usize) -> usize {
        // An index, in a loop too, would put the meeting into local memory.
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
        // SAFETY: passed on from the caller.
        let (epoch, has_failed) = unsafe { self.begin_alone() };
        // All threads of the block decide alike, though a kernel on another stream might fail meanwhile.
        if thread::sync_threads_or(has_failed) { None } else { Some(epoch) }
    }

    /// Begins the thread's part of the next epoch, and says whether a kernel has failed: what the threads of the block find may
    /// differ.
    ///
    /// # Safety
    /// The addresses are valid, as their fields say.
    #[inline(always)]
    pub(crate) unsafe fn begin_alone(&self) -> (Epoch, bool) {
        let last = self.control(thread::block_idx_x() as usize).load(Ordering::Relaxed);
        let has_failed = self.control(FAILED).load(Ordering::Relaxed) != 0;
        (Epoch { meeting: *self, number: after(last) }, has_failed)
    }

    /// Says why the kernel fails.
    #[inline(always)]
    pub(crate) fn fail(&self, verdict: Verdict) {
        if self.control(FAILED).swap(1, Ordering::Relaxed) == 0 {
            self.host(VERDICT).store(verdict.to_word(), Ordering::Release);
        }
    }
}

impl Epoch {
    /// Which of what is used in turn it uses.
    #[inline(always)]
    pub(crate) fn side(&self) -> usize {
        (self.number & 1) as usize
    }

    /// Where the epoch's half of a rank's segment begins.
    #[inline(always)]
    pub(crate) fn half<T>(&self, rank: usize) -> *mut T {
        let half = self.side() * self.meeting.half_bytes as usize;
        (self.meeting.segment(rank) + HEAD_BYTES + half) as *mut T
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

    /// The flag that `from` sets in a rank's segment in a phase of the epoch, for this block.
    #[inline(always)]
    pub(crate) fn flag<'a>(&self, of: usize, phase: usize, from: usize) -> &'a Atomic<u64, scope::System> {
        let index =
            ((self.side() * PHASES + phase) * MAX_RANKS + from) * MAX_BLOCKS + thread::block_idx_x() as usize;
        let segment = self.meeting.segment(of) as *mut u64;
        // SAFETY: the flag is within the segment's flags, which are used as atomics alone, and is valid while the kernel runs.
        unsafe { Atomic::from_ptr(segment.add(index)) }
    }

    /// What a rank that does the same sets as a flag.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        (self.number as u64) << 32 | self.meeting.hash as u64
    }

    /// Waits until this block of every rank has come here; what each has written before is then seen. False if the kernel has to
    /// end: in all threads of the block.
    #[inline(always)]
    pub(crate) fn barrier(&self, phase: usize) -> bool {
        thread::sync_threads();
        let (own, peer) = (self.meeting.rank as usize, thread::linear_in_block() as usize);
        let mut has_failed = false;
        if peer < self.meeting.world as usize {
            // It orders what all threads of the block have written: they have met above.
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
                None if wait.goes_on(&self.meeting, peer) => {}
                None => return false,
            }
        }
    }

    /// Whether a rank's flag is of this epoch, and then whether the rank does the same; if not, the kernel fails.
    #[inline(always)]
    pub(crate) fn is_set(&self, flag: u64, peer: usize) -> Option<bool> {
        if (flag >> 32) as u32 != self.number {
            return None;
        }
        let is_same = flag == self.word();
        if !is_same {
            self.meeting.fail(Verdict::Mismatched { rank: peer, hash: self.meeting.hash });
        }
        Some(is_same)
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

/// How long a thread has waited.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wait {
    polls: u32,
    /// On the clock; zero before the first look at it.
    since: u64,
}

impl Wait {
    /// After it has looked in vain for what comes from a rank. False if the kernel has to end.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, meeting: &Meeting, peer: usize) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS) {
            return true;
        }
        let now = clock::nanoseconds();
        if self.since == 0 {
            self.since = now;
        }
        if meeting.host(ABORT).load(Ordering::Relaxed) != 0 {
            meeting.fail(Verdict::Aborted);
            return false;
        }
        if now.wrapping_sub(self.since) > meeting.timeout {
            meeting.fail(Verdict::TimedOut { rank: peer, hash: meeting.hash });
            return false;
        }
        thread::system_pause();
        true
    }
}
