//! Conditions that kernels set for conditional graph nodes.
//!
//! A *condition* is a number that determines whether, or how often, a conditional node runs its body. Kernels that
//! precede the node or run in its body set the condition with [`set_condition`]. Kernels receive the host's handle of
//! the condition as a `u64` argument.
//!
//! On the GPU, `set_condition` calls NVIDIA's device runtime (`libcudadevrt`), which requires a driver for CUDA 12 or
//! later. The builder places kernels that call it in a separate module, which is linked with the device runtime when its
//! first kernel is loaded. On the emulated device the handle is the address of an atomic number owned by the graph.
//!
//! ```
//! use gpu_std::graph;
//! use gpu_std::prelude::*;
//!
//! /// Goes on while `error[0]` is over `limit`.
//! ///
//! /// # Safety
//! /// `condition` is a condition of the graph in which the kernel runs.
//! #[kernel]
//! pub unsafe fn go_on(condition: u64, error: &[f32], limit: f32) {
//!     if thread::index_1d() == 0 {
//!         // SAFETY: the caller's promise; one thread sets it.
//!         unsafe { graph::set_condition(condition, (error[0] > limit).into()) };
//!     }
//! }
//! ```

/// Sets the value of a condition in the running graph. The next conditional node that reads the condition uses this
/// value.
///
/// See the [example](self).
///
/// # Panics
/// Panics on the emulated device if `condition` is 0.
///
/// # Safety
/// `condition` must be the handle of a condition that belongs to the graph in which the calling kernel runs. No two
/// threads may set the condition at the same time.
#[inline(always)]
pub unsafe fn set_condition(condition: u64, value: u32) {
    #[cfg(target_arch = "nvptx64")]
    {
        unsafe extern "C" {
            fn cudaGraphSetConditional(condition: u64, value: u32);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { cudaGraphSetConditional(condition, value) };
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        use core::sync::atomic::{AtomicU32, Ordering};

        assert!(condition != 0, "0 is not a condition handle of a graph");
        let number = core::ptr::with_exposed_provenance::<AtomicU32>(condition as usize);
        // SAFETY: the caller promises that the condition belongs to the running graph. On the emulated device, the
        // handle is the exposed address of an atomic number that the graph keeps alive while it runs.
        unsafe { (*number).store(value, Ordering::Release) };
    }
}
