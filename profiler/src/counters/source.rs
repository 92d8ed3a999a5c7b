//! [`Source`]: the driver's counters. Its methods are called by an observer, for one operation of the process at a time.

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::counters::{Counted, CounterResult, CounterSetup};

pub(super) trait Source: Send + Sync {
    /// Prepares a device.
    fn open(&self, device: &Device) -> CounterResult<CounterSetup>;
    /// Counts what is enqueued on the device from now on.
    fn begin(&self, device: &Device) -> CounterResult<()>;
    /// What was counted since.
    fn end(&self, device: &Device) -> CounterResult<Counted>;
    /// Ends counting on a device that was prepared.
    fn close(&self, device: &Device);
}

/// The counters of the device's driver.
pub(super) struct DriverSource;

impl Source for DriverSource {
    fn open(&self, device: &Device) -> CounterResult<CounterSetup> {
        // SAFETY: here and below, the device is alive, and its context stays retained during the call.
        let (driver, context) = unsafe { device.driver() };
        driver.counters_open(context)
    }

    fn begin(&self, device: &Device) -> CounterResult<()> {
        // SAFETY: see `open`.
        let (driver, context) = unsafe { device.driver() };
        driver.counters_begin(context)
    }

    fn end(&self, device: &Device) -> CounterResult<Counted> {
        // SAFETY: see `open`.
        let (driver, context) = unsafe { device.driver() };
        driver.counters_end(context)
    }

    fn close(&self, device: &Device) {
        // SAFETY: see `open`.
        let (driver, context) = unsafe { device.driver() };
        driver.counters_close(context);
    }
}
