//! Opening devices: each is opened once in a process and stays open while it works.
//!
//! This is where a device is put together from what the modules keep with it. A lost device is let go here, so that when the
//! last handle of it is dropped its context goes too, and opening it again creates a new one.

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

/// A device of the process.
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

/// Opens a device, or finds it open.
fn open(id: DeviceId) -> Result<Device> {
    let driver = drivers::driver(id)?;
    let count = driver.device_count()?;
    if id.ordinal() >= count {
        return Err(Error::NoSuchDevice { device: id, count });
    }
    // Before the lock, which a copy of the process would never get while it is held here.
    fork::begin_use(id)?;
    if let Some(device) = find_open(id) {
        return Ok(device);
    }
    // Without the lock: hooks may open devices.
    drivers::call_hooks(&driver);
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&id).and_then(Entry::device) {
        // Another thread was faster, or a hook.
        return Ok(device);
    }
    let device = Device::on_driver(driver, id)?;
    devices.insert(id, Entry::Working(device.clone()));
    Ok(device)
}

/// The open device, if there is one. The process keeps no handle of a lost one.
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
    // Without the lock: the last handle closes the device.
    drop(lost);
    lock().as_ref()?.get(&id)?.device()
}

/// The last result of [`Device::best`]. It keeps no device alive: a lost one could not be opened again.
static BEST: RwLock<Option<WeakDevice>> = RwLock::new(None);

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
        match best.map(|info| open(info.id)) {
            Some(Ok(device)) => Ok(device),
            _ => Self::emulated(0),
        }
    }

    /// The CUDA device `ordinal`, as `CUDA_VISIBLE_DEVICES` numbers them.
    ///
    /// # Errors
    /// [`DriverError::NoLibrary`](crate::DriverError::NoLibrary) without a driver, [`Error::NoSuchDevice`] beyond the last device.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        open(DeviceId::Cuda(ordinal))
    }

    /// The emulated device `ordinal`. `WARPSMITH_EMULATED_DEVICES` sets their number, 1 by default.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] beyond the last device.
    pub fn emulated(ordinal: u32) -> Result<Self> {
        open(DeviceId::Emulated(ordinal))
    }

    /// Opens a device by its text: `cuda`, `cuda:N`, `cpu`, `cpu:N`.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for another text; as [`Device::cuda`] and [`Device::emulated`].
    pub fn open(text: &str) -> Result<Self> {
        open(text.parse()?)
    }

    /// Opens the device with this identity.
    ///
    /// # Errors
    /// As [`Device::cuda`] and [`Device::emulated`].
    pub fn from_id(id: DeviceId) -> Result<Self> {
        open(id)
    }

    /// Every device there is, CUDA devices first. Opens none. Devices whose driver does not work are left out;
    /// [`Device::cuda_count`] says why.
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

    /// The number of CUDA devices.
    ///
    /// # Errors
    /// Why CUDA cannot be used: no driver library, a driver that does not start, [`Error::Forked`].
    pub fn cuda_count() -> Result<u32> {
        Ok(drivers::driver(DeviceId::Cuda(0))?.device_count()?)
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
        drivers::call_hooks(&driver);
        Self::on_driver(driver, id)
    }

    /// A device of a driver whose hooks were called.
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
            .with(Launches::from_environment())
            .with(streams)
            .with(Owners::default());
        let device = Self::assemble(driver, id, context, properties, parts);
        device.part::<Streams>().set_default(&device, default);
        drivers::opened(&device);
        Ok(device)
    }

    /// The thread's current device: of the innermost [`Device::guard`] or the last [`Device::set_current`], else
    /// [`Device::best`]. Without either, devices are listed once in the process, not with every call.
    ///
    /// # Errors
    /// As [`Device::best`]. [`Error::Forked`] when the current device was opened before the
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

/// The last result of [`Device::best`], unless it is lost: no handle of it is kept then, so that it can be opened again.
fn known_best() -> Option<Device> {
    // A lock that cannot be had at once is left alone: in a forked process its holder may not exist.
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
