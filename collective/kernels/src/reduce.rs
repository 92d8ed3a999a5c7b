//! `reduce`: all-reduce, reduce and reduce-scatter.
//!
//! Each rank writes its elements to the halves of the ranks that reduce them. Over the links, writing is faster than
//! reading, because no rank waits for a response. *One-shot*: each rank writes its elements to all other ranks and
//! reduces the elements of all ranks. It requires one barrier, and the elements of each rank cross the links (n - 1)
//! times. *Two-shot*: each rank reduces a part of the elements and writes the results to all other ranks. It requires
//! two barriers, and the elements of each rank cross the links 2 * (n - 1) / n times. *Direct*: the elements are in
//! symmetric memory, and each rank reads its part from there. A reduce-scatter is the first step of two-shot: each rank
//! computes only its own block.
//!
//! Each result is reduced in rank order. In two-shot, one rank computes it for all ranks; in one-shot, every rank
//! executes the same steps. Therefore, the results are bit-identical on all ranks, in every run, and to those of the
//! Host backend.
//!
//! Block b of a rank writes elements for block b of another rank and reads the elements that the latter has written,
//! because both process the same vectors of each part.

use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::device_comm::{DeviceComm, Epoch};
use crate::number::Step;
use crate::packed::{Packed, Reduce};
use crate::vectors::{copy, first, load, once, own_vectors, store, stride, vectors};

/// Bits of [`DeviceComm::options`]. The lowest bits contain the [`Step`], and the bits above them contain these
/// options. All ranks must pass the same options.
pub mod options {
    /// Bits of the step.
    pub const STEP: u32 = 3;
    /// Divides sums by the number of ranks.
    pub const AVERAGE: u32 = 1 << 2;
    /// Selects two-shot. Among this and the following options, [`low_latency`](mod@crate::low_latency) supports only
    /// [`to`].
    pub const TWO_SHOT: u32 = 1 << 3;
    /// Reads elements at [`DeviceComm::direct`](super::DeviceComm::direct). Requires [`TWO_SHOT`] or [`SCATTER`].
    pub const DIRECT: u32 = 1 << 4;
    /// Computes one block of the result per rank; `x` contains one block per rank. Cannot be combined with
    /// [`TWO_SHOT`].
    pub const SCATTER: u32 = 1 << 5;
    /// With [`DIRECT`] and [`TWO_SHOT`], the results replace the elements on all ranks.
    pub const IN_PLACE: u32 = 1 << 6;
    /// First bit of the root field. The field contains the only rank that receives the results, plus one, or zero for
    /// all ranks.
    const ROOT: u32 = 7;

    /// Returns the option that sends the results only to rank `root`. Other ranks do not use `y`.
    pub const fn to(root: usize) -> u32 {
        (root as u32 + 1) << ROOT
    }

    /// Returns whether the rank `rank` receives results.
    #[inline(always)]
    pub(crate) const fn is_for(options: u32, rank: usize) -> bool {
        let root = options >> ROOT;
        root == 0 || root == rank as u32 + 1
    }
}

/// Reduces `len` elements at `x` of all ranks into `y`, which may be the same memory as `x`. With [`options::SCATTER`],
/// reduces `len` elements of each block of `x`. The starts of the blocks are `stride` elements apart, and `y` may be
/// the rank's own block. `WORLD` must be at least the number of ranks.
///
/// # Safety
/// All ranks must launch the kernel in the same shape: 1-D blocks and grids, with at most
/// [`THREADS`](crate::device_comm::THREADS) threads per block and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS)
/// blocks. The [`DeviceComm`]s must belong to one communicator and differ only in the rank. A half must be large enough
/// for the elements of all other ranks, where the elements of each rank are aligned to 16 bytes. With
/// [`options::SCATTER`], this includes only the elements of the rank's own block. In two-shot, the elements must fit
/// into the first 50 % of the half, and the results into the rest. Directly accessed elements need no space in the
/// half, except in two-shot for results that are not in place; in this case, blocks must start at multiples of 16
/// bytes. `x` must be valid for reads and `y` for writes.
#[kernel(
    types(T = i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16),
    consts(WORLD = 2, 4, 8),
    launch_bounds(512, 1),
    dependent
)]
pub unsafe fn reduce<T: Packed, const WORLD: usize>(
    x: *const T,
    y: *mut T,
    len: usize,
    stride: usize,
    comm: DeviceComm,
) {
    grid::dependency_wait();
    // SAFETY: guaranteed by the caller.
    let Some(epoch) = (unsafe { comm.begin() }) else { return };
    let has = |option| comm.options & option != 0;
    let how = Reduce {
        step: Step::of(comm.options & options::STEP),
        world: comm.world,
        is_average: has(options::AVERAGE),
    };
    let rank = comm.rank as usize;
    let parts = match (has(options::TWO_SHOT), has(options::SCATTER)) {
        (true, _) => {
            // `max` avoids the panic that a division by zero would cause.
            let part = vectors::<T>(len).div_ceil((comm.world as usize).max(1)) * T::LANES;
            Parts { stride: part, len: part, end: len }
        }
        (false, true) => Parts { stride, len, end: usize::MAX },
        (false, false) => Parts { stride: 0, len, end: len },
    };
    let work = Work { how, x, y, parts, rank, epoch };
    // SAFETY: guaranteed by the caller.
    if unsafe { work.run::<WORLD>() } {
        epoch.end();
    }
}

/// Division of the elements into the parts that each rank reduces.
#[derive(Clone, Copy)]
struct Parts {
    /// Number of elements from the start of one rank's part to the start of the next.
    stride: usize,
    /// Maximum number of elements of a part. The last parts may have fewer.
    len: usize,
    end: usize,
}

impl Parts {
    /// Returns the start of the part of a rank.
    #[inline(always)]
    fn start(self, rank: usize) -> usize {
        (rank * self.stride).min(self.end)
    }

    /// Returns the number of elements in the part of a rank.
    #[inline(always)]
    fn len(self, rank: usize) -> usize {
        self.len.min(self.end - self.start(rank))
    }
}

/// Maximum number of vectors that a thread has in flight at the same time.
const DEPTH: usize = 2;

/// Returns the number of vectors that a thread reduces at the same time. It is limited by the number of registers.
const fn depth(world: usize) -> usize {
    if world == 2 { DEPTH } else { 1 }
}

/// Work of one thread in an operation.
#[derive(Clone, Copy)]
struct Work<T> {
    how: Reduce,
    x: *const T,
    y: *mut T,
    parts: Parts,
    rank: usize,
    epoch: Epoch,
}

impl<T: Packed> Work<T> {
    #[inline(always)]
    fn has(&self, option: u32) -> bool {
        self.epoch.comm.options & option != 0
    }

    /// Returns whether the rank exists and is not this rank.
    #[inline(always)]
    fn is_other(&self, rank: usize) -> bool {
        rank < self.how.world as usize && rank != self.rank
    }

    #[inline(always)]
    fn is_for(&self, rank: usize) -> bool {
        options::is_for(self.epoch.comm.options, rank)
    }

    /// Returns the rank that follows this one by `steps`, modulo the number of ranks. `steps` must be less than the
    /// number of ranks.
    #[inline(always)]
    fn after(&self, steps: usize) -> usize {
        let (rank, world) = (self.rank + steps, self.how.world as usize);
        if rank < world { rank } else { rank - world }
    }

    /// Returns the slot in the half of rank `of` to which rank `from` writes its elements of a part. Every rank except
    /// `of` has a slot.
    #[inline(always)]
    fn slot(&self, of: usize, from: usize) -> *mut T {
        let place = from - usize::from(from > of);
        self.epoch.half::<T>(of).wrapping_add(place * vectors::<T>(self.parts.len) * T::LANES)
    }

    /// Returns the address of the two-shot results in the half of a rank.
    #[inline(always)]
    fn results(&self, of: usize) -> *mut T {
        self.epoch.half::<T>(of).wrapping_byte_add(self.epoch.comm.half_bytes as usize / 2)
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`reduce`].
    #[inline(always)]
    unsafe fn run<const WORLD: usize>(&self) -> bool {
        let world = self.how.world as usize;
        let (is_direct, is_in_place) = (self.has(options::DIRECT), self.has(options::IN_PLACE));
        let is_two_shot = self.has(options::TWO_SHOT);
        // SAFETY: guaranteed by the caller. The first barrier orders the other ranks' writes to a part's elements
        // before the reads of the rank that owns the part. The second barrier orders the writes of that part's results
        // before the reads of the other ranks. Until the second barrier, no other rank accesses the addresses of the
        // part. Only the rank that owns the part reads the elements and then overwrites them.
        unsafe {
            // Each rank starts with the rank that follows it, so that not all ranks write to the same rank at once.
            for step in 1..if is_direct { 0 } else { world } {
                let rank = self.after(step);
                // In two-shot, all ranks reduce.
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
            // The program may reuse its memory after all ranks have read it.
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

    /// Writes this rank's elements of another rank's part into this rank's slot in the other rank's half.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`reduce`].
    #[inline(always)]
    unsafe fn give(&self, rank: usize) {
        let (from, len) = (self.x.wrapping_add(self.parts.start(rank)), self.parts.len(rank));
        let (to, count, stride) = (self.slot(rank, self.rank), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // All reads are issued before the first result is used, so that they are all in flight at the same time.
            let mut elements = [T::of_words([0; 4]); DEPTH];
            let mut step = 0;
            while step < DEPTH {
                if vector + step * stride < count {
                    // SAFETY: the vector contains elements.
                    elements[step] = unsafe { load(from, len, vector + step * stride) };
                }
                step += 1;
            }
            step = 0;
            while step < DEPTH {
                if vector + step * stride < count {
                    // SAFETY: the slot has room for full vectors.
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
    /// The caller must uphold the safety contract of [`reduce`]. The writes of the other ranks must be visible.
    #[inline(always)]
    unsafe fn reduce<const WORLD: usize>(&self) {
        let (start, len) = (self.parts.start(self.rank), self.parts.len(self.rank));
        let (own, count, stride) = (self.x.wrapping_add(start), vectors::<T>(len), stride());
        let mut vector = first();
        while vector < count {
            once();
            // This prevents LLVM from computing the address of each rank's elements before the loop, because there are
            // not enough registers for these addresses.
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
                            // SAFETY: the elements of the other ranks are stored as full vectors, starting at a
                            // multiple of 16 bytes.
                            elements[step][rank] =
                                unsafe { T::load(this.source(rank, start).add(vector * T::LANES)) };
                        } else if rank == this.rank {
                            // SAFETY: the vector contains elements.
                            elements[step][rank] = unsafe { load(own, len, vector) };
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
                    // SAFETY: the vector contains elements, and they have been read.
                    unsafe { this.put(T::reduce(this.how, elements[step]), start, len, vector) };
                }
                step += 1;
            }
            vector += depth(WORLD) * stride;
        }
    }

    /// Returns the address of the elements of another rank in this rank's part, which starts at `start`. The elements
    /// are in a slot of this rank's half or, if they are accessed directly, in the memory of the other rank.
    ///
    /// # Safety
    /// The rank must exist, and if elements are accessed directly, the table must exist as well.
    #[inline(always)]
    unsafe fn source(&self, rank: usize, start: usize) -> *mut T {
        if self.has(options::DIRECT) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.epoch.direct::<T>(rank).add(start) }
        } else {
            self.slot(self.rank, rank)
        }
    }

    /// Writes results of this rank's part, which starts at `start`, to this rank's memory and, in two-shot, also to all
    /// other ranks.
    ///
    /// # Safety
    /// The vector must contain elements, and they must have been read.
    #[inline(always)]
    unsafe fn put(&self, result: T::Lanes, start: usize, len: usize, vector: usize) {
        let is_two_shot = self.has(options::TWO_SHOT);
        let own = self.y.wrapping_add(if is_two_shot { start } else { 0 });
        if self.is_for(self.rank) {
            // SAFETY: guaranteed by the caller.
            unsafe { store(result, own, len, vector) };
        }
        let others = if is_two_shot { self.how.world as usize } else { 0 };
        for rank in 0..others {
            // This call keeps a single loop body for all ranks.
            let rank = opaque(rank);
            if rank != self.rank && self.is_for(rank) {
                // SAFETY: the rank exists, and so does the table if it is needed. The caller guarantees the rest.
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
