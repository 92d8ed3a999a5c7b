//! The CUDA driver, through its driver API, loaded when it is first asked for.
//!
//! Primary contexts are used, so that CUDA libraries and other code of the process share them. Every call makes
//! its context the thread's current one if another is; what other code had made current is not restored.
//! Streams do not order themselves with the legacy default stream. A panicking kernel leaves its text in a
//! mailbox in pinned host memory, one a context, which outlives the kernel. Stream-ordered memory comes from a pool
//! of this crate's own, one a context, made when it is first asked for: what other code of the process has set for
//! the device's default pool is neither used nor changed. Calls from inside a host function are refused before they
//! reach the driver, which must not be called there.

mod call;
mod context;
mod event;
mod graph;
mod host_functions;
mod host_memory;
mod launch;
mod link;
mod linker;
mod machine;
mod mailbox;
mod management;
mod module;
mod peer;
mod pool;
mod processes;
mod properties;
mod rows;
mod stream;
mod telemetry;
mod virtual_memory;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use gpu_spec::KernelSpec;

pub(super) use self::call::RelaxedCapture as Relaxed;
use self::call::{RelaxedCapture, check};
use self::context::{Contexts, bind};
pub use self::machine::machine_devices;
use super::host_function::HostCall;
use super::{
    Context, DeviceProperties, DevicePtr, Driver, EventHandle, Fault, FunctionAttributes, FunctionHandle,
    HostFunction, LaunchConfig, LibraryCalls, LinkKind, ModuleHandle, ModuleSource, PhysicalHandle, RowsCopy,
    StreamHandle, Telemetry,
};
use crate::error::{Result, code};

/// See the [module's documentation](self).
#[derive(Debug)]
pub struct CudaDriver {
    /// `1000 * major + 10 * minor`, as CUDA gives it.
    version: i32,
    devices: u32,
    contexts: Contexts,
    sensors: telemetry::Sensors,
}

impl CudaDriver {
    /// The driver of the process.
    ///
    /// # Errors
    /// [`NoDriverLibrary`](crate::DriverError::NoLibrary),
    /// [`DriverLacksFunction`](crate::DriverError::LacksFunction), or what `cuInit` reports. No device is no
    /// error: the count is 0 then.
    ///
    /// # Safety
    /// The driver trusts what it is given: handles that go into its methods came from it, for the context they are used
    /// with, and are alive; contexts are retained while they are used.
    pub unsafe fn get() -> Result<Arc<Self>> {
        static DRIVER: OnceLock<Result<Arc<CudaDriver>>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::load().map(Arc::new)).clone()
    }

    /// Whether the driver library is there and has every function that this crate needs. Does not start the driver.
    pub fn is_installed() -> bool {
        call::load_library().is_ok()
    }

    fn load() -> Result<Self> {
        call::load_library()?;
        // SAFETY: the library is loaded and has these functions; the pointers are to local variables.
        unsafe {
            let mut version = 0;
            let mut devices = 0;
            match check("cuInit", sys::cuInit(0)) {
                Ok(()) => check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut devices))?,
                Err(error) if error.code() == Some(code::NO_DEVICE) => {}
                Err(error) => return Err(error),
            }
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
            let devices = devices.max(0) as u32;
            Ok(Self {
                version,
                devices,
                contexts: Contexts::default(),
                sensors: telemetry::Sensors::new(devices),
            })
        }
    }

    fn version_text(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }
}

fn stream_of(stream: StreamHandle) -> sys::CUstream {
    stream.0 as sys::CUstream
}

fn event_of(event: EventHandle) -> sys::CUevent {
    event.0 as sys::CUevent
}

/// True for success, false for "not ready".
fn ready(call: &'static str, result: sys::CUresult) -> Result<bool> {
    match result {
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => check(call, result).map(|()| true),
    }
}

// SAFETY: CUDA's driver keeps this contract; each call passes on to it what it was given, and what it returns.
unsafe impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.devices)
    }

    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties> {
        properties::read(ordinal, self.version_text())
    }

    fn context_retain(&self, ordinal: u32) -> Result<Context> {
        self.contexts.retain(ordinal)
    }

    fn context_release(&self, ordinal: u32) {
        self.contexts.release(ordinal).into_iter().for_each(HostCall::discard);
    }

    fn bind(&self, context: Context) -> Result<LibraryCalls> {
        bind(context)?;
        Ok(LibraryCalls { _relaxed: Some(RelaxedCapture::enter()), _of_thread: PhantomData })
    }

    fn context_synchronize(&self, context: Context) -> Result<()> {
        bind(context)?;
        // SAFETY: a context is current.
        unsafe { check("cuCtxSynchronize", sys::cuCtxSynchronize()) }
    }

    fn context_stack_limit(&self, context: Context) -> Result<usize> {
        bind(context)?;
        context::stack_limit()
    }

    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()> {
        bind(context)?;
        context::set_stack_limit(bytes)
    }

    fn take_fault(&self, context: Context) -> Option<Fault> {
        self.contexts.take_fault(context)
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64)> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to local variables.
        unsafe { check("cuMemGetInfo", sys::cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free as u64, total as u64))
    }

    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let mut ptr = 0;
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuMemAlloc", sys::cuMemAlloc_v2(&mut ptr, bytes)) }?;
        Ok(DevicePtr(ptr))
    }

    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: passed on from the caller.
        unsafe { check("cuMemFree", sys::cuMemFree_v2(ptr.0)) }
    }

    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void> {
        bind(context)?;
        mailbox::allocate_mapped(bytes)
    }

    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: passed on from the caller.
        unsafe { check("cuMemFreeHost", sys::cuMemFreeHost(ptr)) }
    }

    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { host_memory::register(ptr, bytes) }
    }

    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { host_memory::unregister(ptr) }
    }

    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr> {
        bind(context)?;
        host_memory::device_address(ptr)
    }

    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>> {
        bind(context)?;
        host_memory::device_of(ptr)
    }

    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>> {
        virtual_memory::granularity(self.contexts.ordinal(context)?)
    }

    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr> {
        bind(context)?;
        virtual_memory::reserve(bytes)
    }

    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { virtual_memory::release(ptr, bytes) }
    }

    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle> {
        bind(context)?;
        virtual_memory::create(self.contexts.ordinal(context)?, bytes)
    }

    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { virtual_memory::release_handle(handle) }
    }

    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { virtual_memory::map(ptr, bytes, handle) }
    }

    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { virtual_memory::unmap(ptr, bytes) }
    }

    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { virtual_memory::set_access(ptr, bytes, ordinals) }
    }

    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr> {
        bind(context)?;
        self.contexts.pool(context)?.allocate(bytes, stream_of(stream))
    }

    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { pool::free(ptr, stream_of(stream)) }
    }

    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)> {
        bind(context)?;
        self.contexts.pool(context)?.info()
    }

    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()> {
        bind(context)?;
        self.contexts.pool(context)?.trim(keep)
    }

    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool> {
        peer::can_access(ordinal, peer)
    }

    fn peer_enable(&self, context: Context, peer: Context) -> Result<()> {
        bind(context)?;
        peer::enable(peer)?;
        self.contexts.let_in(context, peer)
    }

    fn peer_link(&self, ordinal: u32, peer: u32) -> LinkKind {
        link::between(ordinal, peer)
    }

    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)> {
        processes::memory(ordinal)
    }

    fn telemetry(&self, ordinal: u32) -> Result<Telemetry> {
        Ok(self.sensors.read(ordinal))
    }

    fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.sensors.sm_clock_mhz(ordinal)
    }

    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)> {
        bind(context)?;
        stream::priorities()
    }

    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is to a local variable.
        unsafe {
            check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, priority))
        }?;
        Ok(StreamHandle(stream as u64))
    }

    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64> {
        bind(context)?;
        stream::unique_id(context, stream_of(stream))
    }

    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32> {
        bind(context)?;
        stream::priority(stream_of(stream))
    }

    unsafe fn stream_destroy(&self, context: Context, stream: StreamHandle) {
        if bind(context).is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: passed on from the caller. There is nobody to report an error to.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream_of(stream)) };
        }
    }

    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { ready("cuStreamQuery", sys::cuStreamQuery(stream_of(stream))) }
    }

    fn stream_synchronize(&self, context: Context, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { check("cuStreamSynchronize", sys::cuStreamSynchronize(stream_of(stream))) }
    }

    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { check("cuStreamWaitEvent", sys::cuStreamWaitEvent(stream_of(stream), event_of(event), 0)) }
    }

    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()> {
        bind(context)?;
        host_functions::enqueue(context, stream_of(stream), function)
    }

    fn event_create(&self, context: Context, timing: bool) -> Result<EventHandle> {
        bind(context)?;
        event::create(timing).map(|event| EventHandle(event as u64))
    }

    fn event_create_shared(&self, context: Context) -> Result<EventHandle> {
        bind(context)?;
        event::create_shared().map(|event| EventHandle(event as u64))
    }

    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; 64]> {
        bind(context)?;
        event::export(event_of(event))
    }

    fn event_import(&self, context: Context, exported: [u8; 64]) -> Result<EventHandle> {
        bind(context)?;
        event::import(exported).map(|event| EventHandle(event as u64))
    }

    unsafe fn event_destroy(&self, context: Context, event: EventHandle) {
        // SAFETY: passed on from the caller. There is nobody to report an error to.
        let _ = unsafe { bind(context).map(|()| sys::cuEventDestroy_v2(event_of(event))) };
    }

    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { check("cuEventRecord", sys::cuEventRecord(event_of(event), stream_of(stream))) }
    }

    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { ready("cuEventQuery", sys::cuEventQuery(event_of(event))) }
    }

    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { check("cuEventSynchronize", sys::cuEventSynchronize(event_of(event))) }
    }

    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64> {
        bind(context)?;
        call::elapsed_us(event_of(start), event_of(end))
    }

    unsafe fn copy_to_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: *const c_void,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { check("cuMemcpyHtoDAsync", sys::cuMemcpyHtoDAsync_v2(dst.0, src, bytes, stream_of(stream))) }
    }

    unsafe fn copy_to_host(
        &self,
        context: Context,
        dst: *mut c_void,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { check("cuMemcpyDtoHAsync", sys::cuMemcpyDtoHAsync_v2(dst, src.0, bytes, stream_of(stream))) }
    }

    unsafe fn copy_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe {
            check("cuMemcpyDtoDAsync", sys::cuMemcpyDtoDAsync_v2(dst.0, src.0, bytes, stream_of(stream)))
        }
    }

    unsafe fn copy_peer(
        &self,
        context: Context,
        dst: (Context, DevicePtr),
        src: (Context, DevicePtr),
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { peer::copy(dst, src, bytes, stream_of(stream)) }
    }

    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { rows::copy(&rows, stream_of(stream)) }
    }

    unsafe fn memset(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        // SAFETY: passed on from the caller.
        unsafe { check("cuMemsetD8Async", sys::cuMemsetD8Async(dst.0, value, bytes, stream_of(stream))) }
    }

    fn max_ptx_version(&self) -> Option<u32> {
        Some(module::max_ptx_version(self.version))
    }

    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle> {
        bind(context)?;
        module::load(source, self.contexts.mailbox(context))
    }

    unsafe fn module_unload(&self, context: Context, module: ModuleHandle) {
        if bind(context).is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: passed on from the caller. There is nobody to report an error to.
            let _ = unsafe { sys::cuModuleUnload(module.0 as sys::CUmodule) };
        }
    }

    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        bind(context)?;
        module::function(module, spec)
    }

    fn module_kernels(&self, context: Context, module: ModuleHandle) -> Result<Option<Vec<String>>> {
        bind(context)?;
        module::kernels(module)
    }

    fn function_params(&self, context: Context, function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        bind(context)?;
        module::params(function)
    }

    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes> {
        bind(context)?;
        module::attributes(function)
    }

    fn function_allow_shared(&self, context: Context, function: FunctionHandle, bytes: u32) -> Result<()> {
        bind(context)?;
        module::allow_shared(function, bytes)
    }

    fn function_occupancy(
        &self,
        context: Context,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        bind(context)?;
        module::occupancy(function, block_threads, shared_bytes)
    }

    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        bind(context)?;
        launch::max_cluster(self.contexts.ordinal(context)?, function, &config)
    }

    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        bind(context)?;
        launch::resident_clusters(self.contexts.ordinal(context)?, function, &config)
    }

    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()> {
        bind(context)?;
        launch::allow_large_clusters(self.contexts.ordinal(context)?, function)
    }

    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        if !config.is_plain() {
            // SAFETY: passed on from the caller.
            return unsafe { launch::launch(function, config, args, stream) };
        }
        let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, .. } = *config;
        // The driver reads the values; the mutable pointers are only its signature.
        let params = args.as_ptr() as *mut *mut c_void;
        let function = function.0 as sys::CUfunction;
        // SAFETY: passed on from the caller.
        let result = unsafe {
            sys::cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared_bytes,
                stream_of(stream),
                params,
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", result)
    }
}
