//! Single-pass scans over all blocks of a launch by decoupled look-back.
//!
//! For any grid size, a [`TileQueue`] assigns tiles to blocks in order until no tile is left. A [`LookBack`] computes
//! the exclusive prefix of a block's tile while the blocks of earlier tiles are still working.
//!
//! # Bit-identical results
//! Classic look-back (Merrill, Garland: "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) adds the
//! totals of the preceding tiles, back to the nearest published prefix. The number of added totals depends on timing,
//! which changes the rounding of floats. In this module, the tile's index alone determines which totals are added in
//! which order, in three levels of 32:
//!
//! - each *tile* publishes its total;
//! - the last tile of each *group* of 32 adds up the 32 totals and publishes the group's total;
//! - the last tile of each *section* of 32 groups adds up the groups' totals. This tile adds the sum to the section's
//!   own prefix, and publishes the result as the prefix of the next section.
//!
//! The prefix of a tile is: section prefix + (preceding groups of the section + preceding tiles of the group). Each sum
//! is a tree reduction that combines neighbors ([`warp::reduce_first`]). One warp reads all these values at the same
//! time, one value per lane and level. Sections wait for each other sequentially, but this takes only one step per 1024
//! tiles. A sum is rounded as often as in pairwise summation, plus once per section.
//!
//! # The workspace
//! The workspace is a slice of [`workspace_len`] atomics that must be zeroed before its first use. It need not be
//! cleared between launches, because each launch publishes its values with a new epoch. Launches on one stream can
//! share a workspace, regardless of what they scan. Repeated launches of a graph can also use the same workspace.
//! Launches that may overlap must not share a workspace. Always pass the whole workspace, because the epochs wrap after
//! 2³¹ launches, and the kernel then clears only the slice that it received.
//!
//! ```
//! use gpu_std::atomic::Atomic;
//! use gpu_std::look_back::{LookBack, TileQueue};
//! use gpu_std::prelude::*;
//!
//! /// The running sum: one element a thread, blocks of whole warps.
//! ///
//! /// # Safety
//! ///
//! /// `workspace` is as the module requires, and `out` as long as `x`.
//! #[kernel]
//! unsafe fn running_sum(x: &[u32], workspace: &[Atomic<u64>], mut out: DisjointMut<u32, Unclaimed>) {
//!     let tile_len = block::threads() as usize;
//!     // SAFETY: this function's contract.
//!     let mut queue = unsafe { TileQueue::new(workspace, x.len().div_ceil(tile_len)) };
//!     // SAFETY: as above.
//!     let look_back = unsafe { LookBack::<u32>::new(&queue) };
//!     let (own, out) = (thread::linear_in_block() as usize, out.as_mut_ptr());
//!     while let Some(tile) = queue.next() {
//!         let i = tile * tile_len + own;
//!         let sum = block::inclusive_scan(x.get(i).copied().unwrap_or(0), |a, b| a + b);
//!         let total = block::broadcast(sum, block::threads() - 1);
//!         let before = look_back.prefix_of_block(tile, total, |a, b| a + b).unwrap_or(0);
//!         if i < x.len() {
//!             // SAFETY: `out` is as long as `x`, and each tile is of one block.
//!             unsafe { out.add(i).write(before + sum) };
//!         }
//!     }
//! }
//! # use gpu_std::disjoint::Unclaimed;
//! ```

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::atomic::{Atomic, Ordering};
use crate::element::KernelType;
use crate::warp::{self, WARP_SIZE};
use crate::{block, thread, words};

/// Number of header words in the workspace. The header contains the next tile and the epoch of the preceding launch.
const HEADER: usize = 16;
/// Number of tiles per group, and number of groups per section.
const LEVEL: usize = WARP_SIZE as usize;
/// The maximum epoch. A word has 31 bits for the epoch.
const LAST_EPOCH: u32 = (1 << 31) - 1;
/// Value of [`TileQueue::ahead`] if no tile is prefetched.
const NONE: u32 = u32::MAX;

/// Returns the length, in 64-bit words, of the workspace for a [`LookBack<T>`] over `tiles` tiles. `bytes` is the size
/// of `T`.
pub const fn workspace_len(bytes: usize, tiles: usize) -> usize {
    let groups = tiles.div_ceil(LEVEL);
    HEADER + bytes.div_ceil(4) * (tiles + groups + groups.div_ceil(LEVEL) + 1)
}

/// The queue from which the blocks of a launch take tiles in order.
///
/// All threads of a block must create one queue per launch, and call [`next`](Self::next) together until it returns
/// `None`. The last block that receives `None` prepares the workspace for the next launch. All blocks of the grid must
/// take part, but the grid can have any number of blocks.
///
/// See the [example](self).
#[derive(Debug)]
pub struct TileQueue<'a> {
    workspace: &'a [Atomic<u64>],
    tiles: u32,
    /// Tag that marks the values published by this launch.
    epoch: u32,
    /// Tile that the block's first thread has prefetched, or [`NONE`].
    ahead: u32,
}

impl<'a> TileQueue<'a> {
    /// Creates a queue of the `tiles` tiles of this launch. The number must be less than 2³¹.
    ///
    /// See the [example](self).
    ///
    /// # Safety
    /// The workspace must have at least [`workspace_len`] words. It must have been zeroed once. Since then, only queues
    /// of launches that have completed may have written the header. All threads of all blocks of this launch must
    /// create one queue with the same workspace and number of tiles. They must call [`next`](Self::next) until it
    /// returns `None`. Each tile then belongs to exactly one block, and unsafe code may rely on this.
    ///
    /// # Panics
    /// Panics on the emulated device if the workspace is too small for its header or there are too many tiles.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn new(workspace: &'a [Atomic<u64>], tiles: usize) -> Self {
        check(workspace.len() >= HEADER, "a workspace must have workspace_len() words");
        check(tiles < 1 << 31, "a queue must have fewer than 2^31 tiles");
        let mut queue = Self { workspace, tiles: tiles as u32, epoch: 0, ahead: NONE };
        queue.epoch = queue.header(1).load(Ordering::Relaxed) as u32 + 1;
        queue
    }

    /// Returns a word of the header.
    #[inline(always)]
    fn header(&self, word: usize) -> &'a Atomic<u64> {
        // SAFETY: `new` requires a workspace that contains at least the header.
        unsafe { self.workspace.get_unchecked(word) }
    }

    /// Returns the epoch of this launch, from 1 to 2³¹ − 1. No other launch has used this epoch with this workspace
    /// since the workspace was cleared. Use the epoch in kernels that publish values in their own words of the
    /// workspace, which start at [`words`](Self::words).
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the workspace without the header. Every word that a kernel writes there must have the
    /// [`epoch`](Self::epoch) in its highest 31 bits; otherwise, another kernel could mistake the word for its own.
    #[inline(always)]
    pub fn words(&self) -> &'a [Atomic<u64>] {
        // SAFETY: `new` requires a workspace that contains at least the header.
        unsafe { self.workspace.get_unchecked(HEADER..) }
    }

    /// Takes the block's next tile ahead of [`next`](Self::next), without waiting for the tile's index. Do not call it
    /// after `next` has returned `None`. Call it shortly before `next`, because other blocks may wait for the prefetched
    /// tile. In between, the block can wait for the prefix of its current tile, because a tile waits only for earlier
    /// tiles.
    #[inline(always)]
    pub fn prefetch(&mut self) {
        if thread::linear_in_block() == 0 && self.ahead == NONE {
            self.ahead = self.take();
        }
    }

    /// Returns the block's next tile, or `None` if no tile is left. All threads of the block wait for each other and
    /// receive the same tile.
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<usize> {
        let mut tile = 0;
        if thread::linear_in_block() == 0 {
            tile = if self.ahead == NONE { self.take() } else { self.ahead };
            self.ahead = NONE;
            // Each block receives `None` once. The last block to receive it resets the workspace for the next launch.
            if tile == self.tiles + blocks() - 1 {
                self.finish();
            }
        }
        let tile = block::broadcast(tile, 0);
        (tile < self.tiles).then_some(tile as usize)
    }

    #[inline(always)]
    fn take(&self) -> u32 {
        self.header(0).fetch_add(1, Ordering::Relaxed) as u32
    }

    #[inline(always)]
    fn finish(&self) {
        if self.epoch == LAST_EPOCH {
            for word in self.words() {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.header(1).store(if self.epoch == LAST_EPOCH { 0 } else { self.epoch as u64 }, Ordering::Relaxed);
        self.header(0).store(0, Ordering::Relaxed);
    }
}

/// Panics on the emulated device if a precondition does not hold. (On a GPU, the code of the panic would be larger than
/// all other code, so the check is omitted.)
#[inline(always)]
#[track_caller]
pub(crate) fn check(holds: bool, otherwise: &'static str) {
    #[cfg(target_arch = "nvptx64")]
    let _ = (holds, otherwise);
    #[cfg(not(target_arch = "nvptx64"))]
    assert!(holds, "{otherwise}");
}

/// Returns the number of blocks in the launch.
#[inline(always)]
fn blocks() -> u32 {
    let [x, y, z] = thread::grid_dim();
    x * y * z
}

/// Computes the prefixes of tiles by look-back (see the module documentation).
///
/// See the [example](self).
#[derive(Debug, Clone, Copy)]
pub struct LookBack<'a, T> {
    words: &'a [Atomic<u64>],
    epoch: u32,
    tiles: u32,
    _value: PhantomData<fn(T) -> T>,
}

impl<'a, T: KernelType> LookBack<'a, T> {
    /// Number of words per value. Each word contains 32 bits of the value, and the epoch.
    const WORDS: usize = size_of::<T>().div_ceil(4);

    /// Creates a look-back over the tiles of the queue.
    ///
    /// See the [example](self).
    ///
    /// # Safety
    /// The queue's workspace must have at least [`workspace_len`] words for the queue's tiles and values of this size.
    ///
    /// # Panics
    /// Panics on the emulated device if the workspace is too small.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn new(queue: &TileQueue<'a>) -> Self {
        let tiles = queue.tiles;
        let needed = workspace_len(size_of::<T>(), tiles as usize);
        check(queue.workspace.len() >= needed, "a workspace must have workspace_len() words");
        Self { words: queue.words(), epoch: queue.epoch, tiles, _value: PhantomData }
    }

    /// Returns the slot of a group's value. Slots of groups follow the slots of all tiles.
    #[inline(always)]
    fn group(&self, group: usize) -> usize {
        self.tiles as usize + group
    }

    /// Returns the slot of a section's value. Slots of sections follow the slots of all groups.
    #[inline(always)]
    fn section(&self, section: usize) -> usize {
        let tiles = self.tiles as usize;
        tiles + tiles.div_ceil(LEVEL) + section
    }

    /// Returns one of the words that hold published values.
    ///
    /// # Safety
    /// The word must belong to a slot that [`workspace_len`] counts, below the slot of the last section.
    #[inline(always)]
    unsafe fn word(&self, word: usize) -> &'a Atomic<u64> {
        // SAFETY: guaranteed by the caller and by the contract of `new`.
        unsafe { self.words.get_unchecked(word) }
    }

    /// Returns the exclusive prefix of `tile` (`None` for the first tile). The calling block must have taken `tile`
    /// from the queue. `total` is the combined value of the tile. The block size must be a multiple of 32. All threads
    /// of the block must call the method with the same values, once per tile. The threads wait for each other, and all
    /// of them receive the result.
    #[inline(always)]
    #[track_caller]
    pub fn prefix_of_block(&self, tile: usize, total: T, combine: impl Fn(T, T) -> T) -> Option<T> {
        if thread::linear_in_block() < WARP_SIZE {
            self.publish(tile, total);
            self.close(tile, total, &combine);
        }
        self.published_prefix_of_block(tile, total, combine)
    }

    /// Returns the same result as [`prefix_of_block`](Self::prefix_of_block), for a tile that is already
    /// [published](Self::publish) and [closed](Self::close).
    #[inline(always)]
    #[track_caller]
    pub fn published_prefix_of_block(&self, tile: usize, total: T, combine: impl Fn(T, T) -> T) -> Option<T> {
        let mut prefix = total;
        if thread::linear_in_block() < WARP_SIZE
            && let Some(before) = self.prefix(tile, total, combine)
        {
            prefix = before;
        }
        let prefix = block::broadcast(prefix, 0);
        (tile > 0).then_some(prefix)
    }

    /// Returns the tile, its index in its group, and the group's index in its section.
    #[inline(always)]
    #[track_caller]
    fn place(&self, tile: usize) -> (usize, u32, u32) {
        let tiles = self.tiles as usize;
        check(tile < tiles, "the tile is not one of the queue's tiles");
        // All slots below are derived from this tile, so all of them are in range.
        let tile = if tile < tiles { tile } else { 0 };
        (tile, (tile % LEVEL) as u32, (tile / LEVEL % LEVEL) as u32)
    }

    /// Publishes the total of a tile to the blocks of later tiles. Does not wait. All 32 lanes of one warp of the block
    /// that took the tile must call this method once, followed by [`close`](Self::close) and [`prefix`](Self::prefix).
    ///
    /// If a block publishes its next tile before it waits for the prefix of the previous one, it does not delay other
    /// blocks. The cost is that registers or memory must hold two tiles.
    ///
    /// # Panics
    /// Panics on the emulated device if `tile` is not a tile of the queue. On a GPU, the prefixes of all tiles are
    /// unspecified in this case.
    #[inline(always)]
    #[track_caller]
    pub fn publish(&self, tile: usize, total: T) {
        let (tile, tiles_below, _) = self.place(tile);
        if tiles_below + 1 != WARP_SIZE {
            self.write(tile, total);
        }
    }

    /// If the tile is the last of its group, waits for the totals of the other tiles and publishes the group's total.
    /// Do not call it between [`publish`](Self::publish) and [`prefix`](Self::prefix) of an earlier tile of the block,
    /// because a tile may wait only for earlier tiles.
    ///
    /// # Panics
    /// Panics in the same cases as [`publish`](Self::publish).
    #[inline(always)]
    #[track_caller]
    pub fn close(&self, tile: usize, total: T, combine: impl Fn(T, T) -> T) {
        let (tile, tiles_below, groups_below) = self.place(tile);
        // The last group of a section contributes to the next section's prefix instead.
        if tiles_below + 1 != WARP_SIZE || groups_below + 1 == WARP_SIZE {
            return;
        }
        let lane = warp::lane_id();
        let group = tile / LEVEL;
        let mut of_tile = Pending::new(lane < tiles_below);
        while warp::any(warp::FULL_MASK, of_tile.is_missing) {
            of_tile.poll(self, group * LEVEL + lane as usize);
        }
        let below = warp::reduce_first(tiles_below, of_tile.value, &combine);
        self.write(self.group(group), combine(below, total));
    }

    /// Returns the exclusive prefix of `tile` (`None` for the first tile), in all 32 lanes of the warp. Waits for the
    /// preceding tiles.
    ///
    /// # Panics
    /// Panics in the same cases as [`publish`](Self::publish).
    #[inline(always)]
    #[track_caller]
    pub fn prefix(&self, tile: usize, total: T, combine: impl Fn(T, T) -> T) -> Option<T> {
        let lane = warp::lane_id();
        let (tile, tiles_below, groups_below) = self.place(tile);
        let group = tile / LEVEL;
        let section = group / LEVEL;
        // The values of each level for which this lane still waits.
        let mut of_tile = Pending::new(lane < tiles_below);
        let mut of_group = Pending::new(lane < groups_below);
        let mut of_section = Pending::new(lane == 0 && section > 0);
        while warp::any(warp::FULL_MASK, of_tile.is_missing | of_group.is_missing | of_section.is_missing) {
            of_tile.poll(self, group * LEVEL + lane as usize);
            of_group.poll(self, self.group(section * LEVEL + lane as usize));
            of_section.poll(self, self.section(section));
        }

        let groups = (groups_below > 0).then(|| warp::reduce_first(groups_below, of_group.value, &combine));
        let start = (section > 0).then(|| warp::shuffle(warp::FULL_MASK, of_section.value, 0));
        let tiles = (tiles_below > 0).then(|| warp::reduce_first(tiles_below, of_tile.value, &combine));
        let join = |a: Option<T>, b: Option<T>| match (a, b) {
            (Some(a), Some(b)) => Some(combine(a, b)),
            (a, b) => a.or(b),
        };
        if tiles_below + 1 == WARP_SIZE && groups_below + 1 == WARP_SIZE {
            let of_section = join(groups, join(tiles, Some(total)));
            let next = join(start, of_section).unwrap_or(total);
            self.write(self.section(section + 1), next);
        }
        join(start, join(groups, tiles))
    }

    /// Publishes a value to the other blocks. Only lane 0 writes.
    #[inline(always)]
    fn write(&self, slot: usize, value: T) {
        if warp::lane_id() != 0 {
            return;
        }
        let mut word = slot * Self::WORDS;
        words::map(value, |bits| {
            // SAFETY: the slot belongs to a tile of the queue, to the tile's group, or to the section that follows the
            // tile's section.
            unsafe { self.word(word) }.store((self.epoch as u64) << 33 | bits as u64, Ordering::Relaxed);
            word += 1;
            bits
        });
    }
}

/// A value that another block publishes.
struct Pending<T> {
    value: T,
    is_missing: bool,
}

impl<T: KernelType> Pending<T> {
    #[inline(always)]
    fn new(is_missing: bool) -> Self {
        // SAFETY: every bit pattern is valid.
        Self { value: unsafe { MaybeUninit::zeroed().assume_init() }, is_missing }
    }

    /// Reads the value if it is still missing and has been published.
    #[inline(always)]
    fn poll(&mut self, look_back: &LookBack<'_, T>, slot: usize) {
        if !self.is_missing {
            return;
        }
        let mut word = slot * LookBack::<T>::WORDS;
        let mut is_published = true;
        let value = words::map(self.value, |_| {
            // SAFETY: the slot belongs to a tile or group that precedes a tile of the queue, or to the tile's section.
            let stored = unsafe { look_back.word(word) }.load(Ordering::Relaxed);
            word += 1;
            is_published &= (stored >> 33) as u32 == look_back.epoch;
            stored as u32
        });
        if is_published {
            *self = Self { value, is_missing: false };
        }
    }
}
