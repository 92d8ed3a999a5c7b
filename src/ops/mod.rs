//! Operations on device memory, on any device: typed, checked, asynchronous.
//!
//! Every operation is enqueued on the stream it is given and returns before it has run, except the reductions
//! that return a value to the host. Inputs and outputs are [`DeviceBuffer`](crate::DeviceBuffer)s or slices of
//! them, at any alignment, on the stream's device but for those of [`reduce_add()`]. Lengths that do not fit are an
//! error, and nothing is enqueued then. No elements are no work, and fine; only a minimum or maximum of nothing is an
//! error.
//!
//! `x` takes the configuration that was tuned for the type, size, alignment and device if there is one
//! ([`tuned_config`]), and else the default ([`default_config`]); `x_with` takes a [`Config`], or `None` for the same.
//! [`variants`] lists what can be chosen. Configurations of a reduction of floats may differ in the last bits: give one
//! to get the same bits whatever was tuned.
//!
//! | operation | types |
//! | --- | --- |
//! | [`copy()`] | every [`DeviceCopy`](crate::DeviceCopy) |
//! | [`fill()`] | every [`Element`] |
//! | [`cast()`] | from every [`Element`] to every [`Element`], `bool` among them |
//! | [`add()`], [`mul()`] | every [`Number`] |
//! | [`reduce_add()`], [`reduce_add_coalesced()`], of buffers on several devices | every [`Number`] |
//! | [`axpy()`], [`fma()`], [`relu()`], [`gelu()`], [`sigmoid()`], [`exp()`] | every [`Real`] |
//! | [`sum()`], [`prod()`], [`min()`], [`max()`], [`argmin()`], [`argmax()`] | every [`Number`] |
//! | [`mean()`] | every [`Real`] |
//!
//! ```
//! use warpsmith::ops::{self, Config, GridRule};
//! use warpsmith::prelude::*;
//!
//! let stream = Stream::new(&Device::open("cpu")?)?;
//! let x = DeviceBuffer::from_host(&stream, &[-1.5f32, 0.0, 2.5, 4.0])?;
//! let mut y = DeviceBuffer::uninit(&stream, 4)?;
//! ops::relu(&stream, &x, &mut y)?;
//! assert_eq!(y.to_host()?, [0.0, 0.0, 2.5, 4.0]);
//!
//! // The same on the last two elements, in a configuration of one's own.
//! let config = Config { block: 64, grid: GridRule::Blocks(1), items: 4, vector: 16 };
//! ops::relu_with(&stream, config, x.slice(2..), y.slice_mut(..2))?;
//! assert_eq!(y.to_host()?, [2.5, 4.0, 2.5, 4.0]);
//! # Ok::<(), warpsmith::Error>(())
//! ```

mod collective;
mod config;
mod data;
mod elementwise;
pub(crate) mod launch;
mod number;
mod reduce;
mod tuned;
mod workspace;

pub use collective::{reduce_add, reduce_add_coalesced};
#[cfg(feature = "bench")]
pub(crate) use config::instances_of;
pub use config::{Config, GridRule, Variant, default_config, variants};
pub use data::{cast, cast_with, copy, copy_with, fill, fill_with};
pub use elementwise::{
    add, add_with, axpy, axpy_with, exp, exp_with, fma, fma_with, gelu, gelu_with, mul, mul_with, relu,
    relu_with, sigmoid, sigmoid_with,
};
pub use number::{Element, Number, Real};
pub use reduce::{
    argmax, argmax_into, argmax_into_with, argmin, argmin_into, argmin_into_with, max, max_into,
    max_into_with, mean, min, min_into, min_into_with, prod, prod_into, prod_into_with, sum, sum_into,
    sum_into_with,
};
pub use tuned::tuned_config;
