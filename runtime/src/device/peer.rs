//! Peer access: querying and enabling direct access between devices' memory.
//!
//! Access is enabled once per direction for each pair of opened devices, by the first thread that requests it. Other
//! threads wait for that thread. A device reopened after being lost counts as a new device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Device, DeviceInner};
use crate::error::{Error, Result};

impl Device {
    /// Returns true if this device can read and write the memory of `peer` directly. A device can always access its own
    /// memory. Copies between devices work with and without peer access, but are faster with it.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let device = Device::emulated(0)?;
    /// assert!(device.can_access_peer(&device)?);
    /// # Ok::<(), warpsmith_runtime::Error>(())
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

    /// Returns the number of NVLinks that connect this device and `peer`, directly or through a switch. Returns 0 if
    /// there are no NVLinks, or if the system does not report them.
    pub fn nvlinks(&self, peer: &Device) -> u32 {
        if self.has_driver_of(peer) && self.ordinal() != peer.ordinal() && !self.is_forked() {
            self.0.driver.peer_nvlinks(self.ordinal(), peer.ordinal())
        } else {
            0
        }
    }

    fn has_driver_of(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0.driver, &other.0.driver)
    }
}

/// One direction of access between two opened devices.
#[derive(Debug)]
struct Direction {
    /// Weak references to the two devices. They keep the addresses that identify the devices from being reused.
    ends: [Weak<DeviceInner>; 2],
    /// True if the first device can access the second's memory; `None` until access has been queried and, if supported,
    /// enabled.
    enabled: Arc<Mutex<Option<bool>>>,
}

type Directions = HashMap<[usize; 2], Direction>;

static DIRECTIONS: Mutex<Option<Directions>> = Mutex::new(None);

/// Returns the state for a direction of access, creating it if necessary.
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

/// Enables access of `from` to the memory of `to`, unless it is already enabled or not supported.
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

/// Enables access of `from` to the memory of `to`, and access in the opposite direction if it is supported. Returns
/// false and does nothing if `from` does not support it. The driver is called only by the first call for a pair of
/// opened devices, and again after a failed call.
///
/// # Errors
/// Returns [`Error::DeviceLost`] if either device is lost, [`Error::Forked`], or any [driver
/// error](crate::Error::Driver).
pub(crate) fn enable_access(from: &Device, to: &Device) -> Result<bool> {
    // Checked before the lock is acquired, which a forked process might never acquire.
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
