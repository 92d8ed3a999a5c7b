//! [`Function`] and [`TypedKernel`]: a kernel on a device, ready to launch.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gpu_spec::{Kernel, KernelSpec, SafeKernel};

use super::arguments::{ArgumentList, Arguments, Uses};
use super::config_cache::ConfigCache;
use super::limits::{Limits, Line};
use super::loaded::Loaded;
use super::resolve::{Resolved, Source};
use super::shape::Launch;
use crate::device::Device;
use crate::device::observe::{Operation, site};
use crate::driver::{DeviceProperties, FunctionAttributes, FunctionHandle, LaunchConfig};
use crate::error::{Error, GraphError, LaunchError, Result};
use crate::memory::storage::{self, BufferUse, Kind};
use crate::stream::Stream;

/// State of a kernel that its module owns.
#[derive(Debug)]
pub(crate) struct FunctionInner {
    spec: &'static KernelSpec,
    handle: FunctionHandle,
    attributes: FunctionAttributes,
    /// Hash that identifies the code; 0 if unknown.
    image: u64,
    /// Size of each PTX parameter in bytes; `None` if unknown.
    params: Option<Vec<usize>>,
    /// Stack limit that the kernel requires, in bytes per thread; 0 if the limit need not be checked.
    stack: u32,
    /// The kernel's dynamic shared memory limit set in the driver, in bytes.
    allowed_shared: AtomicU32,
    line: Line,
    /// True if the driver allows clusters above the portable size for the kernel.
    large_clusters: AtomicBool,
    configs: ConfigCache,
}

impl FunctionInner {
    /// Creates a kernel on a device with these properties.
    pub(crate) fn new(
        spec: &'static KernelSpec,
        handle: FunctionHandle,
        attributes: FunctionAttributes,
        device: &DeviceProperties,
        image: u64,
        params: Option<Vec<usize>>,
        stack: u32,
    ) -> Self {
        let line = Limits { kernel: spec, device, attributes: &attributes }.line();
        Self {
            spec,
            handle,
            attributes,
            image,
            params,
            stack,
            allowed_shared: AtomicU32::new(0),
            line,
            large_clusters: AtomicBool::new(false),
            configs: ConfigCache::default(),
        }
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    pub(crate) fn spec(&self) -> &'static KernelSpec {
        self.spec
    }
}

/// A kernel on a device, without its parameter types. Cheap to clone; usable from any thread.
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::{Device, GpuImage, Launch};
///
/// #[kernel]
/// fn nothing() {}
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::emulated(0)?;
/// let kernel = device.load(&IMAGE)?.kernel::<nothing>()?;
/// let function = kernel.function();
/// assert_eq!(function.spec().symbol, "nothing");
/// assert!(function.attributes().max_threads_per_block >= 256);
/// // 1000 threads in blocks of 256.
/// let config = function.configure(Launch::linear(1000, 256))?.expect("there are threads");
/// assert_eq!((config.grid, config.block), ([4, 1, 1], [256, 1, 1]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Function {
    device: Device,
    inner: Arc<FunctionInner>,
    /// The kernel's module, if loaded at run time.
    loaded: Option<Arc<Loaded>>,
}

impl Function {
    pub(crate) fn new(device: Device, inner: Arc<FunctionInner>, loaded: Option<Arc<Loaded>>) -> Self {
        Self { device, inner, loaded }
    }

    /// Returns the device on which the kernel is loaded.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the description of the kernel instance. For code loaded at run time, it contains only the name.
    #[inline]
    pub fn spec(&self) -> &'static KernelSpec {
        self.inner.spec
    }

    /// Returns the resources that the kernel uses.
    #[inline]
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.inner.attributes
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.inner.handle
    }

    /// Returns the hash of the entire loaded image, which identifies the code across processes
    /// ([`Module::image_hash`](crate::Module::image_hash)); 0 on the emulated device.
    pub fn image_hash(&self) -> u64 {
        self.inner.image
    }

    pub(super) fn configs(&self) -> &ConfigCache {
        &self.inner.configs
    }

    #[inline]
    pub(super) fn line(&self) -> &Line {
        &self.inner.line
    }

    /// Returns the resolved configuration of this launch; `None` if it launches no threads.
    ///
    /// # Errors
    /// Returns an error if the launch exceeds a limit of the device or the kernel.
    pub fn configure(&self, launch: Launch) -> Result<Option<LaunchConfig>> {
        Ok(launch.resolve(self)?.map(|resolved| resolved.config))
    }

    /// Enqueues a launch with arguments in the driver's form: one pointer per kernel parameter (PTX `.param`). The
    /// values are copied before the call returns.
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns an error if the launch exceeds a limit of the device or the kernel, [`LaunchError::ArgumentCount`], or
    /// [`Error::DifferentDevices`] for a stream of another device.
    ///
    /// # Safety
    /// Each pointer must point to a value of its parameter's type. Buffers do not track this launch: until the kernel
    /// has finished, the memory that it accesses must stay valid and must not be used by other code. The kernel must
    /// not have undefined behavior with this configuration.
    #[track_caller]
    pub unsafe fn launch_raw(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: &[*const c_void],
    ) -> Result<()> {
        let _site = site();
        let config = self.configure(Launch::from(config))?;
        config.as_ref().map_or(Ok(()), |config| self.allow(config))?;
        self.check_argument_count(args.len())?;
        let mut uses = Uses::default();
        // SAFETY: guaranteed by the caller.
        unsafe { self.check_arguments(stream, None, args, &mut uses) }?;
        let Some(config) = &config else { return Ok(()) };
        // SAFETY: the configuration was checked and allowed; the rest is guaranteed by the caller.
        unsafe { self.enqueue(stream, (config, Source::Given), args, uses.iter()) }
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

    /// Returns the size of each PTX parameter in bytes, if the driver reports it (CUDA 12.4 or later).
    pub fn params(&self) -> Option<&[usize]> {
        self.inner.params.as_deref()
    }

    /// If the module was loaded at run time, returns the buffer use by which a launch on the stream is tracked as a use
    /// of the module. On a capturing stream, the graph keeps the module loaded instead.
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
        if self.device.ptr_eq(stream.device()) { Ok(()) } else { self.refuse_stream(stream) }
    }

    #[cold]
    fn refuse_stream(&self, stream: &Stream) -> Result<()> {
        let symbol = self.spec().symbol;
        let what = || (format!("launching kernel `{symbol}`"), "the loaded kernel".to_owned());
        stream.check_home(&self.device, what, "load it there")
    }

    /// Returns an error if the stack limit has been lowered below the size that the kernel needs.
    #[inline]
    fn check_stack(&self) -> Result<()> {
        match self.inner.stack {
            0 => Ok(()),
            needs => self.device.check_stack(self.spec().symbol, needs as usize),
        }
    }

    /// Raises the kernel's dynamic shared memory limit if a checked configuration needs it.
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

    /// Enqueues a launch that uses these buffer ranges, and records the uses. Every kind of launch calls this function.
    ///
    /// # Safety
    /// The requirements of [`Self::launch_raw`] apply to memory outside these ranges. The configuration must have been
    /// checked and [allowed](Self::allow), and `args` must contain one pointer per PTX parameter.
    #[inline(always)]
    pub(super) unsafe fn enqueue<'p, 'a: 'p>(
        &self,
        stream: &Stream,
        (config, source): (&LaunchConfig, Source),
        args: &[*const c_void],
        uses: impl Iterator<Item = &'p BufferUse<'a>> + Clone,
    ) -> Result<()> {
        self.check_stack()?;
        let spec = self.spec();
        let mut watch = stream.watch(|| {
            // SAFETY: guaranteed by the caller.
            let bytes = unsafe { bytes_of_launch(spec, args) };
            Operation::Launch { kernel: spec.symbol, config, spec, source, bytes }
        });
        let enqueued = storage::enqueue(uses, stream, Kind::Launch, |driver, context| {
            // SAFETY: guaranteed by the caller.
            unsafe { driver.launch(context, self.inner.handle, config, args, stream.handle()) }
        });
        watch.ended(enqueued.is_ok());
        drop(watch);
        enqueued?;
        if stream.is_capturing() || self.device.0.launch_blocking {
            return self.launched_unusually(stream, config);
        }
        self.device.0.health.launched(stream.id(), spec, config);
        Ok(())
    }

    /// Completes a launch that was captured or that the host waits for.
    #[cold]
    fn launched_unusually(&self, stream: &Stream, config: &LaunchConfig) -> Result<()> {
        if let Some(capturing) = stream.capturing() {
            capturing.note_kernel((self.spec(), *config));
            return Ok(());
        }
        self.device.0.health.launched(stream.id(), self.spec(), config);
        stream.synchronize()
    }

    /// Prepares a launch as a graph node: the driver's parameters, and the buffer ranges that the launch uses.
    pub(crate) fn for_graph<'a, P, A: Arguments<P>, R>(
        &self,
        device: &Device,
        launch: Launch,
        args: &'a A,
        add: impl FnOnce(&Self, LaunchConfig, &[*const c_void], &Uses<'a>) -> Result<R>,
    ) -> Result<R> {
        let symbol = self.spec().symbol;
        if !self.device.ptr_eq(device) {
            return Err(Error::DifferentDevices {
                operation: "adding a kernel to a graph".to_owned(),
                what: format!("kernel `{symbol}`"),
                found: self.device.id(),
                expected: device.id(),
                beside: "the graph",
                remedy: "load it there",
            });
        }
        ArgumentList::of(args, |args, uses| {
            uses.check_devices(device, symbol)?;
            // SAFETY: there is one pointer per PTX parameter.
            unsafe { self.check_lengths(launch.extent(), args) }?;
            let mut resolved = Resolved::BLANK;
            if !launch.with_arrays(uses.shared_bytes).resolve_into(self, &mut resolved)? {
                return Err(GraphError::EmptyLaunch { kernel: symbol.to_owned() }.into());
            }
            let config = resolved.config;
            self.allow(&config)?;
            self.check_stack()?;
            add(self, config, args, uses)
        })
    }

    /// Enqueues a launch of an instance selected at run time, with arguments for the parameter types `P` (a tuple of
    /// [`gpu_spec::param`] markers). Buffers among the arguments are kept alive until the kernel has finished, and the
    /// launch is synchronized with all other uses of them.
    ///
    /// See the [example](crate::launch#example).
    ///
    /// # Errors
    /// Returns the same errors as [`TypedKernel::launch`].
    ///
    /// # Safety
    /// `P` must be the tuple of the kernel's parameters, in order. The kernel must not have undefined behavior with
    /// these arguments and this configuration.
    #[inline]
    #[track_caller]
    pub unsafe fn launch_as<P, A: Arguments<P>>(
        &self,
        stream: &Stream,
        launch: Launch,
        args: &A,
    ) -> Result<()> {
        let _site = site();
        ArgumentList::of(args, |args, uses| {
            let launch = launch.with_arrays(uses.shared_bytes);
            // SAFETY: `args` contains the parameters' values, in order, and `uses` lists the buffers that they point
            // to. The rest is guaranteed by the caller.
            unsafe { self.launch_arguments(stream, &launch, args, uses) }
        })
    }

    /// Checks the arguments, resolves the launch, and enqueues it.
    ///
    /// # Safety
    /// The requirements of [`Self::launch_raw`] apply to memory outside the buffers in `uses`.
    unsafe fn launch_arguments<'a>(
        &'a self,
        stream: &Stream,
        launch: &Launch,
        args: &[*const c_void],
        uses: &mut Uses<'a>,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.check_arguments(stream, launch.extent(), args, uses) }?;
        if let Some(config) = launch.in_line(self.line()) {
            // SAFETY: the configuration is within the limits, and its shared memory needs no opt-in. The rest is
            // guaranteed by the caller.
            return unsafe { self.enqueue(stream, (&config, Source::Given), args, uses.iter()) };
        }
        let mut resolved = Resolved::BLANK;
        if !launch.resolve_into(self, &mut resolved)? {
            return Ok(());
        }
        let Resolved { config, source } = &resolved;
        self.allow(config)?;
        // SAFETY: the configuration was checked and allowed; the rest is guaranteed by the caller.
        unsafe { self.enqueue(stream, (config, *source), args, uses.iter()) }
    }

    /// Returns an error if the stream or a buffer is on a different device than the kernel, or if the lengths of the
    /// arguments violate the kernel's requirements for a launch of this extent. Adds the kernel's module to `uses` if
    /// it was loaded at run time.
    ///
    /// # Safety
    /// `args` must contain one pointer per PTX parameter.
    #[inline(always)]
    pub(super) unsafe fn check_arguments<'a>(
        &'a self,
        stream: &Stream,
        extent: Option<[u64; 3]>,
        args: &[*const c_void],
        uses: &mut Uses<'a>,
    ) -> Result<()> {
        self.check_stream(stream)?;
        if let Some(code) = self.code_use(stream) {
            uses.add(code);
        }
        uses.check_devices(&self.device, self.spec().symbol)?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.check_lengths(extent, args) }
    }

    /// Returns an error if the lengths of the arguments violate the kernel's requirements; `extent` is the extent of
    /// the launch.
    ///
    /// # Safety
    /// `args` must contain one pointer per PTX parameter.
    #[inline(always)]
    unsafe fn check_lengths(&self, extent: Option<[u64; 3]>, args: &[*const c_void]) -> Result<()> {
        let Some(check) = self.spec().lengths else { return Ok(()) };
        // SAFETY: guaranteed by the caller.
        unsafe { check(args.as_ptr(), extent) }.map_err(|wrong| {
            let kernel = self.spec().symbol.to_owned();
            LaunchError::WrongLengths { kernel, wrong: wrong.into() }.into()
        })
    }
}

/// Returns the number of bytes that a launch reads and writes, as declared by the kernel; 0 if not declared.
///
/// # Safety
/// `args` must contain one pointer per PTX parameter.
#[cold]
pub(crate) unsafe fn bytes_of_launch(spec: &KernelSpec, args: &[*const c_void]) -> u64 {
    let Some(bytes) = spec.bytes else { return 0 };
    // SAFETY: guaranteed by the caller.
    match catch_unwind(|| unsafe { bytes(args.as_ptr()) }) {
        Ok(bytes) => bytes,
        Err(payload) => {
            // Dropping the payload could itself panic.
            std::mem::forget(payload);
            0
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} on {})", self.spec().symbol, self.device.id())
    }
}

/// A kernel on a device, with its parameter types. Arguments of other types do not compile.
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Stream};
///
/// /// `y[i] += a * x[i]`.
/// #[kernel]
/// fn axpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
///     let i = thread::unique_index();
///     if let Some(y) = y.get_mut(i) {
///         *y += a * x[i.get()];
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let module = stream.device().load(&IMAGE)?;
/// let kernel = module.kernel::<axpy>()?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0, 2.0, 3.0])?;
/// let mut y = DeviceBuffer::from_host(&stream, &[10.0_f32; 3])?;
/// kernel.launch(&stream, Launch::auto(x.len()), (2.0, &x, &mut y))?;
/// assert_eq!(y.to_host()?, [12.0, 14.0, 16.0]);
/// # Ok(())
/// # }
/// ```
pub struct TypedKernel<K> {
    function: Function,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> TypedKernel<K> {
    pub(crate) fn new(function: Function) -> Self {
        Self { function, kernel: PhantomData }
    }

    /// Returns the kernel without its parameter types.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Enqueues a launch of an `unsafe` kernel.
    ///
    /// Buffers among the arguments are kept alive until the kernel has finished, and the launch is synchronized with
    /// all other uses of them.
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
    pub unsafe fn launch_unsafe<A: Arguments<K::Params>>(
        &self,
        stream: &Stream,
        launch: Launch,
        args: A,
    ) -> Result<()> {
        // SAFETY: `Arguments` provides values of the types in `K::Params`; the rest is guaranteed by the caller.
        unsafe { self.function.launch_as(stream, launch, &args) }
    }
}

impl<K: Kernel> TypedKernel<K> {
    /// Enqueues a launch. The kernel waits for all earlier work on the stream and all earlier conflicting uses of its
    /// buffers.
    ///
    /// See the example of [`TypedKernel`].
    ///
    /// # Errors
    /// Returns [`Error::Launch`] if the launch exceeds a limit of the device or the kernel, or if they do not support
    /// the requested cluster, cooperative or dependent launch. Returns [`Error::DifferentDevices`] if an argument is on
    /// a different device than the stream. Also returns the fault of earlier work.
    #[inline]
    #[track_caller]
    pub fn launch<A: Arguments<K::Params>>(&self, stream: &Stream, launch: Launch, args: A) -> Result<()>
    where
        K: SafeKernel,
    {
        // SAFETY: `Arguments` provides values of the types in `K::Params`. The borrows in `args` ensure that
        // exclusively borrowed memory overlaps no other argument. A safe kernel has no undefined behavior with such
        // arguments in any configuration.
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
