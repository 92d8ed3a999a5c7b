//! Per-test devices, random data, and kernels.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

mod kernels;

use std::sync::Arc;

use gpu_spec::Kernel;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, GpuImage, Module, Stream, TypedKernel};

pub use self::kernels::*;

pub static IMAGE: GpuImage = GpuImage::without_code("test-kernels", "0.0.0", "hand-written");

/// Creates a separate driver, so that tests do not disturb each other.
pub fn driver(devices: u32) -> Arc<EmulatedDriver> {
    EmulatedDriver::builder().devices(devices).memory(1 << 30).build()
}

pub fn device() -> (Arc<EmulatedDriver>, Device) {
    let driver = driver(1);
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

/// Creates devices of one driver.
pub fn devices<const N: usize>() -> (Arc<EmulatedDriver>, [Device; N]) {
    let driver = driver(N as u32);
    let devices = std::array::from_fn(|ordinal| Device::with_driver(driver.clone(), ordinal as u32).unwrap());
    (driver, devices)
}

/// Creates a device with a stream.
pub fn fixture() -> (Arc<EmulatedDriver>, Device, Stream) {
    let (driver, device, [stream]) = streams_fixture();
    (driver, device, stream)
}

/// Creates a device with several streams.
pub fn streams_fixture<const N: usize>() -> (Arc<EmulatedDriver>, Device, [Stream; N]) {
    let (driver, device) = device();
    let streams = std::array::from_fn(|_| Stream::new(&device).unwrap());
    (driver, device, streams)
}

/// Creates a device with a stream and a kernel.
pub fn kernel_fixture<K: Kernel>() -> (Arc<EmulatedDriver>, Device, Stream, TypedKernel<K>) {
    let (driver, device, stream) = fixture();
    let kernel = module(&device).kernel().unwrap();
    (driver, device, stream, kernel)
}

pub fn module(device: &Device) -> Module {
    device.load(&IMAGE).unwrap()
}

/// Returns a random number generator whose seed differs from run to run. A failing test prints the seed.
pub fn random() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    fastrand::Rng::with_seed(seed)
}

/// Returns `n` random floats between -128 and 128.
pub fn floats(random: &mut fastrand::Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| random.f32() * 256.0 - 128.0).collect()
}

/// Element counts that are edge cases for loops.
pub const ODD_SIZES: [usize; 12] = [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1025, 65537];
