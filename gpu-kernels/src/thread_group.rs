//! Thread groups for row operations: which threads process a row, how they divide it, and how they combine their
//! values.
//!
//! A row belongs to a `ThreadGroup`, which consists of 1 to 32 adjacent lanes, a block, or the blocks of a cluster. Its
//! threads take whole vectors of `N` elements in round-robin order, starting at the first aligned address of the row.
//! The threads take single elements before and after these vectors. The assignment of elements and the combination
//! order depend only on the row's length, its address modulo 16 and the launch, so results are deterministic.
//!
//! A launch must be one-dimensional, with blocks of 32, 64, 128, … threads. The kernel argument `group_size` is the
//! number of threads per block that belong to a group. It must be a power of two up to 32, or the block size. Clusters
//! can have 1, 2, 4 or 8 blocks. They can have more than one block only if the group is a whole block.

use core::mem::MaybeUninit;
use core::num::NonZeroU32;

use gpu_std::vectorized::opaque;
use gpu_std::{KernelType, cluster, shared_array, thread, warp};

use crate::tile::{Split, load_or};
pub(crate) use crate::tile::{aligned, lanes, load, with_lanes};

/// Calls `f(0)` to `f(N - 1)`. On a GPU, the calls are unrolled, so that arrays indexed in `f` stay in registers. On
/// the emulated device, the calls are made in a loop, which compiles in a fraction of the time.
#[inline(always)]
pub(crate) fn each<const N: usize>(mut f: impl FnMut(usize)) {
    #[cfg(target_arch = "nvptx64")]
    crate::tile::each::<N>(f);
    #[cfg(not(target_arch = "nvptx64"))]
    for i in 0..N {
        f(i);
    }
}

/// Returns an array with the results of `f` for all indices. The calls are unrolled as in [`each`].
#[inline(always)]
pub(crate) fn lanewise<U: Copy, const N: usize>(f: impl Fn(usize) -> U) -> [U; N] {
    let mut out = [f(0); N];
    each::<N>(|lane| {
        if lane > 0 {
            out[lane] = f(lane);
        }
    });
    out
}

/// Size of a shared memory slot, in bytes. A slot holds the value of a warp or a block.
const SLOT: usize = 48;
/// Number of slots: one per warp of a block, and one per block of a cluster.
const SLOTS: usize = 32 + 8;

/// Initial phase of a group, in which the first set of slots is used.
const BEGIN: u32 = 2;

/// The thread group that processes a row, as seen by one of its threads.
pub(crate) struct ThreadGroup {
    /// Number of threads in the group.
    pub size: usize,
    /// The thread's index in the group.
    pub rank: usize,
    /// Number of lanes per warp that belong to the group.
    lanes: u32,
    /// Number of blocks in the group. For a group of lanes, the number is 1.
    blocks: u32,
    /// The thread's index in its block. `block` is the block size.
    thread: u32,
    block: u32,
    /// Index of the set of slots (one of two) that the next combination uses. The phase is [`BEGIN`] until all blocks
    /// of the cluster are known to have started.
    phase: u32,
}

impl ThreadGroup {
    /// Returns the calling thread's group in a launch with `threads` threads per block and without clusters.
    #[inline(always)]
    pub fn in_block(threads: u32) -> Self {
        Self::of(threads, 1, (thread::thread_idx_x(), thread::block_dim_x()))
    }

    /// Calls `work` with each of the `height` rows that the calling thread's group processes, in a launch with
    /// `threads` threads per block. `work` must combine values at least once per row. At the first combination, the
    /// blocks of a cluster wait until all of them have started.
    ///
    /// For each row, the fields of the group are read again from special registers, which takes fewer registers than
    /// keeping their values.
    #[inline(always)]
    pub fn for_rows(threads: u32, height: usize, mut work: impl FnMut(Row, &mut Self)) {
        let own = Self::of(threads, cluster::blocks(), (thread::thread_idx_x(), thread::block_dim_x()));
        let (first, height, mut phase) = (own.first(), height as u32, BEGIN);
        if first < height as usize {
            if own.blocks > 1 {
                cluster::arrive();
            }
            let mut row = first as u32;
            loop {
                let mut own = Self::of(opaque(threads), blocks_again(), place_again());
                own.phase = phase;
                work(Row(row), &mut own);
                phase = own.phase;
                let step = own.step();
                if (height - row) as usize <= step {
                    break;
                }
                row += step as u32;
            }
        }
    }

    #[inline(always)]
    fn of(threads: u32, blocks: u32, (thread, block): (u32, u32)) -> Self {
        let lanes = if threads < warp::WARP_SIZE { threads } else { warp::WARP_SIZE };
        if threads < block {
            let rank = (thread & (lanes - 1)) as usize;
            return Self { size: lanes as usize, rank, lanes, blocks: 1, thread, block, phase: BEGIN };
        }
        let first = if blocks > 1 { rank_again() * threads } else { 0 };
        let (size, rank) = ((blocks * threads) as usize, (first + thread) as usize);
        Self { size, rank, lanes, blocks, thread, block, phase: BEGIN }
    }

    /// Returns the first row of the group. The group's other rows follow at a stride of [`Self::step`] rows.
    #[inline(always)]
    pub fn first(&self) -> usize {
        let thread =
            thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize;
        // The size is a power of two, so a GPU can divide by it in one instruction.
        thread >> self.size.trailing_zeros()
    }

    /// For a group of lanes, returns the index of the group in its warp and the number of groups per warp.
    #[inline(always)]
    pub fn in_warp(&self) -> (usize, usize) {
        let shift = self.size.trailing_zeros();
        ((self.thread % warp::WARP_SIZE) as usize >> shift, warp::WARP_SIZE as usize >> shift)
    }

    /// Returns the number of groups in the launch.
    #[inline(always)]
    pub fn step(&self) -> usize {
        (thread::grid_dim_x() as usize * thread::block_dim_x() as usize) >> self.size.trailing_zeros()
    }

    /// Returns those lanes of the calling thread's warp that are in the group.
    #[inline(always)]
    pub fn lanes(&self) -> Lanes {
        let lane = self.thread % warp::WARP_SIZE;
        let mask = (u32::MAX >> (warp::WARP_SIZE - self.lanes)) << (lane & !(self.lanes - 1));
        Lanes { mask, count: self.lanes }
    }

    /// Waits until all threads of the group have made this call. Their earlier writes are then visible to each other.
    #[inline(always)]
    pub fn sync(&self) {
        if self.size <= warp::WARP_SIZE as usize {
            warp::sync_warp(self.lanes().mask);
        } else if self.blocks > 1 {
            cluster::sync();
        } else {
            thread::sync_threads();
        }
    }

    /// Combines the values of all threads in the group in a fixed tree. Every thread receives the result. `combine`
    /// must be commutative.
    #[inline(always)]
    pub fn combine<P: KernelType>(&mut self, value: P, combine: impl Fn(P, P) -> P) -> P {
        let total = self.lanes().combine(value, &combine);
        self.combine_warps(total, |lanes, value| lanes.combine(value, &combine))
    }

    /// Combines one value per warp of the group. The value must be the same in all lanes of the warp. Every thread
    /// receives the result. `join` combines the values that the given lanes hold, and returns the result to all of
    /// these lanes. It is called first with the values of all warps of a block, and then with the values of all blocks.
    #[inline(always)]
    pub fn combine_warps<P: KernelType>(&mut self, value: P, join: impl Fn(Lanes, P) -> P) -> P {
        const { assert!(size_of::<P>() <= SLOT && align_of::<P>() <= 16) };
        if self.size <= warp::WARP_SIZE as usize {
            return value;
        }
        let (lane, mut total) = (self.thread % warp::WARP_SIZE, value);
        let slots = shared_array![[u128; 3]; 2 * SLOTS].cast::<u8>();
        let (first, is_first) = ((self.phase & 1) as usize * SLOTS, self.phase == BEGIN);
        self.phase = self.phase & 1 ^ 1;
        let slot = |index: usize| slots.wrapping_add((first + index) * SLOT).cast::<P>();
        let warps = self.block / warp::WARP_SIZE;
        if warps > 1 {
            if lane == 0 {
                // SAFETY: this slot belongs to this warp, and was last read before the barrier of the preceding
                // combination.
                unsafe { slot((self.thread / warp::WARP_SIZE) as usize).write(total) };
            }
            thread::sync_threads();
            // SAFETY: there is one slot per warp, which was written before the barrier.
            let of_warp = unsafe { slot((lane & (warps - 1)) as usize).read() };
            total = join(Lanes { mask: warp::FULL_MASK, count: warps }, of_warp);
        }
        if self.blocks > 1 {
            if is_first {
                cluster::wait();
            }
            if self.thread < self.blocks {
                // SAFETY: all blocks have started, and none exits before the barrier. In each block, this slot belongs
                // to the calling block, and was last read before the barrier of the preceding combination.
                unsafe { cluster::map_shared(slot(32 + rank_again() as usize), self.thread).write(total) };
            }
            // All other threads of the block have passed a barrier since their last access to the slots.
            cluster::sync_writes(self.thread < self.blocks);
            // SAFETY: there is one slot per block, which was written before the barrier.
            let of_block = unsafe { slot((32 + (lane & (self.blocks - 1))) as usize).read() };
            total = join(Lanes { mask: warp::FULL_MASK, count: self.blocks }, of_block);
        }
        total
    }
}

/// Defines functions that read a special register at each call. The corresponding intrinsic would allow the compiler to
/// keep the value in a register.
macro_rules! read_again {
    ($register:literal, $otherwise:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            let value: u32;
            // SAFETY: the instruction only reads a special register.
            unsafe { core::arch::asm!(concat!("mov.u32 {0}, ", $register, ";"), out(reg32) value, options(nomem, nostack)) };
            value
        }
        #[cfg(not(target_arch = "nvptx64"))]
        $otherwise
    }};
}

/// Returns the thread's index in its block and the block size.
#[inline(always)]
fn place_again() -> (u32, u32) {
    (read_again!("%tid.x", thread::thread_idx_x()), thread::block_dim_x())
}

/// Returns the number of blocks in the cluster.
#[inline(always)]
fn blocks_again() -> u32 {
    if gpu_std::arch() < 90 { cluster::blocks() } else { read_again!("%cluster_nctarank", cluster::blocks()) }
}

/// Returns the block's rank in its cluster.
#[inline(always)]
fn rank_again() -> u32 {
    if gpu_std::arch() < 90 {
        cluster::block_rank()
    } else {
        read_again!("%cluster_ctarank", cluster::block_rank())
    }
}

/// Index of a row.
#[derive(Clone, Copy)]
pub(crate) struct Row(u32);

impl Row {
    /// Returns the index, hidden from the optimizer, so that values that depend on it are computed where they are used.
    #[inline(always)]
    pub fn get(self) -> usize {
        opaque(self.0) as usize
    }
}

/// A power-of-two number of adjacent lanes of a warp.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    mask: u32,
    count: u32,
}

impl Lanes {
    /// Combines the values of all lanes in a fixed tree. Every lane receives the result. `combine` must be commutative.
    #[inline(always)]
    pub fn combine<P: KernelType>(&self, value: P, combine: impl Fn(P, P) -> P) -> P {
        let mut total = value;
        let mut distance = self.count / 2;
        while distance > 0 {
            total = combine(total, warp::shuffle_xor(self.mask, total, distance));
            distance /= 2;
        }
        total
    }
}

/// Division of a row into vectors and single elements.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    split: Split,
    len: usize,
}

impl Cut {
    /// Divides the row of `len` elements at `row` into vectors of `N` elements, or into single elements if
    /// `has_vectors` is false.
    #[inline(always)]
    pub fn new<T, const N: usize>(row: *const T, len: usize, has_vectors: bool) -> Self {
        let split = if has_vectors && N > 1 {
            Split::new::<T, N>(row, len)
        } else {
            Split { head: len, vectors: 0, tail: len }
        };
        Self { split, len }
    }

    /// Returns the number of elements outside the vectors.
    #[inline(always)]
    fn edges(&self) -> usize {
        self.split.head + (self.len - self.split.tail)
    }

    /// Returns the position in the row of the i-th element outside the vectors.
    #[inline(always)]
    fn edge(&self, i: usize) -> usize {
        if i < self.split.head { i } else { self.split.tail + (i - self.split.head) }
    }
}

/// Visits the thread's part of a row of any length. Thread `rank` of `size` threads visits vectors `rank`, `rank +
/// size`, …. It issues the loads of `ITEMS` vectors before it uses the first of them. `vector(i, is_there)` loads the
/// vector that starts at element i if the vector exists, and otherwise returns an arbitrary value. `element(i)` loads a
/// single element. The visitors receive the position of the first element and the `state`.
#[inline(always)]
pub(crate) fn stream<S, V: Copy, W: Copy, const ITEMS: usize, const N: usize>(
    cut: &Cut,
    (rank, size): (usize, usize),
    state: &mut S,
    vector: impl Fn(usize, bool) -> V,
    visit: impl Fn(&mut S, usize, V),
    element: impl Fn(usize) -> W,
    visit_element: impl Fn(&mut S, usize, W),
) {
    let (head, vectors) = (cut.split.head, cut.split.vectors);
    let place = |i: usize| head + i * N;
    let mut first = rank;
    while first < vectors {
        let values: [V; ITEMS] = lanewise(|item| {
            let i = first + item * size;
            vector(place(i), i < vectors)
        });
        each::<ITEMS>(|item| {
            let i = first + item * size;
            if i < vectors {
                visit(state, place(i), values[item]);
            }
        });
        first += ITEMS * size;
    }
    let mut i = rank;
    while i < cut.edges() {
        visit_element(state, cut.edge(i), element(cut.edge(i)));
        i += size;
    }
}

/// Loops over the rows of a block. Blocks can share rows: part p of the `parts` parts of a row belongs to the p-th
/// block of the row.
///
/// Calls `work` for each of the `height` rows of which the calling thread processes a part. The arguments are the row,
/// the thread's index among the threads of the row, and the number of these threads. If there is only one part, the
/// thread group processes the whole row.
#[inline(always)]
pub(crate) fn for_parts(
    group_size: u32,
    parts: u32,
    height: usize,
    mut work: impl FnMut(usize, (usize, usize)),
) {
    let own = ThreadGroup::in_block(group_size);
    let count = parts as usize;
    let mut index = own.first();
    while index < height * count {
        let (row, part) = divided(index, parts);
        work(row, (part * own.size + own.rank, count * own.size));
        index += own.step();
    }
}

/// Returns the row and the part of a work item. If there are several parts, there must be fewer than 2³² work items.
#[inline(always)]
pub(crate) fn divided(work: usize, parts: u32) -> (usize, usize) {
    let Some(several) = NonZeroU32::new(parts).filter(|_| parts > 1) else { return (work, 0) };
    ((work as u32 / several) as usize, (work as u32 % several) as usize)
}

/// Loads the vector at an address if `is_there` is true, and otherwise returns an arbitrary value.
///
/// # Safety
/// The caller must uphold the safety contract of [`load_or`].
#[inline(always)]
pub(crate) unsafe fn load_or_any<T: KernelType, const N: usize>(ptr: *const T, is_there: bool) -> [T; N] {
    // SAFETY: any bytes are a valid value, and the caller guarantees the rest.
    unsafe { load_or::<T, N, false>(ptr, is_there, MaybeUninit::zeroed().assume_init()) }
}
