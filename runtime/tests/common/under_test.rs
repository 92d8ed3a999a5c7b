//! Device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set. A missing device fails the
//! test.

use std::sync::Arc;

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::emulated::EmulatedDriver;

/// Returns the device under test, which all tests of the process share.
pub fn shared_device() -> Device {
    let name = std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_TEST_DEVICE={name}: {error}"))
}

/// Returns the device under test, which must be a GPU. A test that needs a GPU must be ignored and must be in a module
/// `on_gpu`, so that it does not pass where it cannot run; see `CONTRIBUTING.md`.
#[allow(dead_code, reason = "each program uses some of it")]
pub fn gpu() -> Device {
    let device = device();
    assert!(!device.is_emulated(), "this test needs a GPU: set WARPSMITH_TEST_DEVICE=cuda:0");
    device
}

/// Returns the device under test with separate allocators, stream pools, handles and caches. An emulated device also
/// uses a separate driver, so that tests can run concurrently.
pub fn device() -> Device {
    let shared = shared_device();
    let driver: Arc<dyn Driver> = if shared.is_emulated() {
        EmulatedDriver::from_environment()
    } else {
        // SAFETY: its methods receive only live handles and memory of this device.
        Arc::clone(unsafe { shared.driver() }.0)
    };
    Device::with_driver(driver, shared.id().ordinal()).unwrap()
}
