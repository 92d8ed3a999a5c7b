//! Tests that a GPU must pass like the emulated device, on the device under test: `WARPSMITH_TEST_DEVICE`, or the
//! emulated device if it is not set. A missing device fails the tests.

mod activity_on_gpu;
mod allocator;
#[cfg(unix)]
#[path = "../common/alone.rs"]
mod alone;
mod captured_uses;
mod collectives;
mod driver;
mod driver_graphs;
mod fixture;
mod streams;
mod telemetry;
mod transfer;
#[path = "../common/transfers.rs"]
mod transfers;
#[path = "../common/under_test.rs"]
mod under_test;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the lock for tests that must not run concurrently with others on the device, because they capture, block a
/// stream, or query the free memory of the whole device.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
