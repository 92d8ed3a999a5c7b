//! [`Tensor`] and [`TensorMut`]: the tensor arguments and results of an operator.

use std::ops::{Deref, DerefMut};

use pyo3::{Py, PyAny};
use warpsmith_interop::dlpack;

use crate::{torch, tvm};

/// Read-only tensor argument. It dereferences to [`dlpack::Tensor`], whose methods check the element type and return
/// views for kernels.
///
/// The memory is stream-ordered on [`Call::stream`](crate::Call::stream). If the operator launches work on another
/// stream of the runtime, the runtime orders this work with the call's stream. Do not keep a tensor after the call,
/// because a caller of TVM FFI may lend the memory only for the duration of the call.
#[derive(Debug)]
pub struct Tensor(pub(crate) dlpack::Tensor);

impl Tensor {
    /// Swaps two dimensions without moving elements, like `torch.transpose`.
    ///
    /// # Panics
    /// Panics if either dimension is out of range.
    #[must_use]
    pub fn swapped(mut self, one: usize, other: usize) -> Self {
        self.0.swap_dimensions(one, other);
        self
    }
}

impl Deref for Tensor {
    type Target = dlpack::Tensor;

    fn deref(&self) -> &dlpack::Tensor {
        &self.0
    }
}

/// Tensor that the operator writes: an argument that is modified in place, or a result that
/// [`Call::empty`](crate::Call::empty) allocated, whose elements are uninitialized.
#[derive(Debug)]
pub struct TensorMut {
    pub(crate) tensor: dlpack::Tensor,
    pub(crate) origin: Origin,
}

/// Origin of a tensor, with the handle or object that is returned to the caller.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The tensor is an argument and cannot be returned.
    Argument,
    Torch(torch::Handle),
    Tvm(tvm::Handle),
    Python(Py<PyAny>),
    /// The runtime allocated the memory.
    Own,
}

impl Deref for TensorMut {
    type Target = dlpack::Tensor;

    fn deref(&self) -> &dlpack::Tensor {
        &self.tensor
    }
}

impl DerefMut for TensorMut {
    fn deref_mut(&mut self) -> &mut dlpack::Tensor {
        &mut self.tensor
    }
}
