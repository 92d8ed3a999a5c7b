//! Micro-benchmarks of ScoR, rewritten: races of atomics, fences and locks with the wrong scope, and race-free
//! counterparts. Kamath, George, Basu: ScoRD, a scoped race detector for GPUs, ISCA 2020;
//! <https://github.com/csl-iisc/ScoR>.
//!
//! In the originals, only one of the two sides of a lock lacks its fence. A run in which that side comes first is
//! correct, so here both sides lack the fence. A kernel has the name of its original.

use gpu_std::atomic::{Atomic, Ordering, fence, scope};
use gpu_std::prelude::*;

/// Index of the warp, for the first thread of each warp.
fn leader() -> Option<u32> {
    let own = thread::linear_in_block();
    own.is_multiple_of(32).then_some(own / 32)
}

/// Index of the block, for its first thread.
fn first() -> Option<usize> {
    (thread::linear_in_block() == 0).then(block::linear_index)
}

unsafe fn device<'a>(data: *mut u32) -> &'a Atomic<u32> {
    unsafe { Atomic::from_ptr(data) }
}

unsafe fn block<'a>(data: *mut u32) -> &'a Atomic<u32, scope::Block> {
    unsafe { Atomic::from_ptr(data) }
}

fn device_fence() {
    fence::<scope::Device>(Ordering::AcqRel);
}

fn block_fence() {
    fence::<scope::Block>(Ordering::AcqRel);
}

/// Acquires a lock with relaxed ordering.
unsafe fn lock(word: *mut u32) {
    while unsafe { device(word) }.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
}

/// Releases a lock with relaxed ordering.
unsafe fn unlock(word: *mut u32) {
    unsafe { device(word) }.swap(0, Ordering::Relaxed);
}

/// Acquires a lock with relaxed ordering in block scope.
unsafe fn block_lock(word: *mut u32) {
    while unsafe { block(word) }.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
}

unsafe fn block_unlock(word: *mut u32) {
    unsafe { block(word) }.swap(0, Ordering::Relaxed);
}

#[kernel]
unsafe fn race_interblock_blkatom(data: *mut u32) {
    if first().is_some() {
        unsafe { block(data).fetch_add(1, Ordering::Relaxed) }; //~
    }
}

#[kernel(cooperative)]
unsafe fn race_interblock_blkfence_raw(data: *mut u32) {
    unsafe {
        match first() {
            Some(0) => {
                data.add(1).write(1); //~
                block_fence();
                device(data).swap(1, Ordering::Relaxed);
            }
            Some(1) => {
                while device(data).load(Ordering::Relaxed) == 0 {}
                block_fence();
                data.add(2).write(data.add(1).read()); //~
            }
            _ => {}
        }
    }
}

#[kernel]
unsafe fn race_interblock_blklock_waw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            let lock = block(data);
            while lock.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {} //~
            block_fence();
            data.add(1).write(index as u32); //~
            block_fence();
            lock.swap(0, Ordering::Relaxed); //~
        }
    }
}

#[kernel(cooperative)]
unsafe fn race_interblock_fence_rtraw(data: *mut u32) {
    unsafe {
        match first() {
            Some(0) => {
                let before = data.add(1).read();
                device_fence();
                device(data).swap(1, Ordering::Relaxed);
                data.add(2).write(before + data.add(1).read()); //~
            }
            Some(1) => {
                while device(data).swap(0, Ordering::Relaxed) == 0 {}
                device_fence();
                data.add(1).write(1); //~
                device_fence();
            }
            _ => {}
        }
    }
}

#[kernel]
unsafe fn race_interblock_lock_blkfence_waw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            lock(data);
            block_fence();
            data.add(1).write(index as u32); //~
            block_fence();
            unlock(data);
        }
    }
}

#[kernel]
unsafe fn race_interblock_lock_no_stf_waw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            lock(data);
            data.add(1).write(index as u32); //~
            device_fence();
            unlock(data);
        }
    }
}

#[kernel]
unsafe fn race_interblock_lock_no_tf_waw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            lock(data);
            device_fence();
            data.add(1).write(index as u32); //~
            unlock(data);
        }
    }
}

#[kernel]
unsafe fn race_interblock_none_atom_waw(data: *mut u32) {
    unsafe {
        match first() {
            Some(0) => data.write(1),                                    //~
            Some(1) => _ = device(data).fetch_add(1, Ordering::Relaxed), //~
            _ => {}
        }
    }
}

#[kernel]
unsafe fn race_interblock_none_lock_rtraw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            lock(data);
            device_fence();
            let value = data.add(1).read(); //~
            device_fence();
            unlock(data);
            data.add(1).write(value + 1); //~
            data.add(8 + index).write(value);
        }
    }
}

#[kernel]
unsafe fn race_interblock_none_lock_waw(data: *mut u32) {
    unsafe {
        match first() {
            Some(0) => data.add(1).write(1), //~
            Some(1) => {
                lock(data);
                device_fence();
                data.add(1).write(2); //~
                device_fence();
                unlock(data);
            }
            _ => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_blklock_no_stf_waw(data: *mut u32) {
    if let Some(warp) = leader() {
        unsafe {
            block_lock(data);
            data.add(1).write(warp); //~
            block_fence();
            block_unlock(data);
        }
    }
}

#[kernel]
unsafe fn race_interwarp_blklock_no_tf_waw(data: *mut u32) {
    if let Some(warp) = leader() {
        unsafe {
            block_lock(data);
            block_fence();
            data.add(1).write(warp); //~
            block_unlock(data);
        }
    }
}

#[kernel]
unsafe fn race_interwarp_dev_blklock_no_stf_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => {
                lock(data);
                data.add(1).write(1); //~
                device_fence();
                unlock(data);
            }
            Some(_) => {
                block_lock(data);
                data.add(1).write(data.add(1).read() + 2); //~
                block_fence();
                block_unlock(data);
            }
            None => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_dev_blklock_no_tf_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => {
                lock(data);
                device_fence();
                data.add(1).write(1); //~
                unlock(data);
            }
            Some(_) => {
                block_lock(data);
                block_fence();
                data.add(1).write(data.add(1).read() + 2); //~
                block_unlock(data);
            }
            None => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_none_atom_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => data.write(1),                                    //~
            Some(_) => _ = device(data).fetch_add(1, Ordering::Relaxed), //~
            None => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_none_blkatom_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => data.write(1),                                   //~
            Some(_) => _ = block(data).fetch_add(1, Ordering::Relaxed), //~
            None => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_none_blklock_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => data.add(1).write(1), //~
            Some(_) => {
                block_lock(data);
                block_fence();
                data.add(1).write(2); //~
                block_fence();
                block_unlock(data);
            }
            None => {}
        }
    }
}

#[kernel]
unsafe fn race_interwarp_none_lock_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => data.add(1).write(1), //~
            Some(_) => {
                lock(data);
                device_fence();
                data.add(1).write(2); //~
                device_fence();
                unlock(data);
            }
            None => {}
        }
    }
}

#[kernel]
unsafe fn norace_interblock_atom(data: *mut u32) {
    if first().is_some() {
        unsafe { device(data).fetch_add(1, Ordering::Relaxed) };
    }
}

#[kernel]
unsafe fn norace_interblock_lock_waw(data: *mut u32) {
    if let Some(index) = first() {
        unsafe {
            lock(data);
            device_fence();
            data.add(1).write(index as u32);
            device_fence();
            unlock(data);
        }
    }
}

/// The order is transitive through four threads: block-scope fences within the blocks and device-scope fences between
/// them.
#[kernel(cooperative)]
unsafe fn norace_interwarp_block_fence_hrf_indirect(data: *mut u32) {
    let Some(warp) = leader() else { return };
    let turn = block::linear_index() as u32 * 2 + warp;
    unsafe {
        while device(data).load(Ordering::Relaxed) != turn {}
        if warp == 0 {
            device_fence()
        } else {
            block_fence()
        }
        data.add(1).write(data.add(1).read() + 2);
        if warp == 0 {
            block_fence()
        } else {
            device_fence()
        }
        device(data).swap(turn + 1, Ordering::Relaxed);
    }
}

#[kernel]
unsafe fn norace_interwarp_blkatom(data: *mut u32) {
    if leader().is_some() {
        unsafe { block(data).fetch_add(1, Ordering::Relaxed) };
    }
}

#[kernel]
unsafe fn norace_interwarp_blklock_waw(data: *mut u32) {
    if let Some(warp) = leader() {
        unsafe {
            block_lock(data);
            block_fence();
            data.add(1).write(warp);
            block_fence();
            block_unlock(data);
        }
    }
}

/// Both threads are in the same block, so block scope is sufficient.
#[kernel]
unsafe fn norace_interwarp_dev_blklock_waw(data: *mut u32) {
    unsafe {
        match leader() {
            Some(0) => {
                lock(data);
                device_fence();
                data.add(1).write(1);
                device_fence();
                unlock(data);
            }
            Some(_) => {
                block_lock(data);
                block_fence();
                data.add(1).write(2);
                block_fence();
                block_unlock(data);
            }
            None => {}
        }
    }
}

/// A thread does not race with itself.
#[kernel]
unsafe fn norace_intrawarp_none_blkatom(data: *mut u32) {
    if first() == Some(0) {
        unsafe {
            data.write(1);
            block(data).fetch_add(1, Ordering::Relaxed);
            data.write(data.read() + 1);
        }
    }
}

cases! {
    race_interblock_blkatom: Access(NarrowScope), None, FOUR_BLOCKS;
    race_interblock_blkfence_raw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_blklock_waw: Access(NarrowScope), None, FOUR_BLOCKS;
    race_interblock_fence_rtraw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_lock_blkfence_waw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_lock_no_stf_waw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_lock_no_tf_waw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_none_atom_waw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_none_lock_rtraw: Access(Race), None, FOUR_BLOCKS;
    race_interblock_none_lock_waw: Access(Race), None, FOUR_BLOCKS;
    race_interwarp_blklock_no_stf_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_blklock_no_tf_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_dev_blklock_no_stf_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_dev_blklock_no_tf_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_none_atom_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_none_blkatom_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_none_blklock_waw: Access(Race), None, ONE_BLOCK;
    race_interwarp_none_lock_waw: Access(Race), None, ONE_BLOCK;
    norace_interblock_atom: Nothing, None, FOUR_BLOCKS;
    norace_interblock_lock_waw: Nothing, None, FOUR_BLOCKS;
    norace_interwarp_block_fence_hrf_indirect: Nothing, None, FOUR_BLOCKS;
    norace_interwarp_blkatom: Nothing, None, ONE_BLOCK;
    norace_interwarp_blklock_waw: Nothing, None, ONE_BLOCK;
    norace_interwarp_dev_blklock_waw: Nothing, None, ONE_BLOCK;
    norace_intrawarp_none_blkatom: Nothing, None, ONE_BLOCK;
}
