//! cuDNN: convolutions forward and backward, with bias and activation, pooling, softmax and batch normalisation.
//!
//! | function | what | on the emulated device |
//! | --- | --- | --- |
//! | [`convolution`], [`convolution_backward_data`], [`convolution_backward_weights`] | 1 to 3 spatial dimensions, groups, dilation | yes |
//! | [`convolution_fused`] | the convolution, a bias and ReLU in one pass | yes |
//! | [`pooling`], [`pooling_backward`] | maximum, average | yes |
//! | [`softmax`], [`softmax_backward`] | and its logarithm, over the channels | yes |
//! | [`batch_norm_training`], [`batch_norm_inference`], [`batch_norm_backward`] | over all but the channels | yes |
//!
//! Tensors are [`Tensor`] and [`TensorMut`] of [`Float`] elements, in either [`Layout`]; those of one call have the same.
//! Sums are kept in `f32` (`f64` for `f64`) and rounded once; with `allow_tf32`, which is on as in PyTorch, products of
//! `f32` are of numbers rounded to ten bits of mantissa on GPUs.
//!
//! How a convolution is computed is chosen once for a geometry and kept: by the library's heuristics, or by timing what
//! they suggest ([`Options::benchmark`], PyTorch's `torch.backends.cudnn.benchmark`). [`Options`] are of a call, or those
//! of the device ([`set_options`]). The workspace is allocated for each call from the caching allocator, on the stream of
//! the call; when it does not fit into memory, a plan that needs less is taken.
//!
//! ```
//! use warpsmith_libraries::dnn::{self, Convolution, Layout, Tensor, TensorMut};
//! use warpsmith_runtime::{Device, DeviceBuffer};
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let stream = Device::emulated(0)?.default_stream();
//! let image = DeviceBuffer::from_host(&stream, &[1f32, 2., 3., 4., 5., 6., 7., 8., 9.])?;
//! let blur = DeviceBuffer::from_host(&stream, &[0.25f32; 4])?;
//! let mut out = DeviceBuffer::<f32>::uninit(&stream, 4)?;
//! dnn::convolution(
//!     &stream,
//!     &Convolution::default(),
//!     &Tensor::new(&image, &[1, 1, 3, 3], Layout::Nchw)?,
//!     &Tensor::new(&blur, &[1, 1, 2, 2], Layout::Nchw)?,
//!     &mut TensorMut::new(&mut out, &[1, 1, 2, 2], Layout::Nchw)?,
//! )?;
//! assert_eq!(out.to_host()?, [3., 4., 6., 7.]);
//! # Ok(())
//! # }
//! ```

mod call;
mod convolution;
mod descriptor;
mod element;
mod functions;
mod fused;
mod geometry;
mod graph;
mod host;
mod norm;
mod options;
mod plan;
mod pooling;
mod softmax;
mod tensor;

pub use self::convolution::{
    Convolution, convolution, convolution_backward_data, convolution_backward_weights,
};
pub use self::element::Float;
pub use self::fused::{Activation, convolution_fused};
pub use self::norm::{
    BatchNorm, BatchNormGradients, BatchStatistics, RunningStatistics, batch_norm_backward,
    batch_norm_inference, batch_norm_training,
};
pub(crate) use self::options::State;
pub use self::options::{Options, options, plan_cache, set_options};
pub use self::pooling::{Pooling, PoolingMode, pooling, pooling_backward};
pub use self::softmax::{Softmax, softmax, softmax_backward};
pub use self::tensor::{Axes, Layout, Tensor, TensorMut};
