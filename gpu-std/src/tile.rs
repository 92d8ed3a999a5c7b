//! Tiles: sub-warp groups of 1, 2, 4, 8, 16 or 32 adjacent lanes, like CUDA's `thread_block_tile`.
//!
//! All threads of a tile must call the functions of this module together, because they wait for each other. Functions
//! that return sizes, indices, ranks or masks are exceptions. Different tiles of a warp can execute different code.
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::tile::Tile;
//!
//! /// The sum of each 8 neighboring elements; the launch has a thread for each element.
//! #[kernel]
//! fn sums(input: &[f32], mut out: DisjointMut<f32>) {
//!     let tile = Tile::<8>::current();
//!     let value = input.get(grid::rank()).copied().unwrap_or(0.0);
//!     let sum = tile.reduce_add(value);
//!     if let Some(out) = out.get_mut(thread::unique_index()) {
//!         *out = sum;
//!     }
//! }
//! ```

use core::marker::PhantomData;

use crate::element::KernelType;
use crate::scalar::Scalar;
use crate::warp::{self, WARP_SIZE};
use crate::{block, thread};

/// The calling thread's tile: `N` adjacent lanes. The first lane's index is a multiple of `N`.
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile<const N: u32> {
    /// Makes the type neither `Send` nor `Sync`, because a tile is only meaningful to the thread that created it.
    _of_this_thread: PhantomData<*const ()>,
}

impl<const N: u32> Tile<N> {
    /// Mask of the lanes in the lowest tile.
    const LANES: u32 = {
        assert!(N.is_power_of_two() && N <= WARP_SIZE, "a tile must have 1, 2, 4, 8, 16 or 32 threads");
        u32::MAX >> (WARP_SIZE - N)
    };

    /// Returns the calling thread's tile.
    ///
    /// # Panics
    /// Panics if the number of threads per block is not a multiple of `N`. Does not compile if `N` is not 1, 2, 4, 8,
    /// 16 or 32.
    #[inline(always)]
    #[track_caller]
    pub fn current() -> Self {
        const { assert!(Self::LANES != 0) };
        assert!(block::threads().is_multiple_of(N), "the block size must be a multiple of the tile size");
        Self { _of_this_thread: PhantomData }
    }

    /// Returns the number of threads in the tile.
    #[inline(always)]
    pub fn size(&self) -> u32 {
        N
    }

    /// Returns the thread's index in the tile.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        warp::lane_id() & (N - 1)
    }

    /// Returns the tile's index in its block.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        thread::linear_in_block() / N
    }

    /// Returns the mask of the tile's lanes, for the functions of [`warp`].
    #[inline(always)]
    pub fn mask(&self) -> u32 {
        Self::LANES << self.first_lane()
    }

    #[inline(always)]
    fn first_lane(&self) -> u32 {
        warp::lane_id() & !(N - 1)
    }

    /// Waits until all threads of the tile have arrived. Memory writes that these threads made before the barrier are
    /// visible to all of them after it.
    #[inline(always)]
    #[track_caller]
    pub fn sync(&self) {
        warp::sync_warp(self.mask());
    }

    /// Returns the value passed by the thread whose rank is `rank` modulo the tile size.
    #[inline(always)]
    #[track_caller]
    pub fn shuffle<T: KernelType>(&self, value: T, rank: u32) -> T {
        warp::shuffle_width(self.mask(), value, rank, N)
    }

    /// Returns the value of the thread whose rank is `delta` lower. The lowest `delta` threads receive their own value.
    /// `delta` must be less than 32.
    #[inline(always)]
    #[track_caller]
    pub fn shuffle_up<T: KernelType>(&self, value: T, delta: u32) -> T {
        warp::shuffle_up_width(self.mask(), value, delta, N)
    }

    /// Returns the value of the thread whose rank is `delta` higher. The highest `delta` threads receive their own
    /// value. `delta` must be less than 32.
    #[inline(always)]
    #[track_caller]
    pub fn shuffle_down<T: KernelType>(&self, value: T, delta: u32) -> T {
        warp::shuffle_down_width(self.mask(), value, delta, N)
    }

    /// Returns the value of the thread whose rank is the caller's rank XOR `rank_mask`, which must be less than the
    /// tile size.
    #[inline(always)]
    #[track_caller]
    pub fn shuffle_xor<T: KernelType>(&self, value: T, rank_mask: u32) -> T {
        warp::shuffle_xor_width(self.mask(), value, rank_mask & (N - 1), N)
    }

    /// Returns whether `predicate` is true in all threads of the tile.
    #[inline(always)]
    #[track_caller]
    pub fn all(&self, predicate: bool) -> bool {
        warp::all(self.mask(), predicate)
    }

    /// Returns whether `predicate` is true in any thread of the tile.
    #[inline(always)]
    #[track_caller]
    pub fn any(&self, predicate: bool) -> bool {
        warp::any(self.mask(), predicate)
    }

    /// Returns a mask of the threads in which `predicate` is true. Bit `r` represents the thread with rank `r`.
    #[inline(always)]
    #[track_caller]
    pub fn ballot(&self, predicate: bool) -> u32 {
        warp::ballot(self.mask(), predicate) >> self.first_lane()
    }

    /// Returns a mask of the threads whose `value` has the same bits as the caller's. Bit `r` represents the thread
    /// with rank `r`.
    #[inline(always)]
    #[track_caller]
    pub fn match_any<T: KernelType>(&self, value: T) -> u32 {
        warp::match_any(self.mask(), value) >> self.first_lane()
    }

    /// Returns whether `value` has the same bits in all threads of the tile.
    #[inline(always)]
    #[track_caller]
    pub fn match_all<T: KernelType>(&self, value: T) -> bool {
        warp::match_all(self.mask(), value)
    }

    /// Combines the values of all threads of the tile. `combine` must be commutative, and associative at least
    /// approximately (like float addition). Every thread receives the bit-identical result.
    ///
    /// The values are combined in a tree whose levels combine threads with ranks that differ by `N / 2`, …, 2, 1.
    #[inline(always)]
    #[track_caller]
    pub fn reduce<T: KernelType>(&self, value: T, combine: impl Fn(T, T) -> T) -> T {
        let mut total = value;
        let mut distance = N / 2;
        while distance > 0 {
            total = combine(total, self.shuffle_xor(total, distance));
            distance /= 2;
        }
        total
    }

    /// Returns the sum of the values in every thread. Integers wrap around on overflow, and `f16` and `bf16` sums are
    /// rounded after every addition.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_add<T: KernelType + Scalar>(&self, value: T) -> T {
        if Self::is_one_instruction::<T>() {
            return warp::reduce_add(self.mask(), value);
        }
        self.reduce(value, T::wrapping_add)
    }

    /// Returns the smallest value in every thread, or NaN if any value is NaN.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_min<T: KernelType + Scalar>(&self, value: T) -> T {
        if Self::is_one_instruction::<T>() {
            return warp::reduce_min(self.mask(), value);
        }
        self.reduce(value, T::min_propagate)
    }

    /// Returns the largest value in every thread, or NaN if any value is NaN.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_max<T: KernelType + Scalar>(&self, value: T) -> T {
        if Self::is_one_instruction::<T>() {
            return warp::reduce_max(self.mask(), value);
        }
        self.reduce(value, T::max_propagate)
    }

    /// Returns true if a GPU can reduce values of type `T` across a warp or part of a warp with one instruction.
    #[inline(always)]
    fn is_one_instruction<T: KernelType>() -> bool {
        T::INTEGER != 0 && size_of::<T>() == 4
    }

    /// Combines the values of the threads up to and including the caller, in the order of their ranks. `combine` must
    /// be associative, at least approximately.
    #[inline(always)]
    #[track_caller]
    pub fn inclusive_scan<T: KernelType>(&self, value: T, combine: impl Fn(T, T) -> T) -> T {
        let rank = self.rank();
        let mut total = value;
        let mut distance = 1;
        while distance < N {
            let below = self.shuffle_up(total, distance);
            if rank >= distance {
                total = combine(below, total);
            }
            distance *= 2;
        }
        total
    }

    /// Combines `identity` and the values of the threads before the caller, in the order of their ranks. `combine` must
    /// be associative, at least approximately.
    #[inline(always)]
    #[track_caller]
    pub fn exclusive_scan<T: KernelType>(&self, value: T, identity: T, combine: impl Fn(T, T) -> T) -> T {
        let below = self.shuffle_up(self.inclusive_scan(value, &combine), 1);
        if self.rank() == 0 { identity } else { combine(identity, below) }
    }
}
