//! Devices of their own for tests, random data, and kernels.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

mod kernels;

use std::sync::Arc;

use warpsmith_runtime::driver::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, GpuImage, Module};

pub use self::kernels::*;

pub static IMAGE: GpuImage = GpuImage::without_code("test-kernels", "0.0.0", "hand-written");

/// A driver of its own, so that tests do not disturb each other.
pub fn driver(devices: u32) -> Arc<EmulatedDriver> {
    EmulatedDriver::builder().devices(devices).memory(1 << 30).build()
}

pub fn device() -> (Arc<EmulatedDriver>, Device) {
    let driver = driver(1);
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

pub fn module(device: &Device) -> Module {
    device.load(&IMAGE).unwrap()
}

/// Random numbers that differ from run to run.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        println!("seed {seed:#x}");
        Self::from_seed(seed)
    }

    pub fn from_seed(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / 65536.0 - 128.0).collect()
    }
}

/// Numbers of elements at which loops go wrong.
pub const ODD_SIZES: [usize; 12] = [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1025, 65537];
