//! The two things that keep the threads of a block apart in a shared array: its own barrier, and a division of its
//! elements that never changes.

use super::data::{SharedArray, SharedData};
use crate::{block, thread};

/// Waits until every thread of the block that has not returned is at barrier `number`, which only one shared array
/// has. `operation` is a name for messages.
#[inline(always)]
#[track_caller]
pub(super) fn meet(number: u32, operation: &'static str) {
    #[cfg(target_arch = "nvptx64")]
    {
        let _ = operation;
        crate::nvvm::barrier(number);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::host::collective::array_barrier(number, operation);
}

/// Calls `visit` with each element that belongs to the calling thread, and its indices. Element `i` belongs to thread
/// `i` modulo the threads of the block, in every operation on the array.
///
/// # Safety
///
/// `array` is valid, and the threads of the block are between two meetings, where each may use its own elements.
#[inline(always)]
pub(super) unsafe fn for_each_own<A, const D: usize>(
    array: *mut A,
    mut visit: impl FnMut(*mut A::Element, [usize; D]),
) where
    A: SharedArray<D> + ?Sized,
{
    let each = |number| {
        // SAFETY: the trait says that the element lies in the array.
        let element = unsafe { array.cast::<A::Element>().add(A::place(number) as usize) };
        visit(element, A::indices(number));
    };
    own_numbers(A::count(array), each);
}

/// Clears each element that belongs to the calling thread.
///
/// # Safety
///
/// As [`for_each_own`].
#[inline(always)]
pub(super) unsafe fn clear_own<A: SharedData + ?Sized>(array: *mut A) {
    /// The most bytes that one store clears.
    const WIDEST: usize = 8;
    own_numbers(A::count(array), |number| {
        let bytes = A::ELEMENT_BYTES;
        // SAFETY: the trait says that the element lies in the array.
        let element = unsafe { array.cast::<u8>().add(A::place(number) as usize * bytes) };
        let both = bytes | A::ALIGN | WIDEST;
        let word = both & both.wrapping_neg();
        let mut offset = 0;
        while offset < bytes {
            // SAFETY: a word divides the element's bytes and the array's alignment; zeros are a value, as any bytes are.
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

/// A reference to the array. LLVM cannot know that it is not null, and would keep a comparison in each round of a loop
/// over the elements.
///
/// # Safety
///
/// As for `&*array`.
#[inline(always)]
pub(super) unsafe fn reference<'a, A: ?Sized>(array: *const A) -> &'a A {
    // SAFETY: the caller's promise.
    unsafe {
        core::hint::assert_unchecked(!array.is_null());
        &*array
    }
}

/// Calls `visit` with the number of each of `count` elements that belongs to the calling thread.
///
/// All threads make the same rounds: where the block's size and `count` are known when the kernel is compiled, so is their number, and
/// the loop is unrolled, without the check in all rounds but the last.
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

/// Panics if a panic ended an earlier operation half way. (On a GPU a panic ends the launch.)
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
pub(super) fn check_usable(is_broken: bool, operation: &'static str) {
    assert!(!is_broken, "{operation} after a panic in an earlier operation on the same array");
}
