//! The device library: what a kernel written in Rust can call.
//!
//! Every function has two bodies. Compiled for `nvptx64`, it is an instruction of the GPU; compiled for the
//! host, it asks the emulated device, so that the same kernel runs in `cargo test` on any machine. The host
//! side needs stable Rust only; the GPU side is compiled by `warpsmith-builder`.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// `y[i] += a * x[i]`.
//! #[kernel]
//! pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
//!     for i in thread::grid_stride(x.len()) {
//!         if let Some(y) = y.get_mut(i) {
//!             *y += a * x[i.get()];
//!         }
//!     }
//! }
//! ```
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`thread`], [`block`], [`grid`] | who a thread is, barriers, memory fences |
//! | [`warp`] | shuffles, votes, matches and reductions among 32 threads |
//! | [`disjoint`] | mutable views of which each thread gets its own elements |
//! | [`shared`] | memory that a block shares, and [`shared_array!`] |
//! | [`atomic`] | atomic operations with an ordering and a scope |
//! | [`vector`] | loads and stores of up to 32 bytes at once |
//! | [`scalar`] | numbers as kernels need them: conversions, NaN-propagating minimum, what to accumulate in |
//! | [`math`] | `exp`, `sin`, `erf`…: accurate, and fast |
//! | [`mod@printf`] | text from a kernel |
//! | [`element`] | which types can be passed to a kernel |
//! | `registry` | all kernels of the program (host only) |
//!
//! A panic in a kernel (a failed `assert!`, an index out of range) stops the launch and comes back to the host
//! as an error with its text, file and line, kernel, block and thread.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, link_llvm_intrinsics, portable_simd),
    allow(internal_features)
)]
#![deny(missing_docs)]

extern crate self as gpu_std;

#[doc(hidden)]
#[path = "entry.rs"]
pub mod __private;
pub mod atomic;
pub mod block;
pub mod disjoint;
pub mod element;
pub mod grid;
pub mod math;
#[cfg(target_arch = "nvptx64")]
mod nvvm;
#[cfg(target_arch = "nvptx64")]
mod panic;
pub mod prelude;
pub mod printf;
#[cfg(not(target_arch = "nvptx64"))]
pub mod registry;
pub mod scalar;
pub mod shared;
pub mod thread;
pub mod vector;
pub mod warp;

pub use disjoint::{Chunks, DisjointMut, Elements};
pub use element::{KernelValue, SliceElement};
#[cfg(feature = "glam")]
pub use glam;
pub use gpu_macros::{address_space, kernel, printf};
pub use gpu_spec::{
    ConstArgument, Kernel, KernelSpec, LaunchBounds, ParamKind, ParamSpec, SafeKernel, TypeArgument, param,
};
pub use half::{self, bf16, f16};
pub use vector::Vector;

/// The compute capability that the running code was compiled for, as `10 * major + minor`: 80, 90; 0 on the
/// emulated device.
///
/// A constant to the optimiser: `if arch() >= 90 { … }` leaves nothing of itself in the code.
#[inline(always)]
pub fn arch() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: the name is a constant string with a NUL, as the pass that answers the call needs.
        unsafe { nvvm::__nvvm_reflect(c"__CUDA_ARCH".as_ptr().cast()) as u32 / 10 }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        0
    }
}
