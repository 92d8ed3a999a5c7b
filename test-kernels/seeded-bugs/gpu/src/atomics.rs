//! Atomics and fences with insufficient ordering.

use gpu_std::atomic::{Atomic, Ordering, fence, scope};
use gpu_std::prelude::*;

fn first() -> bool {
    thread::linear_in_block() == 0
}

unsafe fn at<'a>(data: *mut u32, index: usize) -> &'a Atomic<u32> {
    unsafe { Atomic::from_ptr(data.add(index)) }
}

unsafe fn in_block<'a>(data: *mut u32, index: usize) -> &'a Atomic<u32, scope::Block> {
    unsafe { Atomic::from_ptr(data.add(index)) }
}

/// The last block sums parts that the others have written, without fences.
#[kernel]
unsafe fn last_block(data: *mut u32) {
    if first() {
        unsafe {
            data.add(1 + block::linear_index()).write(1); //~
            if at(data, 0).fetch_add(1, Ordering::Relaxed) == 3 {
                for part in 0..4 {
                    data.add(10 + part).write(data.add(1 + part).read()); //~
                }
            }
        }
    }
}

/// The same, with a fence only after writing the parts.
#[kernel]
unsafe fn last_block_one_fence(data: *mut u32) {
    if first() {
        unsafe {
            data.add(1 + block::linear_index()).write(1); //~
            thread::device_fence();
            if at(data, 0).fetch_add(1, Ordering::Relaxed) == 3 {
                for part in 0..4 {
                    data.add(10 + part).write(data.add(1 + part).read()); //~
                }
            }
        }
    }
}

/// The same, with block-scope fences.
#[kernel]
unsafe fn last_block_narrow_fences(data: *mut u32) {
    if first() {
        unsafe {
            data.add(1 + block::linear_index()).write(1); //~
            thread::block_fence();
            let before = at(data, 0).fetch_add(1, Ordering::Relaxed);
            thread::block_fence();
            if before == 3 {
                for part in 0..4 {
                    data.add(10 + part).write(data.add(1 + part).read()); //~
                }
            }
        }
    }
}

/// The same, with release ordering only.
#[kernel]
unsafe fn last_block_release(data: *mut u32) {
    if first() {
        unsafe {
            data.add(1 + block::linear_index()).write(1); //~
            if at(data, 0).fetch_add(1, Ordering::Release) == 3 {
                for part in 0..4 {
                    data.add(10 + part).write(data.add(1 + part).read()); //~
                }
            }
        }
    }
}

/// The same, with acquire ordering only.
#[kernel]
unsafe fn last_block_acquire(data: *mut u32) {
    if first() {
        unsafe {
            data.add(1 + block::linear_index()).write(1); //~
            if at(data, 0).fetch_add(1, Ordering::Acquire) == 3 {
                for part in 0..4 {
                    data.add(10 + part).write(data.add(1 + part).read()); //~
                }
            }
        }
    }
}

/// Only one thread of each block has a fence, but all threads write parts.
#[kernel]
unsafe fn parts_of_all_threads(data: *mut u32) {
    unsafe {
        data.add(16 + thread::unique_index().get()).write(1); //~
        if first() && at(data, 0).fetch_add(1, Ordering::AcqRel) == 3 {
            for part in 0..256 {
                data.add(300 + part).write_volatile(data.add(16 + part).read_volatile()); //~
            }
        }
    }
}

/// Blocks count with block-scope atomics.
#[kernel]
unsafe fn narrow_count(data: *mut u32) {
    unsafe { in_block(data, 0).fetch_add(1, Ordering::Relaxed) }; //~
}

/// One block counts with block-scope atomics, the others with device-scope atomics.
#[kernel]
unsafe fn narrow_beside_wide(data: *mut u32) {
    unsafe {
        if block::linear_index() == 0 {
            in_block(data, 0).fetch_add(1, Ordering::Relaxed); //~
        }
        thread::sync_threads();
        if block::linear_index() != 0 {
            at(data, 0).fetch_max(1, Ordering::Relaxed); //~
        }
    }
}

/// A plain read concurrent with atomics of other blocks.
#[kernel]
unsafe fn plain_read(data: *mut u32) {
    unsafe {
        at(data, 0).fetch_add(1, Ordering::Relaxed); //~
        if first() {
            data.add(8 + block::linear_index()).write(data.read()); //~
        }
    }
}

/// A plain reset concurrent with atomics of other blocks.
#[kernel]
unsafe fn plain_reset(data: *mut u32) {
    unsafe {
        if thread::unique_index().get() == 64 {
            data.write(0); //~
        }
        at(data, 0).fetch_max(1, Ordering::Relaxed); //~
    }
}

/// A lock that is acquired with relaxed ordering.
#[kernel]
unsafe fn relaxed_lock(data: *mut u32) {
    if first() {
        unsafe {
            while at(data, 0).compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
            data.add(1).write(data.add(1).read() + 1); //~
            at(data, 0).store(0, Ordering::Release);
        }
    }
}

/// A lock that is released with relaxed ordering.
#[kernel]
unsafe fn relaxed_unlock(data: *mut u32) {
    if first() {
        unsafe {
            while at(data, 0).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
            data.add(1).write(data.add(1).read() + 1); //~
            at(data, 0).store(0, Ordering::Relaxed);
        }
    }
}

/// Two locks for one datum.
#[kernel]
unsafe fn two_locks(data: *mut u32) {
    if first() {
        let lock = block::linear_index() % 2;
        unsafe {
            while at(data, lock).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
            data.add(4).write(data.add(4).read() + 1); //~
            at(data, lock).store(0, Ordering::Release);
        }
    }
}

/// The write comes after the release.
#[kernel(cooperative)]
unsafe fn write_after_release(data: *mut u32) {
    if first() {
        unsafe {
            if block::linear_index() == 0 {
                at(data, 0).store(1, Ordering::Release);
                data.add(1).write(1); //~
            } else {
                while at(data, 0).load(Ordering::Acquire) == 0 {}
                data.add(8 + block::linear_index()).write(data.add(1).read()); //~
            }
        }
    }
}

/// A flag between blocks, with a block-scope fence.
#[kernel(cooperative)]
unsafe fn narrow_fence(data: *mut u32) {
    if first() {
        unsafe {
            if block::linear_index() == 0 {
                data.add(1).write(1); //~
                fence::<scope::Block>(Ordering::Release);
                at(data, 0).store(1, Ordering::Relaxed);
            } else {
                while at(data, 0).load(Ordering::Acquire) == 0 {}
                data.add(8 + block::linear_index()).write(data.add(1).read()); //~
            }
        }
    }
}

cases! {
    last_block: Access(Race), None, FOUR_BLOCKS;
    last_block_one_fence: Access(Race), None, FOUR_BLOCKS;
    last_block_narrow_fences: Access(Race), None, FOUR_BLOCKS;
    last_block_release: Access(Race), None, FOUR_BLOCKS;
    last_block_acquire: Access(Race), None, FOUR_BLOCKS;
    parts_of_all_threads: Access(Race), None, FOUR_BLOCKS;
    narrow_count: Access(NarrowScope), None, FOUR_BLOCKS;
    narrow_beside_wide: Access(NarrowScope), None, FOUR_BLOCKS;
    plain_read: Access(Race), None, FOUR_BLOCKS;
    plain_reset: Access(Race), None, FOUR_BLOCKS;
    relaxed_lock: Access(Race), None, FOUR_BLOCKS;
    relaxed_unlock: Access(Race), None, FOUR_BLOCKS;
    two_locks: Access(Race), None, FOUR_BLOCKS;
    write_after_release: Access(Race), None, FOUR_BLOCKS;
    narrow_fence: Access(Race), None, FOUR_BLOCKS;
}
