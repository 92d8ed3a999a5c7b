//! Batch normalisation: training, inference and the gradient.

use cudarc::cudnn::sys::{cudnnBatchNormMode_t, cudnnDataType_t};

use super::call::{self, Place, check_device, check_same, pointer, pointer_mut};
use super::descriptor::{OldDescriptor, TensorKind, check, tensor};
use super::element::{Float, Scale};
use super::functions;
use super::host;
use super::tensor::{Shape, Tensor, TensorMut, problem};
use warpsmith_core::error::Result;
use warpsmith_core::memory::{DeviceSlice, DeviceSliceMut};
use warpsmith_core::seam::Access;
use warpsmith_core::seam::BufferUse;
use warpsmith_core::stream::Stream;

/// The constants of a batch normalisation, which is over all dimensions but the channels, as PyTorch's `BatchNorm1d` to
/// `BatchNorm3d`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance. 1e-5 by default.
    pub epsilon: f64,
    /// The share of a batch in the running statistics. 0.1 by default.
    pub momentum: f64,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5, momentum: 0.1 }
    }
}

/// Statistics of all batches so far, a value of each for each channel: for inference.
#[derive(Debug)]
pub struct RunningStatistics<'a, R: Float> {
    /// The mean.
    pub mean: DeviceSliceMut<'a, R>,
    /// The variance, as of a sample (divided by one less than the number of elements).
    pub variance: DeviceSliceMut<'a, R>,
}

/// Statistics of one batch, a value of each for each channel: for the gradient.
#[derive(Debug)]
pub struct BatchStatistics<'a, R: Float> {
    /// The mean.
    pub mean: DeviceSliceMut<'a, R>,
    /// One by the square root of the variance and epsilon.
    pub inverse_deviation: DeviceSliceMut<'a, R>,
}

/// The gradients of a batch normalisation.
#[derive(Debug)]
pub struct BatchNormGradients<'a, T: Float> {
    /// For the input.
    pub input: TensorMut<'a, T>,
    /// For the scale of each channel.
    pub scale: DeviceSliceMut<'a, T::Real>,
    /// For the bias of each channel.
    pub bias: DeviceSliceMut<'a, T::Real>,
}

/// Fails unless each of these has a value for each channel.
fn check_channels(operation: &'static str, shape: &Shape, lengths: &[(&str, usize)]) -> Result<()> {
    for (name, len) in lengths {
        if *len != shape.dims[1] {
            return Err(problem(
                operation,
                format!("{name} has {len} values for {} channels", shape.dims[1]),
            ));
        }
    }
    Ok(())
}

/// Fails unless a variance can be computed. There are channels.
fn check_elements(operation: &'static str, shape: &Shape) -> Result<()> {
    // There are channels, and as many elements in all as in a slice.
    let elements = shape.elements().unwrap_or(0) / shape.dims[1];
    if elements > 1 {
        return Ok(());
    }
    Err(problem(
        operation,
        format!(
            "shape {:?} has {} for each channel; training needs more than 1",
            shape.shown(),
            if elements == 1 { "1 element" } else { "no elements" }
        ),
    ))
}

impl BatchNorm {
    fn check(&self, operation: &'static str) -> Result<()> {
        if self.epsilon >= 0.0 && self.epsilon.is_finite() && (0.0..=1.0).contains(&self.momentum) {
            return Ok(());
        }
        Err(problem(operation, format!("{self:?}: epsilon is at least 0, and momentum from 0 to 1")))
    }
}

const MODE: cudnnBatchNormMode_t = cudnnBatchNormMode_t::CUDNN_BATCHNORM_SPATIAL;

/// Descriptors of a tensor and of a value for each of its channels.
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

/// Enqueues `y = scale * (x - mean) / sqrt(variance + epsilon) + bias` with the mean and variance of each channel of this
/// batch, which are kept in `saved` and enter the running statistics.
///
/// # Errors
/// [`LibraryError::Shape`](crate::LibraryError::Shape), also for a batch of one element for each channel or none,
/// [`LibraryError::Missing`](crate::LibraryError::Missing), [`warpsmith_core::Error::DifferentDevices`]; whatever the library or
/// the driver reports.
pub fn batch_norm_training<T: Float>(
    stream: &Stream,
    norm: &BatchNorm,
    x: &Tensor<'_, T>,
    (scale, bias): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    running: Option<&mut RunningStatistics<'_, T::Real>>,
    saved: &mut BatchStatistics<'_, T::Real>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::batch_norm_training";
    norm.check(NAME)?;
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let mut lengths = vec![
        ("scale", scale.len()),
        ("bias", bias.len()),
        ("saved.mean", saved.mean.len()),
        ("saved.inverse_deviation", saved.inverse_deviation.len()),
    ];
    if let Some(running) = &running {
        lengths.push(("running.mean", running.mean.len()));
        lengths.push(("running.variance", running.variance.len()));
    }
    check_channels(NAME, &x.shape, &lengths)?;
    if x.shape.dims[1] == 0 {
        return Ok(());
    }
    check_elements(NAME, &x.shape)?;
    let mut parts: Vec<BufferUse<'_>> = vec![
        x.slice.used(Access::Read),
        scale.used(Access::Read),
        bias.used(Access::Read),
        y.slice.used(),
        saved.mean.used(),
        saved.inverse_deviation.used(),
    ];
    let mut names = vec!["x", "scale", "bias", "y", "saved.mean", "saved.inverse_deviation"];
    let places = [
        Place::of(&x.slice),
        Place::of(scale),
        Place::of(bias),
        Place::of_mut(&y.slice),
        Place::of_mut(&saved.mean),
        Place::of_mut(&saved.inverse_deviation),
    ];
    let running = running.map(|running| {
        parts.extend([running.mean.used(), running.variance.used()]);
        names.extend(["running.mean", "running.variance"]);
        [Place::of_mut(&running.mean), Place::of_mut(&running.variance)]
    });
    let (norm, shape) = (*norm, x.shape);
    call::enqueue::<T>(
        NAME,
        stream,
        (&parts, &names),
        |handle| {
            let (whole, channels) = descriptors(NAME, &shape, T::DATA)?;
            let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
            let null = Place { address: 0, len: 0 };
            let [mean, variance] = running.unwrap_or([null; 2]);
            // SAFETY: handle and descriptors are alive; the pointers are to a tensor of this shape and to a value for each
            // channel, or null where the library lets them be.
            check("cudnnBatchNormalizationForwardTraining", unsafe {
                functions::cudnnBatchNormalizationForwardTraining(
                    handle,
                    MODE,
                    one.as_ptr(),
                    zero.as_ptr(),
                    whole.get(),
                    pointer(places[0]),
                    whole.get(),
                    pointer_mut(places[3]),
                    channels.get(),
                    pointer(places[1]),
                    pointer(places[2]),
                    norm.momentum,
                    pointer_mut(mean),
                    pointer_mut(variance),
                    norm.epsilon,
                    pointer_mut(places[4]),
                    pointer_mut(places[5]),
                )
            })
        },
        // SAFETY: the parts are noted, lie at these places and are of this shape, or of as many values as there are channels.
        move || unsafe { host::norm::training::<T>(&norm, &shape, places, running) },
    )
}

/// Enqueues `y = scale * (x - mean) / sqrt(variance + epsilon) + bias` with statistics of each channel that are given.
///
/// # Errors
/// As [`batch_norm_training`].
pub fn batch_norm_inference<T: Float>(
    stream: &Stream,
    norm: &BatchNorm,
    x: &Tensor<'_, T>,
    (scale, bias): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    (mean, variance): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::batch_norm_inference";
    norm.check(NAME)?;
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let values = [("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance)];
    check_channels(NAME, &x.shape, &values.map(|(name, slice)| (name, slice.len())))?;
    let parts = [
        x.slice.used(Access::Read),
        scale.used(Access::Read),
        bias.used(Access::Read),
        mean.used(Access::Read),
        variance.used(Access::Read),
        y.slice.used(),
    ];
    let places = [
        Place::of(&x.slice),
        Place::of(scale),
        Place::of(bias),
        Place::of(mean),
        Place::of(variance),
        Place::of_mut(&y.slice),
    ];
    let (norm, shape) = (*norm, x.shape);
    call::enqueue::<T>(
        NAME,
        stream,
        (&parts, &["x", "scale", "bias", "mean", "variance", "y"]),
        |handle| {
            let (whole, channels) = descriptors(NAME, &shape, T::DATA)?;
            let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
            // SAFETY: handle and descriptors are alive; the pointers are to a tensor of this shape and to a value for each
            // channel.
            check("cudnnBatchNormalizationForwardInference", unsafe {
                functions::cudnnBatchNormalizationForwardInference(
                    handle,
                    MODE,
                    one.as_ptr(),
                    zero.as_ptr(),
                    whole.get(),
                    pointer(places[0]),
                    whole.get(),
                    pointer_mut(places[5]),
                    channels.get(),
                    pointer(places[1]),
                    pointer(places[2]),
                    pointer(places[3]),
                    pointer(places[4]),
                    norm.epsilon,
                )
            })
        },
        // SAFETY: the parts are noted, lie at these places and are of this shape, or of as many values as there are channels.
        move || unsafe { host::norm::inference::<T>(&norm, &shape, places) },
    )
}

/// Enqueues the gradients of [`batch_norm_training`], given the gradient `dy` for its output and the statistics that it
/// saved. Those for the scale and bias are sums, which are 0 for a batch of no elements.
///
/// # Errors
/// As [`batch_norm_training`], but for a batch of no elements.
pub fn batch_norm_backward<T: Float>(
    stream: &Stream,
    norm: &BatchNorm,
    (x, dy): (&Tensor<'_, T>, &Tensor<'_, T>),
    scale: &DeviceSlice<'_, T::Real>,
    (mean, inverse_deviation): (&DeviceSlice<'_, T::Real>, &DeviceSlice<'_, T::Real>),
    gradients: &mut BatchNormGradients<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::batch_norm_backward";
    norm.check(NAME)?;
    let BatchNormGradients { input: dx, scale: dscale, bias: dbias } = gradients;
    check_same(NAME, ("x", &x.shape), ("dy", &dy.shape))?;
    check_same(NAME, ("x", &x.shape), ("the gradient for x", &dx.shape))?;
    check_channels(
        NAME,
        &x.shape,
        &[
            ("scale", scale.len()),
            ("mean", mean.len()),
            ("inverse_deviation", inverse_deviation.len()),
            ("the gradient for scale", dscale.len()),
            ("the gradient for bias", dbias.len()),
        ],
    )?;
    let parts = [
        x.slice.used(Access::Read),
        dy.slice.used(Access::Read),
        scale.used(Access::Read),
        mean.used(Access::Read),
        inverse_deviation.used(Access::Read),
        dx.slice.used(),
        dscale.used(),
        dbias.used(),
    ];
    let names = ["x", "dy", "scale", "mean", "inverse_deviation", "gradient", "gradient", "gradient"];
    if x.slice.is_empty() {
        for (part, name) in parts.iter().zip(names) {
            check_device(stream, NAME, name, part.device())?;
        }
        stream.memset(dscale, 0)?;
        return stream.memset(dbias, 0);
    }
    check_elements(NAME, &x.shape)?;
    let places = [
        Place::of(&x.slice),
        Place::of(&dy.slice),
        Place::of(scale),
        Place::of(mean),
        Place::of(inverse_deviation),
        Place::of_mut(&dx.slice),
        Place::of_mut(dscale),
        Place::of_mut(dbias),
    ];
    let (epsilon, shape) = (norm.epsilon, x.shape);
    call::enqueue::<T>(
        NAME,
        stream,
        (&parts, &names),
        |handle| {
            let (whole, channels) = descriptors(NAME, &shape, T::DATA)?;
            let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
            // SAFETY: handle and descriptors are alive; the pointers are to tensors of this shape and to values for each
            // channel.
            check("cudnnBatchNormalizationBackward", unsafe {
                functions::cudnnBatchNormalizationBackward(
                    handle,
                    MODE,
                    one.as_ptr(),
                    zero.as_ptr(),
                    one.as_ptr(),
                    zero.as_ptr(),
                    whole.get(),
                    pointer(places[0]),
                    whole.get(),
                    pointer(places[1]),
                    whole.get(),
                    pointer_mut(places[5]),
                    channels.get(),
                    pointer(places[2]),
                    pointer_mut(places[6]),
                    pointer_mut(places[7]),
                    epsilon,
                    pointer(places[3]),
                    pointer(places[4]),
                )
            })
        },
        // SAFETY: the parts are noted, lie at these places and are of this shape, or of as many values as there are channels.
        move || unsafe { host::norm::backward::<T>(&shape, places) },
    )
}
