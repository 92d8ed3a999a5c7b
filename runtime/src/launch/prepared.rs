//! [`PreparedLaunch`]: a kernel with its configuration, checked once and launched often.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use gpu_spec::{Kernel, SafeKernel};

use super::arguments::{ArgumentList, Arguments};
use super::kernel::{Function, TypedKernel};
use super::resolve::{Source, checked};
use super::shape::Launch;
use crate::device::observe::site;
use crate::driver::LaunchConfig;
use crate::error::Result;
use crate::stream::Stream;

/// A kernel without its types, with a configuration that was checked against all limits.
#[derive(Clone)]
pub struct PreparedFunction {
    function: Function,
    /// The configuration; `None` if nothing is to be launched.
    config: Option<LaunchConfig>,
    source: Source,
    /// Extent of the launch.
    extent: Option<[u64; 3]>,
}

impl Function {
    /// Chooses and checks the configuration of a launch now, for any number of launches.
    ///
    /// The configuration is fixed: later measurements do not change it, and its launches are not measured. Only the
    /// shared memory of `Shared<[T]>` arrays is added, and checked, when a launch passes their lengths.
    ///
    /// # Errors
    /// The configuration errors of [`TypedKernel::launch`].
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
    /// The kernel.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// The configuration; `None` if nothing is launched because there are no threads.
    pub fn config(&self) -> Option<LaunchConfig> {
        self.config
    }

    /// Enqueues a launch, as [`Function::launch_as`] does.
    ///
    /// # Errors
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices); a fault of earlier work.
    ///
    /// # Safety
    /// Same as for [`Function::launch_as`].
    #[inline]
    #[track_caller]
    pub unsafe fn launch_as<P, A: Arguments<P>>(&self, stream: &Stream, args: &A) -> Result<()> {
        let _site = site();
        ArgumentList::of(args, |args, uses| {
            // SAFETY: these are the parameters' values, in order.
            unsafe { self.function.check_arguments(stream, self.extent, args, uses) }?;
            let Some(mut config) = self.config.as_ref() else { return Ok(()) };
            let with_arrays;
            if uses.shared_bytes > 0 {
                with_arrays = self.with_arrays(config, uses.shared_bytes)?;
                config = &with_arrays;
            }
            // SAFETY: as above, and `uses` has the buffers that the arguments point to. The configuration was checked
            // and allowed; the rest is guaranteed by the caller.
            unsafe { self.function.enqueue(stream, (config, self.source), args, uses.iter(), None) }
        })
    }

    /// Returns the configuration with the shared memory of arrays added, checked and allowed.
    fn with_arrays(&self, config: &LaunchConfig, bytes: u32) -> Result<LaunchConfig> {
        let shared_bytes = config.shared_bytes.saturating_add(bytes);
        let config = checked(&self.function, LaunchConfig { shared_bytes, ..*config })?;
        self.function.allow(&config)?;
        Ok(config)
    }

    /// Enqueues a launch with arguments as the driver takes them, as [`Function::launch_raw`] does.
    ///
    /// # Errors
    /// [`LaunchError::ArgumentCount`](crate::LaunchError::ArgumentCount),
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices); a fault of earlier work.
    ///
    /// # Safety
    /// Same as for [`Function::launch_raw`].
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

/// A kernel with its types and a configuration that was checked against all limits: launches do not check it again.
///
/// ```
/// # use gpu_spec::SafeKernel;
/// # use gpu_spec::param::{Slice, SliceMut};
/// # use warpsmith_runtime::{DeviceBuffer, Launch, Result, Stream, TypedKernel};
/// # fn example<K: SafeKernel<Params = (Slice<f32>, SliceMut<f32>)>>(
/// #     kernel: &TypedKernel<K>, stream: &Stream, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>,
/// # ) -> Result<()> {
/// let prepared = kernel.prepare(Launch::auto(x.len()))?;
/// for _ in 0..100 {
///     prepared.launch(stream, (x, &mut *y))?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct PreparedLaunch<K> {
    prepared: PreparedFunction,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> TypedKernel<K> {
    /// Chooses and checks the configuration of a launch now, for any number of launches: see [`Function::prepare`].
    ///
    /// # Errors
    /// The configuration errors of [`Self::launch`].
    pub fn prepare(&self, launch: Launch) -> Result<PreparedLaunch<K>> {
        Ok(PreparedLaunch { prepared: self.function().prepare(launch)?, kernel: PhantomData })
    }
}

impl<K: Kernel> PreparedLaunch<K> {
    /// The prepared launch without the kernel's types.
    pub fn prepared(&self) -> &PreparedFunction {
        &self.prepared
    }

    /// The configuration; `None` if nothing is launched because there are no threads.
    pub fn config(&self) -> Option<LaunchConfig> {
        self.prepared.config
    }

    /// Enqueues a launch of an `unsafe` kernel, as [`TypedKernel::launch_unsafe`] does.
    ///
    /// # Errors
    /// Same as [`Self::launch`].
    ///
    /// # Safety
    /// The kernel's safety conditions hold for these arguments and this configuration.
    #[inline]
    #[track_caller]
    pub unsafe fn launch_unsafe<A: Arguments<K::Params>>(&self, stream: &Stream, args: A) -> Result<()> {
        // SAFETY: `Arguments` gives values of the types in `K::Params`; the rest is guaranteed by the caller.
        unsafe { self.prepared.launch_as(stream, &args) }
    }
}

impl<K: Kernel> PreparedLaunch<K> {
    /// Enqueues a launch, as [`TypedKernel::launch`] does.
    ///
    /// # Errors
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices) if the stream or an argument is on a different
    /// device than the kernel; [`LaunchError::WrongLengths`](crate::LaunchError::WrongLengths); a fault of earlier
    /// work.
    #[inline]
    #[track_caller]
    pub fn launch<A: Arguments<K::Params>>(&self, stream: &Stream, args: A) -> Result<()>
    where
        K: SafeKernel,
    {
        // SAFETY: `Arguments` gives values of the types in `K::Params`. The borrows in `args` keep shared and exclusive
        // memory apart. A safe kernel has no undefined behavior with any such arguments in any shape.
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
