//! Kernels written for Rust-CUDA.
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

extern crate alloc;

mod blocks;
mod numbers;

pub use blocks::*;
pub use numbers::*;
