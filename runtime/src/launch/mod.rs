//! Launching kernels.
//!
//! [`TypedKernel::launch`] is safe, because the compiler checks argument types against the kernel's signature. The
//! configuration is checked against the limits of device and kernel before it is passed to the driver. Kernels that are
//! `unsafe fn` are launched with [`TypedKernel::launch_unsafe`]. Any kernel can be launched with
//! [`Function::launch_unchecked`], which orders the buffers, or [`Function::launch_raw`], which tracks no buffers. Both
//! functions check the configuration but not the argument types. [`TypedKernel::prepare`] chooses and checks the
//! configuration once, for many launches.
//!
//! A [`Launch`] is a request. Blocks and grids that it leaves open are chosen from the properties of the device and the
//! kernel, or read from the tuner's measurements, if there are any ([`policy`]). [`Launch::explain`] reports
//! the choice and the reasons.
//!
//! A launch is asynchronous. A later call reports an error in the kernel, including the kernel's name, configuration
//! and stream. If the environment variable `CUDA_LAUNCH_BLOCKING=1` is set, every launch waits for its kernel and
//! returns the kernel's error itself.
//!
//! | module | contents |
//! | --- | --- |
//! | `shape` | [`Launch`]: the request |
//! | `limits`, `resolve` | device and kernel limits; resolution of a [`Launch`] to a [`LaunchConfig`] |
//! | [`occupancy`] | theoretical occupancy of a kernel |
//! | `heuristic` | choice of block and grid size |
//! | `explain` | [`Explanation`]: the choice and its reasons |
//! | [`policy`], `lookup` | lookup of the fastest shape; the policy of a device |
//! | [`store`] | the user's file of tuned launches |
//! | [`arguments`] | arguments accepted for each kind of parameter |
//! | `kernel`, `prepared`, `queries` | [`TypedKernel`], [`Function`], [`PreparedLaunch`]; queries of a kernel |
//! | `unchecked` | [`RawArguments`]: arguments whose types are not checked |
//! | `loaded` | modules loaded at run time, unloaded after the work that uses them |
//! | `seq_lock`, `config_cache`, `inline` | seqlock; cache of resolved configurations; lists without heap allocation |

pub mod arguments;
mod config_cache;
mod explain;
mod heuristic;
mod inline;
mod kernel;
mod limits;
mod loaded;
mod lookup;
pub mod occupancy;
pub mod policy;
mod prepared;
mod queries;
mod resolve;
mod seq_lock;
mod shape;
pub mod store;
mod unchecked;

pub use self::arguments::{Argument, Arguments};
pub use self::explain::Explanation;
pub use self::heuristic::{bytes_needed, spread_block, usual_block};
pub use self::kernel::{Function, TypedKernel};
pub(crate) use self::kernel::{FunctionInner, bytes_of_launch};
pub(crate) use self::loaded::Loaded;
pub(crate) use self::lookup::Launches;
pub use self::occupancy::{Limiter, Occupancy};
pub use self::policy::LaunchPolicy;
pub use self::prepared::{PreparedFunction, PreparedLaunch};
pub use self::queries::PotentialBlock;
pub use self::resolve::Source;
pub use self::shape::{Dim, Launch};
pub use self::unchecked::RawArguments;
pub use crate::driver::LaunchConfig;
