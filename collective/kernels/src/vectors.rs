//! Vectors of 16 bytes that a thread processes: load, store and copy.

use gpu_std::Vector;
use gpu_std::prelude::*;

use crate::packed::Packed;

/// Prevents LLVM from unrolling the enclosing loop. The loop body already keeps enough accesses in flight, and
/// unrolling would need too many registers.
#[inline(always)]
pub(crate) fn once() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the assembly is empty and has no effects.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// Returns the index of the thread's first vector.
#[inline(always)]
pub(crate) fn first() -> usize {
    thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize
}

/// Returns the distance from one vector of the thread to its next one.
#[inline(always)]
pub(crate) fn stride() -> usize {
    thread::block_dim_x() as usize * thread::grid_dim_x() as usize
}

/// Returns the indices of the thread's vectors below `count`, in ascending order. The indices are the same on all
/// ranks.
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

/// Returns the number of vectors needed for `len` elements.
#[inline(always)]
pub(crate) fn vectors<T: Packed>(len: usize) -> usize {
    len.div_ceil(T::LANES)
}

/// Returns the number of elements in the vector with index `vector`, out of `len` elements in total. The last vector
/// may have fewer than the others.
#[inline(always)]
pub(crate) fn lanes_of<T: Packed>(len: usize, vector: usize) -> usize {
    T::LANES.min(len - vector * T::LANES)
}

/// Reads one vector of an array of `len` elements, in one access if the vector is full and aligned to 16 bytes.
/// Elements beyond the end of the array are zero.
///
/// # Safety
/// The vector must contain elements, and they must be valid for reads.
#[inline(always)]
pub(crate) unsafe fn load<T: Packed>(from: *const T, len: usize, vector: usize) -> T::Lanes {
    let lanes = lanes_of::<T>(len, vector);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let from = from.add(vector * T::LANES);
        if from.addr().is_multiple_of(16) && lanes == T::LANES {
            T::load(from)
        } else {
            T::load_first(from, lanes)
        }
    }
}

/// Writes one vector of an array of `len` elements, in one access if the vector is full and aligned to 16 bytes.
///
/// # Safety
/// The caller must uphold the safety contract of [`load`], with writes instead of reads.
#[inline(always)]
pub(crate) unsafe fn store<T: Packed>(result: T::Lanes, to: *mut T, len: usize, vector: usize) {
    let lanes = lanes_of::<T>(len, vector);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let to = to.add(vector * T::LANES);
        if to.addr().is_multiple_of(16) && lanes == T::LANES {
            T::store(result, to);
        } else {
            T::store_first(result, to, lanes);
        }
    }
}

/// Copies one vector of an array of `len` elements, with one load and one store if the vector is full and both
/// addresses are aligned to 16 bytes.
///
/// # Safety
/// The vector must contain elements, and they must be valid for reads at `from` and for writes at `to`.
#[inline(always)]
pub(crate) unsafe fn copy<T: Packed>(from: *const T, to: *mut T, len: usize, vector: usize) {
    let lanes = lanes_of::<T>(len, vector);
    let is_aligned = (from.addr() | to.addr()).is_multiple_of(16);
    // SAFETY: guaranteed by the caller.
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
