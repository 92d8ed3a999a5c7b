//! Isolates the threads of a block in a shared array, through the array's own barrier and a fixed division of its
//! elements.

use super::data::{SharedArray, SharedData};
use crate::{block, thread};

/// Waits until every thread of the block that has not returned is at barrier `number`, which must belong to one shared
/// array. Error messages name the `operation`.
#[inline(always)]
#[track_caller]
pub(super) fn sync(number: u32, operation: &'static str) {
    #[cfg(target_arch = "nvptx64")]
    {
        let _ = operation;
        crate::nvvm::barrier(number);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::host::collective::array_barrier(number, operation);
}

/// Calls `visit` with each element that belongs to the calling thread and with the element's indices. In every
/// operation on the array, element `i` belongs to thread `i` modulo the number of threads of the block.
///
/// # Safety
/// `array` must be valid, and the threads of the block must be in a phase, between two barriers, in which each accesses
/// only its own elements.
#[inline(always)]
pub(super) unsafe fn for_each_own<A, const D: usize>(
    array: *mut A,
    mut visit: impl FnMut(*mut A::Element, [usize; D]),
) where
    A: SharedArray<D> + ?Sized,
{
    let each = |number| {
        // SAFETY: the trait guarantees that the element lies within the array.
        let element = unsafe { array.cast::<A::Element>().add(A::place(number) as usize) };
        visit(element, A::indices(number));
    };
    own_numbers(A::count(array), each);
}

/// Clears each element that belongs to the calling thread.
///
/// # Safety
/// The caller must uphold the safety contract of [`for_each_own`].
#[inline(always)]
pub(super) unsafe fn clear_own<A: SharedData + ?Sized>(array: *mut A) {
    /// Maximum number of bytes that one store clears.
    const WIDEST: usize = 8;
    own_numbers(A::count(array), |number| {
        let bytes = A::ELEMENT_BYTES;
        // SAFETY: the trait guarantees that the element lies within the array.
        let element = unsafe { array.cast::<u8>().add(A::place(number) as usize * bytes) };
        let both = bytes | A::ALIGN | WIDEST;
        let word = both & both.wrapping_neg();
        let mut offset = 0;
        while offset < bytes {
            // SAFETY: the word size divides the element size and the array's alignment; zeros are a valid value because
            // all bit patterns are.
            unsafe {
                let word_at = element.add(offset);
                match word {
                    8 => word_at.cast::<u64>().write(0),
                    4 => word_at.cast::<u32>().write(0),
                    2 => word_at.cast::<u16>().write(0),
                    _ => word_at.write(0),
                }
            }
            offset += word;
        }
    });
}

/// Returns a reference to the array, and asserts that it is not null. Otherwise, LLVM would keep a comparison in each
/// iteration of a loop over the elements.
///
/// # Safety
/// `array` must be valid for `&*array`.
#[inline(always)]
pub(super) unsafe fn reference<'a, A: ?Sized>(array: *const A) -> &'a A {
    // SAFETY: guaranteed by the caller.
    unsafe {
        core::hint::assert_unchecked(!array.is_null());
        &*array
    }
}

/// Calls `visit` with the index of each element that belongs to the calling thread, in an array of `count` elements.
///
/// All threads run the same number of iterations. If the block size and `count` are compile-time constants, the
/// compiler unrolls the loop, and only the last iteration keeps the check.
#[inline(always)]
fn own_numbers(count: u32, mut visit: impl FnMut(u32)) {
    let (own, threads) = (thread::linear_in_block(), block::threads());
    let mut first = 0;
    while first < count {
        let number = first + own;
        if number < count {
            visit(number);
        }
        first += threads;
    }
}

/// Panics if a panic interrupted an earlier operation. (On a GPU, a panic ends the launch.)
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
pub(super) fn check_usable(is_broken: bool, operation: &'static str) {
    assert!(!is_broken, "{operation} after a panic in an earlier operation on the same array");
}
