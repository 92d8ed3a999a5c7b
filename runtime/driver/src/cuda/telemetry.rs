//! Clocks, temperature and power, as far as the management library reports them.
//!
//! A device is looked up in the library once; querying its clock then allocates nothing. A part of a device (MIG)
//! has no clocks of its own and reports those of the whole.

use std::sync::OnceLock;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use super::management;
use crate::Telemetry;

/// The devices of the process in the management library, each looked up at its first use.
#[derive(Debug)]
pub(super) struct Sensors(Box<[OnceLock<Option<Device<'static>>>]>);

impl Sensors {
    pub(super) fn new(devices: u32) -> Self {
        Self((0..devices).map(|_| OnceLock::new()).collect())
    }

    fn device(&self, ordinal: u32) -> Option<&Device<'static>> {
        let find = || {
            let device = management::device(ordinal)?;
            Some(device.mig_parent_device().unwrap_or(device))
        };
        self.0.get(ordinal as usize)?.get_or_init(find).as_ref()
    }

    pub(super) fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.device(ordinal)?.clock_info(Clock::SM).ok()
    }

    pub(super) fn read(&self, ordinal: u32) -> Telemetry {
        let Some(device) = self.device(ordinal) else { return Telemetry::default() };
        let watts = |milliwatts| f64::from(milliwatts) / 1000.0;
        let utilization = device.utilization_rates().ok();
        Telemetry {
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            max_sm_clock_mhz: device.max_clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            power_w: device.power_usage().ok().map(watts),
            power_limit_w: device.enforced_power_limit().ok().map(watts),
            memory_used: device.memory_info().ok().map(|memory| memory.used),
            utilization_percent: utilization.as_ref().map(|percent| percent.gpu),
            memory_utilization_percent: utilization.map(|percent| percent.memory),
            throttle_reasons: device.current_throttle_reasons().map(names).unwrap_or_default(),
            driver_version: management::driver_version(),
        }
    }
}

/// The names of the reasons, in lower case.
fn names(reasons: ThrottleReasons) -> Vec<String> {
    reasons.iter_names().filter(|(_, bits)| !bits.is_empty()).map(|(name, _)| name.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_of_the_management_library() {
        let both = ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(names(both), ["gpu_idle", "sw_power_cap"]);
        assert!(names(ThrottleReasons::NONE).is_empty());
    }

    #[test]
    fn a_device_that_is_not_there_tells_nothing() {
        let sensors = Sensors::new(0);
        assert_eq!(sensors.read(0), Telemetry::default());
        assert_eq!(sensors.sm_clock_mhz(0), None);
    }
}
