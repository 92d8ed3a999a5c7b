//! `dropout`: keeps each element or sets it to 0.

use gpu_std::prelude::*;
use gpu_std::random::{Philox, uniform};

use super::Place;
use crate::tile::{aligned, each, for_each, in_first_row};

/// Number of elements that share a block of four words.
const CHUNK: usize = 4;

/// Dropout: if a uniform `f32` number in (0, 1] is below `keep[0]`, `y[i]` is `x[i]` · `keep[1]` and `mask[i]` is 1.
/// Otherwise, both are 0. The length of the shortest array applies.
///
/// Element i uses word i % 4 of the first block of words in subsequence i / 4. The mask therefore depends only on the
/// seed and the offset. The offset advances by 4.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + y.bytes() + mask.bytes()
)]
pub fn dropout<T: Float, const ITEMS: usize, const VECTOR: usize>(
    seed: u64,
    offset: u64,
    base: &[u64],
    keep: [f64; 2],
    x: &[T],
    mut y: DisjointMut<T>,
    mut mask: DisjointMut<u8>,
) {
    if !in_first_row() {
        return;
    }
    let len = x.len().min(y.len()).min(mask.len());
    let (x, y, mask) = (x.as_ptr(), y.as_mut_ptr(), mask.as_mut_ptr());
    let place = Place::new(seed, offset, base);
    let (threshold, scale) = (keep[0] as f32, keep[1].cast::<T::Accumulator>());
    let kept = |chunk: usize| {
        Philox::at_block(place.seed, chunk as u64, place.block).next4().map(|word| uniform(word) < threshold)
    };
    let scaled = |x: T, kept: bool| if kept { T::from_acc(x.to_acc() * scale) } else { T::ZERO };
    let whole = len / CHUNK;
    let fits = aligned::<u8, CHUNK>(mask)
        && x.addr().is_multiple_of(Vector::<T, CHUNK>::ALIGN)
        && y.addr().is_multiple_of(Vector::<T, CHUNK>::ALIGN);
    if fits {
        for_each::<Vector<T, CHUNK>, ITEMS>(
            whole,
            // SAFETY: the chunk is in bounds, and all three arrays are aligned for accesses to whole chunks.
            |chunk| unsafe { Vector::load(x.add(chunk * CHUNK)) },
            |chunk, x| {
                let (kept, x) = (kept(chunk), x.to_array());
                let mut y_row = [T::ZERO; CHUNK];
                each::<CHUNK>(|i| y_row[i] = scaled(x[i], kept[i]));
                // SAFETY: as above; each chunk is visited only once.
                unsafe {
                    Vector::from_array(y_row).store(y.add(chunk * CHUNK));
                    Vector::from_array(kept.map(|kept| kept as u8)).store(mask.add(chunk * CHUNK));
                }
            },
        );
    }
    // The elements after the last whole chunk, or all elements if the arrays are not aligned.
    let first = if fits { whole * CHUNK } else { 0 };
    for_each::<(), 1>(
        len - first,
        |_| (),
        |i, ()| {
            let i = first + i;
            // Dynamic indexing would place the array in local memory.
            let [a, b, c, d] = kept(i / CHUNK).map(u32::from);
            let kept = (a | b << 1 | c << 2 | d << 3) >> (i % CHUNK) & 1 == 1;
            // SAFETY: the element is in bounds of all three arrays and is visited only once.
            unsafe {
                y.add(i).write(scaled(x.add(i).read(), kept));
                mask.add(i).write(kept as u8);
            }
        },
    );
}
