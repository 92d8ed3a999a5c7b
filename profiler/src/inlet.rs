//! [`Inlet`]: receives the records of a driver after the driver [starts](start) to record.

use std::sync::Arc;

use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::driver::activity::{Activity, ActivitySink, ActivityStarted};

use crate::error::{ProfilerError, Result};
use crate::raw::{Call, DriverIndex, Raw};
use crate::recording::Recording;
use crate::recording::log::with_local;

/// Receives the records of a driver. See the [module documentation](self).
pub(crate) struct Inlet {
    recording: Arc<Recording>,
    driver: DriverIndex,
}

/// Starts recording a driver, unless it is already being recorded, is excluded, or the recording is ending. Only one
/// driver can start at a time.
pub(crate) fn start(recording: &Arc<Recording>, driver: &Arc<dyn Driver>) -> Result<()> {
    let Some(_starting) = recording.begin_starting() else { return Ok(()) };
    let Some(index) = recording.add_driver(driver)? else { return Ok(()) };
    let inlet = Arc::new(Inlet { recording: Arc::clone(recording), driver: index });
    match driver.activity_start(&recording.activity, inlet) {
        Ok(ActivityStarted { source }) => {
            recording.note(&format!("{} records", driver.name()), source);
            Ok(())
        }
        Err(error) => {
            // Host activity is recorded in any case.
            recording.note(&format!("{} records", driver.name()), format!("none: {error}"));
            Err(ProfilerError::Driver { driver: driver.name(), error }.into())
        }
    }
}

impl ActivitySink for Inlet {
    fn record(&self, activity: &Activity<'_>) {
        let Self { recording, driver } = self;
        let driver = *driver;
        with_local(recording, |local| {
            let raw = match *activity {
                Activity::Kernel {
                    start,
                    end,
                    place,
                    symbol,
                    grid,
                    block,
                    registers,
                    static_shared,
                    dynamic_shared,
                } => Raw::Kernel {
                    driver,
                    start,
                    end,
                    place,
                    symbol: local.name(recording, symbol),
                    grid,
                    block,
                    registers,
                    shared_static: static_shared,
                    shared_dynamic: dynamic_shared,
                },
                Activity::Transfer { start, end, place, kind, bytes } => {
                    Raw::Transfer { driver, start, end, place, kind, bytes }
                }
                Activity::Wait { start, end, place, kind } => Raw::Wait { driver, start, end, place, kind },
                Activity::Call { start, end, thread, correlation, function } => {
                    let function = local.name(recording, function);
                    Raw::Call(Call { driver, start, end, thread, correlation, function })
                }
                Activity::Overhead { start, end, what } => {
                    Raw::Overhead { start, end, what: local.name(recording, what) }
                }
                // Range records of the driver are ignored, because ranges are joined with work through the operations
                // inside them.
                _ => return,
            };
            local.push(recording, raw);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use warpsmith_emulated::EmulatedDriver;
    use warpsmith_runtime::driver::activity::ActivityOptions;

    use super::*;

    #[test]
    fn threads_that_start_a_driver_add_it_once() {
        const THREADS: usize = 4;
        for _ in 0..500 {
            let driver: Arc<dyn Driver> = EmulatedDriver::builder().build();
            let recording = Recording::new(Vec::new(), ActivityOptions::default());
            let barrier = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        barrier.wait();
                        start(&recording, &driver).unwrap();
                    });
                }
            });
            assert_eq!(recording.drivers().len(), 1);
            driver.activity_stop().unwrap();
        }
    }

    #[test]
    fn no_driver_starts_after_the_end() {
        let driver: Arc<dyn Driver> = EmulatedDriver::builder().build();
        let recording = Recording::new(Vec::new(), ActivityOptions::default());
        recording.end_starting();
        start(&recording, &driver).unwrap();
        assert_eq!(recording.drivers().len(), 0);
    }
}
