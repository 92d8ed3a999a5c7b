//! GPU kernels in Rust that you launch from Rust, on a GPU or on an emulated device.
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
//! ops::axpy(&stream, &x, 2.0, &mut y)?;
//!
//! assert_eq!(y.to_host()?, [12.0, 24.0, 36.0]);
//! assert_eq!(y.sum()?, 72.0);
//! assert_eq!(y.argmax()?, 2);
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! | item | contents |
//! | --- | --- |
//! | [`ops`] | typed operations on device memory, such as copies, elementwise functions and reductions |
//! | [`random`] | random number generators, and operations that fill arrays with random numbers |
//! | [`device`], [`stream`], [`memory`], [`launch`], [`graph`], … | the runtime: all of `warpsmith-runtime`, re-exported |
//! | `collective`, with the feature `collective` | multi-GPU programs: ranks, rendezvous stores, communicators |
//! | `profiler`, with the feature `profiler` | traces of device and host activity, in memory and in files; the environment variable `WARPSMITH_PROFILE=FILE`, which profiles an unmodified program |
//! | `tensor`, with the feature `tensor` | GEMM and attention on tensor cores |
//! | [`range!`], [`mark!`], [`nvtx`], [`ranges`] | named ranges of a program, for profilers and tools |
//! | `library`, with one feature per library | cuBLAS, cuDNN, cuFFT, cuSPARSE |
//! | `glam`, with the feature `glam` | vectors and matrices as kernel parameters |
//! | [`gpu_std`] | the standard library for kernels; kernel crates depend on it directly |
//! | [`kernels`] | the kernels that implement [`ops`], for direct launches |
//! | `bench`, with the feature `bench` | benchmarking and tuning of kernels, including your own |
//! | [`IMAGE`], [`include_image!`] | this crate's GPU image; a macro that embeds the image of your own kernels |
//!
//! # Generic code
//! A function that is generic over a kernel's types needs an `Instance` bound in addition to the kernel's own bounds.
//! The kernel's parameters determine the launch arguments:
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
//! fn scaled<T: Float>(module: &Module, stream: &Stream, a: T, x: &[T]) -> Result<Vec<T>, Error>
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
//! # Errors
//! Fallible functions return [`Error`], except for a few whose errors also return memory to the caller, such as
//! [`CopyFailed`]. An [`Error`] from a subsystem contains that subsystem's error. [`Error::downcast_ref`] retrieves it
//! as an [`OpError`], `tensor::TensorError`, `library::LibraryError`, `collective::CollectiveError`,
//! `collective::CommunicatorError`, `profiler::ProfilerError` or `profiler::trace::TraceError`.
//!
//! ```
//! use warpsmith::prelude::*;
//! use warpsmith::{OpError, ops};
//!
//! let stream = Stream::new(&Device::open("cpu")?)?;
//! let empty = DeviceBuffer::<f32>::zeros(&stream, 0)?;
//! let error = ops::min(&stream, &empty).unwrap_err();
//! assert!(matches!(error.downcast_ref(), Some(OpError::Empty { .. })));
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! A program built without the device toolchain runs only on the emulated device. Loading its image on a CUDA device
//! returns an error.
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
#[cfg(feature = "interop")]
pub use warpsmith_interop as interop;
#[cfg(feature = "profiler")]
pub use warpsmith_profiler as profiler;
pub use warpsmith_runtime::*;
#[cfg(feature = "tensor")]
pub use warpsmith_tensor as tensor;

/// NVIDIA's libraries, with one cargo feature per library. A library is loaded when a program first uses it.
// The libraries are re-exported one by one so that, for a missing item, the compiler can name the feature that enables
// it.
pub mod library {
    #[cfg(any(feature = "blas", feature = "dnn"))]
    pub use warpsmith_libraries::PlanCache;
    #[cfg(feature = "blas")]
    pub use warpsmith_libraries::blas;
    #[cfg(feature = "dnn")]
    pub use warpsmith_libraries::dnn;
    #[cfg(feature = "fft")]
    pub use warpsmith_libraries::fft;
    #[cfg(feature = "sparse")]
    pub use warpsmith_libraries::sparse;
    #[cfg(any(feature = "blas", feature = "dnn", feature = "fft", feature = "sparse"))]
    pub use warpsmith_libraries::{LibraryError, Vendor, VendorVersion};
}
