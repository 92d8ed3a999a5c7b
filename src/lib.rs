//! GPU kernels in Rust, launched from Rust, on a GPU or on an emulated one.
//!
//! ```
//! use warpsmith::prelude::*;
//! use warpsmith::ops;
//!
//! let device = Device::open("cpu")?; // or Device::best(), or Device::cuda(0)
//! let stream = Stream::new(&device)?;
//!
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
//! let mut y = DeviceBuffer::from_host(&stream, &[10.0f32, 20.0, 30.0])?;
//! ops::axpy(&stream, 2.0, &x, &mut y)?;
//!
//! assert_eq!(y.to_host()?, [12.0, 24.0, 36.0]);
//! assert_eq!(ops::sum(&stream, &y)?, 72.0);
//! assert_eq!(ops::argmax(&stream, &y)?, 2);
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! | where | what |
//! | --- | --- |
//! | [`ops`] | typed operations on device memory: copy, elementwise, reductions |
//! | [`random`] | generators of random numbers, and arrays of them |
//! | [`device`], [`stream`], [`memory`], [`launch`], [`graph`], … | the runtime: `warpsmith-runtime` as a whole, re-exported |
//! | `collective`, with the feature of that name | programs on several GPUs: ranks, stores in which they meet, communicators |
//! | `profiler`, with the feature of that name | traces of what devices and host do, in memory and in files; hardware counters of kernels; `WARPSMITH_PROFILE=FILE` or `WARPSMITH_COUNTERS=FILE` in the environment of a program that was not changed |
//! | `tensor`, with the feature of that name | matrix products and attention on tensor cores |
//! | [`range!`], [`mark!`], [`nvtx`], [`ranges`] | named parts of a program, for profilers and tools |
//! | `library`, with a feature for each | cuBLAS, cuDNN, cuFFT, cuRAND, cuSPARSE |
//! | `glam`, with the feature of that name | vectors and matrices that kernels take |
//! | [`gpu_std`] | what kernels are written with; a kernel crate depends on it directly |
//! | [`kernels`] | the kernels behind [`ops`], to launch by hand |
//! | `bench`, with the feature of that name | measuring and tuning kernels, one's own too |
//! | [`IMAGE`], [`include_image!`] | their code for the GPU; the code of one's own kernels |
//!
//! # Generic code
//!
//! A function that is generic over the types of a kernel asks for an instance, besides the kernel's own bounds. What the
//! launch takes follows from the kernel's parameters:
//!
//! ```
//! use warpsmith::gpu_std::prelude::*;
//! use warpsmith::prelude::*;
//!
//! #[kernel(types(T = f32, f64))]
//! fn scale<T: Float>(a: T, mut x: DisjointMut<T>) {
//!     if let Some(x) = x.get_mut(thread::unique_index()) {
//!         *x = *x * a;
//!     }
//! }
//!
//! fn scaled<T: Float + DeviceCopy>(module: &Module, stream: &Stream, a: T, x: &[T]) -> Result<Vec<T>, Error>
//! where
//!     scale<T>: Instance,
//! {
//!     let mut x = DeviceBuffer::from_host(stream, x)?;
//!     module.kernel::<scale<T>>()?.launch(stream, Launch::auto(x.len()), (a, &mut x))?;
//!     x.to_host()
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
//! let device = Device::open("cpu")?;
//! let stream = Stream::new(&device)?;
//! let module = device.load(&IMAGE)?;
//! assert_eq!(scaled(&module, &stream, 2.0_f32, &[1.0, 2.5])?, [2.0, 5.0]);
//! assert_eq!(scaled(&module, &stream, 3.0_f64, &[1.0])?, [3.0]);
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! A program built on a machine without the device toolchain runs on the emulated device only. Opening
//! a CUDA device is then an error that says so.
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "bench")]
pub mod bench;
pub mod image;
mod op_error;
pub mod ops;
pub mod prelude;
pub mod random;

pub use gpu_kernels as kernels;
pub use gpu_std;
#[cfg(feature = "glam")]
pub use gpu_std::glam;
pub use half::{bf16, f16};
pub use image::IMAGE;
pub use op_error::OpError;
#[cfg(feature = "collective")]
pub use warpsmith_collective as collective;
#[cfg(feature = "profiler")]
pub use warpsmith_profiler as profiler;
pub use warpsmith_runtime::*;
#[cfg(feature = "tensor")]
pub use warpsmith_tensor as tensor;

/// NVIDIA's libraries, a feature each. They are loaded when a program first uses them.
// One by one, so that the compiler can say which feature one needs.
pub mod library {
    #[cfg(any(feature = "blas", feature = "dnn"))]
    pub use warpsmith_libraries::PlanCache;
    #[cfg(feature = "blas")]
    pub use warpsmith_libraries::blas;
    #[cfg(feature = "dnn")]
    pub use warpsmith_libraries::dnn;
    #[cfg(feature = "fft")]
    pub use warpsmith_libraries::fft;
    #[cfg(feature = "rand")]
    pub use warpsmith_libraries::rand;
    #[cfg(feature = "sparse")]
    pub use warpsmith_libraries::sparse;
    #[cfg(any(
        feature = "blas",
        feature = "dnn",
        feature = "fft",
        feature = "rand",
        feature = "sparse"
    ))]
    pub use warpsmith_libraries::{LibraryError, Vendor, VendorVersion};
}
