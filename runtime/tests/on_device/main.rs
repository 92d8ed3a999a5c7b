//! What a GPU must do as the emulated device does, on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one
//! when it is not set. A device that is not there fails the tests.

mod activity_on_gpu;
mod allocator;
#[path = "../common/alone.rs"]
mod alone;
mod captured_uses;
mod collectives;
mod driver;
mod driver_graphs;
mod rig;
mod streams;
mod telemetry;
mod transfer;
#[path = "../common/transfers.rs"]
mod transfers;
#[path = "../common/under_test.rs"]
mod under_test;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For tests that must not run at once, not even with others on the device: those that capture, that block a stream, or
/// that look at how much memory the whole device has free.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
