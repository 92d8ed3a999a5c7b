//! Full reductions. Each takes one launch. The same configuration, data and alignment give bit-identical results.
//!
//! The functions that return a value wait for it. The `_into` functions are asynchronous. They leave the value on the
//! device in the accumulator type, which is `f32` for `f16` and `bf16`.

use gpu_kernels::reduce::mean_of;
use gpu_spec::param::{PointerMut, Slice};
use gpu_std::scalar::{Float, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSliceMut, Result, Stream};

use super::example::into_example;
use super::launch::{Operation, same_length};
use super::workspace;
use crate::op_error::OpError;

/// Size of an accumulator of this module's reductions, in bytes.
const VALUE_BYTES: usize = 16;

/// Launches `kernel` over `x` and waits for the result. If `x` is empty, the result is `of_nothing`.
fn to_host<T: Number, D: DeviceCopy>(
    stream: &Stream,
    kernel: &'static str,
    x: DeviceSlice<'_, T>,
    of_nothing: D,
) -> Result<D> {
    let operation = Operation::new::<T>(stream, kernel, x.len(), &[x.as_device_ptr()]);
    // SAFETY: the kernel is a reduction of `T` to `D`.
    unsafe { value(stream, &operation, x, VALUE_BYTES, of_nothing) }
}

/// Launches `kernel` over `x`; the kernel stores its result in `out`. If `x` is empty, the result is `of_nothing`.
fn to_element<T: Number, D: DeviceCopy>(
    stream: &Stream,
    kernel: &'static str,
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, D>,
    of_nothing: D,
) -> Result<()> {
    same_length(kernel, ("the output", out.len()), ("a single value", 1))?;
    let operation = Operation::new::<T>(stream, kernel, x.len(), &[x.as_device_ptr()]);
    // SAFETY: the kernel is a reduction of `T` to `D`, and `out` has one element.
    unsafe { element(stream, &operation, x, VALUE_BYTES, out, of_nothing) }
}

/// Launches a reduction over `x` and waits for its result. If `x` is empty, the result is `of_nothing`.
///
/// # Safety
/// The operation's kernel must reduce `T` to `D` with accumulators of at most `value_bytes` bytes.
pub(super) unsafe fn value<T: DeviceCopy, D: DeviceCopy>(
    stream: &Stream,
    operation: &Operation<'_>,
    x: DeviceSlice<'_, T>,
    value_bytes: usize,
    of_nothing: D,
) -> Result<D> {
    if x.is_empty() {
        return Ok(of_nothing);
    }
    let plan = operation.plan()?;
    // SAFETY: the plan's launch is on this stream with the plan's number of blocks, and its kernel leaves the header
    // zero.
    unsafe {
        workspace::with(stream, plan.blocks(), value_bytes, |workspace| {
            let arguments = (x, workspace.partials(), workspace.result());
            // SAFETY: these arguments match the kernel's parameters, and the launch is one-dimensional. The workspace
            // belongs to this stream, is large enough for the plan's blocks, and stays locked until the value has been
            // read.
            plan.launch::<(Slice<T>, PointerMut<u64>, PointerMut<D>), _>(arguments)?;
            workspace.read(stream)
        })
    }
}

/// Launches a reduction over `x` that stores its result in `out`. If `x` is empty, the result is `of_nothing`.
///
/// # Safety
/// The caller must uphold the safety contract of [`value`]. `out` must have one element.
pub(super) unsafe fn element<T: DeviceCopy, D: DeviceCopy>(
    stream: &Stream,
    operation: &Operation<'_>,
    x: DeviceSlice<'_, T>,
    value_bytes: usize,
    mut out: DeviceSliceMut<'_, D>,
    of_nothing: D,
) -> Result<()> {
    if x.is_empty() {
        return out.copy_from_host(&[of_nothing]);
    }
    let plan = operation.plan()?;
    // SAFETY: the plan's launch is on this stream with the plan's number of blocks, and its kernel leaves the header
    // zero.
    unsafe {
        workspace::with(stream, plan.blocks(), value_bytes, |workspace| {
            let arguments = (x, workspace.partials(), out);
            // SAFETY: these arguments match the kernel's parameters, the launch is one-dimensional, and `out` has one
            // element. The workspace belongs to this stream, is large enough for the plan's blocks, and stays locked
            // until the launch is enqueued.
            plan.launch::<(Slice<T>, PointerMut<u64>, PointerMut<D>), _>(arguments)
        })
    }
}

/// Returns an error if `x` has no elements.
fn not_empty<T: Number>(operation: &'static str, x: &DeviceSlice<'_, T>) -> Result<()> {
    if x.is_empty() { Err(OpError::Empty { operation }.into()) } else { Ok(()) }
}

/// Returns the sum of the elements. Floats are summed in their own type (`f16` and `bf16` in `f32`), and integers in 64
/// bits with wraparound. The sum of zero elements is 0.
///
/// A floating-point sum is infinite or NaN if an intermediate sum overflows, even if the total is in range, as for
/// `[3e38, 3e38, -3e38]`. The accumulation of a [`mean()`] does not overflow in this case.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1i32, 2, i32::MAX])?;
/// assert_eq!(ops::sum(&stream, &x)?, 3 + i64::from(i32::MAX));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn sum<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T::Sum> {
    let _site = site();
    to_host(stream, "reduce_sum", x.into(), T::SumAccumulator::ZERO).map(Scalar::cast)
}

/// Returns the product of the elements, computed in the same types as [`sum()`]. The product of zero elements is 1.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[2i32, 3, -4])?;
/// assert_eq!(ops::prod(&stream, &x)?, -24);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn prod<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T::Sum> {
    let _site = site();
    to_host(stream, "reduce_prod", x.into(), T::SumAccumulator::ONE).map(Scalar::cast)
}

/// Returns the mean, rounded once from the accumulated sum. If all elements are in range, the mean is also in range,
/// even if the sum is not. The mean of zero elements is NaN.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f64, 2.0, 6.0])?;
/// assert_eq!(ops::mean(&stream, &x)?, 3.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn mean<'x, T: Float>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T> {
    let _site = site();
    let x = x.into();
    Ok(mean_of::<T, T>(to_host(stream, "reduce_mean", x, [T::SumAccumulator::ZERO; 2])?, x.len()))
}

/// Returns the minimum, or NaN if any element is NaN.
///
/// # Errors
/// Returns [`OpError::Empty`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3i32, -7, 5])?;
/// assert_eq!(ops::min(&stream, &x)?, -7);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn min<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T> {
    let _site = site();
    let x = x.into();
    not_empty("min", &x)?;
    to_host(stream, "reduce_min", x, T::Accumulator::MIN_IDENTITY).map(T::from_acc)
}

/// Returns the maximum, or NaN if any element is NaN.
///
/// # Errors
/// Returns [`OpError::Empty`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, -7.0, 5.0])?;
/// assert_eq!(ops::max(&stream, &x)?, 5.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn max<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T> {
    let _site = site();
    let x = x.into();
    not_empty("max", &x)?;
    to_host(stream, "reduce_max", x, T::Accumulator::MAX_IDENTITY).map(T::from_acc)
}

/// Returns the index of the minimum. If several elements are equal, returns the first index. If any element is NaN,
/// returns the index of the first NaN.
///
/// # Errors
/// Returns [`OpError::Empty`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3i32, -7, 5, -7])?;
/// assert_eq!(ops::argmin(&stream, &x)?, 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn argmin<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<u64> {
    let _site = site();
    let x = x.into();
    not_empty("argmin", &x)?;
    to_host(stream, "reduce_argmin", x, 0)
}

/// Returns the index of the maximum. If several elements are equal, returns the first index. If any element is NaN,
/// returns the index of the first NaN.
///
/// # Errors
/// Returns [`OpError::Empty`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 7.0, 7.0])?;
/// assert_eq!(ops::argmax(&stream, &x)?, 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn argmax<'x, T: Number>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<u64> {
    let _site = site();
    let x = x.into();
    not_empty("argmax", &x)?;
    to_host(stream, "reduce_argmax", x, 0)
}

/// Defines the variant of a reduction that leaves the value on the device.
macro_rules! into {
    (
        $name:ident, $kernel:literal, $device:ty, $of_nothing:expr, $nothing_doc:literal, $into:ident,
        $x:tt => $value:tt
    ) => {
        #[doc = concat!(
            "Like [`", stringify!($name), "()`], but leaves the result on the device, in the single-element buffer ",
            "`out`. For zero elements, the result is ", $nothing_doc, "."
        )]
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`] unless `out` has one element. Also returns the [enqueue
        /// errors](crate::Error#enqueue-errors).
        #[doc = into_example!($into, $x, [$value])]
        #[track_caller]
        pub fn $into<'x, 'o, T: Number>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            out: impl Into<DeviceSliceMut<'o, $device>>,
        ) -> Result<()> {
            let _site = site();
            to_element(stream, $kernel, x.into(), out.into(), $of_nothing)
        }
    };
}

into!(
    sum,
    "reduce_sum",
    T::SumAccumulator,
    T::SumAccumulator::ZERO,
    "0",
    sum_into,
    [1.0f32, 2.0, 4.0] => 7.0
);
into!(
    prod,
    "reduce_prod",
    T::SumAccumulator,
    T::SumAccumulator::ONE,
    "1",
    prod_into,
    [2u32, 3, 4] => 24
);
into!(
    min,
    "reduce_min",
    T::Accumulator,
    T::Accumulator::MIN_IDENTITY,
    "the type's largest value (+∞ for floats)",
    min_into,
    [3i32, 1, 2] => 1
);
into!(
    max,
    "reduce_max",
    T::Accumulator,
    T::Accumulator::MAX_IDENTITY,
    "the type's smallest value (-∞ for floats)",
    max_into,
    [3i32, 1, 2] => 3
);
into!(argmin, "reduce_argmin", u64, 0, "0", argmin_into, [3i32, 1, 2] => 1);
into!(argmax, "reduce_argmax", u64, 0, "0", argmax_into, [3i32, 1, 2] => 0);
