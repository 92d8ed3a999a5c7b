//! Tests without a cache: every request goes to the driver, or to the driver's own pool.

use std::time::Duration;

use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, MemoryPool, Stream};

const DRIVERS_POOL: &str = "backend:cudaMallocAsync";

/// Options with which every request goes to the driver.
const UNCACHED: &str = "caching:False";

#[test]
fn without_caching_each_request_reaches_the_driver() {
    let (driver, device) = backed_device_with(64 * MIB, UNCACHED);
    let stream = device.default_stream();
    for n in 1..=3 {
        let buffer = DeviceBuffer::<u8>::zeros(&stream, 3000).unwrap();
        assert_eq!((driver.calls(Call::MemoryAllocate), device.memory().reserved()), (n, 3072));
        drop(buffer);
        assert_eq!((driver.calls(Call::MemoryFree), device.memory().reserved()), (n, 0));
    }
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn without_caching_freeing_waits_for_all_users() {
    let (driver, device) = backed_device_with(64 * MIB, UNCACHED);
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    driver.set_stream_delay(other.handle(), Duration::from_millis(20));
    let source = DeviceBuffer::from_host(&stream, &[4u8; 1000]).unwrap();
    let target = source.clone_on(&other).unwrap();
    drop(source);
    assert!(other.query().unwrap());
    assert!(device.take_drop_error().is_none());
    assert_eq!(target.to_host().unwrap(), [4; 1000]);
}

#[test]
fn without_caching_out_of_memory_is_recoverable() {
    let (_, device) = backed_device_with(8 * MIB, UNCACHED);
    let stream = device.default_stream();
    let held = allocate(&stream, 6 * MIB);
    let report = fails(&stream, 3 * MIB);
    assert_eq!((report.segment, report.free), (3 * MIB as u64, 2 * MIB as u64));
    drop(held);
    drop(allocate(&stream, 8 * MIB));
}

#[test]
fn without_caching_pools_and_statistics_work_too() {
    let (driver, device) = backed_device_with(64 * MIB, UNCACHED);
    let stream = device.default_stream();
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let buffer = allocate(&stream, 1000);
    drop(guard);
    assert_eq!((pool.allocated(), pool.reserved()), (1024, 1024));
    drop(buffer);
    assert_eq!((pool.allocated(), pool.reserved(), driver.live_allocations(0)), (0, 0, 0));
    let now = statistics(&device);
    assert_eq!((now.allocation.all.allocated, now.allocation.all.freed), (1, 1));
    assert_eq!((now.num_device_alloc, now.num_device_free), (1, 1));
}

#[test]
fn the_drivers_pool_follows_stream_order() {
    let (driver, device) = backed_device_with(64 * MIB, DRIVERS_POOL);
    let stream = device.default_stream();
    assert_eq!(device.memory().options().backend.name(), "cudaMallocAsync");
    let buffer = DeviceBuffer::from_host(&stream, &[6u8; 5000]).unwrap();
    assert_eq!(buffer.to_host().unwrap(), [6; 5000]);
    assert_eq!((driver.calls(Call::StreamAllocate), driver.calls(Call::MemoryAllocate)), (1, 0));
    assert_eq!(device.memory().reserved(), 5120);
    let hold = driver.hold();
    drop(buffer);
    assert_eq!((driver.calls(Call::StreamFree), driver.calls(Call::StreamSynchronize)), (1, 2));
    assert_eq!(device.memory().allocated(), 0);
    drop(hold);
    stream.synchronize().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn the_drivers_pool_waits_for_other_streams() {
    let (driver, device) = backed_device_with(64 * MIB, DRIVERS_POOL);
    let [stream, slow] = [(); 2].map(|()| Stream::new(&device).unwrap());
    driver.set_stream_delay(slow.handle(), Duration::from_millis(20));
    let source = DeviceBuffer::from_host(&stream, &[4u8; 1000]).unwrap();
    let target = source.clone_on(&slow).unwrap();
    let waits = driver.calls(Call::StreamWaitEvent);
    drop(source);
    assert_eq!(driver.calls(Call::StreamWaitEvent), waits + 1, "the free waits, the host does not");
    assert!(!slow.query().unwrap());
    assert_eq!(target.to_host().unwrap(), [4; 1000]);
    device.synchronize().unwrap();
    assert!(!device.is_lost() && device.take_drop_error().is_none());
    assert_eq!(driver.live_allocations(0), 1);
}

#[test]
fn the_drivers_own_pool_keeps_to_the_fraction() {
    let (driver, device) =
        backed_device_with(64 * MIB, "backend:cudaMallocAsync,per_process_memory_fraction:0.5");
    let stream = device.default_stream();
    let held = allocate(&stream, 30 * MIB);
    driver.reset_calls();
    fails(&stream, 3 * MIB);
    assert_eq!(driver.calls(Call::StreamAllocate), 0);
    drop(held);
}
