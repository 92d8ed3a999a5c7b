//! [`Context`]: the device that a thread uses.
//!
//! A context is the primary context of a device, which CUDA's libraries share. [`Context::new`] makes it current for
//! the calling thread. A thread that has made none uses the last context that any thread made.

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

/// Current device of the calling thread.
pub(crate) fn current() -> CudaResult<runtime::Device> {
    CURRENT
        .with_borrow(Clone::clone)
        .or_else(|| LAST.lock().unwrap_or_else(PoisonError::into_inner).clone())
        .ok_or(CudaError::InvalidContext)
}

bitflags::bitflags! {
    /// Flags of a context. They have no effect: the runtime chooses how to wait, and host memory can always be mapped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ContextFlags: u32 {
        /// The driver chooses how a thread waits.
        const SCHED_AUTO = 0x00;
        /// Waiting threads spin.
        const SCHED_SPIN = 0x01;
        /// Waiting threads yield.
        const SCHED_YIELD = 0x02;
        /// Waiting threads sleep.
        const SCHED_BLOCKING_SYNC = 0x04;
        /// Host memory can be mapped.
        const MAP_HOST = 0x08;
        /// Local memory is not shrunk after a launch.
        const LMEM_RESIZE_TO_MAX = 0x10;
    }
}

/// A limit of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResourceLimit {
    /// Bytes of stack per thread.
    StackSize,
    /// Bytes of the `printf` buffer of kernels.
    PrintfFifoSize,
    /// Bytes of the heap of `malloc` in kernels.
    MallocHeapSize,
    /// Maximum depth at which launches from kernels may wait.
    DeviceRuntimeSynchronizeDepth,
    /// Maximum number of pending launches from kernels.
    DeviceRuntimePendingLaunchCount,
    /// Granularity of L2 cache reads.
    MaxL2FetchGranularity,
}

impl ResourceLimit {
    /// The driver's name of the limit; `None` for the stack size, which the runtime manages.
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

/// Split of memory between L1 cache and shared memory. The driver chooses it per kernel.
#[allow(missing_docs, reason = "each is named by what it prefers")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheConfig {
    PreferNone,
    PreferShared,
    PreferL1,
    PreferEqual,
}

/// Width of shared memory banks, which programs cannot choose on current GPUs.
#[allow(missing_docs, reason = "each is named by its width")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharedMemoryConfig {
    DefaultBankSize,
    FourByteBankSize,
    EightByteBankSize,
}

/// A device in use. Keep it alive as long as the device is used.
#[derive(Debug)]
pub struct Context {
    device: runtime::Device,
}

impl Context {
    /// Returns the primary context of a device and makes it current for this thread.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    pub fn new(device: Device) -> CudaResult<Context> {
        Ok(Self::from_runtime(&device.runtime()?))
    }

    /// Returns the context of a runtime device and makes it current for this thread: for programs that use both APIs,
    /// and for tests on the emulated device.
    ///
    /// ```
    /// use cust::context::Context;
    /// use cust::memory::DeviceBuffer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let _context = Context::from_runtime(&cust::runtime::Device::emulated(0)?);
    /// assert_eq!(DeviceBuffer::from_slice(&[1, 2, 3])?.as_host_vec()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_runtime(device: &runtime::Device) -> Context {
        let context = Context { device: device.clone() };
        context.make_current();
        context
    }

    /// Calls [`Context::new`]; the flags have no effect.
    ///
    /// # Errors
    ///
    /// The errors of [`Context::new`].
    pub fn create_and_push(_: ContextFlags, device: Device) -> CudaResult<Context> {
        Self::new(device)
    }

    fn make_current(&self) {
        CURRENT.set(Some(self.device.clone()));
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.device.clone());
    }

    /// Sets flags, which have no effect.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_flags(&self, _: ContextFlags) -> CudaResult<()> {
        Ok(())
    }

    /// CUDA version.
    ///
    /// # Errors
    ///
    /// None.
    pub fn get_api_version(&self) -> CudaResult<CudaApiVersion> {
        Ok(CudaApiVersion::of(self.device.properties()))
    }

    /// Device of the runtime.
    pub fn runtime(&self) -> &runtime::Device {
        &self.device
    }

    /// CUDA handle, a `CUcontext`, valid as long as the context. On the emulated device it is a meaningless number.
    pub fn as_raw(&self) -> *mut c_void {
        // SAFETY: the handle is only read, not used.
        let (_, context) = unsafe { self.device.driver() };
        std::ptr::with_exposed_provenance_mut(context.0 as usize)
    }

    /// Drops the context.
    ///
    /// # Errors
    ///
    /// A fault of earlier work, together with the context.
    pub fn drop(context: Context) -> DropResult<Context> {
        match context.device.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => Err((error.into(), context)),
        }
    }
}

/// Current context of the calling thread.
#[derive(Debug)]
pub struct CurrentContext;

impl CurrentContext {
    /// Device of the current context.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] if there is no context.
    pub fn get_device() -> CudaResult<Device> {
        Ok(Device::of(&current()?))
    }

    /// Makes a context current for this thread.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_current(context: &Context) -> CudaResult<()> {
        context.make_current();
        Ok(())
    }

    /// Waits for all work on the device.
    ///
    /// # Errors
    ///
    /// A fault of the waited-for work; [`CudaError::InvalidContext`] without a context.
    pub fn synchronize() -> CudaResult<()> {
        Ok(current()?.synchronize()?)
    }

    /// Range of stream priorities.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_stream_priority_range() -> CudaResult<StreamPriorityRange> {
        let (least, greatest) = current()?.stream_priorities();
        Ok(StreamPriorityRange { least, greatest })
    }

    /// Flags of the context. They are always the flags that `quick_init` sets, since no other flag has an effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_flags() -> CudaResult<ContextFlags> {
        current().map(|_| ContextFlags::MAP_HOST | ContextFlags::SCHED_AUTO)
    }

    /// Split of memory between L1 cache and shared memory, which the driver chooses.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_cache_config() -> CudaResult<CacheConfig> {
        current().map(|_| CacheConfig::PreferNone)
    }

    /// Sets the preferred split of L1 cache and shared memory, without effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn set_cache_config(_: CacheConfig) -> CudaResult<()> {
        current().map(drop)
    }

    /// Width of shared memory banks, which cannot be chosen.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_shared_memory_config() -> CudaResult<SharedMemoryConfig> {
        current().map(|_| SharedMemoryConfig::DefaultBankSize)
    }

    /// Sets the width of shared memory banks, without effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn set_shared_memory_config(_: SharedMemoryConfig) -> CudaResult<()> {
        current().map(drop)
    }

    /// Value of a limit.
    ///
    /// # Errors
    ///
    /// [`CudaError::UnsupportedLimit`] if the device has no such limit: the emulated device supports stack, heap and
    /// `printf` buffer.
    pub fn get_resource_limit(resource: ResourceLimit) -> CudaResult<usize> {
        let device = current()?;
        let Some(limit) = resource.in_driver() else { return Ok(device.stack_limit()?) };
        device.check()?;
        // SAFETY: the context belongs to a live device.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_limit(context, limit)?)
    }

    /// Changes a limit. The heap and `printf` buffer limits can only be changed before the first launch of a kernel
    /// that allocates or prints.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::get_resource_limit`], and errors of the driver.
    pub fn set_resource_limit(resource: ResourceLimit, limit: usize) -> CudaResult<()> {
        let device = current()?;
        let Some(resource) = resource.in_driver() else { return Ok(device.set_stack_limit(limit)?) };
        device.check()?;
        // SAFETY: the context belongs to a live device.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_set_limit(context, resource, limit)?)
    }
}

/// Range of stream priorities; lower numbers are more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamPriorityRange {
    /// Least urgent priority.
    pub least: i32,
    /// Most urgent priority.
    pub greatest: i32,
}

/// Context API as in versions before 0.3: a per-thread stack of contexts. Here every context is the device's primary
/// context, and the newest is current for the thread.
pub mod legacy {
    pub use super::{CacheConfig, Context, ContextFlags, CurrentContext, ResourceLimit};
    pub use super::{SharedMemoryConfig, StreamPriorityRange};
}
