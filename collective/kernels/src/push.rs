//! `push`: the elements of all ranks reduced, by [words](crate::words), for latency.
//!
//! Each rank pushes its elements to all others and reduces what they have pushed to it: nothing is read over the links, and no
//! access waits for another. (n - 1) times the elements go over the links, twice as large as they are.
//!
//! The results have the bits of [`reduce`](mod@crate::reduce).

use gpu_std::atomic::Ordering;
use gpu_std::prelude::*;

use crate::meeting::{Epoch, Meeting, Wait};
use crate::number::Step;
use crate::packed::{Packed, Reduce};
use crate::reduce::options;
use crate::vectors::{first, load, store, stride, vectors};
use crate::words::{Slot, are_of};

/// The most threads in a block of the kernel for up to `world` ranks: those of more need more registers.
pub const fn threads(world: usize) -> u32 {
    if world <= 2 { 512 } else { 256 }
}

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`. `WORLD` is at least the number of ranks.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most [`threads`] and
/// [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), a block with as many threads as there are ranks at least, and with meetings of one
/// communicator that differ in nothing but the rank. There is [`room`](crate::words::room) for the elements. `x` is valid for reads, `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(threads(WORLD), 1)
)]
pub unsafe fn push<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
    factor: T,
    meeting: Meeting,
) {
    let (count, mut vector) = (vectors::<T>(len), first());
    let mut is_there = vector < count;
    let mut elements = T::of_words([0; 4]);
    if is_there {
        // Before the epoch is known, so that both are under way together.
        // SAFETY: the vector has elements.
        elements = unsafe { load(x, len, vector) };
    }
    // SAFETY: the caller's promise.
    let (epoch, mut has_failed) = unsafe { meeting.begin_alone() };
    let has = |option| meeting.options & option != 0;
    let how = Reduce {
        step: Step::of(meeting.options & options::STEP),
        world: meeting.world,
        is_average: has(options::AVERAGE),
    };
    let exchange = Exchange { epoch, vectors: count };
    let is_for_this = options::is_for(meeting.options, meeting.rank as usize);
    let mut is_first = true;
    // The threads of a block go through it together, and once at least.
    loop {
        if has(options::SCALED) {
            elements = T::scale(elements, factor);
        }
        let own = T::to_words(elements);
        let wanted = is_there && is_for_this;
        let mut of_ranks = [own; WORLD];
        if !has_failed {
            if is_first {
                exchange.announce();
            }
            if is_there {
                // SAFETY: there is room for the vector.
                unsafe { exchange.push::<WORLD>(vector, own) };
            }
            // SAFETY: as above.
            has_failed = unsafe { !exchange.receive(vector, wanted, is_first, &mut of_ranks) };
        }
        // Nothing is written before all of the block know that all ranks do the same.
        if thread::sync_threads_or(has_failed) {
            return;
        }
        if wanted {
            let result = T::reduce(how, of_ranks.map(T::of_words));
            // SAFETY: the vector has elements, which are this thread's.
            unsafe { store(result, y, len, vector) };
        }
        vector += stride();
        is_first = false;
        // The block's first vector is that of its first thread.
        if vector - thread::thread_idx_x() as usize >= count {
            break;
        }
        is_there = vector < count;
        if is_there {
            // SAFETY: the vector has elements.
            elements = unsafe { load(x, len, vector) };
        }
    }
    epoch.end();
}

/// What goes between the ranks.
#[derive(Clone, Copy)]
struct Exchange {
    epoch: Epoch,
    /// Of each rank.
    vectors: usize,
}

impl Exchange {
    /// The other rank whose flag is this thread's to wait for.
    #[inline(always)]
    fn peer(&self) -> Option<usize> {
        let (peer, meeting) = (thread::thread_idx_x(), &self.epoch.meeting);
        (peer < meeting.world && peer != meeting.rank).then_some(peer as usize)
    }

    /// Whether there is such a rank besides this one.
    #[inline(always)]
    fn is_other(&self, rank: usize) -> bool {
        let meeting = &self.epoch.meeting;
        rank < meeting.world as usize && rank != meeting.rank as usize
    }

    /// Tells all other ranks what this one does.
    #[inline(always)]
    fn announce(&self) {
        if let Some(peer) = self.peer() {
            let flag = self.epoch.flag(peer, 0, self.epoch.meeting.rank as usize);
            flag.store(self.epoch.word(), Ordering::Relaxed);
        }
    }

    /// Pushes a vector to all other ranks that get results.
    ///
    /// # Safety
    /// There is room for the vector.
    #[inline(always)]
    unsafe fn push<const WORLD: usize>(&self, vector: usize, elements: [u32; 4]) {
        let own = self.epoch.meeting.rank as usize;
        let mut rank = 0;
        while rank < WORLD {
            if self.is_other(rank) && options::is_for(self.epoch.meeting.options, rank) {
                let slot = Slot::new::<WORLD>(&self.epoch, rank, own, self.vectors);
                // SAFETY: passed on from the caller.
                unsafe { slot.push(vector, elements, self.epoch.number) };
            }
            rank += 1;
        }
    }

    /// Waits for a vector of all other ranks, if it is wanted, and for the flag that is this thread's, if it is of the block's
    /// first. False if the kernel has to end.
    ///
    /// # Safety
    /// There is room for the vector.
    #[inline(always)]
    unsafe fn receive<const WORLD: usize>(
        &self,
        vector: usize,
        wanted: bool,
        is_first: bool,
        of_ranks: &mut [[u32; 4]; WORLD],
    ) -> bool {
        let own = self.epoch.meeting.rank as usize;
        let peer = if is_first { self.peer() } else { None };
        let mut wait = Wait::default();
        loop {
            // All reads before the first is looked at: they are under way together.
            let flag = peer.map(|peer| self.epoch.flag(own, 0, peer).load(Ordering::Relaxed));
            let mut words = [[0; 4]; WORLD];
            let mut rank = 0;
            while rank < WORLD {
                if wanted && self.is_other(rank) {
                    let slot = Slot::new::<WORLD>(&self.epoch, own, rank, self.vectors);
                    // SAFETY: passed on from the caller.
                    words[rank] = unsafe { slot.look(vector) };
                }
                rank += 1;
            }
            let mut missing = None;
            rank = 0;
            while rank < WORLD {
                if wanted && self.is_other(rank) {
                    of_ranks[rank] = words[rank].map(|word| word as u32);
                    if !are_of(words[rank], self.epoch.number) {
                        missing = Some(rank);
                    }
                }
                rank += 1;
            }
            if let (Some(flag), Some(peer)) = (flag, peer) {
                match self.epoch.is_set(flag, peer) {
                    Some(true) => {}
                    Some(false) => return false,
                    None => missing = Some(peer),
                }
            }
            let Some(missing) = missing else { return true };
            if !wait.goes_on(&self.epoch.meeting, missing) {
                return false;
            }
        }
    }
}
