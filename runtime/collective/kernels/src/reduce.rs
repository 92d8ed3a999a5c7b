//! `reduce`: the elements of all ranks reduced, for all ranks, for one, or a block for each.
//!
//! *One shot*: each rank copies its elements into its segment, and reads those of all ranks: one barrier, (n - 1) times the
//! elements over the links. *Two shots*: each rank reduces a part of the elements, and reads the other parts from the ranks
//! that have reduced them: two barriers, 2 (n - 1) / n times the elements. *Direct*: of elements that lie in memory which all ranks
//! reach: they are not copied first. A rank that gets a block of the result reduces that alone, which is one shot of two.
//!
//! Each result is reduced in the order of ranks. In two shots one rank computes it for all, in one shot each does the same
//! steps: the bits are the same on all ranks, in every run, and those of the Host backend.

use gpu_std::prelude::*;

use crate::meeting::{Epoch, Meeting};
use crate::number::{Accumulate, Step};
use crate::packed::{Packed, Reduce};
use crate::vectors::{copy, lanes_of, once, own_vectors, vectors};

/// Bits of [`Meeting::options`]: the [`Step`], and what follows.
pub mod options {
    /// The bits of the step.
    pub const STEP: u32 = 3;
    /// Results are divided by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// The rank's elements are multiplied by its factor before. Not with [`DIRECT`].
    pub const SCALED: u32 = 1 << 3;
    /// In two shots. Not in [`push`](mod@crate::push), which knows none of what follows but [`SILENT`].
    pub const TWO_SHOT: u32 = 1 << 4;
    /// Of elements at [`Meeting::direct`](super::Meeting::direct); in two shots, or with [`SCATTER`].
    pub const DIRECT: u32 = 1 << 5;
    /// Each rank gets a block of the result, of as many that `x` has. Not with [`TWO_SHOT`].
    pub const SCATTER: u32 = 1 << 6;
    /// This rank gets nothing, others do: `y` is not used.
    pub const SILENT: u32 = 1 << 7;
}

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`; with [`options::SCATTER`] of each block of `x`, which
/// begin `stride` elements apart, and `y` may be the rank's. `WORLD` is at least the number of ranks.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most [`THREADS`](crate::meeting::THREADS) and
/// [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), and with meetings of one communicator that differ in nothing but the rank and
/// [`options::SILENT`]. A half has room for the elements, each block from a multiple of 16 bytes on, or for the part of one rank if
/// they are reached directly; then blocks begin at multiples of 16 bytes. `x` is valid for reads, `y` for writes.
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
    let work = Work {
        how,
        x,
        y,
        len,
        stride,
        factor: has(options::SCALED).then_some(factor),
        rank,
        is_direct: has(options::DIRECT),
        is_silent: has(options::SILENT),
        epoch,
    };
    // SAFETY: the caller's promise.
    let is_done = unsafe {
        match (has(options::TWO_SHOT), has(options::SCATTER)) {
            (true, _) => work.two_shot::<WORLD>(),
            (false, true) => work.one_shot::<WORLD>(how.world as usize, rank),
            (false, false) => work.one_shot::<WORLD>(1, 0),
        }
    };
    if is_done {
        epoch.end();
    }
}

/// What a thread does in an operation.
#[derive(Clone, Copy)]
struct Work<T> {
    how: Reduce,
    x: *const T,
    y: *mut T,
    len: usize,
    stride: usize,
    factor: Option<T>,
    rank: usize,
    is_direct: bool,
    is_silent: bool,
    epoch: Epoch,
}

impl<T: Packed> Work<T> {
    /// Copies a vector of `len` of the rank's elements into its half, multiplied by its factor if it has one.
    ///
    /// # Safety
    /// As for [`copy`].
    #[inline(always)]
    unsafe fn publish(&self, from: *const T, half: *mut T, len: usize, vector: usize) {
        let Some(factor) = self.factor else {
            // SAFETY: the caller's promise.
            return unsafe { copy(from, half, len, vector) };
        };
        let mut lane = 0;
        while lane < lanes_of::<T>(len, vector) {
            once();
            let at = vector * T::LANES + lane;
            // SAFETY: the caller's promise.
            unsafe { half.add(at).write(T::narrow(from.add(at).read().widen().multiply(factor.widen()))) };
            lane += 1;
        }
    }

    /// Reduces a vector of what all ranks have.
    ///
    /// # Safety
    /// The ranks have it in whole, at a multiple of 16, and what they have written is seen.
    #[inline(always)]
    unsafe fn reduced<const WORLD: usize>(&self, sources: &[*mut T; WORLD], vector: usize) -> T::Lanes {
        // All reads before the first is used: they are under way together.
        // SAFETY: the caller's promise; those beyond the world are this rank's.
        let of_ranks = sources.map(|source| unsafe { T::load(source.add(vector * T::LANES)) });
        T::reduce(self.how, of_ranks)
    }

    /// Reduces a vector of `len` elements of all ranks into `to`: in one access if it is whole and `to` is aligned to 16 bytes.
    ///
    /// # Safety
    /// As for [`Self::reduced`]; `to` is valid for the elements.
    #[inline(always)]
    unsafe fn reduce_to<const WORLD: usize>(
        &self,
        sources: &[*mut T; WORLD],
        to: *mut T,
        len: usize,
        vector: usize,
    ) {
        let (lanes, at) = (lanes_of::<T>(len, vector), vector * T::LANES);
        // SAFETY: the caller's promise.
        unsafe {
            if to.addr().is_multiple_of(16) && lanes == T::LANES {
                return T::store(self.reduced(sources, vector), to.add(at));
            }
            let mut lane = 0;
            while lane < lanes {
                once();
                let of_ranks = sources.map(|source| source.add(at + lane).read().widen());
                let mut wide = of_ranks[0];
                let mut rank = 1;
                while rank < WORLD {
                    if (rank as u32) < self.how.world {
                        wide = self.how.step.apply(wide, of_ranks[rank]);
                    }
                    rank += 1;
                }
                to.add(at + lane).write(self.how.finish(wide));
                lane += 1;
            }
        }
    }

    /// Where all ranks have what is reduced, `offset` elements behind the first; in place of ranks beyond the world, this rank.
    ///
    /// # Safety
    /// All ranks have it there.
    #[inline(always)]
    unsafe fn sources<const WORLD: usize>(&self, offset: usize) -> [*mut T; WORLD] {
        let mut sources = [core::ptr::null_mut(); WORLD];
        let mut rank = 0;
        while rank < WORLD {
            let of = if (rank as u32) < self.how.world { rank } else { self.rank };
            // SAFETY: there is such a rank.
            unsafe {
                let first: *mut T = if self.is_direct { self.epoch.direct(of) } else { self.epoch.half(of) };
                sources[rank] = first.add(offset);
            }
            rank += 1;
        }
        sources
    }

    /// Reduces one block of several: the same on all ranks, or each its own.
    ///
    /// # Safety
    /// As for [`reduce`].
    #[inline(always)]
    unsafe fn one_shot<const WORLD: usize>(&self, blocks: usize, own_block: usize) -> bool {
        let vectors = vectors::<T>(self.len);
        // SAFETY: the vectors are of the elements, and each thread's own. Halves have room for whole vectors.
        unsafe {
            let half = self.epoch.half::<T>(self.rank);
            let published = if self.is_direct { 0 } else { blocks };
            for block in 0..published {
                let (from, to) = (self.x.add(block * self.stride), half.add(block * vectors * T::LANES));
                for vector in own_vectors(vectors) {
                    self.publish(from, to, self.len, vector);
                }
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            if !self.is_silent {
                let stride = if self.is_direct { self.stride } else { vectors * T::LANES };
                let sources = self.sources::<WORLD>(own_block * stride);
                for vector in own_vectors(vectors) {
                    self.reduce_to(&sources, self.y, self.len, vector);
                }
            }
        }
        // The program's memory is its own again when all have read it.
        !self.is_direct || self.epoch.barrier(1)
    }

    /// # Safety
    /// As for [`reduce`].
    #[inline(always)]
    unsafe fn two_shot<const WORLD: usize>(&self) -> bool {
        // A division by zero would be a panic.
        let world = (self.how.world as usize).max(1);
        // Each rank's part begins at a multiple of this; a thread has the same places in all parts.
        let part = vectors::<T>(self.len).div_ceil(world);
        let start = |rank: usize| (rank * part * T::LANES).min(self.len);
        let len = |rank: usize| (part * T::LANES).min(self.len - start(rank));
        // Where a rank has its part's results: in place of what they were made of, unless that is the program's.
        // SAFETY: a half has room for them.
        let results = |rank: usize| unsafe {
            self.epoch.half::<T>(rank).add(if self.is_direct { 0 } else { start(rank) })
        };
        // SAFETY: the vectors are of the elements. Each is written by one thread of one rank at a time: its own rank's copy
        // before the first barrier, the results by the rank whose part it is before the second.
        unsafe {
            if !self.is_direct {
                let half = self.epoch.half::<T>(self.rank);
                for rank in 0..world {
                    let (from, to) = (self.x.add(start(rank)), half.add(start(rank)));
                    for vector in own_vectors(vectors::<T>(len(rank))) {
                        self.publish(from, to, len(rank), vector);
                    }
                }
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            let (sources, own) = (self.sources::<WORLD>(start(self.rank)), results(self.rank));
            // The results are aligned, and have room for a whole vector.
            let own_len = len(self.rank);
            for vector in own_vectors(vectors::<T>(own_len)) {
                self.reduce_to(&sources, own, own_len, vector);
            }
            if !self.epoch.barrier(1) {
                return false;
            }
            // Each rank begins with itself and goes on with the one after it, so that not all read one.
            let steps = if self.is_silent { 0 } else { world };
            for step in 0..steps {
                let rank = (self.rank + step) % world;
                let (from, to) = (results(rank), self.y.add(start(rank)));
                for vector in own_vectors(vectors::<T>(len(rank))) {
                    copy(from, to, len(rank), vector);
                }
            }
        }
        true
    }
}
