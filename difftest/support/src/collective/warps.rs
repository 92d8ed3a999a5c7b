//! Warp operations. The last warp of a block may have fewer than 32 lanes.

use gpu_std::prelude::*;
use gpu_std::warp::FULL_MASK;

use super::compose;

/// Number of lanes of the calling thread's warp.
#[inline(always)]
fn lanes() -> u32 {
    (block::threads() - thread::linear_in_block() / 32 * 32).min(32)
}

#[inline(always)]
fn mask() -> u32 {
    u32::MAX >> (32 - lanes())
}

/// Value of lane `n`, modulo the number of lanes.
#[inline(always)]
pub fn shuffle(v: u64, n: u32) -> u64 {
    warp::shuffle(mask(), v, n % lanes())
}

/// Value of the lane that each lane selects by its own value.
#[inline(always)]
pub fn gather(v: u64, n: u32) -> u64 {
    warp::shuffle(mask(), v, (v as u32 ^ n) % lanes())
}

/// Value of the lane `n` below, otherwise the own value.
#[inline(always)]
pub fn shuffle_up(v: u64, n: u32) -> u64 {
    warp::shuffle_up(mask(), v, n % 32)
}

/// Value of the lane `n` above, otherwise the own value.
#[inline(always)]
pub fn shuffle_down(v: u64, n: u32) -> u64 {
    let (lane, n) = (warp::lane_id(), n % 32);
    let above = warp::shuffle_down(mask(), v, n);
    if lane + n < lanes() { above } else { v }
}

/// Value of the lane whose ID is the caller's XOR `n`, or the caller's value if that lane does not exist.
#[inline(always)]
pub fn shuffle_xor(v: u64, n: u32) -> u64 {
    let (lane, n) = (warp::lane_id(), n % 32);
    let other = warp::shuffle_xor(mask(), v, n);
    if lane ^ n < lanes() { other } else { v }
}

/// Exchange of three bytes, a narrow type and a wide one, with the neighbor. Whole warps.
#[inline(always)]
pub fn shuffle_types(v: u64, n: u32) -> u64 {
    let n = (n % 32) | 1;
    let a = warp::shuffle_xor(FULL_MASK, v as u8, n);
    let b = warp::shuffle_xor(FULL_MASK, (v >> 8) as i16, n);
    let c = warp::shuffle_xor(FULL_MASK, [v, v.wrapping_mul(3), !v], n);
    let d = warp::shuffle_xor(FULL_MASK, f64::from((v >> 24) as u32), n);
    let e = warp::shuffle_xor_width(FULL_MASK, v, n % 8, 8);
    u64::from(a)
        ^ (b as u64)
        ^ c[0]
        ^ c[1].rotate_left(5)
        ^ c[2].rotate_left(9)
        ^ d.to_bits()
        ^ e.rotate_left(33)
}

/// Mask of the lanes whose value has bit `n`.
#[inline(always)]
pub fn ballot(v: u64, n: u32) -> u64 {
    u64::from(warp::ballot(mask(), v >> (n % 64) & 1 == 1))
}

/// Returns whether all values have one of two bits, and whether any value has neither.
#[inline(always)]
pub fn all_any(v: u64, n: u32) -> u64 {
    let some = v >> (n % 62) & 3 != 0;
    u64::from(warp::all(mask(), some)) << 1 | u64::from(warp::any(mask(), !some))
}

/// Mask of the lanes that have the same `n % 3 + 1` low bits.
#[inline(always)]
pub fn match_any(v: u64, n: u32) -> u64 {
    let low = v & ((2 << (n % 3)) - 1);
    u64::from(warp::match_any(mask(), low)) << 32 | u64::from(warp::match_any(mask(), low as u32))
}

/// Mask of the lanes that have the same three low bits, found bit by bit, and whether all have the same two upper ones.
#[inline(always)]
pub fn match_bits(v: u64, n: u32) -> u64 {
    u64::from(warp::match_bits::<3>(mask(), v as u32 ^ n)) << 32
        | u64::from(warp::match_all(mask(), (v >> 62) as u32))
}

/// Sums, minima and maxima of several types.
#[inline(always)]
pub fn reduce_numbers(v: u64, n: u32) -> u64 {
    let mask = mask();
    match n % 8 {
        0 => u64::from(warp::reduce_add(mask, v as u32)),
        1 => warp::reduce_add(mask, v),
        2 => warp::reduce_min(mask, v as i32) as u64,
        3 => u64::from(warp::reduce_max(mask, v as u32)),
        4 => warp::reduce_min(mask, v as i64) as u64,
        5 => u64::from(warp::reduce_max(mask, v as u16)),
        6 => u64::from(warp::reduce_add(mask, v as u8)),
        _ => warp::reduce_max(mask, v as i8) as u64,
    }
}

/// Exclusive or of all values.
#[inline(always)]
pub fn reduce_xor(v: u64, n: u32) -> u64 {
    warp::reduce(mask(), v.rotate_left(n), |a, b| a ^ b)
}

/// Reduction of the values of the first lanes, in order. Whole warps.
#[inline(always)]
pub fn reduce_first(v: u64, n: u32) -> u64 {
    warp::reduce_first(n % 32 + 1, v, compose)
}

/// Inclusive scan with a non-commutative operation.
#[inline(always)]
pub fn warp_scan(v: u64, n: u32) -> u64 {
    warp::inclusive_scan(mask(), v.rotate_left(n), compose)
}

/// Exclusive scan.
#[inline(always)]
pub fn warp_exclusive_scan(v: u64, n: u32) -> u64 {
    warp::exclusive_scan(mask(), v, u64::from(n) | 1 << 32, compose)
}

/// Lanes diverge by a bit of their values, and each group combines its own values.
#[inline(always)]
pub fn diverged(v: u64, n: u32) -> u64 {
    let is_set = v >> (n % 64) & 1 == 1;
    let set = warp::ballot(mask(), is_set);
    if is_set {
        warp::reduce(set, v | 1, u64::wrapping_mul).wrapping_add(u64::from(warp::elect(set)))
    } else {
        let rest = mask() & !set;
        warp::inclusive_scan(rest, v, u64::wrapping_add) ^ u64::from(warp::reduce_add(rest, v as u32))
    }
}

/// Lanes leave a loop at different times; those that stay vote.
#[inline(always)]
pub fn leave_one_by_one(v: u64, n: u32) -> u64 {
    let mut active = mask();
    let mut rounds = 0;
    let left = (v as u32 ^ n) % 7;
    let mut hash = v;
    loop {
        let goes_on = rounds < left;
        let next = warp::ballot(active, goes_on);
        hash = hash.rotate_left(7) ^ u64::from(next);
        if !goes_on {
            return hash;
        }
        active = next;
        rounds += 1;
    }
}

/// Tiles of eight and of two lanes. Whole warps.
#[inline(always)]
pub fn tiles(v: u64, n: u32) -> u64 {
    let eight = Tile::<8>::current();
    let two = Tile::<2>::current();
    let sum = eight.reduce_add(v);
    let scan = eight.inclusive_scan(v, compose);
    let before = eight.exclusive_scan(v as u32, n, u32::wrapping_add);
    let other = two.shuffle_xor(v, 1);
    sum ^ scan.rotate_left(11)
        ^ u64::from(before)
        ^ other.rotate_left(23)
        ^ u64::from(eight.ballot(v & 1 == 1)) << 40
}
