//! `all_reduce`: the elements of all ranks reduced, on all ranks.
//!
//! *One shot*: each rank copies its elements into its segment, and reads those of all ranks: one barrier, (n - 1) times the
//! elements over the links. *Two shots*: each rank reduces a part of the elements, and reads the other parts from the ranks
//! that have reduced them: two barriers, 2 (n - 1) / n times the elements.
//!
//! Each result is reduced in the order of ranks. In two shots one rank computes it for all, in one shot each does the same
//! steps: the bits are the same on all ranks, in every run, and those of the Host backend.

use gpu_std::prelude::*;

use crate::meeting::{Epoch, Meeting};
use crate::number::Step;
pub use crate::packed::Packed;

/// Bits of [`Meeting::options`]: the [`Step`], and what follows.
pub mod options {
    /// The bits of the step.
    pub const STEP: u32 = 3;
    /// Results are divided by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// The rank's elements are multiplied by its factor before.
    pub const SCALED: u32 = 1 << 3;
    /// In two shots.
    pub const TWO_SHOT: u32 = 1 << 4;
}

/// The most threads in a block.
pub const THREADS: u32 = 512;

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`. Without elements it is a barrier. `WORLD` is at least the number
/// of ranks.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most [`THREADS`] and
/// [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), and with meetings of one communicator. The halves are large enough for the elements. `x` is valid for
/// reads, `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(512)
)]
pub unsafe fn all_reduce<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
    factor: T,
    meeting: Meeting,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match Step::of(meeting.options & options::STEP) {
            Step::Add => run::<T, WORLD>(Step::Add, x, y, len, factor, &meeting),
            Step::Multiply => run::<T, WORLD>(Step::Multiply, x, y, len, factor, &meeting),
            Step::Less => run::<T, WORLD>(Step::Less, x, y, len, factor, &meeting),
            Step::Greater => run::<T, WORLD>(Step::Greater, x, y, len, factor, &meeting),
        }
    }
}

/// # Safety
/// As for [`all_reduce`].
#[inline(always)]
unsafe fn run<T: Packed, const WORLD: usize>(
    step: Step,
    x: *const T,
    y: *mut T,
    len: usize,
    factor: T,
    meeting: &Meeting,
) {
    // SAFETY: the caller's promise.
    let Some(epoch) = (unsafe { meeting.begin() }) else { return };
    let work = Work { step, x, y, len, factor, meeting, epoch };
    // SAFETY: the caller's promise.
    let done = unsafe {
        if meeting.options & options::TWO_SHOT == 0 {
            work.one_shot::<WORLD>()
        } else {
            work.two_shot::<WORLD>()
        }
    };
    if done {
        epoch.end();
    }
}

/// What a thread does in an operation.
#[derive(Clone, Copy)]
struct Work<'a, T> {
    step: Step,
    x: *const T,
    y: *mut T,
    len: usize,
    factor: T,
    meeting: &'a Meeting,
    epoch: Epoch<'a>,
}

impl<T: Packed> Work<'_, T> {
    /// Where the thread's vectors begin and how far they are apart, by number.
    #[inline(always)]
    fn stride() -> (usize, usize) {
        let (block, threads) = (thread::block_idx_x() as usize, thread::block_dim_x() as usize);
        let first = block * threads + thread::thread_idx_x() as usize;
        (first, threads * thread::grid_dim_x() as usize)
    }

    fn vectors(&self) -> usize {
        self.len.div_ceil(T::LANES)
    }

    /// Whether a vector of an array is one access.
    #[inline(always)]
    fn is_whole(&self, array: *const T, vector: usize) -> bool {
        array.addr().is_multiple_of(16) && (vector + 1) * T::LANES <= self.len
    }

    /// Copies a vector of the rank's elements into its half.
    #[inline(always)]
    unsafe fn publish(&self, half: *mut T, vector: usize) {
        let (from, at) = (self.x, vector * T::LANES);
        // SAFETY: the vector has elements; the half has room for whole vectors, and begins at a multiple of 16.
        unsafe {
            let mut wides = match self.is_whole(from, vector) {
                true => T::load(from.add(at)),
                false => T::load_some(from.add(at), self.len - at),
            };
            if self.meeting.options & options::SCALED != 0 {
                wides = T::scale(wides, self.factor);
            }
            T::store(wides, half.add(at));
        }
    }

    /// Writes a vector of results.
    #[inline(always)]
    unsafe fn finish(&self, wides: T::Wides, vector: usize) {
        let (to, at) = (self.y, vector * T::LANES);
        // SAFETY: the vector has elements.
        unsafe {
            match self.is_whole(to, vector) {
                true => T::store(wides, to.add(at)),
                false => T::store_some(wides, to.add(at), self.len - at),
            }
        }
    }

    /// Reduces a vector of all ranks' halves.
    #[inline(always)]
    unsafe fn reduced<const WORLD: usize>(&self, halves: &[*mut T; WORLD], vector: usize) -> T::Wides {
        let (at, world) = (vector * T::LANES, self.meeting.world as usize);
        // All reads before the first is used: they are under way together.
        // SAFETY: the ranks have written it before the barrier; those beyond the world are this rank.
        let of_ranks = halves.map(|half| unsafe { T::load(half.add(at)) });
        let mut wides = of_ranks[0];
        let mut rank = 1;
        while rank < WORLD {
            if rank < world {
                wides = T::step(self.step, wides, of_ranks[rank]);
            }
            rank += 1;
        }
        if self.meeting.options & options::AVERAGE != 0 {
            wides = T::divide(wides, self.meeting.world);
        }
        wides
    }

    /// The halves of all ranks; in place of those beyond the world, this rank's.
    #[inline(always)]
    unsafe fn halves<const WORLD: usize>(&self) -> [*mut T; WORLD] {
        let (own, world) = (self.meeting.rank as usize, self.meeting.world as usize);
        let mut halves = [core::ptr::null_mut(); WORLD];
        let mut rank = 0;
        while rank < WORLD {
            // SAFETY: there is such a rank.
            halves[rank] = unsafe { self.epoch.half(if rank < world { rank } else { own }) };
            rank += 1;
        }
        halves
    }

    /// # Safety
    /// As for [`all_reduce`].
    #[inline(always)]
    unsafe fn one_shot<const WORLD: usize>(&self) -> bool {
        let ((first, stride), vectors) = (Self::stride(), self.vectors());
        // SAFETY: the vectors are of the elements, and each thread's own.
        unsafe {
            let own = self.epoch.half(self.meeting.rank as usize);
            let mut vector = first;
            while vector < vectors {
                self.publish(own, vector);
                vector += stride;
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            let halves = self.halves::<WORLD>();
            vector = first;
            while vector < vectors {
                self.finish(self.reduced(&halves, vector), vector);
                vector += stride;
            }
        }
        true
    }

    /// # Safety
    /// As for [`all_reduce`].
    #[inline(always)]
    unsafe fn two_shot<const WORLD: usize>(&self) -> bool {
        let ((first, stride), vectors) = (Self::stride(), self.vectors());
        let (rank, world) = (self.meeting.rank as usize, self.meeting.world as usize);
        // Each rank's part begins at a multiple of this; a thread has the same places in all parts.
        let part = vectors.div_ceil(world);
        let end = |rank: usize| part.min(vectors.saturating_sub(rank * part));
        // SAFETY: the vectors are of the elements. Each is written by one thread of one rank at a time: its own rank's copy
        // before the first barrier, the results by the rank whose part it is before the second.
        unsafe {
            let own = self.epoch.half::<T>(rank);
            let mut of_rank = 0;
            while of_rank < world {
                let mut vector = first;
                while vector < end(of_rank) {
                    self.publish(own, of_rank * part + vector);
                    vector += stride;
                }
                of_rank += 1;
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            let halves = self.halves::<WORLD>();
            let mut vector = first;
            while vector < end(rank) {
                let at = rank * part + vector;
                let wides = self.reduced(&halves, at);
                T::store(wides, own.add(at * T::LANES));
                self.finish(wides, at);
                vector += stride;
            }
            if !self.epoch.barrier(1) {
                return false;
            }
            // Each rank begins with the one after it, so that not all read one.
            let mut step = 1;
            while step < world {
                let other = (rank + step) % world;
                let half = self.epoch.half::<T>(other);
                vector = first;
                while vector < end(other) {
                    let at = other * part + vector;
                    self.finish(T::load(half.add(at * T::LANES)), at);
                    vector += stride;
                }
                step += 1;
            }
        }
        true
    }
}
