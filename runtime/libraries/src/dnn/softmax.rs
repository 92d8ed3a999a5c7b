//! [`softmax`] over the channels, and its gradient.

use cudarc::cudnn::sys::{cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t};

use super::call::{self, Place, check_same, pointer, pointer_mut};
use super::descriptor::{check, tensor};
use super::element::{Float, Scale};
use super::functions;
use super::host;
use super::tensor::{Tensor, TensorMut};
use warpsmith_core::error::Result;
use warpsmith_core::seam::Access;
use warpsmith_core::stream::Stream;

/// Which of the two functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Softmax {
    /// `exp(x) / sum of exp(x)`.
    #[default]
    Plain,
    /// The logarithm of that, computed as such.
    Log,
}

impl Softmax {
    fn algorithm(self) -> cudnnSoftmaxAlgorithm_t {
        match self {
            Self::Plain => cudnnSoftmaxAlgorithm_t::CUDNN_SOFTMAX_ACCURATE,
            Self::Log => cudnnSoftmaxAlgorithm_t::CUDNN_SOFTMAX_LOG,
        }
    }
}

/// Enqueues `y = softmax(x)`, over the channels of each position: the rows of a tensor of two dimensions.
///
/// ```
/// use warpsmith_runtime::library::dnn::{Layout, Softmax, Tensor, TensorMut, softmax};
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[1f32, 1., 1000., 1000.])?;
/// let mut y = DeviceBuffer::<f32>::uninit(&stream, 4)?;
/// let x = Tensor::new(&x, &[2, 2], Layout::Nchw)?;
/// softmax(&stream, Softmax::Plain, &x, &mut TensorMut::new(&mut y, &[2, 2], Layout::Nchw)?)?;
/// assert_eq!(y.to_host()?, [0.5; 4]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`LibraryError::Shape`](crate::LibraryError::Shape) unless both have one shape,
/// [`LibraryError::Missing`](crate::LibraryError::Missing), [`warpsmith_core::Error::DifferentDevices`]; whatever the library or
/// the driver reports.
pub fn softmax<T: Float>(
    stream: &Stream,
    function: Softmax,
    x: &Tensor<'_, T>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::softmax";
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let shape = x.shape;
    let places = [Place::of(&x.slice), Place::of_mut(&y.slice)];
    call::enqueue::<T>(
        NAME,
        stream,
        (&[x.slice.used(Access::Read), y.slice.used()], &["x", "y"]),
        |handle| {
            let descriptor = tensor(NAME, &shape, T::DATA)?;
            let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
            // SAFETY: handle and descriptor are alive; the pointers are to tensors of the descriptor's shape.
            check("cudnnSoftmaxForward", unsafe {
                functions::cudnnSoftmaxForward(
                    handle,
                    function.algorithm(),
                    cudnnSoftmaxMode_t::CUDNN_SOFTMAX_MODE_CHANNEL,
                    one.as_ptr(),
                    descriptor.get(),
                    pointer(places[0]),
                    zero.as_ptr(),
                    descriptor.get(),
                    pointer_mut(places[1]),
                )
            })
        },
        // SAFETY: the parts are noted, lie at these places and are of this shape.
        move || unsafe { host::softmax::forward::<T>(function, &shape, places) },
    )
}

/// Enqueues `dx = gradient of softmax(x)`, given `y = softmax(x)` and the gradient `dy` for it.
///
/// # Errors
/// As [`softmax`].
pub fn softmax_backward<T: Float>(
    stream: &Stream,
    function: Softmax,
    y: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dx: &mut TensorMut<'_, T>,
) -> Result<()> {
    const NAME: &str = "dnn::softmax_backward";
    check_same(NAME, ("y", &y.shape), ("dy", &dy.shape))?;
    check_same(NAME, ("y", &y.shape), ("dx", &dx.shape))?;
    let shape = y.shape;
    let places = [Place::of(&y.slice), Place::of(&dy.slice), Place::of_mut(&dx.slice)];
    let parts = [y.slice.used(Access::Read), dy.slice.used(Access::Read), dx.slice.used()];
    call::enqueue::<T>(
        NAME,
        stream,
        (&parts, &["y", "dy", "dx"]),
        |handle| {
            let descriptor = tensor(NAME, &shape, T::DATA)?;
            let (one, zero) = (Scale::of::<T>(1.0), Scale::of::<T>(0.0));
            // SAFETY: handle and descriptor are alive; the pointers are to tensors of the descriptor's shape.
            check("cudnnSoftmaxBackward", unsafe {
                functions::cudnnSoftmaxBackward(
                    handle,
                    function.algorithm(),
                    cudnnSoftmaxMode_t::CUDNN_SOFTMAX_MODE_CHANNEL,
                    one.as_ptr(),
                    descriptor.get(),
                    pointer(places[0]),
                    descriptor.get(),
                    pointer(places[1]),
                    zero.as_ptr(),
                    descriptor.get(),
                    pointer_mut(places[2]),
                )
            })
        },
        // SAFETY: the parts are noted, lie at these places and are of this shape.
        move || unsafe { host::softmax::backward::<T>(function, &shape, places) },
    )
}
