//! Warp-level collective operations among the 32 threads (lanes) of a warp, without shared memory.
//!
//! A thread's lane is its [`linear_in_block`](crate::thread::linear_in_block) modulo 32.
//!
//! Every function of this module except [`lane_id`], [`active_mask`] and [`elect`] takes a mask of lanes, which must
//! include the caller. All lanes in the mask must call the function with the same mask, and wait for each other. If
//! lanes pass different masks or never arrive, the emulated device reports a fault, whereas a GPU hangs or returns
//! unspecified values.
//!
//! The functions are nevertheless safe, which is an exception to the guarantees of safe code, as for
//! [`cluster::arrive`](crate::cluster::arrive). In PTX, the behavior is undefined if lanes pass different masks or a
//! caller is outside its mask. On existing GPUs, the effect is limited to the calling warp, as described above. A check
//! in each call would cost as much as the call itself.
//!
//! Lanes can exchange any [`KernelType`] without padding, including structs. An exchange takes one instruction per 32
//! bits.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! #[derive(Clone, Copy, KernelType)]
//! #[repr(C)]
//! struct Candidate {
//!     score: f32,
//!     index: u32,
//! }
//!
//! /// The index of the best score of each 32.
//! #[kernel(launch_bounds(32))]
//! fn best(scores: &[f32], mut out: DisjointMut<u32, PerBlock>) {
//!     let index = grid::rank();
//!     let own = Candidate { score: scores.get(index).copied().unwrap_or(f32::MIN), index: index as u32 };
//!     let best = warp::reduce(warp::FULL_MASK, own, |a, b| if b.score > a.score { b } else { a });
//!     if let Some(out) = out.get_mut(block::unique_index()) {
//!         *out = best.index;
//!     }
//! }
//! ```

use crate::element::KernelType;
#[cfg(not(target_arch = "nvptx64"))]
use crate::host::{collective, thread as emulated};
#[cfg(target_arch = "nvptx64")]
use crate::nvvm;
use crate::scalar::Scalar;
use crate::words;
use core::ops::{BitAnd, BitOr, BitXor};

/// Number of lanes in a warp.
pub const WARP_SIZE: u32 = 32;

/// Mask of all 32 lanes.
pub const FULL_MASK: u32 = u32::MAX;

/// Returns the calling thread's lane, from 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    gpu_or_host!(nvvm::laneid(), emulated::lane())
}

/// Returns the mask of the lanes that currently execute this instruction together with the caller. The hardware
/// determines these lanes, so the result is not a suitable mask for the other functions.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Counts the even numbers of each 32.
/// #[kernel(block(32))]
/// fn count_even(x: &[u32], mut counts: DisjointMut<u32, PerBlock>) {
///     let is_even = x[grid::rank()].is_multiple_of(2);
///     // All lanes reach this line, so the mask is constant. In a branch, `active_mask` might return a part
///     // of its lanes.
///     let even = warp::ballot(warp::FULL_MASK, is_even);
///     if let Some(count) = counts.get_mut(block::unique_index()) {
///         *count = even.count_ones();
///     }
/// }
/// ```
#[inline(always)]
#[track_caller]
pub fn active_mask() -> u32 {
    gpu_or_host!(nvvm::activemask(), collective::active_mask())
}

/// Returns true if the caller is the lowest lane in `mask`, and therefore in exactly one lane of the mask. The function
/// does not wait.
#[inline(always)]
pub fn elect(mask: u32) -> bool {
    lane_id() == mask.trailing_zeros()
}

/// Waits until all lanes in `mask` have arrived. Memory writes that these threads made before the barrier are visible
/// to all of them after it.
#[inline(always)]
#[track_caller]
pub fn sync_warp(mask: u32) {
    #[cfg(target_arch = "nvptx64")]
    nvvm::bar_warp_sync(mask);
    #[cfg(not(target_arch = "nvptx64"))]
    let _ = collective::warp_exchange(mask, "sync_warp", 0);
}

macro_rules! shuffles {
    ($(
        $(#[$doc:meta])*
        $name:ident, $name_width:ident($operand:ident) = $intrinsic:ident, $clamp:literal, $source:expr;
    )*) => { $(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name<T: KernelType>(mask: u32, value: T, $operand: u32) -> T {
            $name_width(mask, value, $operand, WARP_SIZE)
        }

        #[doc = concat!(
            "[`", stringify!($name), "`] within groups of `width` neighboring lanes.\n\n# Panics\n\n",
            "If `width` is not 1, 2, 4, 8, 16 or 32."
        )]
        #[inline(always)]
        #[track_caller]
        pub fn $name_width<T: KernelType>(mask: u32, value: T, $operand: u32, width: u32) -> T {
            assert!(width.is_power_of_two() && width <= WARP_SIZE, "the width of a shuffle must be a power of two up \
                                                                    to 32");
            #[cfg(target_arch = "nvptx64")]
            {
                let control = ((WARP_SIZE - width) << 8) | $clamp;
                words::map(value, |word| nvvm::$intrinsic(mask, word, $operand, control))
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let lane = lane_id();
                let first = lane & !(width - 1);
                let select: fn(u32, u32, u32, u32) -> Option<u32> = $source;
                of_lane(mask, stringify!($name), value, select(lane, $operand % WARP_SIZE, first, width).unwrap_or(lane))
            }
        }
    )* };
}

shuffles! {
    /// Returns the value passed by lane `lane` modulo 32. The value is unspecified if that lane is not in the mask.
    shuffle, shuffle_width(lane) = shfl_idx, 0x1f, |_, lane, first, width| Some(first | lane & (width - 1));

    /// Returns the value of the lane that is `delta` lower. The lowest `delta` lanes receive their own value. `delta`
    /// must be less than 32.
    shuffle_up, shuffle_up_width(delta) = shfl_up, 0, |lane, delta, first, _| {
        lane.checked_sub(delta).filter(|&source| source >= first)
    };

    /// Returns the value of the lane that is `delta` higher. The highest `delta` lanes receive their own value. `delta`
    /// must be less than 32.
    shuffle_down, shuffle_down_width(delta) = shfl_down, 0x1f, |lane, delta, first, width| {
        Some(lane + delta).filter(|&source| source < first + width)
    };

    /// Returns the value of the lane whose index is the caller's lane XOR `lane_mask`.
    shuffle_xor, shuffle_xor_width(lane_mask) = shfl_bfly, 0x1f, |lane, lane_mask, first, width| {
        Some(lane ^ lane_mask).filter(|&source| source < first + width)
    };
}

/// Returns whether `predicate` is true in all lanes of the mask.
#[inline(always)]
#[track_caller]
pub fn all(mask: u32, predicate: bool) -> bool {
    gpu_or_host!(nvvm::vote_all(mask, predicate), matching(mask, "all", predicate as u64, 1) == mask)
}

/// Returns whether `predicate` is true in any lane of the mask.
#[inline(always)]
#[track_caller]
pub fn any(mask: u32, predicate: bool) -> bool {
    gpu_or_host!(nvvm::vote_any(mask, predicate), matching(mask, "any", predicate as u64, 1) != 0)
}

/// Returns the lanes of the mask in which `predicate` is true.
///
/// See the example of [`active_mask`].
#[inline(always)]
#[track_caller]
pub fn ballot(mask: u32, predicate: bool) -> u32 {
    gpu_or_host!(nvvm::vote_ballot(mask, predicate), matching(mask, "ballot", predicate as u64, 1))
}

/// Returns the lanes of the mask whose `value` has the same bits as the caller's value. NaN therefore matches a NaN
/// with the same bits, and +0 does not match −0.
///
/// ```
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// The number of lanes with the same number.
/// #[kernel(block(32))]
/// fn repetitions(x: &[u32], mut out: DisjointMut<u32>) {
///     let i = thread::unique_index();
///     let same = warp::match_any(warp::FULL_MASK, x[i.get()]);
///     if let Some(out) = out.get_mut(i) {
///         *out = same.count_ones();
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let x = DeviceBuffer::from_host(&stream, &std::array::from_fn::<u32, 32, _>(|i| u32::from(i >= 30)))?;
/// let mut out = DeviceBuffer::<u32>::zeros(&stream, 32)?;
/// module.kernel::<repetitions>()?.launch(&stream, Launch::linear(32, 32), (&x, &mut out))?;
/// assert_eq!(out.to_host()?[29..], [30, 2, 2]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[inline(always)]
#[track_caller]
pub fn match_any<T: KernelType>(mask: u32, value: T) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        if size_of::<T>() == 8 {
            return nvvm::match_any_64(mask, words::bits(value));
        }
        let mut same = mask;
        words::map(value, |word| {
            same &= nvvm::match_any_32(mask, word);
            word
        });
        same
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let values = gather(mask, "match_any", value);
        let lanes = (0..WARP_SIZE).filter(|lane| mask >> lane & 1 == 1);
        lanes.filter(|&lane| words::same(values[lane as usize], value)).fold(0, |same, lane| same | 1 << lane)
    }
}

/// Returns whether `value` has the same bits in all lanes of the mask.
#[inline(always)]
#[track_caller]
pub fn match_all<T: KernelType>(mask: u32, value: T) -> bool {
    // If all lanes of the mask match the value of one lane, they match the value of every lane.
    match_any(mask, value) == mask
}

/// Returns the value of lane `lane`, obtained in the same way as in [`gather`].
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn of_lane<T: KernelType>(mask: u32, operation: &'static str, value: T, lane: u32) -> T {
    let mut found = words::filled(0xA5);
    for part in 0..size_of::<T>().div_ceil(8).max(1) {
        let bits = collective::warp_lane(mask, operation, words::part(value, part), lane);
        if mask >> lane & 1 == 1 {
            words::set_part(&mut found, part, bits);
        }
    }
    found
}

/// Returns the values of all lanes of the mask. Bytes of the other lanes' values, which are unspecified on a GPU, are
/// set to 0xA5.
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn gather<T: KernelType>(mask: u32, operation: &'static str, value: T) -> [T; WARP_SIZE as usize] {
    let mut values = [words::filled(0xA5); WARP_SIZE as usize];
    for part in 0..size_of::<T>().div_ceil(8).max(1) {
        let lanes = collective::warp_exchange(mask, operation, words::part(value, part));
        for (lane, value) in values.iter_mut().enumerate().filter(|(lane, _)| mask >> lane & 1 == 1) {
            words::set_part(value, part, lanes.values[lane]);
        }
    }
    values
}

/// Returns the lanes of the mask whose `bits` equal `wanted`.
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn matching(mask: u32, operation: &'static str, bits: u64, wanted: u64) -> u32 {
    let lanes = collective::warp_exchange(mask, operation, bits);
    (0..WARP_SIZE)
        .filter(|&lane| mask >> lane & 1 == 1 && lanes.values[lane as usize] == wanted)
        .fold(0, |found, lane| found | 1 << lane)
}

/// Combines the values of all lanes of the mask. `combine` must be commutative, and associative at least approximately
/// (like float addition). Every lane receives the bit-identical result.
///
/// For the full mask, the values are combined in a tree whose levels combine lanes that are 16, 8, 4, 2 and 1 apart.
/// For any other mask, the values are combined from the lowest lane to the highest.
#[inline(always)]
#[track_caller]
pub fn reduce<T: KernelType>(mask: u32, value: T, combine: impl Fn(T, T) -> T) -> T {
    reduce_named(mask, value, "reduce", combine)
}

/// Combines values like [`reduce`]. Error messages name the `operation`.
#[inline(always)]
#[track_caller]
fn reduce_named<T: KernelType>(
    mask: u32,
    value: T,
    operation: &'static str,
    combine: impl Fn(T, T) -> T,
) -> T {
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
        let mut values = gather(mask, operation, value);
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
        let first =
            values[present.next().expect("the mask of a warp operation must include the calling lane")];
        present.fold(first, |total, lane| combine(total, values[lane]))
    }
}

/// Combines the values of lanes 0 to `count` − 1, in the order of the lanes. `combine` must be associative, at least
/// approximately. Every lane receives the bit-identical result. All 32 lanes must call this function with the same
/// `count`, which must be from 1 to 32. The values of the other lanes are ignored.
///
/// The reduction takes five steps, in a tree that combines neighbors: its levels combine values that are 1, 2, 4, 8 and
/// 16 lanes apart. Unlike [`reduce`], the operation need not be commutative.
#[inline(always)]
#[track_caller]
pub fn reduce_first<T: KernelType>(count: u32, value: T, combine: impl Fn(T, T) -> T) -> T {
    let lane = lane_id();
    let mut total = value;
    let mut distance = 1;
    while distance < WARP_SIZE {
        let above = shuffle_down(FULL_MASK, total, distance);
        if lane + distance < count {
            total = combine(total, above);
        }
        distance *= 2;
    }
    shuffle(FULL_MASK, total, 0)
}

/// Returns the lanes of the mask whose `value` has the same lowest `BITS` bits as the caller's value. Each bit takes
/// one vote, so for a few bits, the function is faster than [`match_any`] on a GPU.
#[inline(always)]
#[track_caller]
pub fn match_bits<const BITS: u32>(mask: u32, value: u32) -> u32 {
    const { assert!(BITS >= 1 && BITS <= 32, "a value must have 1 to 32 bits") };
    #[cfg(target_arch = "nvptx64")]
    {
        let mut same = mask;
        let mut bit = 0;
        while bit < BITS {
            // The loop body is written in assembly because LLVM would shift the value for each bit and test it twice.
            // SAFETY: the lanes of the mask vote together, and only registers change.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .pred p; .reg .b32 set, other;",
                    "and.b32 set, {value}, {bit};",
                    "setp.ne.b32 p, set, 0;",
                    "vote.sync.ballot.b32 set, p, {mask};",
                    "selp.b32 other, 0, -1, p;",
                    "lop3.b32 {same}, {same}, set, other, 0x60; }}",
                    value = in(reg32) value,
                    bit = in(reg32) 1u32 << bit,
                    mask = in(reg32) mask,
                    same = inout(reg32) same,
                    options(nomem, nostack),
                );
            }
            bit += 1;
        }
        same
    }
    #[cfg(not(target_arch = "nvptx64"))]
    match_any(mask, value & (u32::MAX >> (32 - BITS)))
}

/// Combines the values of the lanes of the mask up to and including the caller, in the order of the lanes. `combine`
/// must be associative, at least approximately.
///
/// If the mask consists of all lanes below some number, the scan takes five steps. If the mask has gaps, the scan takes
/// one step per lane.
#[inline(always)]
#[track_caller]
pub fn inclusive_scan<T: KernelType>(mask: u32, value: T, combine: impl Fn(T, T) -> T) -> T {
    let lane = lane_id();
    if has_no_gaps(mask) {
        let mut total = value;
        let mut distance = 1;
        while distance < WARP_SIZE {
            let below = shuffle_up(mask, total, distance);
            if lane >= distance {
                total = combine(below, total);
            }
            distance *= 2;
        }
        return total;
    }
    let mut total = shuffle(mask, value, mask.trailing_zeros());
    let mut rest = mask & mask.wrapping_sub(1);
    while rest != 0 {
        let source = rest.trailing_zeros();
        let next = shuffle(mask, value, source);
        if source <= lane {
            total = combine(total, next);
        }
        rest &= rest - 1;
    }
    total
}

/// Combines `identity` and the values of the lanes of the mask below the caller, in the order of the lanes. `combine`
/// must be associative, at least approximately.
#[inline(always)]
#[track_caller]
pub fn exclusive_scan<T: KernelType>(mask: u32, value: T, identity: T, combine: impl Fn(T, T) -> T) -> T {
    let lane = lane_id();
    let within = inclusive_scan(mask, value, &combine);
    let lower = mask & ((1 << lane) - 1);
    let before = if has_no_gaps(mask) {
        shuffle_up(mask, within, 1)
    } else {
        // The lowest lane reads its own value, which is then ignored.
        shuffle(mask, within, if lower == 0 { lane } else { 31 - lower.leading_zeros() })
    };
    if lower == 0 { identity } else { combine(identity, before) }
}

/// Returns true if the mask consists of all lanes below some number.
#[inline(always)]
fn has_no_gaps(mask: u32) -> bool {
    mask & mask.wrapping_add(1) == 0
}

/// Returns the sum over the lanes of the mask, in each of these lanes. Integers wrap. Floats are added in a fixed
/// order, so the same values give bit-identical sums. `f16` and `bf16` sums are rounded after every addition.
#[inline(always)]
#[track_caller]
pub fn reduce_add<T: KernelType + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if T::INTEGER != 0 && size_of::<T>() == 4 {
        return words::map(value, |word| nvvm::redux_add(word, mask));
    }
    reduce_named(mask, value, "reduce_add", T::wrapping_add)
}

/// Returns the smallest value among the lanes of the mask, or NaN if any value is NaN, in each of these lanes.
#[inline(always)]
#[track_caller]
pub fn reduce_min<T: KernelType + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if size_of::<T>() == 4 && T::INTEGER < 0 {
        return words::map(value, |word| nvvm::redux_min(word as i32, mask) as u32);
    } else if size_of::<T>() == 4 && T::INTEGER > 0 {
        return words::map(value, |word| nvvm::redux_umin(word, mask));
    }
    reduce_named(mask, value, "reduce_min", T::min_propagate)
}

/// Returns the largest value among the lanes of the mask, or NaN if any value is NaN, in each of these lanes.
#[inline(always)]
#[track_caller]
pub fn reduce_max<T: KernelType + Scalar>(mask: u32, value: T) -> T {
    #[cfg(target_arch = "nvptx64")]
    if size_of::<T>() == 4 && T::INTEGER < 0 {
        return words::map(value, |word| nvvm::redux_max(word as i32, mask) as u32);
    } else if size_of::<T>() == 4 && T::INTEGER > 0 {
        return words::map(value, |word| nvvm::redux_umax(word, mask));
    }
    reduce_named(mask, value, "reduce_max", T::max_propagate)
}

macro_rules! bitwise {
    ($($(#[$doc:meta])* $name:ident, $op:ident::$method:ident = $intrinsic:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name<T: KernelType + $op<Output = T>>(mask: u32, value: T) -> T {
            #[cfg(target_arch = "nvptx64")]
            if T::INTEGER != 0 {
                return words::map(value, |word| nvvm::$intrinsic(word, mask));
            }
            reduce_named(mask, value, stringify!($name), $op::$method)
        }
    )* };
}

bitwise! {
    /// Returns, in each lane of the mask, the bits that are set in all of these lanes.
    reduce_and, BitAnd::bitand = redux_and;
    /// Returns, in each lane of the mask, the bits that are set in any of these lanes.
    reduce_or, BitOr::bitor = redux_or;
    /// Returns, in each lane of the mask, the bits that are set in an odd number of these lanes.
    reduce_xor, BitXor::bitxor = redux_xor;
}
