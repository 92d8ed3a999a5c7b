//! Tests that blocks stay with their stream, wait for other streams, and move to another stream only with an event.

use std::time::Duration;

use crate::common::{Axpy, Iota, module};
use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, Launch, MemoryPool, PoolOptions, Stream};

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

#[test]
fn cross_stream_reuse_waits_for_the_last_work() {
    let (driver, device) = backed_device_with(128 * MIB, "cross_stream_reuse:True");
    let [slow, fast] = [(); 2].map(|()| Stream::new(&device).unwrap());
    driver.set_stream_delay(slow.handle(), Duration::from_millis(30));
    let source = DeviceBuffer::from_host(&slow, &vec![1u8; 3 * MIB]).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&slow, 20 * MIB).unwrap();
    let place = target.as_device_ptr();
    slow.copy(&source, target.slice_mut(..3 * MIB)).unwrap();
    drop(target);
    driver.reset_calls();
    let mut taken = DeviceBuffer::<u8>::zeros(&fast, 20 * MIB).unwrap();
    assert_eq!(taken.as_device_ptr(), place);
    assert_eq!((driver.calls(Call::MemoryAllocate), driver.calls(Call::StreamWaitEvent)), (0, 1));
    assert_eq!(driver.calls(Call::StreamSynchronize), 0);
    slow.synchronize().unwrap();
    taken.slice_mut(..1).copy_from_host(&[5]).unwrap();
    let content = taken.to_host().unwrap();
    assert_eq!((content[0], content[1..].iter().all(|byte| *byte == 0)), (5, true));
}

#[test]
fn a_segment_in_use_is_not_taken() {
    let (driver, device, [first, second]) = streams_with(128 * MIB, "cross_stream_reuse:True");
    let part = allocate(&first, 2 * MIB);
    driver.reset_calls();
    let other = allocate(&second, 2 * MIB);
    assert_eq!((driver.calls(Call::MemoryAllocate), segments(&device)), (1, 2));
    drop((part, other));
}

#[test]
fn an_oversize_segment_serves_no_small_request() {
    let (driver, _, [first, second]) =
        streams_with(128 * MIB, "cross_stream_reuse:True,max_split_size_mb:20");
    let place = allocate_and_free(&first, 40 * MIB);
    driver.reset_calls();
    let small = allocate(&second, 5 * MIB);
    assert_eq!((driver.calls(Call::StreamWaitEvent), driver.calls(Call::MemoryAllocate)), (0, 1));
    assert_eq!(allocate_and_free(&first, 40 * MIB), place);
    assert_eq!(allocate_and_free(&second, 38 * MIB), place);
    drop(small);
}

#[test]
fn a_pool_may_share_between_streams() {
    let (driver, device, [first, second]) = streams_with(128 * MIB, "");
    let sharing = PoolOptions { cross_stream_reuse: Some(true), ..PoolOptions::default() };
    let pool = MemoryPool::with_options(&device, sharing).unwrap();
    let guard = pool.enter().unwrap();
    let place = allocate_and_free(&first, 20 * MIB);
    driver.reset_calls();
    assert_eq!(allocate_and_free(&second, 20 * MIB), place);
    assert_eq!((driver.calls(Call::MemoryAllocate), driver.calls(Call::StreamWaitEvent)), (0, 1));
    drop(guard);
    allocate_and_free(&first, 20 * MIB);
    driver.reset_calls();
    allocate_and_free(&second, 20 * MIB);
    assert_eq!(driver.calls(Call::MemoryAllocate), 1, "the default pool does not");
}

#[test]
fn a_failed_wait_leaves_the_segment() {
    let (driver, device, [first, second]) = streams_with(128 * MIB, "cross_stream_reuse:True");
    let place = allocate_and_free(&first, 20 * MIB);
    driver.fail_call(Call::StreamWaitEvent, 0);
    let error = DeviceBuffer::<u8>::uninit(&second, 20 * MIB).unwrap_err();
    assert_eq!(error.driver_code(), Some(999), "{error}");
    assert_eq!(find(&device.memory().snapshot(), place).0.stream, first.id());
    assert_eq!(allocate_and_free(&second, 20 * MIB), place, "the next request takes it");
}

/// A completely free segment may have later work whose end is not marked because of a capture.
#[test]
fn a_segment_with_unmarked_work_is_not_taken() {
    let (driver, device) = backed_device_with(128 * MIB, "cross_stream_reuse:True");
    let [slow, fast, captured] = [(); 3].map(|()| Stream::new(&device).unwrap());
    let kernel = module(&device).kernel::<Iota>().unwrap();
    let before = DeviceBuffer::<u32>::uninit(&slow, 5 * MIB).unwrap();
    let place = before.as_device_ptr();
    drop(before);
    driver.set_stream_delay(slow.handle(), Duration::from_millis(50));
    let pool = MemoryPool::for_graph(&device).unwrap();
    let capture = pool.capture(&captured).unwrap();
    let mut again = DeviceBuffer::<u32>::uninit(&slow, 5 * MIB).unwrap();
    assert_eq!(again.as_device_ptr(), place);
    kernel.launch(&slow, Launch::linear(1000, 32), (&mut again.slice_mut(..1000),)).unwrap();
    drop(again);
    drop(capture);
    let taken = DeviceBuffer::<u32>::zeros(&fast, 5 * MIB).unwrap();
    slow.synchronize().unwrap();
    assert!(taken.to_host().unwrap().iter().all(|value| *value == 0));
}

/// The same if the segment is freed while the events of a third stream are awaited.
#[test]
fn a_segment_freed_under_pressure_stays_ordered() {
    let (driver, device) = backed_device_with(32 * MIB, "cross_stream_reuse:True");
    let [slow, fast, user] = [(); 3].map(|()| Stream::new(&device).unwrap());
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let source = DeviceBuffer::from_host(&slow, &[1.0f32; 1000]).unwrap();
    let make = |mib| DeviceBuffer::<f32>::uninit(&slow, mib * MIB / 4).unwrap();
    drop([make(10), make(12)]);
    let (other, mut used) = (make(10), make(12));
    let place = used.as_device_ptr();
    slow.synchronize().unwrap();
    driver.set_stream_delay(slow.handle(), Duration::from_millis(300));
    driver.set_stream_delay(user.handle(), Duration::from_millis(50));
    kernel.launch(&slow, Launch::auto(1000), (1.0, &source, &mut used.slice_mut(..1000))).unwrap();
    [&other, &used].into_iter().for_each(|buffer| buffer.record_stream(&user).unwrap());
    drop((other, used));
    let other = make(10);
    assert_eq!(statistics(&device).num_sync_all_streams, 1, "the events were waited for, not the stream");
    let taken = DeviceBuffer::<f32>::zeros(&fast, 12 * MIB / 4).unwrap();
    slow.synchronize().unwrap();
    let content = taken.to_host().unwrap();
    assert!(content.iter().all(|value| *value == 0.0), "taken at {place:?}: {taken:?}");
    drop(other);
}
