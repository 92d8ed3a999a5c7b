//! Ranks for tests, also used by the unit tests of the Nccl backend.

use std::sync::Arc;
use std::time::Duration;

use warpsmith_collective::{Communicator, CommunicatorError, CommunicatorOptions, Failure};
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, Result, Stream};

/// Timeout that is longer than any step of a test.
pub const LONG: Duration = Duration::from_secs(120);

/// Returns options whose operations time out after this time.
pub fn timeout(milliseconds: u64) -> CommunicatorOptions {
    CommunicatorOptions::new().timeout(Duration::from_millis(milliseconds))
}

/// Returns streams of `world` emulated devices of one driver.
pub fn streams(world: usize) -> Vec<Stream> {
    streams_of(&EmulatedDriver::builder().devices(world as u32).build(), world)
}

/// Returns streams of the first devices of a driver.
pub fn streams_of(driver: &Arc<EmulatedDriver>, world: usize) -> Vec<Stream> {
    let device = |ordinal| Device::with_driver(driver.clone(), ordinal).expect("a device");
    (0..world as u32).map(|ordinal| Stream::new(&device(ordinal)).expect("a stream")).collect()
}

/// Returns a kernel fault.
pub fn fault() -> Fault {
    let (kind, message) = (FaultKind::Panic, "seeded".to_owned());
    Fault { kind, message, location: None, kernel: None, block: None, thread: None }
}

/// Calls a function for each rank on separate threads. Returns the results in rank order.
pub fn on_ranks<R: Send>(
    world: usize,
    options: &CommunicatorOptions,
    work: impl Fn(Communicator) -> R + Sync,
) -> Vec<R> {
    on_streams(&streams(world), options, work)
}

/// Calls a function for each rank like [`on_ranks`], with these streams.
pub fn on_streams<R: Send>(
    streams: &[Stream],
    options: &CommunicatorOptions,
    work: impl Fn(Communicator) -> R + Sync,
) -> Vec<R> {
    let ranks = Communicator::init_all(streams, options).expect("ranks connect");
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Returns the failure that an error reports.
#[track_caller]
pub fn failure<T>(result: Result<T>) -> Failure {
    match result {
        Err(error) => match error.downcast_ref::<CommunicatorError>() {
            Some(error) => error.failure.clone(),
            None => panic!("another error: {error}"),
        },
        Ok(_) => panic!("no error"),
    }
}
