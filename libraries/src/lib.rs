//! NVIDIA's libraries, called the way the rest of the runtime works: on streams, with buffers that cannot be freed or
//! overwritten meanwhile, with workspaces from the caching allocator.
//!
//! | module | library | on the emulated device |
//! | --- | --- | --- |
//! | [`blas`] | cuBLAS, cuBLASLt | all of it |
//! | [`dnn`] | cuDNN: convolutions, pooling, softmax, batch normalisation | plain Rust |
//! | [`fft`] | cuFFT | the same, through `rustfft` |
//! | [`sparse`] | cuSPARSE | the same, one element after the other |
//! | [`rand`] | cuRAND | an error |
//!
//! On the emulated device captured work of a library is a function of the host. So a graph that has some cannot be a part
//! that runs on a condition ([`Graph::add_if`](warpsmith_runtime::Graph::add_if) and the like) there: as in CUDA, such a part has no
//! functions of the host.
//!
//! Each module is a cargo feature of its name; a program that turns none on compiles none of them.
//!
//! The libraries are loaded when they are first needed. [`Vendor::version`] says whether one is there; a call that
//! needs one which is not fails with [`LibraryError::Missing`] and does nothing. The system's own places come
//! first, then folders named by `WARPSMITH_LIBRARY_PATH` (several with `:` between them), then `CUDA_HOME`, `CUDA_PATH`,
//! `/usr/local/cuda` and the packages of the active Python environment.
//! Folders that are not absolute are ignored, and in a set-uid program the variables are.
//!
//! Every operation checks shapes, strides and types before anything is enqueued, returns before it has run, and may be
//! captured in a graph unless its documentation says otherwise. Handles of libraries are kept for each device, used by
//! one thread at a time, and prefer the stream that they were used on last. Two streams never share a workspace.
//!
//! A library's first use makes a handle, and that may wait for the whole device, which CUDA forbids while a stream of it is
//! captured: another thread's capture then ends with an error. The thread that captures may use a library for the first time.

#![deny(missing_docs)]
// Without a library only `Vendor` is used.
#![cfg_attr(
    not(any(feature = "blas", feature = "dnn", feature = "fft", feature = "rand", feature = "sparse")),
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
#[cfg(any(feature = "dnn", feature = "fft", feature = "rand", feature = "sparse"))]
mod on_device;
mod pressure;
#[cfg(feature = "rand")]
pub mod rand;
#[cfg(any(feature = "fft", feature = "sparse"))]
mod scale;
#[cfg(feature = "sparse")]
pub mod sparse;
mod vendor;

pub use self::error::{LibraryError, VendorVersion};
#[cfg(any(feature = "blas", feature = "dnn"))]
pub use self::lru::PlanCache;
pub use self::vendor::Vendor;
