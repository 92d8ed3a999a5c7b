//! Sorts of small arrays by `core`, and reads with non-constant strides: code that LLVM 22 miscompiles in its
//! straight-line strength reduction.

use gpu_std::prelude::*;

/// Sorts each group of 32 bytes of `bytes`, and each group of 32 words of `words`, with [`slice::sort_unstable`].
#[kernel(stack = 4096)]
pub fn sort_arrays(mut bytes: DisjointMut<u8, Chunks<32>>, mut words: DisjointMut<i32, Chunks<32>>) {
    for i in thread::grid_stride(bytes.chunks()) {
        if let Some((bytes, words)) = bytes.get_mut(i).zip(words.get_mut(i)) {
            let (mut some_bytes, mut some_words) = ([0; 32], [0; 32]);
            some_bytes.copy_from_slice(bytes);
            some_words.copy_from_slice(words);
            some_bytes.sort_unstable();
            some_words.sort_unstable_by(|a, b| b.cmp(a));
            bytes.copy_from_slice(&some_bytes);
            words.copy_from_slice(&some_words);
        }
    }
}

/// For each of `starts`, reads the elements of `x` at `start + 100`, which may wrap, and at `start`; 0 outside of `x`.
#[kernel]
pub fn read_wrapped(x: &[u32], starts: &[i32], mut out: DisjointMut<u32, Chunks<2>>) {
    for i in thread::grid_stride(out.chunks()) {
        if let Some(out) = out.get_mut(i) {
            let start = starts[i.get()];
            out.copy_from_slice(&wrapped(x, start));
        }
    }
}

/// Elements of `x` at `start + 100`, which may wrap, and at `start`; 0 outside of `x`.
pub fn wrapped(x: &[u32], start: i32) -> [u32; 2] {
    let at = |index: i32| match index.unsigned_abs() < x.len() as u32 {
        // Negative indices count from the middle.
        true => *x.get((x.len() as isize / 2 + index as isize) as usize).unwrap_or(&0),
        false => 0,
    };
    [at(start.wrapping_add(100)), at(start)]
}
