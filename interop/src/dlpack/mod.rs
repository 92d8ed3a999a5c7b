//! DLPack 1.3: tensors exchanged with other frameworks as C structs, without copies.
//!
//! - When the consumer calls the deleter, the buffer is freed after all work that the consumer has enqueued on its
//!   stream. The consumer may call the deleter on any thread, in a host function, and after the device has been lost.
//! - This library calls the deleter of an imported tensor exactly once: after the last use of the tensor on every
//!   stream, or immediately if the import fails. It never calls a deleter in a host function.
//! - An import checks the shape, strides, type, device, alignment and access before any work uses the memory. A failed
//!   check returns a [`DlpackError`] inside [`Error::Extension`](warpsmith_runtime::Error::Extension).
//!
//! | to | use |
//! | --- | --- |
//! | give a buffer to a consumer | [`Export`], then [`into_raw`](Export::into_raw) or [`into_raw_unversioned`](Export::into_raw_unversioned) |
//! | make the consumer's stream wait | [`Export::ready_on`], or [`Export::ready_for`] with the protocol's `stream` argument |
//! | take a tensor from a producer | [`Imported::from_raw`], [`Imported::from_raw_unversioned`] |
//! | ask the producer to make a stream wait | [`stream_argument`] |
//! | use an imported tensor as a buffer | [`Imported::into_buffer`] |
//! | use an imported tensor with strides, or read-only | [`Imported::into_tensor`] |
//! | match Rust and DLPack types | [`Element`] |
//! | implement or call the C exchange API | [`DLPackExchangeAPI`] |
//!
//! ```
//! use warpsmith_interop::dlpack::{Export, Imported, stream_argument};
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! let stream = Stream::new(&Device::emulated(0)?)?;
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//! // As the producer. `stream` is the argument of `__dlpack__`.
//! let mut export = Export::new(x).with_shape(&[2, 3])?;
//! let consumer = Stream::new(stream.device())?;
//! // SAFETY: `consumer` is alive.
//! unsafe { export.ready_for(stream_argument(&consumer)) }?;
//! let tensor = export.into_raw(); // for a capsule `dltensor_versioned`
//!
//! // As the consumer.
//! // SAFETY: the tensor was just exported and is ready on `consumer`.
//! let imported = unsafe { Imported::from_raw(tensor.as_ptr()) }?;
//! assert_eq!((imported.shape(), imported.data_type().to_string()), (&[2, 3][..], "float32".to_owned()));
//! let y = imported.into_buffer::<f32>(&consumer)?;
//! assert_eq!(y.to_host()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! # Devices
//! Memory of a CUDA device is `kDLCUDA`, with the device's ordinal. Memory of an emulated device is host memory, so it
//! is `kDLCPU`, which NumPy and CPU builds of PyTorch can read. An emulated device imports `kDLCPU`; a CUDA device
//! imports `kDLCUDA`, `kDLCUDAHost` and `kDLCUDAManaged`, and determines the device from the address.
//!
//! # Round trips
//! If this library imports a tensor that it exported itself, the import returns the original buffer with its original
//! stream, without a driver call or a heap allocation. An import of a tensor from another library costs two heap
//! allocations and one driver query of the address.

mod abi;
mod data_type;
mod error;
mod export;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzed;
mod import;
mod layout;
mod tensor;

pub use self::abi::*;
pub use self::data_type::Element;
pub use self::error::DlpackError;
pub(crate) use self::export::adopt;
pub use self::export::{Export, stream_argument};
pub use self::import::{Imported, call_deleters_while};
pub use self::tensor::Tensor;
