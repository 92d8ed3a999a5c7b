//! Collective operations of the 32 threads (lanes) of a warp, without shared memory.
//!
//! The lanes of a block are counted by [`linear_in_block`](crate::thread::linear_in_block): lane is that
//! modulo 32.
//!
//! Every function here but [`lane_id`], [`active_mask`] and [`elect`] takes a mask of lanes. All lanes in the
//! mask must call it, with the same mask, and the caller must be one of them; they wait for each other. The
//! emulated device reports lanes that disagree or never come; a GPU hangs or gives unspecified values.
//!
//! The functions are safe all the same, and that is the one exception to the guarantees of safe code: PTX leaves a call
//! by lanes that disagree, or by a lane outside of its mask, undefined. On existing GPUs it behaves as described above,
//! for the calling warp; a check in each call would cost as much as the call.

#[cfg(target_arch = "nvptx64")]
use crate::nvvm;
use crate::scalar::Scalar;
use crate::sealed::Sealed;
use core::ops::{BitAnd, BitOr, BitXor};
use half::{bf16, f16};
#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_emulator::{collective, thread as emulated};

/// Lanes of a warp.
pub const WARP_SIZE: u32 = 32;

/// The mask of all lanes.
pub const FULL_MASK: u32 = u32::MAX;

/// A value that lanes can exchange: a number of up to 64 bits. No other type can implement it.
///
/// 64-bit values take two instructions, all others one.
pub trait WarpValue: Sealed + Copy + 'static {
    /// Whether it has 64 bits.
    #[doc(hidden)]
    const WIDE: bool;
    /// Whether it is a signed (−1) or unsigned (1) integer of 32 bits or more, or anything else (0).
    #[doc(hidden)]
    const INTEGER: i8;
    /// The bits; small integers are extended by their sign or by zero.
    #[doc(hidden)]
    fn into_bits(self) -> u64;
    /// The value with the lowest of these bits.
    #[doc(hidden)]
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($t:ty: $wide:literal, $integer:literal;)*) => { $(
        impl WarpValue for $t {
            const WIDE: bool = $wide;
            const INTEGER: i8 = $integer;
            #[inline(always)]
            fn into_bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
        }
    )* };
}
integers! {
    i8: false, 0; u8: false, 0; i16: false, 0; u16: false, 0;
    i32: false, -1; u32: false, 1; i64: true, -1; u64: true, 1; isize: true, -1; usize: true, 1;
}

macro_rules! floats {
    ($($t:ty, $bits:ty: $wide:literal;)*) => { $(
        impl WarpValue for $t {
            const WIDE: bool = $wide;
            const INTEGER: i8 = 0;
            #[inline(always)]
            fn into_bits(self) -> u64 {
                <$t>::to_bits(self) as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                <$t>::from_bits(bits as $bits)
            }
        }
    )* };
}
floats! { f16, u16: false; bf16, u16: false; f32, u32: false; f64, u64: true; }

/// The lane of the calling thread, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    gpu_or_host!(nvvm::laneid(), emulated::lane())
}

/// The lanes that execute this together with the caller right now. Which those are is up to the hardware, so it
/// is no substitute for knowing the mask.
#[inline(always)]
#[track_caller]
pub fn active_mask() -> u32 {
    gpu_or_host!(nvvm::activemask(), collective::active_mask())
}

/// Whether the caller is the lowest lane in `mask`: true in exactly one of its lanes. Does not wait.
#[inline(always)]
pub fn elect(mask: u32) -> bool {
    lane_id() == mask.trailing_zeros()
}

/// Waits until all lanes in `mask` are here; what they wrote to memory before, all of them can read after.
#[inline(always)]
#[track_caller]
pub fn sync_warp(mask: u32) {
    #[cfg(target_arch = "nvptx64")]
    nvvm::bar_warp_sync(mask);
    #[cfg(not(target_arch = "nvptx64"))]
    let _ = collective::warp_exchange(mask, "sync_warp", 0);
}

/// The value that a lane reads from a lane that is not in the mask: unspecified on a GPU, this pattern here.
#[cfg(not(target_arch = "nvptx64"))]
const UNSPECIFIED: u64 = 0xA5A5_A5A5_A5A5_A5A5;

macro_rules! shuffles {
    ($(
        $(#[$doc:meta])*
        $name:ident, $name_width:ident($operand:ident) = $intrinsic:ident, $clamp:literal, $source:expr;
    )*) => { $(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name<T: WarpValue>(mask: u32, value: T, $operand: u32) -> T {
            $name_width(mask, value, $operand, WARP_SIZE)
        }

        #[doc = concat!(
            "[`", stringify!($name), "`] within groups of `width` neighbouring lanes.\n\n# Panics\n\n",
            "If `width` is not 1, 2, 4, 8, 16 or 32."
        )]
        #[inline(always)]
        #[track_caller]
        pub fn $name_width<T: WarpValue>(mask: u32, value: T, $operand: u32, width: u32) -> T {
            assert!(width.is_power_of_two() && width <= WARP_SIZE, "the width of a shuffle is a power of two up to 32");
            let bits = value.into_bits();
            #[cfg(target_arch = "nvptx64")]
            {
                let control = ((WARP_SIZE - width) << 8) | $clamp;
                let low = nvvm::$intrinsic(mask, bits as u32, $operand, control) as u64;
                let high = if T::WIDE {
                    nvvm::$intrinsic(mask, (bits >> 32) as u32, $operand, control) as u64
                } else {
                    0
                };
                T::from_bits(high << 32 | low)
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let lanes = collective::warp_exchange(mask, stringify!($name), bits);
                let lane = lane_id();
                let first = lane & !(width - 1);
                let select: fn(u32, u32, u32, u32) -> Option<u32> = $source;
                let source = select(lane, $operand % WARP_SIZE, first, width).unwrap_or(lane);
                let in_mask = mask >> source & 1 == 1;
                T::from_bits(if in_mask { lanes.values[source as usize] } else { UNSPECIFIED })
            }
        }
    )* };
}

shuffles! {
    /// The value that lane `lane` (modulo 32) passes. Unspecified if that lane is not in the mask.
    shuffle, shuffle_width(lane) = shfl_idx, 0x1f, |_, lane, first, width| Some(first | lane & (width - 1));

    /// The value of the lane `delta` below; the lowest `delta` lanes get their own. `delta` is less than 32.
    shuffle_up, shuffle_up_width(delta) = shfl_up, 0, |lane, delta, first, _| {
        lane.checked_sub(delta).filter(|&source| source >= first)
    };

    /// The value of the lane `delta` above; the highest `delta` lanes get their own. `delta` is less than 32.
    shuffle_down, shuffle_down_width(delta) = shfl_down, 0x1f, |lane, delta, first, width| {
        Some(lane + delta).filter(|&source| source < first + width)
    };

    /// The value of the lane whose index differs in the bits of `lane_mask`.
    shuffle_xor, shuffle_xor_width(lane_mask) = shfl_bfly, 0x1f, |lane, lane_mask, first, width| {
        Some(lane ^ lane_mask).filter(|&source| source < first + width)
    };
}

/// Whether `predicate` is true in all lanes of the mask.
#[inline(always)]
#[track_caller]
pub fn all(mask: u32, predicate: bool) -> bool {
    gpu_or_host!(nvvm::vote_all(mask, predicate), matching(mask, "all", predicate as u64, 1) == mask)
}

/// Whether `predicate` is true in any lane of the mask.
#[inline(always)]
#[track_caller]
pub fn any(mask: u32, predicate: bool) -> bool {
    gpu_or_host!(nvvm::vote_any(mask, predicate), matching(mask, "any", predicate as u64, 1) != 0)
}

/// The lanes of the mask in which `predicate` is true.
#[inline(always)]
#[track_caller]
pub fn ballot(mask: u32, predicate: bool) -> u32 {
    gpu_or_host!(nvvm::vote_ballot(mask, predicate), matching(mask, "ballot", predicate as u64, 1))
}

/// The lanes of the mask whose `value` has the same bits as the caller's. (So NaN matches the same NaN, and +0
/// does not match −0.)
#[inline(always)]
#[track_caller]
pub fn match_any<T: WarpValue>(mask: u32, value: T) -> u32 {
    let bits = value.into_bits();
    gpu_or_host!(
        if T::WIDE { nvvm::match_any_64(mask, bits) } else { nvvm::match_any_32(mask, bits as u32) },
        matching(mask, "match_any", bits, bits)
    )
}

/// Whether `value` has the same bits in all lanes of the mask.
#[inline(always)]
#[track_caller]
pub fn match_all<T: WarpValue>(mask: u32, value: T) -> bool {
    // The lanes with the caller's value are all there are for one caller if and only if they are for every one.
    match_any(mask, value) == mask
}

/// The lanes of the mask that pass `wanted` as their `bits`.
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn matching(mask: u32, operation: &'static str, bits: u64, wanted: u64) -> u32 {
    let lanes = collective::warp_exchange(mask, operation, bits);
    (0..WARP_SIZE)
        .filter(|&lane| mask >> lane & 1 == 1 && lanes.values[lane as usize] == wanted)
        .fold(0, |found, lane| found | 1 << lane)
}

/// Combines the values of all lanes of the mask; every lane gets the result.
///
/// The full mask: in a tree, of which each level joins lanes 16, 8, 4, 2, 1 apart. Any other: from the lowest
/// lane to the highest. `combine` is commutative, so that all lanes get the same bits.
#[inline(always)]
#[track_caller]
fn reduce<T: WarpValue>(mask: u32, value: T, operation: &'static str, combine: impl Fn(T, T) -> T) -> T {
    #[cfg(target_arch = "nvptx64")]
    {
        let _ = operation;
        if mask == FULL_MASK {
            let mut total = value;
            let mut distance = WARP_SIZE / 2;
            while distance > 0 {
                total = combine(total, shuffle_xor(mask, total, distance));
                distance /= 2;
            }
            return total;
        }
        let mut rest = mask;
        let mut total = shuffle(mask, value, rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        while rest != 0 {
            total = combine(total, shuffle(mask, value, rest.trailing_zeros()));
            rest &= rest - 1;
        }
        total
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let lanes = collective::warp_exchange(mask, operation, value.into_bits());
        let mut values = lanes.values.map(T::from_bits);
        if mask == FULL_MASK {
            let mut distance = WARP_SIZE as usize / 2;
            while distance > 0 {
                for lane in 0..distance {
                    values[lane] = combine(values[lane], values[lane + distance]);
                }
                distance /= 2;
            }
            return values[0];
        }
        let mut present = (0..WARP_SIZE as usize).filter(|lane| mask >> lane & 1 == 1);
        let first = values[present.next().expect("the mask of a warp operation names its caller")];
        present.fold(first, |total, lane| combine(total, values[lane]))
    }
}

/// The sum over the lanes of the mask, in every lane. Integers wrap; floats are added in a fixed order, so the
/// same values give the same bits. f16 and bf16 are rounded after every addition.
#[inline(always)]
#[track_caller]
pub fn reduce_add<T: WarpValue + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if T::INTEGER != 0 && !T::WIDE {
        return T::from_bits(nvvm::redux_add(value.into_bits() as u32, mask) as u64);
    }
    reduce(mask, value, "reduce_add", T::wrapping_add)
}

/// The least value over the lanes of the mask, in every lane; NaN if there is one.
#[inline(always)]
#[track_caller]
pub fn reduce_min<T: WarpValue + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if !T::WIDE && T::INTEGER < 0 {
        return T::from_bits(nvvm::redux_min(value.into_bits() as i32, mask) as u64);
    } else if !T::WIDE && T::INTEGER > 0 {
        return T::from_bits(nvvm::redux_umin(value.into_bits() as u32, mask) as u64);
    }
    reduce(mask, value, "reduce_min", T::min_propagate)
}

/// The greatest value over the lanes of the mask, in every lane; NaN if there is one.
#[inline(always)]
#[track_caller]
pub fn reduce_max<T: WarpValue + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if !T::WIDE && T::INTEGER < 0 {
        return T::from_bits(nvvm::redux_max(value.into_bits() as i32, mask) as u64);
    } else if !T::WIDE && T::INTEGER > 0 {
        return T::from_bits(nvvm::redux_umax(value.into_bits() as u32, mask) as u64);
    }
    reduce(mask, value, "reduce_max", T::max_propagate)
}

macro_rules! bitwise {
    ($($(#[$doc:meta])* $name:ident, $op:ident::$method:ident = $intrinsic:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name<T: WarpValue + $op<Output = T>>(mask: u32, value: T) -> T {
            #[cfg(target_arch = "nvptx64")]
            if T::INTEGER != 0 {
                let bits = value.into_bits();
                let low = nvvm::$intrinsic(bits as u32, mask) as u64;
                let high =
                    if T::WIDE { nvvm::$intrinsic((bits >> 32) as u32, mask) as u64 } else { 0 };
                return T::from_bits(high << 32 | low);
            }
            reduce(mask, value, stringify!($name), $op::$method)
        }
    )* };
}

bitwise! {
    /// The bits set in all lanes of the mask, in every lane.
    reduce_and, BitAnd::bitand = redux_and;
    /// The bits set in any lane of the mask, in every lane.
    reduce_or, BitOr::bitor = redux_or;
    /// The bits set in an odd number of lanes of the mask, in every lane.
    reduce_xor, BitXor::bitxor = redux_xor;
}
