//! [`Source`]: the driver's counters. The observer calls the methods for one operation of the process at a time.

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::counters::{Counted, CounterResult, CounterSetup};

pub(super) trait Source: Send + Sync {
    fn open(&self, device: &Device) -> CounterResult<CounterSetup>;
    /// Starts counting the work that is enqueued on the device.
    fn begin(&self, device: &Device) -> CounterResult<()>;
    /// Returns the counts since [`Self::begin`].
    fn end(&self, device: &Device) -> CounterResult<Counted>;
    fn close(&self, device: &Device);
}

/// Counters of the device's driver.
pub(super) struct DriverSource;

impl Source for DriverSource {
    fn open(&self, device: &Device) -> CounterResult<CounterSetup> {
        // SAFETY: here and below, the device is alive, and its context is retained during the call.
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
