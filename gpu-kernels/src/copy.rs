//! `copy`: copies bytes from one array to another.

use gpu_std::elementwise::map;
use gpu_std::prelude::*;

use crate::tile::{Split, for_each, in_first_row, lanes, load, realign, store, with_lanes};

/// Copies `src` to `dst`, up to the length of the shorter array.
///
/// There is one instance per element size (`u8`, `u16`, `u32`, `u64`), which can copy any plain type of that size.
/// Instances with 16-byte accesses use these accesses even if the alignment of the two arrays differs modulo 16 bytes.
/// In that case, for each store, a thread loads the two aligned 16-byte words that contain the data, and shifts them.
/// Instances with 4-byte accesses copy such arrays element by element.
#[kernel(
    types(T = u8, u16, u32, u64),
    consts(ITEMS = 1, 2, 4, 8; VECTOR = 4, 16),
    launch_bounds(512),
    bytes = src.bytes() + dst.bytes()
)]
pub fn copy<T: Scalar, const ITEMS: usize, const VECTOR: usize>(src: &[T], mut dst: DisjointMut<T>) {
    let len = src.len().min(dst.len());
    let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
    // SAFETY: both arrays are valid for `len` elements, a disjoint view overlaps nothing else, and all threads make the
    // same call.
    unsafe {
        if VECTOR == 16 && !(src.addr() ^ dst.addr()).is_multiple_of(16) {
            with_lanes!(lanes::<T>(16), N => copy_shifted::<T, N>(src, dst, len));
        } else {
            map::<ITEMS, VECTOR, _, _>((src,), dst, len, |(value,)| value);
        }
    }
}

/// Copies arrays whose alignment differs modulo 16 bytes.
///
/// # Safety
/// Both pointers must be valid for `len` elements and must not overlap, and all threads of the launch must make the
/// same call.
#[inline(always)]
unsafe fn copy_shifted<T: Scalar, const N: usize>(src: *const T, dst: *mut T, len: usize) {
    if !in_first_row() {
        return;
    }
    let whole = Split::new::<T, N>(dst, len);
    // The bytes of a vector span two aligned 16-byte words, starting at byte `shift` of the first word. Neither word
    // may extend outside the source, so the vectors at the ends of the source are copied element by element.
    let shift = src.wrapping_add(whole.head).addr() % 16;
    let first = (whole.head * size_of::<T>() < shift) as usize;
    let vectors = if whole.vectors > first { whole.vectors - first - 1 } else { 0 };
    let head = whole.head + if vectors > 0 { first * N } else { 0 };
    let split = Split { head, vectors, tail: head + vectors * N };
    // SAFETY: `edges` visits only indices below `len`.
    split.edges(len, |i| unsafe { dst.add(i).write(src.add(i).read()) });
    let aligned = src.wrapping_add(head).wrapping_byte_sub(shift).cast::<u32>();
    for_each::<([u32; 4], [u32; 4]), 1>(
        vectors,
        // SAFETY: the accesses are aligned, and within the source as explained above.
        |i| unsafe { (load(aligned.add(4 * i)), load(aligned.add(4 * i + 4))) },
        // SAFETY: vector i covers the `N` elements from `head + i * N` on, which are all below `tail`, and `Split`
        // aligns it.
        |i, (low, high)| unsafe { store(dst.add(head).cast::<u32>().add(4 * i), realign(low, high, shift)) },
    );
}
