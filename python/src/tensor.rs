//! [`Tensor`] and [`TensorMut`]: tensors of a call.

use std::ops::{Deref, DerefMut};

use pyo3::{Py, PyAny};
use warpsmith_interop::dlpack;

use crate::{torch, tvm};

/// A tensor argument, for reading. It derefs to [`dlpack::Tensor`], whose methods check the type of the elements and give
/// views for kernels.
///
/// The memory is used in the order of [`Call::stream`](crate::Call::stream). Work that is launched on another stream of
/// the runtime is ordered with it. A caller of TVM FFI may lend the memory for the call only: keep no tensor after it.
#[derive(Debug)]
pub struct Tensor(pub(crate) dlpack::Tensor);

impl Tensor {
    /// Swaps two dimensions, without moving elements.
    ///
    /// # Panics
    /// If the tensor does not have both dimensions.
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

/// A tensor for writing: an argument that the operator changes in place, or a result from
/// [`Call::empty`](crate::Call::empty), whose elements are not initialized.
#[derive(Debug)]
pub struct TensorMut {
    pub(crate) tensor: dlpack::Tensor,
    pub(crate) origin: Origin,
}

/// The value that is returned to the caller for a tensor.
#[derive(Debug)]
pub(crate) enum Origin {
    /// It is an argument, which cannot be returned.
    Argument,
    Torch(torch::Handle),
    Tvm(tvm::Handle),
    Python(Py<PyAny>),
    /// The runtime's own memory.
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
