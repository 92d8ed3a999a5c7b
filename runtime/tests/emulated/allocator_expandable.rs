//! Tests of expandable segments: memory is mapped on demand, and unmapped under pressure.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::allocator::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Error, MemoryPool, PoolOptions, Stream};

const ON: &str = "expandable_segments:True";

#[test]
fn a_segment_grows_in_place() {
    let (driver, device, stream) = stream_with(256 * MIB, ON);
    let parts = [30, 7, 40].map(|mib| allocate(&stream, mib * MIB));
    let offsets = parts.each_ref().map(|part| (address(part) - address(&parts[0])) as usize / MIB);
    assert_eq!(offsets, [0, 30, 37]);
    assert_eq!((driver.live_reservations(0), driver.calls(Call::MemoryAllocate)), (1, 0));
    let snapshot = device.memory().snapshot();
    let [segment] = snapshot.segments.as_slice() else { panic!("{} segments", snapshot.segments.len()) };
    assert!(segment.is_expandable);
    assert_eq!(segment.total_size, device.memory().reserved());
    drop(parts);
}

#[test]
fn free_neighbors_serve_a_request_of_their_sum() {
    let (driver, _, stream) = stream_with(256 * MIB, ON);
    let [first, second, last] = [20, 20, 20].map(|mib| allocate(&stream, mib * MIB));
    let place = address(&first);
    drop((first, second));
    driver.reset_calls();
    let both = allocate(&stream, 40 * MIB);
    assert_eq!((address(&both), driver.calls(Call::PhysicalCreate)), (place, 0));
    drop((both, last));
}

#[test]
fn a_device_without_mapping_says_so() {
    let driver = EmulatedDriver::builder().memory(64 * MIB as u64).unbacked().without_mapping().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    set_options(&device, ON);
    let stream = device.default_stream();
    let error = DeviceBuffer::<u8>::uninit(&stream, 512).unwrap_err();
    assert!(matches!(error, Error::NoExpandableSegments { .. }), "{error}");
    assert!(error.to_string().contains("set `expandable_segments:False`"), "{error}");
    set_options(&device, "");
    drop(allocate(&stream, 512));
    assert_eq!((driver.live_reservations(0), driver.live_allocations(0)), (0, 1));
}

#[test]
fn kinds_and_streams_have_segments_of_their_own() {
    let (driver, device, [first, second]) = streams_with(256 * MIB, ON);
    let held =
        [(&first, 512), (&first, 2 * MIB), (&second, 512)].map(|(stream, bytes)| allocate(stream, bytes));
    assert_eq!(driver.live_reservations(0), 3);
    let now = statistics(&device);
    assert_eq!(now.reserved_bytes.small_pool.current, 4 * MIB as u64, "a page of 2 MiB for each stream");
    drop(held);
}

#[test]
fn emptying_the_cache_unmaps_whole_pages_only() {
    let (driver, device, stream) = stream_with(256 * MIB, ON);
    // The hole from 3 to 39 MiB contains the whole 4 MiB pages from 4 to 36 MiB.
    let [first, hole, last] = [3, 36, 5].map(|mib| allocate(&stream, mib * MIB));
    drop(hole);
    assert_eq!(device.memory().empty_cache().unwrap(), 32 * MIB as u64);
    assert_eq!(device.memory().reserved(), 12 * MIB as u64);
    let snapshot = device.memory().snapshot();
    let mapped: Vec<_> = snapshot
        .segments
        .iter()
        .map(|segment| {
            ((segment.address - address(&first)) as usize / MIB, segment.total_size as usize / MIB)
        })
        .collect();
    assert_eq!(mapped, [(0, 4), (36, 8)], "a segment for each range with memory");
    assert_eq!(driver.live_reservations(0), 1);
    let again = allocate(&stream, 36 * MIB);
    assert_eq!(address(&again), address(&first) + 3 * MIB as u64, "the hole is filled again");
    drop((first, last, again));
}

#[test]
fn a_segment_without_memory_gives_its_addresses_back() {
    let (driver, device, stream) = stream_with(256 * MIB, ON);
    drop([512, 30 * MIB].map(|bytes| allocate(&stream, bytes)));
    assert_eq!(driver.live_reservations(0), 2);
    assert_eq!(device.memory().empty_cache().unwrap(), 34 * MIB as u64);
    assert_eq!((driver.live_reservations(0), driver.live_allocations(0)), (0, 0));
    assert!(device.memory().snapshot().segments.is_empty());
    drop(allocate(&stream, 30 * MIB));
}

#[test]
fn pressure_frees_pages_of_other_streams() {
    let (_, device, [first, second]) = streams_with(64 * MIB, ON);
    drop([allocate(&first, 40 * MIB), allocate(&first, 512)]);
    let buffer = allocate(&second, 60 * MIB);
    assert_eq!(device.memory().reserved(), 60 * MIB as u64);
    drop(buffer);
}

#[test]
fn fragments_serve_a_large_request() {
    let (driver, device, stream) = stream_with(128 * MIB, ON);
    let mut parts = [(); 12].map(|()| Some(allocate(&stream, 8 * MIB)));
    parts.iter_mut().step_by(2).for_each(|part| *part = None);
    let large = allocate(&stream, 64 * MIB);
    assert_eq!(driver.live_reservations(0), 2, "the first address range has no room");
    assert_eq!(device.memory().allocated(), 112 * MIB as u64);
    assert!(device.memory().reserved() <= 128 * MIB as u64);
    drop((parts, large));
}

#[test]
fn free_pages_move_when_no_wait_is_needed() {
    for busy in [false, true] {
        let (driver, device) = device_with(512 * MIB, ON);
        let stream = Stream::new(&device).unwrap();
        let [hole, end] = [40, 40].map(|mib| allocate(&stream, mib * MIB));
        drop(hole);
        let hold = driver.hold();
        let event = busy.then(|| stream.record_timed_event().unwrap());
        driver.reset_calls();
        let larger = allocate(&stream, 60 * MIB);
        let moved = driver.calls(Call::VirtualUnmap);
        assert_eq!((moved > 0, driver.calls(Call::StreamSynchronize)), (!busy, 0), "busy: {busy}");
        // The peak in use is 40 and 60 MiB, and 8% more may be reserved before pages are moved.
        let reserved = if busy { 140 } else { 108 };
        assert_eq!(device.memory().reserved() as usize / MIB, reserved, "busy: {busy}");
        drop((hold, event, larger, end));
    }
}

#[test]
fn garbage_collection_leaves_expandable_segments_alone() {
    let options = "expandable_segments:True,garbage_collection_threshold:0.1";
    let (driver, device, stream) = stream_with(256 * MIB, options);
    let held = [40, 40].map(|mib| allocate(&stream, mib * MIB));
    drop(held);
    driver.reset_calls();
    let more = allocate(&stream, 100 * MIB);
    assert_eq!((driver.calls(Call::VirtualUnmap), driver.calls(Call::MemoryFree)), (0, 0));
    assert_eq!(device.memory().reserved(), 100 * MIB as u64);
    drop(more);
}

#[test]
fn peers_may_use_memory_mapped_before_and_after() {
    let driver = EmulatedDriver::builder().devices(3).memory(128 * MIB as u64).unbacked().build();
    let [owner, peer] = [0, 2].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    set_options(&owner, ON);
    let stream = owner.default_stream();
    let before = allocate(&stream, 20 * MIB);
    assert_eq!(driver.accessible_from(before.as_device_ptr()), [0]);
    owner.memory().allow_peer(&peer).unwrap();
    let after = allocate(&stream, 20 * MIB);
    for buffer in [&before, &after] {
        for offset in [0, 20 * MIB - 1] {
            assert_eq!(driver.accessible_from(DevicePtr(address(buffer)).offset(offset)), [0, 2]);
        }
    }
    drop((before, after));
    owner.memory().empty_cache().unwrap();
    assert_eq!(driver.accessible_from(allocate(&stream, 512).as_device_ptr()), [0, 2]);
}

#[test]
fn a_partial_failure_only_grows_the_cache() {
    for call in [Call::PhysicalCreate, Call::VirtualMap, Call::VirtualSetAccess, Call::VirtualReserve] {
        for after in 0..3 {
            let (driver, device, stream) = stream_with(128 * MIB, ON);
            driver.fail_call_with(call, after, 999);
            let results = [3, 30, 9].map(|mib| DeviceBuffer::<u8>::uninit(&stream, mib * MIB));
            let failed = results.iter().filter(|result| result.is_err()).count();
            assert!(failed <= 1, "{call:?} after {after}");
            let held: Vec<_> = results.into_iter().flatten().collect();
            let bytes: usize = held.iter().map(DeviceBuffer::len).sum();
            let memory = device.memory();
            assert_eq!((memory.allocated(), memory.snapshot().reserved()), (bytes as u64, memory.reserved()));
            drop(held);
            drop(allocate(&stream, 120 * MIB));
            memory.empty_cache().unwrap();
            assert_eq!(
                (driver.live_allocations(0), driver.live_reservations(0), memory.reserved()),
                (0, 0, 0)
            );
        }
    }
}

#[test]
fn out_of_memory_while_mapping_is_clean() {
    let (driver, device, stream) = stream_with(64 * MIB, ON);
    let held = allocate(&stream, 30 * MIB);
    let report = fails(&stream, 40 * MIB);
    assert!(report.expandable);
    assert_eq!(device.memory().reserved(), 32 * MIB as u64);
    assert_eq!(device.memory().snapshot().reserved(), 32 * MIB as u64);
    drop(held);
    drop(allocate(&stream, 64 * MIB));
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn the_fraction_counts_mapped_memory_and_not_addresses() {
    let (_, _, stream) = stream_with(200 * MIB, "expandable_segments:True,per_process_memory_fraction:0.5");
    let held = allocate(&stream, 96 * MIB);
    fails(&stream, 8 * MIB);
    drop(held);
    drop(allocate(&stream, 100 * MIB));
}

#[test]
fn private_pools_expand_unless_they_do_not_split() {
    let (driver, device, stream) = stream_with(128 * MIB, ON);
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let parts = [10, 10].map(|mib| allocate(&stream, mib * MIB));
    drop(guard);
    assert_eq!((driver.live_reservations(0), driver.calls(Call::MemoryAllocate)), (1, 0));
    assert_eq!(pool.reserved(), 20 * MIB as u64);
    drop((parts, pool));
    assert_eq!((driver.live_reservations(0), driver.live_allocations(0)), (0, 0));
    let unsplit = PoolOptions { no_split: true, ..PoolOptions::default() };
    let pool = MemoryPool::with_options(&device, unsplit).unwrap();
    let guard = pool.enter().unwrap();
    drop(allocate(&stream, 512));
    drop(guard);
    assert_eq!(driver.calls(Call::MemoryAllocate), 1);
}

#[test]
fn work_keeps_its_order_as_pages_move() {
    let (driver, device) = backed_device_with(64 * MIB, ON);
    let stream = device.default_stream();
    driver.set_delay(Duration::from_micros(200));
    for round in 0..10u8 {
        let mut parts = [9, 14, 20].map(|mib| DeviceBuffer::<u8>::uninit(&stream, mib * MIB).unwrap());
        for (part, value) in parts.iter_mut().zip(1..) {
            part.slice_mut(..1000).copy_from_host(&[round * 3 + value; 1000]).unwrap();
        }
        let [first, second, third] = &parts;
        for (part, value) in [first, second, third].into_iter().zip(1..) {
            assert_eq!(part.slice(..1000).to_host().unwrap(), [round * 3 + value; 1000]);
        }
        drop(parts);
        drop(DeviceBuffer::<u8>::zeros(&stream, (40 + usize::from(round)) * MIB).unwrap());
    }
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn growing_streams_do_not_deadlock() {
    let (_, device) = device_with(1 << 40, ON);
    let (done, finished) = mpsc::channel();
    // These run in separate threads so that the test can assert that they end.
    for _ in 0..4 {
        let (device, done) = (device.clone(), done.clone());
        std::thread::spawn(move || {
            for _ in 0..60 {
                let stream = Stream::new(&device).unwrap();
                let held: Vec<_> = (1..20).map(|n| allocate(&stream, n * 4 * MIB)).collect();
                drop(held);
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        finished.recv_timeout(Duration::from_secs(30)).expect("no thread waits for ever");
    }
}
