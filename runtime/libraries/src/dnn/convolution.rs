//! [`convolution`] and its two gradients.

use super::call::{self, Place, check_device, check_type, pointer_mut};
use super::descriptor::{check, tensor};
use super::element::{Float, Scale};
use super::functions;
use super::geometry::{Epilogue, Geometry, Key, Operation};
use super::host;
use super::options::{self, Options};
use super::plan::{Outcome, Request};
use super::tensor::{Axes, Layout, Shape, Tensor, TensorMut};
use crate::error::LibraryError;
use crate::work::Work;
use warpsmith_core::driver::DevicePtr;
use warpsmith_core::error::{Error, Result};
use warpsmith_core::memory::DeviceSliceMut;
use warpsmith_core::seam::Access;
use warpsmith_core::seam::BufferUse;
use warpsmith_core::stream::Stream;

/// How a window goes over its input, as PyTorch's `conv1d`, `conv2d` and `conv3d`: a cross-correlation.
///
/// ```
/// use warpsmith_runtime::library::dnn::Convolution;
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let first = Convolution { padding: 3.into(), stride: [2, 2].into(), ..Convolution::default() };
/// assert_eq!(first.output_shape(&[32, 3, 224, 224], &[64, 3, 7, 7])?, [32, 64, 112, 112]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convolution {
    /// Zeros before and after the input. 0 by default.
    pub padding: Axes,
    /// Elements from one window to the next. 1 by default.
    pub stride: Axes,
    /// Elements from one tap of the window to the next. 1 by default.
    pub dilation: Axes,
    /// Groups of channels that are apart from each other. 1 by default.
    pub groups: usize,
    /// Multiplies the result, rounded to `f32` unless the elements are `f64`. 1 by default.
    pub alpha: f64,
    /// Multiplies what the target held, which is added. With 0, the default, it is not read.
    pub beta: f64,
    /// How it is computed; `None` for the device's [`options`](super::options).
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
    /// The shape of the output for an input of batch, channels and spatial dimensions, and weights of output channels,
    /// channels of a group, and the window.
    ///
    /// # Errors
    /// [`LibraryError::Shape`] when they do not fit each other.
    pub fn output_shape(&self, input: &[usize], weights: &[usize]) -> Result<Vec<usize>> {
        let shape = |shape| Shape::new(shape, Layout::Nchw);
        let (x, w) = (shape(input)?, shape(weights)?);
        Ok(Geometry::of_input("Convolution::output_shape", self, &x, &w)?.y.shown())
    }
}

/// Enqueues `y = alpha * (x ∗ w) + beta * y`, the convolution of an input with weights.
///
/// # Errors
/// [`LibraryError::Shape`], [`LibraryError::Missing`], [`LibraryError::Unsupported`] when cuDNN has no way to compute it
/// with these options, [`LibraryError::WorkspaceTooSmall`], [`Error::OutOfMemory`], [`Error::DifferentDevices`];
/// whatever the library or the driver reports.
pub fn convolution<T: Float>(
    stream: &Stream,
    convolution: &Convolution,
    x: &Tensor<'_, T>,
    w: &Tensor<'_, T>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::convolution";
    let geometry = Geometry::new(NAME, convolution, &x.shape, &w.shape, &y.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::Forward,
        geometry: &geometry,
        options: convolution.options,
        parts: [x.slice.used(Access::Read), w.slice.used(Access::Read), y.slice.used()],
        places: [Place::of(&x.slice), Place::of(&w.slice), Place::of_mut(&y.slice)],
    }
    .enqueue(&mut y.slice)
}

/// Enqueues `dx = alpha * (gradient for the input) + beta * dx`, given the gradient `dy` for the output: also a transposed
/// convolution.
///
/// # Errors
/// As [`convolution`].
pub fn convolution_backward_data<T: Float>(
    stream: &Stream,
    convolution: &Convolution,
    w: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dx: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::convolution_backward_data";
    let geometry = Geometry::new(NAME, convolution, &dx.shape, &w.shape, &dy.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::BackwardData,
        geometry: &geometry,
        options: convolution.options,
        parts: [dx.slice.used(), w.slice.used(Access::Read), dy.slice.used(Access::Read)],
        places: [Place::of_mut(&dx.slice), Place::of(&w.slice), Place::of(&dy.slice)],
    }
    .enqueue(&mut dx.slice)
}

/// Enqueues `dw = alpha * (gradient for the weights) + beta * dw`, given the gradient `dy` for the output.
///
/// # Errors
/// As [`convolution`].
pub fn convolution_backward_weights<T: Float>(
    stream: &Stream,
    convolution: &Convolution,
    x: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dw: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::convolution_backward_weights";
    let geometry = Geometry::new(NAME, convolution, &x.shape, &dw.shape, &dy.shape)?;
    Call {
        name: NAME,
        stream,
        operation: Operation::BackwardWeights,
        geometry: &geometry,
        options: convolution.options,
        parts: [x.slice.used(Access::Read), dw.slice.used(), dy.slice.used(Access::Read)],
        places: [Place::of(&x.slice), Place::of_mut(&dw.slice), Place::of(&dy.slice)],
    }
    .enqueue(&mut dw.slice)
}

/// One of the three operations, on tensors that fit the geometry.
struct Call<'a, 'p> {
    name: &'static str,
    stream: &'a Stream,
    operation: Operation,
    geometry: &'a Geometry,
    options: Option<Options>,
    /// Of x, w and y.
    parts: [BufferUse<'p>; 3],
    places: [Place; 3],
}

impl Call<'_, '_> {
    /// Enqueues it; `target` is the one of the parts that is written.
    fn enqueue<T: Float>(&self, target: &mut DeviceSliceMut<'_, T>) -> Result<()> {
        let Self { name, stream, geometry, places, operation, .. } = *self;
        let (names, device) = (["x", "w", "y"], stream.device());
        for (part, what) in self.parts.iter().zip(names) {
            check_device(stream, name, what, part.device())?;
        }
        if target.is_empty() {
            return Ok(());
        }
        if device.is_emulated() {
            let geometry = *geometry;
            // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work stays
            // inside them, by their shapes.
            return unsafe { Work::new(stream, &self.parts) }.enqueue(
                |_| Err(LibraryError::NeedsGpu { operation: name }.into()),
                || {
                    // SAFETY: the parts are noted, lie at these places and are of the geometry's shapes.
                    Ok(Box::new(move || unsafe {
                        host::convolution::run::<T>(operation, &geometry, places);
                    }))
                },
            );
        }
        check_type::<T>(name, device)?;
        if places.iter().any(|place| place.len == 0) {
            let shape = match operation {
                Operation::BackwardData => &geometry.x,
                Operation::BackwardWeights => &geometry.w,
                Operation::Forward => &geometry.y,
            };
            return scale_only(name, stream, geometry.beta, shape, target);
        }
        let addresses = places.map(|place| DevicePtr(place.address));
        let options = self.options.unwrap_or_else(|| options::options(device));
        let of_key = [addresses[0], addresses[1], addresses[2], DevicePtr::NULL];
        let request = Request {
            name,
            stream,
            key: Key::new::<T>(operation, Epilogue::Nothing, geometry, options, of_key),
            data: T::DATA,
            geometry,
            parts: &self.parts,
            addresses: &addresses,
        };
        // SAFETY: parts and addresses are of tensors of the geometry's shapes, as `Geometry::new` has checked.
        match unsafe { request.run() }? {
            Outcome::Enqueued => Ok(()),
            Outcome::NoPlan(error) => Err(no_plan::<T>(name, geometry, &options, error)),
        }
    }
}

/// Enqueues `target = beta * target` on a GPU: the sum is of nothing.
fn scale_only<T: Float>(
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
    let place = Place::of_mut(target);
    let handle = call::acquire(stream)?;
    let raw = handle.raw.get();
    let (descriptor, beta) = (tensor(name, shape, T::DATA)?, Scale::of::<T>(beta));
    let parts = [target.used()];
    // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work stays
    // inside them, by their shapes.
    unsafe { Work::new(stream, &parts) }.enqueue(
        // SAFETY: handle, descriptor and factor are alive; the pointer is to a tensor of this shape, which is noted.
        |_| unsafe {
            let status =
                functions::cudnnScaleTensor(raw, descriptor.get(), pointer_mut(place), beta.as_ptr());
            check("cudnnScaleTensor", status)
        },
        || Err(LibraryError::NeedsGpu { operation: name }.into()),
    )
}

/// The library has no plan for a geometry with these options.
fn no_plan<T: Float>(
    operation: &'static str,
    geometry: &Geometry,
    options: &Options,
    error: Option<Error>,
) -> Error {
    let Geometry { x, w, groups, .. } = geometry;
    let mut what = format!(
        "a convolution of {} {:?} {:?} with weights {:?} in {groups} groups",
        T::NAME,
        x.shown(),
        x.layout,
        w.shown()
    );
    if let Some(error) = error {
        what += &format!(" ({error})");
    }
    let mut needs = Vec::new();
    if options.deterministic {
        needs.push("`deterministic` off");
    }
    if !options.allow_tf32 && T::NAME == "f32" {
        needs.push("`allow_tf32` on");
    }
    if geometry.beta != 0.0 {
        needs.push("beta = 0");
    }
    needs.push("another layout or element type");
    LibraryError::Unsupported { operation, what, needs: Some(needs.join(", or ")) }.into()
}
