//! Clocks, temperature and power, as reported by NVML.
//!
//! A device is looked up in NVML once, so that later queries of its clock allocate no memory. A MIG instance reports
//! the clocks of the entire GPU.

use std::sync::OnceLock;

use nvml_wrapper_sys::bindings as nvml;

use super::management::{self, Device};
use crate::Telemetry;

const SM: nvml::nvmlClockType_t = nvml::nvmlClockType_enum_NVML_CLOCK_SM;
const MEMORY: nvml::nvmlClockType_t = nvml::nvmlClockType_enum_NVML_CLOCK_MEM;

/// NVML devices of the process, each looked up on first use.
#[derive(Debug)]
pub(super) struct Sensors(Box<[OnceLock<Option<Device<'static>>>]>);

impl Sensors {
    pub(super) fn new(devices: u32) -> Self {
        Self((0..devices).map(|_| OnceLock::new()).collect())
    }

    fn device(&self, ordinal: u32) -> Option<&Device<'static>> {
        let find = || {
            let device = management::device(ordinal)?;
            Some(device.whole().unwrap_or(device))
        };
        self.0.get(ordinal as usize)?.get_or_init(find).as_ref()
    }

    pub(super) fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.device(ordinal)?.clock_mhz(SM)
    }

    pub(super) fn read(&self, ordinal: u32) -> Telemetry {
        let Some(device) = self.device(ordinal) else { return Telemetry::default() };
        let watts = |milliwatts| f64::from(milliwatts) / 1000.0;
        let utilization = device.utilization();
        Telemetry {
            sm_clock_mhz: device.clock_mhz(SM),
            max_sm_clock_mhz: device.max_clock_mhz(SM),
            memory_clock_mhz: device.clock_mhz(MEMORY),
            temperature_c: device.sensor_c(nvml::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU),
            power_w: device.power_mw().map(watts),
            power_limit_w: device.power_limit_mw().map(watts),
            memory_used: device.memory_used(),
            utilization_percent: utilization.map(|[multiprocessors, _]| multiprocessors),
            memory_utilization_percent: utilization.map(|[_, memory]| memory),
            throttle_reasons: device.throttle_reasons().map(names).unwrap_or_default(),
            driver_version: management::driver_version(),
        }
    }
}

/// NVML's throttle reasons: bit and name.
const REASONS: [(u32, &str); 9] = [
    (nvml::nvmlClocksThrottleReasonGpuIdle, "gpu_idle"),
    (nvml::nvmlClocksThrottleReasonApplicationsClocksSetting, "applications_clocks_setting"),
    (nvml::nvmlClocksThrottleReasonSwPowerCap, "sw_power_cap"),
    (nvml::nvmlClocksThrottleReasonHwSlowdown, "hw_slowdown"),
    (nvml::nvmlClocksThrottleReasonSyncBoost, "sync_boost"),
    (nvml::nvmlClocksThrottleReasonSwThermalSlowdown, "sw_thermal_slowdown"),
    (nvml::nvmlClocksThrottleReasonHwThermalSlowdown, "hw_thermal_slowdown"),
    (nvml::nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake_slowdown"),
    (nvml::nvmlClocksThrottleReasonDisplayClockSetting, "display_clock_setting"),
];

fn names(reasons: u64) -> Vec<String> {
    let set = REASONS.iter().filter(|(bit, _)| reasons & u64::from(*bit) != 0);
    set.map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_of_the_management_library() {
        assert_eq!(names(0b101), ["gpu_idle", "sw_power_cap"]);
        assert!(names(0).is_empty());
    }

    #[test]
    fn a_device_that_is_not_there_tells_nothing() {
        let sensors = Sensors::new(0);
        assert_eq!(sensors.read(0), Telemetry::default());
        assert_eq!(sensors.sm_clock_mhz(0), None);
    }
}
