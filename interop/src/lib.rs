//! Zero-copy exchange of tensors with other frameworks.
//!
//! | module | contents |
//! | --- | --- |
//! | [`dlpack`] | DLPack 1.3: PyTorch, JAX, CuPy, NumPy, TVM |
//! | [`cuda_array`] | `__cuda_array_interface__` version 3: Numba, CuPy, RAPIDS |
//!
//! Both modules use the runtime's extension API: [`DeviceBuffer::from_raw`](warpsmith_runtime::DeviceBuffer::from_raw)
//! and [adopted streams](warpsmith_runtime::Stream::adopt). This crate does not call Python.
#![deny(missing_docs)]

pub mod cuda_array;
pub mod dlpack;
