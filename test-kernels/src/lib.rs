//! Kernels of tests, benchmarks and examples, which are not in the product's image: the crate in `gpu/`, and its image.
#![deny(missing_docs)]

pub use test_kernels_gpu::*;

/// Image of these kernels, compiled for the GPU.
pub static IMAGE: warpsmith_runtime::GpuImage = warpsmith_runtime::include_image!("test_kernels_gpu");
