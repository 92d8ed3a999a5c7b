//! The two things that keep the threads of a block apart in a shared array: its own barrier, and a division of its
//! elements that never changes.

use core::mem::MaybeUninit;

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

/// Calls `visit` with each element that belongs to the calling thread, and its indices. Element `i` in memory belongs
/// to thread `i` modulo the threads of the block, for every operation on the array.
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
    let elements = array.cast::<A::Element>();
    let threads = block::threads();
    let mut linear = thread::linear_in_block();
    while linear < A::COUNT {
        // SAFETY: the array has `COUNT` elements.
        visit(unsafe { elements.add(linear as usize) }, A::position(linear));
        linear += threads;
    }
}

/// Clears each element that belongs to the calling thread.
///
/// # Safety
///
/// As [`for_each_own`].
#[inline(always)]
pub(super) unsafe fn clear_own<A: SharedData>(array: *mut A) {
    let bytes = const {
        assert!(size_of::<A>() > 0, "a shared array has elements, and they have bytes");
        A::ELEMENT_BYTES
    };
    let count = (size_of::<A>() / bytes) as u32;
    let threads = block::threads();
    let mut linear = thread::linear_in_block();
    while linear < count {
        // SAFETY: the array has `count` elements of so many bytes each; zeros are a value, as any bytes are.
        unsafe { array.cast::<MaybeUninit<u8>>().add(linear as usize * bytes).write_bytes(0, bytes) };
        linear += threads;
    }
}

/// Panics if a panic ended an earlier operation half way. (On a GPU a panic ends the launch.)
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
pub(super) fn check_usable(is_broken: bool, operation: &'static str) {
    assert!(!is_broken, "{operation} after a panic in an earlier operation on the same array");
}
