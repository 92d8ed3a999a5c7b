//! Device enumeration, opening and properties.
//!
//! A [`Device`] is a handle; clones share one context. `Device::cuda(0)` returns the same device on every call. After a
//! kernel fault, the device is lost: the first failing call reports the fault, and every later call reports
//! [`Error::DeviceLost`] with that fault as the cause. Values of a lost device can still be dropped. Once all its
//! handles, streams, buffers and modules are dropped, opening the device again creates a new context.
//!
//! CUDA is initialized when a device is first opened, listed or counted. [`Device::is_available`] does not initialize
//! CUDA if NVML is available, so a process may call it and then fork. A child process forked after a device was opened
//! cannot use devices of that kind. Every call in the child fails with [`Error::Forked`], but values of the device can
//! still be dropped.
//!
//! | `torch.cuda` | Warpsmith |
//! | --- | --- |
//! | `init` | not needed: opening a device initializes it |
//! | `is_available` | [`Device::is_available`] |
//! | `device_count` | [`Device::cuda_count`], [`Device::emulated_count`], [`Device::list`] |
//! | `current_device`, `set_device` | [`Device::current`], [`Device::set_current`] |
//! | `device` | [`Device::guard`] |
//! | `device_of` | `x.device().guard()`: buffers, streams, events, modules and pools have a `device()` method |
//! | `get_device_name`, `get_device_capability` | [`Device::name`], [`Device::capability`] |
//! | `get_device_properties` | [`Device::properties`], or [`Device::list`] for a device that is not open |
//! | `can_device_access_peer` | [`Device::can_access_peer`] |
//! | `synchronize`, `mem_get_info` | [`Device::synchronize`], [`Device::memory_info`] |

pub(crate) mod drivers;
mod events;
mod extension;
pub(crate) mod flags;
pub(crate) mod fork;
pub(crate) mod graph_nodes;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod observe;
mod parts;
pub(crate) mod peer;
mod query;
pub(crate) mod source;
mod stack;
pub mod visible;

use std::fmt;
use std::sync::{Arc, Weak};

pub(crate) use self::events::EventPool;
pub use self::guard::DeviceGuard;
pub(crate) use self::parts::{Part, Parts};
pub use self::query::{DeviceProcess, Uuid};
use crate::driver::{Context, DeviceProperties, Driver};
pub use crate::error::DeviceId;
use crate::error::{Error, Result};

use self::extension::Extensions;
use self::health::{Health, Quiet};
use self::stack::Stack;

/// A GPU, real or emulated. Cheap to clone; usable from any thread.
///
/// ```
/// use warpsmith_runtime::Device;
///
/// let device = Device::open("cpu")?;
/// println!("{}: {}", device.id(), device.name());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceInner>);

/// A device and its retained context, kept alive by streams, buffers and modules.
pub(crate) struct DeviceInner {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) id: DeviceId,
    pub(crate) context: Context,
    properties: DeviceProperties,
    pub(crate) health: Health,
    stack: Stack,
    /// True if every launch waits for its kernel (`CUDA_LAUNCH_BLOCKING=1` when the device was opened).
    pub(crate) launch_blocking: bool,
    pub(crate) events: EventPool,
    parts: Parts,
    extensions: Extensions,
}

/// A weak [`Device`] handle that does not keep the device open. Values stored in a device's own
/// [extensions](Device::extension) must use it instead of [`Device`].
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::emulated::EmulatedDriver;
///
/// let device = Device::with_driver(EmulatedDriver::builder().build(), 0)?;
/// let weak = device.downgrade();
/// assert_eq!(weak.upgrade(), Some(device));
/// // The only handle was dropped, which closed the device.
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WeakDevice(Weak<DeviceInner>);

impl WeakDevice {
    /// Returns the device; `None` if the last handle was dropped.
    pub fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(Device)
    }
}

/// A device that can be opened.
///
/// See the example of [`Device::list`].
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// The ID, for [`Device::from_id`]. Its `Display` form is a valid name for [`Device::open`].
    pub id: DeviceId,
    /// The device's properties.
    pub properties: DeviceProperties,
}

impl Device {
    /// Returns the device's ID.
    pub fn id(&self) -> DeviceId {
        self.0.id
    }

    /// Returns the product name.
    pub fn name(&self) -> &str {
        &self.0.properties.name
    }

    /// Returns the device's properties, such as its kind and resources.
    ///
    /// ```
    /// let device = warpsmith_runtime::Device::emulated(0)?;
    /// let properties = device.properties();
    /// let resident = properties.multiprocessors * properties.max_threads_per_multiprocessor;
    /// assert!(resident >= properties.max_threads_per_block && properties.warp_size == 32);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn properties(&self) -> &DeviceProperties {
        &self.0.properties
    }

    /// Returns true if the device is emulated on the CPU.
    pub fn is_emulated(&self) -> bool {
        self.0.id.is_emulated()
    }

    /// Returns true if a fault made the device unusable. See the [module's documentation](self).
    pub fn is_lost(&self) -> bool {
        self.0.health.is_lost()
    }

    /// Takes the first error that occurred in a drop since the last call of this method. Drops cannot return errors;
    /// each one is also logged as a `tracing` event at the error level.
    pub fn take_drop_error(&self) -> Option<Error> {
        self.0.health.take_drop_error()
    }

    /// Returns the driver and the device's context, for driver calls that this crate does not wrap.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let device = Device::emulated(0)?;
    /// // SAFETY: the query changes nothing, and the device exists until it returns.
    /// let (free, total) = unsafe {
    ///     let (driver, context) = device.driver();
    ///     driver.memory_info(context)?
    /// };
    /// assert!(free <= total);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// The driver does not validate its arguments. The caller must use the context only while a handle to the device
    /// exists, and must not release it. All other handles passed to the driver must come from this driver and context
    /// and must be alive.
    pub unsafe fn driver(&self) -> (&Arc<dyn Driver>, Context) {
        self.raw()
    }

    /// Creates a device that owns a retained context and the per-device state of other modules.
    pub(crate) fn assemble(
        driver: Arc<dyn Driver>,
        id: DeviceId,
        context: Context,
        properties: DeviceProperties,
        parts: Parts,
    ) -> Self {
        Self(Arc::new(DeviceInner {
            driver,
            id,
            context,
            properties,
            health: Health::default(),
            stack: Stack::default(),
            launch_blocking: std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1"),
            events: EventPool::default(),
            parts,
            extensions: Extensions::default(),
        }))
    }

    /// Returns another module's per-device state `P`.
    #[inline]
    pub(crate) fn part<P: Part>(&self) -> &P {
        self.0.parts.get()
    }

    pub(crate) fn raw(&self) -> (&Arc<dyn Driver>, Context) {
        (&self.0.driver, self.0.context)
    }

    /// Returns an error if the device is lost or was opened before the process was forked.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`] or [`Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.0.health.check(self.0.id)
    }

    /// Calls the driver, unless the device is lost. If the driver reports a fault, marks the device as lost and stores
    /// the fault.
    #[inline]
    pub(crate) fn call<R, E: Into<Error>>(
        &self,
        call: impl FnOnce(&dyn Driver, Context) -> Result<R, E>,
    ) -> Result<R> {
        self.check()?;
        self.call_driver(call)
    }

    /// Returns an error if completed launches of the calling thread have `warpsmith check` findings, unless errors are
    /// being [discarded](Quiet).
    #[inline]
    pub(crate) fn check_findings(&self) -> Result<()> {
        if Quiet::is_active() {
            return Ok(());
        }
        let findings = self.0.driver.take_findings();
        if findings.is_empty() {
            return Ok(());
        }
        Err(Error::Findings { device: self.id(), findings: Arc::new(findings) })
    }

    /// Calls the driver even if the device is lost, unless the process was forked since the device was opened.
    pub(crate) fn call_lost<R, E: Into<Error>>(
        &self,
        call: impl FnOnce(&dyn Driver, Context) -> Result<R, E>,
    ) -> Result<R> {
        self.check_process()?;
        self.call_driver(call)
    }

    #[inline]
    fn call_driver<R, E: Into<Error>>(
        &self,
        call: impl FnOnce(&dyn Driver, Context) -> Result<R, E>,
    ) -> Result<R> {
        call(&*self.0.driver, self.0.context).map_err(|error| self.failed(error.into()))
    }

    /// Converts a driver error to the error that the call returns. If the driver error makes the context unusable,
    /// marks the device as lost.
    #[cold]
    fn failed(&self, error: Error) -> Error {
        if !error.stops_context() {
            return error;
        }
        let inner = &*self.0;
        let fault = || inner.driver.take_fault(inner.context);
        let error = inner.health.lose(inner.id, error, fault, &inner.stack);
        inner.parts.lost(self);
        error
    }

    /// Returns a weak handle, which does not keep the device open.
    pub fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.0))
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // Kernels without buffers may still be running. If the context is lost, its fault has already been reported.
        let _ = self.driver.context_synchronize(self.context);
        // Extensions are closed first, because they may use streams and memory that the parts own.
        self.extensions.close(&*self.driver, self.context);
        self.parts.close(&*self.driver, self.context, &self.events);
        self.events.destroy(&*self.driver, self.context);
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
    /// Returns true if both handles refer to the same opened device.
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other)
    }
}

impl Eq for Device {}
