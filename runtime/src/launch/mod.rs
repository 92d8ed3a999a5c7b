//! Launching kernels.
//!
//! [`TypedKernel::launch`] is safe: argument types are checked by the compiler against the kernel's signature,
//! and the configuration is checked against the limits of device and kernel before the driver sees it. Kernels
//! that are `unsafe fn` are launched with [`TypedKernel::launch_unsafe`], and anything can be launched with
//! [`Function::launch_unchecked`], which orders the buffers, or [`Function::launch_raw`], which knows of none; both check the
//! configuration but not the arguments' types. [`TypedKernel::prepare`] chooses and
//! checks the configuration once, for many launches.
//!
//! A [`Launch`] says what is wanted. Where it leaves block and grid open they are chosen from the properties of the device
//! and the kernel, or looked up if they were measured ([`adaptive`], [`policy`]); [`Launch::explain`] says what was chosen
//! and why.
//!
//! A launch is asynchronous: an error in the kernel is reported by a later call, with the kernel's name, its
//! configuration and its stream. With `CUDA_LAUNCH_BLOCKING=1` in the environment every launch waits for its kernel and
//! reports it by itself.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `shape` | [`Launch`]: what is requested |
//! | `limits`, `resolve` | what device and kernel allow; from a [`Launch`] to a [`LaunchConfig`] |
//! | [`occupancy`] | how much of a multiprocessor a kernel fills |
//! | `heuristic` | the choice of block and grid |
//! | `explain` | [`Explanation`]: what was chosen and why |
//! | [`adaptive`], [`policy`] | measuring on a program's own launches; what knows the fastest shape |
//! | [`store`] | the user's file of tuned launches |
//! | [`arguments`] | what can be passed for which parameter |
//! | `kernel`, `prepared`, `queries` | [`TypedKernel`], [`Function`], [`PreparedLaunch`]; queries of a kernel |
//! | `unchecked` | [`RawArguments`]: arguments whose types are not checked |
//! | `loaded` | modules loaded at run time, unloaded behind the work that uses them |
//! | `seq_lock`, `config_cache`, `inline` | words shared without a lock, configurations that are looked up, short lists |

pub mod adaptive;
pub mod arguments;
mod config_cache;
mod explain;
mod heuristic;
mod inline;
mod kernel;
mod limits;
mod loaded;
pub mod occupancy;
pub mod policy;
mod prepared;
mod queries;
mod resolve;
mod seq_lock;
mod shape;
pub mod store;
mod unchecked;

pub(crate) use self::adaptive::Launches;
pub use self::arguments::{Argument, Arguments};
pub use self::explain::Explanation;
pub use self::heuristic::{bytes_needed, spread_block, usual_block};
pub use self::kernel::{Function, TypedKernel};
pub(crate) use self::kernel::{FunctionInner, bytes_of_launch};
pub(crate) use self::loaded::Loaded;
pub use self::occupancy::{Limiter, Occupancy};
pub use self::policy::LaunchPolicy;
pub use self::prepared::{PreparedFunction, PreparedLaunch};
pub use self::queries::PotentialBlock;
pub use self::resolve::Source;
pub use self::shape::{Dim, Launch};
pub use self::unchecked::RawArguments;
pub use crate::driver::LaunchConfig;
