//! Known algorithms with one line missing or wrong.

use gpu_std::atomic::{Atomic, Ordering, fence, scope};
use gpu_std::prelude::*;

fn own() -> usize {
    thread::linear_in_block() as usize
}

fn global() -> usize {
    thread::unique_index().get()
}

unsafe fn at<'a>(data: *mut u32, index: usize) -> &'a Atomic<u32> {
    unsafe { Atomic::from_ptr(data.add(index)) }
}

/// A tree reduction whose barrier is after the loop.
#[kernel]
unsafe fn reduction_without_barrier(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        thread::sync_threads();
        let mut distance = 32;
        while distance > 0 {
            if own() < distance {
                let other = tile.add(own() + distance).read(); //~
                tile.add(own()).write(tile.add(own()).read() + other); //~
            }
            distance /= 2;
        }
        thread::sync_threads();
        out.add(own()).write(tile.read());
    }
}

/// The last rounds of a reduction synchronize only half of the participating lanes.
#[kernel]
unsafe fn reduction_with_wrong_mask(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1); //~
        let mut distance = 16;
        while distance > 0 {
            if own() % 32 < 16 {
                warp::sync_warp(0x0000_ffff);
            }
            let other = tile.add(own() ^ distance).read(); //~
            if own() % 32 < 16 {
                warp::sync_warp(0x0000_ffff);
            }
            tile.add(own()).write(tile.add(own()).read() + other); //~
            distance /= 2;
        }
        out.add(own()).write(tile.read()); //~
    }
}

/// A double-buffered scan with a barrier in every other round only.
#[kernel]
unsafe fn scan_with_half_the_barriers(out: *mut u32) {
    let tiles = shared_array![u32; 128];
    unsafe {
        tiles.add(own()).write(1);
        thread::sync_threads();
        for round in 0..6usize {
            let (from, to) = (round % 2 * 64, (round + 1) % 2 * 64);
            let distance = 1 << round;
            let add = if own() >= distance { tiles.add(from + own() - distance).read() } else { 0 }; //~
            tiles.add(to + own()).write(tiles.add(from + own()).read() + add); //~
            if round % 2 == 1 {
                thread::sync_threads();
            }
        }
        out.add(own()).write(tiles.add(own()).read());
    }
}

/// A stencil whose halo is loaded after the barrier.
#[kernel]
unsafe fn late_halo(data: *mut u32) {
    let tile = shared_array![u32; 66];
    unsafe {
        tile.add(own() + 1).write(data.add(own()).read());
        thread::sync_threads();
        if own() == 0 {
            tile.write(1); //~
            tile.add(65).write(1); //~
        }
        let sum = tile.add(own()).read() + tile.add(own() + 2).read(); //~
        data.add(64 + own()).write(sum);
    }
}

/// A block histogram is added to the grid histogram before all threads have counted.
#[kernel]
unsafe fn early_histogram(bins: *mut u32) {
    let counts = shared_array![u32; 16];
    unsafe {
        if own() < 16 {
            counts.add(own()).write(0);
        }
        thread::sync_threads();
        let count = Atomic::<u32, scope::Block>::from_ptr(counts.add(own() % 16));
        count.fetch_add(1, Ordering::Relaxed); //~
        if own() < 16 {
            at(bins, own()).fetch_add(counts.add(own()).read(), Ordering::Relaxed); //~
        }
    }
}

/// A histogram without a barrier between clearing the counts and counting.
#[kernel]
unsafe fn late_clearing(bins: *mut u32) {
    let counts = shared_array![u32; 16];
    unsafe {
        if own() < 16 {
            counts.add(own()).write(0); //~
        }
        let count = Atomic::<u32, scope::Block>::from_ptr(counts.add((own() + 5) % 16));
        count.fetch_add(1, Ordering::Relaxed); //~
        thread::sync_threads();
        if own() < 16 {
            at(bins, own()).fetch_add(counts.add(own()).read(), Ordering::Relaxed);
        }
    }
}

/// A transposed tile is read without a barrier.
#[kernel]
unsafe fn transposed_too_early(out: *mut u32) {
    let tile = shared_array![u32; 64];
    let (row, column) = (own() / 8, own() % 8);
    unsafe {
        tile.add(row * 8 + column).write(own() as u32); //~
        out.add(own()).write(tile.add(column * 8 + row).read()); //~
    }
}

/// The tiles of a matrix product are overwritten while other threads still multiply.
#[kernel]
unsafe fn product_without_second_barrier(data: *mut u32) {
    let (a, b) = (shared_array![u32; 64], shared_array![u32; 64]);
    let (row, column) = (own() / 8, own() % 8);
    let mut sum = 0;
    unsafe {
        for step in 0..3 {
            a.add(own()).write(data.add(own()).read() + step); //~
            b.add(own()).write(data.add(64 + own()).read()); //~
            thread::sync_threads();
            for i in 0..8 {
                sum += a.add(row * 8 + i).read() * b.add(i * 8 + column).read(); //~
            }
        }
        data.add(128 + own()).write(sum);
    }
}

/// In a step of a bitonic sort, both threads of a pair write both elements.
#[kernel]
unsafe fn bitonic_by_both(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write((own() as u32 * 37) % 64);
        thread::sync_threads();
        let other = own() ^ 8;
        let pair = [tile.add(own().min(other)).read(), tile.add(own().max(other)).read()]; //~
        tile.add(own().min(other)).write(pair[0].min(pair[1])); //~
        tile.add(own().max(other)).write(pair[0].max(pair[1])); //~
        thread::sync_threads();
        out.add(own()).write(tile.add(own()).read());
    }
}

/// The maximum is stored with a plain write by each thread that finds a larger value.
#[kernel]
unsafe fn plain_shared_maximum(out: *mut u32) {
    let largest = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            largest.write(0);
        }
        thread::sync_threads();
        let value = largest.read(); //~
        if value < own() as u32 {
            largest.write(own() as u32); //~
        }
        thread::sync_threads();
        out.add(own()).write(largest.read());
    }
}

/// The flag for an empty buffer is polled with relaxed ordering before the buffer is overwritten.
#[kernel]
unsafe fn buffer_overwritten(out: *mut u32) {
    let (flags, buffer) = (shared_array![u32; 2], shared_array![u32; 1]);
    unsafe {
        if own() == 0 {
            flags.write(0);
            flags.add(1).write(1);
        }
        thread::sync_threads();
        let [full, empty] = [0, 1].map(|i| Atomic::<u32, scope::Block>::from_ptr(flags.add(i)));
        for round in 1..4 {
            if own() == 0 {
                while empty.load(Ordering::Relaxed) != round {}
                buffer.write(round); //~
                full.store(round, Ordering::Release);
            } else if own() == 32 {
                while full.load(Ordering::Acquire) != round {}
                out.add(round as usize).write(buffer.read()); //~
                empty.store(round + 1, Ordering::Release);
            }
        }
    }
}

/// A thread polls a flag that is not atomic; it gives up, so that it ends.
#[kernel]
unsafe fn plain_flag(out: *mut u32) {
    let flag = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            flag.write(0);
        }
        thread::sync_threads();
        if own() == 0 {
            flag.write_volatile(1); //~
        } else if own() == 32 {
            let mut tries = 0;
            let mut seen = 0;
            while seen == 0 && tries < 10 {
                seen = flag.read_volatile(); //~
                tries += 1;
            }
            out.write(tries);
        }
    }
}

/// A ticket lock whose now-serving counter has block scope.
#[kernel]
unsafe fn narrow_tickets(data: *mut u32) {
    if own() == 0 {
        unsafe {
            let ticket = at(data, 0).fetch_add(1, Ordering::Relaxed);
            let served = Atomic::<u32, scope::Block>::from_ptr(data.add(1));
            while served.load(Ordering::Acquire) != ticket {} //~
            data.add(2).write(data.add(2).read() + 1); //~
            served.fetch_add(1, Ordering::Release); //~
        }
    }
}

/// A scan with decoupled look-back: the predecessor publishes its sum with relaxed ordering.
#[kernel(cooperative)]
unsafe fn look_back_relaxed(data: *mut u32) {
    if own() == 0 {
        let index = block::linear_index();
        unsafe {
            let mut sum = 1;
            if index > 0 {
                while at(data, index - 1).load(Ordering::Relaxed) == 0 {}
                sum += data.add(16 + index - 1).read(); //~
            }
            data.add(16 + index).write(sum); //~
            at(data, index).store(1, Ordering::Relaxed);
        }
    }
}

/// A queue: slots are taken with an atomic, but read without checking that they are filled.
#[kernel]
unsafe fn queue_without_flags(data: *mut u32) {
    if own() == 0 {
        unsafe {
            let place = at(data, 0).fetch_add(1, Ordering::AcqRel) as usize;
            data.add(16 + place).write(1); //~
            let last = at(data, 0).load(Ordering::Acquire) as usize - 1;
            data.add(32 + place).write(data.add(16 + (last + 3) % 4).read()); //~
        }
    }
}

/// Warp-aggregated counting: one lane counts for its warp, without an atomic.
#[kernel]
unsafe fn warp_aggregated_plainly(data: *mut u32) {
    let lanes = warp::ballot(u32::MAX, global().is_multiple_of(3)).count_ones();
    if own().is_multiple_of(32) {
        unsafe { *data += lanes }; //~
    }
}

/// The last block sums parts that all threads of other blocks wrote, but only one thread of each had a fence.
#[kernel]
unsafe fn last_block_without_barrier(data: *mut u32) {
    let is_last = shared_array![bool; 1];
    unsafe {
        data.add(16 + global()).write(1); //~
        if own() == 0 {
            fence::<scope::Device>(Ordering::AcqRel);
            is_last.write(at(data, 0).fetch_add(1, Ordering::Relaxed) == 3);
            fence::<scope::Device>(Ordering::AcqRel);
        }
        thread::sync_threads();
        if is_last.read() {
            data.add(300 + own()).write(data.add(16 + own() * 4).read()); //~
        }
    }
}

/// Blocks of a cluster read each other's distributed shared memory before it is written.
#[kernel]
unsafe fn cluster_reads_early(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(own() as u32); //~
        thread::sync_threads();
        let other = cluster::map_shared(tile, cluster::block_rank() ^ 1);
        let value = other.add(own()).read(); //~
        out.add(global()).write(value);
        cluster::sync();
    }
}

/// A block of a cluster overwrites an element that the other still reads.
#[kernel]
unsafe fn cluster_overwrites(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        cluster::sync();
        let other = cluster::map_shared(tile, cluster::block_rank() ^ 1);
        let value = other.add(own()).read(); //~
        tile.add(own()).write(value + 1); //~
        cluster::sync();
        out.add(global()).write(tile.add(own()).read());
    }
}

/// A block accesses an element past the end of the other block's shared array.
#[kernel]
unsafe fn past_shared_of_cluster(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        cluster::sync();
        let other = cluster::map_shared(tile, cluster::block_rank() ^ 1);
        let value = other.add(own() + 1).read(); //~
        cluster::sync();
        out.add(global()).write(value);
    }
}

/// A shuffle whose mask names lanes that take the other branch.
#[kernel]
unsafe fn shuffle_in_branch(out: *mut u32) {
    let mut value = own() as u32;
    if own() % 32 < 20 {
        value = warp::shuffle_xor(u32::MAX, value, 1);
    }
    unsafe { out.add(global()).write(value) };
}

/// Lanes of a warp call with different masks.
#[kernel]
unsafe fn different_masks(out: *mut u32) {
    let mask = if own() % 32 == 7 { 0x0000_00ff } else { u32::MAX };
    let sum = warp::shuffle_down(mask, own() as u32, 1);
    unsafe { out.add(global()).write(sum) };
}

/// A lane calls `sync_warp` with a mask that does not contain it, as in the sample Synccheck/illegal_syncwarp of
/// <https://github.com/NVIDIA/compute-sanitizer-samples>.
#[kernel]
unsafe fn illegal_syncwarp(data: *mut u32) {
    let tile = shared_array![u32; 64];
    let mask = warp::ballot(u32::MAX, own() % 32 < 16);
    if own() % 32 <= 16 {
        unsafe { tile.add(own()).write(own() as u32) };
        warp::sync_warp(mask);
        unsafe { data.add(own()).write(tile.add(own() & !1).read()) };
    }
    thread::sync_threads();
}

/// Every other 64-bit access is misaligned.
#[kernel]
unsafe fn misaligned_double_words(data: *mut u32) {
    unsafe { data.add(3 * own()).cast::<u64>().write(1) }; //~
}

cases! {
    reduction_without_barrier: Access(Race), Some(Racecheck), ONE_BLOCK;
    reduction_with_wrong_mask: Access(Race), Some(Racecheck), ONE_BLOCK;
    scan_with_half_the_barriers: Access(Race), Some(Racecheck), ONE_BLOCK;
    late_halo: Access(Race), Some(Racecheck), ONE_BLOCK;
    early_histogram: Access(Race), None, ONE_BLOCK;
    late_clearing: Access(Race), None, ONE_BLOCK;
    transposed_too_early: Access(Race), Some(Racecheck), ONE_BLOCK;
    product_without_second_barrier: Access(Race), Some(Racecheck), blocks(1, 64, &[zeros(4096)]);
    bitonic_by_both: Access(Race), Some(Racecheck), ONE_BLOCK;
    plain_shared_maximum: Access(Race), Some(Racecheck), ONE_BLOCK;
    plain_flag: Access(Race), Some(Racecheck), ONE_BLOCK;
    buffer_overwritten: Access(Race), Some(Racecheck), ONE_BLOCK;
    narrow_tickets: Access(NarrowScope), None, FOUR_BLOCKS;
    look_back_relaxed: Access(Race), None, FOUR_BLOCKS;
    queue_without_flags: Access(Race), None, FOUR_BLOCKS;
    warp_aggregated_plainly: Access(Race), None, FOUR_BLOCKS;
    last_block_without_barrier: Access(Race), None, FOUR_BLOCKS;
    cluster_reads_early: Access(Race), Some(Racecheck), FOUR_BLOCKS.in_clusters();
    cluster_overwrites: Access(Race), Some(Racecheck), FOUR_BLOCKS.in_clusters();
    past_shared_of_cluster: Access(OutOfBounds), Some(Memcheck), FOUR_BLOCKS.in_clusters();
    shuffle_in_branch: Collective("mask"), None, FOUR_BLOCKS;
    different_masks: Collective("mask"), None, FOUR_BLOCKS;
    illegal_syncwarp: Collective("mask"), Some(Synccheck), blocks(1, 64, &[zeros(4096)]);
    misaligned_double_words: Access(Misaligned), Some(Memcheck), blocks(1, 64, &[zeros(1024)]);
}
