//! [`Tensor`] and [`TensorMut`]: the tensor arguments and results of an operator.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
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
pub struct Tensor(pub(crate) Held);

impl Tensor {
    /// Swaps two dimensions without moving elements, like `torch.transpose`.
    ///
    /// # Panics
    /// Panics if either dimension is out of range.
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

/// Tensor that the operator writes: an argument that is modified in place, or a result that
/// [`Call::empty`](crate::Call::empty) allocated, whose elements are uninitialized.
#[derive(Debug)]
pub struct TensorMut {
    pub(crate) tensor: Held,
    pub(crate) origin: Origin,
}

thread_local! {
    /// Tensors dropped during the current call, if that call keeps them.
    static KEPT: RefCell<Option<Vec<dlpack::Tensor>>> = const { RefCell::new(None) };
}

/// An imported tensor. If it is dropped within [`Held::keep_during`], the same thread releases the owner after the call,
/// when no work uses the memory. Otherwise, a background thread would release the owner after the work, and would have
/// to attach to an interpreter that may be in finalization.
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

    /// Calls `work`, which waits for its launches before it returns. Tensors that `work` drops are kept until then.
    pub fn keep_during<R>(work: impl FnOnce() -> R) -> R {
        /// Restores the list of the outer call, even after a panic.
        struct Kept(Option<Vec<dlpack::Tensor>>);

        impl Drop for Kept {
            fn drop(&mut self) {
                let kept = KEPT.replace(self.0.take());
                // The drop may run Python code, which may call operators.
                drop(kept);
            }
        }

        let _kept = Kept(KEPT.replace(Some(Vec::new())));
        work()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the value is being dropped, so the field is not used afterwards.
        let mut tensor = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        // While thread-local variables are being destroyed, the tensor is dropped here.
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

/// Origin of a tensor, with the handle or object to return to the caller.
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
        &self.tensor.0
    }
}

impl DerefMut for TensorMut {
    fn deref_mut(&mut self) -> &mut dlpack::Tensor {
        &mut self.tensor.0
    }
}
