//! Which devices reach each other's memory, how they are connected, and letting them.
//!
//! Access is enabled once for a pair of opened devices and a direction, whichever thread asks first; the others wait
//! until it is done. A device that is lost and opened again is another opened device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Device, DeviceId, DeviceInner, drivers};
use crate::driver::{Driver, LinkKind};
use crate::error::{Error, Result};

/// How a device sees another of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerInfo {
    /// The device.
    pub device: DeviceId,
    /// The other one.
    pub peer: DeviceId,
    /// Whether the device can read and write the other's memory.
    pub access: bool,
    /// How the two are connected.
    pub link: LinkKind,
}

/// Every ordered pair of two devices of a driver.
fn pairs(driver: &dyn Driver, kind: DeviceId) -> Result<Vec<PeerInfo>> {
    let count = driver.device_count()?;
    let mut pairs = Vec::new();
    for device in 0..count {
        for peer in (0..count).filter(|peer| *peer != device) {
            pairs.push(PeerInfo {
                device: kind.with_ordinal(device),
                peer: kind.with_ordinal(peer),
                access: driver.peer_can_access(device, peer)?,
                link: driver.peer_link(device, peer),
            });
        }
    }
    Ok(pairs)
}

impl Device {
    /// Whether this device can read and write the memory of `peer` directly. Its own memory it can. Copies between
    /// devices work either way; they are faster with it.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// assert!(device.can_access_peer(&device)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn can_access_peer(&self, peer: &Device) -> Result<bool> {
        self.0.health.check(self.id())?;
        if !self.has_driver_of(peer) {
            return Ok(false);
        }
        if self.ordinal() == peer.ordinal() {
            return Ok(true);
        }
        self.call(|driver, _| driver.peer_can_access(self.ordinal(), peer.ordinal()))
    }

    /// How this device and `peer` are connected, as far as the system tells.
    pub fn link(&self, peer: &Device) -> LinkKind {
        match self.has_driver_of(peer) {
            _ if self.ptr_eq(peer) => LinkKind::Same,
            true if !self.is_forked() => self.0.driver.peer_link(self.ordinal(), peer.ordinal()),
            _ => LinkKind::Unknown,
        }
    }

    /// Which devices reach each other's memory, and how they are connected: every ordered pair of two devices of a
    /// kind, CUDA devices first, in the order of [`Device::list`]. Opens none. A kind whose driver does not work is
    /// left out.
    ///
    /// # Errors
    /// Whatever a driver that works reports.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// for pair in Device::peers()? {
    ///     println!("{} to {}: {}, access: {}", pair.device, pair.peer, pair.link, pair.access);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn peers() -> Result<Vec<PeerInfo>> {
        let mut all = Vec::new();
        for kind in [DeviceId::Cuda(0), DeviceId::Emulated(0)] {
            if let Ok(driver) = drivers::driver(kind) {
                all.extend(pairs(&*driver, kind)?);
            }
        }
        Ok(all)
    }

    fn has_driver_of(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0.driver, &other.0.driver)
    }
}

/// One direction between two opened devices.
#[derive(Debug)]
struct Direction {
    /// They keep no device alive, but the addresses by which it is found from being those of other devices.
    ends: [Weak<DeviceInner>; 2],
    /// Whether the first can use the second's memory, once that was asked and, if so, enabled.
    enabled: Arc<Mutex<Option<bool>>>,
}

type Directions = HashMap<[usize; 2], Direction>;

static DIRECTIONS: Mutex<Option<Directions>> = Mutex::new(None);

/// The state of a direction. It is made if there is none.
fn direction(from: &Device, to: &Device) -> Arc<Mutex<Option<bool>>> {
    let ends = [&from.0, &to.0];
    let key = ends.map(|end| Arc::as_ptr(end).addr());
    let mut directions = DIRECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let directions = directions.get_or_insert_default();
    if let Some(known) = directions.get(&key) {
        return Arc::clone(&known.enabled);
    }
    directions.retain(|_, known| known.ends.iter().all(|end| end.strong_count() > 0));
    let new = Direction { ends: ends.map(Arc::downgrade), enabled: Arc::default() };
    Arc::clone(&directions.entry(key).or_insert(new).enabled)
}

/// Lets `from` use the memory of `to`, unless that was done or cannot be.
fn enable_direction(from: &Device, to: &Device) -> Result<bool> {
    let direction = direction(from, to);
    let mut enabled = direction.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = *enabled {
        return Ok(known);
    }
    let can = from.can_access_peer(to)?;
    if can {
        to.memory().allow_peer(from)?;
    }
    *enabled = Some(can);
    Ok(can)
}

/// Lets `from` use the memory of `to`, and the other way round where that is possible. False, and nothing done, when
/// `from` cannot. The driver is asked at the first call for two opened devices, and after one that failed.
///
/// # Errors
/// [`Error::DeviceLost`] of either, [`Error::Forked`]; whatever the driver reports.
pub(crate) fn enable_access(from: &Device, to: &Device) -> Result<bool> {
    // Before a lock is taken, which a forked process may never get.
    from.0.health.check(from.id())?;
    to.0.health.check(to.id())?;
    if from.ptr_eq(to) {
        return Ok(true);
    }
    let can = enable_direction(from, to)?;
    if can {
        match enable_direction(to, from) {
            Ok(_) | Err(Error::NoPeerAccess { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(can)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::emulated::{Call, EmulatedDriver};
    use crate::memory::DeviceBuffer;
    use crate::memory::options::AllocatorOptions;

    fn devices() -> (Arc<EmulatedDriver>, [Device; 3]) {
        let driver = EmulatedDriver::builder().devices(3).memory(1 << 30).build();
        let devices = [0, 1, 2].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
        (driver, devices)
    }

    #[test]
    fn pairs_are_told_without_opening_a_device() {
        let driver = EmulatedDriver::builder().devices(3).build();
        let pairs = pairs(&*driver, DeviceId::Emulated(0)).unwrap();
        let ordinals: Vec<_> = pairs.iter().map(|p| (p.device.ordinal(), p.peer.ordinal())).collect();
        assert_eq!(ordinals, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        assert!(pairs.iter().all(|pair| pair.access && pair.link == LinkKind::Emulated));
        assert_eq!(driver.calls(Call::ContextRetain), 0);
        driver.fail_call(Call::PeerCanAccess, 3);
        super::pairs(&*driver, DeviceId::Emulated(0)).unwrap_err();
    }

    #[test]
    fn access_is_enabled_once_in_both_directions() {
        let (driver, [first, second, third]) = devices();
        assert!(enable_access(&first, &second).unwrap());
        assert_eq!(driver.calls(Call::PeerEnable), 2);
        driver.reset_calls();
        assert!(enable_access(&first, &second).unwrap() && enable_access(&second, &first).unwrap());
        assert!(enable_access(&first.clone(), &first).unwrap(), "a device reaches its own memory");
        assert_eq!((driver.calls(Call::PeerEnable), driver.calls(Call::PeerCanAccess)), (0, 0));
        assert!(enable_access(&third, &second).unwrap());
        assert_eq!(driver.calls(Call::PeerEnable), 2);
    }

    #[test]
    fn threads_that_ask_at_once_enable_once() {
        for _ in 0..20 {
            let (driver, [first, second, third]) = devices();
            let pairs = [(&first, &second), (&second, &first), (&second, &third), (&third, &first)];
            std::thread::scope(|scope| {
                for (from, to) in pairs.into_iter().cycle().take(16) {
                    scope.spawn(move || assert!(enable_access(from, to).unwrap()));
                }
            });
            assert_eq!(driver.calls(Call::PeerEnable), 6);
        }
    }

    #[test]
    fn devices_of_two_drivers_do_not_reach_each_other() {
        let ((driver, [first, ..]), (_, [_, other, _])) = (devices(), devices());
        assert!(!enable_access(&first, &other).unwrap());
        assert_eq!((first.can_access_peer(&other).unwrap(), first.link(&other)), (false, LinkKind::Unknown));
        assert_eq!(driver.calls(Call::PeerEnable), 0);
    }

    #[test]
    fn after_a_failure_it_is_tried_again() {
        let (driver, [first, second, _]) = devices();
        driver.fail_call(Call::PeerEnable, 0);
        enable_access(&first, &second).unwrap_err();
        driver.fail_call(Call::PeerEnable, 1);
        enable_access(&first, &second).unwrap_err();
        assert!(enable_access(&first, &second).unwrap());
        // Failed, done, failed, done: the direction that was done is not done again.
        assert_eq!(driver.calls(Call::PeerEnable), 4);
    }

    #[test]
    fn a_device_opened_anew_is_enabled_anew() {
        let (driver, [first, second, third]) = devices();
        drop(third);
        enable_access(&first, &second).unwrap();
        drop(second);
        driver.reset_calls();
        for _ in 0..10 {
            let second = Device::with_driver(driver.clone(), 1).unwrap();
            assert!(enable_access(&second, &first).unwrap());
        }
        assert_eq!((driver.calls(Call::ContextRetain), driver.calls(Call::PeerEnable)), (10, 20));
        let first_address = Arc::as_ptr(&first.0).addr();
        let _third = Device::with_driver(driver.clone(), 2).unwrap();
        enable_access(&_third, &first).unwrap();
        let directions = DIRECTIONS.lock().unwrap();
        let of_first = directions.as_ref().unwrap().keys().filter(|key| key.contains(&first_address)).count();
        assert_eq!(of_first, 2, "what was known of devices that are gone is forgotten");
    }

    #[test]
    fn a_lost_device_is_an_error() {
        let (driver, [first, second, _]) = devices();
        driver.poison(
            1,
            crate::driver::Fault {
                kind: crate::driver::FaultKind::Other,
                message: "ordered".to_owned(),
                location: None,
                kernel: None,
                block: None,
                thread: None,
            },
        );
        second.synchronize().unwrap_err();
        for (from, to) in [(&first, &second), (&second, &first)] {
            let error = enable_access(from, to).unwrap_err();
            assert!(matches!(error, Error::DeviceLost { device: DeviceId::Emulated(1), .. }), "{error}");
        }
        assert_eq!(driver.calls(Call::PeerEnable), 0);
    }

    #[test]
    fn memory_that_is_mapped_is_opened_to_the_peer() {
        let (driver, [first, second, _]) = devices();
        let options = AllocatorOptions { expandable_segments: true, ..AllocatorOptions::default() };
        second.memory().set_options(options).unwrap();
        let buffer = DeviceBuffer::<u8>::zeros(&second.default_stream(), 100).unwrap();
        driver.reset_calls();
        assert!(enable_access(&first, &second).unwrap());
        assert!(driver.calls(Call::VirtualSetAccess) > 0);
        drop(buffer);
    }

    #[test]
    fn links_are_told_in_a_few_words() {
        let texts =
            [LinkKind::NvLink(18), LinkKind::PcieHost, LinkKind::Unknown].map(|link| link.to_string());
        assert_eq!(texts, ["NVLink x18", "PCIe host bridge", "unknown"]);
        assert_eq!(format!("{:>8}", LinkKind::Unknown), " unknown");
    }
}
