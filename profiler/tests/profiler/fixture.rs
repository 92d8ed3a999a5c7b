//! Devices for tests, and searches in traces.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;

use warpsmith_profiler::trace::{Call, Kernel, Library, Name, Trace};
use warpsmith_profiler::{Profiler, ProfilerOptions};
use warpsmith_runtime::emulated::{EmulatedDriver, SimulatedWork};
use warpsmith_runtime::{Device, Stream};

/// Creates a device with simulated time, with 5 us per kernel and 1/1000 us per byte.
pub fn simulated() -> (Arc<EmulatedDriver>, Device) {
    let model = |work: &SimulatedWork<'_>| match work {
        SimulatedWork::Kernel { .. } => 5.0,
        SimulatedWork::Copy { bytes } | SimulatedWork::Set { bytes } => *bytes as f64 / 1e3,
    };
    let driver = EmulatedDriver::builder().memory(1 << 30).simulated_time(model).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

pub fn start() -> Profiler {
    Profiler::start(ProfilerOptions::default()).unwrap()
}

pub fn text(trace: &Trace, name: Name) -> String {
    trace.text(name).to_owned()
}

/// Returns the driver calls of a function.
pub fn driver_calls<'a>(trace: &'a Trace, function: &str) -> Vec<&'a Call> {
    let is_call = |call: &&Call| call.library == Library::Driver && trace.text(call.name) == function;
    trace.calls.iter().filter(is_call).collect()
}

/// Returns the call that launched a kernel.
pub fn call_of<'a>(trace: &'a Trace, kernel: &Kernel) -> &'a Call {
    let found = trace.calls.iter().find(|call| call.correlation == kernel.correlation);
    found.expect("a call has the kernel's correlation")
}

/// Checks that no record is missing, and that no kernel starts before its call.
pub fn check(trace: &Trace) {
    let loss = trace.definitions.loss;
    assert_eq!(loss.unaccounted(), 0, "{loss:?}");
    assert_eq!(loss.issued, loss.recorded + loss.dropped + loss.zero_time, "{loss:?}");
    for kernel in &trace.kernels {
        assert!(call_of(trace, kernel).start <= kernel.start, "{kernel:?}");
    }
}

pub fn streams<const N: usize>(device: &Device) -> [Stream; N] {
    std::array::from_fn(|_| Stream::new(device).unwrap())
}
