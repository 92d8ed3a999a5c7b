//! Devices, memory, streams, events, modules, launches and graphs: the host side of GPU kernels written in Rust.
//!
//! A program runs unchanged on a GPU, through the CUDA driver loaded at run time, and on an emulated GPU on any
//! machine. Safe code cannot free or overwrite memory that a stream still uses, nor launch a kernel with arguments or a
//! shape that the kernel does not accept.
//!
//! | module | contents |
//! | --- | --- |
//! | [`error`] | the crate's error type |
//! | [`device`] | devices: enumeration, opening, properties, lost devices |
//! | [`stream`], [`event`] | streams and events |
//! | [`memory`] | buffers, synchronization between their uses, and the caching allocator |
//! | [`snapshot`] | memory snapshots and their files |
//! | [`transfer`] | asynchronous copies |
//! | [`module`] | GPU images and the kernels in them |
//! | [`launch`] | shapes, arguments, launches |
//! | [`graph`] | graphs: work instantiated once and launched many times |
//! | [`store`] | the user's file of tuned launches |
//! | [`ranges`], [`range!`], [`mark!`], [`nvtx`] | named ranges of a program, for profilers |
//! | [`extension`] | the extension API for crates built on this one |
//! | [`driver`] | the driver traits and their implementation for CUDA |
//! | `emulated` (with the feature of that name) | GPUs emulated on the CPU |
//!
//! ```
//! use warpsmith_runtime::{DeviceBuffer, Stream};
//!
//! let stream = Stream::best()?;
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
//! let mut y = DeviceBuffer::zeros(&stream, 3)?;
//! stream.copy(&x, &mut y)?;
//! assert_eq!(y.to_host()?, [1.0, 2.0, 3.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod check;
pub mod device;
pub mod error;
pub mod event;
pub mod extension;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod module;
mod open;
pub mod ranges;
pub mod snapshot;
pub mod stream;
pub mod transfer;

pub use warpsmith_driver as driver;
#[cfg(feature = "emulated")]
pub use warpsmith_emulated as emulated;

pub use self::device::{Device, DeviceGuard, DeviceId, DeviceInfo, Uuid};
pub use self::driver::{DeviceProperties, DevicePtr, DriverError, Telemetry};
pub use self::error::{Error, ExtensionError, GraphError, LaunchError, LoadError, Result, StackError};
pub use self::event::Event;
pub use self::graph::{Capture, Graph, GraphCache, GraphExec};
pub use self::launch::{
    Argument, Arguments, Dim, Explanation, Function, Launch, LaunchConfig, PreparedLaunch, TypedKernel, store,
};
pub use self::memory::options::AllocatorOptions;
pub use self::memory::{
    DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2,
    DeviceSliceMut3, MappedBuffer, MappedGuard, Memory, MemoryInfo, MemoryPool, OutOfMemory, PinnedBuffer,
    PinnedMemory, PinnedRange, PoolOptions, TensorLayout, TensorMap, TensorMapMut,
};
pub use self::module::{Code, GpuImage, Module};
pub use self::ranges::nvtx;
pub use self::stream::{Stream, StreamGuard};
pub use self::transfer::{CopyFailed, HostMemory, Pending};
pub use gpu_spec::{SharedLen, Swizzle};
