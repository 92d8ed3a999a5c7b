//! Dequantization of int4 and int8 weights to 16-bit elements, for GEMMs that are bound by the tensor cores.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::vectorized::{load, store};

/// Number of threads per block.
pub const THREADS: u32 = 128;
/// Number of codes that a thread converts at once.
const CODES: u32 = 8;
/// Number of loads of a thread in flight.
const LOADS: usize = 4;
/// Bits of the `f32` 2^23, whose unit in the last place (ulp) is 1.
const UNIT: f32 = 8_388_608.0;

/// Computes `to = scales * (codes - zeros)`, rounded once. Block i converts column i of k codes. `BITS` is 4 for codes
/// without a sign, of which each byte contains two, the first in the lower four bits; their zero point is 8 without
/// `zeros`. `BITS` is 8 for signed codes, which have no zero points.
///
/// # Safety
///
/// k must be a multiple of 8, and the group size 2 to the power of `shift`, or k with a shift of 31. `codes` must have a
/// column of k codes per block and start on a 16-byte boundary, as must `to`, which has as many elements. `scales` and
/// `zeros` must have an element per group, in column-major order. The grid must be one-dimensional.
#[kernel(types(T = bf16, f16), consts(BITS = 4, 8), arch = 80, block(THREADS), no_panic)]
pub unsafe fn dequantize<T: Float, const BITS: usize>(
    codes: &[u8],
    scales: &[T],
    zeros: Option<&[u8]>,
    mut to: DisjointMut<T>,
    k: u32,
    shift: u32,
) {
    let column = u64::from(thread::block_idx_x());
    let groups = if shift == 31 { 1 } else { k >> shift };
    let first_group = (column * u64::from(groups)) as usize;
    let first = column * u64::from(k);
    let codes = codes.as_ptr().wrapping_add((first * BITS as u64 / 8) as usize);
    let to = to.as_mut_ptr().wrapping_add(first as usize);
    let mut at = CODES * thread::thread_idx_x();
    while at < k {
        let place = |load: usize| at + load as u32 * CODES * THREADS;
        let words: [[u32; 2]; LOADS] = from_fn(|i| {
            let from = codes.wrapping_add(place(i) as usize * BITS / 8).cast::<u32>();
            // SAFETY: these codes are in the column.
            unsafe {
                match (place(i) < k, BITS) {
                    (false, _) => [0; 2],
                    (true, 4) => [from.read(), 0],
                    (true, _) => load::<u32, 2>(from).map(|word| word ^ 0x8080_8080),
                }
            }
        });
        let mut i = 0;
        while i < LOADS {
            if place(i) < k {
                let group = first_group + (place(i) >> shift) as usize;
                // SAFETY: the group of these codes has a scale and a zero point.
                let (scale, zero) = unsafe {
                    let zero = zeros.map_or(8, |zeros| *zeros.get_unchecked(group) & 0x7f);
                    (scales.get_unchecked(group).cast::<f32>(), if BITS == 4 { zero } else { 128 })
                };
                let offset = UNIT + f32::from(zero);
                let elements: [T; CODES as usize] = from_fn(|code| {
                    let (word, mask) =
                        if BITS == 4 { (words[i][0], 0xf) } else { (words[i][code / 4], 0xff) };
                    let code = word >> (BITS * code % 32) & mask;
                    ((f32::from_bits(UNIT.to_bits() | code) - offset) * scale).cast()
                });
                // SAFETY: only this thread writes these elements, which are in the column.
                unsafe { store(to.wrapping_add(place(i) as usize), elements) };
            }
            i += 1;
        }
        at += CODES * THREADS * LOADS as u32;
    }
}
