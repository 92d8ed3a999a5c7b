//! Shared memory of a block.

pub use gpu_std::shared::dynamic as dynamic_shared_mem;
/// Reserves shared memory for a `[T; N]` and returns it as a `*mut T`, for example `shared_array![f32; 256]`.
#[doc(inline)]
pub use gpu_std::shared_array;

/// Static in shared memory on the emulated device; each block has its own copy.
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub struct Static<T>(gpu_std::shared::SharedStatic<T>);

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use core::ops::{Deref, DerefMut};

    use super::Static;

    impl<T> Static<T> {
        #[doc(hidden)]
        pub const fn new() -> Self {
            Static(gpu_std::shared::SharedStatic::new())
        }
    }

    // The macro creates either a `static mut`, for whose uses the user is responsible, or a static of type
    // `MaybeUninit`, for which all bit patterns are valid.
    impl<T> Deref for Static<T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: see above.
            unsafe { &*self.0.as_mut_ptr() }
        }
    }

    impl<T> DerefMut for Static<T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: see above.
            unsafe { &mut *self.0.as_mut_ptr() }
        }
    }
}
