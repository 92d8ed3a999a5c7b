//! Tests of copies on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set. A
//! missing device fails the tests.
//!
//! `*_two_devices` uses the device and the next one of its kind if `WARPSMITH_TEST_DEVICES=2` is set, and fails if
//! there is only one. Otherwise it uses two emulated devices.

use std::sync::Arc;

use crate::transfers::*;
use crate::under_test::device;
use warpsmith_runtime::driver::Driver;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer, PinnedRange, Stream};

fn two_devices() -> Vec<[Device; 2]> {
    let two = |driver: Arc<dyn Driver>, ordinals: [u32; 2]| {
        ordinals.map(|ordinal| Device::with_driver(Arc::clone(&driver), ordinal).unwrap())
    };
    if std::env::var("WARPSMITH_TEST_DEVICES").is_ok_and(|count| count == "2") {
        let device = device();
        // SAFETY: its methods receive only live handles and memory of this device.
        let driver = unsafe { device.driver() }.0;
        let count = driver.device_count().unwrap();
        assert!(
            count >= 2,
            "WARPSMITH_TEST_DEVICES=2, but there is {count} device of {}'s kind",
            device.id()
        );
        let ordinal = device.id().ordinal();
        return vec![two(Arc::clone(driver), [ordinal, (ordinal + 1) % count])];
    }
    let builder = || EmulatedDriver::builder().devices(2).memory(1 << 30);
    vec![two(builder().build(), [0, 1]), two(builder().without_peer_access().build(), [0, 1])]
}

fn up_and_down<H: Kind>(device: &Device) {
    let stream = Stream::new(device).unwrap();
    for length in LENGTHS {
        let what = format!("{} of {length}", H::NAME);
        let bytes = pattern(length, 5);
        let mut buffer = DeviceBuffer::from_host(&stream, &vec![9u8; length + 2]).unwrap();
        let (source, target) = (H::make(device, &bytes), H::make(device, &vec![0; length]));
        let up = stream.copy_from_host_async(source, buffer.slice_mut(1..length + 1)).unwrap();
        let down = stream.copy_to_host_async(buffer.slice(1..length + 1), target).unwrap();
        assert_same(&down.wait().unwrap(), &bytes, &what);
        assert_same(&up.wait().unwrap(), &bytes, &what);
        let all = buffer.to_host().unwrap();
        assert_eq!((all[0], all[length + 1]), (9, 9), "{what}: nothing beside it");
    }
}

#[test]
fn every_host_memory_copies_at_every_length() {
    let device = device();
    up_and_down::<PinnedBuffer<u8>>(&device);
    up_and_down::<PinnedRange<u8>>(&device);
    up_and_down::<Vec<u8>>(&device);
    up_and_down::<Box<[u8]>>(&device);
}

/// Many copies of pageable memory are in flight on several streams, and each waits for the preceding copy of its
/// buffer.
#[test]
fn copies_in_flight_are_ordered_by_buffer() {
    let device = device();
    let streams = [(); 4].map(|()| Stream::new(&device).unwrap());
    let length = 3 * CHUNK_BYTES + 100;
    let mut buffer = DeviceBuffer::<u8>::uninit(&streams[0], length).unwrap();
    let mut downs = Vec::new();
    for round in 0..12u8 {
        drop(
            streams[usize::from(round) % 4]
                .copy_from_host_async(pattern(length, round), &mut buffer)
                .unwrap(),
        );
        downs.push(streams[usize::from(round + 1) % 4].copy_to_host_async(&buffer, vec![0; length]).unwrap());
    }
    drop(buffer);
    for (round, down) in downs.into_iter().enumerate() {
        assert_same(&down.wait().unwrap(), &pattern(length, round as u8), "round");
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    assert!(device.take_drop_error().is_none());
}

#[test]
fn dropped_copies_run_on_with_their_memory() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let length = 8 << 20;
    let mut target = DeviceBuffer::<u8>::uninit(&stream, length * 4).unwrap();
    for round in 0..if device.is_emulated() { 3u8 } else { 10 } {
        for part in 0..4usize {
            let pinned = PinnedBuffer::from_slice(&device, &vec![round * 4 + part as u8; length]).unwrap();
            drop(
                stream
                    .copy_from_host_async(pinned, target.slice_mut(part * length..(part + 1) * length))
                    .unwrap(),
            );
        }
        let host = target.to_host().unwrap();
        for (part, bytes) in host.chunks(length).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == round * 4 + part as u8), "round {round}, part {part}");
        }
    }
}

#[test]
fn fills_and_copies_within_and_between_buffers() {
    let device = device();
    let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
    let source = DeviceBuffer::from_host(&streams[0], &pattern(1 << 20, 3)).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&streams[0], (1 << 20) + 100).unwrap();
    streams[1].memset(&mut target, 7).unwrap();
    streams[0].copy(&source, target.slice_mut(50..(1 << 20) + 50)).unwrap();
    streams[1].memset(target.slice_mut(..10), 0).unwrap();
    let (from, into) = target.split_at_mut(20);
    streams[0].copy(&from, into.into_slice(..20)).unwrap();
    let mut expected = vec![7; (1 << 20) + 100];
    expected[50..(1 << 20) + 50].copy_from_slice(&pattern(1 << 20, 3));
    expected[..10].fill(0);
    expected[20..30].fill(0);
    assert_same(&target.to_host().unwrap(), &expected, "fills and copies");
}

#[test]
fn rows_go_across_and_down() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let (rows, columns) = (301, 517);
    let all: Vec<u32> = (0..(rows * columns) as u32).collect();
    let source = DeviceBuffer::from_host(&stream, &all).unwrap();
    let mut matrix = DeviceBuffer::<u32>::zeros(&stream, rows * 128).unwrap();
    let from = source.slice(7..).as_2d_strided(rows, 100, columns).unwrap();
    stream.copy_rows(from, matrix.as_2d_strided_mut(rows, 100, 128).unwrap()).unwrap();
    let down = matrix.as_2d_strided(rows, 100, 128).unwrap().part(.., 1..6).to_host().unwrap();
    for (row, found) in down.chunks(5).enumerate() {
        let first = (row * columns + 8) as u32;
        assert_eq!(found, [first, first + 1, first + 2, first + 3, first + 4], "row {row}");
    }
    let gaps = matrix.to_host().unwrap();
    assert!(gaps.chunks(128).all(|row| row[100..].iter().all(|element| *element == 0)), "gaps stay");
}

#[test]
fn copies_go_both_ways_two_devices() {
    for devices in two_devices() {
        for length in LENGTHS {
            for (from, to, on) in [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)] {
                let what = format!("{length} from {from} to {to} on {on}");
                let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
                let bytes = pattern(length, 6);
                let source = DeviceBuffer::from_host(&streams[from], &bytes).unwrap();
                let mut target = DeviceBuffer::from_host(&streams[to], &vec![1u8; length + 2]).unwrap();
                streams[on].copy(&source, target.slice_mut(1..length + 1)).unwrap();
                drop(source);
                let all = target.to_host().unwrap();
                assert_eq!((all[0], all[length + 1]), (1, 1), "{what}");
                assert_same(&all[1..length + 1], &bytes, &what);
            }
        }
        assert!(devices.iter().all(|device| device.take_drop_error().is_none()));
    }
}

/// A buffer is copied back and forth between two devices. Every copy must wait for the preceding copy, which ran on the
/// other device.
#[test]
fn following_copies_are_ordered_two_devices() {
    for devices in two_devices() {
        let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
        let length = 2 * CHUNK_BYTES + 1000;
        let mut buffers = streams.each_ref().map(|stream| DeviceBuffer::<u8>::zeros(stream, length).unwrap());
        for round in 0..20u8 {
            streams[0].memset(&mut buffers[0], round).unwrap();
            let [first, second] = &mut buffers;
            streams[usize::from(round) % 2].copy(&*first, &mut *second).unwrap();
            streams[0].memset(&mut *first, 0xFF).unwrap();
            streams[usize::from(round / 2) % 2].copy(&*second, &mut *first).unwrap();
            streams[1].memset(second, 0xEE).unwrap();
            let host = streams[0].copy_to_host_async(&*first, vec![0; length]).unwrap();
            assert_same(&host.wait().unwrap(), &vec![round; length], "round");
        }
    }
}
