//! [`pooling`]: max pooling, average pooling and their gradients.

use cudarc::cudnn::sys::{cudnnNanPropagation_t, cudnnPoolingMode_t};

use super::call::{self, Operand, check_same};
use super::descriptor::{OldDescriptor, PoolingKind, TensorKind, check, tensor};
use super::element::{data, factors};
use super::functions;
use super::host;
use super::options;
use super::tensor::{Axes, Layout, Shape, Tensor, TensorMut, output_extent};
use crate::element::FloatType;
use crate::error::LibraryError;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{Result, Stream};

/// Reduction of the elements of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PoolingMode {
    /// Maximum, or NaN if any element is NaN.
    #[default]
    Max,
    /// Mean of the window, including padding (PyTorch: `count_include_pad=True`).
    AverageWithPadding,
    /// Mean of the elements in the window, excluding padding.
    Average,
}

/// Pooling windows over the spatial dimensions, like PyTorch's `max_pool2d` and `avg_pool2d` without `ceil_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pooling {
    /// Reduction of the elements of a window.
    pub mode: PoolingMode,
    /// Extents of the window. The default is 2.
    pub window: Axes,
    /// Padding before and after the input. The padding is at most half a window. The default is 0.
    pub padding: Axes,
    /// Stride of the window in elements. With `None` (the default), the stride equals the window's extent.
    pub stride: Option<Axes>,
}

impl Default for Pooling {
    fn default() -> Self {
        Self { mode: PoolingMode::Max, window: 2.into(), padding: 0.into(), stride: None }
    }
}

/// Checked pooling windows over an input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub mode: PoolingMode,
    pub x: Shape,
    pub y: Shape,
    pub window: [usize; 3],
    pub padding: [usize; 3],
    pub stride: [usize; 3],
}

impl Pooling {
    /// Returns the output shape for an input shape `[batch, channels, spatial…]`.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] if the windows do not fit.
    pub fn output_shape(&self, input: &[usize]) -> Result<Vec<usize>> {
        let x = Shape::new(input, Layout::Nchw)?;
        Ok(self.windows("Pooling::output_shape", &x)?.y.shown())
    }

    fn windows(&self, operation: &'static str, x: &Shape) -> Result<Windows> {
        if x.spatial == 0 || x.dims[2..].contains(&0) {
            let text = format!(
                "the input {:?} has no spatial dimension, or a spatial dimension of size 0",
                x.shown()
            );
            return Err(LibraryError::shape(operation, text));
        }
        let window = self.window.spread(operation, "window", x.spatial, 1)?;
        let padding = self.padding.spread(operation, "padding", x.spatial, 0)?;
        let stride = self.stride.unwrap_or(self.window).spread(operation, "stride", x.spatial, 1)?;
        let mut dims = [x.dims[0], x.dims[1], 1, 1, 1];
        for axis in 0..3 {
            let (window, padding, stride) = (window[axis], padding[axis], stride[axis]);
            if padding > window / 2 {
                let text = format!("the padding of {padding} is more than half of the window size {window}");
                return Err(LibraryError::shape(operation, text));
            }
            let input = x.dims[axis + 2];
            let Some(extent) = output_extent(input, window, padding, stride, 1) else {
                let text = format!(
                    "a window of {window} with stride {stride} and padding {padding} does not fit into an extent of {input}"
                );
                return Err(LibraryError::shape(operation, text));
            };
            dims[axis + 2] = extent;
        }
        let y = Shape { dims, ..*x };
        Ok(Windows { mode: self.mode, x: *x, y, window, padding, stride })
    }
}

impl Windows {
    fn check_output(&self, operation: &'static str, y: &Shape) -> Result<()> {
        check_same(operation, ("the output of this pooling", &self.y), ("the given tensor", y))
    }

    fn descriptors<T: FloatType>(
        &self,
        operation: &'static str,
        is_deterministic: bool,
    ) -> Result<Descriptors> {
        let mode = match self.mode {
            PoolingMode::Max if is_deterministic => cudnnPoolingMode_t::CUDNN_POOLING_MAX_DETERMINISTIC,
            PoolingMode::Max => cudnnPoolingMode_t::CUDNN_POOLING_MAX,
            PoolingMode::AverageWithPadding => {
                cudnnPoolingMode_t::CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
            }
            PoolingMode::Average => cudnnPoolingMode_t::CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
        };
        let rank = self.x.rank() - 2;
        // `output_extent` has checked that the values fit in 31 bits.
        let of = |values: [usize; 3]| {
            let values = values.map(|value| i32::try_from(value).unwrap_or(i32::MAX));
            if rank == 3 { values } else { [values[1], values[2], 0] }
        };
        let (window, padding, stride) = (of(self.window), of(self.padding), of(self.stride));
        let pooling = OldDescriptor::<PoolingKind>::new()?;
        let nans = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        let (window, padding, stride) = (window.as_ptr(), padding.as_ptr(), stride.as_ptr());
        // SAFETY: the descriptor is alive, and the arrays have `rank` values.
        check("cudnnSetPoolingNdDescriptor", unsafe {
            let rank = rank as i32;
            functions::cudnnSetPoolingNdDescriptor(pooling.get(), mode, nans, rank, window, padding, stride)
        })?;
        let [x, y] = [&self.x, &self.y].map(|shape| tensor(operation, shape, data::<T>()));
        Ok(Descriptors { pooling, x: x?, y: y? })
    }
}

struct Descriptors {
    pooling: OldDescriptor<PoolingKind>,
    x: OldDescriptor<TensorKind>,
    y: OldDescriptor<TensorKind>,
}

/// Enqueues `y = pooling(x)`.
///
/// # Errors
/// Returns [`LibraryError::Shape`], [`LibraryError::Missing`], [`warpsmith_runtime::Error::DifferentDevices`], any
/// [library error](crate::LibraryError::Call), and the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn pooling<T: FloatType>(
    stream: &Stream,
    pooling: &Pooling,
    x: &Tensor<'_, T>,
    y: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::pooling";
    let windows = pooling.windows(NAME, &x.shape)?;
    windows.check_output(NAME, &y.shape)?;
    let is_deterministic = options::options(stream.device()).deterministic;
    call::enqueue::<T, 2>(
        NAME,
        stream,
        [Operand::read("x", &x.slice), Operand::target("y", &mut y.slice)],
        |handle, [x, y]| {
            let descriptors = windows.descriptors::<T>(NAME, is_deterministic)?;
            let ([one, zero], of_x, of_y) = (factors::<T>(), descriptors.x.get(), descriptors.y.get());
            let (one, zero, pooling) = (one.as_ptr(), zero.as_ptr(), descriptors.pooling.get());
            // SAFETY: handle and descriptors are alive, and the pointers refer to tensors of the descriptors' shapes.
            check("cudnnPoolingForward", unsafe {
                functions::cudnnPoolingForward(handle, pooling, one, of_x, x, zero, of_y, y)
            })
        },
        // SAFETY: the operands have the windows' shapes.
        move |places| unsafe { host::pooling::forward::<T>(&windows, places) },
    )
}

/// Enqueues `dx = gradient of pooling(x)`, given `y = pooling(x)` and the gradient `dy` of `y`. If several elements of
/// a window tie for the maximum, one of them receives the gradient.
///
/// # Errors
/// Returns the same errors as [`pooling`].
#[track_caller]
pub fn pooling_backward<T: FloatType>(
    stream: &Stream,
    pooling: &Pooling,
    x: &Tensor<'_, T>,
    y: &Tensor<'_, T>,
    dy: &Tensor<'_, T>,
    dx: &mut TensorMut<'_, T>,
) -> Result<()> {
    let _site = site();
    const NAME: &str = "dnn::pooling_backward";
    let windows = pooling.windows(NAME, &x.shape)?;
    windows.check_output(NAME, &y.shape)?;
    windows.check_output(NAME, &dy.shape)?;
    check_same(NAME, ("x", &x.shape), ("dx", &dx.shape))?;
    let is_deterministic = options::options(stream.device()).deterministic;
    call::enqueue::<T, 4>(
        NAME,
        stream,
        [
            Operand::read("x", &x.slice),
            Operand::read("y", &y.slice),
            Operand::read("dy", &dy.slice),
            Operand::target("dx", &mut dx.slice),
        ],
        |handle, [x, y, dy, dx]| {
            let descriptors = windows.descriptors::<T>(NAME, is_deterministic)?;
            let ([one, zero], of_x, of_y) = (factors::<T>(), descriptors.x.get(), descriptors.y.get());
            let (one, zero, pooling) = (one.as_ptr(), zero.as_ptr(), descriptors.pooling.get());
            // SAFETY: handle and descriptors are alive, and the pointers refer to tensors of the descriptors' shapes.
            check("cudnnPoolingBackward", unsafe {
                functions::cudnnPoolingBackward(
                    handle, pooling, one, of_y, y, of_y, dy, of_x, x, zero, of_x, dx,
                )
            })
        },
        // SAFETY: the operands have the windows' shapes.
        move |places| unsafe { host::pooling::backward::<T>(&windows, places) },
    )
}
