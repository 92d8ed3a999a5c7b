//! Operations that fill arrays with random numbers.

use std::ops::Range;

use gpu_kernels::random::{WIDE_RANGE, sides};
use gpu_spec::param::{Slice, SliceMut, Value};
use gpu_std::scalar::{Float, Integer, Number, Scalar};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Result, Stream};

use super::generator::{Generator, Numbers};
use super::launch::{Begin, Draw, with_base};
use crate::op_error::OpError;
use crate::ops::launch::{Operation, same_length};

mod sealed {
    pub trait Sealed {}
}

/// An output type of [`bernoulli`]: `u8`, `f32`, `f64`, `f16` or `bf16`.
///
/// See the example of [`bernoulli`].
pub trait Bernoulli: Scalar + sealed::Sealed {}

macro_rules! flags {
    ($($t:ty),*) => { $(
        impl sealed::Sealed for $t {}
        impl Bernoulli for $t {}
    )* };
}
flags!(u8, f32, f64, f16, bf16);

/// Launches a kernel whose parameters are the start position of its numbers, the given values, and the output.
macro_rules! launch {
    ($t:ty; $($value:expr => $type:ty),*) => {
        move |operation: &Operation<'_>, begin: Begin<'_>, out: DeviceSliceMut<'_, $t>| {
            let Begin { seed, offset, base, threads } = begin;
            // SAFETY: these arguments match the parameters of the kernel.
            unsafe {
                operation.launch::<(
                    Value<u64>, Value<u64>, Slice<u64>, Value<u32>, $(Value<$type>,)* SliceMut<$t>,
                ), _>((seed, offset, base, threads, $($value,)* out))
            }
        }
    };
}

fn problem<R>(call: &'static str, problem: String) -> Result<R> {
    Err(OpError::Random { call, problem }.into())
}

/// Returns the number of results of type `T` per block of words.
pub(super) const fn lanes<T: Scalar>() -> usize {
    if size_of::<T::Accumulator>() == 8 { 2 } else { 4 }
}

/// Fills `out` with uniform numbers in [0, 1). They are bit-identical to `torch.rand` on CUDA with the generator's
/// seed, offset and [layout](super::Layout). `f16` and `bf16` results are rounded from `f32`, and a number that rounds
/// to 1 becomes 0.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// generator.manual_seed(0)?;
/// let mut x = DeviceBuffer::<f32>::uninit(&stream, 3)?;
/// random::uniform(&stream, &generator, &mut x)?;
/// assert!(x.to_host()?.iter().all(|x| (0.0..1.0).contains(x)));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn uniform<'o, T: Float>(
    stream: &Stream,
    generator: &Generator,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let launch = uniform_launch(T::ZERO, T::ONE);
    draw("uniform", "uniform", lanes::<T>(), stream).run(generator, out.into(), launch)
}

/// Fills `out` with uniform numbers in `range`, like PyTorch's `uniform_`. A number is low + u (high − low), rounded,
/// for u in (0, 1]; a result equal to high is replaced by low.
///
/// As in PyTorch, the length high − low is first rounded to the type. If the rounding increases the length, which can
/// happen if the ends differ greatly in magnitude, numbers may exceed high. The excess is at most half the spacing of
/// the type's numbers at that length. `f16` and `bf16` results are computed in `f32` and rounded.
///
/// # Errors
/// Returns [`OpError::Random`] if the range is empty or its ends or length are not finite. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut x = DeviceBuffer::<f32>::uninit(&stream, 1000)?;
/// random::uniform_in(&stream, &generator, -1.0..1.0, &mut x)?;
/// assert!(x.to_host()?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn uniform_in<'o, T: Float>(
    stream: &Stream,
    generator: &Generator,
    range: Range<T>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let Range { start, end } = range;
    let [low, high, length] = [start, end, end - start].map(|value| value.cast::<f64>());
    if !(low < high && low.is_finite() && high.is_finite() && length.is_finite()) {
        return problem(
            "uniform_in",
            format!("the range {low}..{high} must have finite bounds in ascending order and a finite length"),
        );
    }
    draw("uniform_in", "uniform", lanes::<T>(), stream).run(generator, out.into(), uniform_launch(start, end))
}

pub(super) fn uniform_launch<T: Float>(
    from: T,
    to: T,
) -> impl Fn(&Operation<'_>, Begin<'_>, DeviceSliceMut<'_, T>) -> Result<()> {
    launch!(T; from => T, to => T)
}

/// Fills `out` with normal numbers with this mean and standard deviation, in the order of PyTorch's `normal_`. `f16`
/// and `bf16` results are computed in `f32` and rounded. `f32` results have the accuracy of
/// [`normal2`](crate::gpu_std::random::normal2), so they may differ from PyTorch's results in the last bits.
///
/// # Errors
/// Returns [`OpError::Random`] if the standard deviation is negative, or if the mean or standard deviation is not
/// finite in the type. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut x = DeviceBuffer::<f32>::uninit(&stream, 10_000)?;
/// random::normal(&stream, &generator, 5.0, 0.5, &mut x)?;
/// assert!((ops::mean(&stream, &x)? - 5.0).abs() < 0.05);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn normal<'o, T: Float>(
    stream: &Stream,
    generator: &Generator,
    mean: f64,
    std: f64,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let is_finite = |value: f64| T::from_f64(value).cast::<f64>().is_finite();
    if !(is_finite(mean) && is_finite(std) && std >= 0.0) {
        return problem(
            "normal",
            format!(
                "mean and std must be finite in {}, and std not negative; found mean {mean}, std {std}",
                T::NAME
            ),
        );
    }
    let launch = normal_launch(mean, std);
    draw("normal", "normal", lanes::<T>(), stream).run(generator, out.into(), launch)
}

pub(super) fn normal_launch<T: Float>(
    mean: f64,
    std: f64,
) -> impl Fn(&Operation<'_>, Begin<'_>, DeviceSliceMut<'_, T>) -> Result<()> {
    launch!(T; mean => f64, std => f64)
}

/// Fills `out` with exponentially distributed numbers with this rate (the inverse of the mean), in the order of
/// PyTorch's `exponential_`. A number is −ln(u) / rate, rounded, for u in (0, 1]. −ln(1) is replaced by a positive
/// minimum.
///
/// The numbers are positive and finite, unless the rate moves them out of the type's range. The minimum is 2⁻²⁴ / rate
/// (for f64, 2⁻⁵³ / rate). For f16, the minimum rounds to 0 at rates of 2 and above. At rates below about 4 · 10⁻⁴, the
/// largest `f16` numbers become infinite. `f32` and `bf16` leave the range only at rates above 10³⁷ or below 10⁻³⁷.
///
/// # Errors
/// Returns [`OpError::Random`] if the rate is not positive and finite, or if the mean (1 / rate) is not representable
/// in `f32` (for `f64` results, in `f64`). Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut x = DeviceBuffer::<f32>::uninit(&stream, 10_000)?;
/// random::exponential(&stream, &generator, 2.0, &mut x)?;
/// assert!(x.to_host()?.iter().all(|x| *x > 0.0));
/// assert!((ops::mean(&stream, &x)? - 0.5).abs() < 0.05);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn exponential<'o, T: Float>(
    stream: &Stream,
    generator: &Generator,
    rate: f64,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    if !(rate.is_finite() && rate > 0.0) {
        return problem("exponential", format!("the rate must be positive and finite, found {rate}"));
    }
    if !(1.0 / rate).cast::<T::Accumulator>().cast::<f64>().is_finite() {
        return problem("exponential", format!("{} cannot represent the mean, 1 / {rate}", T::NAME));
    }
    let draw = draw("exponential", "exponential", lanes::<T>(), stream);
    draw.run(generator, out.into(), launch!(T; 1.0 / rate => f64))
}

/// Fills `out` with integers in `range`, like `torch.randint`. An integer is a random word modulo the size of the
/// range. The words have 32 bits for sizes below 2²⁸ and 64 bits for larger sizes. For sizes up to 2⁶⁰, an integer
/// occurs at most a sixteenth more often than any other. For larger sizes, some integers occur up to twice as often as
/// others. If the size is a power of two, all integers are equally likely.
///
/// # Errors
/// Returns [`OpError::Random`] if the range is empty. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut dice = DeviceBuffer::<u32>::uninit(&stream, 100)?;
/// random::integers(&stream, &generator, 1..7, &mut dice)?;
/// assert!(dice.to_host()?.iter().all(|eyes| (1..=6).contains(eyes)));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn integers<'o, T: Integer + Number>(
    stream: &Stream,
    generator: &Generator,
    range: Range<T>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let Range { start, end } = range;
    if start >= end {
        return problem("integers", format!("the range {start:?}..{end:?} is empty"));
    }
    // The difference of 64-bit numbers wraps around to the correct value.
    let range = end.cast::<i64>().wrapping_sub(start.cast()) as u64;
    let draw = draw("integers", "integers", if range < WIDE_RANGE { 4 } else { 2 }, stream);
    draw.run(generator, out.into(), launch!(T; start => T, range => u64))
}

/// Sets each element of `out` to 1 with probability `p` (rounded to `f32`) and to 0 otherwise. For `p` = 1, the result
/// is always 1, whereas PyTorch returns 0 about once in 2²⁵ numbers.
///
/// # Errors
/// Returns [`OpError::Random`] if `p` is below 0 or above 1. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut flags = DeviceBuffer::<u8>::uninit(&stream, 10_000)?;
/// random::bernoulli(&stream, &generator, 0.25, &mut flags)?;
/// let ones = flags.to_host()?.into_iter().filter(|flag| *flag == 1).count();
/// assert!((2000..3000).contains(&ones));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn bernoulli<'o, T: Bernoulli>(
    stream: &Stream,
    generator: &Generator,
    p: f64,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let threshold = threshold("bernoulli", p, p)?;
    let draw = draw("bernoulli", "bernoulli", 4, stream);
    draw.run(generator, out.into(), launch!(T; threshold => f32))
}

/// Drops each element of `x` with probability `p`. For a dropped element, `mask[i]` and `y[i]` are 0, even if `x[i]` is
/// NaN. Otherwise, `mask[i]` is 1 and `y[i]` is `x[i]` / (1 − p).
///
/// The choice of dropped elements does not depend on the [layout](super::Layout).
///
/// # Errors
/// Returns [`OpError::Random`] if `p` is below 0 or above 1. Also returns [`OpError::LengthMismatch`] and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000])?;
/// let mut y = DeviceBuffer::uninit(&stream, 1000)?;
/// let mut mask = DeviceBuffer::uninit(&stream, 1000)?;
/// random::dropout(&stream, &generator, &x, 0.5, &mut y, &mut mask)?;
/// assert!(y.to_host()?.into_iter().zip(mask.to_host()?).all(|(y, kept)| y == 2.0 * f32::from(kept)));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn dropout<'x, 'y, 'm, T: Float>(
    stream: &Stream,
    generator: &Generator,
    x: impl Into<DeviceSlice<'x, T>>,
    p: f64,
    y: impl Into<DeviceSliceMut<'y, T>>,
    mask: impl Into<DeviceSliceMut<'m, u8>>,
) -> Result<()> {
    let _site = site();
    type Params<T> =
        (Value<u64>, Value<u64>, Slice<u64>, Value<[f64; 2]>, Slice<T>, SliceMut<T>, SliceMut<u8>);
    let (x, y, mask) = (x.into(), y.into(), mask.into());
    let threshold = threshold("dropout", p, 1.0 - p)?;
    same_length("dropout", ("x", x.len()), ("y", y.len()))?;
    same_length("dropout", ("x", x.len()), ("mask", mask.len()))?;
    if x.is_empty() {
        return Ok(());
    }
    let keep = [f64::from(threshold), if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 }];
    generator.with_numbers(
        stream,
        "dropout",
        |_| 4,
        |numbers| {
            let Numbers { seed, offset, .. } = *numbers;
            with_base(numbers, stream, |base| {
                let arrays = [x.as_device_ptr(), y.as_device_ptr()];
                let operation = Operation::new::<T>(stream, "dropout", x.len(), &arrays);
                // SAFETY: these arguments match the parameters of the kernel.
                unsafe { operation.launch::<Params<T>, _>((seed, offset, base, keep, x, y, mask)) }
            })
        },
    )
}

/// Fills `out` with the integers from 0 to n − 1 in random order, where n is its length.
///
/// The permutation is computed without a sort, so the operation takes one launch and no temporary memory. There are at
/// most 2¹²⁸ different orders, so for more than 34 elements, not every order can occur. The order differs from the
/// order that PyTorch's `randperm` produces. The order does not depend on the [layout](super::Layout).
///
/// # Errors
/// Returns [`OpError::Random`] if n − 1 does not fit in the type. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{prelude::*, random::{self, Generator}};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let generator = Generator::new(stream.device());
/// let mut order = DeviceBuffer::<u32>::uninit(&stream, 100)?;
/// random::permutation(&stream, &generator, &mut order)?;
/// let mut sorted = order.to_host()?;
/// sorted.sort_unstable();
/// assert!(sorted.into_iter().eq(0..100));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn permutation<'o, T: Integer + Number>(
    stream: &Stream,
    generator: &Generator,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    type Params<T> = (Value<u64>, Value<u64>, Slice<u64>, Value<u32>, Value<u32>, SliceMut<T>);
    let out = out.into();
    let n = out.len();
    if n == 0 {
        return Ok(());
    }
    let Some((a, b)) = sides(n as u64).filter(|_| n as u64 - 1 <= T::MIN_IDENTITY.cast::<u64>()) else {
        return problem(
            "permutation",
            format!("{n} numbers starting with 0 do not fit into {}; use a wider type", T::NAME),
        );
    };
    generator.with_numbers(
        stream,
        "permutation",
        |_| 4,
        |numbers| {
            let Numbers { seed, offset, .. } = *numbers;
            with_base(numbers, stream, |base| {
                let operation = Operation::new::<T>(stream, "permutation", n, &[out.as_device_ptr()]);
                // SAFETY: these arguments match the parameters of the kernel.
                unsafe { operation.launch::<Params<T>, _>((seed, offset, base, a, b, out)) }
            })
        },
    )
}

pub(super) fn draw<'a>(
    call: &'static str,
    kernel: &'static str,
    lanes: usize,
    stream: &'a Stream,
) -> Draw<'a> {
    Draw { call, kernel, lanes, stream }
}

/// Returns the `f32` threshold for uniform numbers that is nearest to the probability, as PyTorch computes it. Returns
/// an error unless `p`, the caller's argument, is a probability.
fn threshold(call: &'static str, p: f64, probability: f64) -> Result<f32> {
    if !(0.0..=1.0).contains(&p) {
        return problem(call, format!("the probability must be from 0 to 1, found {p}"));
    }
    // This threshold exceeds all uniform numbers, whose maximum is 1.
    Ok(if probability == 1.0 { 2.0 } else { probability as f32 })
}
