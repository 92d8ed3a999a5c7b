//! Tests of collectives over all devices of the kind under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it
//! is not set. A missing device fails the tests, and `WARPSMITH_TEST_DEVICES=N` makes them fail unless there are at
//! least `N`.
//!
//! With one device, three streams on it are used. The emulated driver has three devices and is tested with and without
//! peer access.

use std::sync::Arc;

use crate::transfers::*;
use crate::under_test::shared_device;
use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::transfer::collective::{
    COALESCE_BYTES, broadcast, broadcast_coalesced, gather, scatter,
};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

/// Returns all devices of each driver under test, with separate allocators, and streams of all of them.
fn fixtures() -> Vec<(Vec<Device>, Vec<Stream>)> {
    let shared = shared_device();
    let builder = || EmulatedDriver::builder().devices(3).memory(1 << 30);
    let drivers: Vec<Arc<dyn Driver>> = if shared.is_emulated() {
        vec![builder().build(), builder().without_peer_access().build()]
    } else {
        // SAFETY: its methods receive only live handles and memory of this device.
        vec![Arc::clone(unsafe { shared.driver() }.0)]
    };
    let minimum = std::env::var("WARPSMITH_TEST_DEVICES")
        .map_or(1, |count| count.parse().expect("a number in WARPSMITH_TEST_DEVICES"));
    drivers
        .into_iter()
        .map(|driver| {
            let count = driver.device_count().unwrap();
            assert!(
                count >= minimum,
                "WARPSMITH_TEST_DEVICES={minimum}, but there are {count} like {}",
                shared.id()
            );
            let devices: Vec<_> = (0..count)
                .map(|ordinal| Device::with_driver(Arc::clone(&driver), ordinal).unwrap())
                .collect();
            let places = devices.iter().cycle().take(devices.len().max(3));
            let streams = places.map(|device| Stream::new(device).unwrap()).collect();
            (devices, streams)
        })
        .collect()
}

#[test]
fn a_broadcast_reaches_every_device_from_every_device() {
    for (devices, streams) in fixtures() {
        for (root, length) in (0..streams.len()).flat_map(|root| LENGTHS.map(|length| (root, length))) {
            let what = format!("{length} from {root} of {}", devices.len());
            let bytes = pattern(length, root as u8);
            let source = DeviceBuffer::from_host(&streams[root], &bytes).unwrap();
            let copies = broadcast(&source, &streams).unwrap();
            drop(source);
            for (copy, stream) in copies.iter().zip(&streams) {
                assert!(copy.device() == stream.device(), "{what}");
                assert_same(&copy.to_host().unwrap(), &bytes, &what);
            }
        }
        assert!(devices.iter().all(|device| device.take_drop_error().is_none()));
    }
}

/// Scatters a buffer, changes it on every device, and gathers it on the next device, repeatedly and without a host
/// wait. Every copy must wait for the preceding work on another device.
#[test]
fn scatter_work_and_gather_repeat() {
    for (devices, streams) in fixtures() {
        let length = 2 * CHUNK_BYTES + 1001;
        let mut all = DeviceBuffer::from_host(&streams[0], &pattern(length, 8)).unwrap();
        let mut expected = pattern(length, 8);
        let chunk_len = length.div_ceil(streams.len());
        for round in 0..12usize {
            let mut chunks = scatter(&all, &streams, None).unwrap();
            // Later contents of the source must not be visible.
            all.stream().clone().memset(&mut all, 0xEE).unwrap();
            for (index, (chunk, stream)) in chunks.iter_mut().zip(&streams).enumerate() {
                let (at, value) = (round * 50 + index, (round * 16 + index) as u8);
                stream.memset(chunk.slice_mut(at..at + 50), value).unwrap();
                expected[index * chunk_len + at..][..50].fill(value);
            }
            all = gather(&chunks, &streams[(round + 1) % streams.len()]).unwrap();
        }
        assert_same(&all.to_host().unwrap(), &expected, "twelve rounds");
        assert!(devices.iter().all(|device| device.take_drop_error().is_none()));
    }
}

#[test]
fn uneven_chunks_come_back_together_on_every_device() {
    for (_, streams) in fixtures() {
        let lens: Vec<_> = (0..streams.len()).map(|index| index * 70_001).collect();
        let bytes = pattern(lens.iter().sum(), 1);
        let source = DeviceBuffer::from_host(&streams[0], &bytes).unwrap();
        let chunks = scatter(&source, &streams, Some(&lens)).unwrap();
        for stream in &streams {
            assert_same(&gather(&chunks, stream).unwrap().to_host().unwrap(), &bytes, "gathered");
        }
    }
}

#[test]
fn many_small_buffers_reach_every_device_together() {
    for (devices, streams) in fixtures() {
        let bytes: Vec<_> = (0..200).map(|i| pattern(i * 37 % 5000, i as u8)).collect();
        let mut sources: Vec<_> =
            bytes.iter().map(|bytes| DeviceBuffer::from_host(&streams[0], bytes).unwrap()).collect();
        for buffer_bytes in [0, 64 << 10, COALESCE_BYTES] {
            let results = broadcast_coalesced(&sources, &streams, buffer_bytes).unwrap();
            if buffer_bytes == COALESCE_BYTES {
                sources.iter_mut().for_each(|source| streams[0].memset(source, 0).unwrap());
            }
            for (result, stream) in results.iter().zip(&streams) {
                for (slice, bytes) in result.slices().iter().zip(&bytes) {
                    assert!(slice.device() == stream.device());
                    assert_same(&slice.to_host().unwrap(), bytes, "small buffer");
                }
            }
        }
        assert!(devices.iter().all(|device| device.take_drop_error().is_none()));
    }
}
