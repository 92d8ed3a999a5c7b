//! Layer norm and RMS norm of rows.

use gpu_kernels::resident::{BACKWARD_FEW, BACKWARD_MANY, FEW, MANY};
use gpu_spec::param::{Optional, Pointer, PointerMut, Slice, Slice2, SliceMut, SliceMut2, Value};
use gpu_std::scalar::Float;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceBuffer, DeviceSlice, DeviceSlice2, DeviceSliceMut, DeviceSliceMut2, Result, Stream,
};

use super::launch::{
    ResidentShape, RowKernel, VECTOR, check_len, has_whole_vectors, same_sides, shape_error,
};
use super::reduce::{columns_shape, with_workspace};
use crate::ops::data::fill;

/// Layer norm: `out[row, i]` = (x\[row, i\] - mean) / √(variance + epsilon) · weight\[i\] + bias\[i\], where mean and
/// variance are computed over the row. A missing weight counts as 1, and a missing bias as 0.
///
/// The variance is biased: the sum of squares is divided by the row length. For `f16` and `bf16`, the result is
/// computed in `f32` and rounded once. A block, or a cluster on devices that support clusters, keeps a row in registers
/// and reads it only once. This is possible for rows of up to 262 144 `f16` or `bf16` elements, 131 072 `f32` elements,
/// or 32 768 `f64` elements. If rows do not start and end on 16-byte boundaries, the limit is 32 768 elements for all
/// types. Longer rows are read twice. Rows whose squares overflow the compute type are read once more.
///
/// The results are in range for any finite row. A row of equal elements is normalized to 0, so its result is the bias.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) if the shapes of the views differ, if the weight or bias does not
/// have one element per column, or if epsilon is negative or NaN. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 3.0, 10.0, 30.0])?;
/// let weight = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
/// let mut y = DeviceBuffer::uninit(&stream, 4)?;
/// ops::layer_norm(&stream, x.as_2d(2, 2)?, Some(weight.as_slice()), None, 0.0, y.as_2d_mut(2, 2)?)?;
/// assert_eq!(y.to_host()?, [-1.0, 2.0, -1.0, 2.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn layer_norm<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    bias: Option<DeviceSlice<'_, T>>,
    epsilon: f64,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    forward(stream, Norm { operation: "layer_norm", is_rms: false, epsilon }, x, weight, bias, out)
}

/// RMS norm: `out[row, i]` = x\[row, i\] / √(mean square + epsilon) · weight\[i\]. Otherwise like [`layer_norm()`].
///
/// # Errors
/// Returns the same errors as [`layer_norm()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, 3.0, -5.0, 5.0])?;
/// let mut y = DeviceBuffer::uninit(&stream, 4)?;
/// ops::rms_norm(&stream, x.as_2d(2, 2)?, None, 0.0, y.as_2d_mut(2, 2)?)?;
/// assert_eq!(y.to_host()?, [1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn rms_norm<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    epsilon: f64,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    forward(stream, Norm { operation: "rms_norm", is_rms: true, epsilon }, x, weight, None, out)
}

/// Residual addition and RMS norm in one kernel: `residual[row, i]` += x\[row, i\], and `out` is the [`rms_norm()`] of
/// the sum, which is rounded to `T` before it is normalized.
///
/// On compute capability 9.0, the kernel is launched as a [dependent launch](crate::Launch::dependent).
///
/// # Errors
/// Returns the same errors as [`layer_norm()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, -1.0, 5.0])?;
/// let mut residual = DeviceBuffer::from_host(&stream, &[2.0f32, 1.0, -4.0, 0.0])?;
/// let mut y = DeviceBuffer::uninit(&stream, 4)?;
/// ops::add_rms_norm(&stream, x.as_2d(2, 2)?, residual.as_2d_mut(2, 2)?, None, 0.0, y.as_2d_mut(2, 2)?)?;
/// assert_eq!(residual.to_host()?, [3.0, 3.0, -5.0, 5.0]);
/// assert_eq!(y.to_host()?, [1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn add_rms_norm<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    residual: DeviceSliceMut2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    epsilon: f64,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    let norm = Norm { operation: "add_rms_norm", is_rms: true, epsilon };
    let of_x = (x.rows(), x.columns());
    same_sides(norm.operation, ("x", of_x), ("residual", (residual.rows(), residual.columns())))?;
    same_sides(norm.operation, ("x", of_x), ("out", (out.rows(), out.columns())))?;
    norm.check(x.columns(), &[("weight", weight.map(|array| array.len()))])?;
    if x.is_empty() {
        return Ok(());
    }
    let place = (x.as_device_ptr(), x.row_stride());
    let views = [
        place,
        (residual.as_device_ptr(), residual.row_stride()),
        (out.as_device_ptr(), out.row_stride()),
        weight.map_or(place, |array| (array.as_device_ptr(), 0)),
    ];
    let sides = (x.columns(), x.rows());
    let ResidentShape { shape, items, in_vectors } =
        ResidentShape::new::<T>(&views, sides, [BACKWARD_FEW as u32, BACKWARD_MANY as u32], stream.device());
    let kernel = RowKernel::new(stream, "add_rms_norm", T::NAME, items)?;
    let arguments = (x, residual, weight, out, epsilon, shape.group_size, u32::from(in_vectors));
    // SAFETY: these arguments match the kernel's parameters; sizes, lengths, shape and alignment meet its conditions.
    unsafe {
        kernel.launch_dependent::<(
            Slice2<T>,
            SliceMut2<T>,
            Optional<Slice<T>>,
            SliceMut2<T>,
            Value<f64>,
            Value<u32>,
            Value<u32>,
        ), _>(&shape, arguments)
    }
}

/// Backward pass of [`layer_norm()`]: computes the input gradient `dx` from the output gradient `dy`. The gradients
/// `dweight` and `dbias` of weight and bias are optional outputs.
///
/// The row statistics are recomputed from `x`. The gradients of weight and bias are deterministic sums over all rows,
/// accumulated in `f32` for `f16` and `bf16`.
///
/// # Errors
/// Returns the same errors as [`layer_norm()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 3.0, 10.0, 30.0])?;
/// let dy = DeviceBuffer::from_host(&stream, &[1.0f32, 0.0, 2.0, 5.0])?;
/// let (mut dx, mut dbias) = (DeviceBuffer::uninit(&stream, 4)?, DeviceBuffer::uninit(&stream, 2)?);
/// let (x, dy) = (x.as_2d(2, 2)?, dy.as_2d(2, 2)?);
/// ops::layer_norm_backward(&stream, x, dy, None, 1e-5, dx.as_2d_mut(2, 2)?, None, Some(dbias.as_mut_slice()))?;
/// assert_eq!(dbias.to_host()?, [3.0, 5.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[allow(clippy::too_many_arguments, reason = "they are what the gradients depend on, and the gradients")]
#[track_caller]
pub fn layer_norm_backward<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    dy: DeviceSlice2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    epsilon: f64,
    dx: DeviceSliceMut2<'_, T>,
    dweight: Option<DeviceSliceMut<'_, T>>,
    dbias: Option<DeviceSliceMut<'_, T>>,
) -> Result<()> {
    let _site = site();
    let norm = Norm { operation: "layer_norm_backward", is_rms: false, epsilon };
    backward(stream, norm, (x, dy, weight), (dx, dweight, dbias))
}

/// Backward pass of [`rms_norm()`]: computes the input gradient and, optionally, the weight gradient. Otherwise like
/// [`layer_norm_backward()`].
///
/// # Errors
/// Returns the same errors as [`layer_norm()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[2.0f32, 2.0])?;
/// let dy = DeviceBuffer::from_host(&stream, &[4.0f32, 0.0])?;
/// let (mut dx, mut dweight) = (DeviceBuffer::uninit(&stream, 2)?, DeviceBuffer::uninit(&stream, 2)?);
/// let (x, dy, dw) = (x.as_2d(1, 2)?, dy.as_2d(1, 2)?, dweight.as_mut_slice());
/// ops::rms_norm_backward(&stream, x, dy, None, 0.0, dx.as_2d_mut(1, 2)?, Some(dw))?;
/// assert_eq!((dx.to_host()?, dweight.to_host()?), (vec![1.0, -1.0], vec![4.0, 0.0]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[allow(clippy::too_many_arguments, reason = "they are what the gradients depend on, and the gradients")]
#[track_caller]
pub fn rms_norm_backward<T: Float>(
    stream: &Stream,
    x: DeviceSlice2<'_, T>,
    dy: DeviceSlice2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    epsilon: f64,
    dx: DeviceSliceMut2<'_, T>,
    dweight: Option<DeviceSliceMut<'_, T>>,
) -> Result<()> {
    let _site = site();
    let norm = Norm { operation: "rms_norm_backward", is_rms: true, epsilon };
    backward(stream, norm, (x, dy, weight), (dx, dweight, None))
}

/// The kind of norm and the operation's name.
#[derive(Clone, Copy)]
struct Norm {
    operation: &'static str,
    is_rms: bool,
    epsilon: f64,
}

impl Norm {
    /// Returns an error if epsilon is invalid, or if a parameter does not have `columns` elements.
    fn check(&self, columns: usize, parameters: &[(&'static str, Option<usize>)]) -> Result<()> {
        if self.epsilon.is_nan() || self.epsilon < 0.0 {
            let problem = format!("epsilon is {}, but must be a non-negative number", self.epsilon);
            return Err(shape_error(self.operation, problem));
        }
        parameters
            .iter()
            .filter_map(|&(name, len)| Some((name, len?)))
            .try_for_each(|array| check_len(self.operation, array, (columns, "one per column")))
    }
}

fn forward<T: Float>(
    stream: &Stream,
    norm: Norm,
    x: DeviceSlice2<'_, T>,
    weight: Option<DeviceSlice<'_, T>>,
    bias: Option<DeviceSlice<'_, T>>,
    out: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    same_sides(norm.operation, ("x", (x.rows(), x.columns())), ("out", (out.rows(), out.columns())))?;
    norm.check(x.columns(), &[("weight", weight.map(|w| w.len())), ("bias", bias.map(|b| b.len()))])?;
    if x.is_empty() {
        return Ok(());
    }
    let place = (x.as_device_ptr(), x.row_stride());
    let [weight_place, bias_place] =
        [weight, bias].map(|array| array.map_or(place, |array| (array.as_device_ptr(), 0)));
    let views = [place, (out.as_device_ptr(), out.row_stride()), weight_place, bias_place];
    let sides = (x.columns(), x.rows());
    let ResidentShape { shape, items, in_vectors } =
        ResidentShape::new::<T>(&views, sides, [FEW as u32, MANY as u32], stream.device());
    let kernel = RowKernel::new(stream, "norm", T::NAME, items)?;
    let Norm { is_rms, epsilon, .. } = norm;
    let arguments =
        (x, weight, bias, out, epsilon, u32::from(is_rms), shape.group_size, u32::from(in_vectors));
    // SAFETY: these arguments match the kernel's parameters; sizes, lengths, shape and alignment meet its conditions.
    unsafe {
        kernel.launch::<(
            Slice2<T>,
            Optional<Slice<T>>,
            Optional<Slice<T>>,
            SliceMut2<T>,
            Value<f64>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
        ), _>(&shape, arguments)
    }
}

fn backward<T: Float>(
    stream: &Stream,
    norm: Norm,
    (x, dy, weight): (DeviceSlice2<'_, T>, DeviceSlice2<'_, T>, Option<DeviceSlice<'_, T>>),
    (dx, dweight, dbias): (
        DeviceSliceMut2<'_, T>,
        Option<DeviceSliceMut<'_, T>>,
        Option<DeviceSliceMut<'_, T>>,
    ),
) -> Result<()> {
    let Norm { operation, is_rms, epsilon } = norm;
    let of_x = (x.rows(), x.columns());
    same_sides(operation, ("x", of_x), ("dy", (dy.rows(), dy.columns())))?;
    same_sides(operation, ("x", of_x), ("dx", (dx.rows(), dx.columns())))?;
    let lengths = [
        ("weight", weight.map(|array| array.len())),
        ("dweight", dweight.as_ref().map(|array| array.len())),
        ("dbias", dbias.as_ref().map(|array| array.len())),
    ];
    norm.check(x.columns(), &lengths)?;
    if x.is_empty() {
        // Sums over zero rows are 0.
        return [dweight, dbias].into_iter().flatten().try_for_each(|out| fill(stream, T::ZERO, out));
    }
    let place = (x.as_device_ptr(), x.row_stride());
    let weight_place = weight.map_or(place, |array| (array.as_device_ptr(), 0));
    let views =
        [place, (dy.as_device_ptr(), dy.row_stride()), (dx.as_device_ptr(), dx.row_stride()), weight_place];
    let sides = (x.columns(), x.rows());
    let mut statistics = DeviceBuffer::<[T::SumAccumulator; 4]>::uninit(stream, x.rows())?;
    let ResidentShape { shape, items, in_vectors } =
        ResidentShape::new::<T>(&views, sides, [BACKWARD_FEW as u32, BACKWARD_MANY as u32], stream.device());
    let kernel = RowKernel::new(stream, "norm_backward", T::NAME, items)?;
    let (is_rms, in_vectors) = (u32::from(is_rms), u32::from(in_vectors));
    let arguments = (x, dy, weight, dx, &mut statistics, epsilon, is_rms, shape.group_size, in_vectors);
    // SAFETY: these arguments match the kernel's parameters, because the sum type of a float is its accumulator; sizes,
    // lengths, shape and alignment meet its conditions.
    unsafe {
        kernel.launch::<(
            Slice2<T>,
            Slice2<T>,
            Optional<Slice<T>>,
            SliceMut2<T>,
            PointerMut<[T::SumAccumulator; 4]>,
            Value<f64>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
        ), _>(&shape, arguments)?;
    }
    if dweight.is_none() && dbias.is_none() {
        return Ok(());
    }
    let in_vectors = has_whole_vectors(&x) && has_whole_vectors(&dy);
    let (shape, parts) = columns_shape(&x, in_vectors, stream.device().properties());
    let constant = if in_vectors { VECTOR as u32 } else { 1 };
    let kernel = RowKernel::new(stream, "norm_backward_parameters", T::NAME, constant)?;
    let partials = if parts > 1 { x.columns() * parts } else { 0 };
    // SAFETY: the kernel uses the workspace on this stream in the same way as the kernels of `axis_reduce`. These
    // arguments match the kernel's parameters; sizes, lengths, shape and alignment meet its conditions.
    unsafe {
        with_workspace(stream, partials, |workspace| {
            let arguments = (x, dy, &statistics, dweight, dbias, workspace, shape.group_size, parts as u32);
            kernel.launch::<(
                Slice2<T>,
                Slice2<T>,
                Pointer<[T::SumAccumulator; 4]>,
                Optional<SliceMut<T>>,
                Optional<SliceMut<T>>,
                PointerMut<u64>,
                Value<u32>,
                Value<u32>,
            ), _>(&shape, arguments)
        })
    }
}
