//! Kernels in Rust-CUDA's vocabulary on the emulated device.

#[path = "../../../../gpu-std/tests/emulated/common.rs"]
#[allow(dead_code)]
mod common;
mod floats;
mod kernels;
mod warps;
