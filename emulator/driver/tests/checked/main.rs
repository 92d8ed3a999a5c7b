//! Tests of the kernel check from the point of view of a program that uses the runtime's memory and streams. The test
//! is empty unless `warpsmith check` builds it (`cargo xtask check-kernels`).
#![cfg(warpsmith_check)]

mod buffers;
mod errors;
mod names;
mod streams;

use gpu_std::Kernel;
use warpsmith_runtime::check::{Finding, FindingKind};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{AllocatorOptions, Device, GpuImage, TypedKernel};

static IMAGE: GpuImage = GpuImage::without_code(
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_VERSION"),
    "the tests are of the emulated device",
);

/// Creates a device for one test.
fn device() -> Device {
    Device::with_driver(EmulatedDriver::builder().memory(1 << 30).build(), 0).unwrap()
}

/// Creates a device that caches freed buffers and splits them into new ones.
fn caching_device() -> Device {
    let device = device();
    let options = AllocatorOptions { caching: true, ..device.memory().options() };
    device.memory().set_options(options).unwrap();
    device
}

fn kernel<K: Kernel>(device: &Device) -> TypedKernel<K> {
    device.load(&IMAGE).unwrap().kernel().unwrap()
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.kind).collect()
}
