//! Elementwise operations: `out[i] = f(x[i], y[i], …)`. f16 and bf16 are computed in f32 and rounded once.

use gpu_spec::param::{Slice, SliceMut, Value};
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Stream};

use super::config::Config;
use super::launch::{Operation, same_length};
use super::number::{Number, Real};
use warpsmith_runtime::Result;

/// `y[i] = a * x[i] + y[i]`, rounded once.
///
/// # Errors
/// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch); whatever the runtime reports.
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
/// let mut y = DeviceBuffer::from_host(&stream, &[0.5f32, 0.5])?;
/// ops::axpy(&stream, 10.0, &x, &mut y)?;
/// assert_eq!(y.to_host()?, [10.5, 20.5]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn axpy<'x, 'y, T: Real>(
    stream: &Stream,
    a: T,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSliceMut<'y, T>>,
) -> Result<()> {
    axpy_with(stream, None, a, x, y)
}

/// [`axpy()`] in a configuration.
///
/// # Errors
/// As [`axpy()`]; [`OpError::NoSuchVariant`](crate::OpError::NoSuchVariant).
pub fn axpy_with<'x, 'y, T: Real>(
    stream: &Stream,
    config: impl Into<Option<Config>>,
    a: T,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSliceMut<'y, T>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    same_length("axpy", ("x", x.len()), ("y", y.len()))?;
    let arrays = [x.as_device_ptr(), y.as_device_ptr()];
    let operation = Operation::new::<T>(stream, "axpy", y.len(), &arrays, config.into());
    // SAFETY: these are the parameters of the kernel.
    unsafe { operation.launch::<(Value<T>, Slice<T>, SliceMut<T>), _>((a, x, y)) }
}

macro_rules! binary {
    ($(#[$doc:meta])* $name:ident, $with:ident) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch); whatever the runtime reports.
        pub fn $name<'x, 'y, 'o, T: Number>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            y: impl Into<DeviceSlice<'y, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            $with(stream, None, x, y, out)
        }

        #[doc = concat!("[`", stringify!($name), "()`] in a configuration.")]
        ///
        /// # Errors
        /// As without; [`OpError::NoSuchVariant`](crate::OpError::NoSuchVariant).
        pub fn $with<'x, 'y, 'o, T: Number>(
            stream: &Stream,
            config: impl Into<Option<Config>>,
            x: impl Into<DeviceSlice<'x, T>>,
            y: impl Into<DeviceSlice<'y, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let name = stringify!($name);
            let (x, y, out) = (x.into(), y.into(), out.into());
            same_length(name, ("x", x.len()), ("the output", out.len()))?;
            same_length(name, ("y", y.len()), ("the output", out.len()))?;
            let arrays = [x.as_device_ptr(), y.as_device_ptr(), out.as_device_ptr()];
            let operation = Operation::new::<T>(stream, name, out.len(), &arrays, config.into());
            // SAFETY: these are the parameters of the kernel.
            unsafe { operation.launch::<(Slice<T>, Slice<T>, SliceMut<T>), _>((x, y, out)) }
        }
    };
}

binary! {
    /// `out[i] = x[i] + y[i]`; integers wrap.
    add, add_with
}
binary! {
    /// `out[i] = x[i] * y[i]`; integers wrap.
    mul, mul_with
}

/// `out[i] = x[i] * y[i] + z[i]`, rounded once.
///
/// # Errors
/// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch); whatever the runtime reports.
pub fn fma<'x, 'y, 'z, 'o, T: Real>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSlice<'y, T>>,
    z: impl Into<DeviceSlice<'z, T>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    fma_with(stream, None, x, y, z, out)
}

/// [`fma()`] in a configuration.
///
/// # Errors
/// As [`fma()`]; [`OpError::NoSuchVariant`](crate::OpError::NoSuchVariant).
pub fn fma_with<'x, 'y, 'z, 'o, T: Real>(
    stream: &Stream,
    config: impl Into<Option<Config>>,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSlice<'y, T>>,
    z: impl Into<DeviceSlice<'z, T>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let (x, y, z, out) = (x.into(), y.into(), z.into(), out.into());
    for (name, len) in [("x", x.len()), ("y", y.len()), ("z", z.len())] {
        same_length("fma", (name, len), ("the output", out.len()))?;
    }
    let arrays = [x.as_device_ptr(), y.as_device_ptr(), z.as_device_ptr(), out.as_device_ptr()];
    let operation = Operation::new::<T>(stream, "fma", out.len(), &arrays, config.into());
    // SAFETY: these are the parameters of the kernel.
    unsafe { operation.launch::<(Slice<T>, Slice<T>, Slice<T>, SliceMut<T>), _>((x, y, z, out)) }
}

macro_rules! unary {
    ($(#[$doc:meta])* $name:ident, $with:ident) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`OpError::LengthMismatch`](crate::OpError::LengthMismatch); whatever the runtime reports.
        pub fn $name<'x, 'o, T: Real>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            $with(stream, None, x, out)
        }

        #[doc = concat!("[`", stringify!($name), "()`] in a configuration.")]
        ///
        /// # Errors
        /// As without; [`OpError::NoSuchVariant`](crate::OpError::NoSuchVariant).
        pub fn $with<'x, 'o, T: Real>(
            stream: &Stream,
            config: impl Into<Option<Config>>,
            x: impl Into<DeviceSlice<'x, T>>,
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let (x, out) = (x.into(), out.into());
            let name = stringify!($name);
            same_length(name, ("x", x.len()), ("the output", out.len()))?;
            let arrays = [x.as_device_ptr(), out.as_device_ptr()];
            let operation = Operation::new::<T>(stream, name, out.len(), &arrays, config.into());
            // SAFETY: these are the parameters of the kernel.
            unsafe { operation.launch::<(Slice<T>, SliceMut<T>), _>((x, out)) }
        }
    };
}

unary! {
    /// `out[i] = max(x[i], 0)`; NaN stays NaN.
    relu, relu_with
}
unary! {
    /// `out[i] = x[i] / 2 * (1 + erf(x[i] / √2))`, the exact form of GELU.
    gelu, gelu_with
}
unary! {
    /// `out[i] = 1 / (1 + exp(-x[i]))`.
    sigmoid, sigmoid_with
}
unary! {
    /// `out[i] = exp(x[i])`.
    exp, exp_with
}
