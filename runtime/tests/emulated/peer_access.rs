//! Tests that peer access is enabled once per pair and direction, by the first copy that needs it.

use std::sync::Arc;

use crate::common::*;
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, DeviceId, Error, Result};

fn devices() -> (Arc<EmulatedDriver>, [Device; 3]) {
    let driver = driver(3);
    let devices = [0, 1, 2].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    (driver, devices)
}

/// Copies from one device to another.
fn copy(from: &Device, to: &Device) -> Result<()> {
    let source = DeviceBuffer::<u8>::zeros(&from.default_stream(), 1)?;
    let mut target = DeviceBuffer::<u8>::zeros(&to.default_stream(), 1)?;
    from.default_stream().copy(&source, &mut target)
}

#[test]
fn access_is_enabled_once_in_both_directions() {
    let (driver, [first, second, third]) = devices();
    copy(&first, &second).unwrap();
    assert_eq!(driver.calls(Call::PeerEnable), 2);
    driver.reset_calls();
    copy(&first, &second).unwrap();
    copy(&second, &first).unwrap();
    copy(&first.clone(), &first).unwrap();
    assert_eq!((driver.calls(Call::PeerEnable), driver.calls(Call::PeerCanAccess)), (0, 0));
    copy(&third, &second).unwrap();
    assert_eq!(driver.calls(Call::PeerEnable), 2);
}

#[test]
fn threads_that_ask_at_once_enable_once() {
    for _ in 0..20 {
        let (driver, [first, second, third]) = devices();
        let pairs = [(&first, &second), (&second, &first), (&second, &third), (&third, &first)];
        std::thread::scope(|scope| {
            for (from, to) in pairs.into_iter().cycle().take(16) {
                scope.spawn(move || copy(from, to).unwrap());
            }
        });
        assert_eq!(driver.calls(Call::PeerEnable), 6);
    }
}

#[test]
fn after_a_failure_it_is_tried_again() {
    let (driver, [first, second, _]) = devices();
    for after in [0, 1] {
        driver.fail_call(Call::PeerEnable, after);
        copy(&first, &second).unwrap_err();
    }
    copy(&first, &second).unwrap();
    // The four calls are one failure and one success in each direction. A direction that is enabled is not enabled
    // again.
    assert_eq!(driver.calls(Call::PeerEnable), 4);
}

#[test]
fn a_device_opened_anew_is_enabled_anew() {
    let (driver, [first, second, _]) = devices();
    copy(&first, &second).unwrap();
    drop(second);
    driver.reset_calls();
    for _ in 0..10 {
        let second = Device::with_driver(driver.clone(), 1).unwrap();
        copy(&second, &first).unwrap();
    }
    assert_eq!((driver.calls(Call::ContextRetain), driver.calls(Call::PeerEnable)), (10, 20));
}

#[test]
fn a_lost_device_is_an_error() {
    let (driver, [first, second, _]) = devices();
    let source = DeviceBuffer::<u8>::zeros(&first.default_stream(), 1).unwrap();
    let mut target = DeviceBuffer::<u8>::zeros(&second.default_stream(), 1).unwrap();
    let message = "ordered".to_owned();
    let fault =
        Fault { kind: FaultKind::Other, message, location: None, kernel: None, block: None, thread: None };
    driver.poison(1, fault);
    second.synchronize().unwrap_err();
    let error = first.default_stream().copy(&source, &mut target).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { device: DeviceId::Emulated(1), .. }), "{error}");
    assert_eq!(driver.calls(Call::PeerEnable), 0);
}

#[test]
fn mapped_memory_is_opened_to_the_peer() {
    let (driver, [first, second, _]) = devices();
    let options = AllocatorOptions { expandable_segments: true, ..AllocatorOptions::default() };
    second.memory().set_options(options).unwrap();
    let _buffer = DeviceBuffer::<u8>::zeros(&second.default_stream(), 100).unwrap();
    driver.reset_calls();
    copy(&first, &second).unwrap();
    assert!(driver.calls(Call::VirtualSetAccess) > 0);
}
