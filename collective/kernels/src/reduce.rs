//! `reduce`: all-reduce, reduce and reduce-scatter.
//!
//! A rank writes the elements that others reduce into their halves. Writing costs less than reading over the links,
//! because no rank waits for an answer. *One-shot*: each rank writes its elements to all others and reduces what all
//! have written. It takes one barrier, and (n - 1) times the elements cross the links. *Two-shot*: each rank reduces a
//! part of the elements and writes the results to all others. It takes two barriers, and 2 (n - 1) / n times the
//! elements cross the links. *Direct*: the elements are in symmetric memory, and each rank reads its part there. A
//! reduce-scatter only computes each rank's block, which is the first half of two-shot.
//!
//! Each result is reduced in rank order. In two-shot one rank computes it for all; in one-shot every rank does the same
//! steps. The bits are the same on all ranks, in every run, and equal to those of the Host backend.
//!
//! Block b of a rank writes for block b of another, and reads what that block has written: each has the same vectors of
//! each part.

use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::device_comm::{DeviceComm, Epoch};
use crate::number::Step;
use crate::packed::{Packed, Reduce};
use crate::vectors::{copy, first, load, once, own_vectors, store, stride, vectors};

/// Bits of [`DeviceComm::options`]: the [`Step`], followed by these. They are the same on all ranks.
pub mod options {
    /// Bits of the step.
    pub const STEP: u32 = 3;
    /// Divides sums by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// Multiplies the rank's elements by its factor first. Not with [`DIRECT`].
    pub const SCALED: u32 = 1 << 3;
    /// Two-shot. Of this and the following options, [`low_latency`](mod@crate::low_latency) supports only [`to`].
    pub const TWO_SHOT: u32 = 1 << 4;
    /// Reads elements at [`DeviceComm::direct`](super::DeviceComm::direct): in two-shot, or with [`SCATTER`].
    pub const DIRECT: u32 = 1 << 5;
    /// Gives each rank a block of the result; `x` has one block per rank. Not with [`TWO_SHOT`].
    pub const SCATTER: u32 = 1 << 6;
    /// With [`DIRECT`], in two-shot: the results replace the elements, on all ranks.
    pub const IN_PLACE: u32 = 1 << 7;
    /// First bit of the root field: one more than the only rank that receives the results; zero for all ranks.
    const ROOT: u32 = 8;

    /// Returns the option that only `root` receives the results; on other ranks `y` is not used.
    pub const fn to(root: usize) -> u32 {
        (root as u32 + 1) << ROOT
    }

    /// Returns whether a rank receives results.
    #[inline(always)]
    pub(crate) const fn is_for(options: u32, rank: usize) -> bool {
        let root = options >> ROOT;
        root == 0 || root == rank as u32 + 1
    }
}

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`. With [`options::SCATTER`] it reduces `len`
/// elements of each block of `x`. The blocks are `stride` elements apart, and `y` may be the rank's block. `WORLD` is
/// at least the number of ranks.
///
/// # Safety
/// All ranks must launch it in the same shape: 1-D blocks and grids, at most [`THREADS`](crate::device_comm::THREADS)
/// and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS). The [`DeviceComm`]s must be of one communicator and differ only
/// in the rank. A half must have room for the elements of all other ranks, each aligned to 16 bytes; with
/// [`options::SCATTER`], for the rank's block of theirs. In two-shot, half of it must have room for the elements.
/// Directly accessed elements need no room, except in two-shot for results that are not in place; blocks then start at
/// multiples of 16 bytes. `x` must be valid for reads, `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(512, 1)
)]
pub unsafe fn reduce<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
    stride: usize,
    factor: T,
    comm: DeviceComm,
) {
    // SAFETY: the caller's contract.
    let Some(epoch) = (unsafe { comm.begin() }) else { return };
    let has = |option| comm.options & option != 0;
    let how = Reduce {
        step: Step::of(comm.options & options::STEP),
        world: comm.world,
        is_average: has(options::AVERAGE),
    };
    let rank = comm.rank as usize;
    let factor = has(options::SCALED).then_some(factor);
    let parts = match (has(options::TWO_SHOT), has(options::SCATTER)) {
        (true, _) => {
            // `max` avoids the panic of a division by zero.
            let part = vectors::<T>(len).div_ceil((comm.world as usize).max(1)) * T::LANES;
            Parts { stride: part, len: part, end: len }
        }
        (false, true) => Parts { stride, len, end: usize::MAX },
        (false, false) => Parts { stride: 0, len, end: len },
    };
    let work = Work { how, x, y, parts, factor, rank, epoch };
    // SAFETY: the caller's contract.
    if unsafe { work.run::<WORLD>() } {
        epoch.end();
    }
}

/// The parts of the elements that each rank reduces.
#[derive(Clone, Copy)]
struct Parts {
    /// Elements from the start of one rank's part to the start of the next rank's.
    stride: usize,
    /// Number of elements of a part, except for those beyond the end.
    len: usize,
    end: usize,
}

impl Parts {
    /// Returns the start of a rank's part.
    #[inline(always)]
    fn start(self, rank: usize) -> usize {
        (rank * self.stride).min(self.end)
    }

    /// Returns the number of elements of a rank's part.
    #[inline(always)]
    fn len(self, rank: usize) -> usize {
        self.len.min(self.end - self.start(rank))
    }
}

/// Maximum number of vectors per thread in flight together.
const DEPTH: usize = 2;

/// Number of vectors that are reduced together, limited by the registers.
const fn depth(world: usize) -> usize {
    if world == 2 { DEPTH } else { 1 }
}

/// Work of a thread in an operation.
#[derive(Clone, Copy)]
struct Work<T> {
    how: Reduce,
    x: *const T,
    y: *mut T,
    parts: Parts,
    factor: Option<T>,
    rank: usize,
    epoch: Epoch,
}

impl<T: Packed> Work<T> {
    #[inline(always)]
    fn has(&self, option: u32) -> bool {
        self.epoch.comm.options & option != 0
    }

    /// Returns whether there is such a rank other than this one.
    #[inline(always)]
    fn is_other(&self, rank: usize) -> bool {
        rank < self.how.world as usize && rank != self.rank
    }

    #[inline(always)]
    fn is_for(&self, rank: usize) -> bool {
        options::is_for(self.epoch.comm.options, rank)
    }

    /// Loads a vector of `len` of the rank's elements, multiplied by its factor if there is one.
    ///
    /// # Safety
    /// The contract of [`load`].
    #[inline(always)]
    unsafe fn own(&self, from: *const T, len: usize, vector: usize) -> T::Lanes {
        // SAFETY: forwarded from the caller.
        let lanes = unsafe { load(from, len, vector) };
        match self.factor {
            Some(factor) => T::scale(lanes, factor),
            None => lanes,
        }
    }

    /// Returns the rank `steps` after this one, modulo the number of ranks; `steps` is less than that number.
    #[inline(always)]
    fn after(&self, steps: usize) -> usize {
        let (rank, world) = (self.rank + steps, self.how.world as usize);
        if rank < world { rank } else { rank - world }
    }

    /// Returns the slot in the half of `of` to which `from` writes its elements of a part. Each rank except `of` has a
    /// slot.
    #[inline(always)]
    fn slot(&self, of: usize, from: usize) -> *mut T {
        let place = from - usize::from(from > of);
        self.epoch.half::<T>(of).wrapping_add(place * vectors::<T>(self.parts.len) * T::LANES)
    }

    /// Returns the address of the two-shot results in a rank's half.
    #[inline(always)]
    fn results(&self, of: usize) -> *mut T {
        self.epoch.half::<T>(of).wrapping_byte_add(self.epoch.comm.half_bytes as usize / 2)
    }

    /// # Safety
    /// The contract of [`reduce`].
    #[inline(always)]
    unsafe fn run<const WORLD: usize>(&self) -> bool {
        let world = self.how.world as usize;
        let (is_direct, is_in_place) = (self.has(options::DIRECT), self.has(options::IN_PLACE));
        let is_two_shot = self.has(options::TWO_SHOT);
        // SAFETY: the caller's contract. The first barrier is between the others' writes of elements and the reader of
        // a part. The second is between that part's results and their readers. Until then, no other rank accesses the
        // addresses of a part. Its elements are read only by the rank that owns the part, which then writes there.
        unsafe {
            // Each rank starts with the one after it, so that they do not all write to one rank.
            for step in 1..if is_direct { 0 } else { world } {
                let rank = self.after(step);
                // In two-shot all ranks reduce.
                if is_two_shot || self.is_for(rank) {
                    self.give(rank);
                }
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            if is_two_shot || self.is_for(self.rank) {
                self.reduce::<WORLD>();
            }
            // The program may use its memory again once all ranks have read it.
            if (is_two_shot || is_direct) && !self.epoch.barrier(1) {
                return false;
            }
            let others = if is_two_shot && self.is_for(self.rank) && !is_in_place { world } else { 0 };
            for step in 1..others {
                let rank = self.after(step);
                let (start, len) = (self.parts.start(rank), self.parts.len(rank));
                let (from, to) = (self.results(self.rank).add(start), self.y.add(start));
                for vector in own_vectors(vectors::<T>(len)) {
                    copy(from, to, len, vector);
                }
            }
        }
        true
    }

    /// Writes this rank's elements of another rank's part into its slot on that rank.
    ///
    /// # Safety
    /// The contract of [`reduce`].
    #[inline(always)]
    unsafe fn give(&self, rank: usize) {
        let (from, len) = (self.x.wrapping_add(self.parts.start(rank)), self.parts.len(rank));
        let (to, count, stride) = (self.slot(rank, self.rank), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // All reads are issued before the first result is used, so that they are in flight together.
            let mut elements = [T::of_words([0; 4]); DEPTH];
            let mut step = 0;
            while step < DEPTH {
                if vector + step * stride < count {
                    // SAFETY: the vector has elements.
                    elements[step] = unsafe { self.own(from, len, vector + step * stride) };
                }
                step += 1;
            }
            step = 0;
            while step < DEPTH {
                if vector + step * stride < count {
                    // SAFETY: there is room for full vectors.
                    unsafe { T::store(elements[step], to.add((vector + step * stride) * T::LANES)) };
                }
                step += 1;
            }
            vector += DEPTH * stride;
        }
    }

    /// Reduces this rank's part.
    ///
    /// # Safety
    /// The contract of [`reduce`]. The writes of the other ranks must be visible.
    #[inline(always)]
    unsafe fn reduce<const WORLD: usize>(&self) {
        let (start, len) = (self.parts.start(self.rank), self.parts.len(self.rank));
        let (own, count, stride) = (self.x.wrapping_add(start), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // Prevents LLVM from computing the address of each rank's elements before the loop, for which there are not
            // enough registers.
            let mut this = *self;
            this.rank = opaque(this.rank);
            this.parts.len = opaque(this.parts.len);
            this.epoch.comm.direct = opaque(this.epoch.comm.direct);
            // All reads are issued first, as in `give`.
            let mut elements = [[T::of_words([0; 4]); WORLD]; DEPTH];
            let mut step = 0;
            while step < depth(WORLD) {
                let vector = vector + step * stride;
                if vector < count {
                    let mut rank = 0;
                    while rank < WORLD {
                        if this.is_other(rank) {
                            // SAFETY: the others' elements are stored as full vectors, at a multiple of 16 bytes.
                            elements[step][rank] =
                                unsafe { T::load(this.source(rank, start).add(vector * T::LANES)) };
                        } else if rank == this.rank {
                            // SAFETY: the vector has elements.
                            elements[step][rank] = unsafe { this.own(own, len, vector) };
                        }
                        rank += 1;
                    }
                }
                step += 1;
            }
            step = 0;
            while step < depth(WORLD) {
                let vector = vector + step * stride;
                if vector < count {
                    // SAFETY: the vector has elements, which have been read.
                    unsafe { this.put(T::reduce(this.how, elements[step]), start, len, vector) };
                }
                step += 1;
            }
            vector += depth(WORLD) * stride;
        }
    }

    /// Returns the address of another rank's elements of this rank's part, which starts at `start`. They are in a slot
    /// of this rank's half, or in that rank's own memory if accessed directly.
    ///
    /// # Safety
    /// The rank must exist, and the table must exist if elements are accessed directly.
    #[inline(always)]
    unsafe fn source(&self, rank: usize, start: usize) -> *mut T {
        if self.has(options::DIRECT) {
            // SAFETY: forwarded from the caller.
            unsafe { self.epoch.direct::<T>(rank).add(start) }
        } else {
            self.slot(self.rank, rank)
        }
    }

    /// Writes results of this rank's part, which starts at `start`: for itself, and in two-shot for all.
    ///
    /// # Safety
    /// The vector must have elements, which have been read.
    #[inline(always)]
    unsafe fn put(&self, result: T::Lanes, start: usize, len: usize, vector: usize) {
        let is_two_shot = self.has(options::TWO_SHOT);
        let own = self.y.wrapping_add(if is_two_shot { start } else { 0 });
        if self.is_for(self.rank) {
            // SAFETY: forwarded from the caller.
            unsafe { store(result, own, len, vector) };
        }
        let others = if is_two_shot { self.how.world as usize } else { 0 };
        for rank in 0..others {
            // Keeps a single loop body for all ranks.
            let rank = opaque(rank);
            if rank != self.rank && self.is_for(rank) {
                // SAFETY: the rank exists, and the table too if it is needed; the rest is forwarded from the caller.
                unsafe {
                    let all = if self.has(options::IN_PLACE) {
                        self.epoch.direct(rank)
                    } else {
                        self.results(rank)
                    };
                    store(result, all.add(start), len, vector);
                }
            }
        }
    }
}
