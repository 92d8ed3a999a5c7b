//! CUPTI calls, with errors that name the cause and the remedy.

use super::library::RangeProfiler;
use crate::counters::{CounterError, CounterPermission, CounterResult, Obstacle};
use crate::cuda::cupti::{Cupti, Status, status};

/// CUPTI functions for the counter session of a device.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    pub cupti: &'static Cupti,
    pub functions: &'static RangeProfiler,
    /// Ordinal of the device.
    pub device: u32,
}

impl Calls {
    /// Converts a status to an error.
    pub fn check(&self, call: &'static str, result: Status) -> CounterResult<()> {
        let device = |obstacle| CounterError::Device { device: self.device, obstacle };
        let in_use = |by: &str| CounterError::InUse { by: by.to_owned() };
        Err(match result {
            status::SUCCESS => return Ok(()),
            status::INSUFFICIENT_PRIVILEGES | status::VIRTUALIZED_INSUFFICIENT_PRIVILEGES => {
                let permission = CounterPermission::of_process();
                CounterError::NotPermitted { call, text: self.cupti.text(result), permission }
            }
            status::MULTIPLE_SUBSCRIBERS => CounterError::InUse { by: self.cupti.other_subscriber() },
            status::HARDWARE_BUSY => in_use("another process or tool"),
            status::OLD_PROFILER_INITIALIZED => {
                in_use("code in this process that uses CUPTI's older event API")
            }
            status::VIRTUALIZED_DEVICE => device(Obstacle::VirtualGpu),
            status::CONFIDENTIAL_COMPUTING => device(Obstacle::ConfidentialComputing),
            status::MINING_PROCESSOR => device(Obstacle::MiningProcessor),
            status::MIG_DEVICE => device(Obstacle::Mig),
            status::SLI_DEVICE => device(Obstacle::Sli),
            status::WSL_DEVICE => device(Obstacle::Wsl),
            code => CounterError::Cupti { call, code, text: self.cupti.text(code) },
        })
    }
}
