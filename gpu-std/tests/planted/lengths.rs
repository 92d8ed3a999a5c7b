//! Shared arrays whose lengths come with the launch: accesses outside of one, which on a GPU reach the next, and clean use.

use gpu_std::prelude::*;

use crate::launches::{Buffer, cases, launch_lengths};
use crate::*;

fn own() -> usize {
    thread::linear_in_block() as usize
}

fn words() -> Vec<Buffer> {
    vec![Buffer::zeros::<u32>(256)]
}

/// One element past the first array, where the second begins.
#[kernel]
unsafe fn past_the_first(out: *mut u32, mut first: Shared<[u32]>, mut second: Shared<[u32]>) {
    second.fill(|[i]| i as u32);
    let first = first.fill(|[i]| i as u32).as_ptr();
    unsafe { out.add(own()).write(first.add(own() + 1).read()) }; //~
}

/// One element past the last array.
#[kernel]
unsafe fn past_the_last(out: *mut u32, mut first: Shared<[u32]>, mut second: Shared<[u32]>) {
    first.fill(|[i]| i as u32);
    let second = second.fill(|[i]| i as u32).as_ptr();
    unsafe { out.add(own()).write(second.add(own() + 1).read()) }; //~
}

/// Writes through the pointer what others read.
#[kernel]
unsafe fn written_while_read(out: *mut u32, mut first: Shared<[u32]>, mut second: Shared<[u32]>) {
    second.zeroed();
    let first = first.zeroed().as_ptr();
    unsafe {
        first.cast_mut().add(own()).write(1); //~
        out.add(own()).write(first.add(own() ^ 1).read()); //~
    }
}

/// Fills, changes and reads both, again and again.
#[kernel]
unsafe fn arrays_in_turn(out: *mut u32, mut first: Shared<[u32]>, mut second: DoubleBuffer<[u32]>) {
    let mut sum = 0;
    for round in 0..3 {
        let tile = first.fill(|[i]| i as u32 + round);
        second.step(|old, [i]| old[(i + 1) % old.len()] + tile[i]);
        sum += first.update(|element, [_]| *element += 1)[63 - own()];
    }
    let last = second.current()[own() ^ 1];
    unsafe { out.add(block::linear_index() * 64 + own()).write(sum + last) };
}

cases! {
    past_the_first: Some(OutOfBounds), launch_lengths::<K>(1, 64, words, &[64, 64]);
    past_the_last: Some(OutOfBounds), launch_lengths::<K>(1, 64, words, &[64, 64]);
    written_while_read: Some(Race), launch_lengths::<K>(1, 64, words, &[64, 64]);
    arrays_in_turn: None, launch_lengths::<K>(4, 64, words, &[64, 64]);
}
