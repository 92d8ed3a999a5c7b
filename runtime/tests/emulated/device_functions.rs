//! Tests of the current device, device properties, availability of devices, and peer access.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::alone::only_alone;
use crate::common::*;
use warpsmith_runtime::device::{Uuid, visible};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Device, DeviceGuard, Launch};

#[test]
fn a_set_device_stays_until_changed() {
    let (_, [first, second, _]) = devices();
    first.set_current();
    assert_eq!(Device::current().unwrap(), first);
    let other = std::thread::spawn(|| Device::current().unwrap()).join().unwrap();
    assert_eq!(other, Device::best().unwrap(), "each thread has its own");
    second.set_current();
    assert_eq!(Device::current().unwrap(), second);
}

#[test]
fn guards_restore_whatever_was_current() {
    let (_, [first, second, third]) = devices();
    let outer = first.guard();
    {
        let _inner = second.guard();
        let _same = second.guard();
        third.set_current();
        assert_eq!(Device::current().unwrap(), third);
    }
    assert_eq!(Device::current().unwrap(), first);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = second.guard();
        panic!("on purpose");
    }));
    unwound.unwrap_err();
    assert_eq!(Device::current().unwrap(), first, "a panic restores it too");
    drop(outer);
    assert_eq!(Device::current().unwrap(), Device::best().unwrap());
}

#[test]
fn a_guard_ending_with_its_thread_is_harmless() {
    thread_local! {
        static KEPT: RefCell<Vec<DeviceGuard>> = const { RefCell::new(Vec::new()) };
    }
    let (_, [first, second, _]) = devices();
    let thread = std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| kept.extend([first.guard(), second.guard()]));
        Device::current().unwrap()
    });
    assert_eq!(thread.join().unwrap().ordinal(), 1);
}

#[test]
fn a_lost_best_device_is_opened_anew() {
    only_alone!("CUDA_VISIBLE_DEVICES" => "");
    let lost = Device::current().unwrap();
    let kernel = module(&lost).kernel::<PanicAt>().unwrap();
    kernel.launch(&lost.default_stream(), Launch::auto(1), (0u32,)).unwrap();
    lost.synchronize().unwrap_err();
    assert_eq!(Device::current().unwrap(), lost, "while it is held it is the one there is");
    drop((kernel, lost));
    let fresh = Device::current().unwrap();
    assert!(!fresh.is_lost());
    fresh.synchronize().unwrap();
}

#[test]
fn a_device_tells_what_it_is() {
    let (_, devices) = devices::<3>();
    for (index, device) in devices.iter().enumerate() {
        assert_eq!(device.ordinal() as usize, index);
        assert_eq!(device.capability(), device.properties().capability);
        assert_eq!(device.uuid(), Uuid(device.properties().uuid));
    }
    let uuids: HashSet<_> = devices.iter().map(Device::uuid).collect();
    assert_eq!(uuids.len(), 3);
    let text = devices[0].uuid().to_string();
    let groups: Vec<_> = text.split('-').map(str::len).collect();
    assert_eq!(groups, [3, 8, 4, 4, 4, 12], "{text}");
    assert_eq!(format!("{:?}", devices[0].uuid()), format!("Uuid({text})"));
}

#[test]
fn the_environment_sets_the_emulated_device_count() {
    only_alone!("WARPSMITH_EMULATED_DEVICES" => "3", "CUDA_VISIBLE_DEVICES" => "");
    assert_eq!(Device::emulated_count(), 3);
    let [first, third] = [0, 2].map(|ordinal| Device::emulated(ordinal).unwrap());
    assert!(first.can_access_peer(&third).unwrap());
    Device::emulated(3).unwrap_err();
}

#[test]
fn peers_are_devices_of_one_driver() {
    let (driver, [first, second]) = devices();
    let again = Device::with_driver(driver.clone(), 0).unwrap();
    let (_, stranger) = device();
    assert!(first.can_access_peer(&second).unwrap() && second.can_access_peer(&first).unwrap());
    assert!(first.can_access_peer(&first).unwrap() && first.can_access_peer(&again).unwrap());
    assert!(!first.can_access_peer(&stranger).unwrap());
    assert_eq!([&first, &second, &stranger].map(|peer| first.nvlinks(peer)), [0; 3]);
    driver.fail_call(Call::PeerCanAccess, 0);
    first.can_access_peer(&second).unwrap_err();
}

#[test]
fn availability_is_what_opening_finds() {
    let usable = Device::cuda_count().is_ok_and(|count| count > 0);
    assert_eq!(Device::is_available(), usable);
    assert_eq!(Device::cuda(0).is_ok(), usable);
    if let (Ok(count), Some(here)) = (Device::cuda_count(), visible::here()) {
        assert_eq!(here.devices.len(), count as usize, "{here:?}");
    }
}

#[test]
fn a_hidden_device_is_not_available() {
    only_alone!("CUDA_VISIBLE_DEVICES" => "-1");
    assert!(!Device::is_available());
    assert!(visible::here().is_none_or(|here| here.devices.is_empty()));
    assert!(Device::current().unwrap().is_emulated());
}
