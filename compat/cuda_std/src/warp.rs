//! Warp-level primitives: shuffles, votes, matches and reductions.
//!
//! # Safety
//! The caller of an `unsafe` function must be a lane of `mask`, and no lane of `mask` may have exited. All lanes of
//! `mask` must call the function with the same mask.

use half::{bf16, f16};

use gpu_std::warp;
pub use gpu_std::warp::{active_mask as activemask, lane_id};

/// Waits until all lanes of `mask` have arrived.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn sync_warp(mask: u32) {
    warp::sync_warp(mask);
}

/// Returns true if `predicate` is true in all lanes of `mask`.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    warp::all(mask, predicate)
}

/// Returns true if `predicate` is true in any lane of `mask`.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    warp::any(mask, predicate)
}

/// Returns, as a bit mask, the lanes of `mask` in which `predicate` is true.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    warp::ballot(mask, predicate)
}

/// 32-bit or 64-bit type whose values lanes can compare.
pub trait WarpMatchValue: gpu_std::KernelType {}

/// Returns, as a bit mask, the lanes of `mask` whose value has the same bits as the caller's.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_any<T: WarpMatchValue>(mask: u32, value: T) -> u32 {
    warp::match_any(mask, value)
}

/// Returns `mask` if the value has the same bits in all lanes of `mask`, and `None` otherwise.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_all<T: WarpMatchValue>(mask: u32, value: T) -> Option<u32> {
    warp::match_all(mask, value).then_some(mask)
}

macro_rules! implement {
    ($name:ident: $($t:ty)*) => { $(impl $name for $t {})* };
}
implement!(WarpMatchValue: i32 i64 u32 u64 f32 f64);

/// Reduction operator of [`warp_reduce`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WarpReductionOp {
    /// Sum; integers wrap around.
    Add,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Bitwise AND.
    And,
    /// Bitwise OR.
    Or,
    /// Bitwise XOR.
    Xor,
}

/// Type whose values lanes can reduce: `i32` or `u32`.
pub trait WarpReduceValue: gpu_std::KernelType {
    #[doc(hidden)]
    fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self;
}

macro_rules! reduce {
    ($($t:ty),*) => { $(
        impl WarpReduceValue for $t {
            #[inline(always)]
            #[track_caller]
            fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self {
                match op {
                    WarpReductionOp::Add => warp::reduce_add(mask, value),
                    WarpReductionOp::Min => warp::reduce_min(mask, value),
                    WarpReductionOp::Max => warp::reduce_max(mask, value),
                    WarpReductionOp::And => warp::reduce_and(mask, value),
                    WarpReductionOp::Or => warp::reduce_or(mask, value),
                    WarpReductionOp::Xor => warp::reduce_xor(mask, value),
                }
            }
        }
    )* };
}
reduce!(i32, u32);

/// Reduces the values of the lanes of `mask` with `op`; every lane receives the result. Requires compute capability
/// 8.0.
///
/// # Safety
/// The caller must uphold the [module's safety contract](self).
#[inline(always)]
#[track_caller]
pub unsafe fn warp_reduce<T: WarpReduceValue>(mask: u32, value: T, op: WarpReductionOp) -> T {
    T::reduce(mask, value, op)
}

/// Shuffle mode, which determines the source lane.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpShuffleMode {
    Up,
    Down,
    Idx,
    Xor,
}

impl WarpShuffleMode {
    /// Returns whether the source lane is inside the caller's segment of `width` lanes, as reported by the hardware
    /// predicate. (A shuffle-xor with a mask of `width` or more can read from a lower segment.)
    #[inline(always)]
    fn is_inside(self, operand: u32, width: u32) -> bool {
        let (lane, operand) = (lane_id(), operand & 31);
        let (first, own) = (lane & !(width - 1), lane & (width - 1));
        match self {
            WarpShuffleMode::Up => own >= operand,
            WarpShuffleMode::Down => own + operand < width,
            WarpShuffleMode::Idx => true,
            WarpShuffleMode::Xor => lane ^ operand < first + width,
        }
    }
}

/// Value that lanes can shuffle: a number of at most 128 bits.
pub trait WarpShuffleValue: Sized {
    /// Performs one shuffle.
    ///
    /// # Safety
    /// The caller must uphold the [module's safety contract](self).
    #[doc(hidden)]
    unsafe fn shuffle(
        mode: WarpShuffleMode,
        mask: u32,
        value: Self,
        operand: u32,
        width: u32,
    ) -> (Self, bool);
}

#[inline(always)]
#[track_caller]
fn exchange<T: gpu_std::KernelType>(
    mode: WarpShuffleMode,
    mask: u32,
    value: T,
    operand: u32,
    width: u32,
) -> T {
    match mode {
        WarpShuffleMode::Up => warp::shuffle_up_width(mask, value, operand, width),
        WarpShuffleMode::Down => warp::shuffle_down_width(mask, value, operand, width),
        WarpShuffleMode::Idx => warp::shuffle_width(mask, value, operand, width),
        WarpShuffleMode::Xor => warp::shuffle_xor_width(mask, value, operand, width),
    }
}

macro_rules! shuffle_values {
    ($($t:ty)*) => { $(
        impl WarpShuffleValue for $t {
            #[inline(always)]
            #[track_caller]
            unsafe fn shuffle(
                mode: WarpShuffleMode,
                mask: u32,
                value: Self,
                operand: u32,
                width: u32,
            ) -> (Self, bool) {
                (exchange(mode, mask, value, operand, width), mode.is_inside(operand, width))
            }
        }
    )* };
}
shuffle_values! { i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 }

impl WarpShuffleValue for u128 {
    #[inline(always)]
    #[track_caller]
    unsafe fn shuffle(
        mode: WarpShuffleMode,
        mask: u32,
        value: Self,
        operand: u32,
        width: u32,
    ) -> (Self, bool) {
        let low = exchange(mode, mask, value as u64, operand, width);
        let high = exchange(mode, mask, (value >> 64) as u64, operand, width);
        (u128::from(high) << 64 | u128::from(low), mode.is_inside(operand, width))
    }
}

impl WarpShuffleValue for i128 {
    #[inline(always)]
    #[track_caller]
    unsafe fn shuffle(
        mode: WarpShuffleMode,
        mask: u32,
        value: Self,
        operand: u32,
        width: u32,
    ) -> (Self, bool) {
        // SAFETY: guaranteed by the caller.
        let (bits, inside) = unsafe { u128::shuffle(mode, mask, value as u128, operand, width) };
        (bits as i128, inside)
    }
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident = $mode:ident, $operand:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// Shuffles within segments of `width` lanes, from 1 to 32. The second element of the result is the hardware
        /// predicate, which is true if the source lane is inside the caller's segment. If it is false, the first
        /// element is the caller's own value.
        ///
        /// # Panics
        /// Panics if `width` is not a power of two up to 32.
        ///
        /// # Safety
        /// The caller must uphold the [module's safety contract](self).
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: WarpShuffleValue>(mask: u32, value: T, $operand: u32, width: u32) -> (T, bool) {
            // SAFETY: guaranteed by the caller.
            unsafe { T::shuffle(WarpShuffleMode::$mode, mask, value, $operand, width) }
        }
    )* };
}
shuffles! {
    /// Returns the value of the lane that is `delta` above the calling lane.
    warp_shuffle_down = Down, delta;
    /// Returns the value of the lane that is `delta` below the calling lane.
    warp_shuffle_up = Up, delta;
    /// Returns the value of lane `idx`.
    warp_shuffle_idx = Idx, idx;
    /// Returns the value of the lane whose index is the caller's index XOR `lane_mask`.
    warp_shuffle_xor = Xor, lane_mask;
}
