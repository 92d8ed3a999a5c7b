//! Operations among the lanes of a warp.
//!
//! # Safety
//!
//! Of every `unsafe` function: the caller is a lane of `mask`, no lane of it has returned, and all of them call the function
//! with the same mask.

use half::{bf16, f16};

use gpu_std::warp;
pub use gpu_std::warp::{active_mask as activemask, lane_id};

/// Waits until all lanes of `mask` are here.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn sync_warp(mask: u32) {
    warp::sync_warp(mask);
}

/// Whether `predicate` is true in all lanes of `mask`.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    warp::all(mask, predicate)
}

/// Whether `predicate` is true in any lane of `mask`.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    warp::any(mask, predicate)
}

/// The lanes of `mask` in which `predicate` is true.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    warp::ballot(mask, predicate)
}

/// A number that lanes can compare: 32 or 64 bits.
pub trait WarpMatchValue: gpu_std::KernelType {}

/// The lanes of `mask` whose value has the same bits.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_any<T: WarpMatchValue>(mask: u32, value: T) -> u32 {
    warp::match_any(mask, value)
}

/// `mask` if the value has the same bits in all its lanes.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_all<T: WarpMatchValue>(mask: u32, value: T) -> Option<u32> {
    warp::match_all(mask, value).then_some(mask)
}

macro_rules! implement {
    ($name:ident: $($t:ty)*) => { $(impl $name for $t {})* };
}
implement!(WarpMatchValue: i32 i64 u32 u64 f32 f64);

/// What [`warp_reduce`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WarpReductionOp {
    /// The sum; integers wrap.
    Add,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The bits set in all lanes.
    And,
    /// The bits set in any lane.
    Or,
    /// The bits set in an odd number of lanes.
    Xor,
}

/// A number that lanes can reduce: `i32` and `u32`.
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

/// Combines the values of the lanes of `mask` by `op`; every lane gets the result. From compute capability 8.0.
///
/// # Safety
///
/// As the [module](self) says.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_reduce<T: WarpReduceValue>(mask: u32, value: T, op: WarpReductionOp) -> T {
    T::reduce(mask, value, op)
}

/// How a shuffle finds the lane to read from.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpShuffleMode {
    Up,
    Down,
    Idx,
    Xor,
}

impl WarpShuffleMode {
    /// Whether that lane is not beyond the caller's part of `width` lanes, as the hardware's predicate says. (An exchange by
    /// a mask of `width` or more may lead to a lower part.)
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

/// A value that lanes can exchange: a number of up to 128 bits.
pub trait WarpShuffleValue: Sized {
    /// One shuffle.
    ///
    /// # Safety
    ///
    /// As the [module](self) says.
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
        // SAFETY: the caller's promise.
        let (bits, inside) = unsafe { u128::shuffle(mode, mask, value as u128, operand, width) };
        (bits as i128, inside)
    }
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident = $mode:ident, $operand:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// Within parts of `width` lanes, 1 to 32. The second value is the hardware's predicate: whether that lane is in
        /// the caller's part. If it is not, the value is the caller's own.
        ///
        /// # Panics
        ///
        /// If `width` is not a power of two up to 32.
        ///
        /// # Safety
        ///
        /// As the [module](self) says.
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: WarpShuffleValue>(mask: u32, value: T, $operand: u32, width: u32) -> (T, bool) {
            // SAFETY: the caller's promise.
            unsafe { T::shuffle(WarpShuffleMode::$mode, mask, value, $operand, width) }
        }
    )* };
}
shuffles! {
    /// The value of the lane `delta` above.
    warp_shuffle_down = Down, delta;
    /// The value of the lane `delta` below.
    warp_shuffle_up = Up, delta;
    /// The value of the lane `idx`.
    warp_shuffle_idx = Idx, idx;
    /// The value of the lane whose index differs in the bits of `lane_mask`.
    warp_shuffle_xor = Xor, lane_mask;
}
