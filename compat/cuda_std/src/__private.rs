//! What the macros expand to. Not for other use.

use core::mem::MaybeUninit;

#[cfg(not(target_arch = "nvptx64"))]
pub use cust_core::__private::{CUDA_STD_KERNELS, linkme};
pub use gpu_std;

/// A value of any `Copy` type as gpu-std takes it from a launch.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Plain<T: Copy>(MaybeUninit<T>);

// SAFETY: only `get` and `slice` give access, which are unsafe.
unsafe impl<T: Copy> Send for Plain<T> {}
// SAFETY: as above.
unsafe impl<T: Copy> Sync for Plain<T> {}
// SAFETY: it appears in entries of `unsafe fn` kernels only, whose launcher promises that host and device lay `T` out
// alike.
unsafe impl<T: Copy + 'static> gpu_std::KernelValue for Plain<T> {}
// SAFETY: any bytes are a value of `MaybeUninit`.
unsafe impl<T: Copy + 'static> gpu_std::KernelType for Plain<T> {}

impl<T: Copy> Plain<T> {
    /// The value.
    ///
    /// # Safety
    ///
    /// Its bytes are one.
    #[inline(always)]
    pub unsafe fn get(self) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.0.assume_init() }
    }

    /// The values.
    ///
    /// # Safety
    ///
    /// The bytes of each are one.
    #[inline(always)]
    pub unsafe fn slice(values: &[Self]) -> &[T] {
        // SAFETY: the type has the layout of `T`; the rest is the caller's promise.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}
