//! What the expansion of `#[kernel]` calls. Not for other use.

use crate::disjoint::DisjointMut;
use crate::element::{KernelValue, SliceElement};

#[cfg(not(target_arch = "nvptx64"))]
pub use linkme;

pub use crate::printf::*;
pub use gpu_spec::AbiParam;

/// Compiles for types that can be passed by value.
pub const fn check_value<T: KernelValue>() {}

/// Compiles for types that can be elements of a slice.
pub const fn check_element<T: SliceElement>() {}

/// The slice of a parameter.
///
/// # Safety
///
/// `data` is not null, aligned, and valid for reads of `len` elements while the kernel runs. (It is not mended
/// here: a choice between two pointers would hide from LLVM that the kernel reads global memory.)
#[inline(always)]
pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data, len) }
}

/// The view of a parameter.
///
/// # Safety
///
/// As [`DisjointMut::from_raw_parts`].
#[inline(always)]
pub unsafe fn view<'a, T, M>(data: *mut T, len: usize) -> DisjointMut<'a, T, M> {
    // SAFETY: the caller's promise.
    unsafe { DisjointMut::from_raw_parts(data, len) }
}

/// Machine parameter `index`.
///
/// # Safety
///
/// `args` has more than `index` pointers, and that one points to a `T`.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_value<T>(args: *const *const core::ffi::c_void, index: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { (*args.add(index)).cast::<T>().read_unaligned() }
}

/// Machine parameters `index` (a pointer) and `index + 1` (a length).
///
/// # Safety
///
/// As [`read_value`] for both, and as [`slice`].
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_slice<'a, T>(args: *const *const core::ffi::c_void, index: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { slice(read_value(args, index), read_value(args, index + 1)) }
}

/// Machine parameters `index` (a pointer) and `index + 1` (a length).
///
/// # Safety
///
/// As [`read_value`] for both, and as [`view`].
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_view<'a, T, M>(
    args: *const *const core::ffi::c_void,
    index: usize,
) -> DisjointMut<'a, T, M> {
    // SAFETY: the caller's promise.
    unsafe { view(read_value(args, index), read_value(args, index + 1)) }
}
