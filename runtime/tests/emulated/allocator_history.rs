//! Tests of the allocation history: recorded events, their order, and their origin.

use crate::support::allocator::*;
use warpsmith_runtime::snapshot::TraceAction::{
    Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap,
};
use warpsmith_runtime::snapshot::{BlockState, TraceAction, TraceEntry};
use warpsmith_runtime::{Device, MemoryPool, Stream};

fn history(device: &Device) -> Vec<TraceEntry> {
    device.memory().snapshot().device_traces.pop().unwrap()
}

fn actions(device: &Device) -> Vec<TraceAction> {
    history(device).iter().map(|entry| entry.action).collect()
}

#[test]
fn events_are_ordered_with_address_size_and_place() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    device.memory().record_history(Some(100));
    let place = allocate_and_free(&stream, 1000);
    let line = line!() - 1;
    device.memory().empty_cache().unwrap();
    let entries = history(&device);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.action, entry.addr, entry.size)).collect();
    let segment = 2 * MIB as u64;
    assert_eq!(
        seen,
        [
            (SegmentAlloc, place, segment),
            (Alloc, place, 1000),
            (FreeRequested, place, 1000),
            (FreeCompleted, place, 1000),
            (SegmentFree, place, segment),
        ]
    );
    for entry in &entries {
        assert_eq!((entry.stream, entry.pool_id), (stream.id(), (0, 0)));
        let frame = entry.frames.first().unwrap();
        assert!(frame.filename.ends_with("allocator_history.rs") && frame.line == line, "{frame:?}");
    }
    assert!(entries.is_sorted_by_key(|entry| entry.time_us));
}

#[test]
fn a_waiting_block_is_pending_until_freed() {
    let (driver, device, [stream, other]) = streams_with(64 * MIB, "");
    device.memory().record_history(Some(100));
    let buffer = allocate(&stream, 1000);
    let place = address(&buffer);
    buffer.record_stream(&other).unwrap();
    let hold = driver.hold();
    drop(buffer);
    let snapshot = device.memory().snapshot();
    let (segment, block) = find(&snapshot, place);
    assert_eq!((block.state, block.requested_size), (BlockState::ActivePendingFree, 1000));
    assert_eq!((segment.allocated_size, segment.active_size), (0, 1024));
    assert_eq!(actions(&device), [SegmentAlloc, Alloc, FreeRequested]);
    drop(hold);
    other.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    assert_eq!(actions(&device), [SegmentAlloc, Alloc, FreeRequested, FreeCompleted, SegmentFree]);
}

#[test]
fn only_the_newest_events_are_kept() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    device.memory().record_history(Some(4));
    (1..10).for_each(|n| drop(allocate(&stream, n * 600)));
    let entries = history(&device);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.action, entry.size)).collect();
    assert_eq!(seen, [(FreeCompleted, 4800), (Alloc, 5400), (FreeRequested, 5400), (FreeCompleted, 5400)]);
}

#[test]
fn recording_again_starts_over() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    allocate_and_free(&stream, 2 * MIB);
    assert!(history(&device).is_empty(), "nothing is kept unless it is asked for");
    device.memory().record_history(Some(100));
    let held = allocate(&stream, 512);
    assert_eq!(history(&device).len(), 2);
    device.memory().record_history(Some(100));
    assert!(history(&device).is_empty());
    drop(held);
    assert_eq!(actions(&device), [FreeRequested, FreeCompleted]);
    device.memory().record_history(None);
    allocate_and_free(&stream, 512);
    assert!(history(&device).is_empty());
}

#[test]
fn streams_share_one_history_in_time_order() {
    let (_, device) = device_with(64 * MIB, "");
    device.memory().record_history(Some(100));
    let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
    let held: Vec<_> = (0..9).map(|n| allocate(&streams[n % 3], 512 * (n + 1))).collect();
    let entries = history(&device);
    let allocated: Vec<_> = entries.iter().filter(|entry| entry.action == Alloc).collect();
    assert_eq!(allocated.len(), 9);
    assert!(entries.is_sorted_by_key(|entry| entry.time_us));
    for stream in &streams {
        let of_stream: Vec<_> =
            allocated.iter().filter(|entry| entry.stream == stream.id()).map(|entry| entry.size).collect();
        assert!(of_stream.len() == 3 && of_stream.is_sorted(), "{of_stream:?}");
    }
    drop(held);
}

#[test]
fn out_of_memory_is_an_event() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let held = allocate(&stream, 20 * MIB);
    device.memory().record_history(Some(100));
    fails(&stream, 100 * MIB);
    let entries = history(&device);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.action, entry.addr, entry.size)).collect();
    assert_eq!(seen, [(Oom, 44 * MIB as u64, 100 * MIB as u64)]);
    drop(held);
}

#[test]
fn events_of_a_pool_have_its_number() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::for_graph(&device).unwrap();
    device.memory().record_history(Some(100));
    let guard = pool.enter().unwrap();
    let inside = allocate(&stream, 512);
    drop(guard);
    let outside = allocate(&stream, 512);
    let pools: Vec<_> = history(&device)
        .iter()
        .filter(|entry| entry.action == Alloc)
        .map(|entry| (entry.addr, entry.pool_id))
        .collect();
    let (number, zero) = (pool.id().0, pool.id().1);
    assert_eq!(pools, [(address(&inside), (number, zero)), (address(&outside), (0, 0))]);
}

#[test]
fn mapping_and_unmapping_are_events_of_expandable_segments() {
    let (_, device, stream) = stream_with(128 * MIB, "expandable_segments:True");
    device.memory().record_history(Some(100));
    let [first, second] = [8, 8].map(|mib| allocate(&stream, mib * MIB));
    let places = [address(&first), address(&second)];
    drop(second);
    device.memory().empty_cache().unwrap();
    let entries = history(&device);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.action, entry.addr)).collect();
    assert_eq!(
        seen,
        [
            (SegmentMap, places[0]),
            (Alloc, places[0]),
            (SegmentMap, places[1]),
            (Alloc, places[1]),
            (FreeRequested, places[1]),
            (FreeCompleted, places[1]),
            (SegmentUnmap, places[1]),
        ]
    );
    drop(first);
}
