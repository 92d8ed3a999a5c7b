//! [`Function`] and [`TypedKernel`]: a kernel on a device, ready to be launched.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gpu_spec::{Kernel, KernelSpec, SafeKernel};

use super::adaptive::{self, Launches};
use super::arguments::{ArgumentList, Arguments};
use super::kept::Kept;
use super::limits::Limits;
use super::loaded::Loaded;
use super::resolve::Resolved;
use super::shape::Launch;
use crate::device::Device;
use crate::device::observe::Operation;
use crate::driver::{FunctionAttributes, FunctionHandle, LaunchConfig};
use crate::error::{Error, GraphError, LaunchError, Result};
use crate::memory::storage::{self, BufferUse, Kind};
use crate::stream::Stream;

/// What of a kernel its module keeps.
#[derive(Debug)]
pub(crate) struct FunctionInner {
    spec: &'static KernelSpec,
    handle: FunctionHandle,
    attributes: FunctionAttributes,
    /// Tells the code from other code; 0 where there is none.
    image: u64,
    /// Bytes of each machine parameter; `None` where they are not known.
    params: Option<Vec<usize>>,
    /// Bytes of stack a thread that the stack limit must allow; 0 when it need not be looked at.
    stack: u32,
    /// Dynamic shared memory in bytes that the driver was told to allow.
    allowed_shared: AtomicU32,
    /// Whether the driver was told to allow clusters larger than all devices have.
    large_clusters: AtomicBool,
    kept: Kept,
}

impl FunctionInner {
    pub(crate) fn new(
        spec: &'static KernelSpec,
        handle: FunctionHandle,
        attributes: FunctionAttributes,
        image: u64,
        params: Option<Vec<usize>>,
        stack: u32,
    ) -> Self {
        Self {
            spec,
            handle,
            attributes,
            image,
            params,
            stack,
            allowed_shared: AtomicU32::new(0),
            large_clusters: AtomicBool::new(false),
            kept: Kept::default(),
        }
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    pub(crate) fn spec(&self) -> &'static KernelSpec {
        self.spec
    }
}

/// A kernel on a device, without its types. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Function {
    device: Device,
    inner: Arc<FunctionInner>,
    /// Its module, if that was loaded at run time.
    loaded: Option<Arc<Loaded>>,
}

impl Function {
    pub(crate) fn new(device: Device, inner: Arc<FunctionInner>, loaded: Option<Arc<Loaded>>) -> Self {
        Self { device, inner, loaded }
    }

    /// The device it is loaded on.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel instance. Of a kernel of code that was loaded at run time it says the name alone.
    #[inline]
    pub fn spec(&self) -> &'static KernelSpec {
        self.inner.spec
    }

    /// What the kernel needs.
    #[inline]
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.inner.attributes
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.inner.handle
    }

    /// Tells its code from other code, in later processes too; 0 on the emulated device. It is the hash of the whole image
    /// as it was loaded: [`Module::image_hash`](crate::Module::image_hash).
    pub fn image_hash(&self) -> u64 {
        self.inner.image
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.inner.kept
    }

    /// The configuration that a launch of this shape gets; `None` when it launches nothing.
    ///
    /// # Errors
    /// What is over the limits of device or kernel.
    pub fn configure(&self, launch: Launch) -> Result<Option<LaunchConfig>> {
        Ok(launch.resolve(self)?.map(|resolved| resolved.config))
    }

    /// Enqueues a launch with arguments as the driver takes them: one pointer per machine parameter, each to its
    /// value. The values are copied before this returns.
    ///
    /// # Errors
    /// What is over the limits of device or kernel, [`LaunchError::ArgumentCount`], [`Error::DifferentDevices`] for a
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
        let config = self.configure(Launch::from(config))?;
        if let Some(config) = &config {
            self.allow(config)?;
        }
        // SAFETY: the configuration was checked and allowed; the rest is passed on from the caller.
        unsafe { self.launch_pointers(stream, config, args) }
    }

    /// # Safety
    /// As for [`Self::launch_raw`]; the configuration was checked and [allowed](Self::allow).
    pub(super) unsafe fn launch_pointers(
        &self,
        stream: &Stream,
        config: Option<LaunchConfig>,
        args: &[*const c_void],
    ) -> Result<()> {
        self.check_argument_count(args.len())?;
        self.check_stream(stream)?;
        let Some(config) = config else { return Ok(()) };
        // SAFETY: passed on from the caller.
        let enqueue = || unsafe { self.enqueue(stream, &config, args) };
        self.observed(stream, &config, || match &self.code_use(stream) {
            None => enqueue(),
            code => storage::enqueue(code.iter(), stream, Kind::Launch, |_, _| enqueue()),
        })?;
        self.after_launch(stream)
    }

    pub(super) fn check_argument_count(&self, got: usize) -> Result<()> {
        match &self.inner.params {
            Some(params) if params.len() != got => {
                let kernel = self.spec().symbol.to_owned();
                Err(Error::Launch(LaunchError::ArgumentCount { kernel, expected: params.len(), got }))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of each machine parameter, where they are known.
    pub(super) fn params(&self) -> Option<&[usize]> {
        self.inner.params.as_deref()
    }

    /// A launch on the stream as a use of the module, if that was loaded at run time. A graph that is being captured keeps
    /// it.
    #[inline]
    pub(super) fn code_use(&self, stream: &Stream) -> Option<BufferUse<'_>> {
        let loaded = self.loaded.as_ref()?;
        if let Some(capturing) = stream.capturing() {
            capturing.keep(Arc::clone(loaded) as _);
        }
        Some(loaded.used())
    }

    #[inline]
    pub(super) fn check_stream(&self, stream: &Stream) -> Result<()> {
        stream.check_device(&self.device, || {
            let symbol = self.spec().symbol;
            (format!("launching kernel `{symbol}`"), "the loaded kernel".to_owned())
        })
    }

    /// Fails if the stack limit was set to less than the kernel needs.
    #[inline]
    fn check_stack(&self) -> Result<()> {
        match self.inner.stack {
            0 => Ok(()),
            needs => self.device.check_stack(self.spec().symbol, needs as usize),
        }
    }

    /// Has the driver allow what a checked configuration needs and is not allowed by itself.
    #[inline]
    pub(super) fn allow(&self, config: &LaunchConfig) -> Result<()> {
        if config.shared_bytes > 0 { self.allow_shared(config.shared_bytes) } else { Ok(()) }
    }

    pub(super) fn allow_shared(&self, bytes: u32) -> Result<()> {
        let allowed = &self.inner.allowed_shared;
        if !Limits::of(self).needs_opt_in(bytes) || allowed.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let handle = self.inner.handle;
        self.device.call(|driver, context| driver.function_allow_shared(context, handle, bytes))?;
        allowed.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn allow_large_clusters(&self) -> Result<()> {
        if !self.inner.large_clusters.load(Ordering::Relaxed) {
            let handle = self.inner.handle;
            self.device.call(|driver, context| driver.function_allow_large_clusters(context, handle))?;
            self.inner.large_clusters.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reports a launch to observers: every one goes through here.
    #[inline(always)]
    pub(super) fn observed<'a>(
        &'a self,
        stream: &'a Stream,
        config: &'a LaunchConfig,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        stream.observed(|| Operation::Launch { kernel: self.spec().symbol, config }, launch)
    }

    /// # Safety
    /// As for [`Self::launch_raw`]; the configuration was checked and [allowed](Self::allow), and there is one pointer for
    /// each machine parameter.
    #[inline]
    pub(super) unsafe fn enqueue(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        args: &[*const c_void],
    ) -> Result<()> {
        self.check_stack()?;
        let (function, handle) = (self.inner.handle, stream.handle());
        stream.call(|driver, context| {
            // SAFETY: passed on from the caller.
            unsafe { driver.launch(context, function, *config, args, handle) }
        })?;
        if !stream.is_capturing() {
            self.device.0.health.launched(stream.id(), self.spec(), config);
        }
        Ok(())
    }

    /// Gives a launch to a graph: what the driver is to be told, and the parts of buffers that it uses.
    pub(crate) fn for_graph<'a, P, A: Arguments<P>, R>(
        &self,
        device: &Device,
        launch: Launch,
        args: &'a A,
        add: impl FnOnce(&Self, LaunchConfig, &[*const c_void], &ArgumentList<'a>) -> Result<R>,
    ) -> Result<R> {
        let symbol = self.spec().symbol;
        if !self.device.ptr_eq(device) {
            return Err(Error::DifferentDevices {
                operation: "adding a kernel to a graph".to_owned(),
                what: format!("kernel `{symbol}`"),
                found: self.device.id(),
                expected: device.id(),
            });
        }
        let mut list = ArgumentList::new();
        args.add_all(&mut list);
        list.check_devices(device, symbol)?;
        let mut resolved = Resolved::BLANK;
        if !launch.resolve_into(self, &mut resolved)? {
            return Err(GraphError::EmptyLaunch { kernel: symbol.to_owned() }.into());
        }
        let config = resolved.config;
        self.allow(&config)?;
        self.check_stack()?;
        list.with_pointers(|pointers| add(self, config, pointers, &list))
    }

    #[inline]
    fn after_launch(&self, stream: &Stream) -> Result<()> {
        if self.device.0.launch_blocking && !stream.is_capturing() { stream.synchronize() } else { Ok(()) }
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
    #[inline]
    pub unsafe fn launch_as<P, A: Arguments<P>>(
        &self,
        stream: &Stream,
        launch: Launch,
        args: &A,
    ) -> Result<()> {
        let mut resolved = Resolved::BLANK;
        let found = launch.resolve_into(self, &mut resolved);
        let mut list = ArgumentList::new();
        // What is wrong with the arguments is said first.
        self.gather(stream, args, &mut list)?;
        if !found? {
            return Ok(());
        }
        if self.device.part::<Launches>().is_adaptive() && launch.is_open() {
            // SAFETY: passed on from the caller.
            return unsafe { self.launch_adaptive(stream, &launch, resolved, &list) };
        }
        self.allow(&resolved.config)?;
        // SAFETY: the configuration was checked and allowed; the rest is passed on from the caller.
        unsafe { self.launch_list(stream, &resolved.config, &list) }
    }

    /// Adds the arguments to the list, if stream and buffers are of the kernel's device.
    #[inline]
    pub(super) fn gather<'a, P, A: Arguments<P>>(
        &'a self,
        stream: &Stream,
        args: &'a A,
        list: &mut ArgumentList<'a>,
    ) -> Result<()> {
        self.check_stream(stream)?;
        args.add_all(list);
        if let Some(code) = self.code_use(stream) {
            list.used(code);
        }
        list.check_devices(stream.device(), self.spec().symbol)
    }

    /// # Safety
    /// As for [`Self::launch_as`] with the arguments in the list; the configuration was checked and
    /// [allowed](Self::allow).
    #[inline]
    pub(super) unsafe fn launch_list(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        list: &ArgumentList<'_>,
    ) -> Result<()> {
        self.observed(stream, config, || {
            list.launch_with(stream, |pointers| {
                // SAFETY: the list has the parameters' values in order and its buffers note the stream, so their
                // memory is kept and other uses are ordered; the rest is passed on from the caller.
                unsafe { self.enqueue(stream, config, pointers) }
            })
        })?;
        self.launched(stream, config)
    }

    /// What comes after a launch that is enqueued.
    #[inline]
    pub(super) fn launched(&self, stream: &Stream, config: &LaunchConfig) -> Result<()> {
        if let Some(capturing) = stream.capturing() {
            capturing.note_kernel((self.spec(), *config));
        }
        self.after_launch(stream)
    }

    /// As [`Self::launch_list`], in a configuration that is to be tried or that was found to be the fastest.
    ///
    /// # Safety
    /// As for [`Self::launch_list`].
    #[cold]
    unsafe fn launch_adaptive(
        &self,
        stream: &Stream,
        launch: &Launch,
        resolved: Resolved,
        list: &ArgumentList<'_>,
    ) -> Result<()> {
        self.device.check_process()?;
        let (config, measurement) = adaptive::choose(self, stream, launch, resolved);
        self.observed(stream, &config, || {
            list.launch_with(stream, |pointers| {
                let launch = || {
                    // SAFETY: as in `launch_list`; every candidate was checked, and none has shared memory to be allowed.
                    unsafe { self.enqueue(stream, &config, pointers) }
                };
                match measurement {
                    Some(measurement) => measurement.around(stream, launch),
                    None => launch(),
                }
            })
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
    #[inline]
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
    /// What is over the limits of device or kernel; [`Error::Launch`] for clusters, a cooperative or a dependent start that
    /// they do not allow; [`Error::DifferentDevices`] for an argument of another device than the stream's; a fault of
    /// earlier work.
    #[inline]
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
