//! `reduce_low_latency`: low-latency all-reduce and reduce with [words](crate::words) (LL protocol).
//!
//! Each rank pushes its elements to all other ranks and reduces the elements pushed to it. No rank reads over the
//! links, and no access waits for another. The elements of each rank cross the links (n - 1) times, at twice their
//! size.
//!
//! The results are bit-identical to those of [`reduce`](mod@crate::reduce).

use gpu_std::atomic::Ordering;
use gpu_std::prelude::*;

use crate::device_comm::{DeviceComm, Epoch, Wait};
use crate::number::Step;
use crate::packed::{Packed, Reduce};
use crate::reduce::options;
use crate::vectors::{first, load, store, stride, vectors};
use crate::words::{Slot, are_of};

/// Returns the maximum number of threads per block of the kernel for up to `world` ranks. The more ranks a kernel
/// supports, the more registers it requires per thread.
pub const fn threads(world: usize) -> u32 {
    if world <= 2 { 512 } else { 256 }
}

/// Reduces the `len` elements at `x` of all ranks into `y`, which may be the same memory as `x`. `WORLD` must be at
/// least the number of ranks.
///
/// # Safety
/// All ranks must launch the kernel in the same shape: 1-D blocks and grids, with at most [`threads`] threads per block
/// and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS) blocks, and with at least as many threads per block as ranks. The
/// [`DeviceComm`]s must belong to one communicator and differ only in the rank. The elements must fit into
/// [`room`](crate::words::room). `x` must be valid for reads and `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(threads(WORLD), 1),
    dependent
)]
pub unsafe fn reduce_low_latency<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
    comm: DeviceComm,
) {
    grid::dependency_wait();
    let (count, mut vector) = (vectors::<T>(len), first());
    let mut is_there = vector < count;
    let mut elements = T::of_words([0; 4]);
    if is_there {
        // The elements are loaded before the epoch starts, so that both loads are in flight at the same time. SAFETY:
        // the vector contains elements.
        elements = unsafe { load(x, len, vector) };
    }
    // SAFETY: guaranteed by the caller.
    let (epoch, mut has_failed) = unsafe { comm.begin_alone() };
    let has = |option| comm.options & option != 0;
    let how = Reduce {
        step: Step::of(comm.options & options::STEP),
        world: comm.world,
        is_average: has(options::AVERAGE),
    };
    let exchange = Exchange { epoch, vectors: count };
    let is_for_this = options::is_for(comm.options, comm.rank as usize);
    let mut is_first = true;
    // All threads of a block execute every iteration of the loop, and at least one iteration.
    loop {
        let own = T::to_words(elements);
        let wanted = is_there && is_for_this;
        let mut of_ranks = [own; WORLD];
        if !has_failed {
            if is_first {
                exchange.announce();
            }
            if is_there {
                // SAFETY: the slot has room for the vector.
                unsafe { exchange.push::<WORLD>(vector, own) };
            }
            // SAFETY: as above.
            has_failed = unsafe { !exchange.receive(vector, wanted, is_first, &mut of_ranks) };
        }
        // No thread stores results before all threads of the block have verified that all ranks run the same operation.
        if thread::sync_threads_or(has_failed) {
            return;
        }
        let next = vector + stride();
        // The first vector of a block belongs to the block's first thread.
        let is_last = next - thread::thread_idx_x() as usize >= count;
        if is_last {
            // The next launch must not start before the block has stopped waiting: its blocks could take the SMs that
            // another communicator's kernel needs, for which another rank waits.
            grid::launch_dependents();
        }
        if wanted {
            let result = T::reduce(how, of_ranks.map(T::of_words));
            // SAFETY: the vector contains elements, and they belong to this thread.
            unsafe { store(result, y, len, vector) };
        }
        if is_last {
            break;
        }
        vector = next;
        is_first = false;
        is_there = vector < count;
        if is_there {
            // SAFETY: the vector contains elements.
            elements = unsafe { load(x, len, vector) };
        }
    }
    epoch.end();
}

/// Exchange of vectors between ranks.
#[derive(Clone, Copy)]
struct Exchange {
    epoch: Epoch,
    /// Number of vectors of each rank.
    vectors: usize,
}

impl Exchange {
    /// Returns the other rank for whose flag this thread waits, if any.
    #[inline(always)]
    fn peer(&self) -> Option<usize> {
        let (peer, comm) = (thread::thread_idx_x(), &self.epoch.comm);
        (peer < comm.world && peer != comm.rank).then_some(peer as usize)
    }

    /// Returns whether the rank exists and is not this rank.
    #[inline(always)]
    fn is_other(&self, rank: usize) -> bool {
        let comm = &self.epoch.comm;
        rank < comm.world as usize && rank != comm.rank as usize
    }

    /// Announces this rank's operation to all other ranks.
    #[inline(always)]
    fn announce(&self) {
        if let Some(peer) = self.peer() {
            let flag = self.epoch.flag(peer, 0, self.epoch.comm.rank as usize);
            flag.store(self.epoch.word(), Ordering::Relaxed);
        }
    }

    /// Pushes a vector to all other ranks that receive results.
    ///
    /// # Safety
    /// The slot must have room for the vector.
    #[inline(always)]
    unsafe fn push<const WORLD: usize>(&self, vector: usize, elements: [u32; 4]) {
        let own = self.epoch.comm.rank as usize;
        let mut rank = 0;
        while rank < WORLD {
            if self.is_other(rank) && options::is_for(self.epoch.comm.options, rank) {
                let slot = Slot::new::<WORLD>(&self.epoch, rank, own, self.vectors);
                // SAFETY: guaranteed by the caller.
                unsafe { slot.push(vector, elements, self.epoch.number) };
            }
            rank += 1;
        }
    }

    /// Waits for this vector of all other ranks if it is `wanted`, and for this thread's flag if it is the first vector
    /// of the block. Returns false if the kernel must end.
    ///
    /// # Safety
    /// The slot must have room for the vector.
    #[inline(always)]
    unsafe fn receive<const WORLD: usize>(
        &self,
        vector: usize,
        wanted: bool,
        is_first: bool,
        of_ranks: &mut [[u32; 4]; WORLD],
    ) -> bool {
        let own = self.epoch.comm.rank as usize;
        let peer = if is_first { self.peer() } else { None };
        let mut wait = Wait::default();
        loop {
            // All reads are issued before the first result is used, so that they are all in flight at the same time.
            let flag = peer.map(|peer| self.epoch.flag(own, 0, peer).load(Ordering::Relaxed));
            let mut words = [[0; 4]; WORLD];
            let mut rank = 0;
            while rank < WORLD {
                if wanted && self.is_other(rank) {
                    let slot = Slot::new::<WORLD>(&self.epoch, own, rank, self.vectors);
                    // SAFETY: guaranteed by the caller.
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
            if !wait.goes_on(&self.epoch.comm, missing) {
                return false;
            }
        }
    }
}
