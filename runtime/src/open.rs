//! Opening devices. A device is opened once per process and stays open until it is lost.
//!
//! This module assembles a device from the per-device state of other modules. It removes lost devices from the list of
//! open devices, so the context of a lost device is destroyed when the last handle is dropped. Opening the device again
//! then creates a new context.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::device::{Device, DeviceId, DeviceInfo, Parts, WeakDevice, drivers, fork, guard};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::launch::Launches;
use crate::memory;
use crate::memory::allocator::CachingAllocator;
use crate::memory::options::AllocatorOptions;
use crate::memory::owners::Owners;
use crate::memory::pinned::allocator::PinnedAllocator;
use crate::module::Modules;
use crate::stream::StreamCore;
use crate::stream::pool::Streams;

/// A device opened by this process.
enum Entry {
    Working(Device),
    Lost(WeakDevice),
}

impl Entry {
    fn device(&self) -> Option<Device> {
        match self {
            Self::Working(device) => Some(device.clone()),
            Self::Lost(device) => device.upgrade(),
        }
    }
}

static DEVICES: Mutex<Option<HashMap<DeviceId, Entry>>> = Mutex::new(None);

/// Opens a device, or returns the device if it is already open.
fn open(id: DeviceId) -> Result<Device> {
    let driver = drivers::driver(id)?;
    let count = driver.device_count()?;
    if id.ordinal() >= count {
        return Err(Error::NoSuchDevice { device: id, count });
    }
    // Called before the lock is acquired, because a forked process could never acquire a lock that another thread held
    // during the fork.
    fork::begin_use(id)?;
    if let Some(device) = find_open(id) {
        return Ok(device);
    }
    // The lock is released first, because hooks may open devices themselves.
    drivers::call_hooks(&driver);
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&id).and_then(Entry::device) {
        // Another thread or a hook opened the device first.
        return Ok(device);
    }
    let device = Device::on_driver(driver, id)?;
    devices.insert(id, Entry::Working(device.clone()));
    Ok(device)
}

/// Returns the device if it is open. Removes it from the list if it is lost.
fn find_open(id: DeviceId) -> Option<Device> {
    let lock = || DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let lost = match lock().as_mut()?.get_mut(&id)? {
        Entry::Working(device) if !device.is_lost() => return Some(device.clone()),
        entry @ Entry::Working(_) => {
            let weak = entry.device()?.downgrade();
            Some(std::mem::replace(entry, Entry::Lost(weak)))
        }
        Entry::Lost(_) => None,
    };
    // The lock is released first, because dropping the last handle closes the device.
    drop(lost);
    lock().as_ref()?.get(&id)?.device()
}

/// The last result of [`Device::best`]. The handle is weak, because a strong one would prevent a lost device from being
/// reopened.
static BEST: RwLock<Option<WeakDevice>> = RwLock::new(None);

impl Device {
    /// Returns the CUDA device with the most SMs if a CUDA device is usable, or the emulated device `cpu:0` otherwise.
    ///
    /// If there is no usable CUDA device, [`Device::cuda`] returns the reason.
    ///
    /// # Errors
    /// Returns the error from opening the device if neither kind can be opened. Returns [`Error::Forked`] in a process
    /// forked from one that used CUDA, without falling back to the emulated device.
    pub fn best() -> Result<Self> {
        fork::check(DeviceId::Cuda(0))?;
        let cuda = Self::list().into_iter().filter(|info| !info.id.is_emulated());
        let best = cuda.max_by_key(|info| (info.properties.multiprocessors, std::cmp::Reverse(info.id)));
        match best.map(|info| open(info.id)) {
            Some(Ok(device)) => Ok(device),
            _ => Self::emulated(0),
        }
    }

    /// Opens the CUDA device `ordinal`, an index into the devices visible through `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// Returns [`DriverError::NoLibrary`](crate::DriverError::NoLibrary) if the driver library is missing, or
    /// [`Error::NoSuchDevice`] if `ordinal` is out of range.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        open(DeviceId::Cuda(ordinal))
    }

    /// Opens the emulated device `ordinal`. `WARPSMITH_EMULATED_DEVICES` sets the number of emulated devices; the
    /// default is 1.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchDevice`] if `ordinal` is out of range.
    pub fn emulated(ordinal: u32) -> Result<Self> {
        open(DeviceId::Emulated(ordinal))
    }

    /// Opens a device by its name: `cuda`, `cuda:N`, `cpu`, `cpu:N`.
    ///
    /// # Errors
    /// Returns [`Error::UnknownDevice`] if the text is not a device name, or the same errors as [`Device::cuda`] and
    /// [`Device::emulated`].
    pub fn open(text: &str) -> Result<Self> {
        open(text.parse()?)
    }

    /// Opens the device with this ID.
    ///
    /// # Errors
    /// Returns the same errors as [`Device::cuda`] and [`Device::emulated`].
    pub fn from_id(id: DeviceId) -> Result<Self> {
        open(id)
    }

    /// Lists all devices, CUDA devices first, without opening any. Devices whose driver is not usable are omitted;
    /// [`Device::cuda_count`] returns the reason.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// for info in Device::list() {
    ///     println!("{}: {}, {} SMs", info.id, info.properties.name, info.properties.multiprocessors);
    /// }
    /// assert!(Device::list().iter().any(|info| info.id.is_emulated()));
    /// ```
    pub fn list() -> Vec<DeviceInfo> {
        let mut devices = Vec::new();
        for kind in [DeviceId::Cuda(0), DeviceId::Emulated(0)] {
            let Ok(driver) = drivers::driver(kind) else { continue };
            for ordinal in 0..driver.device_count().unwrap_or(0) {
                if let Ok(properties) = driver.device_properties(ordinal) {
                    devices.push(DeviceInfo { id: kind.with_ordinal(ordinal), properties });
                }
            }
        }
        devices
    }

    /// Returns the number of CUDA devices.
    ///
    /// # Errors
    /// Returns [`DriverError::NoLibrary`](crate::DriverError::NoLibrary), the error of a driver that fails to
    /// initialize, or [`Error::Forked`].
    pub fn cuda_count() -> Result<u32> {
        Ok(drivers::driver(DeviceId::Cuda(0))?.device_count()?)
    }

    /// Opens a device of a custom driver, for tests. The device is not shared: each call retains the context again.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchDevice`] if `ordinal` is out of range, or any [driver error](crate::Error::Driver).
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
        drivers::call_hooks(&driver);
        Self::on_driver(driver, id)
    }

    /// Creates a device; the driver's hooks must have been called.
    fn on_driver(driver: Arc<dyn Driver>, id: DeviceId) -> Result<Self> {
        let ordinal = id.ordinal();
        let options = AllocatorOptions::from_environment()?;
        let properties = driver.device_properties(ordinal)?;
        let context = driver.context_retain(ordinal)?;
        let made = Streams::new(&*driver, context, memory::stream_ended)
            .and_then(|streams| Ok((streams, StreamCore::create(&*driver, context, 0)?)));
        let (streams, default) = made.inspect_err(|_| driver.context_release(ordinal))?;
        let pinned = PinnedAllocator::new(Arc::clone(&driver), context, options.pinned.clone());
        let parts = Parts::new()
            .with(Modules::default())
            .with(pinned)
            .with(CachingAllocator::new(options, properties.total_memory))
            .with(Launches::default())
            .with(streams)
            .with(Owners::default());
        let device = Self::assemble(driver, id, context, properties, parts);
        device.part::<Streams>().set_default(&device, default);
        drivers::opened(&device);
        Ok(device)
    }

    /// Returns the thread's current device: the device set by the innermost [`Device::guard`] or the last
    /// [`Device::set_current`], or [`Device::best`] if the thread has set none. [`Device::best`] is determined once per
    /// process, not on every call.
    ///
    /// # Errors
    /// Returns the same errors as [`Device::best`], or [`Error::Forked`] if the current device was opened before the
    /// process was forked.
    pub fn current() -> Result<Self> {
        if let Some(device) = guard::current() {
            device.check_process()?;
            return Ok(device);
        }
        if let Some(device) = known_best() {
            device.check_process()?;
            return Ok(device);
        }
        let best = Self::best()?;
        if let Ok(mut known) = BEST.try_write() {
            *known = Some(best.downgrade());
        }
        Ok(best)
    }
}

/// Returns the last result of [`Device::best`]. Returns `None` if that device is lost.
fn known_best() -> Option<Device> {
    // `read` could block forever in a forked process, where the lock's holder may not exist.
    let device = BEST.try_read().ok()?.as_ref()?.upgrade()?;
    (device.is_forked() || !device.is_lost()).then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_device_is_looked_for_once() {
        let [first, second] = [0; 2].map(|_| Device::current().unwrap());
        assert_eq!(known_best(), Some(first.clone()), "the next call takes this one");
        assert_eq!(first, second);
        let other_thread = std::thread::spawn(known_best).join().unwrap();
        assert_eq!(other_thread, Some(first));
    }
}
