//! Accesses at addresses that are no multiples of their size: in a release build, as a debug build ends the program at them.

use gpu_std::prelude::*;

use crate::launches::{Buffer, cases};
use crate::*;

fn own() -> usize {
    thread::linear_in_block() as usize
}

fn bytes() -> Vec<Buffer> {
    vec![Buffer::zeros::<u8>(600)]
}

/// A word at an odd address.
#[kernel]
unsafe fn odd_word(out: *mut u8) {
    unsafe { out.add(own() * 4 + 1).cast::<u32>().write(1) }; //~
}

/// A double word that follows one word.
#[kernel]
unsafe fn double_word_after_word(data: *mut u8, out: *mut u64) {
    unsafe { out.add(own()).write(data.add(own() * 8 + 4).cast::<u64>().read()) }; //~
}

cases! {
    odd_word: Some(Misaligned), launch::<K>(1, 64, bytes);
    double_word_after_word: Some(Misaligned), launch::<K>(1, 64, || vec![Buffer::zeros::<u64>(65), Buffer::zeros::<u64>(64)]);
}
