//! Batch normalization: training, inference and gradients.

use cudarc::cudnn::sys::{cudnnBatchNormMode_t, cudnnDataType_t};

use super::call::{self, Operand, check_same};
use super::descriptor::{OldDescriptor, TensorKind, check, tensor};
use super::element::{data, factors};
use super::functions;
use super::host;
use super::tensor::{Shape, Tensor, TensorMut};
use crate::element::FloatType;
use crate::error::LibraryError;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Result, Stream};

/// Parameters of a batch normalization over all dimensions except the channels, like PyTorch's `BatchNorm1d` to
/// `BatchNorm3d`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNorm {
    /// Epsilon, added to the variance. The default is 1e-5.
    pub epsilon: f64,
    /// Momentum: the weight of the current batch in the running statistics. The default is 0.1.
    pub momentum: f64,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5, momentum: 0.1 }
    }
}

/// Running statistics over all previous batches, for inference. The statistics have one value per channel.
#[derive(Debug)]
pub struct RunningStatistics<'a, R: FloatType> {
    /// Running mean.
    pub mean: DeviceSliceMut<'a, R>,
    /// Running variance, which is unbiased (divided by one less than the number of elements).
    pub variance: DeviceSliceMut<'a, R>,
}

/// Statistics of one batch, for the gradient. The statistics have one value per channel.
#[derive(Debug)]
pub struct BatchStatistics<'a, R: FloatType> {
    /// Mean of each channel of the batch.
    pub mean: DeviceSliceMut<'a, R>,
    /// Inverse standard deviation: `1 / sqrt(variance + epsilon)`.
    pub inverse_deviation: DeviceSliceMut<'a, R>,
}

/// Gradients of a batch normalization.
#[derive(Debug)]
pub struct BatchNormGradients<'a, T: FloatType> {
    /// Gradient of the input.
    pub input: TensorMut<'a, T>,
    /// Gradient of each channel's scale.
    pub scale: DeviceSliceMut<'a, T::Real>,
    /// Gradient of each channel's bias.
    pub bias: DeviceSliceMut<'a, T::Real>,
}

/// Returns an error unless each operand has one value per channel.
fn check_channels(operation: &'static str, shape: &Shape, values: &[Operand<'_>]) -> Result<()> {
    let channels = shape.dims[1];
    match values.iter().find(|value| value.part.is_some() && value.place.len != channels) {
        None => Ok(()),
        Some(Operand { name, place, .. }) => {
            let text = format!("{name} has {} elements, but there are {channels} channels", place.len);
            Err(LibraryError::shape(operation, text))
        }
    }
}

/// Returns an error if the variance cannot be computed. The shape must have at least one channel.
fn check_elements(operation: &'static str, shape: &Shape) -> Result<()> {
    // The number of elements per channel. There is at least one channel.
    let elements = shape.elements().unwrap_or(0) / shape.dims[1];
    if elements > 1 {
        return Ok(());
    }
    let found = if elements == 1 { "1 element" } else { "no elements" };
    let text = format!("shape {:?} has {found} per channel; training requires more than 1", shape.shown());
    Err(LibraryError::shape(operation, text))
}

impl BatchNorm {
    fn check(&self, operation: &'static str) -> Result<()> {
        if self.epsilon >= 0.0 && self.epsilon.is_finite() && (0.0..=1.0).contains(&self.momentum) {
            return Ok(());
        }
        Err(LibraryError::shape(
            operation,
            format!("{self:?}: epsilon must be at least 0, and momentum must be from 0 to 1"),
        ))
    }
}

const MODE: cudnnBatchNormMode_t = cudnnBatchNormMode_t::CUDNN_BATCHNORM_SPATIAL;

/// Creates the descriptors of a tensor and of its per-channel values.
fn descriptors(
    operation: &'static str,
    shape: &Shape,
    data: cudnnDataType_t,
) -> Result<(OldDescriptor<TensorKind>, OldDescriptor<TensorKind>)> {
    let whole = tensor(operation, shape, data)?;
    let channels = OldDescriptor::<TensorKind>::new()?;
    // SAFETY: both descriptors are alive.
    check("cudnnDeriveBNTensorDescriptor", unsafe {
        functions::cudnnDeriveBNTensorDescriptor(channels.get(), whole.get(), MODE)
    })?;
    Ok((whole, channels))
}

/// Enqueues `y = scale * (x - mean) / sqrt(variance + epsilon) + bias`, with the mean and variance of each channel over
/// this batch. The mean and variance are stored in `saved` and update the running statistics.
///
/// # Errors
/// Returns [`LibraryError::Shape`] if shapes do not match or a batch has fewer than two elements per channel. Also
/// returns [`LibraryError::Missing`], [`warpsmith_runtime::Error::DifferentDevices`], any [library
/// error](crate::LibraryError::Call), and the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn batch_norm_training<T: FloatType>(
    stream: &Stream,
    norm: &BatchNorm,
    x: &Tensor<'_, T>,
    (scale, bias): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    running: Option<&mut RunningStatistics<'_, T::Real>>,
    saved: &mut BatchStatistics<'_, T::Real>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::batch_norm_training";
    norm.check(NAME)?;
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let (running_mean, running_variance) = match running {
        Some(RunningStatistics { mean, variance }) => {
            (Operand::target("running.mean", mean), Operand::target("running.variance", variance))
        }
        None => (Operand::none("running.mean"), Operand::none("running.variance")),
    };
    let operands = [
        Operand::read("scale", scale),
        Operand::read("bias", bias),
        Operand::target("saved.mean", &mut saved.mean),
        Operand::target("saved.inverse_deviation", &mut saved.inverse_deviation),
        running_mean,
        running_variance,
        Operand::read("x", &x.slice),
        Operand::target("y", &mut y.slice),
    ];
    check_channels(NAME, &x.shape, &operands[..6])?;
    if x.shape.dims[1] == 0 {
        return Ok(());
    }
    check_elements(NAME, &x.shape)?;
    let (norm, shape) = (*norm, x.shape);
    call::enqueue::<T, 8>(
        NAME,
        stream,
        operands,
        |handle, [scale, bias, mean, deviation, running_mean, running_variance, x, y]| {
            let (whole, channels) = descriptors(NAME, &shape, data::<T>())?;
            let [one, zero] = factors::<T>();
            // SAFETY: handle and descriptors are alive. The pointers refer to a tensor of this shape or to one value
            // per channel, or are null where the library allows it.
            check("cudnnBatchNormalizationForwardTraining", unsafe {
                functions::cudnnBatchNormalizationForwardTraining(
                    handle,
                    MODE,
                    one.as_ptr(),
                    zero.as_ptr(),
                    whole.get(),
                    x,
                    whole.get(),
                    y,
                    channels.get(),
                    scale,
                    bias,
                    norm.momentum,
                    running_mean,
                    running_variance,
                    norm.epsilon,
                    mean,
                    deviation,
                )
            })
        },
        // SAFETY: each operand has either this shape or one value per channel.
        move |places| unsafe { host::norm::training::<T>(&norm, &shape, places) },
    )
}

/// Enqueues `y = scale * (x - mean) / sqrt(variance + epsilon) + bias`, with the given mean and variance of each
/// channel.
///
/// # Errors
/// Returns the same errors as [`batch_norm_training`].
#[track_caller]
pub fn batch_norm_inference<T: FloatType>(
    stream: &Stream,
    norm: &BatchNorm,
    x: &Tensor<'_, T>,
    (scale, bias): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    (mean, variance): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::batch_norm_inference";
    norm.check(NAME)?;
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let operands = [
        Operand::read("scale", scale),
        Operand::read("bias", bias),
        Operand::read("mean", mean),
        Operand::read("variance", variance),
        Operand::read("x", &x.slice),
        Operand::target("y", &mut y.slice),
    ];
    check_channels(NAME, &x.shape, &operands[..4])?;
    let (norm, shape) = (*norm, x.shape);
    call::enqueue::<T, 6>(
        NAME,
        stream,
        operands,
        |handle, [scale, bias, mean, variance, x, y]| {
            let (of_x, of_channels) = descriptors(NAME, &shape, data::<T>())?;
            let ([one, zero], whole, channels) = (factors::<T>(), of_x.get(), of_channels.get());
            let (one, zero, epsilon) = (one.as_ptr(), zero.as_ptr(), norm.epsilon);
            // SAFETY: handle and descriptors are alive, and the pointers refer to a tensor of this shape or to one
            // value per channel.
            check("cudnnBatchNormalizationForwardInference", unsafe {
                functions::cudnnBatchNormalizationForwardInference(
                    handle, MODE, one, zero, whole, x, whole, y, channels, scale, bias, mean, variance,
                    epsilon,
                )
            })
        },
        // SAFETY: each operand has either this shape or one value per channel.
        move |places| unsafe { host::norm::inference::<T>(&norm, &shape, places) },
    )
}

/// Enqueues the gradients of [`batch_norm_training`], given the gradient `dy` of its output and the statistics that it
/// saved. The gradients of scale and bias are sums, so they are 0 for an empty batch.
///
/// # Errors
/// Returns the same errors as [`batch_norm_training`], except that an empty batch is allowed.
#[track_caller]
pub fn batch_norm_backward<T: FloatType>(
    stream: &Stream,
    norm: &BatchNorm,
    (x, dy): (&Tensor<'_, T>, &Tensor<'_, T>),
    scale: &DeviceSlice<'_, T::Real>,
    (mean, inverse_deviation): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    gradients: &mut BatchNormGradients<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::batch_norm_backward";
    norm.check(NAME)?;
    let BatchNormGradients { input: dx, scale: dscale, bias: dbias } = gradients;
    check_same(NAME, ("x", &x.shape), ("dy", &dy.shape))?;
    check_same(NAME, ("x", &x.shape), ("the gradient for x", &dx.shape))?;
    let operands = [
        Operand::read("scale", scale),
        Operand::read("mean", mean),
        Operand::read("inverse_deviation", inverse_deviation),
        Operand::target("the gradient for scale", dscale),
        Operand::target("the gradient for bias", dbias),
        Operand::read("x", &x.slice),
        Operand::read("dy", &dy.slice),
        Operand::target("the gradient for x", &mut dx.slice),
    ];
    check_channels(NAME, &x.shape, &operands[..5])?;
    if x.slice.is_empty() {
        call::check(NAME, stream, operands)?;
        stream.memset(dscale, 0)?;
        return stream.memset(dbias, 0);
    }
    check_elements(NAME, &x.shape)?;
    let (epsilon, shape) = (norm.epsilon, x.shape);
    call::enqueue::<T, 8>(
        NAME,
        stream,
        operands,
        |handle, [scale, mean, deviation, dscale, dbias, x, dy, dx]| {
            let (whole, channels) = descriptors(NAME, &shape, data::<T>())?;
            let [one, zero] = factors::<T>();
            // SAFETY: handle and descriptors are alive, and the pointers refer to tensors of this shape or to one value
            // per channel.
            check("cudnnBatchNormalizationBackward", unsafe {
                functions::cudnnBatchNormalizationBackward(
                    handle,
                    MODE,
                    one.as_ptr(),
                    zero.as_ptr(),
                    one.as_ptr(),
                    zero.as_ptr(),
                    whole.get(),
                    x,
                    whole.get(),
                    dy,
                    whole.get(),
                    dx,
                    channels.get(),
                    scale,
                    dscale,
                    dbias,
                    epsilon,
                    mean,
                    deviation,
                )
            })
        },
        // SAFETY: each operand has either this shape or one value per channel.
        move |places| unsafe { host::norm::backward::<T>(&shape, places) },
    )
}
