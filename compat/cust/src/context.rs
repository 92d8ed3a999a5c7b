//! [`Context`]: the device that a thread uses.
//!
//! Every context is the primary context of a device, which CUDA's libraries also use. [`Context::new`] makes it current
//! for the calling thread. A thread that has not created a context uses the most recently created one of any thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warpsmith_runtime as runtime;
use warpsmith_runtime::driver::ContextLimit;

use crate::CudaApiVersion;
use crate::device::Device;
use crate::error::{CudaError, CudaResult, DropResult};

thread_local! {
    static CURRENT: RefCell<Option<runtime::Device>> = const { RefCell::new(None) };
}

static LAST: Mutex<Option<runtime::Device>> = Mutex::new(None);

/// Returns the current device of the calling thread.
pub(crate) fn current() -> CudaResult<runtime::Device> {
    CURRENT
        .with_borrow(Clone::clone)
        .or_else(|| LAST.lock().unwrap_or_else(PoisonError::into_inner).clone())
        .ok_or(CudaError::InvalidContext)
}

bitflags::bitflags! {
    /// Flags of a context. The flags have no effect, because the runtime selects how to wait, and host memory can
    /// always be mapped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ContextFlags: u32 {
        /// The driver selects how a thread waits.
        const SCHED_AUTO = 0x00;
        /// Waiting threads spin.
        const SCHED_SPIN = 0x01;
        /// Waiting threads yield.
        const SCHED_YIELD = 0x02;
        /// Waiting threads sleep.
        const SCHED_BLOCKING_SYNC = 0x04;
        /// Host memory can be mapped.
        const MAP_HOST = 0x08;
        /// Local memory is not reduced after a launch.
        const LMEM_RESIZE_TO_MAX = 0x10;
    }
}

/// Limit of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResourceLimit {
    /// Bytes of stack per thread.
    StackSize,
    /// Size of the `printf` buffer for kernels, in bytes.
    PrintfFifoSize,
    /// Size of the heap for `malloc` in kernels, in bytes.
    MallocHeapSize,
    /// Maximum nesting depth at which kernels can wait for kernels that they have launched.
    DeviceRuntimeSynchronizeDepth,
    /// Maximum number of pending launches made by kernels.
    DeviceRuntimePendingLaunchCount,
    /// Granularity of L2 cache reads.
    MaxL2FetchGranularity,
}

impl ResourceLimit {
    /// Returns the driver's name for the limit, or `None` for the stack size, which the runtime manages.
    fn in_driver(self) -> Option<ContextLimit> {
        Some(match self {
            ResourceLimit::StackSize => return None,
            ResourceLimit::PrintfFifoSize => ContextLimit::PrintBuffer,
            ResourceLimit::MallocHeapSize => ContextLimit::Heap,
            ResourceLimit::DeviceRuntimeSynchronizeDepth => ContextLimit::SynchronizeDepth,
            ResourceLimit::DeviceRuntimePendingLaunchCount => ContextLimit::PendingLaunches,
            ResourceLimit::MaxL2FetchGranularity => ContextLimit::L2Fetch,
        })
    }
}

/// Context of a device that is in use. The context must be kept alive as long as the device is used.
#[derive(Debug)]
pub struct Context {
    device: runtime::Device,
}

impl Context {
    /// Returns the primary context of a device and makes it current for this thread.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn new(device: Device) -> CudaResult<Context> {
        Ok(Self::from_runtime(&device.runtime()?))
    }

    /// Returns the context of a device of the runtime and makes it current for this thread. Use it in programs that
    /// combine both APIs and in tests on the emulated device.
    ///
    /// ```
    /// use cust::context::Context;
    /// use cust::memory::DeviceBuffer;
    ///
    /// let _context = Context::from_runtime(&cust::runtime::Device::emulated(0)?);
    /// assert_eq!(DeviceBuffer::from_slice(&[1, 2, 3])?.as_host_vec()?, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_runtime(device: &runtime::Device) -> Context {
        let context = Context { device: device.clone() };
        context.make_current();
        context
    }

    fn make_current(&self) {
        CURRENT.set(Some(self.device.clone()));
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.device.clone());
    }

    /// Sets flags, which have no effect.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn set_flags(&self, _: ContextFlags) -> CudaResult<()> {
        Ok(())
    }

    /// Returns the CUDA version.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn get_api_version(&self) -> CudaResult<CudaApiVersion> {
        Ok(CudaApiVersion::of(self.device.properties()))
    }

    /// Returns the corresponding device of the runtime.
    pub fn runtime(&self) -> &runtime::Device {
        &self.device
    }

    /// Returns the CUDA handle (a `CUcontext`), which is valid as long as the context exists. On the emulated device,
    /// this is a meaningless number.
    pub fn as_raw(&self) -> *mut c_void {
        // SAFETY: only the value of the handle is read.
        let (_, context) = unsafe { self.device.driver() };
        std::ptr::with_exposed_provenance_mut(context.0 as usize)
    }

    /// Drops the context.
    ///
    /// # Errors
    /// Returns a fault in earlier work, together with the context.
    pub fn drop(context: Context) -> DropResult<Context> {
        match context.device.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => Err((error.into(), context)),
        }
    }
}

/// Functions that apply to the current context of the calling thread.
#[derive(Debug)]
pub struct CurrentContext;

impl CurrentContext {
    /// Returns the device of the current context.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidContext`] if there is no current context.
    pub fn get_device() -> CudaResult<Device> {
        Ok(Device::of(&current()?))
    }

    /// Makes a context current for this thread.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn set_current(context: &Context) -> CudaResult<()> {
        context.make_current();
        Ok(())
    }

    /// Waits until all work on the device is complete.
    ///
    /// # Errors
    /// Returns a fault in the work; [`CudaError::InvalidContext`] if there is no current context.
    pub fn synchronize() -> CudaResult<()> {
        Ok(current()?.synchronize()?)
    }

    /// Returns the range of stream priorities.
    ///
    /// # Errors
    /// Returns [`CudaError::InvalidContext`] if there is no current context.
    pub fn get_stream_priority_range() -> CudaResult<StreamPriorityRange> {
        let (least, greatest) = current()?.stream_priorities();
        Ok(StreamPriorityRange { least, greatest })
    }

    /// Returns the value of a resource limit.
    ///
    /// # Errors
    /// Returns [`CudaError::UnsupportedLimit`] if the device does not support this limit. The emulated device supports
    /// the limits for the stack, the heap and the `printf` buffer.
    pub fn get_resource_limit(resource: ResourceLimit) -> CudaResult<usize> {
        let device = current()?;
        let Some(limit) = resource.in_driver() else { return Ok(device.stack_limit()?) };
        device.check()?;
        // SAFETY: the context belongs to a live device.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_limit(context, limit)?)
    }

    /// Changes a limit. The limits for the heap and the `printf` buffer can be changed only before the first launch of
    /// a kernel that allocates or prints, respectively.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get_resource_limit`], and driver errors.
    pub fn set_resource_limit(resource: ResourceLimit, limit: usize) -> CudaResult<()> {
        let device = current()?;
        let Some(resource) = resource.in_driver() else { return Ok(device.set_stack_limit(limit)?) };
        device.check()?;
        // SAFETY: the context belongs to a live device.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_set_limit(context, resource, limit)?)
    }
}

/// Range of stream priorities. Lower numbers are more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamPriorityRange {
    /// Least urgent priority.
    pub least: i32,
    /// Most urgent priority.
    pub greatest: i32,
}
