//! What the operations on rows share: which threads work on a row, how they divide it, and how they combine.
//!
//! A row belongs to a `Team`: 1 to 32 neighbouring lanes, a block, or the blocks of a cluster. Its threads take whole
//! vectors of `N` elements in turn, from the first aligned address of the row on, and single elements before and after
//! them. Which thread has which element, and in which order values are combined, depends on the row's length, its address
//! modulo 16 and the launch only, so that results are the same bits in every run.
//!
//! A launch is one-dimensional, of blocks of 32, 64, 128, … threads: the `team` that it passes is a power of two up to
//! 32, or the block's size. Clusters are of 1, 2, 4 or 8 blocks, of more than one only with a team of a block.

use core::num::NonZeroU32;

use gpu_std::scalar::Scalar;
use gpu_std::{KernelType, cluster, shared_array, thread, warp};

use crate::tile::Split;
pub(crate) use crate::tile::{aligned, lanes, load, store, with_lanes};

/// Calls `f(0)` to `f(N - 1)`: on a GPU without a loop, so that indexed arrays become registers; on the emulated device with
/// one, which compiles in a fraction of the time.
#[inline(always)]
pub(crate) fn each<const N: usize>(mut f: impl FnMut(usize)) {
    #[cfg(target_arch = "nvptx64")]
    crate::tile::each::<N>(f);
    #[cfg(not(target_arch = "nvptx64"))]
    for i in 0..N {
        f(i);
    }
}

/// `f` of each index, as [`each`] calls it.
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

/// Bytes of a slot of shared memory for the value of a warp or a block.
const SLOT: usize = 32;

/// The threads that work on a row together, seen by one of them.
pub(crate) struct Team {
    /// Threads of the team.
    pub size: usize,
    /// The thread's index in the team.
    pub rank: usize,
    /// Lanes of a warp that are in the team.
    lanes: u32,
    /// Blocks of the team; 1 also for a team of lanes.
    blocks: u32,
    /// Which of two sets of slots the next combination uses.
    phase: usize,
}

impl Team {
    /// The calling thread's team, of `threads` in each block of its cluster.
    #[inline(always)]
    pub fn new(threads: u32) -> Self {
        Self::of_blocks(threads, cluster::blocks())
    }

    /// The same in a launch without clusters, which takes less code.
    #[inline(always)]
    pub fn in_block(threads: u32) -> Self {
        Self::of_blocks(threads, 1)
    }

    #[inline(always)]
    fn of_blocks(threads: u32, blocks: u32) -> Self {
        let lanes = if threads < warp::WARP_SIZE { threads } else { warp::WARP_SIZE };
        if threads < thread::block_dim_x() {
            let rank = (thread::thread_idx_x() & (lanes - 1)) as usize;
            return Self { size: lanes as usize, rank, lanes, blocks: 1, phase: 0 };
        }
        let first = if blocks > 1 { cluster::block_rank() * threads } else { 0 };
        let rank = (first + thread::thread_idx_x()) as usize;
        Self { size: (blocks * threads) as usize, rank, lanes, blocks, phase: 0 }
    }

    /// The team's first row; its others follow every [`Self::step`] rows.
    #[inline(always)]
    pub fn first(&self) -> usize {
        let thread =
            thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize;
        // A power of two, by which a GPU divides in one instruction.
        thread >> self.size.trailing_zeros()
    }

    /// Teams of the launch.
    #[inline(always)]
    pub fn step(&self) -> usize {
        (thread::grid_dim_x() as usize * thread::block_dim_x() as usize) >> self.size.trailing_zeros()
    }

    /// Combines the values of the threads of a team of lanes by a fixed tree; every thread gets the result. `combine` is
    /// commutative.
    #[inline(always)]
    pub fn combine_lanes<P: KernelType>(&self, value: P, combine: &impl Fn(P, P) -> P) -> P {
        let mask = (u32::MAX >> (warp::WARP_SIZE - self.lanes)) << (warp::lane_id() & !(self.lanes - 1));
        tree(value, mask, self.lanes, combine)
    }

    /// Combines the values of the team's threads by a fixed tree; every thread gets the result. `combine` is commutative.
    #[inline(always)]
    pub fn combine<P: KernelType>(&mut self, value: P, combine: impl Fn(P, P) -> P) -> P {
        const { assert!(size_of::<P>() <= SLOT && align_of::<P>() <= 16) };
        let lane = warp::lane_id();
        let mut total = self.combine_lanes(value, &combine);
        if self.size <= warp::WARP_SIZE as usize {
            return total;
        }
        let slots = shared_array![[u128; 2]; 66].cast::<u8>();
        let first = self.phase * 33;
        self.phase ^= 1;
        let slot = |index: usize| slots.wrapping_add((first + index) * SLOT).cast::<P>();
        let warps = thread::block_dim_x() / warp::WARP_SIZE;
        if warps > 1 {
            if lane == 0 {
                // SAFETY: the warp's own slot, which was last read before the barrier of the combination before this one.
                unsafe { slot((thread::thread_idx_x() / warp::WARP_SIZE) as usize).write(total) };
            }
            thread::sync_threads();
            // SAFETY: there is a slot for each warp, written before the barrier.
            let of_warp = unsafe { slot((lane & (warps - 1)) as usize).read() };
            total = tree(of_warp, warp::FULL_MASK, warps, &combine);
        }
        if self.blocks > 1 {
            if thread::thread_idx_x() == 0 {
                // SAFETY: the block's own slot, which other blocks last read before the barrier of the combination before.
                unsafe { slot(32).write(total) };
            }
            cluster::sync();
            // SAFETY: every block of the cluster has the slot, written before the barrier, and does not end before
            // `finish`.
            let of_block = unsafe { cluster::map_shared(slot(32), lane & (self.blocks - 1)).read() };
            total = tree(of_block, warp::FULL_MASK, self.blocks, &combine);
        }
        total
    }

    /// Every thread calls it after the last combination: no block of a cluster ends while another may read its slots.
    #[inline(always)]
    pub fn finish(self) {
        if self.blocks > 1 {
            cluster::sync();
        }
    }
}

/// Combines the values of `lanes` neighbouring lanes, all of them in `mask`; each gets the result.
#[inline(always)]
fn tree<P: KernelType>(mut total: P, mask: u32, lanes: u32, combine: &impl Fn(P, P) -> P) -> P {
    let mut distance = lanes / 2;
    while distance > 0 {
        total = combine(total, warp::shuffle_xor(mask, total, distance));
        distance /= 2;
    }
    total
}

/// How a team divides a row.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    split: Split,
    len: usize,
}

impl Cut {
    /// Cuts the row of `len` elements at `row` into vectors of `N`, or, unless `has_vectors`, into single elements.
    #[inline(always)]
    pub fn new<T, const N: usize>(row: *const T, len: usize, has_vectors: bool) -> Self {
        let split = if has_vectors && N > 1 {
            Split::new::<T, N>(row, len)
        } else {
            Split { head: len, vectors: 0, tail: len }
        };
        Self { split, len }
    }

    /// Elements outside of vectors.
    #[inline(always)]
    fn edges(&self) -> usize {
        self.split.head + (self.len - self.split.tail)
    }

    /// The place in the row of one of them.
    #[inline(always)]
    fn edge(&self, i: usize) -> usize {
        if i < self.split.head { i } else { self.split.tail + (i - self.split.head) }
    }

    /// Whether the threads of a team can hold the row in registers, `ITEMS` vectors and one more element each.
    #[inline(always)]
    fn is_held<const ITEMS: usize>(&self, team: &Team) -> bool {
        (self.split.vectors <= ITEMS * team.size) & (self.edges() <= team.size)
    }
}

/// What becomes of the elements at the same places of `K` rows.
pub(crate) trait RowMap<T, const K: usize> {
    /// The results for `M` places from `place` on.
    fn apply<const M: usize>(&self, values: [[T; M]; K], place: usize) -> [T; M];
}

/// A thread's part of `K` rows, which are cut alike.
pub(crate) trait Source<T, const K: usize> {
    /// Whether it lies in registers: then it can be visited often.
    const IS_HELD: bool;

    /// Calls `visit` with the elements at each place.
    fn visit(&self, visit: impl FnMut([T; K], usize));

    /// Writes what `map` makes of them to a row that is cut alike.
    ///
    /// # Safety
    ///
    /// `row` is valid for writes of the cut's length, and aligned where it is cut.
    unsafe fn write(&self, row: *mut T, map: &impl RowMap<T, K>);
}

/// An operation on `K` rows, for the thread's part in registers and in memory.
pub(crate) trait RowOperation<T, const K: usize> {
    /// Runs it in every thread of the team.
    fn run<S: Source<T, K>>(&self, source: &S, team: &mut Team);
}

/// The constant of the instances for rows that the team holds with this number of vectors a thread: they have no code for
/// longer rows.
pub const FEW: usize = 2;
/// The same of instances that hold two rows.
pub const BACKWARD_FEW: usize = 1;

/// The vectors of 16 bytes that a thread holds of a row: `items`, or half as many of 16-bit elements, which take twice the
/// registers once they are computed in f32, and of f64, whose functions take more of them.
pub const fn held_vectors<T>(items: usize) -> usize {
    if size_of::<T>() == 4 || items == 1 { items } else { items / 2 }
}

/// Runs an operation on rows: in registers if the team can hold them, `ITEMS` vectors of each row and thread. It `streams`
/// others, or else leaves them as they are: an instance for short rows has no code for that.
///
/// # Safety
///
/// The rows are valid for `len` elements. If they `have_vectors`, their addresses are the same modulo `N` elements.
#[inline(always)]
pub(crate) unsafe fn with_rows<T: Scalar, const K: usize, const ITEMS: usize, const N: usize>(
    rows: [*const T; K],
    len: usize,
    (have_vectors, streams): (bool, bool),
    team: &mut Team,
    operation: &impl RowOperation<T, K>,
) {
    let cut = Cut::new::<T, N>(rows[0], len, have_vectors);
    let streamed = Streamed::<T, K, N> { rows, cut, rank: team.rank, size: team.size };
    if cut.is_held::<ITEMS>(team) {
        // SAFETY: the rows are valid and cut as `streamed` is.
        let held = unsafe { Held::<T, K, ITEMS, N>::load(streamed) };
        operation.run(&held, team);
    } else if streams {
        operation.run(&streamed, team);
    }
}

/// A thread's part of rows, in registers.
struct Held<T, const K: usize, const ITEMS: usize, const N: usize> {
    of: Streamed<T, K, N>,
    vectors: [[[T; N]; K]; ITEMS],
    edge: [T; K],
}

impl<T: Scalar, const K: usize, const ITEMS: usize, const N: usize> Held<T, K, ITEMS, N> {
    /// # Safety
    ///
    /// The rows are valid for the cut's length, and aligned where they are cut.
    #[inline(always)]
    unsafe fn load(of: Streamed<T, K, N>) -> Self {
        let mut held = Self { vectors: [[[T::ZERO; N]; K]; ITEMS], edge: [T::ZERO; K], of };
        each::<ITEMS>(|item| {
            let i = held.of.rank + item * held.of.size;
            if i < held.of.cut.split.vectors {
                // SAFETY: vector i lies within the rows.
                held.vectors[item] = unsafe { held.of.vectors(held.of.cut.split.head + i * N) };
            }
        });
        if held.of.rank < held.of.cut.edges() {
            // SAFETY: an element of the rows.
            held.edge = unsafe { held.of.elements(held.of.cut.edge(held.of.rank)) };
        }
        held
    }
}

impl<T: Copy, const K: usize, const ITEMS: usize, const N: usize> Source<T, K> for Held<T, K, ITEMS, N> {
    const IS_HELD: bool = true;

    #[inline(always)]
    fn visit(&self, mut visit: impl FnMut([T; K], usize)) {
        let Streamed { cut, rank, size, .. } = self.of;
        each::<ITEMS>(|item| {
            let i = rank + item * size;
            if i < cut.split.vectors {
                let place = cut.split.head + i * N;
                each::<N>(|lane| visit(lanewise(|k| self.vectors[item][k][lane]), place + lane));
            }
        });
        if rank < cut.edges() {
            visit(self.edge, cut.edge(rank));
        }
    }

    #[inline(always)]
    unsafe fn write(&self, row: *mut T, map: &impl RowMap<T, K>) {
        let Streamed { cut, rank, size, .. } = self.of;
        each::<ITEMS>(|item| {
            let i = rank + item * size;
            if i < cut.split.vectors {
                let place = cut.split.head + i * N;
                // SAFETY: vector i lies within the row, and is aligned.
                unsafe { store(row.add(place), map.apply::<N>(self.vectors[item], place)) };
            }
        });
        if rank < cut.edges() {
            let place = cut.edge(rank);
            // SAFETY: an element of the row.
            unsafe { row.add(place).write(map.apply::<1>(lanewise(|k| [self.edge[k]]), place)[0]) };
        }
    }
}

/// A thread's part of rows, in memory.
#[derive(Clone, Copy)]
struct Streamed<T, const K: usize, const N: usize> {
    rows: [*const T; K],
    cut: Cut,
    rank: usize,
    size: usize,
}

impl<T: Copy, const K: usize, const N: usize> Streamed<T, K, N> {
    /// # Safety
    ///
    /// A vector of the cut begins at `place`.
    #[inline(always)]
    unsafe fn vectors(&self, place: usize) -> [[T; N]; K] {
        // SAFETY: by this function's contract.
        lanewise(|k| unsafe { load(self.rows[k].add(place)) })
    }

    /// # Safety
    ///
    /// `place` lies in the rows.
    #[inline(always)]
    unsafe fn elements(&self, place: usize) -> [T; K] {
        // SAFETY: by this function's contract.
        lanewise(|k| unsafe { self.rows[k].add(place).read() })
    }
}

/// Vectors of each row that a thread loads at once from memory.
const STREAMED: usize = 4;

impl<T: Copy, const K: usize, const N: usize> Source<T, K> for Streamed<T, K, N> {
    const IS_HELD: bool = false;

    #[inline(always)]
    fn visit(&self, mut visit: impl FnMut([T; K], usize)) {
        stream::<_, _, _, STREAMED, N>(
            &self.cut,
            (self.rank, self.size),
            &mut visit,
            // SAFETY: `stream` passes places of vectors, and of elements outside of them.
            |place| unsafe { self.vectors(place) },
            |visit, place, vectors| each::<N>(|lane| visit(lanewise(|k| vectors[k][lane]), place + lane)),
            // SAFETY: as above.
            |place| unsafe { self.elements(place) },
            |visit, place, elements| visit(elements, place),
        );
    }

    #[inline(always)]
    unsafe fn write(&self, row: *mut T, map: &impl RowMap<T, K>) {
        stream::<_, _, _, STREAMED, N>(
            &self.cut,
            (self.rank, self.size),
            &mut (),
            // SAFETY: `stream` passes places of vectors, and of elements outside of them.
            |place| unsafe { self.vectors(place) },
            // SAFETY: the same places of a row that is cut alike.
            |(), place, vectors| unsafe { store(row.add(place), map.apply::<N>(vectors, place)) },
            // SAFETY: as above.
            |place| unsafe { self.elements(place) },
            |(), place, elements| {
                let [value] = map.apply::<1>(lanewise(|k| [elements[k]]), place);
                // SAFETY: as above.
                unsafe { row.add(place).write(value) };
            },
        );
    }
}

/// Visits a part of a row of any length: the thread `rank` of `size` takes vectors `rank`, `rank + size`, …; the loads of
/// `ITEMS` of them are issued before the first is used. `vector(i)` loads the vector that begins at element i, `element(i)`
/// a single one; what visits them gets the place of the first element, and `state`.
#[inline(always)]
pub(crate) fn stream<S, V: Copy, W: Copy, const ITEMS: usize, const N: usize>(
    cut: &Cut,
    (rank, size): (usize, usize),
    state: &mut S,
    vector: impl Fn(usize) -> V,
    visit: impl Fn(&mut S, usize, V),
    element: impl Fn(usize) -> W,
    visit_element: impl Fn(&mut S, usize, W),
) {
    let (head, vectors) = (cut.split.head, cut.split.vectors);
    let place = |i: usize| head + i * N;
    let mut first = rank;
    while first < vectors {
        if vectors - first > (ITEMS - 1) * size {
            let mut values = [vector(place(first)); ITEMS];
            each::<ITEMS>(|item| {
                if item > 0 {
                    values[item] = vector(place(first + item * size));
                }
            });
            each::<ITEMS>(|item| visit(state, place(first + item * size), values[item]));
        } else {
            let mut i = first;
            while i < vectors {
                visit(state, place(i), vector(place(i)));
                i += size;
            }
        }
        first += ITEMS * size;
    }
    let mut i = rank;
    while i < cut.edges() {
        visit_element(state, cut.edge(i), element(cut.edge(i)));
        i += size;
    }
}

/// What a block does of rows that blocks share: part p of `parts` of a row belongs to block p of as many.
///
/// Calls `work` with each row of `height` that the calling thread has a part of, the thread's number among those of the row,
/// and how many these are. A team has all of a row where it is smaller than a block.
#[inline(always)]
pub(crate) fn for_parts(team: u32, parts: u32, height: usize, mut work: impl FnMut(usize, (usize, usize))) {
    let own = Team::in_block(team);
    let count = parts as usize;
    let mut index = own.first();
    while index < height * count {
        let (row, part) = divided(index, parts);
        work(row, (part * own.size + own.rank, count * own.size));
        index += own.step();
    }
}

/// Which row, and which of its `parts`, piece `work` of the work is. There are fewer than 2³² where there are several parts.
#[inline(always)]
pub(crate) fn divided(work: usize, parts: u32) -> (usize, usize) {
    let Some(several) = NonZeroU32::new(parts).filter(|_| parts > 1) else { return (work, 0) };
    ((work as u32 / several) as usize, (work as u32 % several) as usize)
}

/// Writes what `map` makes of `K` rows to `target`: the part of thread `rank` of `size`.
///
/// # Safety
///
/// As for [`with_rows`]; `target` is valid for `len` elements, and with vectors its address is the same modulo `N` elements
/// too. Each place has one writer.
#[inline(always)]
pub(crate) unsafe fn map_rows<T: Copy, const K: usize, const N: usize>(
    rows: [*const T; K],
    target: *mut T,
    (len, have_vectors): (usize, bool),
    (rank, size): (usize, usize),
    map: &impl RowMap<T, K>,
) {
    let cut = Cut::new::<T, N>(target, len, have_vectors);
    // SAFETY: the rows are cut alike; the rest is the caller's promise.
    unsafe { Streamed::<T, K, N> { rows, cut, rank, size }.write(target, map) };
}

/// Each element as it is.
pub(crate) struct Same;

impl<T: Copy> RowMap<T, 1> for Same {
    #[inline(always)]
    fn apply<const M: usize>(&self, [values]: [[T; M]; 1], _: usize) -> [T; M] {
        values
    }
}
