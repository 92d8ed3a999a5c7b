//! Races in global memory, within and between blocks.

use gpu_std::prelude::*;

fn own() -> usize {
    thread::linear_in_block() as usize
}

fn global() -> usize {
    thread::unique_index().get()
}

/// Counts without atomics.
#[kernel]
unsafe fn lossy_histogram(bins: *mut u32) {
    unsafe { *bins.add(global() % 16) += 1 }; //~
}

/// Each element is the mean of its neighbors, in place.
#[kernel]
unsafe fn stencil_in_place(data: *mut u32) {
    let at = global().clamp(1, 254);
    unsafe {
        let sum = data.add(at - 1).read() + data.add(at + 1).read(); //~
        data.add(at).write(sum / 2); //~
    }
}

/// Every block writes the same element.
#[kernel]
unsafe fn all_blocks_write(out: *mut u32) {
    if own() == 0 {
        unsafe { out.write(1) }; //~
    }
}

/// The first block writes an element that the others read.
#[kernel]
unsafe fn set_by_first_block(data: *mut u32) {
    unsafe {
        if global() == 0 {
            data.write(7); //~
        } else if own() == 0 {
            data.add(100 + block::linear_index()).write(data.read()); //~
        }
    }
}

/// A maximum by compare and store, without atomics.
#[kernel]
unsafe fn plain_maximum(out: *mut u32) {
    unsafe {
        let smallest = out.read(); //~
        if smallest < global() as u32 {
            out.write(global() as u32); //~
        }
    }
}

/// Slots are allocated by a plain counter.
#[kernel]
unsafe fn plain_allocation(data: *mut u32) {
    unsafe {
        let place = data.read(); //~
        data.write(place + 1); //~
    }
}

/// Blocks overlap by one element.
#[kernel]
unsafe fn overlapping_blocks(data: *mut u32) {
    let at = block::linear_index() * 63 + own();
    unsafe { data.add(at).write(at as u32) }; //~
}

/// The grid barrier between two phases is missing.
#[kernel(cooperative)]
unsafe fn no_grid_barrier(data: *mut u32) {
    unsafe {
        data.add(global()).write(1); //~
        let other = (global() + 64) % 256;
        data.add(256 + global()).write(data.add(other).read()); //~
    }
}

/// A block barrier is used instead of a grid barrier.
#[kernel(cooperative)]
unsafe fn block_barrier_for_grid(data: *mut u32) {
    unsafe {
        data.add(global()).write(1); //~
        thread::sync_threads();
        let other = (global() + 64) % 256;
        data.add(256 + global()).write(data.add(other).read()); //~
    }
}

/// The blocks of a cluster read each other's elements without a barrier.
#[kernel]
unsafe fn no_cluster_barrier(data: *mut u32) {
    unsafe {
        data.add(global()).write(1); //~
        thread::sync_threads();
        data.add(256 + global()).write(data.add(global() ^ 64).read()); //~
    }
}

/// The cluster synchronizes, but the blocks belong to two clusters.
#[kernel]
unsafe fn other_cluster(data: *mut u32) {
    unsafe {
        data.add(global()).write(1); //~
        cluster::sync();
        data.add(256 + global()).write(data.add(global() ^ 128).read()); //~
    }
}

/// Writes between the halves of a barrier an element that the other block reads after it.
#[kernel]
unsafe fn written_after_arrival(data: *mut u32) {
    unsafe {
        cluster::arrive();
        data.add(global()).write(1); //~
        cluster::wait();
        data.add(256 + global()).write(data.add(global() ^ 64).read()); //~
    }
}

/// Reads between the halves of a barrier an element that the other block has written before it.
#[kernel]
unsafe fn read_before_wait(data: *mut u32) {
    unsafe {
        data.add(global()).write(1); //~
        cluster::arrive();
        data.add(256 + global()).write(data.add(global() ^ 64).read()); //~
        cluster::wait();
    }
}

/// One block uses whole barriers, the other split ones (arrive and wait), and writes in between.
#[kernel]
unsafe fn halves_and_wholes(data: *mut u32) {
    unsafe {
        if cluster::block_rank() == 0 {
            cluster::sync();
            data.add(256 + global()).write(data.add(64 + global()).read()); //~
        } else {
            cluster::arrive();
            data.add(global()).write(1); //~
            cluster::wait();
        }
    }
}

/// Two blocks write the same byte.
#[kernel]
unsafe fn shared_bytes(data: *mut u8) {
    let at = block::linear_index() * 63 + own();
    unsafe { data.add(at).write(at as u8) }; //~
}

/// 64-bit accesses overlap 32-bit accesses.
#[kernel]
unsafe fn double_words_over_words(data: *mut u32) {
    unsafe {
        match block::linear_index() {
            0 => data.add(own()).write(1),                             //~
            1 if own() < 32 => data.cast::<u64>().add(own()).write(2), //~
            _ => {}
        }
    }
}

/// Vector accesses of four words overlap word accesses.
#[kernel]
unsafe fn vectors_over_words(data: *mut u32) {
    unsafe {
        match block::linear_index() {
            0 => data.add(own()).write(1),                              //~
            1 if own() < 16 => data.cast::<u128>().add(own()).write(2), //~
            _ => {}
        }
    }
}

/// One block clears an element that another has set.
#[kernel]
unsafe fn cleared(data: *mut u32) {
    unsafe {
        match block::linear_index() {
            0 => data.add(own()).write(1),              //~
            1 if own() == 0 => data.write_bytes(0, 64), //~
            _ => {}
        }
    }
}

cases! {
    lossy_histogram: Access(Race), None, FOUR_BLOCKS;
    stencil_in_place: Access(Race), None, FOUR_BLOCKS;
    all_blocks_write: Access(Race), None, FOUR_BLOCKS;
    set_by_first_block: Access(Race), None, FOUR_BLOCKS;
    plain_maximum: Access(Race), None, FOUR_BLOCKS;
    plain_allocation: Access(Race), None, FOUR_BLOCKS;
    overlapping_blocks: Access(Race), None, FOUR_BLOCKS;
    no_grid_barrier: Access(Race), None, FOUR_BLOCKS;
    block_barrier_for_grid: Access(Race), None, FOUR_BLOCKS;
    no_cluster_barrier: Access(Race), None, FOUR_BLOCKS.in_clusters();
    other_cluster: Access(Race), None, FOUR_BLOCKS.in_clusters();
    written_after_arrival: Access(Race), None, FOUR_BLOCKS.in_clusters();
    read_before_wait: Access(Race), None, FOUR_BLOCKS.in_clusters();
    halves_and_wholes: Access(Race), None, FOUR_BLOCKS.in_clusters();
    shared_bytes: Access(Race), None, FOUR_BLOCKS;
    double_words_over_words: Access(Race), None, FOUR_BLOCKS;
    vectors_over_words: Access(Race), None, FOUR_BLOCKS;
    cleared: Access(Race), None, FOUR_BLOCKS;
}
