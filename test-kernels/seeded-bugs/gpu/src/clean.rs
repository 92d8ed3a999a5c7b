//! Kernels similar to those of the other tables, without bugs.

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

#[kernel]
unsafe fn rounds(out: *mut u32) {
    let tile = shared_array![u32; 64];
    let mut sum = 0;
    for round in 0..3 {
        unsafe {
            tile.add(own()).write(round);
            thread::sync_threads();
            sum += tile.add((own() + 33) % 64).read();
            thread::sync_threads();
        }
    }
    unsafe { out.add(global()).write(sum) };
}

#[kernel]
unsafe fn warp_reduction(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        warp::sync_warp(u32::MAX);
        let mut distance = 16;
        while distance > 0 {
            let other = tile.add(own() ^ distance).read();
            warp::sync_warp(u32::MAX);
            tile.add(own()).write(tile.add(own()).read() + other);
            warp::sync_warp(u32::MAX);
            distance /= 2;
        }
        out.add(global()).write(tile.add(own()).read());
    }
}

#[kernel]
unsafe fn half_warps(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        let mask = if own() % 32 < 16 { 0x0000_ffff } else { 0xffff_0000 };
        warp::sync_warp(mask);
        out.add(global()).write(tile.add(own() ^ 8).read());
    }
}

#[kernel]
unsafe fn bytes_beside_bytes(out: *mut u8) {
    let bytes = shared_array![u8; 64];
    unsafe {
        bytes.add(own()).write(own() as u8);
        out.add(global()).write(1);
        thread::sync_threads();
        out.add(global()).write(bytes.add(63 - own()).read());
    }
}

#[kernel]
unsafe fn last_block_with_fences(data: *mut u32) {
    let is_last = shared_array![bool; 1];
    unsafe {
        data.add(16 + global()).write(1);
        thread::device_fence();
        thread::sync_threads();
        if own() == 0 {
            let before = at(data, 0).fetch_add(1, Ordering::Relaxed);
            thread::device_fence();
            is_last.write(before == 3);
        }
        thread::sync_threads();
        if is_last.read() {
            data.add(300 + own()).write(data.add(16 + own() * 4).read());
        }
    }
}

#[kernel]
unsafe fn last_block_acquires(data: *mut u32) {
    unsafe {
        data.add(16 + global()).write(1);
        thread::sync_threads();
        if own() == 0 && at(data, 0).fetch_add(1, Ordering::AcqRel) == 3 {
            for part in 0..256 {
                data.add(1).write(data.add(16 + part).read());
            }
        }
    }
}

#[kernel]
unsafe fn lock(data: *mut u32) {
    if own() == 0 {
        unsafe {
            for _ in 0..5 {
                while at(data, 0).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
                data.add(1).write(data.add(1).read() + 1);
                at(data, 0).store(0, Ordering::Release);
            }
        }
    }
}

#[kernel(cooperative)]
unsafe fn flag_with_fences(data: *mut u32) {
    if own() == 0 {
        unsafe {
            if block::linear_index() == 0 {
                data.add(1).write(1);
                fence::<scope::Device>(Ordering::Release);
                at(data, 0).store(1, Ordering::Relaxed);
            } else {
                while at(data, 0).load(Ordering::Relaxed) == 0 {}
                fence::<scope::Device>(Ordering::Acquire);
                data.add(8 + block::linear_index()).write(data.add(1).read());
            }
        }
    }
}

#[kernel(cooperative)]
unsafe fn grid_barrier(data: *mut u32) {
    unsafe {
        for round in 0..3 {
            data.add(global()).write(round);
            grid::sync();
            data.add(256 + global()).write(data.add((global() + 64) % 256).read());
            grid::sync();
        }
    }
}

#[kernel]
unsafe fn cluster_barrier(data: *mut u32) {
    unsafe {
        for round in 0..3 {
            data.add(global()).write(round);
            cluster::sync();
            data.add(256 + global()).write(data.add(global() ^ 64).read());
            cluster::sync();
        }
    }
}

/// Work on thread-private memory between the halves of the barrier.
#[kernel]
unsafe fn cluster_halves(data: *mut u32) {
    unsafe {
        for round in 0..3 {
            data.add(global()).write(round);
            cluster::arrive();
            let own = data.add(256 + global());
            own.write(own.read() + 1);
            cluster::wait();
            own.write(own.read() + data.add(global() ^ 64).read());
            cluster::sync();
        }
    }
}

/// An exited thread counts as arrived.
#[kernel]
unsafe fn cluster_halves_of_some(data: *mut u32) {
    unsafe {
        data.add(global()).write(1);
        if own() % 2 == 1 {
            return;
        }
        cluster::arrive();
        data.add(256 + global()).write(1);
        cluster::wait();
        data.add(256 + global()).write(data.add(global() ^ 65).read());
    }
}

#[kernel]
unsafe fn block_counts(data: *mut u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if own() == 0 {
            count.write(0);
        }
        thread::sync_threads();
        Atomic::<u32, scope::Block>::from_ptr(count).fetch_add(1, Ordering::Relaxed);
        thread::sync_threads();
        data.add(global()).write(count.read());
        at(data, 400).fetch_add(1, Ordering::Relaxed);
    }
}

/// Each node of a graph reads its neighbors and writes its own result elsewhere.
#[kernel]
unsafe fn pull(data: *mut u32) {
    unsafe {
        let sum = data.add(global() / 2).read() + data.add((global() + 1) % 256).read();
        data.add(256 + global()).write(sum);
    }
}

/// Slots of a worklist are allocated by an atomic counter.
#[kernel]
unsafe fn worklist(data: *mut u32) {
    if global().is_multiple_of(2) {
        unsafe {
            let place = at(data, 0).fetch_add(1, Ordering::Relaxed);
            data.add(1 + place as usize).write(global() as u32);
        }
    }
}

/// A finding that a comment allows.
#[kernel]
unsafe fn allowed(out: *mut u32) {
    if own() == 0 {
        // warpsmith-check: allow every block writes the same value
        unsafe { out.write(1) };
    }
}

/// Printing, whose text may be in host memory.
#[kernel]
unsafe fn prints(out: *mut u32) {
    if own().is_multiple_of(16) {
        printf!("%u\n", own() as u32);
    }
    unsafe { out.add(global()).write(1) };
}

cases! {
    rounds: Nothing, None, FOUR_BLOCKS;
    warp_reduction: Nothing, None, FOUR_BLOCKS;
    half_warps: Nothing, None, FOUR_BLOCKS;
    bytes_beside_bytes: Nothing, None, FOUR_BLOCKS;
    last_block_with_fences: Nothing, None, FOUR_BLOCKS;
    last_block_acquires: Nothing, None, FOUR_BLOCKS;
    lock: Nothing, None, FOUR_BLOCKS;
    flag_with_fences: Nothing, None, FOUR_BLOCKS;
    grid_barrier: Nothing, None, FOUR_BLOCKS;
    cluster_barrier: Nothing, None, FOUR_BLOCKS.in_clusters();
    cluster_halves: Nothing, None, FOUR_BLOCKS.in_clusters();
    cluster_halves_of_some: Nothing, None, FOUR_BLOCKS.in_clusters();
    block_counts: Nothing, None, FOUR_BLOCKS;
    pull: Nothing, None, FOUR_BLOCKS;
    worklist: Nothing, None, FOUR_BLOCKS;
    allowed: Nothing, None, FOUR_BLOCKS;
    prints: Nothing, None, blocks(2, 64, &[zeros(4096)]);
}
