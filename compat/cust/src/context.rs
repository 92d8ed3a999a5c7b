//! [`Context`]: the device that a thread uses.
//!
//! A context is the device's primary one, which CUDA's libraries share. [`Context::new`] makes it that of the calling thread.
//! A thread that has made none uses the last that any thread made.

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

/// The device of the calling thread.
pub(crate) fn current() -> CudaResult<runtime::Device> {
    CURRENT
        .with_borrow(Clone::clone)
        .or_else(|| LAST.lock().unwrap_or_else(PoisonError::into_inner).clone())
        .ok_or(CudaError::InvalidContext)
}

bitflags::bitflags! {
    /// Flags of a context. They have no effect: waits are chosen by the runtime, and memory of the host can always be mapped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ContextFlags: u32 {
        /// The driver chooses how a thread waits.
        const SCHED_AUTO = 0x00;
        /// A thread that waits spins.
        const SCHED_SPIN = 0x01;
        /// A thread that waits yields.
        const SCHED_YIELD = 0x02;
        /// A thread that waits sleeps.
        const SCHED_BLOCKING_SYNC = 0x04;
        /// Memory of the host can be mapped.
        const MAP_HOST = 0x08;
        /// Local memory is not made smaller again.
        const LMEM_RESIZE_TO_MAX = 0x10;
    }
}

/// A limit of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResourceLimit {
    /// Bytes of stack of each thread.
    StackSize,
    /// Bytes of the buffer for text that kernels print.
    PrintfFifoSize,
    /// Bytes of the heap of `malloc` in kernels.
    MallocHeapSize,
    /// How deep launches from kernels may wait.
    DeviceRuntimeSynchronizeDepth,
    /// How many launches from kernels may be pending.
    DeviceRuntimePendingLaunchCount,
    /// Granularity of reads of the L2 cache.
    MaxL2FetchGranularity,
}

impl ResourceLimit {
    /// As the driver names it; `None` for the stack's, which the runtime manages.
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

/// The division of memory between L1 cache and shared memory. The driver chooses it for each kernel.
#[allow(missing_docs, reason = "each is named by what it prefers")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheConfig {
    PreferNone,
    PreferShared,
    PreferL1,
    PreferEqual,
}

/// The width of shared memory's banks, which GPUs of today do not let a program choose.
#[allow(missing_docs, reason = "each is named by its width")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharedMemoryConfig {
    DefaultBankSize,
    FourByteBankSize,
    EightByteBankSize,
}

/// A device in use. Keep it as long as the device is used.
#[derive(Debug)]
pub struct Context {
    device: runtime::Device,
}

impl Context {
    /// The primary context of a device, which becomes that of this thread.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub fn new(device: Device) -> CudaResult<Context> {
        Ok(Self::from_runtime(&device.runtime()?))
    }

    /// The context of a device of the runtime, which becomes that of this thread: for programs that use both, and for tests
    /// on the emulated device.
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

    /// [`Context::new`], with flags that have no effect.
    ///
    /// # Errors
    ///
    /// As [`Context::new`].
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

    /// The version of CUDA.
    ///
    /// # Errors
    ///
    /// None.
    pub fn get_api_version(&self) -> CudaResult<CudaApiVersion> {
        Ok(CudaApiVersion::of(self.device.properties()))
    }

    /// The runtime's device.
    pub fn runtime(&self) -> &runtime::Device {
        &self.device
    }

    /// CUDA's handle, a `CUcontext`, valid as long as the context. On the emulated device a number without meaning.
    pub fn as_raw(&self) -> *mut c_void {
        // SAFETY: the handle is read, and not used.
        let (_, context) = unsafe { self.device.driver() };
        std::ptr::with_exposed_provenance_mut(context.0 as usize)
    }

    /// Drops the context.
    ///
    /// # Errors
    ///
    /// A fault of earlier work, with the context.
    pub fn drop(context: Context) -> DropResult<Context> {
        match context.device.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => Err((error.into(), context)),
        }
    }
}

/// The context of the calling thread.
#[derive(Debug)]
pub struct CurrentContext;

impl CurrentContext {
    /// Its device.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] when there is none.
    pub fn get_device() -> CudaResult<Device> {
        Ok(Device::of(&current()?))
    }

    /// Makes a context that of this thread.
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
    /// A fault of that work; [`CudaError::InvalidContext`] without a context.
    pub fn synchronize() -> CudaResult<()> {
        Ok(current()?.synchronize()?)
    }

    /// The priorities of streams.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_stream_priority_range() -> CudaResult<StreamPriorityRange> {
        let (least, greatest) = current()?.stream_priorities();
        Ok(StreamPriorityRange { least, greatest })
    }

    /// The flags: those that `quick_init` sets, since no other has an effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_flags() -> CudaResult<ContextFlags> {
        current().map(|_| ContextFlags::MAP_HOST | ContextFlags::SCHED_AUTO)
    }

    /// The division of memory between L1 cache and shared memory, which the driver chooses.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_cache_config() -> CudaResult<CacheConfig> {
        current().map(|_| CacheConfig::PreferNone)
    }

    /// Sets the preferred division of L1 cache and shared memory, without effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn set_cache_config(_: CacheConfig) -> CudaResult<()> {
        current().map(drop)
    }

    /// The width of shared memory's banks, which cannot be chosen.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn get_shared_memory_config() -> CudaResult<SharedMemoryConfig> {
        current().map(|_| SharedMemoryConfig::DefaultBankSize)
    }

    /// Sets the width of shared memory's banks, without effect.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidContext`] without a context.
    pub fn set_shared_memory_config(_: SharedMemoryConfig) -> CudaResult<()> {
        current().map(drop)
    }

    /// A limit.
    ///
    /// # Errors
    ///
    /// [`CudaError::UnsupportedLimit`] where the device has no such limit: the emulated one has those of stack, heap and
    /// printed text.
    pub fn get_resource_limit(resource: ResourceLimit) -> CudaResult<usize> {
        let device = current()?;
        let Some(limit) = resource.in_driver() else { return Ok(device.stack_limit()?) };
        device.check()?;
        // SAFETY: the context is of a device that lives.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_limit(context, limit)?)
    }

    /// Changes a limit. The heap's and that of printed text can only be changed before the first launch of a kernel that
    /// allocates or prints.
    ///
    /// # Errors
    ///
    /// As [`Self::get_resource_limit`]; whatever the driver reports.
    pub fn set_resource_limit(resource: ResourceLimit, limit: usize) -> CudaResult<()> {
        let device = current()?;
        let Some(resource) = resource.in_driver() else { return Ok(device.set_stack_limit(limit)?) };
        device.check()?;
        // SAFETY: the context is of a device that lives.
        let (driver, context) = unsafe { device.driver() };
        Ok(driver.context_set_limit(context, resource, limit)?)
    }
}

/// Priorities that streams can have; lower numbers are more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamPriorityRange {
    /// The least urgent.
    pub least: i32,
    /// The most urgent.
    pub greatest: i32,
}

/// Contexts as programs from before 0.3 make them: on a stack of the thread. Here every context is the device's primary one,
/// and the newest is that of the thread.
pub mod legacy {
    pub use super::{CacheConfig, Context, ContextFlags, CurrentContext, ResourceLimit};
    pub use super::{SharedMemoryConfig, StreamPriorityRange};
}
