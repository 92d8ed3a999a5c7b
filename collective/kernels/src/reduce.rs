//! `reduce`: the elements of all ranks reduced, for all ranks, for one, or a block for each.
//!
//! A rank writes what others reduce into their halves, which costs less than what others read from it: no one waits for an answer
//! over the links. *One shot*: each rank writes its elements to all others and reduces what all have written: one barrier, (n - 1)
//! times the elements over the links. *Two shots*: each rank reduces a part of the elements and writes the results to all others:
//! two barriers, 2 (n - 1) / n times the elements. *Direct*: of elements that lie in memory which all ranks reach, where each rank
//! reads its part. A rank that gets a block of the result reduces that alone, which is one shot of two.
//!
//! Each result is reduced in the order of ranks. In two shots one rank computes it for all, in one shot each does the same
//! steps: the bits are the same on all ranks, in every run, and those of the Host backend.
//!
//! Block b of a rank writes for block b of another, and reads what that has written: each has the same vectors of each part.

use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::meeting::{Epoch, Meeting};
use crate::number::Step;
use crate::packed::{Packed, Reduce};
use crate::vectors::{copy, first, load, once, own_vectors, store, stride, vectors};

/// Bits of [`Meeting::options`]: the [`Step`], and what follows. They are the same on all ranks.
pub mod options {
    /// The bits of the step.
    pub const STEP: u32 = 3;
    /// Sums are divided by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// The rank's elements are multiplied by its factor before. Not with [`DIRECT`].
    pub const SCALED: u32 = 1 << 3;
    /// In two shots. [`push`](mod@crate::push) knows none of what follows but [`to`].
    pub const TWO_SHOT: u32 = 1 << 4;
    /// Of elements at [`Meeting::direct`](super::Meeting::direct); in two shots, or with [`SCATTER`].
    pub const DIRECT: u32 = 1 << 5;
    /// Each rank gets a block of the result, of as many that `x` has. Not with [`TWO_SHOT`].
    pub const SCATTER: u32 = 1 << 6;
    /// With [`DIRECT`], in two shots: the results replace the elements, on all ranks.
    pub const IN_PLACE: u32 = 1 << 7;
    /// From this bit on: one more than the rank that alone gets the results.
    const ROOT: u32 = 8;

    /// For one rank alone; for others `y` is not used.
    pub const fn to(root: usize) -> u32 {
        (root as u32 + 1) << ROOT
    }

    /// Whether a rank gets results.
    #[inline(always)]
    pub(crate) const fn is_for(options: u32, rank: usize) -> bool {
        let root = options >> ROOT;
        root == 0 || root == rank as u32 + 1
    }
}

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`; with [`options::SCATTER`] of each block of `x`, which
/// begin `stride` elements apart, and `y` may be the rank's. `WORLD` is at least the number of ranks.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most [`THREADS`](crate::meeting::THREADS) and
/// [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), and with meetings of one communicator that differ in nothing but the rank. A half has
/// room, each from a multiple of 16 bytes on, for the elements of all other ranks, or with [`options::SCATTER`] for the rank's
/// block of theirs; in two shots half of it has room for the elements. What is reached directly needs no room, but in two shots
/// for results that are not in place; then blocks begin at multiples of 16 bytes. `x` is valid for reads, `y` for writes.
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
    meeting: Meeting,
) {
    // SAFETY: the caller's promise.
    let Some(epoch) = (unsafe { meeting.begin() }) else { return };
    let has = |option| meeting.options & option != 0;
    let how = Reduce {
        step: Step::of(meeting.options & options::STEP),
        world: meeting.world,
        is_average: has(options::AVERAGE),
    };
    let rank = meeting.rank as usize;
    let factor = has(options::SCALED).then_some(factor);
    let parts = match (has(options::TWO_SHOT), has(options::SCATTER)) {
        (true, _) => {
            // A division by zero would be a panic.
            let part = vectors::<T>(len).div_ceil((meeting.world as usize).max(1)) * T::LANES;
            Parts { stride: part, len: part, end: len }
        }
        (false, true) => Parts { stride, len, end: usize::MAX },
        (false, false) => Parts { stride: 0, len, end: len },
    };
    let work = Work { how, x, y, parts, factor, rank, epoch };
    // SAFETY: the caller's promise.
    if unsafe { work.run::<WORLD>() } {
        epoch.end();
    }
}

/// What each rank reduces.
#[derive(Clone, Copy)]
struct Parts {
    /// Elements from the beginning of one rank's to that of the next one's.
    stride: usize,
    /// Elements of a part, but for what is beyond the end.
    len: usize,
    end: usize,
}

impl Parts {
    /// Where the part of a rank begins.
    #[inline(always)]
    fn start(self, rank: usize) -> usize {
        (rank * self.stride).min(self.end)
    }

    /// The elements of the part of a rank.
    #[inline(always)]
    fn len(self, rank: usize) -> usize {
        self.len.min(self.end - self.start(rank))
    }
}

/// The most vectors of a thread that are under way together.
const DEPTH: usize = 2;

/// Those that are reduced together: as many as there are registers for.
const fn depth(world: usize) -> usize {
    if world == 2 { DEPTH } else { 1 }
}

/// What a thread does in an operation.
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
        self.epoch.meeting.options & option != 0
    }

    /// Whether there is such a rank besides this one.
    #[inline(always)]
    fn is_other(&self, rank: usize) -> bool {
        rank < self.how.world as usize && rank != self.rank
    }

    #[inline(always)]
    fn is_for(&self, rank: usize) -> bool {
        options::is_for(self.epoch.meeting.options, rank)
    }

    /// A vector of `len` of the rank's elements, multiplied by its factor if it has one.
    ///
    /// # Safety
    /// As for [`load`].
    #[inline(always)]
    unsafe fn own(&self, from: *const T, len: usize, vector: usize) -> T::Lanes {
        // SAFETY: passed on from the caller.
        let lanes = unsafe { load(from, len, vector) };
        match self.factor {
            Some(factor) => T::scale(lanes, factor),
            None => lanes,
        }
    }

    /// The rank `steps` after this one, modulo the number of ranks; `steps` is less than that.
    #[inline(always)]
    fn after(&self, steps: usize) -> usize {
        let (rank, world) = (self.rank + steps, self.how.world as usize);
        if rank < world { rank } else { rank - world }
    }

    /// Where in the half of `of` the rank `from` writes its elements of a part, as each other rank does.
    #[inline(always)]
    fn slot(&self, of: usize, from: usize) -> *mut T {
        let place = from - usize::from(from > of);
        self.epoch.half::<T>(of).wrapping_add(place * vectors::<T>(self.parts.len) * T::LANES)
    }

    /// Where in the half of a rank the results of two shots are.
    #[inline(always)]
    fn results(&self, of: usize) -> *mut T {
        self.epoch.half::<T>(of).wrapping_byte_add(self.epoch.meeting.half_bytes as usize / 2)
    }

    /// # Safety
    /// As for [`reduce`].
    #[inline(always)]
    unsafe fn run<const WORLD: usize>(&self) -> bool {
        let world = self.how.world as usize;
        let (is_direct, is_in_place) = (self.has(options::DIRECT), self.has(options::IN_PLACE));
        let is_two_shot = self.has(options::TWO_SHOT);
        // SAFETY: the caller's promise. The first barrier is between the others' elements and the reader of a part, the second
        // between that part's results and their readers. Until then no one else has to do with the places of a part: its elements
        // are read by the rank whose part it is, which then writes there.
        unsafe {
            // Each rank begins with the one after it, so that not all write to one.
            for step in 1..if is_direct { 0 } else { world } {
                let rank = self.after(step);
                // In two shots all reduce.
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
            // The program's memory is its own again when all have read it.
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

    /// Writes this rank's elements of another rank's part into its slot there.
    ///
    /// # Safety
    /// As for [`reduce`].
    #[inline(always)]
    unsafe fn give(&self, rank: usize) {
        let (from, len) = (self.x.wrapping_add(self.parts.start(rank)), self.parts.len(rank));
        let (to, count, stride) = (self.slot(rank, self.rank), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // All reads before the first is used: they are under way together.
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
                    // SAFETY: there is room for whole vectors.
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
    /// As for [`reduce`]; what the others have written is seen.
    #[inline(always)]
    unsafe fn reduce<const WORLD: usize>(&self) {
        let (start, len) = (self.parts.start(self.rank), self.parts.len(self.rank));
        let (own, count, stride) = (self.x.wrapping_add(start), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // There are not the registers for what LLVM would compute before the loop: where each rank has its elements.
            let mut this = *self;
            this.rank = opaque(this.rank);
            this.parts.len = opaque(this.parts.len);
            this.epoch.meeting.direct = opaque(this.epoch.meeting.direct);
            // As in `give`.
            let mut elements = [[T::of_words([0; 4]); WORLD]; DEPTH];
            let mut step = 0;
            while step < depth(WORLD) {
                let vector = vector + step * stride;
                if vector < count {
                    let mut rank = 0;
                    while rank < WORLD {
                        if this.is_other(rank) {
                            // SAFETY: the others' elements are there in whole vectors, at a multiple of 16.
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

    /// Where another rank's elements of this rank's part, which begins at `start`, are: in a slot of this rank's half, or where that
    /// rank has them.
    ///
    /// # Safety
    /// There is such a rank, and a table, if they are reached directly.
    #[inline(always)]
    unsafe fn source(&self, rank: usize, start: usize) -> *mut T {
        if self.has(options::DIRECT) {
            // SAFETY: passed on from the caller.
            unsafe { self.epoch.direct::<T>(rank).add(start) }
        } else {
            self.slot(self.rank, rank)
        }
    }

    /// Writes results of this rank's part, which begins at `start`: for itself, in two shots for all.
    ///
    /// # Safety
    /// The vector has elements, which have been read.
    #[inline(always)]
    unsafe fn put(&self, result: T::Lanes, start: usize, len: usize, vector: usize) {
        let is_two_shot = self.has(options::TWO_SHOT);
        let own = self.y.wrapping_add(if is_two_shot { start } else { 0 });
        if self.is_for(self.rank) {
            // SAFETY: passed on from the caller.
            unsafe { store(result, own, len, vector) };
        }
        let others = if is_two_shot { self.how.world as usize } else { 0 };
        for rank in 0..others {
            // One body for all.
            let rank = opaque(rank);
            if rank != self.rank && self.is_for(rank) {
                // SAFETY: there is such a rank, and a table if it is needed; passed on from the caller.
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
