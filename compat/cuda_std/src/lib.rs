//! Rust-CUDA's device library, implemented on `gpu_std`. A kernel crate written for Rust-CUDA compiles if its manifest
//! names this package instead.
//!
//! ```toml
//! [dependencies]
//! cuda_std = { package = "warpsmith-cuda-std", version = "0.1" }
//! ```
//!
//! ```
//! use cuda_std::prelude::*;
//!
//! #[kernel]
//! pub unsafe fn add(a: &[f32], b: &[f32], c: *mut f32) {
//!     let i = thread::index_1d() as usize;
//!     if i < a.len() {
//!         // SAFETY: `c` has as many elements as `a`.
//!         unsafe { *c.add(i) = a[i] + b[i] };
//!     }
//! }
//! ```
//!
//! Names, signatures and safety match those of Rust-CUDA. Functions that are `unsafe` in Rust-CUDA are `unsafe` here as
//! well, even if gpu-std has safe versions of them. New code should use gpu-std directly, because kernels can then be
//! safe functions, and tests can run them on the emulated device. `docs/porting-from-rust-cuda.md` compares both.
//!
//! | module | contents |
//! | --- | --- |
//! | [`thread`], [`warp`], [`cg`] | indices, barriers and fences; operations of a warp; the grid as a group |
//! | [`shared`], [`mem`] | shared memory, and memory from the device heap |
//! | [`atomic`] | atomic floats in three scopes, and functions on pointers |
//! | [`GpuFloat`], [`FloatExt`], [`intrinsics`] | float functions, and the raw functions of CUDA's libdevice |
//! | [`io`], [`misc`], [`mod@cfg`] | printing, clock and debugger, target compute capability |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(alloc_error_handler, asm_experimental_arch, link_llvm_intrinsics, rustc_attrs),
    allow(internal_features)
)]
#![deny(missing_docs)]

extern crate alloc;
extern crate self as cuda_std;

#[doc(hidden)]
pub mod __private;
pub mod atomic;
pub mod cfg;
pub mod cg;
pub mod float;
mod float_ext;
pub mod intrinsics;
pub mod io;
pub mod mem;
pub mod misc;
pub mod shared;
pub mod thread;
pub mod warp;

/// Macros of `core`. If an assertion fails, the launch fails with the assertion's message, file and line.
pub use core::{assert_eq, assert_ne};
pub use float::GpuFloat;
pub use float_ext::FloatExt;
pub use glam;
pub use half::{self, bf16, f16};
pub use shared::shared_array;
/// Places a static in the block's shared memory (`shared`), in constant memory (`constant`), or in global memory
/// (`global`, the default).
///
/// On a device, a shared static has no initial value, because its initializer is ignored. Therefore, write to it before
/// reading it.
///
/// ```
/// use cuda_std::prelude::*;
/// use cuda_std::address_space;
///
/// #[address_space(constant)]
/// static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
///
/// #[kernel]
/// pub unsafe fn smooth(x: &[f32], y: *mut f32) {
///     #[address_space(shared)]
///     static mut TILE: [f32; 256] = [0.0; 256];
///
///     let (i, t) = (thread::index_1d() as usize, thread::thread_idx_x() as usize);
///     // SAFETY: blocks have 256 threads, each with its own element; `x` and `y` have one for each thread.
///     unsafe {
///         TILE[t] = x[i];
///         thread::sync_threads();
///         let (left, right) = (TILE[t.max(1) - 1], TILE[(t + 1).min(255)]);
///         *y.add(i) = WEIGHTS[0] * left + WEIGHTS[1] * TILE[t] + WEIGHTS[2] * right;
///     }
/// }
/// ```
pub use warpsmith_compat_macros::address_space;
/// Makes a static visible to the host under the name of the static. On a function, this attribute causes an error that
/// names the replacement, because an image exports only kernels.
pub use warpsmith_compat_macros::externally_visible;
/// Compiles a function only for the GPU. On the host, calling the function panics.
pub use warpsmith_compat_macros::gpu_only;
/// Turns a function into a kernel. The function must be an `unsafe fn` whose parameters are values, slices `&[T]`,
/// references or pointers.
///
/// A launch passes a slice as two arguments: the pointer and the length. A value can have any `Copy` type. The author
/// of the kernel must guarantee that the type has the same layout on host and device (`#[repr(C)]`).
///
/// ```
/// use cuda_std::prelude::*;
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// pub struct Line {
///     slope: f32,
///     offset: f32,
/// }
///
/// #[kernel]
/// pub unsafe fn evaluate(line: Line, x: &[f32], y: *mut f32) {
///     let i = thread::index_1d() as usize;
///     if i < x.len() {
///         // SAFETY: `y` has as many elements as `x`.
///         unsafe { *y.add(i) = line.slope * x[i] + line.offset };
///     }
/// }
/// ```
///
/// A safe function, a type parameter or a mutable slice causes a compile error that shows the replacement:
///
/// ```compile_fail
/// #[cuda_std::kernel]
/// pub fn clear(x: &mut [f32]) {}
/// ```
pub use warpsmith_compat_macros::kernel;

/// Items that Rust-CUDA programs import from the `vek` crate through this crate.
pub mod vek {
    pub use num_traits;
}

/// Items that most kernels use.
pub mod prelude {
    pub use crate::kernel;
    pub use crate::thread;
    pub use crate::{assert_eq, assert_ne};
    // On the host, these macros hide those of the standard library.
    #[cfg(target_arch = "nvptx64")]
    pub use crate::{print, println};
    pub use alloc::borrow::ToOwned;
    pub use alloc::boxed::Box;
    pub use alloc::format;
    pub use alloc::rc::Rc;
    pub use alloc::string::{String, ToString};
    pub use alloc::vec::Vec;
    pub use half::f16;
}
