//! Support code for macro expansions. It is not public API.

use core::mem::MaybeUninit;

#[cfg(not(target_arch = "nvptx64"))]
pub use cust_core::__private::{CUDA_STD_KERNELS, linkme};
pub use gpu_std;

/// Value of any `Copy` type, in the form in which gpu-std passes kernel arguments.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Plain<T: Copy>(MaybeUninit<T>);

// SAFETY: the value is accessible only through the unsafe functions `get` and `slice`.
unsafe impl<T: Copy> Send for Plain<T> {}
// SAFETY: as above.
unsafe impl<T: Copy> Sync for Plain<T> {}
// SAFETY: this type appears only in the entries of `unsafe fn` kernels, whose callers guarantee that `T` has the same
// layout on host and device.
unsafe impl<T: Copy + 'static> gpu_std::KernelValue for Plain<T> {}
// SAFETY: all bit patterns are a valid `MaybeUninit`.
unsafe impl<T: Copy + 'static> gpu_std::KernelType for Plain<T> {}

impl<T: Copy> Plain<T> {
    /// Returns the value.
    ///
    /// # Safety
    /// The bytes must represent a valid `T`.
    #[inline(always)]
    pub unsafe fn get(self) -> T {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.assume_init() }
    }

    /// Returns the values.
    ///
    /// # Safety
    /// The bytes of each element must represent a valid `T`.
    #[inline(always)]
    pub unsafe fn slice(values: &[Self]) -> &[T] {
        // SAFETY: `Plain<T>` has the layout of `T`; the caller guarantees valid values.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}
