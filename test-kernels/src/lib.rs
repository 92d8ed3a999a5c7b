//! Kernels for tests, benchmarks and examples (the crate in `gpu/`), and their image. The product's image does not
//! contain these kernels.
#![deny(missing_docs)]

pub use test_kernels_gpu::*;

/// Image of these kernels, compiled for the GPU.
pub static IMAGE: warpsmith_runtime::GpuImage = warpsmith_runtime::include_image!("test_kernels_gpu");
