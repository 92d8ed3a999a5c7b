//! Softmax and log-softmax of rows.

use gpu_kernels::resident::{BACKWARD_FEW, BACKWARD_MANY, FEW, MANY};
use gpu_spec::param::{Slice2, SliceMut2, Value};
use gpu_std::scalar::Float;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice2, DeviceSliceMut2, Result, Stream};

use super::launch::{ResidentShape, RowKernel, same_sides};

/// Softmax: `out[row, i]` = exp(x\[row, i\]) / Σⱼ exp(x\[row, j\]).
///
/// The maximum of the row is subtracted first, so the exponentials do not overflow. For `f16` and `bf16`, the function
/// is computed in `f32` and the result is rounded once. If a row contains +∞ or NaN, or no element above -∞, all its
/// results are NaN.
///
/// Rows that fit in the registers of a block, or of a cluster, are read only once. The limits are those of
/// [`layer_norm()`](crate::ops::layer_norm()). Longer rows are read twice.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if the shapes of the views differ. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.0f32, 0.0, 5.0, f32::NEG_INFINITY])?;
/// let mut y = DeviceBuffer::uninit(&stream, 4)?;
/// ops::softmax(&stream, x.as_2d(2, 2)?, y.as_2d_mut(2, 2)?)?;
/// assert_eq!(y.to_host()?, [0.5, 0.5, 1.0, 0.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn softmax<T: Float>(stream: &Stream, x: DeviceSlice2<'_, T>, out: DeviceSliceMut2<'_, T>) -> Result<()> {
    let _site = site();
    forward(stream, "softmax", false, x, out)
}

/// Log-softmax: `out[row, i]` = x\[row, i\] - ln Σⱼ exp(x\[row, j\]). Otherwise like [`softmax()`].
///
/// # Errors
/// Returns the same errors as [`softmax()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.0f32, 0.0, 1.0, f32::NEG_INFINITY])?;
/// let mut y = DeviceBuffer::uninit(&stream, 4)?;
/// ops::log_softmax(&stream, x.as_2d(2, 2)?, y.as_2d_mut(2, 2)?)?;
/// assert_eq!(format!("{:.3?}", y.to_host()?), "[-0.693, -0.693, 0.000, -inf]");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn log_softmax<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    forward(stream, "log_softmax", true, x, out)
}

fn forward<T: Float>(
    stream: &Stream,
    operation: &'static str,
    is_log: bool,
    x: DeviceSlice2<'_, T>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let sides = (x.columns(), x.rows());
    same_sides(operation, ("x", (x.rows(), x.columns())), ("out", (out.rows(), out.columns())))?;
    if x.is_empty() {
        return Ok(());
    }
    let views = [(x.as_device_ptr(), x.row_stride()), (out.as_device_ptr(), out.row_stride())];
    let ResidentShape { shape, items, in_vectors } =
        ResidentShape::new::<T>(&views, sides, [FEW as u32, MANY as u32], stream.device());
    let kernel = RowKernel::new(stream, "softmax", T::NAME, items)?;
    let arguments = (x, out, u32::from(is_log), shape.group_size, u32::from(in_vectors));
    // SAFETY: these arguments match the kernel's parameters; sizes, shape and alignment meet its conditions.
    unsafe {
        kernel.launch::<(Slice2<T>, SliceMut2<T>, Value<u32>, Value<u32>, Value<u32>), _>(&shape, arguments)
    }
}

/// Backward pass of [`softmax()`]: computes `dx` from the output `y` of [`softmax()`] and its gradient `dy`.
///
/// `dx[row, i]` = y\[row, i\] (dy\[row, i\] - Σⱼ y\[row, j\] dy\[row, j\]). The maximum length of register-resident
/// rows is half the limit of [`softmax()`].
///
/// # Errors
/// Returns the same errors as [`softmax()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let y = DeviceBuffer::from_host(&stream, &[0.5f32, 0.5])?;
/// let dy = DeviceBuffer::from_host(&stream, &[1.0f32, 0.0])?;
/// let mut dx = DeviceBuffer::uninit(&stream, 2)?;
/// ops::softmax_backward(&stream, y.as_2d(1, 2)?, dy.as_2d(1, 2)?, dx.as_2d_mut(1, 2)?)?;
/// assert_eq!(dx.to_host()?, [0.25, -0.25]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn softmax_backward<T: Float>(
    stream: &Stream,
    y: DeviceSlice2<'_, T>,
    dy: DeviceSlice2<'_, T>,
    dx: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    backward(stream, "softmax_backward", false, y, dy, dx)
}

/// Backward pass of [`log_softmax()`]: `dx[row, i]` = dy\[row, i\] - exp(y\[row, i\]) Σⱼ dy\[row, j\]. Otherwise like
/// [`softmax_backward()`].
///
/// # Errors
/// Returns the same errors as [`softmax()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// // Logarithms of 0.5.
/// let y = DeviceBuffer::from_host(&stream, &[-0.6931472f32, -0.6931472])?;
/// let dy = DeviceBuffer::from_host(&stream, &[1.0f32, 0.0])?;
/// let mut dx = DeviceBuffer::uninit(&stream, 2)?;
/// ops::log_softmax_backward(&stream, y.as_2d(1, 2)?, dy.as_2d(1, 2)?, dx.as_2d_mut(1, 2)?)?;
/// assert_eq!(format!("{:.3?}", dx.to_host()?), "[0.500, -0.500]");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn log_softmax_backward<T: Float>(
    stream: &Stream,
    y: DeviceSlice2<'_, T>,
    dy: DeviceSlice2<'_, T>,
    dx: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    backward(stream, "log_softmax_backward", true, y, dy, dx)
}

fn backward<T: Float>(
    stream: &Stream,
    operation: &'static str,
    is_log: bool,
    y: DeviceSlice2<'_, T>,
    dy: DeviceSlice2<'_, T>,
    dx: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let of_y = (y.rows(), y.columns());
    same_sides(operation, ("y", of_y), ("dy", (dy.rows(), dy.columns())))?;
    same_sides(operation, ("y", of_y), ("dx", (dx.rows(), dx.columns())))?;
    if y.is_empty() {
        return Ok(());
    }
    let views = [
        (y.as_device_ptr(), y.row_stride()),
        (dy.as_device_ptr(), dy.row_stride()),
        (dx.as_device_ptr(), dx.row_stride()),
    ];
    let sides = (y.columns(), y.rows());
    let ResidentShape { shape, items, in_vectors } =
        ResidentShape::new::<T>(&views, sides, [BACKWARD_FEW as u32, BACKWARD_MANY as u32], stream.device());
    let kernel = RowKernel::new(stream, "softmax_backward", T::NAME, items)?;
    let arguments = (y, dy, dx, u32::from(is_log), shape.group_size, u32::from(in_vectors));
    // SAFETY: these arguments match the kernel's parameters; sizes, shape and alignment meet its conditions.
    unsafe {
        kernel.launch::<(Slice2<T>, Slice2<T>, SliceMut2<T>, Value<u32>, Value<u32>, Value<u32>), _>(
            &shape, arguments,
        )
    }
}
