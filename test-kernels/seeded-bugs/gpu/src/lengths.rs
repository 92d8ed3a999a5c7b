//! Dynamic shared memory as slices: accesses out of bounds of one slice, which reach the next one on a GPU, and correct
//! use.

use gpu_std::prelude::*;

fn own() -> usize {
    thread::linear_in_block() as usize
}

/// One element past the first array, where the second starts.
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

/// Writes elements through the pointer while others read them.
#[kernel]
unsafe fn written_while_read(out: *mut u32, mut first: Shared<[u32]>, mut second: Shared<[u32]>) {
    second.zeroed();
    let first = first.zeroed().as_ptr();
    unsafe {
        first.cast_mut().add(own()).write(1); //~
        out.add(own()).write(first.add(own() ^ 1).read()); //~
    }
}

/// Fills, changes and reads both arrays repeatedly.
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
    past_the_first: Access(OutOfBounds), None, ONE_BLOCK.dynamic_shared(1024).lengths(&[64, 64]);
    past_the_last: Access(OutOfBounds), None, ONE_BLOCK.dynamic_shared(1024).lengths(&[64, 64]);
    written_while_read: Access(Race), Some(Racecheck), ONE_BLOCK.dynamic_shared(1024).lengths(&[64, 64]);
    arrays_in_turn: Nothing, None, FOUR_BLOCKS.dynamic_shared(1024).lengths(&[64, 64]);
}
