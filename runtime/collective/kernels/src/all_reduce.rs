//! `all_reduce`: the elements of all ranks reduced, on all ranks.
//!
//! *One shot*: each rank copies its elements into its segment, and reads those of all ranks: one barrier, (n - 1) times the
//! elements over the links. *Two shots*: each rank reduces a part of the elements, and reads the other parts from the ranks
//! that have reduced them: two barriers, 2 (n - 1) / n times the elements. *Direct*: in two shots, of elements that lie in memory
//! which all ranks reach: they are not copied first.
//!
//! Each result is reduced in the order of ranks. In two shots one rank computes it for all, in one shot each does the same
//! steps: the bits are the same on all ranks, in every run, and those of the Host backend.

use gpu_std::prelude::*;

use crate::meeting::{Epoch, Meeting};
use crate::number::{Accumulate, Step};
pub use crate::packed::Packed;
use crate::packed::Reduce;

/// Bits of [`Meeting::options`]: the [`Step`], and what follows.
pub mod options {
    /// The bits of the step.
    pub const STEP: u32 = 3;
    /// Results are divided by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// The rank's elements are multiplied by its factor before. Not with [`DIRECT`].
    pub const SCALED: u32 = 1 << 3;
    /// In two shots.
    pub const TWO_SHOT: u32 = 1 << 4;
    /// Of elements at [`Meeting::direct`](super::Meeting::direct); in two shots.
    pub const DIRECT: u32 = 1 << 5;
}

/// The most threads in a block.
pub const THREADS: u32 = 512;

/// Reduces `len` elements at `x` of all ranks into `y`, which may be `x`. Without elements it is a barrier. `WORLD` is at least the
/// number of ranks.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most [`THREADS`] and
/// [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), and with meetings of one communicator that differ in nothing but the rank. A half
/// has room for the elements, or for the part of one rank if they are reached directly. `x` is valid for reads, `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(512, 1)
)]
pub unsafe fn all_reduce<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
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
    let factor = has(options::SCALED).then_some(factor);
    let work = Work { how, x, y, len, factor, rank: meeting.rank as usize, epoch };
    // SAFETY: the caller's promise.
    let is_done = unsafe {
        match (has(options::TWO_SHOT), has(options::DIRECT)) {
            (false, _) => work.one_shot::<WORLD>(),
            (true, is_direct) => work.two_shot::<WORLD>(is_direct),
        }
    };
    if is_done {
        epoch.end();
    }
}

/// What a thread does in an operation.
#[derive(Clone, Copy)]
struct Work<'a, T> {
    how: Reduce,
    x: *const T,
    y: *mut T,
    len: usize,
    factor: Option<T>,
    rank: usize,
    epoch: Epoch<'a>,
}

/// Keeps LLVM from unrolling the loop that it is in, whose body has enough accesses under way, for lack of registers.
#[inline(always)]
fn once() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: nothing happens.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// The vectors of a thread up to a number, from the first on, which is the same on all ranks.
#[inline(always)]
fn own_vectors(count: usize) -> impl Iterator<Item = usize> {
    let (block, threads) = (thread::block_idx_x() as usize, thread::block_dim_x() as usize);
    let stride = threads * thread::grid_dim_x() as usize;
    let mut next = block * threads + thread::thread_idx_x() as usize;
    core::iter::from_fn(move || {
        once();
        let vector = next;
        next += stride;
        (vector < count).then_some(vector)
    })
}

impl<T: Packed> Work<'_, T> {
    fn vectors(&self) -> usize {
        self.len.div_ceil(T::LANES)
    }

    /// The elements of a vector: fewer at the end.
    #[inline(always)]
    fn lanes_of(&self, vector: usize) -> usize {
        T::LANES.min(self.len - vector * T::LANES)
    }

    /// Whether a vector of an array is one access.
    #[inline(always)]
    fn is_whole(&self, array: *const T, vector: usize) -> bool {
        array.addr().is_multiple_of(16) && self.lanes_of(vector) == T::LANES
    }

    /// Copies a vector of the rank's elements into its half.
    ///
    /// # Safety
    /// The vector has elements; the half has room for whole vectors, and begins at a multiple of 16.
    #[inline(always)]
    unsafe fn publish(&self, half: *mut T, vector: usize) {
        let at = vector * T::LANES;
        // SAFETY: the caller's promise.
        unsafe {
            if self.factor.is_none() && self.is_whole(self.x, vector) {
                return T::store(T::load(self.x.add(at)), half.add(at));
            }
            let mut lane = 0;
            while lane < self.lanes_of(vector) {
                once();
                let element = self.x.add(at + lane).read();
                let scaled = |factor: T| T::narrow(element.widen().multiply(factor.widen()));
                half.add(at + lane).write(self.factor.map_or(element, scaled));
                lane += 1;
            }
        }
    }

    /// Copies a vector of results from a half to the rank's.
    ///
    /// # Safety
    /// The vector has elements, whose results are at `from`, a multiple of 16.
    #[inline(always)]
    unsafe fn take(&self, from: *const T, vector: usize) {
        let to = self.y;
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_whole(to, vector) {
                return T::store(T::load(from), to.add(vector * T::LANES));
            }
            let mut lane = 0;
            while lane < self.lanes_of(vector) {
                once();
                to.add(vector * T::LANES + lane).write(from.add(lane).read());
                lane += 1;
            }
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

    /// The same of a vector with fewer elements, or for an unaligned target: element by element.
    ///
    /// # Safety
    /// The ranks have the elements, and `to` is valid for them.
    #[inline(always)]
    unsafe fn reduce_some<const WORLD: usize>(
        &self,
        sources: &[*mut T; WORLD],
        vector: usize,
        mut to: impl FnMut(usize, T),
    ) {
        let mut lane = 0;
        while lane < self.lanes_of(vector) {
            once();
            let at = vector * T::LANES + lane;
            // SAFETY: the caller's promise.
            let of_ranks = sources.map(|source| unsafe { source.add(at).read() }.widen());
            let mut wide = of_ranks[0];
            let mut rank = 1;
            while rank < WORLD {
                if (rank as u32) < self.how.world {
                    wide = self.how.step.apply(wide, of_ranks[rank]);
                }
                rank += 1;
            }
            to(lane, self.how.finish(wide));
            lane += 1;
        }
    }

    /// Where all ranks have what is reduced; in place of ranks beyond the world, this rank.
    ///
    /// # Safety
    /// All ranks have it there.
    #[inline(always)]
    unsafe fn sources<const WORLD: usize>(&self, is_direct: bool) -> [*mut T; WORLD] {
        let mut sources = [core::ptr::null_mut(); WORLD];
        let mut rank = 0;
        while rank < WORLD {
            let of = if (rank as u32) < self.how.world { rank } else { self.rank };
            // SAFETY: there is such a rank.
            sources[rank] = unsafe { if is_direct { self.epoch.direct(of) } else { self.epoch.half(of) } };
            rank += 1;
        }
        sources
    }

    /// # Safety
    /// As for [`all_reduce`].
    #[inline(always)]
    unsafe fn one_shot<const WORLD: usize>(&self) -> bool {
        // SAFETY: the vectors are of the elements, and each thread's own. Halves have room for whole vectors.
        unsafe {
            let own = self.epoch.half(self.rank);
            own_vectors(self.vectors()).for_each(|vector| self.publish(own, vector));
            if !self.epoch.barrier(0) {
                return false;
            }
            let sources = self.sources::<WORLD>(false);
            for vector in own_vectors(self.vectors()) {
                let to = self.y.add(vector * T::LANES);
                match self.is_whole(self.y, vector) {
                    true => T::store(self.reduced(&sources, vector), to),
                    false => self.reduce_some(&sources, vector, |lane, value| to.add(lane).write(value)),
                }
            }
        }
        true
    }

    /// # Safety
    /// As for [`all_reduce`].
    #[inline(always)]
    unsafe fn two_shot<const WORLD: usize>(&self, is_direct: bool) -> bool {
        let (vectors, world) = (self.vectors(), self.how.world as usize);
        // Each rank's part begins at a multiple of this; a thread has the same places in all parts.
        let part = vectors.div_ceil(world);
        let len = |rank: usize| part.min(vectors.saturating_sub(rank * part));
        // Where a rank has its part's results: in place of what they were made of, unless that is the program's.
        // SAFETY: a half has room for them.
        let results = |rank: usize| unsafe {
            let start = if is_direct { 0 } else { rank * part * T::LANES };
            self.epoch.half::<T>(rank).add(start)
        };
        // SAFETY: the vectors are of the elements. Each is written by one thread of one rank at a time: its own rank's copy
        // before the first barrier, the results by the rank whose part it is before the second.
        unsafe {
            if !is_direct {
                let own = self.epoch.half::<T>(self.rank);
                for rank in 0..world {
                    own_vectors(len(rank)).for_each(|vector| self.publish(own, rank * part + vector));
                }
            }
            if !self.epoch.barrier(0) {
                return false;
            }
            let sources = self.sources::<WORLD>(is_direct);
            for vector in own_vectors(len(self.rank)) {
                let (at, to) = (self.rank * part + vector, results(self.rank).add(vector * T::LANES));
                // The results are aligned, and have room for a whole vector.
                match self.lanes_of(at) == T::LANES {
                    true => T::store(self.reduced(&sources, at), to),
                    false => self.reduce_some(&sources, at, |lane, value| to.add(lane).write(value)),
                }
            }
            if !self.epoch.barrier(1) {
                return false;
            }
            // Each rank begins with itself and goes on with the one after it, so that not all read one.
            for step in 0..world {
                let rank = (self.rank + step) % world;
                let from = results(rank);
                for vector in own_vectors(len(rank)) {
                    self.take(from.add(vector * T::LANES), rank * part + vector);
                }
            }
        }
        true
    }
}
