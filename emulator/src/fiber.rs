//! Informs ThreadSanitizer of coroutine switches, in programs that are built by `cargo xtask tsan`, which sets
//! `warpsmith_tsan`.
//!
//! Without this, ThreadSanitizer would treat the stacks of all coroutines as a single stack, and would report false
//! races or crash. A switch counts as synchronization, so races between the threads of a kernel are not detected.

#[cfg(not(warpsmith_tsan))]
mod implementation {
    /// ThreadSanitizer's state of a coroutine; empty without ThreadSanitizer.
    pub(crate) struct Fiber;

    impl Fiber {
        pub fn new() -> Fiber {
            Fiber
        }

        /// Calls `resume`, which runs the coroutine until it suspends itself or ends.
        #[inline(always)]
        pub fn run<R>(&self, resume: impl FnOnce() -> R) -> R {
            resume()
        }
    }
}

#[cfg(warpsmith_tsan)]
mod implementation {
    use std::ffi::{c_uint, c_void};

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    }

    pub(crate) struct Fiber(*mut c_void);

    /// Fiber that resumed a coroutine. It continues when this value is dropped.
    struct Resumer(*mut c_void);

    impl Fiber {
        pub fn new() -> Fiber {
            // SAFETY: the call receives no pointer.
            Fiber(unsafe { __tsan_create_fiber(0) })
        }

        // Both switches are in this function, so that a function that was entered on one of the two stacks is left on
        // the same stack.
        #[inline(always)]
        pub fn run<R>(&self, resume: impl FnOnce() -> R) -> R {
            // SAFETY: this fiber lives until it is dropped, and its coroutine is about to run on this thread.
            let _resumer = unsafe {
                let resumer = Resumer(__tsan_get_current_fiber());
                __tsan_switch_to_fiber(self.0, 0);
                resumer
            };
            resume()
        }
    }

    impl Drop for Resumer {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: this is the fiber of the code that is running, which was current when this value was created.
            unsafe { __tsan_switch_to_fiber(self.0, 0) }
        }
    }

    impl Drop for Fiber {
        fn drop(&mut self) {
            // SAFETY: `new` created the fiber, and it is not running, because its coroutine is not being resumed.
            unsafe { __tsan_destroy_fiber(self.0) }
        }
    }
}

pub(crate) use implementation::Fiber;
