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
    warpsmith_emulator::collective::array_barrier(number, operation);
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
    A: SharedArray<D>,
{
    const { A::CHECK };
    let each = |number| {
        // SAFETY: the trait says that the element lies in the array.
        let element = unsafe { array.cast::<A::Element>().add(A::place(number) as usize) };
        visit(element, A::indices(number));
    };
    own_numbers::<A>(each);
}

/// Clears each element that belongs to the calling thread.
///
/// # Safety
///
/// As [`for_each_own`].
#[inline(always)]
pub(super) unsafe fn clear_own<A: SharedData>(array: *mut A) {
    own_numbers::<A>(|number| {
        let bytes = A::ELEMENT_BYTES;
        // SAFETY: the trait says that the element lies in the array; zeros are a value, as any bytes are.
        unsafe { array.cast::<u8>().add(A::place(number) as usize * bytes).write_bytes(0, bytes) };
    });
}

/// Calls `visit` with the number of each element that belongs to the calling thread.
///
/// All threads make the same rounds: where the block's size is known when the kernel is compiled, so is their number, and
/// the loop is unrolled, without the check in all rounds but the last.
#[inline(always)]
fn own_numbers<A: SharedData>(mut visit: impl FnMut(u32)) {
    let (own, threads) = (thread::linear_in_block(), block::threads());
    let mut first = 0;
    while first < A::COUNT {
        let number = first + own;
        if number < A::COUNT {
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
