//! Tests of private pools: the requests they serve, the memory they keep, and its release.

use crate::support::allocator::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::memory::statistics::PoolId;
use warpsmith_runtime::{Device, DeviceBuffer, MemoryPool, PoolOptions, Stream};

fn reserved_in_pool(device: &Device, pool: &MemoryPool) -> u64 {
    statistics(device).reserved_bytes_by_private_pools.get(&pool.id()).map_or(0, |pool| pool.all.current)
}

/// Allocates in a pool.
#[track_caller]
fn allocate_in(pool: &MemoryPool, stream: &Stream, bytes: usize) -> DeviceBuffer<u8> {
    let guard = pool.enter().unwrap();
    let buffer = allocate(stream, bytes);
    drop(guard);
    buffer
}

#[test]
fn pool_numbers_rise_and_mark_graph_pools() {
    let (_, device) = device_with(64 * MIB, "");
    let first = MemoryPool::new(&device).unwrap().id();
    let graph = MemoryPool::for_graph(&device).unwrap().id();
    let second = MemoryPool::new(&device).unwrap().id();
    assert_eq!((first.0, graph.1, second.0), (0, 0, 0));
    assert!(0 < first.1 && first.1 < graph.0 && graph.0 < second.1);
}

#[test]
fn a_guard_directs_requests_to_its_pool() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let before = allocate(&stream, 512);
    let inside = allocate_in(&pool, &stream, 1000);
    let after = allocate(&stream, 512);
    assert_eq!((pool.allocated(), pool.reserved()), (1024, 2 * MIB as u64));
    let snapshot = device.memory().snapshot();
    let pool_of = |buffer: &DeviceBuffer<u8>| find(&snapshot, address(buffer)).0.segment_pool_id;
    let PoolId(first, second) = pool.id();
    assert_eq!([pool_of(&before), pool_of(&inside), pool_of(&after)], [(0, 0), (first, second), (0, 0)]);
}

#[test]
fn a_block_returns_to_its_own_pool() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let [one, two] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let buffer = allocate_in(&one, &stream, 3 * MIB);
    let place = address(&buffer);
    let guard = two.enter().unwrap();
    std::thread::spawn(move || drop(buffer)).join().unwrap();
    drop(guard);
    assert_eq!((one.allocated(), two.reserved()), (0, 0));
    driver.reset_calls();
    assert_eq!(address(&allocate_in(&one, &stream, 3 * MIB)), place);
    assert_eq!(driver.calls(Call::MemoryAllocate), 0);
}

#[test]
fn of_nested_guards_the_innermost_counts() {
    let (_, device, stream) = stream_with(128 * MIB, "");
    let [outer, inner] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let mut held = Vec::new();
    let of_outer = outer.enter().unwrap();
    held.push(allocate(&stream, MIB));
    let of_inner = inner.enter().unwrap();
    held.extend([(); 2].map(|()| allocate(&stream, MIB)));
    let again = outer.enter().unwrap();
    held.push(allocate(&stream, MIB));
    drop(again);
    held.push(allocate(&stream, 1));
    drop(of_inner);
    held.push(allocate(&stream, MIB));
    drop(of_outer);
    held.push(allocate(&stream, MIB));
    let segments = [&outer, &inner].map(|pool| pool.reserved() / (2 * MIB as u64));
    assert_eq!(segments, [2, 2]);
    assert_eq!(device.memory().reserved() / (2 * MIB as u64), 5, "and one of the default pool");
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let (_, device, stream) = stream_with(128 * MIB, "");
    let [one, two] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let (first, second) = (one.enter().unwrap(), two.enter().unwrap());
    drop(first);
    let inside = allocate(&stream, 512);
    drop(second);
    let outside = allocate(&stream, 512);
    assert_eq!((one.allocated(), two.allocated(), device.memory().allocated()), (0, 512, 1024));
    drop((inside, outside));
}

#[test]
fn a_guard_is_of_its_thread_only() {
    let (_, device) = device_with(128 * MIB, "");
    let pools = [(); 4].map(|()| MemoryPool::new(&device).unwrap());
    let outer = pools[0].enter().unwrap();
    let held = std::thread::scope(|scope| {
        let in_pools = [1, 2, 3].map(|index| {
            let (pool, device) = (&pools[index], &device);
            scope.spawn(move || allocate_in(pool, &device.default_stream(), index * MIB))
        });
        let outside = scope.spawn(|| allocate(&device.default_stream(), 512));
        (in_pools.map(|thread| thread.join().unwrap()), outside.join().unwrap())
    });
    drop(outer);
    let allocated = pools.each_ref().map(|pool| pool.allocated() as usize / MIB);
    assert_eq!(allocated, [0, 1, 2, 3]);
    assert_eq!(device.memory().allocated() as usize, 6 * MIB + 512);
    drop(held);
}

#[test]
fn a_guard_is_of_its_device_only() {
    let driver = EmulatedDriver::builder().devices(2).memory(64 * MIB as u64).unbacked().build();
    let [first, second] = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    let pool = MemoryPool::new(&first).unwrap();
    let guard = pool.enter().unwrap();
    let held = [&first, &second].map(|device| allocate(&device.default_stream(), 512));
    drop(guard);
    assert_eq!((pool.allocated(), first.memory().allocated(), second.memory().allocated()), (512, 512, 512));
    assert!(second.memory().statistics().reserved_bytes_by_private_pools.is_empty());
    drop(held);
}

#[test]
fn pools_never_use_each_others_cache() {
    let (driver, device, stream) = stream_with(128 * MIB, "");
    let [one, two] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let buffers = [allocate(&stream, MIB), allocate_in(&one, &stream, MIB), allocate_in(&two, &stream, MIB)];
    let places = buffers.each_ref().map(address);
    drop(buffers);
    assert_eq!(driver.calls(Call::MemoryAllocate), 3);
    let again = [allocate_in(&two, &stream, MIB), allocate(&stream, MIB), allocate_in(&one, &stream, MIB)]
        .map(|b| address(&b));
    assert_eq!(again, [places[2], places[0], places[1]]);
}

#[test]
fn emptying_a_pool_leaves_the_others() {
    let (_, device, stream) = stream_with(128 * MIB, "");
    let [one, two] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let inactive = MemoryPool::new(&device).unwrap();
    allocate_and_free(&stream, 20 * MIB);
    drop([allocate_in(&one, &stream, 10 * MIB), allocate_in(&two, &stream, 12 * MIB)]);
    assert_eq!(inactive.empty_cache().unwrap(), 0);
    assert_eq!(one.empty_cache().unwrap(), 10 * MIB as u64);
    assert_eq!((one.reserved(), two.reserved()), (0, 12 * MIB as u64));
    assert_eq!(device.memory().empty_cache().unwrap(), 20 * MIB as u64);
    assert_eq!(reserved_in_pool(&device, &two), 12 * MIB as u64);
}

#[test]
fn a_pool_without_splits_allocates_whole_segments() {
    let (_, device, stream) = stream_with(256 * MIB, "");
    let pool = MemoryPool::with_options(&device, PoolOptions { no_split: true, ..PoolOptions::default() });
    let pool = pool.unwrap();
    let held = [512, 512, 3 * MIB].map(|bytes| allocate_in(&pool, &stream, bytes));
    let snapshot = device.memory().snapshot();
    assert_eq!(snapshot.segments.len(), 3);
    assert!(snapshot.segments.iter().all(|segment| segment.blocks.len() == 1));
    assert_eq!(held.each_ref().map(|buffer| block_size(buffer) / MIB), [2, 2, 20]);
    drop(held);
    assert_eq!(pool.empty_cache().unwrap(), 24 * MIB as u64);
}

#[test]
fn only_a_lending_pool_serves_under_pressure() {
    for lends in [false, true] {
        let (_, device, stream) = stream_with(64 * MIB, "");
        let options = PoolOptions { use_on_oom: lends, ..PoolOptions::default() };
        let pool = MemoryPool::with_options(&device, options).unwrap();
        let place = address(&allocate_in(&pool, &stream, 40 * MIB));
        if lends {
            let small = allocate(&stream, 20 * MIB);
            assert_ne!(address(&small), place, "not before the driver has no more");
            let buffer = allocate(&stream, 30 * MIB);
            assert_eq!((address(&buffer), pool.allocated()), (place, 30 * MIB as u64));
            drop(buffer);
            assert_eq!(pool.reserved(), 40 * MIB as u64, "it returns to the pool");
        } else {
            let report = fails(&stream, 30 * MIB);
            assert_eq!(report.cached_in_private_pools, 40 * MIB as u64);
            assert!(report.to_string().contains("`use_on_oom`"), "{report}");
        }
    }
}

#[test]
fn a_pool_lives_until_its_last_handle() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let clone = pool.clone();
    let guard = pool.enter().unwrap();
    allocate_and_free(&stream, 20 * MIB);
    drop((pool, clone));
    assert_eq!(driver.live_allocations(0), 1);
    allocate_and_free(&stream, 20 * MIB);
    assert_eq!(driver.calls(Call::MemoryAllocate), 1);
    drop(guard);
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn a_released_pools_cache_serves_under_pressure() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let buffer = allocate_in(&pool, &stream, 40 * MIB);
    drop(pool);
    fails(&stream, 40 * MIB);
    drop(buffer);
    drop(allocate(&stream, 40 * MIB));
}

#[test]
fn a_released_pool_leaves_no_event_behind() {
    let (driver, device) = device_with(64 * MIB, "");
    let (stream, other) = (device.default_stream(), Stream::new(&device).unwrap());
    let pool = MemoryPool::new(&device).unwrap();
    let buffer = allocate_in(&pool, &other, MIB);
    buffer.record_stream(&stream).unwrap();
    drop(buffer);
    drop(other);
    device.memory().empty_cache().unwrap();
    drop(pool);
    device.memory().empty_cache().unwrap();
    drop((stream, device));
    let events = (driver.calls(Call::EventCreate), driver.calls(Call::EventDestroy));
    assert!(events.0 >= 2 && events.0 == events.1, "{events:?} created and destroyed");
}
