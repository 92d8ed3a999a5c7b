//! Launching kernels.
//!
//! [`TypedKernel::launch`] is safe, because the compiler checks argument types against the kernel's signature. The
//! configuration is checked against the limits of device and kernel before it is passed to the driver. Kernels that are
//! `unsafe fn` are launched with [`TypedKernel::launch_unsafe`]. Any kernel can be launched with
//! [`Function::launch_unchecked`], which tracks buffers, or [`Function::launch_raw`], which does not; both check the
//! configuration but not the argument types. [`TypedKernel::prepare`] chooses and checks the configuration once, for
//! many launches.
//!
//! A [`Launch`] is a request. A block or grid that it leaves open is chosen from the tuner's measurements if available
//! ([`store`]), and otherwise from properties of the device and the kernel. [`Launch::explain`] reports the choice and
//! the reasons.
//!
//! A launch is asynchronous. A later call reports an error in the kernel, with the kernel's name, configuration and
//! stream. With the environment variable `CUDA_LAUNCH_BLOCKING=1`, every launch waits for its kernel and returns the
//! kernel's error.
//!
//! # Example
//! An `unsafe` kernel, launched in each way. [`TypedKernel`] shows a safe one.
//!
//! ```
//! use gpu_std::Kernel;
//! use gpu_std::prelude::*;
//! use warpsmith_runtime::launch::RawArguments;
//! use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, LaunchConfig, Stream};
//!
//! /// Adds 1 to `n` numbers.
//! ///
//! /// # Safety
//! /// `x` must point to `n` numbers.
//! #[kernel]
//! unsafe fn increment(n: u32, x: *mut u32) {
//!     let i = thread::index_1d();
//!     if i < n {
//!         // SAFETY: `x` points to `n` numbers, and each thread has its own.
//!         unsafe { *x.add(i as usize) += 1 };
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let stream = Stream::new(&Device::emulated(0)?)?;
//! let kernel = stream.device().load(&IMAGE)?.kernel::<increment>()?;
//! let function = kernel.function();
//! let mut x = DeviceBuffer::<u32>::zeros(&stream, 4)?;
//! let launch = Launch::linear(4, 32);
//! // SAFETY: in each launch, the arguments match the parameters, and `x` has 4 numbers.
//! unsafe {
//!     // Arguments of other types do not compile.
//!     kernel.launch_unsafe(&stream, launch, (4_u32, &mut x))?;
//!     kernel.prepare(launch)?.launch_unsafe(&stream, (4_u32, &mut x))?;
//!     // For an instance selected at run time.
//!     function.launch_as::<<increment as Kernel>::Params, _>(&stream, launch, &(4_u32, &mut x))?;
//!     // The sizes of the arguments are checked, but not their types.
//!     function.launch_unchecked(&stream, launch, &RawArguments::new().value(4_u32).write(x.as_mut_slice()))?;
//!     // As for `cuLaunchKernel`: nothing tracks the use of `x`.
//!     let (n, address) = (4_u32, x.as_device_ptr());
//!     let args = [(&raw const n).cast(), (&raw const address).cast()];
//!     function.launch_raw(&stream, LaunchConfig::new([1; 3], [32, 1, 1], 0), &args)?;
//! }
//! assert_eq!(x.to_host()?, [5; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `shape` | [`Launch`]: the request |
//! | `limits`, `resolve` | device and kernel limits; resolution of a [`Launch`] to a [`LaunchConfig`] |
//! | [`occupancy`] | theoretical occupancy of a kernel |
//! | `heuristic` | choice of block and grid size |
//! | `explain` | [`Explanation`]: the choice and its reasons |
//! | `policy`, `lookup` | lookup of the fastest block and grid; a device's store |
//! | [`store`] | the user's file of tuned launches |
//! | [`arguments`] | arguments for each kind of parameter |
//! | `kernel`, `prepared`, `queries` | [`TypedKernel`], [`Function`], [`PreparedLaunch`]; queries of a kernel |
//! | `unchecked` | [`RawArguments`]: arguments of unchecked types |
//! | `loaded` | modules loaded at run time |
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
mod policy;
mod prepared;
mod queries;
mod resolve;
mod seq_lock;
mod shape;
pub mod store;
mod unchecked;

pub use self::arguments::{Argument, Arguments};
pub use self::explain::Explanation;
pub use self::heuristic::{bytes_needed, default_block_size, shrink_block_size};
pub use self::kernel::{Function, TypedKernel};
pub(crate) use self::kernel::{FunctionInner, bytes_of_launch};
pub(crate) use self::loaded::Loaded;
pub(crate) use self::lookup::Launches;
pub use self::occupancy::{Limiter, Occupancy};
pub use self::prepared::PreparedLaunch;
pub use self::queries::PotentialBlock;
pub use self::resolve::Source;
pub use self::shape::{Dim, Launch};
pub use self::unchecked::RawArguments;
pub use crate::driver::LaunchConfig;
