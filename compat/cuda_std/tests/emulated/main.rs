//! Kernels in Rust-CUDA's vocabulary on the emulated device.
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::manual_is_multiple_of,
    private_interfaces,
    reason = "kernels as they are written for Rust-CUDA; the tests launch them with what they take"
)]

#[path = "../../../../gpu-std/tests/emulated/common.rs"]
#[allow(dead_code)]
mod common;
mod floats;
mod kernels;
mod text;
mod warps;
