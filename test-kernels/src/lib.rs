//! The kernels of tests, benchmarks and examples, which the product's image does not have: the crate in `gpu/`, and its
//! image.
#![deny(missing_docs)]

pub use test_kernels_gpu::*;

/// These kernels, compiled for the GPU.
pub static IMAGE: warpsmith_runtime::GpuImage = warpsmith_runtime::include_image!("test_kernels_gpu");
