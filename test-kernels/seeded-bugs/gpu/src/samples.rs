//! Samples of NVIDIA's compute-sanitizer, rewritten, <https://github.com/NVIDIA/compute-sanitizer-samples>, and the
//! kinds of bugs that the Indigo suite seeds in graph kernels: Liu, Azami, Walters, Burtscher: The Indigo
//! program-verification microbenchmark suite, ISPASS 2022; <https://github.com/burtscher/IndigoSuite>.

use gpu_std::atomic::{Atomic, Ordering};
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

/// Racecheck/block_error: one thread sums elements that all threads have written, without a barrier.
#[kernel]
unsafe fn block_error(data: *mut u32, sum: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(data.add(own()).read() + own() as u32); //~
        if own() == 0 {
            for i in 0..64 {
                sum.write(sum.read() + tile.add(i).read()); //~
            }
        }
    }
}

/// Racecheck/warp_error: the first lane of a warp sums elements that the warp has written, without `sync_warp`.
#[kernel]
unsafe fn warp_error(data: *mut u32, sum: *mut u32) {
    let (first, second) = (shared_array![u32; 64], shared_array![u32; 2]);
    unsafe {
        first.add(own()).write(data.add(own()).read() + own() as u32); //~
        if own().is_multiple_of(32) {
            let warp = own() / 32;
            second.add(warp).write(0);
            for i in 0..32 {
                second.add(warp).write(second.add(warp).read() + first.add(warp * 32 + i).read()); //~
            }
        }
        thread::sync_threads();
        if own() == 0 {
            sum.write(second.read() + second.add(1).read());
        }
    }
}

/// Memcheck/memcheck_demo: a misaligned access at an odd address.
#[kernel]
unsafe fn misaligned(data: *mut u32) {
    unsafe {
        data.byte_add(1 + 8 * own()).write(42); //~
    }
}

/// Initcheck/memset_error: only a quarter of the buffer was set to zero, because its length was used as its size.
#[kernel]
unsafe fn memset_error(data: *mut u32, unset: *mut u32) {
    unsafe {
        let from = if own() < 16 { data } else { unset };
        *from.add(own()) += own() as u32; //~
    }
}

/// Synccheck/illegal_syncwarp: a lane calls `sync_warp` with a mask that does not contain it.
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

/// Indigo's atomicBug in a push kernel: neighbors are updated without atomics.
#[kernel]
unsafe fn push_without_atomics(data: *mut u32) {
    unsafe {
        let neighbor = data.add((global() * 7 + 3) % 64);
        let value = neighbor.read(); //~
        if value < global() as u32 {
            neighbor.write(global() as u32); //~
        }
    }
}

/// Indigo's guardBug: the value is tested with a plain read, to save the atomic.
#[kernel]
unsafe fn unguarded_test(data: *mut u32) {
    unsafe {
        let value = data.read(); //~
        if value < global() as u32 {
            at(data, 0).fetch_max(global() as u32, Ordering::Relaxed); //~
        }
    }
}

/// Indigo's raceBug: worklist slots are allocated by a plain counter.
#[kernel]
unsafe fn worklist_without_atomics(data: *mut u32) {
    if global().is_multiple_of(2) {
        unsafe {
            let place = data.read(); //~
            data.write(place + 1); //~
            data.add(1 + place as usize).write(global() as u32); //~
        }
    }
}

/// Indigo's syncBug: the results of the warps are read before they are written.
#[kernel]
unsafe fn warps_without_barrier(data: *mut u32) {
    let sums = shared_array![u32; 2];
    let sum = warp::reduce_add(u32::MAX, own() as u32);
    unsafe {
        if own().is_multiple_of(32) {
            sums.add(own() / 32).write(sum); //~
        }
        if own() == 0 {
            data.add(block::linear_index()).write(sums.read() + sums.add(1).read()); //~
        }
    }
}

/// Indigo's boundsBug: the last neighbor of the last node does not exist.
#[kernel]
unsafe fn neighbors_out_of_bounds(starts: *mut u32, neighbors: *mut u32) {
    unsafe {
        let from = starts.add(own()).read() as usize + own() * 4;
        let mut sum = 0;
        for i in from..=from + 4 {
            sum += neighbors.add(i).read(); //~
        }
        starts.add(64 + own()).write(sum);
    }
}

/// Indigo's path compression without atomics: paths are shortened while other threads follow them.
#[kernel]
unsafe fn path_compression(parents: *mut u32) {
    unsafe {
        let parent = |node: u32| parents.add(node as usize);
        let mut node = global() as u32;
        let next = parent(node / 2).read(); //~
        parent(node / 2).write(next.min(node / 4)); //~
        node = next;
        parent(256 + global() as u32).write(node);
    }
}

/// Indigo's bounded pull, correct: each node reads its neighbors and writes its own result elsewhere.
#[kernel]
unsafe fn pull(data: *mut u32) {
    unsafe {
        let sum = data.add(global() / 2).read() + data.add((global() + 1) % 256).read();
        data.add(256 + global()).write(sum);
    }
}

/// Indigo's worklist, correct.
#[kernel]
unsafe fn worklist(data: *mut u32) {
    if global().is_multiple_of(2) {
        unsafe {
            let place = at(data, 0).fetch_add(1, Ordering::Relaxed);
            data.add(1 + place as usize).write(global() as u32);
        }
    }
}

cases! {
    block_error: Access(Race), Some(Racecheck), blocks(1, 64, &[zeros(256), zeros(4)]);
    warp_error: Access(Race), Some(Racecheck), blocks(1, 64, &[zeros(256), zeros(4)]);
    misaligned: Access(Misaligned), Some(Memcheck), ONE_BLOCK;
    memset_error: Access(Uninitialized), Some(Initcheck), blocks(1, 64, &[zeros(256), uninit(256)]);
    illegal_syncwarp: Collective("mask"), Some(Synccheck), blocks(1, 64, &[zeros(4096)]);
    push_without_atomics: Access(Race), None, FOUR_BLOCKS;
    unguarded_test: Access(Race), None, FOUR_BLOCKS;
    worklist_without_atomics: Access(Race), None, FOUR_BLOCKS;
    warps_without_barrier: Access(Race), Some(Racecheck), FOUR_BLOCKS;
    neighbors_out_of_bounds: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(512), zeros(1024)]);
    path_compression: Access(Race), None, FOUR_BLOCKS;
    pull: Nothing, None, FOUR_BLOCKS;
    worklist: Nothing, None, FOUR_BLOCKS;
}
