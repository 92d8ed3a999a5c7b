//! Launching kernels.
//!
//! [`TypedKernel::launch`] is safe: argument types are checked by the compiler against the kernel's signature,
//! and the configuration is checked against the limits of device and kernel before the driver sees it. Kernels
//! that are `unsafe fn` are launched with [`TypedKernel::launch_unsafe`], and anything can be launched with
//! [`Function::launch_raw`], which checks the configuration but not the arguments.
//!
//! A launch is asynchronous: an error in the kernel is reported by a later call, with the kernel's name. With
//! `CUDA_LAUNCH_BLOCKING=1` in the environment every launch waits for its kernel and reports it by itself.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | [`Launch`]: the shape asked for, and how it becomes a checked configuration |
//! | [`arguments`] | what can be passed for which parameter |
//! | `kernel` | [`TypedKernel`] and [`Function`] |

pub mod arguments;
pub mod config;
mod kernel;

pub use self::arguments::{Argument, Arguments};
pub use self::config::{Dim, Launch};
pub(crate) use self::kernel::FunctionInner;
pub use self::kernel::{Function, TypedKernel};
pub use crate::driver::LaunchConfig;
