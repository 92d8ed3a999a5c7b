//! [`convolution_fused`]: convolution with fused bias and activation.

use cudarc::cudnn::sys::{cudnnActivationMode_t, cudnnNanPropagation_t};

use super::call::{self, Operand};
use super::convolution::{Convolution, convolution};
use super::descriptor::{ActivationKind, OldDescriptor, TensorKind, check, tensor};
use super::element::{data, factors};
use super::functions;
use super::geometry::{Epilogue, Geometry, Operation};
use super::host;
use super::options;
use super::plan::{Outcome, Request};
use super::tensor::{Shape, Tensor, TensorMut};
use crate::element::Factor;
use crate::element::FloatType;
use crate::error::LibraryError;
use warpsmith_runtime::extension::{BufferUse, site};
use warpsmith_runtime::{DeviceSlice, Error, Result, Stream};

/// Activation function, applied last to each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// Identity.
    #[default]
    Identity,
    /// `max(v, 0)`.
    Relu,
}

/// Enqueues `y = activation(alpha * (x ∗ w) + beta * y + bias)` with one bias per output channel.
///
/// On a GPU, this is one fused kernel if `alpha` is 1, `beta` is 0, cuDNN has an engine for the convolution, and the
/// engine's workspace can be allocated. Otherwise the operation takes three passes. These passes round differently,
/// because sums are rounded to the element type before the bias is added. If a pass fails, the passes before it remain
/// enqueued.
///
/// # Errors
/// Returns the same errors as [`convolution`], and [`LibraryError::Shape`] unless there is one bias per output
/// channel.
#[track_caller]
pub fn convolution_fused<T: FloatType>(
    stream: &Stream,
    options: &Convolution,
    x: &Tensor<'_, T>,
    w: &Tensor<'_, T>,
    bias: &DeviceSlice<'_, T>,
    activation: Activation,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::convolution_fused";
    let geometry = Geometry::new(NAME, options, &x.shape, &w.shape, &y.shape)?;
    if bias.len() != y.shape.dims[1] {
        let text = format!(
            "the bias has {} elements, but there are {} output channels",
            bias.len(),
            y.shape.dims[1]
        );
        return Err(LibraryError::shape(NAME, text));
    }
    let device = stream.device();
    let operands = [
        Operand::read("x", &x.slice),
        Operand::read("w", &w.slice),
        Operand::written("y", &y.slice),
        Operand::read("bias", bias),
    ];
    let (parts, places) = call::check(NAME, stream, operands)?;
    if y.slice.is_empty() {
        return Ok(());
    }
    if device.is_emulated() {
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The operands have the
        // geometry's shapes, and the work stays inside them.
        return unsafe {
            let host = move || host::convolution::run_fused::<T>(&geometry, places, activation);
            stream.enqueue_host_named(NAME, &parts, host)
        };
    }
    call::check_type::<T>(NAME, device)?;
    // cuDNN does not document whether fused engines apply the factors.
    let is_plain = geometry.alpha == 1.0 && geometry.beta == 0.0;
    if is_plain && places.iter().all(|place| place.len != 0) {
        let epilogue = match activation {
            Activation::Identity => Epilogue::Bias,
            Activation::Relu => Epilogue::BiasRelu,
        };
        let options = options.options.unwrap_or_else(|| options::options(device));
        let what = (Operation::Forward, epilogue);
        let request = Request::new::<T>(NAME, stream, what, &geometry, options, (&parts, &places));
        // SAFETY: parts and addresses belong to tensors of the geometry's shapes, as checked above.
        match unsafe { request.run() } {
            Ok(Outcome::Enqueued) => return Ok(()),
            Ok(Outcome::NoPlan(_)) => {}
            Err(error) if is_for_workspace(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // All checks precede the convolution, so an error leaves `y` unchanged.
    let passes = Passes::new::<T>(NAME, stream, &y.shape, activation)?;
    convolution(stream, options, x, w, y)?;
    passes.enqueue(NAME, stream, bias, y)
}

/// Returns true if the error means that the workspace was too small for the fused engines. The three passes may need a
/// smaller workspace.
fn is_for_workspace(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory(_))
        || matches!(error.downcast_ref(), Some(LibraryError::WorkspaceTooSmall { .. }))
}

/// The passes that follow a convolution, implemented with the legacy API.
struct Passes {
    bias: OldDescriptor<TensorKind>,
    y: OldDescriptor<TensorKind>,
    /// ReLU descriptor, or `None` if no activation is applied.
    relu: Option<OldDescriptor<ActivationKind>>,
}

impl Passes {
    /// Creates the descriptors for an output of this shape.
    fn new<T: FloatType>(
        name: &'static str,
        stream: &Stream,
        y: &Shape,
        activation: Activation,
    ) -> Result<Self> {
        let _handle = call::acquire(stream)?;
        let of_bias = Shape { dims: [1, y.dims[1], 1, 1, 1], ..*y };
        let relu = match activation {
            Activation::Identity => None,
            Activation::Relu => {
                let relu = OldDescriptor::<ActivationKind>::new()?;
                let mode = cudnnActivationMode_t::CUDNN_ACTIVATION_RELU;
                let nans = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
                // SAFETY: the descriptor is alive.
                check("cudnnSetActivationDescriptor", unsafe {
                    functions::cudnnSetActivationDescriptor(relu.get(), mode, nans, 0.0)
                })?;
                Some(relu)
            }
        };
        Ok(Self { bias: tensor(name, &of_bias, data::<T>())?, y: tensor(name, y, data::<T>())?, relu })
    }

    /// Enqueues `y = activation(y + bias)`. `y` must have the shape passed to [`Self::new`].
    fn enqueue<T: FloatType>(
        &self,
        name: &'static str,
        stream: &Stream,
        bias: &DeviceSlice<'_, T>,
        y: &mut TensorMut<'_, T>,
    ) -> Result<()> {
        let (from, to) = (Operand::read("bias", bias), Operand::written("y", &y.slice));
        let parts: Vec<BufferUse<'_>> = [from.part, to.part].into_iter().flatten().collect();
        let (from, to, bias, y) = (from.place.pointer(), to.place.pointer(), self.bias.get(), self.y.get());
        call::enqueue_gpu::<T>(name, stream, &parts, |handle| {
            let factors = factors::<T>();
            let [one, zero] = factors.each_ref().map(Factor::as_ptr);
            // SAFETY: handle and descriptors are alive, and the pointers refer to the recorded parts, which contain
            // tensors of the descriptors' shapes.
            check("cudnnAddTensor", unsafe {
                functions::cudnnAddTensor(handle, one, bias, from, one, y, to)
            })?;
            let Some(relu) = &self.relu else { return Ok(()) };
            // SAFETY: as above.
            check("cudnnActivationForward", unsafe {
                functions::cudnnActivationForward(handle, relu.get(), one, y, to, zero, y, to)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_runtime::device::Device;
    use warpsmith_runtime::memory::DeviceBuffer;

    #[test]
    fn passes_replace_one_without_workspace() {
        let stream = Device::emulated(0).unwrap().default_stream();
        assert!(is_for_workspace(&DeviceBuffer::<u8>::uninit(&stream, 1 << 50).unwrap_err()));
        let small = LibraryError::WorkspaceTooSmall { operation: "test", limit: 0, minimum: 1 };
        assert!(is_for_workspace(&small.into()));
        assert!(!is_for_workspace(&LibraryError::shape("test", "")));
    }
}
