//! The CUDA driver, accessed through its driver API; the driver library is loaded on first use.
//!
//! This driver uses primary contexts, which it shares with CUDA libraries and other code in the process. Every call
//! makes its context current on the thread, without restoring the previous one. Streams do not synchronize with the
//! legacy default stream.
//!
//! A panicking kernel writes its message to the context's mailbox in pinned host memory. Stream-ordered memory comes
//! from this crate's own pools, one per context, created on first use; the device's default pool, which other code may
//! have configured, is not used. Calls from inside a host function, which CUDA does not permit, fail before they reach
//! the driver.

mod activity;
mod call;
mod context;
mod cupti;
mod graph;
mod host_functions;
mod launch;
mod link;
mod linker;
mod machine;
mod mailbox;
mod management;
mod memory;
mod module;
mod peer;
mod pool;
mod properties;
mod rows;
mod stream;
mod telemetry;
mod tensor_map;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

pub(super) use self::call::RelaxedCapture as Relaxed;
use self::call::{RelaxedCapture, check};
use self::context::{Contexts, bind};
pub use self::machine::machine_devices;
use super::host_function::HostCall;
use super::{
    Context, ContextLimit, DeviceProperties, DevicePtr, Driver, Fault, LibraryCalls, RowsCopy, StreamHandle,
    Telemetry,
};
use crate::error::{Result, code};

/// Driver of CUDA devices; see the [module's documentation](self).
#[derive(Debug)]
pub struct CudaDriver {
    /// CUDA version of the driver: `1000 * major + 10 * minor`.
    version: i32,
    /// ID of the process that started the driver, which does not work in a forked process.
    process: u32,
    devices: u32,
    contexts: Contexts,
    sensors: telemetry::Sensors,
}

impl CudaDriver {
    /// Returns the driver of the process.
    ///
    /// # Errors
    /// Returns [`NoDriverLibrary`](crate::DriverError::NoLibrary),
    /// [`DriverLacksFunction`](crate::DriverError::LacksFunction), or the error of `cuInit`. Without devices, succeeds
    /// with a device count of 0.
    ///
    /// # Safety
    /// The driver does not validate its arguments. Handles passed to its methods must come from this driver, belong to
    /// the context with which they are used, and be alive. Contexts must be retained while they are in use.
    pub unsafe fn get() -> Result<Arc<Self>> {
        static DRIVER: OnceLock<Result<Arc<CudaDriver>>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::load().map(Arc::new)).clone()
    }

    /// Returns true if the driver library exists and exports every function that this crate requires. Does not
    /// initialize CUDA.
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
                process: std::process::id(),
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

// SAFETY: CUDA's driver upholds this contract; each method forwards its arguments to the driver and returns its result.
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
        context::limit(sys::CUlimit::CU_LIMIT_STACK_SIZE)
    }

    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()> {
        bind(context)?;
        context::set_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE, bytes)
    }

    fn context_limit(&self, context: Context, limit: ContextLimit) -> Result<usize> {
        bind(context)?;
        context::limit(context::limit_of(limit))
    }

    fn context_set_limit(&self, context: Context, limit: ContextLimit, value: usize) -> Result<()> {
        bind(context)?;
        context::set_limit(context::limit_of(limit), value)
    }

    fn take_fault(&self, context: Context) -> Option<Fault> {
        self.contexts.take_fault(context)
    }

    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool> {
        peer::can_access(ordinal, peer)
    }

    fn peer_enable(&self, context: Context, peer: Context) -> Result<()> {
        bind(context)?;
        peer::enable(peer)?;
        self.contexts.let_in(context, peer)
    }

    fn peer_nvlinks(&self, ordinal: u32, peer: u32) -> u32 {
        link::nvlinks(ordinal, peer).unwrap_or(0)
    }

    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)> {
        management::device(ordinal).and_then(|device| device.processes()).unwrap_or_default()
    }

    fn telemetry(&self, ordinal: u32) -> Result<Telemetry> {
        Ok(self.sensors.read(ordinal))
    }

    fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.sensors.sm_clock_mhz(ordinal)
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
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        unsafe { peer::copy(dst, src, bytes, stream_of(stream)) }
    }

    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()> {
        bind(context)?;
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        unsafe { check("cuMemsetD8Async", sys::cuMemsetD8Async(dst.0, value, bytes, stream_of(stream))) }
    }
}
