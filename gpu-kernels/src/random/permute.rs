//! `permutation`: the integers from 0 to n − 1 in random order, where each element is computed from its index alone.
//!
//! The index is split into (l, r) with l < a and r < b, where a and b are about √n and a · b ≥ n. The pair then passes
//! through the rounds of a Feistel network. In one round, l increases modulo a by a number that depends on r. In the
//! next round, r increases modulo b by a number that depends on l. Each round is invertible, so the network is a
//! permutation of the a · b pairs. A pair that represents an index of n or more passes through the network again until
//! its index is below n (cycle walking). The result is therefore a permutation of n elements. At most a pairs represent
//! an index of n or more, so repetitions are rare. The round functions are multiplications as in Philox, with keys from
//! one block of the generator's words. The method follows "Bandwidth-optimal random shuffling for GPUs" (Mitchell,
//! Stokes, Frank, Holmes 2021), in which a and b are powers of two.
//!
//! Either a or b is even. If both were odd, each round would be a product of cycles of odd length, so only even
//! permutations of the pairs could occur.

use gpu_std::prelude::*;
use gpu_std::random::Philox;

use super::Place;
use crate::tile::{each, for_each, in_first_row, lanes, with_lanes};

/// Rounds per side.
const ROUNDS: u32 = 12;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// Writes a permutation of 0 to n − 1 to `out`, which has n elements. `a` and `b` must be the result of [`sides`] for
/// n. Nothing is written if their product is less than n, or exceeds n by `a` or more, because a pair could then need a
/// large number of repetitions.
#[kernel(types(T = u32, u64), consts(ITEMS = 1; VECTOR = 16), launch_bounds(512), bytes = out.bytes())]
pub fn permutation<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    a: u32,
    b: u32,
    mut out: DisjointMut<T>,
) {
    let len = out.len();
    let (n, pairs) = (len as u64, a as u64 * b as u64);
    if !in_first_row() || b == 0 || pairs < n || pairs - n >= a as u64 {
        return;
    }
    let out = out.as_mut_ptr();
    let place = Place::new(seed, offset, base);
    let key = Philox::at_block(place.seed, 0, place.block).next4();
    let element = |l: u32, r: u32| T::from_u64(permuted(key, [a, b], len as u64, [l, r]));
    with_lanes!(lanes::<T>(VECTOR), N => {
        let fits = out.addr().is_multiple_of(Vector::<T, N>::ALIGN);
        let whole = if fits { len / N } else { 0 };
        for_each::<(), 1>(whole, |_| (), |chunk, ()| {
            let start = (chunk * N) as u64;
            let (mut l, mut r) = ((start / b as u64) as u32, (start % b as u64) as u32);
            let mut row = [T::ZERO; N];
            each::<N>(|n| {
                row[n] = element(l, r);
                r += 1;
                if r == b {
                    (l, r) = (l + 1, 0);
                }
            });
            // SAFETY: the chunk is in bounds, is aligned, and is visited only once.
            unsafe { Vector::from_array(row).store(out.add(chunk * N)) };
        });
        let first = whole * N;
        for_each::<(), 1>(len - first, |_| (), |i, ()| {
            let index = (first + i) as u64;
            // SAFETY: the element is in bounds and is visited only once.
            unsafe { out.add(first + i).write(element((index / b as u64) as u32, (index % b as u64) as u32)) };
        });
    });
}

/// Returns the sides (a, b) that [`permutation()`] uses for n elements, one of which is even. Returns `None` if n
/// exceeds 2⁶³.
pub fn sides(n: u64) -> Option<(u32, u32)> {
    if n > 1 << 63 {
        return None;
    }
    let root = n.isqrt();
    let a = if root * root < n || n == 0 { root + 1 } else { root };
    let is_odd = |side: u64| !side.is_multiple_of(2);
    let a = if n > 1 && is_odd(a) && is_odd(n.div_ceil(a)) { a + 1 } else { a };
    Some((u32::try_from(a).ok()?, u32::try_from(n.div_ceil(a)).ok()?))
}

/// Returns element `index` of the permutation of `n` elements that [`permutation()`] computes with this key. The
/// function can run on the host and on the GPU.
pub fn permuted_at(key: [u32; 4], [a, b]: [u32; 2], n: u64, index: u64) -> u64 {
    permuted(key, [a, b], n, [(index / b as u64) as u32, (index % b as u64) as u32])
}

/// Returns the index to which a pair is permuted. `a · b` must be at least `n`, and the pair must represent an index
/// below `n`.
#[inline(always)]
fn permuted(key: [u32; 4], [a, b]: [u32; 2], n: u64, [mut l, mut r]: [u32; 2]) -> u64 {
    loop {
        let mut round = key;
        let mut i = 0;
        while i < ROUNDS {
            l = add_below(l, mix(r, round[0], round[1]), a);
            r = add_below(r, mix(l, round[2], round[3]), b);
            // The steps are odd so that no key repeats.
            round = [
                round[0].wrapping_add(key[1] | 1),
                round[1].wrapping_add(key[2] | 1),
                round[2].wrapping_add(key[3] | 1),
                round[3].wrapping_add(key[0] | 1),
            ];
            i += 1;
        }
        let index = l as u64 * b as u64 + r as u64;
        if index < n {
            return index;
        }
    }
}

/// Returns a word that depends on all bits of `value` and of both keys.
#[inline(always)]
fn mix(value: u32, first: u32, second: u32) -> u32 {
    let fold = |product: u64| (product >> 32) as u32 ^ product as u32;
    let once = fold((value ^ first) as u64 * MULTIPLIERS[0] as u64);
    fold((once ^ second) as u64 * MULTIPLIERS[1] as u64)
}

/// Returns (`value` + `word` · `side` / 2³²) modulo `side`, where `value` must be below `side`.
#[inline(always)]
fn add_below(value: u32, word: u32, side: u32) -> u32 {
    let gain = ((word as u64 * side as u64) >> 32) as u32;
    let rest = side - gain;
    if value >= rest { value - rest } else { value + gain }
}
