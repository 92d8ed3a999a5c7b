//! Tests that blocks stay with their stream, wait for other streams, and move to another stream only with an event.

use std::time::Duration;

use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{MemoryPool, Stream};

#[test]
fn a_request_takes_no_other_streams_block() {
    let (driver, device, [first, second]) = streams_with(128 * MIB, "");
    let place = allocate_and_free(&first, 20 * MIB);
    device.synchronize().unwrap();
    let other = allocate(&second, 20 * MIB);
    assert_ne!(address(&other), place);
    assert_eq!(allocate_and_free(&first, 20 * MIB), place);
    assert_eq!(driver.calls(Call::MemoryAllocate), 2);
}

#[test]
fn a_recorded_block_waits_for_its_stream() {
    let (driver, device, [stream, busy]) = streams_with(128 * MIB, "");
    let buffer = allocate(&stream, 3 * MIB);
    let place = address(&buffer);
    buffer.record_stream(&busy).unwrap();
    let hold = driver.hold();
    drop(buffer);
    let meanwhile = allocate(&stream, 3 * MIB);
    assert_ne!(address(&meanwhile), place);
    let now = statistics(&device);
    assert_eq!((now.allocation.all.current, now.active.all.current), (1, 2));
    drop(hold);
    busy.synchronize().unwrap();
    assert_eq!(allocate_and_free(&stream, 3 * MIB), place);
    drop(meanwhile);
    assert_eq!(statistics(&device).active.all.current, 0);
}

#[test]
fn recording_a_stream_twice_changes_nothing() {
    let (driver, _, [stream, other]) = streams_with(128 * MIB, "");
    let (own, twice) = (allocate(&stream, MIB), allocate(&stream, MIB));
    own.record_stream(&stream).unwrap();
    twice.record_stream(&other).and_then(|()| twice.record_stream(&other)).unwrap();
    let place = address(&own);
    driver.reset_calls();
    let hold = driver.hold();
    drop(own);
    assert_eq!(driver.calls(Call::EventRecord), 0);
    drop(twice);
    assert_eq!(driver.calls(Call::EventRecord), 1);
    assert_eq!(allocate_and_free(&stream, MIB), place);
    drop(hold);
}

#[test]
fn a_slow_stream_delays_its_own_blocks_only() {
    let (driver, _, [stream, slow, fast]) = streams_with(128 * MIB, "");
    driver.set_stream_delay(slow.handle(), Duration::from_millis(300));
    let [first, second] = [(); 2].map(|()| allocate(&stream, 20 * MIB));
    let places = [address(&first), address(&second)];
    [&slow, &fast].into_iter().for_each(|stream| first.record_stream(stream).unwrap());
    second.record_stream(&fast).unwrap();
    drop(first);
    drop(second);
    fast.synchronize().unwrap();
    assert_eq!(allocate_and_free(&stream, 20 * MIB), places[1], "freed later, and ready before");
    assert!(!slow.query().unwrap());
    slow.synchronize().unwrap();
    let both = [(); 2].map(|()| allocate(&stream, 20 * MIB));
    assert_eq!(both.map(|buffer| address(&buffer)), places);
}

#[test]
fn a_failed_event_is_replaced_by_a_wait() {
    for call in [Call::EventCreate, Call::EventRecord] {
        let (driver, device, [stream, other]) = streams_with(128 * MIB, "");
        let place = {
            let buffer = allocate(&stream, 20 * MIB);
            buffer.record_stream(&other).unwrap();
            driver.fail_call(call, 0);
            address(&buffer)
        };
        assert_eq!(driver.calls(Call::StreamSynchronize), 1);
        assert!(device.take_drop_error().is_none(), "nothing was lost");
        assert_eq!(allocate_and_free(&stream, 20 * MIB), place);
    }
}

#[test]
fn a_dropped_streams_cache_goes_to_the_next() {
    let (driver, device) = device_with(128 * MIB, "");
    let first = Stream::new(&device).unwrap();
    let place = allocate_and_free(&first, 20 * MIB);
    drop(first);
    driver.reset_calls();
    let second = Stream::new(&device).unwrap();
    assert_eq!(allocate_and_free(&second, 20 * MIB), place);
    assert_eq!((driver.calls(Call::MemoryAllocate), driver.calls(Call::StreamWaitEvent)), (0, 1));
    assert_eq!(driver.calls(Call::StreamSynchronize), 0, "the host waits for nothing");
    assert_eq!(find(&device.memory().snapshot(), place).0.stream, second.id());
    let third = Stream::new(&device).unwrap();
    assert_ne!(allocate_and_free(&third, 20 * MIB), place, "there is nothing for a third");
}

#[test]
fn a_dropped_streams_pool_cache_stays_there() {
    let (_, device) = device_with(128 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let place = allocate_and_free(&Stream::new(&device).unwrap(), 20 * MIB);
    let next = Stream::new(&device).unwrap();
    assert_eq!(allocate_and_free(&next, 20 * MIB), place);
    drop(guard);
    assert_ne!(allocate_and_free(&next, 20 * MIB), place);
    assert_eq!(pool.reserved(), 20 * MIB as u64);
}
