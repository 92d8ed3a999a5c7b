//! Tests of copies between devices, both directly and through host memory, on streams of either device, and ordered
//! with all other work.

use std::sync::Arc;

use crate::common::*;
use crate::support::pinned::{panicked, statistics};
use crate::transfers::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, Error, Stream};

fn two(access: bool) -> (Arc<EmulatedDriver>, [Device; 2]) {
    let builder = EmulatedDriver::builder().devices(2).memory(1 << 30);
    let driver = if access { builder } else { builder.without_peer_access() }.build();
    let devices = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    (driver, devices)
}

fn clean(driver: &EmulatedDriver, devices: &[Device; 2], what: &str) {
    for (ordinal, device) in devices.iter().enumerate() {
        device.synchronize().unwrap();
        // Memory that waited for the other device's streams is free now.
        device.memory().empty_cache().unwrap();
        device.pinned_memory().empty_cache().unwrap();
        assert_eq!(driver.live_allocations(ordinal as u32), 0, "{what}");
        assert!(device.take_drop_error().is_none(), "{what}");
    }
    for device in devices {
        device.pinned_memory().empty_cache().unwrap();
    }
    assert_eq!(driver.live_pinned(), 0, "{what}");
}

#[test]
fn any_length_copies_either_way_without_waiting() {
    for access in [true, false] {
        let (driver, devices) = two(access);
        for length in LENGTHS {
            for (from, to, on) in [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)] {
                let what = format!("{length} from {from} to {to} on {on}, access: {access}");
                let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
                let bytes = pattern(length, 6);
                let source = DeviceBuffer::from_host(&streams[from], &bytes).unwrap();
                let mut target = DeviceBuffer::from_host(&streams[to], &vec![1u8; length + 2]).unwrap();
                driver.reset_calls();
                let hold = driver.hold();
                streams[on].copy(&source, target.slice_mut(1..length + 1)).unwrap();
                assert!(length == 0 || !streams[on].query().unwrap(), "{what}: nothing ran");
                drop(source);
                drop(hold);
                let all = target.to_host().unwrap();
                assert_eq!((all[0], all[length + 1]), (1, 1), "{what}");
                assert_same(&all[1..length + 1], &bytes, &what);
                assert_eq!(driver.calls(Call::CopyPeer), u64::from(access && length > 0), "{what}");
            }
        }
        clean(&driver, &devices, "all");
    }
}

#[test]
fn a_copy_is_ordered_on_both_devices() {
    for (access, on) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        for n in [100, 2 * CHUNK_BYTES + 40] {
            let what = format!("access: {access}, on {on}, {n}");
            let (driver, devices) = two(access);
            let homes = devices.each_ref().map(|device| Stream::new(device).unwrap());
            let copying = Stream::new(&devices[on]).unwrap();
            let mut source = DeviceBuffer::<u8>::zeros(&homes[0], n).unwrap();
            let [mut target, mut before] = [(); 2].map(|()| DeviceBuffer::<u8>::zeros(&homes[1], n).unwrap());
            let hold = driver.hold();
            homes[0].memset(&mut source, 3).unwrap();
            homes[1].memset(&mut target, 6).unwrap();
            homes[1].copy(&target, &mut before).unwrap();
            copying.copy(&source, &mut target).unwrap();
            homes[0].memset(&mut source, 13).unwrap();
            homes[1].memset(target.slice_mut(n / 2..), 4).unwrap();
            drop(hold);
            let all = |slice: DeviceSlice<'_, u8>, value| {
                assert!(slice.to_host().unwrap().iter().all(|byte| *byte == value), "{what}: not {value}");
            };
            all(before.as_slice(), 6);
            all(target.slice(..n / 2), 3);
            all(target.slice(n / 2..), 4);
            all(source.as_slice(), 13);
            drop((source, target, before));
            clean(&driver, &devices, &what);
        }
    }
}

#[test]
fn memory_is_reused_only_behind_the_copy() {
    for access in [true, false] {
        for on in [0, 1] {
            let what = format!("access: {access}, on {on}");
            let (driver, devices) = two(access);
            let homes = devices.each_ref().map(|device| Stream::new(device).unwrap());
            let stream = &homes[on];
            let length = 3 * CHUNK_BYTES + 5;
            let bytes = pattern(length, 4);
            let source = DeviceBuffer::from_host(&homes[0], &bytes).unwrap();
            let mut target = DeviceBuffer::<u8>::uninit(&homes[1], length).unwrap();
            let mut kept = DeviceBuffer::<u8>::uninit(&homes[1], length).unwrap();
            let hold = driver.hold();
            stream.copy(&source, &mut target).unwrap();
            homes[1].copy(&target, &mut kept).unwrap();
            drop((source, target));
            // These buffers must be filled after the copy, whether they reuse that memory or not.
            let mut others = homes.each_ref().map(|home| DeviceBuffer::<u8>::uninit(home, length).unwrap());
            for (other, home) in others.iter_mut().zip(&homes) {
                home.memset(other, 0xAA).unwrap();
            }
            drop(hold);
            assert_same(&kept.to_host().unwrap(), &bytes, &what);
            drop((kept, others));
            clean(&driver, &devices, &what);
        }
    }
}

#[test]
fn a_staged_copy_pins_two_chunks() {
    let (driver, devices) = two(false);
    let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
    let length = 9 * CHUNK_BYTES;
    let source = DeviceBuffer::from_host(&streams[0], &pattern(length, 0)).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&streams[1], length).unwrap();
    let mut allocated = 0;
    for round in 0..3 {
        let (hold, before) = (driver.hold(), driver.calls(Call::PinnedAllocate));
        streams[1].copy(&source, &mut target).unwrap();
        allocated += driver.calls(Call::PinnedAllocate) - before;
        let held = devices.each_ref().map(|device| statistics(device).active_bytes.current);
        assert_eq!(held.iter().sum::<u64>(), 2 * CHUNK_BYTES as u64, "round {round}");
        drop(hold);
        assert_same(&target.to_host().unwrap(), &pattern(length, 0), "staged");
        devices.iter().for_each(|device| device.synchronize().unwrap());
    }
    assert!(allocated <= 2, "{allocated} chunks were allocated, not reused");
}

#[test]
fn a_staged_copy_overlaps_both_directions() {
    let (driver, devices) = two(false);
    let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
    let chunks = 7;
    let source = DeviceBuffer::<u8>::zeros(&streams[0], chunks * CHUNK_BYTES).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&streams[1], chunks * CHUNK_BYTES).unwrap();
    for (on, ends) in [(0, 3), (1, 2)] {
        devices.iter().for_each(|device| device.synchronize().unwrap());
        driver.reset_calls();
        streams[on].copy(&source, &mut target).unwrap();
        // The copy of each chunk to the device waits for its copy to the host. Each copy to the host except the first
        // two waits for the chunk two before, whose memory it reuses. Up to three more waits occur at the start and the
        // end. One waits for the last work on the other device's buffer, and one lets the other stream start. One lets
        // this stream end, unless it runs the last copy to the device itself.
        assert_eq!(driver.calls(Call::StreamWaitEvent), ends + chunks as u64 + chunks as u64 - 2, "on {on}");
        assert_eq!((driver.calls(Call::CopyToHost), driver.calls(Call::CopyToDevice)), (7, 7));
    }
}

#[test]
fn any_call_may_fail_and_copies_go_on() {
    let calls = [
        Call::CopyPeer,
        Call::PeerCanAccess,
        Call::PeerEnable,
        Call::PinnedAllocate,
        Call::StreamCreate,
        Call::EventCreate,
        Call::EventRecord,
        Call::StreamWaitEvent,
        Call::CopyToHost,
        Call::CopyToDevice,
    ];
    let length = CHUNK_BYTES + 1;
    let bytes = pattern(length, 9);
    let mut failures = [0; 2];
    for (access, call) in [true, false].into_iter().flat_map(|access| calls.map(|call| (access, call))) {
        for after in 0.. {
            let what = format!("{} {after}, access: {access}", call.name());
            let (driver, devices) = two(access);
            let homes = devices.each_ref().map(|device| Stream::new(device).unwrap());
            let copying = Stream::new(&devices[after as usize % 2]).unwrap();
            let source = DeviceBuffer::from_host(&homes[0], &bytes).unwrap();
            let mut target = DeviceBuffer::<u8>::uninit(&homes[1], length).unwrap();
            let before = driver.calls(call);
            driver.fail_call(call, after);
            let result = copying.copy(&source, &mut target);
            let met = driver.calls(call) - before > after;
            if let Err(error) = result {
                assert!(error.to_string().contains(call.name()), "{what}: {error}");
                failures[usize::from(access)] += 1;
            }
            // If the injected failure has not occurred yet, it occurs here exactly once.
            let mut again = || {
                copying.copy(&source, &mut target)?;
                target.to_host()
            };
            assert_same(&again().or_else(|_| again()).unwrap(), &bytes, &what);
            assert!(devices.iter().all(|device| !device.is_lost()), "{what}");
            drop((source, target, copying, homes));
            clean(&driver, &devices, &what);
            if !met {
                break;
            }
        }
    }
    assert!(failures[1] >= 4 && failures[0] >= 16, "{failures:?} with and without access");
}

#[test]
fn the_lost_device_reports_its_own_fault() {
    for (access, lost) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        for on in [0, 1] {
            let what = format!("access: {access}, lost {lost}, on {on}");
            let (driver, devices) = two(access);
            let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
            let source = DeviceBuffer::from_host(&streams[0], &pattern(CHUNK_BYTES * 3, 1)).unwrap();
            let mut target = DeviceBuffer::<u8>::zeros(&streams[1], CHUNK_BYTES * 3).unwrap();
            // These waits ensure that no later wait encounters the fault before the copy does.
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            streams[on].copy(&source, &mut target).unwrap();
            driver.poison(lost, panicked());
            let error = streams[on].copy(&source, &mut target).unwrap_err();
            assert!(error.to_string().contains("told to"), "{what}: {error}");
            let [bad, good] = [lost as usize, 1 - lost as usize].map(|index| &devices[index]);
            assert!(bad.is_lost() && !good.is_lost(), "{what}");
            let error = streams[on].copy(&source, &mut target).unwrap_err();
            assert!(
                matches!(&error, Error::DeviceLost { device, .. } if *device == bad.id()),
                "{what}: {error}"
            );
            drop((source, target));
            let stream = good.default_stream();
            assert_eq!(DeviceBuffer::from_host(&stream, &[1u8]).unwrap().to_host().unwrap(), [1], "{what}");
            good.synchronize().unwrap();
            drop((stream, streams));
            drop(devices);
            assert_eq!(driver.live_pinned(), 0, "{what}");
        }
    }
}

#[test]
fn a_device_lost_during_a_copy_is_reported() {
    for (access, lost) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (driver, devices) = two(access);
        let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
        let source = DeviceBuffer::from_host(&streams[0], &pattern(CHUNK_BYTES * 3, 1)).unwrap();
        let mut target = DeviceBuffer::<u8>::zeros(&streams[1], CHUNK_BYTES * 3).unwrap();
        devices.iter().for_each(|device| device.synchronize().unwrap());
        let hold = driver.hold();
        streams[0].copy(&source, &mut target).unwrap();
        driver.poison(lost, panicked());
        drop(hold);
        for (ordinal, stream) in streams.iter().enumerate() {
            assert_eq!(
                stream.synchronize().is_err(),
                ordinal == lost as usize,
                "access: {access}, lost {lost}"
            );
        }
        drop((source, target, streams, devices));
        assert_eq!(driver.live_pinned(), 0);
    }
}

#[test]
fn devices_of_two_drivers_are_refused() {
    let drivers = [(); 2].map(|()| driver(1));
    let devices = drivers.each_ref().map(|driver| Device::with_driver(driver.clone(), 0).unwrap());
    let streams = devices.each_ref().map(Device::default_stream);
    let source = DeviceBuffer::from_host(&streams[0], &[1u8; 9]).unwrap();
    let mut target = DeviceBuffer::<u8>::zeros(&streams[1], 9).unwrap();
    drivers.iter().for_each(|driver| driver.reset_calls());
    for stream in &streams {
        let error = stream.copy(&source, &mut target).unwrap_err();
        assert!(matches!(error, Error::NoPeerAccess { .. }), "{error}");
        assert!(error.to_string().contains("copy through the host"), "{error}");
    }
    let calls = |driver: &EmulatedDriver| Call::ALL.iter().map(|call| driver.calls(*call)).sum::<u64>();
    assert_eq!(drivers.each_ref().map(|driver| calls(driver)), [0, 0]);
    target.copy_from_host(&source.to_host().unwrap()).unwrap();
    assert_eq!(target.to_host().unwrap(), [1; 9]);
}

#[test]
fn a_device_opened_twice_copies_to_itself() {
    let driver = driver(1);
    let devices = [(); 2].map(|()| Device::with_driver(driver.clone(), 0).unwrap());
    let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
    let source = DeviceBuffer::from_host(&streams[0], &[1u8; 9]).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&streams[1], 9).unwrap();
    let hold = driver.hold();
    streams[0].memset(&mut DeviceBuffer::<u8>::uninit(&streams[0], 9).unwrap(), 3).unwrap();
    streams[1].copy(&source, &mut target).unwrap();
    drop(source);
    drop(hold);
    assert_eq!(target.to_host().unwrap(), [1; 9]);
    assert_eq!((driver.calls(Call::CopyDevice), driver.calls(Call::CopyPeer)), (1, 0));
}

#[test]
fn threads_copy_both_ways_at_once() {
    for access in [true, false] {
        let (driver, devices) = two(access);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let devices = &devices;
                scope.spawn(move || {
                    let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
                    let (from, to) = (thread % 2, 1 - thread % 2);
                    for round in 0..4 {
                        let bytes = pattern(CHUNK_BYTES + 77 * round, thread as u8);
                        let source = DeviceBuffer::from_host(&streams[from], &bytes).unwrap();
                        let mut there = DeviceBuffer::<u8>::uninit(&streams[to], bytes.len()).unwrap();
                        let mut back = DeviceBuffer::<u8>::uninit(&streams[from], bytes.len()).unwrap();
                        streams[round % 2].copy(&source, &mut there).unwrap();
                        streams[thread / 2].copy(&there, &mut back).unwrap();
                        drop((source, there));
                        assert_same(&back.to_host().unwrap(), &bytes, "thread");
                    }
                });
            }
        });
        clean(&driver, &devices, "threads");
    }
}
