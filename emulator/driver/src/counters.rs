//! Hardware counters, which the emulated device does not support.

use super::EmulatedDriver;
use warpsmith_driver::Context;
use warpsmith_driver::counters::{Counted, CounterDriver, CounterError, CounterResult, CounterSetup};

fn none<T>() -> CounterResult<T> {
    Err(CounterError::Unsupported { driver: "emulated" })
}

impl CounterDriver for EmulatedDriver {
    fn counters_open(&self, _: Context) -> CounterResult<CounterSetup> {
        none()
    }

    fn counters_begin(&self, _: Context) -> CounterResult<()> {
        none()
    }

    fn counters_end(&self, _: Context) -> CounterResult<Counted> {
        none()
    }

    fn counters_close(&self, _: Context) {}
}
