//! What a program sees of a check of its kernels, with the memory and the streams of the runtime, in a program that
//! `warpsmith check` builds: `cargo xtask check-kernels`. Without it there is nothing here.
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

/// A device of the test's own.
fn device() -> Device {
    Device::with_driver(EmulatedDriver::builder().memory(1 << 30).build(), 0).unwrap()
}

/// The same, whose freed buffers are kept and cut into others.
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
