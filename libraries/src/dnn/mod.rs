//! cuDNN operations: forward and backward convolution, bias and activation, pooling and batch normalization.
//!
//! | function | operation | available on the emulated device |
//! | --- | --- | --- |
//! | [`convolution`], [`convolution_backward_data`], [`convolution_backward_weights`] | 1 to 3 spatial dimensions, groups, dilation | yes |
//! | [`convolution_fused`] | convolution with fused bias and ReLU | yes |
//! | [`pooling`], [`pooling_backward`] | max and average pooling | yes |
//! | [`batch_norm_training`], [`batch_norm_inference`], [`batch_norm_backward`] | batch normalization over all dimensions except the channels | yes |
//!
//! Tensors are [`Tensor`] and [`TensorMut`] views of [`FloatType`] elements in either [`Layout`]. All tensors of a call
//! must have the same layout. Sums are accumulated in `f32` (for `f64` elements, in `f64`) and rounded once. As in
//! PyTorch, `allow_tf32` is on by default, so GPUs round `f32` inputs to TF32 (10 mantissa bits) before they multiply
//! them.
//!
//! The plan of a convolution is chosen once per geometry and then cached. The library's heuristics choose it, or
//! [`Options::benchmark`] times the plans that they suggest, like PyTorch's `torch.backends.cudnn.benchmark`.
//! [`Options`] can be set per call or per device ([`set_options`]). Each call allocates its workspace from the caching
//! allocator on the stream of the call. If there is not enough memory for the workspace, a plan with a smaller
//! workspace is used.
//!
//! ```
//! use warpsmith_libraries::dnn::{self, Convolution, Layout, Tensor, TensorMut};
//! use warpsmith_runtime::{Device, DeviceBuffer};
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
//! # Ok::<(), warpsmith_runtime::Error>(())
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
mod tensor;

pub use self::convolution::{
    Convolution, convolution, convolution_backward_data, convolution_backward_weights,
};
pub use self::fused::{Activation, convolution_fused};
pub use self::norm::{
    BatchNorm, BatchNormGradients, BatchStatistics, RunningStatistics, batch_norm_backward,
    batch_norm_inference, batch_norm_training,
};
pub(crate) use self::options::State;
pub use self::options::{Options, options, plan_cache, set_options};
pub use self::pooling::{Pooling, PoolingMode, pooling, pooling_backward};
pub use self::tensor::{Axes, Layout, Tensor, TensorMut};
pub use crate::element::FloatType;
