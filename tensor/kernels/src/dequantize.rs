//! Dequantization of int4, int8, FP8 and FP4 weights to 16-bit elements, for GEMMs that are bound by the tensor cores.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::vectorized::{load, store};

use crate::number4::{Number4, e4m3, e8m0};
use crate::skinny::{FP4, FP8, INT8, bits_of};

/// Number of threads per block.
pub const THREADS: u32 = 128;
/// Number of codes that a thread converts at once.
const COUNT: u32 = 8;
/// Number of loads of a thread in flight.
const LOADS: usize = 4;
/// Bits of the `f32` 2^23, whose unit in the last place (ulp) is 1.
const UNIT: f32 = 8_388_608.0;

/// Computes `to = scales * (codes - zeros)`, rounded once. Block i converts column i of k codes. `CODES` is
/// [`INT4`](crate::skinny::INT4) with or without `zeros`, [`INT8`], [`FP8`] or [`FP4`].
///
/// # Safety
/// k must be a multiple of 8, and the group size 2 to the power of `shift`, or k with a shift of 31. `codes` must have
/// a column of k codes per block and start on a 16-byte boundary, as must `to`, which has as many elements. `scales`
/// and `zeros` must have an element per group, in column-major order. Scales are aligned numbers of type T or, for
/// [`FP4`], bytes. The grid must be one-dimensional.
#[kernel(types(T = bf16, f16), consts(CODES = 0, 2, 3, 4), arch = 80, block(THREADS), no_panic)]
pub unsafe fn dequantize<T: Number4, const CODES: usize>(
    codes: &[u8],
    scales: &[u8],
    zeros: Option<&[T]>,
    mut to: DisjointMut<T>,
    k: u32,
    shift: u32,
) {
    let bits = const { bits_of(CODES) };
    let column = u64::from(thread::block_idx_x());
    let groups = if shift == 31 { 1 } else { k >> shift };
    let first_group = (column * u64::from(groups)) as usize;
    let first = column * u64::from(k);
    let codes = codes.as_ptr().wrapping_add((first * bits as u64 / 8) as usize);
    let to = to.as_mut_ptr().wrapping_add(first as usize);
    let mut at = COUNT * thread::thread_idx_x();
    while at < k {
        let place = |load: usize| at + load as u32 * COUNT * THREADS;
        let words: [[u32; 2]; LOADS] = from_fn(|i| {
            let from = codes.wrapping_add(place(i) as usize * bits / 8).cast::<u32>();
            // SAFETY: these codes are in the column.
            unsafe {
                match (place(i) < k, bits) {
                    (false, _) => [0; 2],
                    (true, 4) => [from.read(), 0],
                    (true, _) => load::<u32, 2>(from),
                }
            }
        });
        let mut i = 0;
        while i < LOADS {
            if place(i) < k {
                let group = first_group + (place(i) >> shift) as usize;
                // SAFETY: the group of these codes has a scale and a zero point.
                let (scale, zero) = unsafe {
                    let zero = zeros.map_or(8.0, |zeros| zeros.get_unchecked(group).cast::<f32>());
                    let scale = if CODES == FP4 {
                        let byte: u32 = scales.as_ptr().add(group).read().into();
                        if shift == 4 { T::widened(e4m3::<T>(byte)[0] & 0xffff) } else { e8m0(byte) }
                    } else {
                        scales.as_ptr().cast::<T>().add(group).read().cast::<f32>()
                    };
                    (scale, if CODES == INT8 { 128.0 } else { zero })
                };
                let numbers = match CODES {
                    FP8 => of_fp8::<T>(words[i]),
                    FP4 => of_fp4(words[i][0]),
                    _ => of_integers(words[i], bits, zero),
                };
                // SAFETY: only this thread writes these elements, which are in the column.
                unsafe {
                    store(to.wrapping_add(place(i) as usize), numbers.map(|x| (x * scale).cast::<T>()))
                };
            }
            i += 1;
        }
        at += COUNT * THREADS * LOADS as u32;
    }
}

/// Converts integers of `bits` bits, and subtracts their zero point. Integers of 8 bits are signed, with a zero point of
/// 128 after their sign bits have been inverted.
#[inline(always)]
fn of_integers(words: [u32; 2], bits: usize, zero: f32) -> [f32; COUNT as usize] {
    from_fn(|i| {
        let (word, mask) = if bits == 4 { (words[0], 0xf) } else { (words[i / 4] ^ 0x8080_8080, 0xff) };
        f32::from_bits(UNIT.to_bits() | (word >> (bits * i % 32) & mask)) - UNIT - zero
    })
}

/// Converts E4M3 numbers.
#[inline(always)]
fn of_fp8<T: Number4>(words: [u32; 2]) -> [f32; COUNT as usize] {
    let pairs = words.map(e4m3::<T>);
    // Each register contains numbers i and i + 2.
    from_fn(|i| T::widened(pairs[i / 4][i % 2] >> (16 * (i % 4 / 2)) & 0xffff))
}

/// Converts E2M1 numbers.
#[inline(always)]
fn of_fp4(word: u32) -> [f32; COUNT as usize] {
    from_fn(|i| {
        let code = word >> (4 * i);
        // The exponent and mantissa become those of an `f32`, whose exponent has a bias that is larger by 126.
        f32::from_bits((code & 8) << 28 | (code & 7) << 22) * f32::from_bits(0x7e80_0000)
    })
}
