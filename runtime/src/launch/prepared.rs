//! [`PreparedLaunch`]: a kernel with a configuration that is checked once, for many launches.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use gpu_spec::{Kernel, SafeKernel};

use super::arguments::{ArgumentList, Arguments, Uses};
use super::kernel::{Function, TypedKernel};
use super::resolve::{Source, checked};
use super::shape::Launch;
use crate::device::observe::site;
use crate::driver::LaunchConfig;
use crate::error::Result;
use crate::stream::Stream;

/// A kernel without its parameter types, with a checked configuration.
///
/// See the [example](crate::launch#example).
#[derive(Clone)]
pub struct PreparedFunction {
    function: Function,
    /// The configuration; `None` if there are no threads to launch.
    config: Option<LaunchConfig>,
    source: Source,
    /// Extent of the launch.
    extent: Option<[u64; 3]>,
}

impl Function {
    /// Chooses and checks the configuration of a launch once, for any number of later launches.
    ///
    /// The configuration is fixed, so later tuning does not change it. Only the shared memory of `Shared<[T]>` arrays,
    /// whose lengths are launch arguments, is added and checked at each launch.
    ///
    /// # Errors
    /// Returns the same configuration errors as [`TypedKernel::launch`].
    pub fn prepare(&self, launch: Launch) -> Result<PreparedFunction> {
        let resolved = launch.resolve(self)?;
        let config = resolved.map(|resolved| resolved.config);
        if let Some(config) = &config {
            self.allow(config)?;
        }
        let source = resolved.map_or(Source::Given, |resolved| resolved.source);
        Ok(PreparedFunction { function: self.clone(), config, source, extent: launch.extent() })
    }
}

impl PreparedFunction {
    /// Returns the kernel.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Returns the configuration; `None` if there are no threads to launch.
    pub fn config(&self) -> Option<LaunchConfig> {
        self.config
    }

    /// Enqueues a launch, like [`Function::launch_as`].
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`](crate::Error::DifferentDevices), or the fault of earlier work.
    ///
    /// # Safety
    /// The requirements are the same as for [`Function::launch_as`].
    #[inline]
    #[track_caller]
    pub unsafe fn launch_as<P, A: Arguments<P>>(&self, stream: &Stream, args: &A) -> Result<()> {
        let _site = site();
        ArgumentList::of(args, |args, uses| {
            // SAFETY: `args` contains the parameters' values, in order, and `uses` lists the buffers that they point
            // to. The rest is guaranteed by the caller.
            unsafe { self.launch_arguments(stream, args, uses) }
        })
    }

    /// Checks the arguments and enqueues the launch.
    ///
    /// # Safety
    /// The requirements of [`Function::launch_raw`] apply to memory outside the buffers in `uses`.
    unsafe fn launch_arguments<'a>(
        &'a self,
        stream: &Stream,
        args: &[*const c_void],
        uses: &mut Uses<'a>,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.function.check_arguments(stream, self.extent, args, uses) }?;
        let Some(mut config) = self.config.as_ref() else { return Ok(()) };
        let with_arrays;
        if uses.shared_bytes > 0 {
            with_arrays = self.with_arrays(config, uses.shared_bytes)?;
            config = &with_arrays;
        }
        // SAFETY: the configuration was checked and allowed; the rest is guaranteed by the caller.
        unsafe { self.function.enqueue(stream, (config, self.source), args, uses.iter()) }
    }

    /// Adds the shared memory of arrays to the configuration, then checks and allows it.
    fn with_arrays(&self, config: &LaunchConfig, bytes: u32) -> Result<LaunchConfig> {
        let shared_bytes = config.shared_bytes.saturating_add(bytes);
        let config = checked(&self.function, LaunchConfig { shared_bytes, ..*config })?;
        self.function.allow(&config)?;
        Ok(config)
    }

    /// Enqueues a launch with arguments in the driver's form, like [`Function::launch_raw`].
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns [`LaunchError::ArgumentCount`](crate::LaunchError::ArgumentCount),
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices), or the fault of earlier work.
    ///
    /// # Safety
    /// The requirements are the same as for [`Function::launch_raw`].
    #[track_caller]
    pub unsafe fn launch_raw(&self, stream: &Stream, args: &[*const c_void]) -> Result<()> {
        let _site = site();
        let config = (self.config.as_ref(), self.source);
        // SAFETY: the configuration was checked and allowed; the rest is guaranteed by the caller.
        unsafe { self.function.enqueue_pointers(stream, config, self.extent, args) }
    }
}

impl fmt::Debug for PreparedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.config {
            Some(config) => write!(f, "{:?} with {config}", self.function),
            None => write!(f, "{:?} with nothing to launch", self.function),
        }
    }
}

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
    prepared: PreparedFunction,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> TypedKernel<K> {
    /// Chooses and checks the configuration of a launch once, for any number of later launches; see
    /// [`Function::prepare`].
    ///
    /// # Errors
    /// Returns the same configuration errors as [`TypedKernel::launch`].
    pub fn prepare(&self, launch: Launch) -> Result<PreparedLaunch<K>> {
        Ok(PreparedLaunch { prepared: self.function().prepare(launch)?, kernel: PhantomData })
    }
}

impl<K: Kernel> PreparedLaunch<K> {
    /// Returns the prepared launch without the kernel's parameter types.
    pub fn prepared(&self) -> &PreparedFunction {
        &self.prepared
    }

    /// Returns the configuration; `None` if there are no threads to launch.
    pub fn config(&self) -> Option<LaunchConfig> {
        self.prepared.config
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
        // SAFETY: `Arguments` provides values of the types in `K::Params`; the rest is guaranteed by the caller.
        unsafe { self.prepared.launch_as(stream, &args) }
    }
}

impl<K: Kernel> PreparedLaunch<K> {
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
        unsafe { self.prepared.launch_as(stream, &args) }
    }
}

impl<K> Clone for PreparedLaunch<K> {
    fn clone(&self) -> Self {
        Self { prepared: self.prepared.clone(), kernel: PhantomData }
    }
}

impl<K> fmt::Debug for PreparedLaunch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prepared.fmt(f)
    }
}
