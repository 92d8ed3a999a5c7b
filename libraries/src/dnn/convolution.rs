//! [`convolution`] and its two gradients.

use super::call::{self, Operand};
use super::descriptor::{check, tensor};
use super::element::data;
use super::functions;
use super::geometry::{Epilogue, Geometry, Operation};
use super::host;
use super::options::{self, Options};
use super::plan::{Outcome, Request};
use super::tensor::{Axes, Layout, Shape, Tensor, TensorMut};
use crate::element::Factor;
use crate::element::FloatType;
use crate::error::LibraryError;
use warpsmith_runtime::extension::{BufferUse, site};
use warpsmith_runtime::{DeviceSliceMut, Error, Result, Stream};

/// Parameters of a convolution (strictly, a cross-correlation), as in PyTorch's `conv1d`, `conv2d` and `conv3d`.
///
/// ```
/// use warpsmith_libraries::dnn::Convolution;
/// let first = Convolution { padding: 3.into(), stride: [2, 2].into(), ..Convolution::default() };
/// assert_eq!(first.output_shape(&[32, 3, 224, 224], &[64, 3, 7, 7])?, [32, 64, 112, 112]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convolution {
    /// Zero padding before and after the input along each axis. The default is 0.
    pub padding: Axes,
    /// Stride of the window, in elements. The default is 1.
    pub stride: Axes,
    /// Dilation, which is the distance between the window's taps, in elements. The default is 1.
    pub dilation: Axes,
    /// Number of independent channel groups. The default is 1.
    pub groups: usize,
    /// Factor by which the result is multiplied. The factor is rounded to `f32` unless the elements are `f64`. The
    /// default is 1.
    pub alpha: f64,
    /// Factor by which the old output is multiplied before it is added to the result. With 0, which is the default, the
    /// old output is not read.
    pub beta: f64,
    /// Computation options, or `None` to use the device's [`options`](super::options).
    pub options: Option<Options>,
}

impl Default for Convolution {
    fn default() -> Self {
        Self {
            padding: 0.into(),
            stride: 1.into(),
            dilation: 1.into(),
            groups: 1,
            alpha: 1.0,
            beta: 0.0,
            options: None,
        }
    }
}

impl Convolution {
    /// Returns the shape of the output. `input` consists of the batch, channels and spatial dimensions. `weights`
    /// consists of the output channels, channels per group, and window.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] if the two shapes do not match.
    pub fn output_shape(&self, input: &[usize], weights: &[usize]) -> Result<Vec<usize>> {
        let shape = |shape| Shape::new(shape, Layout::Nchw);
        let (x, w) = (shape(input)?, shape(weights)?);
        Ok(Geometry::of_input("Convolution::output_shape", self, &x, &w)?.y.shown())
    }
}

/// Enqueues `y = alpha * (x ∗ w) + beta * y`: the convolution of the input `x` with the weights `w`.
///
/// # Errors
/// - [`LibraryError::Shape`], [`LibraryError::Missing`], [`LibraryError::WorkspaceTooSmall`], [`Error::OutOfMemory`],
///   [`Error::DifferentDevices`].
/// - [`LibraryError::Unsupported`] if cuDNN has no engine that supports the convolution with these options.
/// - Any other error from the library or the driver.
#[track_caller]
pub fn convolution<T: FloatType>(
    stream: &Stream,
    convolution: &Convolution,
    x: &Tensor<'_, T>,
    w: &Tensor<'_, T>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::convolution";
    let geometry = Geometry::new(NAME, convolution, &x.shape, &w.shape, &y.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::Forward,
        geometry: &geometry,
        options: convolution.options,
    }
    .enqueue(
        [Operand::read("x", &x.slice), Operand::read("w", &w.slice), Operand::written("y", &y.slice)],
        &mut y.slice,
    )
}

/// Enqueues `dx = alpha * (gradient of the input) + beta * dx`, given the gradient `dy` of the output. This is also
/// known as a transposed convolution.
///
/// # Errors
/// Returns the same errors as [`convolution`].
#[track_caller]
pub fn convolution_backward_data<T: FloatType>(
    stream: &Stream,
    convolution: &Convolution,
    w: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dx: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::convolution_backward_data";
    let geometry = Geometry::new(NAME, convolution, &dx.shape, &w.shape, &dy.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::BackwardData,
        geometry: &geometry,
        options: convolution.options,
    }
    .enqueue(
        [Operand::written("dx", &dx.slice), Operand::read("w", &w.slice), Operand::read("dy", &dy.slice)],
        &mut dx.slice,
    )
}

/// Enqueues `dw = alpha * (gradient of the weights) + beta * dw`, given the gradient `dy` of the output.
///
/// # Errors
/// Returns the same errors as [`convolution`].
#[track_caller]
pub fn convolution_backward_weights<T: FloatType>(
    stream: &Stream,
    convolution: &Convolution,
    x: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dw: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::convolution_backward_weights";
    let geometry = Geometry::new(NAME, convolution, &x.shape, &dw.shape, &dy.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::BackwardWeights,
        geometry: &geometry,
        options: convolution.options,
    }
    .enqueue(
        [Operand::read("x", &x.slice), Operand::written("dw", &dw.slice), Operand::read("dy", &dy.slice)],
        &mut dw.slice,
    )
}

/// One of the three convolution operations, with tensors that match the geometry.
struct Call<'a> {
    name: &'static str,
    stream: &'a Stream,
    operation: Operation,
    geometry: &'a Geometry,
    options: Option<Options>,
}

impl Call<'_> {
    /// Enqueues the operation on x, w and y, or on their gradients. The operation writes `target`, which must be one of
    /// these tensors.
    fn enqueue<T: FloatType>(
        &self,
        operands: [Operand<'_>; 3],
        target: &mut DeviceSliceMut<'_, T>,
    ) -> Result<()> {
        let Self { name, stream, operation, geometry, options } = *self;
        let (parts, places) = call::check(name, stream, operands)?;
        if target.is_empty() {
            return Ok(());
        }
        if stream.device().is_emulated() {
            let geometry = *geometry;
            // SAFETY: `parts` are the operands, and no written operand overlaps another one. The operands have the
            // geometry's shapes, and the work stays inside them.
            return unsafe {
                let host = move || host::convolution::run::<T>(operation, &geometry, places);
                stream.enqueue_host_named(name, &parts, host)
            };
        }
        call::check_type::<T>(name, stream.device())?;
        if places.iter().any(|place| place.len == 0) {
            let shape = match operation {
                Operation::BackwardData => &geometry.x,
                Operation::BackwardWeights => &geometry.w,
                Operation::Forward => &geometry.y,
            };
            return scale_only(name, stream, geometry.beta, shape, target);
        }
        let options = options.unwrap_or_else(|| options::options(stream.device()));
        let request = Request::new::<T>(
            name,
            stream,
            (operation, Epilogue::Nothing),
            geometry,
            options,
            (&parts, &places),
        );
        // SAFETY: parts and addresses belong to tensors of the geometry's shapes, which `Geometry::new` checked.
        match unsafe { request.run() }? {
            Outcome::Enqueued => Ok(()),
            Outcome::NoPlan(error) => Err(no_plan::<T>(name, geometry, &options, error)),
        }
    }
}

/// Enqueues `target = beta * target` on a GPU, for a convolution whose sums have no terms.
fn scale_only<T: FloatType>(
    name: &'static str,
    stream: &Stream,
    beta: f64,
    shape: &Shape,
    target: &mut DeviceSliceMut<'_, T>,
) -> Result<()> {
    if beta == 0.0 {
        return stream.memset(target, 0);
    }
    if beta == 1.0 {
        return Ok(());
    }
    let operand = Operand::written("the target", target);
    let parts: Vec<BufferUse<'_>> = operand.part.into_iter().collect();
    call::enqueue_gpu::<T>(name, stream, &parts, |handle| {
        let (descriptor, beta) = (tensor(name, shape, data::<T>())?, Factor::of::<T>(beta));
        // SAFETY: handle, descriptor and factor are alive; the pointer refers to a tensor of this shape, which is
        // recorded as used.
        check("cudnnScaleTensor", unsafe {
            functions::cudnnScaleTensor(handle, descriptor.get(), operand.place.pointer(), beta.as_ptr())
        })
    })
}

/// Returns the error for a geometry for which cuDNN has no plan with these options.
fn no_plan<T: FloatType>(
    operation: &'static str,
    geometry: &Geometry,
    options: &Options,
    error: Option<Error>,
) -> Error {
    let (Geometry { x, w, groups, .. }, name) = (geometry, T::TYPE.name());
    let (input, layout, weights) = (x.shown(), x.layout, w.shown());
    let mut what =
        format!("a convolution of {name} {input:?} {layout:?} with weights {weights:?} in {groups} groups");
    if let Some(error) = error {
        what += &format!(" ({error})");
    }
    let needs = [
        (options.deterministic, "`deterministic` off"),
        (!options.allow_tf32 && name == "f32", "`allow_tf32` on"),
        (geometry.beta != 0.0, "beta = 0"),
        (true, "another layout or element type"),
    ];
    let needs: Vec<&str> = needs.into_iter().filter(|(may, _)| *may).map(|(_, need)| need).collect();
    LibraryError::unsupported(operation, what, &needs.join(", or "))
}
