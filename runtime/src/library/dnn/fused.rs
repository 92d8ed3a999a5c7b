//! [`convolution_fused`]: a convolution with bias and activation in one pass.

use cudarc::cudnn::sys::{self, cudnnActivationMode_t, cudnnNanPropagation_t};

use super::call::{self, Place, check_device, check_type};
use super::convolution::{Convolution, convolution};
use super::descriptor::{ActivationKind, OldDescriptor, check, tensor};
use super::element::{Float, Scale};
use super::geometry::{Epilogue, Geometry, Key, Operation};
use super::host;
use super::options;
use super::plan::{Outcome, Request};
use super::tensor::{Shape, Tensor, TensorMut, problem};
use crate::driver::DevicePtr;
use crate::error::{LibraryError, Result};
use crate::library::work;
use crate::memory::DeviceSlice;
use crate::memory::usage::Access;
use crate::stream::Stream;

/// What is applied to each element in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `max(v, 0)`.
    Relu,
}

/// Enqueues `y = activation(alpha * (x ∗ w) + beta * y + bias)`, with one bias for each output channel.
///
/// On GPUs it is one pass where cuDNN has an engine for it, else three: the result is the same but for rounding, since
/// sums are then rounded to the element type before the bias is added.
///
/// # Errors
/// As [`convolution`]; [`LibraryError::Shape`] unless there is a bias for each output channel.
pub fn convolution_fused<T: Float>(
    stream: &Stream,
    options: &Convolution,
    x: &Tensor<'_, T>,
    w: &Tensor<'_, T>,
    bias: &DeviceSlice<'_, T>,
    activation: Activation,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::convolution_fused";
    let geometry = Geometry::new(NAME, options, &x.shape, &w.shape, &y.shape)?;
    if bias.len() != y.shape.dims[1] {
        return Err(problem(
            NAME,
            format!("there are {} biases for {} output channels", bias.len(), y.shape.dims[1]),
        ));
    }
    let device = stream.device();
    let parts =
        [x.slice.part(Access::Read), w.slice.part(Access::Read), y.slice.part(), bias.part(Access::Read)];
    for (part, what) in parts.iter().zip(["x", "w", "y", "bias"]) {
        check_device(stream, NAME, what, part.storage.device())?;
    }
    if y.slice.is_empty() {
        return Ok(());
    }
    let places = [Place::of(&x.slice), Place::of(&w.slice), Place::of_mut(&y.slice), Place::of(bias)];
    if device.is_emulated() {
        return work::enqueue(
            stream,
            &parts,
            |_| Err(LibraryError::NeedsGpu { operation: NAME }.into()),
            || {
                // SAFETY: the parts are noted, lie at these places and are of the geometry's shapes.
                Ok(Box::new(move || unsafe {
                    host::convolution::run_fused::<T>(&geometry, places, activation);
                }))
            },
        );
    }
    check_type::<T>(NAME, device)?;
    if places.iter().all(|place| place.len != 0) && geometry.beta == 0.0 {
        let addresses = places.map(|place| DevicePtr(place.address));
        let epilogue = match activation {
            Activation::Identity => Epilogue::Bias,
            Activation::Relu => Epilogue::BiasRelu,
        };
        let options = options.options.unwrap_or_else(|| options::options(device));
        let request = Request {
            name: NAME,
            stream,
            key: Key::new::<T>(Operation::Forward, epilogue, &geometry, options, addresses),
            data: T::DATA,
            geometry: &geometry,
            parts: &parts,
            addresses: &addresses,
        };
        // SAFETY: parts and addresses are of tensors of the geometry's shapes, as was checked above.
        if let Outcome::Enqueued = unsafe { request.run() }? {
            return Ok(());
        }
    }
    convolution(stream, options, x, w, y)?;
    in_passes(NAME, stream, bias, activation, y)
}

/// Enqueues `y = activation(y + bias)` by the older interface.
fn in_passes<T: Float>(
    name: &'static str,
    stream: &Stream,
    bias: &DeviceSlice<'_, T>,
    activation: Activation,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let handle = call::acquire(stream)?;
    let raw = handle.raw.get();
    let of_bias = Shape { dims: [1, y.shape.dims[1], 1, 1, 1], ..y.shape };
    let bias_descriptor = tensor(name, &of_bias, T::DATA)?;
    let y_descriptor = tensor(name, &y.shape, T::DATA)?;
    let relu = OldDescriptor::<ActivationKind>::new()?;
    // SAFETY: the descriptor is alive.
    check("cudnnSetActivationDescriptor", unsafe {
        let nans = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        sys::cudnnSetActivationDescriptor(relu.get(), cudnnActivationMode_t::CUDNN_ACTIVATION_RELU, nans, 0.0)
    })?;
    let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
    let bias_pointer = bias.as_device_ptr().0 as usize as *const std::ffi::c_void;
    let y_pointer = y.slice.as_device_ptr().0 as usize as *mut std::ffi::c_void;
    work::enqueue(
        stream,
        &[bias.part(Access::Read), y.slice.part()],
        |_| {
            // SAFETY: handle and descriptors are alive; the pointers are to tensors of the descriptors' shapes, which are the
            // parts that are noted.
            check("cudnnAddTensor", unsafe {
                sys::cudnnAddTensor(
                    raw,
                    one.as_ptr(),
                    bias_descriptor.get(),
                    bias_pointer,
                    one.as_ptr(),
                    y_descriptor.get(),
                    y_pointer,
                )
            })?;
            if activation == Activation::Identity {
                return Ok(());
            }
            // SAFETY: as above.
            check("cudnnActivationForward", unsafe {
                sys::cudnnActivationForward(
                    raw,
                    relu.get(),
                    one.as_ptr(),
                    y_descriptor.get(),
                    y_pointer,
                    zero.as_ptr(),
                    y_descriptor.get(),
                    y_pointer,
                )
            })
        },
        || Err(LibraryError::NeedsGpu { operation: name }.into()),
    )
}
