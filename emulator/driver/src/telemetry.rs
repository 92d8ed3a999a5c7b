//! Telemetry of emulated devices, which report no values unless a test sets them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::EmulatedDriver;
use warpsmith_driver::Telemetry;

/// Callback that returns the SM clock at each query.
type ClockFn = Arc<dyn Fn() -> Option<u32> + Send + Sync>;

/// Telemetry of a driver's devices.
pub(super) struct Sensors(Mutex<Vec<Sensor>>);

#[derive(Clone, Default)]
struct Sensor {
    told: Telemetry,
    sm_clock: Option<ClockFn>,
}

impl Sensors {
    pub(super) fn new(devices: u32) -> Self {
        Self(Mutex::new(vec![Sensor::default(); devices as usize]))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Sensor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, ordinal: u32, set: impl FnOnce(&mut Sensor)) {
        if let Some(sensor) = self.all().get_mut(ordinal as usize) {
            set(sensor);
        }
    }

    pub(super) fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        let all = self.all();
        let sensor = all.get(ordinal as usize)?;
        let Some(clock) = sensor.sm_clock.clone() else { return sensor.told.sm_clock_mhz };
        // The lock is not held here, because the callback may be arbitrary code.
        drop(all);
        clock()
    }

    pub(super) fn read(&self, ordinal: u32) -> Telemetry {
        let told = self.all().get(ordinal as usize).map(|sensor| sensor.told.clone()).unwrap_or_default();
        Telemetry { sm_clock_mhz: self.sm_clock_mhz(ordinal), ..told }
    }
}

impl fmt::Debug for Sensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|sensor| &sensor.told)).finish()
    }
}

impl EmulatedDriver {
    /// Sets the telemetry that a device reports. The call is ignored if the device does not exist. All values are
    /// `None` by default.
    pub fn set_telemetry(&self, ordinal: u32, telemetry: Telemetry) {
        self.sensors.set(ordinal, |sensor| sensor.told = telemetry);
    }

    /// Calls `clock` at each query of a device's SM clock and returns the result, instead of the value set with
    /// [`Self::set_telemetry`]. Use this method to simulate a clock that changes while a program runs.
    pub fn on_sm_clock(&self, ordinal: u32, clock: impl Fn() -> Option<u32> + Send + Sync + 'static) {
        self.sensors.set(ordinal, |sensor| sensor.sm_clock = Some(Arc::new(clock)));
    }
}
