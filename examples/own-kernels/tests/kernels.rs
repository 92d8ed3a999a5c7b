//! Compares the kernels with plain Rust, on the device that `WARPSMITH_TEST_DEVICE` names. By default, each test has its
//! own emulated device.

use warpsmith::emulated::EmulatedDriver;
use warpsmith::{Device, Error};

const LENGTHS: [usize; 8] = [0, 1, 2, 255, 256, 257, 1000, 4097];

fn device() -> Result<Device, Error> {
    match std::env::var("WARPSMITH_TEST_DEVICE") {
        Ok(name) => Device::open(&name),
        // With its own driver, a test does not fail because of a fault in another test.
        Err(_) => Device::with_driver(EmulatedDriver::from_environment(), 0),
    }
}

/// Returns random numbers from -0.5 to 0.5, the same in each run.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..len).map(|_| next()).collect()
}

/// Panics unless all elements are equal except for rounding: a GPU rounds a product and a sum once, a CPU twice.
fn assert_close(found: &[f32], expected: &[f32]) {
    let len = expected.len();
    assert_eq!(found.len(), len);
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-6, "element {i} of {len} is {found}, not {expected} ± 1e-6");
    }
}

#[test]
fn saxpy_equals_the_cpu() -> Result<(), Error> {
    let device = device()?;
    for len in LENGTHS {
        let (x, y) = (numbers(1, len), numbers(2, len));
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| y + 3.0 * x).collect();
        assert_close(&own_kernels::saxpy(&device, 3.0, &x, &y)?, &expected);
    }
    Ok(())
}

#[test]
fn smooth_equals_the_cpu() -> Result<(), Error> {
    let device = device()?;
    for len in LENGTHS {
        let data = numbers(3, len);
        let at = |i: usize| data[i.min(len - 1)];
        let expected: Vec<f32> =
            (0..len).map(|i| (at(i.saturating_sub(1)) + at(i) + at(i + 1)) / 3.0).collect();
        assert_close(&own_kernels::smooth(&device, &data)?, &expected);
    }
    Ok(())
}
