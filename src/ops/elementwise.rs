//! Elementwise operations: `out[i] = f(x[i], y[i], …)`. For `f16` and `bf16`, the function is computed in `f32` and the
//! result is rounded once.

use gpu_spec::param::{Slice, SliceMut, Value};
use gpu_std::scalar::Float;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Result, Stream};

use super::example::unary_example;
use super::launch::{Operation, same_length};

/// Defines each operation. The arguments include the parameters of the operation's kernel.
macro_rules! operations {
    (@value $scalar:ident) => { Value<T> };
    (@slice $input:ident) => { Slice<T> };
    ($(
        $(#[$doc:meta])*
        $name:ident: $bound:ident, ($($scalar:ident)?; $($input:ident)+ => $out:ident, $label:literal);
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`](crate::OpError::LengthMismatch) and the [enqueue
        /// errors](crate::Error#enqueue-errors).
        #[track_caller]
        pub fn $name<'i, 'o, T: $bound>(
            stream: &Stream,
            $($input: impl Into<DeviceSlice<'i, T>>,)+
            $($scalar: T,)?
            $out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let _site = site();
            let name = stringify!($name);
            let ($($input,)+ $out) = ($($input.into(),)+ $out.into());
            $(same_length(name, (stringify!($input), $input.len()), ($label, $out.len()))?;)+
            let arrays = [$($input.as_device_ptr(),)+ $out.as_device_ptr()];
            let operation = Operation::new::<T>(stream, name, $out.len(), &arrays);
            // SAFETY: these arguments match the parameters of the kernel.
            unsafe {
                operation
                    .launch::<($(operations!(@value $scalar),)? $(operations!(@slice $input),)+ SliceMut<T>), _>(
                        ($($scalar,)? $($input,)+ $out),
                    )
            }
        }
    )* };
}

operations! {
    /// `y[i] = a * x[i] + y[i]`, rounded once.
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
    /// let mut y = DeviceBuffer::from_host(&stream, &[0.5f32, 0.5])?;
    /// ops::axpy(&stream, &x, 10.0, &mut y)?;
    /// assert_eq!(y.to_host()?, [10.5, 20.5]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    axpy: Float, (a; x => y, "y");
    /// `out[i] = x[i] * y[i] + z[i]`, rounded once.
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
    /// let y = DeviceBuffer::from_host(&stream, &[3.0f32, 4.0])?;
    /// let z = DeviceBuffer::from_host(&stream, &[0.5f32, 0.5])?;
    /// let mut out = DeviceBuffer::uninit(&stream, 2)?;
    /// ops::fma(&stream, &x, &y, &z, &mut out)?;
    /// assert_eq!(out.to_host()?, [3.5, 8.5]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    fma: Float, (; x y z => out, "the output");
    /// `out[i] = max(x[i], 0)`, and NaN stays NaN.
    #[doc = unary_example!(relu, [-1.5f32, 2.5], [0.0, 2.5])]
    relu: Float, (; x => out, "the output");
    /// `out[i] = x[i] / 2 * (1 + erf(x[i] / √2))`, the exact version of GELU.
    #[doc = unary_example!(gelu, [-1.0f32, 1.0], "[-0.159, 0.841]")]
    gelu: Float, (; x => out, "the output");
    /// `out[i] = 1 / (1 + exp(-x[i]))`.
    #[doc = unary_example!(sigmoid, [0.0f32, 2.0], "[0.500, 0.881]")]
    sigmoid: Float, (; x => out, "the output");
    /// `out[i] = exp(x[i])`.
    #[doc = unary_example!(exp, [0.0f32, 1.0], "[1.000, 2.718]")]
    exp: Float, (; x => out, "the output");
}
