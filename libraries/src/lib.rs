//! NVIDIA's libraries with the runtime's conventions. Calls run on streams, buffers cannot be freed or overwritten
//! while they are in use, and workspaces come from the caching allocator.
//!
//! | module | library | implementation on the emulated device |
//! | --- | --- | --- |
//! | [`blas`] | cuBLAS, cuBLASLt | all operations |
//! | [`dnn`] | cuDNN: convolution, pooling, batch normalization | plain Rust |
//! | [`fft`] | cuFFT | all operations, with `rustfft` |
//! | [`sparse`] | cuSPARSE | all operations, sequentially |
//!
//! On the emulated device, captured library work becomes a host function. It therefore cannot be part of the body of a
//! conditional node ([`Graph::add_if`](warpsmith_runtime::Graph::add_if) and similar methods), which, as in CUDA,
//! cannot contain host functions.
//!
//! Each module has a cargo feature of the same name, and a program compiles only the modules that it enables.
//!
//! The libraries are loaded on first use. [`Vendor::version`] reports whether a library is installed. A call that needs
//! a missing library fails with [`LibraryError::Missing`] and has no effect. The libraries are searched for in the
//! following order: the system's default paths; the folders in `WARPSMITH_LIBRARY_PATH` (separated by `:`);
//! `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`; the packages of the active Python environment. Relative paths are
//! ignored. In a set-uid program, these environment variables are ignored as well.
//!
//! Every operation checks shapes, strides and types before anything is enqueued. Operations return before they have run
//! and can be captured in graphs unless their documentation states otherwise. Each device has its own library handles.
//! A handle is used by one thread at a time and is preferably reused on the same stream. Two streams never share a
//! workspace.
//!
//! On the first use of a library, creating its handle may wait until the whole device is idle. CUDA forbids this wait
//! during stream capture, so a capture that another thread has started on the device fails with an error. The capturing
//! thread itself may use a library for the first time.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// If no library is enabled, only `Vendor` is in use.
#![cfg_attr(
    not(any(feature = "blas", feature = "dnn", feature = "fft", feature = "sparse")),
    allow(dead_code)
)]
#[cfg(feature = "blas")]
pub mod blas;
#[cfg(feature = "dnn")]
pub mod dnn;
#[cfg(any(feature = "blas", feature = "dnn"))]
mod element;
mod error;
#[cfg(feature = "fft")]
pub mod fft;
#[cfg(any(feature = "dnn", feature = "fft"))]
mod functions;
#[cfg(any(feature = "blas", feature = "dnn"))]
mod handles;
#[cfg(any(feature = "blas", feature = "dnn"))]
mod lru;
#[cfg(any(feature = "dnn", feature = "fft", feature = "sparse"))]
mod on_device;
mod pressure;
#[cfg(any(feature = "fft", feature = "sparse"))]
mod scale;
#[cfg(feature = "sparse")]
pub mod sparse;
mod vendor;

pub use self::error::{LibraryError, VendorVersion};
#[cfg(any(feature = "blas", feature = "dnn"))]
pub use self::lru::PlanCache;
pub use self::vendor::Vendor;
