//! The vectors of 16 bytes that a thread works on, and how one is copied.

use gpu_std::Vector;
use gpu_std::prelude::*;

use crate::packed::Packed;

/// Keeps LLVM from unrolling the loop that it is in, whose body has enough accesses under way, for lack of registers.
#[inline(always)]
pub(crate) fn once() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: nothing happens.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// The first vector of a thread.
#[inline(always)]
pub(crate) fn first() -> usize {
    thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize
}

/// From a vector of a thread to its next.
#[inline(always)]
pub(crate) fn stride() -> usize {
    thread::block_dim_x() as usize * thread::grid_dim_x() as usize
}

/// The vectors of a thread up to a number, from the first on, which is the same on all ranks.
#[inline(always)]
pub(crate) fn own_vectors(count: usize) -> impl Iterator<Item = usize> {
    let (mut next, stride) = (first(), stride());
    core::iter::from_fn(move || {
        once();
        let vector = next;
        next += stride;
        (vector < count).then_some(vector)
    })
}

/// The vectors of this number of elements.
#[inline(always)]
pub(crate) fn vectors<T: Packed>(len: usize) -> usize {
    len.div_ceil(T::LANES)
}

/// The elements of a vector of `len` elements: fewer at the end.
#[inline(always)]
pub(crate) fn lanes_of<T: Packed>(len: usize, vector: usize) -> usize {
    T::LANES.min(len - vector * T::LANES)
}

/// Reads a vector of `len` elements: in one access if it is whole and aligned to 16 bytes. Elements beyond are zero.
///
/// # Safety
/// The vector has elements, which are valid.
#[inline(always)]
pub(crate) unsafe fn load<T: Packed>(from: *const T, len: usize, vector: usize) -> T::Lanes {
    let lanes = lanes_of::<T>(len, vector);
    // SAFETY: the caller's promise.
    unsafe {
        let from = from.add(vector * T::LANES);
        if from.addr().is_multiple_of(16) && lanes == T::LANES {
            T::load(from)
        } else {
            T::load_first(from, lanes)
        }
    }
}

/// Writes a vector of `len` elements, likewise.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub(crate) unsafe fn store<T: Packed>(result: T::Lanes, to: *mut T, len: usize, vector: usize) {
    let lanes = lanes_of::<T>(len, vector);
    // SAFETY: the caller's promise.
    unsafe {
        let to = to.add(vector * T::LANES);
        if to.addr().is_multiple_of(16) && lanes == T::LANES {
            T::store(result, to);
        } else {
            T::store_first(result, to, lanes);
        }
    }
}

/// Copies a vector of `len` elements: in one access each if it is whole and both are aligned to 16 bytes.
///
/// # Safety
/// The vector has elements, which are valid at `from` for reads and at `to` for writes.
#[inline(always)]
pub(crate) unsafe fn copy<T: Packed>(from: *const T, to: *mut T, len: usize, vector: usize) {
    let lanes = lanes_of::<T>(len, vector);
    let is_aligned = (from.addr() | to.addr()).is_multiple_of(16);
    // SAFETY: the caller's promise.
    unsafe {
        let (from, to) = (from.add(vector * T::LANES), to.add(vector * T::LANES));
        if is_aligned && lanes == T::LANES {
            return Vector::<u32, 4>::load(from.cast()).store(to.cast());
        }
        let mut lane = 0;
        while lane < lanes {
            once();
            to.add(lane).write(from.add(lane).read());
            lane += 1;
        }
    }
}
