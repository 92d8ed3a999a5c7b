//! Shared code for the tests of page-locked memory.
#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::c_void;
use std::time::{Duration, Instant};

use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::memory::statistics::HostMemoryStatistics;
use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer, Stream};

pub fn zeroed(device: &Device, bytes: usize) -> PinnedBuffer<u8> {
    PinnedBuffer::zeroed(device, bytes).unwrap()
}

pub fn statistics(device: &Device) -> HostMemoryStatistics {
    device.pinned_memory().statistics()
}

/// Enqueues a copy to the device and records the use of the page-locked memory.
pub fn send(stream: &Stream, from: &PinnedBuffer<u8>, to: &DeviceBuffer<u8>) {
    assert!(from.len() <= to.len());
    // SAFETY: its methods receive only live handles and memory of this device.
    let (driver, context) = unsafe { stream.device().driver() };
    // SAFETY: `record_use` keeps the pinned memory alive, and the tests keep the device buffer until the stream has
    // been waited for.
    unsafe {
        let source: *const c_void = from.as_ptr().cast();
        driver.copy_to_device(context, to.as_device_ptr(), source, from.len(), stream.handle()).unwrap();
    }
    from.record_use(stream).unwrap();
}

pub fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn panicked() -> Fault {
    Fault {
        kind: FaultKind::Panic,
        message: "told to".to_owned(),
        location: None,
        kernel: None,
        block: None,
        thread: None,
    }
}
