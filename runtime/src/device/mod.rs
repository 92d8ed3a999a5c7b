//! Devices: finding them, opening them, what they are.
//!
//! A [`Device`] is a handle; clones share one context. `Device::cuda(0)` gives the same device every time it is
//! called. A fault in a kernel loses the device: the call that finds out reports the fault, every later call
//! reports [`Error::DeviceLost`] with that fault as the cause, and dropping things still works. When the last
//! handle, stream, buffer and module of a lost device is dropped, opening it again gives a fresh context.
//!
//! Nothing touches CUDA before a device is opened, listed or counted. [`Device::is_available`] does not start CUDA,
//! so a process may ask it and then fork. A process that is forked after a device was opened cannot use that device,
//! nor others of its kind: every call fails with [`Error::Forked`], and dropping what it has of the device works.
//!
//! | of `torch.cuda` | here |
//! | --- | --- |
//! | `init` | not needed: opening a device does what is to be done |
//! | `is_available` | [`Device::is_available`] |
//! | `device_count` | [`Device::cuda_count`], [`Device::emulated_count`], [`Device::list`] |
//! | `current_device`, `set_device` | [`Device::current`], [`Device::set_current`] |
//! | `device` | [`Device::guard`] |
//! | `device_of` | `x.device().guard()`: buffers, streams, events, modules and pools have `device()` |
//! | `get_device_name`, `get_device_capability` | [`Device::name`], [`Device::capability`] |
//! | `get_device_properties` | [`Device::properties`], of a device that is not open [`Device::list`] |
//! | `can_device_access_peer` | [`Device::can_access_peer`], for all devices [`Device::peers`] |
//! | `synchronize`, `mem_get_info` | [`Device::synchronize`], [`Device::memory_info`] |

mod extension;
pub(crate) mod fork;
pub(crate) mod guard;
mod health;
mod id;
pub(crate) mod peer;
mod query;
mod registry;
pub mod visible;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub use self::guard::DeviceGuard;
pub use self::id::DeviceId;
pub use self::peer::PeerInfo;
pub use self::query::Uuid;
use crate::driver::{Context, DeviceProperties, Driver, FunctionHandle};
use crate::error::{Error, GraphError, Result};
use crate::event::pool::EventPool;
use crate::launch::Launches;
use crate::library::Libraries;
use crate::memory::MemoryInfo;
use crate::memory::allocator::CachingAllocator;
use crate::memory::options::AllocatorOptions;
use crate::memory::pinned::allocator::PinnedAllocator;
use crate::module::{GpuImage, Module, ModuleInner};
use crate::stream::StreamCore;
use crate::stream::pool::Streams;

use self::extension::Extensions;
use self::health::Health;

/// A GPU, real or emulated. Cheap to clone; usable from any thread.
///
/// ```
/// use warpsmith_runtime::Device;
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::open("cpu")?;
/// println!("{}: {}", device.id(), device.name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceInner>);

/// A device with its retained context. Streams, buffers and modules hold it alive.
pub(crate) struct DeviceInner {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) id: DeviceId,
    pub(crate) context: Context,
    properties: DeviceProperties,
    pub(crate) health: Health,
    /// Whether every launch waits for its kernel (`CUDA_LAUNCH_BLOCKING=1` when the device was opened).
    pub(crate) launch_blocking: bool,
    pub(crate) streams: Streams,
    pub(crate) events: EventPool,
    pub(crate) launches: Launches,
    pub(crate) libraries: Libraries,
    pub(crate) memory: CachingAllocator,
    pub(crate) pinned: PinnedAllocator,
    /// Loaded images, by the address of their static.
    modules: Mutex<HashMap<usize, Arc<ModuleInner>>>,
    extensions: Extensions,
}

/// A device that could be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Its name for [`Device::open`].
    pub id: DeviceId,
    /// What it is.
    pub properties: DeviceProperties,
}

impl Device {
    /// The CUDA device with the most multiprocessors if a CUDA device can be used, else the emulated `cpu:0`.
    ///
    /// [`Device::cuda`] says why there is no CUDA device.
    ///
    /// # Errors
    /// When neither can be opened. [`Error::Forked`] in a process that was forked from one which used CUDA: it is
    /// not given the emulated device instead.
    pub fn best() -> Result<Self> {
        fork::check(DeviceId::Cuda(0))?;
        let cuda = Self::list().into_iter().filter(|info| !info.id.is_emulated());
        let best = cuda.max_by_key(|info| (info.properties.multiprocessors, std::cmp::Reverse(info.id)));
        match best.map(|info| registry::open(info.id)) {
            Some(Ok(device)) => Ok(device),
            _ => Self::emulated(0),
        }
    }

    /// The CUDA device `ordinal`, as `CUDA_VISIBLE_DEVICES` numbers them.
    ///
    /// # Errors
    /// [`Error::NoDriverLibrary`] without a driver, [`Error::NoSuchDevice`] beyond the last device.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        registry::open(DeviceId::Cuda(ordinal))
    }

    /// The emulated device `ordinal`. There are as many as `WARPSMITH_EMULATED_DEVICES` says, 1 by default.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] beyond the last device.
    pub fn emulated(ordinal: u32) -> Result<Self> {
        registry::open(DeviceId::Emulated(ordinal))
    }

    /// Opens a device by its text: `cuda`, `cuda:N`, `cpu`, `cpu:N`.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for another text; as [`Device::cuda`] and [`Device::emulated`].
    pub fn open(text: &str) -> Result<Self> {
        registry::open(text.parse()?)
    }

    /// Opens the device with this identity.
    ///
    /// # Errors
    /// As [`Device::cuda`] and [`Device::emulated`].
    pub fn from_id(id: DeviceId) -> Result<Self> {
        registry::open(id)
    }

    /// Every device there is, CUDA devices first. Opens none. Devices whose driver does not work are left out;
    /// [`Device::cuda_count`] says why.
    pub fn list() -> Vec<DeviceInfo> {
        let mut devices = Vec::new();
        for kind in [DeviceId::Cuda(0), DeviceId::Emulated(0)] {
            let Ok(driver) = registry::driver(kind) else { continue };
            for ordinal in 0..driver.device_count().unwrap_or(0) {
                if let Ok(properties) = driver.device_properties(ordinal) {
                    devices.push(DeviceInfo { id: kind.with_ordinal(ordinal), properties });
                }
            }
        }
        devices
    }

    /// The number of CUDA devices.
    ///
    /// # Errors
    /// Why CUDA cannot be used: no driver library, a driver that does not start, [`Error::Forked`].
    pub fn cuda_count() -> Result<u32> {
        registry::driver(DeviceId::Cuda(0))?.device_count()
    }

    /// A device of a driver of one's own, for tests. It is not shared: each call retains the context again.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] beyond the last device; whatever the driver reports.
    pub fn with_driver(driver: Arc<dyn Driver>, ordinal: u32) -> Result<Self> {
        let id = match driver.name() {
            "cuda" => DeviceId::Cuda(ordinal),
            _ => DeviceId::Emulated(ordinal),
        };
        let count = driver.device_count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { device: id, count });
        }
        fork::begin_use(id)?;
        let options = AllocatorOptions::from_environment()?;
        let properties = driver.device_properties(ordinal)?;
        let context = driver.context_retain(ordinal)?;
        let made = Streams::new(&*driver, context)
            .and_then(|streams| Ok((streams, StreamCore::create(&*driver, context, 0)?)));
        let (streams, default) = made.inspect_err(|_| driver.context_release(ordinal))?;
        let pinned = PinnedAllocator::new(Arc::clone(&driver), context, options.pinned.clone());
        let device = Self(Arc::new(DeviceInner {
            driver,
            id,
            context,
            memory: CachingAllocator::new(options, properties.total_memory),
            pinned,
            properties,
            health: Health::default(),
            launch_blocking: std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1"),
            streams,
            events: EventPool::default(),
            launches: Launches::from_environment(),
            libraries: Libraries::default(),
            modules: Mutex::default(),
            extensions: Extensions::default(),
        }));
        device.0.streams.set_default(&device, default);
        Ok(device)
    }

    /// Which device it is.
    pub fn id(&self) -> DeviceId {
        self.0.id
    }

    /// The product's name.
    pub fn name(&self) -> &str {
        &self.0.properties.name
    }

    /// What it is and how much it has.
    pub fn properties(&self) -> &DeviceProperties {
        &self.0.properties
    }

    /// Whether it is emulated on the CPU.
    pub fn is_emulated(&self) -> bool {
        self.0.id.is_emulated()
    }

    /// Free and total memory.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = self.call(|driver, context| driver.memory_info(context))?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for everything enqueued on the device.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
    pub fn synchronize(&self) -> Result<()> {
        self.check()?;
        if self.0.memory.capturing() {
            return Err(GraphError::CaptureUnderway.into());
        }
        self.call(|driver, context| driver.context_synchronize(context))?;
        self.0.health.all_finished();
        Ok(())
    }

    /// Opens an image. Its code is loaded part by part, when the first kernel of a part is looked up.
    ///
    /// # Errors
    /// [`Error::NoImage`] when the program was built without GPU code, [`Error::NoImageForDevice`],
    /// [`Error::DriverTooOld`]. On the emulated device none of them: it needs no code.
    pub fn load(&self, image: &'static GpuImage) -> Result<Module> {
        self.check_process()?;
        let mut modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = std::ptr::from_ref(image).addr();
        if let Some(loaded) = modules.get(&key) {
            return Ok(Module::new(self.clone(), Arc::clone(loaded)));
        }
        let loaded = Arc::new(ModuleInner::load(self, image)?);
        modules.insert(key, Arc::clone(&loaded));
        Ok(Module::new(self.clone(), loaded))
    }

    /// The symbol of a kernel of a loaded image, by the driver's handle.
    pub(crate) fn kernel_symbol(&self, function: FunctionHandle) -> Option<&'static str> {
        let modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.values().find_map(|module| module.kernel_symbol(function))
    }

    /// Whether a fault stopped the device. See the [module's documentation](self).
    pub fn is_lost(&self) -> bool {
        self.0.health.is_lost()
    }

    /// The first error since the last call that a drop could not report, if there was one.
    pub fn take_drop_error(&self) -> Option<Error> {
        self.0.health.take_drop_error()
    }

    /// The driver and the device's context in it, for work that this crate does not cover.
    ///
    /// # Safety
    /// The driver trusts what it is given. The context is used while a handle of the device lives, and is not released;
    /// other handles that go into the driver's methods came from it, for this context, and are alive.
    pub unsafe fn driver(&self) -> (&Arc<dyn Driver>, Context) {
        self.raw()
    }

    pub(crate) fn raw(&self) -> (&Arc<dyn Driver>, Context) {
        (&self.0.driver, self.0.context)
    }

    /// Fails if the device is lost, or was opened before the process was forked.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.0.health.check(self.0.id)
    }

    /// Calls the driver, unless the device is lost; a fault is told from other errors and kept.
    pub(crate) fn call<R>(&self, call: impl FnOnce(&dyn Driver, Context) -> Result<R>) -> Result<R> {
        self.check()?;
        self.call_driver(call)
    }

    /// Calls the driver even if the device is lost, but not in a process that was forked since.
    pub(crate) fn call_lost<R>(&self, call: impl FnOnce(&dyn Driver, Context) -> Result<R>) -> Result<R> {
        self.check_process()?;
        self.call_driver(call)
    }

    fn call_driver<R>(&self, call: impl FnOnce(&dyn Driver, Context) -> Result<R>) -> Result<R> {
        let inner = &*self.0;
        call(&*inner.driver, inner.context).map_err(|error| {
            if error.stops_context() {
                inner.health.lose(inner.id, error, inner.driver.take_fault(inner.context))
            } else {
                error
            }
        })
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // Kernels without buffers may still run. A lost context reports its fault again, to nobody.
        let _ = self.driver.context_synchronize(self.context);
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in std::mem::take(modules).into_values() {
            for handle in module.handles() {
                // SAFETY: functions hold the device, so none is left; the work of all streams was waited for.
                unsafe { self.driver.module_unload(self.context, handle) };
            }
        }
        self.libraries.close(&*self.driver, self.context);
        self.pinned.close();
        self.memory.shut_down(&*self.driver, self.context);
        self.launches.close(&self.events);
        self.events.destroy(&*self.driver, self.context);
        self.streams.destroy(&*self.driver, self.context);
        self.driver.context_release(self.id.ordinal());
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.id(), self.name())
    }
}

impl fmt::Debug for DeviceInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceInner({})", self.id)
    }
}

impl PartialEq for Device {
    /// Whether both are handles of one opened device.
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other)
    }
}

impl Eq for Device {}
