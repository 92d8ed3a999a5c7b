//! [`Function`] and [`TypedKernel`]: a kernel on a device, ready to be launched.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpu_spec::{Kernel, KernelSpec, SafeKernel};

use super::arguments::{ArgumentList, Arguments};
use super::config::{Launch, Limits};
use crate::device::Device;
use crate::driver::{FunctionAttributes, FunctionHandle, LaunchConfig};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// What of a kernel its module keeps.
#[derive(Debug)]
pub(crate) struct FunctionInner {
    spec: &'static KernelSpec,
    handle: FunctionHandle,
    attributes: FunctionAttributes,
    /// Dynamic shared memory in bytes that the driver was told to allow.
    allowed_shared: AtomicU32,
}

impl FunctionInner {
    pub(crate) fn new(
        spec: &'static KernelSpec,
        handle: FunctionHandle,
        attributes: FunctionAttributes,
    ) -> Self {
        Self { spec, handle, attributes, allowed_shared: AtomicU32::new(0) }
    }
}

/// A kernel on a device, without its types. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Function {
    device: Device,
    inner: Arc<FunctionInner>,
}

impl Function {
    pub(crate) fn new(device: Device, inner: Arc<FunctionInner>) -> Self {
        Self { device, inner }
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel instance.
    pub fn spec(&self) -> &'static KernelSpec {
        self.inner.spec
    }

    /// What the kernel needs.
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.inner.attributes
    }

    /// How many blocks of `block_threads` fit on a multiprocessor at once.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn occupancy(&self, block_threads: u32, shared_bytes: u32) -> Result<u32> {
        self.allow_shared(shared_bytes)?;
        let handle = self.inner.handle;
        self.device
            .call(|driver, context| driver.function_occupancy(context, handle, block_threads, shared_bytes))
    }

    /// The configuration that a launch of this shape gets; `None` when it launches nothing.
    ///
    /// # Errors
    /// What is over the limits of device or kernel.
    pub fn configure(&self, launch: Launch) -> Result<Option<LaunchConfig>> {
        launch.resolve(self)
    }

    /// Enqueues a launch with arguments as the driver takes them: one pointer per machine parameter, each to its
    /// value. The values are copied before this returns.
    ///
    /// # Errors
    /// What is over the limits of device or kernel, [`Error::ArgumentCount`], [`Error::DifferentDevices`] for a
    /// stream of another device.
    ///
    /// # Safety
    /// Each pointer is to a value of its parameter's type. The memory that the kernel reaches through them stays
    /// valid, and is not used otherwise, until the kernel is done: buffers do not know of this launch. With
    /// this configuration the kernel does nothing undefined.
    pub unsafe fn launch_raw(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: &[*const c_void],
    ) -> Result<()> {
        Limits::of(self).check(config)?;
        let expected = self.spec().params.iter().map(|param| param.kind.machine_params()).sum();
        if args.len() != expected {
            let kernel = self.spec().symbol.to_owned();
            return Err(Error::ArgumentCount { kernel, expected, got: args.len() });
        }
        self.check_stream(stream)?;
        // SAFETY: the configuration was checked; the rest is passed on from the caller.
        unsafe { self.enqueue(stream, config, args) }?;
        self.after_launch(stream)
    }

    fn check_stream(&self, stream: &Stream) -> Result<()> {
        stream.check_device(&self.device, || {
            let symbol = self.spec().symbol;
            (format!("launching kernel `{symbol}`"), "the loaded kernel".to_owned())
        })
    }

    fn allow_shared(&self, bytes: u32) -> Result<()> {
        let allowed = &self.inner.allowed_shared;
        if !Limits::of(self).needs_opt_in(bytes) || allowed.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let handle = self.inner.handle;
        self.device.call(|driver, context| driver.function_allow_shared(context, handle, bytes))?;
        allowed.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// # Safety
    /// As for [`Self::launch_raw`]; the configuration was checked.
    unsafe fn enqueue(&self, stream: &Stream, config: LaunchConfig, args: &[*const c_void]) -> Result<()> {
        self.allow_shared(config.shared_bytes)?;
        let (function, handle) = (self.inner.handle, stream.handle());
        stream.call(|driver, context| {
            // SAFETY: passed on from the caller.
            unsafe { driver.launch(context, function, config, args, handle) }
        })?;
        self.device.0.health.launched(stream.id(), self.spec(), config);
        Ok(())
    }

    fn after_launch(&self, stream: &Stream) -> Result<()> {
        if self.device.0.launch_blocking { stream.synchronize() } else { Ok(()) }
    }

    /// Enqueues a launch with arguments of the parameter types `P` (a tuple of [`gpu_spec::param`] markers): for an
    /// instance that was chosen while the program runs. Buffers among the arguments are kept until it is done,
    /// and other uses of them are ordered.
    ///
    /// # Errors
    /// As [`TypedKernel::launch`].
    ///
    /// # Safety
    /// `P` are the kernel's parameters, in order; with these arguments and this shape it does nothing undefined.
    pub unsafe fn launch_as<P, A: Arguments<P>>(
        &self,
        stream: &Stream,
        launch: Launch,
        args: &A,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let mut list = ArgumentList::new();
        args.add_all(&mut list);
        list.check_devices(stream, self.spec().symbol)?;
        let Some(config) = launch.resolve(self)? else { return Ok(()) };
        list.launch_with(stream, |pointers| {
            // SAFETY: the list has the parameters' values in order and its buffers note the stream, so their
            // memory is kept and other uses are ordered; the rest is passed on from the caller.
            unsafe { self.enqueue(stream, config, pointers) }
        })?;
        self.after_launch(stream)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} on {})", self.spec().symbol, self.device.id())
    }
}

/// A kernel on a device, with its types: arguments that do not fit do not compile.
pub struct TypedKernel<K> {
    function: Function,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> TypedKernel<K> {
    pub(crate) fn new(function: Function) -> Self {
        Self { function, kernel: PhantomData }
    }

    /// The kernel without its types.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Enqueues a launch of an `unsafe` kernel.
    ///
    /// Buffers among the arguments are kept until it is done, and other uses of them are ordered.
    ///
    /// # Errors
    /// As [`Self::launch`].
    ///
    /// # Safety
    /// What the kernel asks of its caller holds for these arguments and this shape.
    pub unsafe fn launch_unsafe<A: Arguments<K::Params>>(
        &self,
        stream: &Stream,
        launch: Launch,
        args: A,
    ) -> Result<()> {
        // SAFETY: `Arguments` gives values of the types in `K::Params`; the rest is passed on from the caller.
        unsafe { self.function.launch_as(stream, launch, &args) }
    }
}

impl<K: SafeKernel> TypedKernel<K> {
    /// Enqueues a launch. It runs after all earlier work on the stream and on the arguments' buffers.
    ///
    /// # Errors
    /// What is over the limits of device or kernel; [`Error::DifferentDevices`] for an argument of another device
    /// than the stream's; a fault of earlier work.
    pub fn launch<A: Arguments<K::Params>>(&self, stream: &Stream, launch: Launch, args: A) -> Result<()> {
        // SAFETY: `Arguments` gives values of the types in `K::Params`, the borrows in `args` keep shared and
        // exclusive memory apart, and a safe kernel does nothing undefined with any such arguments in any shape.
        unsafe { self.function.launch_as(stream, launch, &args) }
    }
}

impl<K> Clone for TypedKernel<K> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), kernel: PhantomData }
    }
}

impl<K> fmt::Debug for TypedKernel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.function.fmt(f)
    }
}
