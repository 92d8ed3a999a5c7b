//! Elementwise arithmetic, comparisons and selection, with broadcast inputs. One kernel implements many operations,
//! which are selected by an operation code.

use gpu_kernels::arithmetic::{Binary, Compare, Unary};
use gpu_kernels::operand::Form;
use gpu_spec::param::{Optional, Slice, SliceMut, Value};
use gpu_std::Checked;
use gpu_std::scalar::{Bits, Element, Float, Integer, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Result, Stream};

use super::config;
use super::example::{binary_example, unary_example};
use super::launch::{Operation, same_length};
use super::operand::{Arguments, Operand, bits, common_width};

fn unary<T: Scalar>(
    stream: &Stream,
    (name, operation): (&'static str, Unary),
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    same_length(name, ("x", x.len()), ("the output", out.len()))?;
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let launch = Operation::new::<T>(stream, "unary", out.len(), &arrays);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { launch.launch::<(Value<Unary>, Slice<T>, SliceMut<T>), _>((operation, x, out)) }
}

/// Operation code of a kernel with two operands of type `T`.
trait Code<T>: Copy + Send + Sync + 'static {
    /// Element type of the results.
    type Output: Element;
    const KERNEL: &'static str;
}

impl<T: Element> Code<T> for Binary {
    type Output = T;
    const KERNEL: &'static str = "binary";
}

impl<T> Code<T> for Compare {
    type Output = Checked<bool>;
    const KERNEL: &'static str = "compare";
}

fn binary<T: Element, C: Code<T>>(
    stream: &Stream,
    (name, operation): (&'static str, C),
    x: Operand<'_, T>,
    y: Operand<'_, T>,
    out: DeviceSliceMut<'_, C::Output>,
) -> Result<()> {
    let n = out.len();
    let width = common_width(name, [x.width(name, "x", n), y.width(name, "y", n)])?;
    let number = |value: T| value.to_scalar();
    let (x, y) = (x.arguments(number, T::Scalar::ZERO)?, y.arguments(number, T::Scalar::ZERO)?);
    let out = out.cast::<<C::Output as Element>::Scalar>()?;
    let arrays = [x.address(), y.address(), out.as_device_ptr()];
    let launch = Operation::new::<T::Scalar>(stream, C::KERNEL, n, &arrays);
    // SAFETY: these arguments match the parameters of both kernels. `compare` writes 0 or 1.
    unsafe {
        launch.launch::<(
            Value<C>,
            Value<usize>,
            Value<Form>,
            Value<T::Scalar>,
            Optional<Slice<T::Scalar>>,
            Value<Form>,
            Value<T::Scalar>,
            Optional<Slice<T::Scalar>>,
            SliceMut<<C::Output as Element>::Scalar>,
        ), _>((operation, width, x.form, x.value, x.array, y.form, y.value, y.array, out))
    }
}

/// `out[i] = if condition[i] { x[i] } else { y[i] }`. Condition bytes that are neither 0 nor a valid `bool` count as
/// true. Each input can be broadcast.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch), [`OpError::Shape`](crate::OpError::Shape), and
/// the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, -2.0, 3.0])?;
/// let mut is_negative = DeviceBuffer::<Checked<bool>>::uninit(&stream, 3)?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// ops::lt(&stream, &x, 0.0, &mut is_negative)?;
/// ops::select(&stream, &is_negative, 0.0, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [1.0, 0.0, 3.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn select<'c, 'x, 'y, 'o, T: Element>(
    stream: &Stream,
    condition: impl Into<Operand<'c, Checked<bool>>>,
    x: impl Into<Operand<'x, T>>,
    y: impl Into<Operand<'y, T>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (condition, x, y, out) = (condition.into(), x.into(), y.into(), out.into());
    let n = out.len();
    let widths =
        [condition.width("select", "condition", n), x.width("select", "x", n), y.width("select", "y", n)];
    let width = common_width("select", widths)?;
    // If the condition is a scalar, it selects one input for all elements.
    let (x, y) = match condition.scalar() {
        None => (x, y),
        Some(value) if value.bits() != 0 => (x, x),
        Some(_) => (y, y),
    };
    let condition = condition.arguments(|_| 0u8, 0)?;
    match size_of::<T>() {
        1 => select_as::<T, u8>(stream, width, condition, x, y, out),
        2 => select_as::<T, u16>(stream, width, condition, x, y, out),
        4 => select_as::<T, u32>(stream, width, condition, x, y, out),
        _ => select_as::<T, u64>(stream, width, condition, x, y, out),
    }
}

/// Like [`select()`], but operates on unsigned integers of the element size.
fn select_as<T: Element, S: Scalar>(
    stream: &Stream,
    width: usize,
    condition: Arguments<'_, u8>,
    x: Operand<'_, T>,
    y: Operand<'_, T>,
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    let (x, y) = (x.arguments(bits::<T, S>, S::ZERO)?, y.arguments(bits::<T, S>, S::ZERO)?);
    let out = out.cast::<S>()?;
    // The condition does not limit the vector width, because the kernel reads the bytes of an unaligned condition one
    // by one.
    let arrays = [x.address(), y.address(), out.as_device_ptr()];
    let launch = Operation::new::<S>(stream, "select", out.len(), &arrays);
    let arguments =
        (width, condition.form, condition.array, x.form, x.value, x.array, y.form, y.value, y.array, out);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe {
        launch.launch::<(
            Value<usize>,
            Value<Form>,
            Optional<Slice<u8>>,
            Value<Form>,
            Value<S>,
            Optional<Slice<S>>,
            Value<Form>,
            Value<S>,
            Optional<Slice<S>>,
            SliceMut<S>,
        ), _>(arguments)
    }
}

/// `out[i] = min(max(x[i], low), high)`, and NaN elements stay NaN. If `low > high`, the result is `high`. NaN bounds
/// are ignored.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[-5i32, 5, 50])?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// ops::clamp(&stream, &x, 0, 9, &mut out)?;
/// assert_eq!(out.to_host()?, [0, 5, 9]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn clamp<'x, 'o, T: Scalar>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    low: T,
    high: T,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("clamp", ("x", x.len()), ("the output", out.len()))?;
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let launch = Operation::new::<T>(stream, "clamp", out.len(), &arrays);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { launch.launch::<(Value<T>, Value<T>, Slice<T>, SliceMut<T>), _>((low, high, x, out)) }
}

/// `out[i] = x[i] + weight * (y[i] - x[i])`. `f16` and `bf16` results are computed in `f32` and rounded once. The
/// result is exactly `x[i]` for a weight of 0 and exactly `y[i]` for a weight of 1, even if the other input is infinite
/// or NaN. The result is correct whenever it is in range, even if `y[i] - x[i]` is not.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.0f32, 10.0])?;
/// let y = DeviceBuffer::from_host(&stream, &[1.0f32, 20.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 2)?;
/// ops::lerp(&stream, &x, &y, 0.25, &mut out)?;
/// assert_eq!(out.to_host()?, [0.25, 12.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn lerp<'x, 'y, 'o, T: Float>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSlice<'y, T>>,
    weight: T,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (x, y, out) = (x.into(), y.into(), out.into());
    for (name, input) in [("x", x), ("y", y)] {
        same_length("lerp", (name, input.len()), ("the output", out.len()))?;
    }
    let arrays = [x.as_device_ptr(), y.as_device_ptr(), out.as_device_ptr()];
    let launch = Operation::new::<T>(stream, "lerp", out.len(), &arrays);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { launch.launch::<(Value<T>, Slice<T>, Slice<T>, SliceMut<T>), _>((weight, x, y, out)) }
}

/// Defines the unary operations.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident: $bound:ident, $operation:ident, $x:tt => $result:tt;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
        /// errors](crate::Error#enqueue-errors).
        #[doc = unary_example!($name, $x, $result)]
        #[track_caller]
        pub fn $name<'x, 'o, T: $bound>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let _site = site();
            unary(stream, (stringify!($name), Unary::$operation), x.into(), out.into())
        }
    )* };
}
unary! {
    /// `out[i] = -x[i]`. Integers wrap around on overflow.
    neg: Scalar, Neg, [1i32, -2, 0] => [-1, 2, 0];
    /// `out[i] = |x[i]|`. The smallest signed integer stays unchanged.
    abs: Scalar, Abs, [-1.5f32, 2.0] => [1.5, 2.0];
    /// The sign of `x[i]`: -1, 0 or 1. Zeros keep their sign, and NaN stays NaN.
    sign: Scalar, Sign, [-2.5f32, 0.0, 7.0] => [-1.0, 0.0, 1.0];
    /// `out[i] = √x[i]`.
    sqrt: Float, Sqrt, [4.0f32, 2.25] => [2.0, 1.5];
    /// `out[i] = 1 / √x[i]`.
    rsqrt: Float, Rsqrt, [4.0f32, 0.25] => [0.5, 2.0];
    /// `out[i] = 1 / x[i]`.
    reciprocal: Float, Reciprocal, [4.0f32, -0.5] => [0.25, -2.0];
    /// Natural logarithm: `out[i] = ln(x[i])`.
    log: Float, Log, [1.0f32, 2.0] => "[0.000, 0.693]";
    /// `out[i] = sin(x[i])`, in radians.
    sin: Float, Sin, [0.5f32, 1.0] => "[0.479, 0.841]";
    /// `out[i] = cos(x[i])`, in radians.
    cos: Float, Cos, [0.5f32, 1.0] => "[0.878, 0.540]";
    /// `out[i] = tanh(x[i])`.
    tanh: Float, Tanh, [-1.0f32, 0.5] => "[-0.762, 0.462]";
    /// `out[i] = x[i] / (1 + exp(-x[i]))`.
    silu: Float, Silu, [-1.0f32, 2.0] => "[-0.269, 1.762]";
    /// GELU in the tanh approximation: `out[i] = x / 2 * (1 + tanh(√(2 / π) * (x + 0.044715 x³)))` for `x = x[i]`.
    /// [`gelu()`](super::gelu) is the exact version.
    gelu_tanh: Float, GeluTanh, [-1.0f32, 2.0] => "[-0.159, 1.955]";
    /// Rounds down: `out[i] = ⌊x[i]⌋`.
    floor: Float, Floor, [1.7f32, -1.2] => [1.0, -2.0];
    /// Rounds up: `out[i] = ⌈x[i]⌉`.
    ceil: Float, Ceil, [1.2f32, -1.7] => [2.0, -1.0];
    /// Rounds to the nearest integer, ties to even.
    round: Float, Round, [0.5f32, 1.5, -2.7] => [0.0, 2.0, -3.0];
    /// Rounds toward zero.
    trunc: Float, Trunc, [1.7f32, -1.7] => [1.0, -1.0];
}

/// `out[i] = !x[i]`, which is bitwise for integers and logical for `bool`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
/// errors](crate::Error#enqueue-errors).
#[doc = unary_example!(not, [0x00u8, 0xF0], [0xFF, 0x0F])]
#[track_caller]
pub fn not<'x, 'o, T: Bits>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("not", ("x", x.len()), ("the output", out.len()))?;
    binary::<T, _>(stream, ("not", Binary::BitXor), x.into(), T::ONES.into(), out)
}

/// Defines the binary operations.
macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $name:ident: $bound:ident => $out:ty, $operation:expr, $x:tt, $y:tt => $result:tt;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
        /// errors](crate::Error#enqueue-errors), and for a broadcast input also
        /// [`OpError::Shape`](crate::OpError::Shape).
        #[doc = binary_example!($name, $x, $y, $result)]
        #[track_caller]
        pub fn $name<'x, 'y, 'o, T: $bound>(
            stream: &Stream,
            x: impl Into<Operand<'x, T>>,
            y: impl Into<Operand<'y, T>>,
            out: impl Into<DeviceSliceMut<'o, $out>>,
        ) -> Result<()> {
            let _site = site();
            binary::<T, _>(stream, (stringify!($name), $operation), x.into(), y.into(), out.into())
        }
    )* };
}
binary! {
    /// `out[i] = x[i] - y[i]`. Integers wrap around on overflow.
    sub: Scalar => T, Binary::Sub, [5i32, 2], [3, 4] => [2, -2];
    /// `out[i] = x[i] / y[i]`. Integer division truncates and wraps around on overflow, and its result for a divisor of
    /// 0 is 0.
    div: Scalar => T, Binary::Div, [7i32, -7, 1], [2, 2, 0] => [3, -3, 0];
    /// The smaller of `x[i]` and `y[i]`, or NaN if either is NaN. ([`min()`](super::min) computes the minimum of an
    /// array.)
    minimum: Scalar => T, Binary::Minimum, [1.0f32, 5.0], [2.0, 3.0] => [1.0, 3.0];
    /// The larger of `x[i]` and `y[i]`, or NaN if either is NaN. ([`max()`](super::max) computes the maximum of an
    /// array.)
    maximum: Scalar => T, Binary::Maximum, [1.0f32, 5.0], [2.0, 3.0] => [2.0, 5.0];
    /// `x[i]` to the power `y[i]`.
    pow: Float => T, Binary::Pow, [2.0f32, 9.0], [3.0, 0.5] => "[8.000, 3.000]";
    /// `out[i] = x[i] & y[i]`, for integers and `bool`.
    bit_and: Bits => T, Binary::BitAnd, [0xF0u8, 0x0F], [0x3C, 0x3C] => [0x30, 0x0C];
    /// `out[i] = x[i] | y[i]`, for integers and `bool`.
    bit_or: Bits => T, Binary::BitOr, [0xF0u8, 0x0F], [0x3C, 0x3C] => [0xFC, 0x3F];
    /// `out[i] = x[i] ^ y[i]`, for integers and `bool`.
    bit_xor: Bits => T, Binary::BitXor, [0xF0u8, 0x0F], [0x3C, 0x3C] => [0xCC, 0x33];
    /// `out[i] = x[i] << y[i]`, with the shift count modulo the bit width.
    shl: Integer => T, Binary::Shl, [1u32, 3], 4 => [16, 48];
    /// `out[i] = x[i] >> y[i]`, with the shift count modulo the bit width. The shift is arithmetic for signed integers.
    shr: Integer => T, Binary::Shr, [-16i32, 48], 4 => [-1, 3];
    /// `out[i] = x[i] == y[i]`, which is false for NaN.
    eq: Element => Checked<bool>, Compare::Eq, [1.0f32, 2.0, f32::NAN], 2.0
        => (Checked::from_slice(&[false, true, false]));
    /// `out[i] = x[i] != y[i]`, which is true for NaN.
    ne: Element => Checked<bool>, Compare::Ne, [1.0f32, 2.0, f32::NAN], 2.0
        => (Checked::from_slice(&[true, false, true]));
    /// `out[i] = x[i] < y[i]`, which is false for NaN.
    lt: Element => Checked<bool>, Compare::Lt, [1.0f32, 2.0, 3.0], 2.0
        => (Checked::from_slice(&[true, false, false]));
    /// `out[i] = x[i] <= y[i]`, which is false for NaN.
    le: Element => Checked<bool>, Compare::Le, [1.0f32, 2.0, 3.0], 2.0
        => (Checked::from_slice(&[true, true, false]));
    /// `out[i] = x[i] > y[i]`, which is false for NaN.
    gt: Element => Checked<bool>, Compare::Gt, [1.0f32, 2.0, 3.0], 2.0
        => (Checked::from_slice(&[false, false, true]));
    /// `out[i] = x[i] >= y[i]`, which is false for NaN.
    ge: Element => Checked<bool>, Compare::Ge, [1.0f32, 2.0, 3.0], 2.0
        => (Checked::from_slice(&[false, true, true]));
}

/// Defines `add` and `mul`. If no input is broadcast and a dedicated kernel exists for the type, that kernel is used.
macro_rules! own_kernels {
    ($($(#[$doc:meta])* $name:ident, $operation:expr, $x:tt, $y:tt => $result:tt;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
        /// errors](crate::Error#enqueue-errors), and for a broadcast input also
        /// [`OpError::Shape`](crate::OpError::Shape).
        #[doc = binary_example!($name, $x, $y, $result)]
        #[track_caller]
        pub fn $name<'x, 'y, 'o, T: Scalar>(
            stream: &Stream,
            x: impl Into<Operand<'x, T>>,
            y: impl Into<Operand<'y, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let _site = site();
            let (name, x, y, out) = (stringify!($name), x.into(), y.into(), out.into());
            let (Some(a), Some(b), true) = (x.each(), y.each(), config::instances(name, T::NAME).is_some()) else {
                return binary::<T, _>(stream, (name, $operation), x, y, out);
            };
            same_length(name, ("x", a.len()), ("the output", out.len()))?;
            same_length(name, ("y", b.len()), ("the output", out.len()))?;
            let arrays = [a.as_device_ptr(), b.as_device_ptr(), out.as_device_ptr()];
            let launch = Operation::new::<T>(stream, name, out.len(), &arrays);
            // SAFETY: these arguments match the parameters of both kernels.
            unsafe { launch.launch::<(Slice<T>, Slice<T>, SliceMut<T>), _>((a, b, out)) }
        }
    )* };
}
own_kernels! {
    /// `out[i] = x[i] + y[i]`. Integers wrap around on overflow.
    add, Binary::Add, [1i32, 2], [10, 20] => [11, 22];
    /// `out[i] = x[i] * y[i]`. Integers wrap around on overflow.
    mul, Binary::Mul, [2.0f32, 3.0], [10.0, 0.5] => [20.0, 1.5];
}
