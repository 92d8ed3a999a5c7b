//! Accesses out of bounds, to freed memory and to uninitialized memory.

use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;
use gpu_std::shared::dynamic;

fn own() -> usize {
    thread::linear_in_block() as usize
}

/// One element past the end of a shared array.
#[kernel]
unsafe fn past_shared(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own() + 1).write(1); //~
        thread::sync_threads();
        out.add(own()).write(tile.add(own().max(1)).read());
    }
}

/// One element before a shared array.
#[kernel]
unsafe fn before_shared(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.offset(own() as isize - 1).write(1); //~
        thread::sync_threads();
        out.add(own()).write(tile.add(own().min(62)).read());
    }
}

/// A halo that exceeds the array.
#[kernel]
unsafe fn halo_past_shared(out: *mut u32) {
    let tile = shared_array![u32; 64];
    unsafe {
        tile.add(own()).write(1);
        thread::sync_threads();
        out.add(own()).write(tile.add(own() + 1).read()); //~
    }
}

/// An access past the dynamic shared memory that the launch requested.
#[kernel]
unsafe fn past_dynamic(out: *mut u32) {
    let tile = dynamic::<u32>();
    unsafe {
        tile.add(own() + 1).write(1); //~
        thread::sync_threads();
        out.add(own()).write(tile.add(own().max(1)).read());
    }
}

/// An atomic past the end of a shared array.
#[kernel]
unsafe fn atomic_past_shared(out: *mut u32) {
    let counts = shared_array![u32; 64];
    unsafe {
        counts.add(own()).write(0);
        thread::sync_threads();
        Atomic::<u32>::from_ptr(counts.add(own() + 1)).fetch_add(1, Ordering::Relaxed); //~
        out.add(own()).write(1);
    }
}

/// One element past the end of a buffer that is smaller than its rounded-up allocation.
#[kernel]
unsafe fn past_buffer(out: *mut u32) {
    unsafe { out.add(own() + 1).write(1) }; //~
}

/// One element past the end of a buffer that does not fill its last page.
#[kernel]
unsafe fn past_odd_buffer(out: *mut u32) {
    unsafe { out.add(own() + 7).write(1) }; //~
}

/// The byte after the last one.
#[kernel]
unsafe fn byte_past_buffer(out: *mut u8) {
    unsafe { out.add(own() + 200).write(1) }; //~
}

/// A read one element past the end.
#[kernel]
unsafe fn read_past_buffer(data: *mut u32, out: *mut u32) {
    unsafe { out.add(own()).write(data.add(own() + 1).read()) }; //~
}

/// One element before a buffer.
#[kernel]
unsafe fn before_buffer(out: *mut u32) {
    unsafe { out.offset(own() as isize - 1).write(1) }; //~
}

/// Far past the end, in the red zone.
#[kernel]
unsafe fn far_past_buffer(out: *mut u32) {
    unsafe { out.add(own() + 700).write(1) }; //~
}

/// A vector access whose second half is out of bounds.
#[kernel]
unsafe fn half_beyond(out: *mut u32) {
    let at = if own() == 3 { 63 } else { own() * 2 };
    unsafe { out.add(at).cast::<u64>().write_unaligned(1) }; //~
}

/// A memset beyond the end.
#[kernel]
unsafe fn set_beyond(out: *mut u32) {
    if own() == 0 {
        unsafe { out.write_bytes(0, 65) }; //~
    }
}

/// A row copied beyond the end.
#[kernel]
unsafe fn copied_beyond(data: *mut u32, out: *mut u32) {
    if own() == 0 {
        unsafe { core::ptr::copy_nonoverlapping(data, out.add(1), 64) }; //~
    }
}

/// The index counts threads of the launch, but the buffer has one element per thread of a block.
#[kernel]
unsafe fn index_of_the_grid(out: *mut u32) {
    unsafe { out.add(thread::unique_index().get()).write(1) }; //~
}

/// Reads a freed buffer.
#[kernel]
unsafe fn read_freed(data: *mut u32, out: *mut u32) {
    unsafe { out.add(own()).write(data.add(own()).read() + 1) }; //~
}

/// Writes a freed buffer.
#[kernel]
unsafe fn write_freed(out: *mut u32) {
    unsafe { out.add(own()).write(2) }; //~
}

/// Reads a buffer that was never written.
#[kernel]
unsafe fn read_unwritten(data: *mut u32, out: *mut u32) {
    unsafe { out.add(own()).write(data.add(own()).read()) }; //~
}

/// Adds to a buffer that was never written.
#[kernel]
unsafe fn add_to_unwritten(out: *mut u32) {
    unsafe { *out.add(own()) += 1 }; //~
}

cases! {
    past_shared: Access(OutOfBounds), Some(Memcheck), ONE_BLOCK;
    before_shared: Access(OutOfBounds), None, ONE_BLOCK;
    halo_past_shared: Access(OutOfBounds), Some(Memcheck), ONE_BLOCK;
    past_dynamic: Access(OutOfBounds), Some(Memcheck), ONE_BLOCK.dynamic_shared(256);
    atomic_past_shared: Access(OutOfBounds), Some(Memcheck), ONE_BLOCK;
    past_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256)]);
    past_odd_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(280)]);
    byte_past_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(263)]);
    read_past_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256), zeros(256)]);
    before_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256)]);
    far_past_buffer: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256)]);
    half_beyond: Access(OutOfBounds), Some(Memcheck), blocks(1, 4, &[zeros(256)]);
    set_beyond: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256)]);
    copied_beyond: Access(OutOfBounds), Some(Memcheck), blocks(1, 64, &[zeros(256), zeros(256)]);
    index_of_the_grid: Access(OutOfBounds), Some(Memcheck), blocks(2, 64, &[zeros(256)]);
    read_freed: Access(Freed), Some(Memcheck), blocks(1, 64, &[freed(256), zeros(256)]);
    write_freed: Access(Freed), Some(Memcheck), blocks(1, 64, &[freed(256)]);
    read_unwritten: Access(Uninitialized), Some(Initcheck), blocks(1, 64, &[uninit(256), zeros(256)]);
    add_to_unwritten: Access(Uninitialized), Some(Initcheck), blocks(1, 64, &[uninit(256)]);
}
