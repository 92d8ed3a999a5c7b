//! What tests of libraries share: the device under test, and numbers.

use std::sync::Arc;

use warpsmith_runtime::Device;

/// The device under test, with caches of its own. One that is not there fails the test.
pub fn device() -> Device {
    let name = std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let shared = Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_TEST_DEVICE={name}: {error}"));
    // SAFETY: what goes into its methods is of this device and alive.
    Device::with_driver(Arc::clone(unsafe { shared.driver() }.0), shared.id().ordinal()).unwrap()
}

/// Numbers from -1 to 1, the same for the same seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn number(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 30) as f64 - 1.0
    }
}
