//! Full reductions with more than one operator or input: dot product, norms, variance, and counts by a predicate.
//!
//! The functions that return a value wait for it. The `_into` functions are asynchronous. They leave the value on the
//! device in the accumulator type, which is `f32` for `f16` and `bf16`.

use gpu_kernels::axis_reduce::MAX_BLOCK;
use gpu_spec::param::{PointerMut, Slice, Value};
use gpu_std::scalar::{Element, Float, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    Arguments, DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Result, Stream,
};

use super::launch::{RowKernel, Shape, VECTOR, address, check_len};
use super::reduce::{resident, rows, with_workspace};
use crate::ops::data::fill;
use crate::ops::launch::same_length;

/// Returns the number of blocks for arrays of `len` elements. Each thread processes several vectors, and there is at
/// most one wave of blocks.
fn parts<T>(stream: &Stream, len: usize) -> usize {
    let of_block = MAX_BLOCK as usize * 4 * (VECTOR / size_of::<T>()).max(1);
    resident(stream.device().properties(), MAX_BLOCK).min(len / of_block).max(1)
}

/// Launches a kernel whose last parameters are the output, the workspace, the number of parts and the parameters that
/// `arguments` adds.
fn launch<T: DeviceCopy, P, A: Arguments<P>>(
    stream: &Stream,
    (kernel, dtype): (&'static str, &str),
    len: usize,
    arguments: impl FnOnce(DevicePtr, u32) -> A,
) -> Result<()> {
    let parts = parts::<T>(stream, len);
    let kernel = RowKernel::new(stream, kernel, dtype, 0)?;
    let shape = Shape::of_blocks(MAX_BLOCK, 1, parts);
    // Partial results take up to 48 bytes, three times as much as in an axis reduction.
    let partials = if parts > 1 { 3 * parts } else { 0 };
    // SAFETY: the kernel uses the workspace on this stream in the same way as the kernels of `axis_reduce`. Callers
    // pass arguments that match the kernel's parameters, with one output element. The shape and the workspace meet the
    // kernel's conditions.
    unsafe {
        with_workspace(stream, partials, |workspace| {
            kernel.launch::<P, A>(&shape, arguments(workspace, parts as u32))
        })
    }
}

/// Runs an operation that leaves a value on the device, and waits for this value.
fn value<O: DeviceCopy>(
    stream: &Stream,
    work: impl FnOnce(DeviceSliceMut<'_, O>) -> Result<()>,
) -> Result<O> {
    let mut out = DeviceBuffer::<O>::uninit(stream, 1)?;
    work(out.as_mut_slice())?;
    Ok(out.to_host()?[0])
}

fn single<O: DeviceCopy>(operation: &'static str, out: &DeviceSliceMut<'_, O>) -> Result<()> {
    check_len(operation, ("out", out.len()), (1, "the value"))
}

/// Returns the dot product, which is the sum of `x[i] * y[i]`, computed in the same types as
/// [`sum()`](crate::ops::sum()). `f16` and `bf16` are accumulated in `f32`, and integers in 64 bits with wraparound.
/// The result for zero elements is 0. As in a sum, the result is infinite or NaN if a floating-point product or
/// intermediate sum overflows.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
/// let y = DeviceBuffer::from_host(&stream, &[10.0f32, 1.0, 0.5])?;
/// assert_eq!(ops::dot(&stream, &x, &y)?, 13.5);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn dot<'x, 'y, T: Number>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSlice<'y, T>>,
) -> Result<T::Sum> {
    let _site = site();
    value(stream, |out| dot_into(stream, x, y, out)).map(Scalar::cast)
}

/// Like [`dot()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns the same errors as [`dot()`], and [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
/// let y = DeviceBuffer::from_host(&stream, &[10.0f32, 1.0, 0.5])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::dot_into(&stream, &x, &y, &mut out)?;
/// assert_eq!(out.to_host()?, [13.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn dot_into<'x, 'y, 'o, T: Number>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSlice<'y, T>>,
    out: impl Into<DeviceSliceMut<'o, T::SumAccumulator>>,
) -> Result<()> {
    let _site = site();
    let (x, y, out) = (x.into(), y.into(), out.into());
    same_length("dot", ("x", x.len()), ("y", y.len()))?;
    single("dot", &out)?;
    if x.is_empty() {
        return fill(stream, T::SumAccumulator::ZERO, out);
    }
    let place = |array: &DeviceSlice<'_, T>| address(array.as_device_ptr()) % VECTOR;
    let has_vectors = u32::from(place(&x) == place(&y));
    type Params<T> = (
        Slice<T>,
        Slice<T>,
        PointerMut<<T as Number>::SumAccumulator>,
        PointerMut<u64>,
        Value<u32>,
        Value<u32>,
    );
    launch::<T, Params<T>, _>(stream, ("dot", T::NAME), x.len(), |workspace, parts| {
        (x, y, out, workspace, parts, has_vectors)
    })
}

/// Predicate of [`count_if()`].
///
/// See the example of [`count_if()`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Predicate<T> {
    /// Elements equal to this value. 0.0 equals -0.0, and NaN does not equal anything.
    Equal(T),
    /// Elements that are not 0, including NaN. For `bool`, elements that are true.
    NonZero,
    /// NaN elements. Integers are never NaN.
    Nan,
}

/// Counts the elements for which a predicate is true.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Predicate}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.0f32, 2.0, f32::NAN, -0.0, 2.0])?;
/// assert_eq!(ops::count_if(&stream, Predicate::Equal(2.0), &x)?, 2);
/// assert_eq!(ops::count_if(&stream, Predicate::NonZero, &x)?, 3);
/// assert_eq!(ops::count_if(&stream, Predicate::Nan, &x)?, 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn count_if<'x, T: Element>(
    stream: &Stream,
    predicate: Predicate<T>,
    x: impl Into<DeviceSlice<'x, T>>,
) -> Result<u64> {
    let _site = site();
    value(stream, |out| count_if_into(stream, predicate, x, out))
}

/// Like [`count_if()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Predicate}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0i32, 2, 5, 2])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::count_if_into(&stream, Predicate::Equal(2), &x, &mut out)?;
/// assert_eq!(out.to_host()?, [2]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn count_if_into<'x, 'o, T: Element>(
    stream: &Stream,
    predicate: Predicate<T>,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, u64>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into().cast::<T::Scalar>()?, out.into());
    single("count_if", &out)?;
    if x.is_empty() {
        return fill(stream, 0, out);
    }
    let (number, of) = match predicate {
        Predicate::Equal(of) => (0u32, of.to_scalar()),
        Predicate::NonZero => (1, T::Scalar::ZERO),
        Predicate::Nan => (2, T::Scalar::ZERO),
    };
    type Params<S> = (Slice<S>, Value<u32>, Value<S>, PointerMut<u64>, PointerMut<u64>, Value<u32>);
    let kernel = ("count_if", T::Scalar::NAME);
    launch::<T, Params<T::Scalar>, _>(stream, kernel, x.len(), |workspace, parts| {
        (x, number, of, out, workspace, parts)
    })
}

/// Returns true if any element is nonzero. NaN counts as nonzero. Returns false for zero elements.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let flags = DeviceBuffer::from_host(&stream, Checked::from_slice(&[false, true, false]))?;
/// assert!(ops::any(&stream, &flags)? && !ops::all(&stream, &flags)?);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn any<'x, T: Element>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<bool> {
    let _site = site();
    Ok(count_if(stream, Predicate::NonZero, x)? > 0)
}

/// Returns true if all elements are nonzero. NaN counts as nonzero. Returns true for zero elements.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 0.0])?;
/// assert!(!ops::all(&stream, &x)?);
/// assert!(ops::all(&stream, x.slice(..2))?);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn all<'x, T: Element>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<bool> {
    let _site = site();
    let x = x.into();
    Ok(count_if(stream, Predicate::NonZero, x)? == x.len() as u64)
}

/// Like [`mean()`](crate::ops::mean()), but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 6.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::mean_into(&stream, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [3.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn mean_into<'x, 'o, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, T::SumAccumulator>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    single("mean", &out)?;
    if x.is_empty() {
        return fill(stream, f64::NAN.cast(), out);
    }
    let (parts, len) = (parts::<T>(stream, x.len()), x.len() as u64);
    rows(stream, "mean_rows", (x, [len, 1, len], None), out, (Shape::of_blocks(MAX_BLOCK, 1, parts), parts))
}

/// Returns the sum of absolute values, which is 0 for zero elements.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, -4.0])?;
/// assert_eq!(ops::l1_norm(&stream, &x)?, 7.0);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn l1_norm<'x, T: Float>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T> {
    let _site = site();
    value(stream, |out| l1_norm_into(stream, x, out)).map(rounded::<T>)
}

/// Like [`l1_norm()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, -4.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::l1_norm_into(&stream, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [7.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn l1_norm_into<'x, 'o, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, T::SumAccumulator>>,
) -> Result<()> {
    let _site = site();
    vector_norm(stream, "l1_norm", false, x.into(), out.into())
}

/// Returns the square root of the sum of squares, which is 0 for zero elements. The result is correct whenever it is in
/// range, even if the squares are not.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// // The squares are out of range.
/// let x = DeviceBuffer::from_host(&stream, &[3.0e30f32, -4.0e30])?;
/// assert_eq!(ops::l2_norm(&stream, &x)?, 5.0e30);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn l2_norm<'x, T: Float>(stream: &Stream, x: impl Into<DeviceSlice<'x, T>>) -> Result<T> {
    let _site = site();
    value(stream, |out| l2_norm_into(stream, x, out)).map(rounded::<T>)
}

/// Like [`l2_norm()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, -4.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::l2_norm_into(&stream, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [5.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn l2_norm_into<'x, 'o, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, T::SumAccumulator>>,
) -> Result<()> {
    let _site = site();
    vector_norm(stream, "l2_norm", true, x.into(), out.into())
}

fn vector_norm<T: Float>(
    stream: &Stream,
    operation: &'static str,
    is_root: bool,
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, T::SumAccumulator>,
) -> Result<()> {
    single(operation, &out)?;
    if x.is_empty() {
        return fill(stream, T::SumAccumulator::ZERO, out);
    }
    type Params<T> =
        (Slice<T>, Value<u32>, PointerMut<<T as Number>::SumAccumulator>, PointerMut<u64>, Value<u32>);
    launch::<T, Params<T>, _>(stream, ("vector_norm", T::NAME), x.len(), |workspace, parts| {
        (x, u32::from(is_root), out, workspace, parts)
    })
}

/// Returns the variance: the sum of squared differences from the mean, divided by the number of elements minus
/// `correction`. A correction of 1 gives the unbiased sample estimate, and a correction of 0 gives the population
/// variance. The result is NaN unless the number of elements exceeds `correction`.
///
/// The variance is computed from differences from means, which avoids the cancellation of the sum-of-squares formula.
/// The variance of equal elements is 0. The variance is correct whenever it is in range, even if squares and sums are
/// not.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0e4f32, 1.0e4 + 2.0])?;
/// assert_eq!((ops::variance(&stream, &x, 0)?, ops::variance(&stream, &x, 1)?), (1.0, 2.0));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn variance<'x, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    correction: u64,
) -> Result<T> {
    let _site = site();
    value(stream, |out| variance_into(stream, x, correction, out)).map(rounded::<T>)
}

/// Like [`variance()`], but leaves the result on the device, in the single-element buffer `out`.
///
/// # Errors
/// Returns [`OpError::Shape`](crate::OpError::Shape) unless `out` has one element. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 3.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 1)?;
/// ops::variance_into(&stream, &x, 0, &mut out)?;
/// assert_eq!(out.to_host()?, [1.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn variance_into<'x, 'o, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    correction: u64,
    out: impl Into<DeviceSliceMut<'o, T::SumAccumulator>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    single("variance", &out)?;
    if x.is_empty() {
        return fill(stream, f64::NAN.cast(), out);
    }
    type Params<T> =
        (Slice<T>, Value<u64>, PointerMut<<T as Number>::SumAccumulator>, PointerMut<u64>, Value<u32>);
    launch::<T, Params<T>, _>(stream, ("variance", T::NAME), x.len(), |workspace, parts| {
        (x, correction, out, workspace, parts)
    })
}

fn rounded<T: Float>(value: T::SumAccumulator) -> T {
    value.cast()
}
