//! [`Tensor`] and [`TensorMut`]: tensors of a call.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
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
pub struct Tensor(pub(crate) Held);

impl Tensor {
    /// Swaps two dimensions, without moving elements.
    ///
    /// # Panics
    /// If the tensor does not have both dimensions.
    #[must_use]
    pub fn swapped(mut self, one: usize, other: usize) -> Self {
        self.0.0.swap_dimensions(one, other);
        self
    }
}

impl Deref for Tensor {
    type Target = dlpack::Tensor;

    fn deref(&self) -> &dlpack::Tensor {
        &self.0.0
    }
}

/// A tensor for writing: an argument that the operator changes in place, or a result from
/// [`Call::empty`](crate::Call::empty), whose elements are not initialized.
#[derive(Debug)]
pub struct TensorMut {
    pub(crate) tensor: Held,
    pub(crate) origin: Origin,
}

thread_local! {
    /// Tensors that were dropped during the current call, if it keeps them.
    static KEPT: RefCell<Option<Vec<dlpack::Tensor>>> = const { RefCell::new(None) };
}

/// An imported tensor. If it is dropped within [`Held::keep_during`], its owner is released on the same thread after the
/// call, when no work uses the memory. Otherwise, another thread would release it after the work, and would have to
/// attach to a Python interpreter that may be ending.
#[derive(Debug)]
pub(crate) struct Held(ManuallyDrop<dlpack::Tensor>);

impl Held {
    pub fn new(tensor: dlpack::Tensor) -> Self {
        Self(ManuallyDrop::new(tensor))
    }

    pub fn into_inner(self) -> dlpack::Tensor {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped afterwards.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }

    /// Calls `work`, which waits at its end, and keeps the tensors that it drops until then.
    pub fn keep_during<R>(work: impl FnOnce() -> R) -> R {
        /// Restores the list of an outer call, also after a panic.
        struct Kept(Option<Vec<dlpack::Tensor>>);

        impl Drop for Kept {
            fn drop(&mut self) {
                let kept = KEPT.replace(self.0.take());
                // Python code may run here, which may call operators.
                drop(kept);
            }
        }

        let _kept = Kept(KEPT.replace(Some(Vec::new())));
        work()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the value is dropped, so that nothing uses the field afterwards.
        let mut tensor = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        // Without access at the end of a thread, the tensor is dropped here.
        let _ = KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && let Some(kept) = &mut *kept
            {
                kept.extend(tensor.take());
            }
        });
        drop(tensor);
    }
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
        &self.tensor.0
    }
}

impl DerefMut for TensorMut {
    fn deref_mut(&mut self) -> &mut dlpack::Tensor {
        &mut self.tensor.0
    }
}
