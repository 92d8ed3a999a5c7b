//! Rust-CUDA's host library, implemented on [`warpsmith_runtime`]. A program written for Rust-CUDA compiles and runs if
//! its manifest names this package instead.
//!
//! ```toml
//! [dependencies]
//! cust = { package = "warpsmith-cust", version = "0.1" }
//! ```
//!
//! ```no_run
//! use cust::prelude::*;
//!
//! # let ptx = "";
//! let _context = cust::quick_init()?;
//! let module = Module::from_ptx(ptx, &[])?;
//! let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
//! let x = [1.0f32, 2.0, 3.0].as_dbuf()?;
//! let y = unsafe { DeviceBuffer::<f32>::uninitialized(3)? };
//! let double = module.get_function("double")?;
//! let (_, block) = double.suggested_launch_configuration(0, 0.into())?;
//! // SAFETY: these are the parameters of the kernel, `double(x: &[f32], y: *mut f32)`.
//! unsafe {
//!     launch!(double<<<3u32.div_ceil(block), block, 0, stream>>>(x.as_device_ptr(), x.len(), y.as_device_ptr()))?;
//! }
//! stream.synchronize()?;
//! assert_eq!(y.as_host_vec()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The CUDA driver is loaded at run time. Therefore, building requires no CUDA toolkit, and if there is no driver,
//! [`quick_init`] returns an error. [`CudaError`] contains CUDA's error codes; [`error::explanation`] returns the full
//! message, with the kernel and the remedy.
//!
//! Memory is allocated from the runtime's caching allocator. Freeing memory waits for the device, as `cuMemFree` does,
//! because pointers passed to [`launch!`] are not tracked. `docs/porting-from-rust-cuda.md` lists the differences and
//! explains how to move to the buffers and launches of the runtime, which are tracked and safe.
//!
//! | module | contents |
//! | --- | --- |
//! | [`context`], [`device`] | the current device of a thread, and properties of devices |
//! | [`memory`] | buffers and boxes in device memory, page-locked memory, and memory that host and device share |
//! | [`module`], [`function`], [`launch!`] | PTX, cubins and fatbins; kernels and launches |
//! | [`stream`], [`event`] | work queues, and markers in them |
//! | [`error`] | CUDA's error codes |
#![deny(missing_docs)]

extern crate self as cust;

pub mod context;
pub mod device;
pub mod error;
pub mod event;
pub mod function;
mod host_kernels;
pub mod memory;
pub mod module;
pub mod prelude;
pub mod stream;
mod symbol;
pub mod util;

/// Types of data that host and device exchange; see [`cust_core`].
pub use cust_core::__private::DeviceCopy;
/// Derives [`DeviceCopy`](trait@DeviceCopy) for a type whose fields all implement it.
pub use warpsmith_compat_macros::CustDeviceCopy as DeviceCopy;
pub use warpsmith_runtime as runtime;

use context::{Context, ContextFlags};
use device::Device;
use error::{CudaError, CudaResult};

bitflags::bitflags! {
    /// Flags of [`init`]; none are defined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct CudaFlags: u32 {
        #[doc(hidden)]
        const _ZERO = 0;
    }
}

/// Initializes the CUDA driver.
///
/// # Errors
/// Returns [`CudaError::NoDevice`] if there is no driver or no GPU.
pub fn init(_: CudaFlags) -> CudaResult<()> {
    match Device::num_devices()? {
        0 => Err(CudaError::NoDevice),
        _ => Ok(()),
    }
}

/// Initializes the CUDA driver and makes the first device current for this thread.
///
/// # Errors
/// Returns [`CudaError::NoDevice`] if there is no driver or no GPU; [`error::explanation`] returns the reason.
pub fn quick_init() -> CudaResult<Context> {
    init(CudaFlags::empty())?;
    let context = Context::new(Device::get_device(0)?)?;
    context.set_flags(ContextFlags::MAP_HOST | ContextFlags::SCHED_AUTO)?;
    Ok(context)
}

/// CUDA version that the driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CudaApiVersion {
    version: i32,
}

impl CudaApiVersion {
    /// Returns the CUDA version that the driver supports.
    ///
    /// # Errors
    /// Returns [`CudaError::NoDevice`] if there is no driver or no GPU.
    pub fn get() -> CudaResult<CudaApiVersion> {
        Ok(Self::of(Device::get_device(0)?.runtime()?.properties()))
    }

    fn of(properties: &runtime::DeviceProperties) -> CudaApiVersion {
        let mut parts = properties.driver_version.split('.').map(|part| part.parse().unwrap_or(0));
        let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        CudaApiVersion { version: 1000 * major + 10 * minor }
    }

    /// Returns the major version, for example 12 for version 12.4.
    pub fn major(self) -> i32 {
        self.version / 1000
    }

    /// Returns the minor version, for example 4 for version 12.4.
    pub fn minor(self) -> i32 {
        self.version % 1000 / 10
    }
}
