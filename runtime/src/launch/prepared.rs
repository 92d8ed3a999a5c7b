//! [`PreparedLaunch`]: a kernel with a configuration that is checked once, for many launches.

use std::ffi::c_void;
use std::fmt;

use gpu_spec::{Kernel, SafeKernel};

use super::arguments::{ArgumentList, Arguments, Uses};
use super::kernel::{Function, TypedKernel};
use super::resolve::{Resolved, checked};
use super::shape::Launch;
use crate::device::observe::site;
use crate::driver::LaunchConfig;
use crate::error::Result;
use crate::stream::Stream;

/// A kernel with its parameter types and a checked configuration, which launches do not check again.
///
/// ```
/// # use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
/// # #[kernel]
/// # fn add(x: &[f32], mut y: DisjointMut<f32>) {
/// #     let i = thread::unique_index();
/// #     if let Some(y) = y.get_mut(i) {
/// #         *y += x[i.get()];
/// #     }
/// # }
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// # let stream = Device::emulated(0)?.default_stream();
/// # let kernel = stream.device().load(&IMAGE)?.kernel::<add>()?;
/// # let x = DeviceBuffer::from_host(&stream, &[0.5_f32; 4])?;
/// # let mut y = DeviceBuffer::<f32>::zeros(&stream, 4)?;
/// let prepared = kernel.prepare(Launch::auto(x.len()))?;
/// for _ in 0..100 {
///     prepared.launch(&stream, (&x, &mut y))?;
/// }
/// assert_eq!(y.to_host()?, [50.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct PreparedLaunch<K> {
    kernel: TypedKernel<K>,
    /// The configuration; `None` if there are no threads to launch.
    resolved: Option<Resolved>,
    /// Extent of the launch.
    extent: Option<[u64; 3]>,
}

impl<K: Kernel> TypedKernel<K> {
    /// Chooses and checks the configuration of a launch once, for any number of later launches.
    ///
    /// The configuration is fixed, so later tuning does not change it. Only the shared memory of `Shared<[T]>` arrays,
    /// whose lengths are launch arguments, is added and checked at each launch.
    ///
    /// # Errors
    /// Returns the same configuration errors as [`TypedKernel::launch`].
    pub fn prepare(&self, launch: Launch) -> Result<PreparedLaunch<K>> {
        let resolved = launch.resolve(self.function())?;
        if let Some(Resolved { config, .. }) = &resolved {
            self.function().allow(config)?;
        }
        Ok(PreparedLaunch { kernel: self.clone(), resolved, extent: launch.extent() })
    }
}

impl<K: Kernel> PreparedLaunch<K> {
    /// Returns the configuration; `None` if there are no threads to launch.
    pub fn config(&self) -> Option<LaunchConfig> {
        self.resolved.as_ref().map(|resolved| resolved.config)
    }

    /// Enqueues a launch of an `unsafe` kernel, like [`TypedKernel::launch_unsafe`].
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::launch`].
    ///
    /// # Safety
    /// The kernel's safety conditions must hold for these arguments and this configuration.
    #[inline]
    #[track_caller]
    pub unsafe fn launch_unsafe<A: Arguments<K::Params>>(&self, stream: &Stream, args: A) -> Result<()> {
        let _site = site();
        ArgumentList::of(&args, |args, uses| {
            let function = self.kernel.function();
            // SAFETY: `args` contains values of the types in `K::Params`, in order, and `uses` lists the buffers that
            // they point to. The rest is guaranteed by the caller.
            unsafe { function.launch_prepared(stream, self.resolved.as_ref(), self.extent, args, uses) }
        })
    }

    /// Enqueues a launch, like [`TypedKernel::launch`].
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`](crate::Error::DifferentDevices) if the stream or an argument is on a
    /// different device than the kernel, [`LaunchError::WrongLengths`](crate::LaunchError::WrongLengths), or the fault
    /// of earlier work.
    #[inline]
    #[track_caller]
    pub fn launch<A: Arguments<K::Params>>(&self, stream: &Stream, args: A) -> Result<()>
    where
        K: SafeKernel,
    {
        // SAFETY: `Arguments` provides values of the types in `K::Params`. The borrows in `args` ensure that
        // exclusively borrowed memory overlaps no other argument. A safe kernel has no undefined behavior with such
        // arguments in any configuration.
        unsafe { self.launch_unsafe(stream, args) }
    }
}

impl Function {
    /// Checks the arguments and enqueues a launch with a prepared configuration. `extent` is the extent of the launch.
    ///
    /// # Safety
    /// The requirements of [`Function::launch_raw`] apply to memory outside the buffers in `uses`. The configuration
    /// must have been checked and [allowed](Function::allow).
    unsafe fn launch_prepared<'a>(
        &'a self,
        stream: &Stream,
        resolved: Option<&Resolved>,
        extent: Option<[u64; 3]>,
        args: &[*const c_void],
        uses: &mut Uses<'a>,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.check_arguments(stream, extent, args, uses) }?;
        let Some(Resolved { config, source }) = resolved else { return Ok(()) };
        let mut config = config;
        let with_arrays;
        if uses.shared_bytes > 0 {
            let shared_bytes = config.shared_bytes.saturating_add(uses.shared_bytes);
            with_arrays = checked(self, LaunchConfig { shared_bytes, ..*config })?;
            self.allow(&with_arrays)?;
            config = &with_arrays;
        }
        // SAFETY: the configuration was checked and allowed; the rest is guaranteed by the caller.
        unsafe { self.enqueue(stream, (config, *source), args, uses.iter()) }
    }
}

impl<K> Clone for PreparedLaunch<K> {
    fn clone(&self) -> Self {
        let Self { kernel, resolved, extent } = self;
        Self { kernel: kernel.clone(), resolved: *resolved, extent: *extent }
    }
}

impl<K> fmt::Debug for PreparedLaunch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resolved {
            Some(Resolved { config, .. }) => write!(f, "{:?} with {config}", self.kernel),
            None => write!(f, "{:?} with nothing to launch", self.kernel),
        }
    }
}
