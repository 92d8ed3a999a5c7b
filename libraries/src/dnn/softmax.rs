//! [`softmax`] over the channels, and its gradient.

use cudarc::cudnn::sys::{cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t};

use super::call::{self, Operand, check_same};
use super::descriptor::{check, tensor};
use super::element::{data, factors};
use super::functions;
use super::host;
use super::tensor::{Tensor, TensorMut};
use crate::element::FloatType;
use warpsmith_runtime::error::Result;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::stream::Stream;

/// Selects between softmax and log-softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Softmax {
    /// Softmax: `exp(x) / sum of exp(x)`.
    #[default]
    Plain,
    /// Log-softmax, computed directly.
    Log,
}

const MODE: cudnnSoftmaxMode_t = cudnnSoftmaxMode_t::CUDNN_SOFTMAX_MODE_CHANNEL;

impl Softmax {
    fn algorithm(self) -> cudnnSoftmaxAlgorithm_t {
        match self {
            Self::Plain => cudnnSoftmaxAlgorithm_t::CUDNN_SOFTMAX_ACCURATE,
            Self::Log => cudnnSoftmaxAlgorithm_t::CUDNN_SOFTMAX_LOG,
        }
    }
}

/// Enqueues `y = softmax(x)` over the channels of each position. For a 2-D tensor, the channels of a position are a
/// row.
///
/// ```
/// use warpsmith_libraries::dnn::{Layout, Softmax, Tensor, TensorMut, softmax};
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
/// Returns [`LibraryError::Shape`](crate::LibraryError::Shape) unless both tensors have the same shape. Also returns
/// [`LibraryError::Missing`](crate::LibraryError::Missing), [`warpsmith_runtime::Error::DifferentDevices`], any
/// [library error](crate::LibraryError::Call), and the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn softmax<T: FloatType>(
    stream: &Stream,
    function: Softmax,
    x: &Tensor<'_, T>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::softmax";
    check_same(NAME, ("x", &x.shape), ("y", &y.shape))?;
    let shape = x.shape;
    call::enqueue::<T, 2>(
        NAME,
        stream,
        [Operand::read("x", &x.slice), Operand::target("y", &mut y.slice)],
        |handle, [x, y]| {
            let descriptor = tensor(NAME, &shape, data::<T>())?;
            let (both, [one, zero]) = (descriptor.get(), factors::<T>());
            let (one, zero, algorithm) = (one.as_ptr(), zero.as_ptr(), function.algorithm());
            // SAFETY: handle and descriptor are alive, and the pointers refer to tensors of the descriptor's shape.
            check("cudnnSoftmaxForward", unsafe {
                functions::cudnnSoftmaxForward(handle, algorithm, MODE, one, both, x, zero, both, y)
            })
        },
        // SAFETY: the operands have this shape.
        move |places| unsafe { host::softmax::forward::<T>(function, &shape, places) },
    )
}

/// Enqueues `dx = gradient of softmax(x)`, given `y = softmax(x)` and the gradient `dy` of `y`.
///
/// # Errors
/// Returns the same errors as [`softmax`].
#[track_caller]
pub fn softmax_backward<T: FloatType>(
    stream: &Stream,
    function: Softmax,
    y: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dx: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::softmax_backward";
    check_same(NAME, ("y", &y.shape), ("dy", &dy.shape))?;
    check_same(NAME, ("y", &y.shape), ("dx", &dx.shape))?;
    let shape = y.shape;
    call::enqueue::<T, 3>(
        NAME,
        stream,
        [Operand::read("y", &y.slice), Operand::read("dy", &dy.slice), Operand::target("dx", &mut dx.slice)],
        |handle, [y, dy, dx]| {
            let descriptor = tensor(NAME, &shape, data::<T>())?;
            let (all, [one, zero]) = (descriptor.get(), factors::<T>());
            let (one, zero, algorithm) = (one.as_ptr(), zero.as_ptr(), function.algorithm());
            // SAFETY: handle and descriptor are alive, and the pointers refer to tensors of the descriptor's shape.
            check("cudnnSoftmaxBackward", unsafe {
                functions::cudnnSoftmaxBackward(handle, algorithm, MODE, one, all, y, all, dy, zero, all, dx)
            })
        },
        // SAFETY: the operands have this shape.
        move |places| unsafe { host::softmax::backward::<T>(function, &shape, places) },
    )
}
