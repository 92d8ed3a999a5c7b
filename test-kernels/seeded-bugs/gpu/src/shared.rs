//! Races in shared memory, and uninitialized shared memory.

use gpu_std::atomic::{Atomic, Ordering, fence, scope};
use gpu_std::prelude::*;
use gpu_std::shared::dynamic;

fn own() -> usize {
    thread::linear_in_block() as usize
}

/// The barrier between the writes and the reads is missing.
#[kernel]
unsafe fn no_barrier(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(own() as u32); //~
        out.add(own()).write(tile.add(own() ^ 1).read()); //~
    }
}

/// The barrier comes before the writes.
#[kernel]
unsafe fn barrier_too_early(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        thread::sync_threads();
        tile.add(own()).write(own() as u32); //~
        out.add(own()).write(tile.add(63 - own()).read()); //~
    }
}

/// The next round writes while other threads still read.
#[kernel]
unsafe fn no_second_barrier(out: *mut u32) {
    let tile = shared_array![u32; 64];
    let mut sum = 0;
    for round in 0..3 {
        unsafe {
            tile.add(own()).write(round); //~
            thread::sync_threads();
            sum += tile.add((own() + 33) % 64).read(); //~
        }
    }
    unsafe { out.add(own()).write(sum) };
}

/// The last steps of a reduction rely on lockstep execution of the warp.
#[kernel]
unsafe fn warp_in_step(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        thread::sync_threads();
        if own() < 16 {
            let other = tile.add(own() + 16).read(); //~
            tile.add(own()).write(tile.add(own()).read() + other); //~
            let other = tile.add(own() + 8).read(); //~
            tile.add(own()).write(tile.add(own()).read() + other); //~
        }
        out.add(own()).write(1);
    }
}

/// A shuffle does not order memory accesses.
#[kernel]
unsafe fn shuffle_as_barrier(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(own() as u32); //~
        let value = warp::shuffle_xor(u32::MAX, 1u32, 1);
        out.add(own()).write(value + tile.add(own() ^ 1).read()); //~
    }
}

/// Half of the warp synchronizes, and reads elements that the other half writes.
#[kernel]
unsafe fn half_warp(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(own() as u32); //~
        let mask = if own() % 32 < 16 { 0x0000_ffff } else { 0xffff_0000 };
        warp::sync_warp(mask);
        out.add(own()).write(tile.add(own() ^ 16).read()); //~
    }
}

/// The warp synchronizes, and reads elements that the other warp writes.
#[kernel]
unsafe fn other_warp(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(own() as u32); //~
        warp::sync_warp(u32::MAX);
        out.add(own()).write(tile.add(own() ^ 32).read()); //~
    }
}

/// The barrier is missing, with dynamic shared memory.
#[kernel]
unsafe fn dynamic_no_barrier(out: *mut u32) {
    let tile = dynamic::<u32>();
    unsafe {
        tile.add(own()).write(own() as u32); //~
        out.add(own()).write(tile.add(own() ^ 1).read()); //~
    }
}

/// One thread writes an element that all threads read without a barrier.
#[kernel]
unsafe fn broadcast(out: *mut u32) {
    let value = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            value.write(0);
        }
        thread::sync_threads();
        if own() == 0 {
            value.write(7); //~
        }
        out.add(own()).write(value.read()); //~
    }
}

/// Counts without atomics.
#[kernel]
unsafe fn plain_count(out: *mut u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            count.write(0);
        }
        thread::sync_threads();
        count.write(count.read() + 1); //~
        thread::sync_threads();
        out.add(own()).write(count.read());
    }
}

/// Plain reads concurrent with atomic counting.
#[kernel]
unsafe fn plain_beside_atomic(out: *mut u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            count.write(0);
        }
        thread::sync_threads();
        Atomic::<u32, scope::Block>::from_ptr(count).fetch_add(1, Ordering::Relaxed); //~
        out.add(own()).write(count.read()); //~
    }
}

/// A flag with relaxed ordering announces data.
#[kernel]
unsafe fn relaxed_flag(out: *mut u32) {
    let (flag, data) = (shared_array![u32; 1], shared_array![u32; 1]);
    unsafe {
        if own() == 0 {
            flag.write(0);
            data.write(0);
        }
        thread::sync_threads();
        let flag = Atomic::<u32, scope::Block>::from_ptr(flag);
        if own() == 0 {
            data.write(1); //~
            flag.store(1, Ordering::Relaxed);
        } else if own() == 40 {
            while flag.load(Ordering::Relaxed) == 0 {}
            out.write(data.read()); //~
        }
    }
}

/// The same, with a fence on one side only.
#[kernel]
unsafe fn one_fence(out: *mut u32) {
    let (flag, data) = (shared_array![u32; 1], shared_array![u32; 1]);
    unsafe {
        if own() == 0 {
            flag.write(0);
            data.write(0);
        }
        thread::sync_threads();
        let flag = Atomic::<u32, scope::Block>::from_ptr(flag);
        if own() == 0 {
            data.write(1); //~
            fence::<scope::Block>(Ordering::Release);
            flag.store(1, Ordering::Relaxed);
        } else if own() == 40 {
            while flag.load(Ordering::Relaxed) == 0 {}
            out.write(data.read()); //~
        }
    }
}

/// Bytes: two threads write the same byte.
#[kernel]
unsafe fn same_byte(out: *mut u32) {
    let bytes = shared_array![u8; 64];
    unsafe {
        bytes.add(own() / 2).write(own() as u8); //~
        thread::sync_threads();
        out.add(own()).write(bytes.add(own() / 2).read().into());
    }
}

/// Half words: each thread reads its neighbor's.
#[kernel]
unsafe fn neighbor_half(out: *mut u32) {
    let halves = shared_array![u16; 64];
    unsafe {
        halves.add(own()).write(own() as u16); //~
        out.add(own()).write(halves.add(own() ^ 1).read().into()); //~
    }
}

/// Reads a byte of a word that another thread writes.
#[kernel]
unsafe fn byte_of_word(out: *mut u32) {
    let words = shared_array![u32; 64];
    unsafe {
        words.add(own()).write(own() as u32); //~
        out.add(own()).write(words.add(own() ^ 1).cast::<u8>().add(3).read().into()); //~
    }
}

/// Reads the upper half of a 64-bit word that another thread writes.
#[kernel]
unsafe fn half_of_double_word(out: *mut u32) {
    let words = shared_array![u64; 64];
    unsafe {
        words.add(own()).write(own() as u64); //~
        out.add(own()).write(words.add(own() ^ 1).cast::<u32>().add(1).read()); //~
    }
}

/// A row is copied as a whole while other threads write it.
#[kernel]
unsafe fn copied_row(out: *mut [u32; 64]) {
    let row = shared_array![u32; 64];
    unsafe {
        row.add(own()).write(1);
        thread::sync_threads();
        row.add(own()).write(2); //~
        if own() == 5 {
            core::ptr::copy_nonoverlapping(row.cast::<[u32; 64]>(), out, 1); //~
        }
    }
}

/// An in-place scan reads elements that the same step writes.
#[kernel]
unsafe fn scan_in_place(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        thread::sync_threads();
        let mut distance = 1;
        while distance < 64 {
            let add = if own() >= distance { tile.add(own() - distance).read() } else { 0 }; //~
            tile.add(own()).write(tile.add(own()).read() + add); //~
            thread::sync_threads();
            distance *= 2;
        }
        out.add(own()).write(tile.add(own()).read());
    }
}

/// One of two buffers is read before the barrier that ends its round.
#[kernel]
unsafe fn double_buffer(out: *mut u32) {
    let tiles = shared_array![u32; 128];
    let mut sum = 0;
    for round in 0..4usize {
        unsafe {
            let tile = tiles.add(round % 2 * 64);
            tile.add(own()).write(round as u32); //~
            if round % 2 == 0 {
                thread::sync_threads();
            }
            sum += tile.add((own() + 32) % 64).read(); //~
        }
    }
    unsafe { out.add(own()).write(sum) };
}

/// Reads before anything was written.
#[kernel]
unsafe fn unwritten(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        let value = tile.add(own()).read(); //~
        out.add(own()).write(value);
        tile.add(own()).write(value);
    }
}

/// Half of the elements are never written.
#[kernel]
unsafe fn half_unwritten(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        if own().is_multiple_of(2) {
            tile.add(own()).write(1);
        }
        thread::sync_threads();
        out.add(own()).write(tile.add(63 - own()).read()); //~
    }
}

/// A counter that is not initialized to zero.
#[kernel]
unsafe fn unset_counter(out: *mut u32) {
    let count = shared_array![u32; 1];
    unsafe {
        Atomic::<u32, scope::Block>::from_ptr(count).fetch_add(1, Ordering::Relaxed); //~
        thread::sync_threads();
        out.add(own()).write(1);
    }
}

/// Reads shared memory as if it kept the data of the previous block.
#[kernel]
unsafe fn of_the_block_before(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        if block::linear_index() == 0 {
            tile.add(own()).write(1);
        }
        out.add(block::linear_index() * 64 + own()).write(tile.add(own()).read()); //~
    }
}

cases! {
    no_barrier: Access(Race), Some(Racecheck), ONE_BLOCK;
    barrier_too_early: Access(Race), Some(Racecheck), ONE_BLOCK;
    no_second_barrier: Access(Race), Some(Racecheck), ONE_BLOCK;
    warp_in_step: Access(Race), Some(Racecheck), ONE_BLOCK;
    shuffle_as_barrier: Access(Race), Some(Racecheck), ONE_BLOCK;
    half_warp: Access(Race), Some(Racecheck), ONE_BLOCK;
    other_warp: Access(Race), Some(Racecheck), ONE_BLOCK;
    dynamic_no_barrier: Access(Race), Some(Racecheck), ONE_BLOCK.dynamic_shared(256);
    broadcast: Access(Race), Some(Racecheck), ONE_BLOCK;
    plain_count: Access(Race), Some(Racecheck), ONE_BLOCK;
    plain_beside_atomic: Access(Race), None, ONE_BLOCK;
    relaxed_flag: Access(Race), Some(Racecheck), ONE_BLOCK;
    one_fence: Access(Race), Some(Racecheck), ONE_BLOCK;
    same_byte: Access(Race), Some(Racecheck), ONE_BLOCK;
    neighbor_half: Access(Race), Some(Racecheck), ONE_BLOCK;
    byte_of_word: Access(Race), Some(Racecheck), ONE_BLOCK;
    half_of_double_word: Access(Race), Some(Racecheck), ONE_BLOCK;
    copied_row: Access(Race), Some(Racecheck), ONE_BLOCK;
    scan_in_place: Access(Race), None, ONE_BLOCK;
    double_buffer: Access(Race), Some(Racecheck), ONE_BLOCK;
    unwritten: Access(Uninitialized), None, ONE_BLOCK;
    half_unwritten: Access(Uninitialized), None, ONE_BLOCK;
    unset_counter: Access(Uninitialized), None, ONE_BLOCK;
    of_the_block_before: Access(Uninitialized), None, blocks(2, 64, &[zeros(512)]);
}
