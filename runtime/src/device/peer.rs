//! Which devices reach each other's memory, and letting them.
//!
//! Access is enabled once for a pair of opened devices and a direction, whichever thread asks first; the others wait
//! until it is done. A device that is lost and opened again is another opened device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Device, DeviceInner};
use crate::error::{Error, Result};

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

    /// The number of NVLinks by which this device and `peer` are connected, directly or through a switch. 0 where there
    /// are none, or the system does not say.
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

/// One direction between two opened devices.
#[derive(Debug)]
struct Direction {
    /// They keep no device alive, but the addresses by which it is found from being those of other devices.
    ends: [Weak<DeviceInner>; 2],
    /// Whether the first can use the second's memory, once that was queried and, if so, enabled.
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
/// `from` cannot. The driver is queried at the first call for two opened devices, and after one that failed.
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
