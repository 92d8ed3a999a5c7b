//! Tests that requests on a captured stream are served from the graph's pool, and that the allocator neither waits nor
//! records events during a capture.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, Error, GraphError, MemoryPool, PoolOptions, Stream};

#[test]
fn a_captured_stream_allocates_from_the_pool() {
    let (_, device, [captured, other]) = streams_with(128 * MIB, "");
    let (pool, private) = (MemoryPool::for_graph(&device).unwrap(), MemoryPool::new(&device).unwrap());
    let capture = pool.capture(&captured).unwrap();
    let inside = allocate(&captured, MIB);
    let beside = allocate(&other, MIB);
    let from_thread = std::thread::scope(|scope| scope.spawn(|| allocate(&captured, MIB)).join().unwrap());
    assert_eq!((pool.allocated(), device.memory().allocated()), (2 * MIB as u64, 3 * MIB as u64));
    let guard = private.enter().unwrap();
    let in_guard = allocate(&captured, MIB);
    assert_eq!((pool.allocated(), private.allocated()), (3 * MIB as u64, 0), "a capture goes before a guard");
    drop((guard, capture));
    let after = allocate(&captured, MIB);
    assert_eq!(pool.allocated(), 3 * MIB as u64);
    drop((inside, beside, from_thread, in_guard, after));
}

#[test]
fn graphs_sharing_a_pool_share_memory() {
    let (_, device) = device_with(128 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let reserved = [true, false].map(|shared| {
        let mut pools = vec![MemoryPool::for_graph(&device).unwrap()];
        for _ in 0..2 {
            if !shared {
                pools.push(MemoryPool::for_graph(&device).unwrap());
            }
            let Some(pool) = pools.last() else { continue };
            let capture = pool.capture(&stream).unwrap();
            allocate_and_free(&stream, MIB);
            drop(capture);
        }
        device.memory().reserved() as usize
    });
    assert_eq!(reserved, [2 * MIB, 4 * MIB]);
}

#[test]
fn capturing_again_and_again_takes_no_more_memory() {
    let (driver, device) = device_with(128 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let mut reserved = Vec::new();
    for _ in 0..10 {
        let pool = MemoryPool::for_graph(&device).unwrap();
        let capture = pool.capture(&stream).unwrap();
        let held = [100, 3 * MIB, 12 * MIB].map(|bytes| allocate(&stream, bytes));
        reserved.push(device.memory().reserved());
        drop((capture, held));
        pool.release().unwrap();
    }
    assert_eq!(reserved, [22 * MIB as u64; 10]);
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn blocks_of_other_streams_wait_for_the_capture() {
    let (driver, device, [stream, other]) = streams_with(128 * MIB, "");
    let pool = MemoryPool::for_graph(&device).unwrap();
    let outside = allocate(&stream, MIB);
    outside.record_stream(&other).unwrap();
    let capture = pool.capture(&stream).unwrap();
    let inside = allocate(&stream, MIB);
    inside.record_stream(&other).unwrap();
    let places = [address(&inside), address(&outside)];
    driver.reset_calls();
    drop((inside, outside));
    let next = [(); 3].map(|()| allocate(&stream, MIB));
    assert!(next.each_ref().iter().all(|buffer| !places.contains(&address(buffer))));
    let events = [
        Call::EventCreate,
        Call::EventRecord,
        Call::EventQuery,
        Call::EventSynchronize,
        Call::StreamWaitEvent,
    ];
    assert_eq!(events.map(|call| driver.calls(call)), [0; 5], "no event is touched in a capture");
    assert_eq!(statistics(&device).active.all.current - statistics(&device).allocation.all.current, 2);
    drop(capture);
    assert_eq!(driver.calls(Call::EventRecord), 2);
    device.synchronize().unwrap();
    let guard = pool.enter().unwrap();
    assert_eq!(allocate_and_free(&stream, MIB), places[0]);
    drop(guard);
    assert_eq!(allocate_and_free(&stream, MIB), places[1]);
    drop(next);
}

#[test]
fn blocks_wait_for_the_last_capture() {
    let (driver, device, [first, second, other]) = streams_with(128 * MIB, "");
    let pool = MemoryPool::for_graph(&device).unwrap();
    let captures = (pool.capture(&first).unwrap(), pool.capture(&second).unwrap());
    let buffer = allocate(&other, MIB);
    buffer.record_stream(&first).unwrap();
    drop(buffer);
    drop(captures.0);
    assert_eq!(driver.calls(Call::EventRecord), 0);
    drop(captures.1);
    assert_eq!(driver.calls(Call::EventRecord), 1);
}

#[test]
fn a_block_of_one_stream_is_reused_within() {
    let (_, device) = device_with(128 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::for_graph(&device).unwrap();
    let capture = pool.capture(&stream).unwrap();
    let place = allocate_and_free(&stream, MIB);
    assert_eq!(allocate_and_free(&stream, MIB), place);
    drop(capture);
}

#[test]
fn a_stream_may_go_while_a_block_waits() {
    let (_, device) = device_with(128 * MIB, "");
    let (done, finished) = mpsc::channel();
    // Runs in a separate thread so that the test can assert that it ends.
    std::thread::spawn(move || {
        let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let pool = MemoryPool::for_graph(&device).unwrap();
        let buffer = allocate(&stream, MIB);
        allocate_and_free(&other, MIB);
        buffer.record_stream(&other).unwrap();
        let capture = pool.capture(&stream).unwrap();
        drop((buffer, other));
        drop(capture);
        device.synchronize().unwrap();
        device.memory().empty_cache().unwrap();
        done.send(device.memory().reserved()).unwrap();
    });
    let reserved = finished.recv_timeout(Duration::from_secs(20)).expect("the end of the capture returns");
    assert_eq!(reserved, 0);
}

#[test]
fn out_of_memory_in_a_capture_is_immediate() {
    let (driver, device) = device_with(64 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    allocate_and_free(&stream, 40 * MIB);
    let pool = MemoryPool::for_graph(&device).unwrap();
    let capture = pool.capture(&stream).unwrap();
    driver.reset_calls();
    let report = fails(&stream, 30 * MIB);
    assert!(report.capturing && report.to_string().contains("a capture is active"), "{report}");
    let waits = [Call::StreamSynchronize, Call::EventSynchronize, Call::MemoryFree];
    assert_eq!(waits.map(|call| driver.calls(call)), [0; 3]);
    drop(capture);
    let guard = pool.enter().unwrap();
    drop(allocate(&stream, 30 * MIB));
    drop(guard);
}

#[test]
fn waiting_calls_are_refused_during_a_capture() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::for_graph(&device).unwrap();
    let capture = pool.capture(&stream).unwrap();
    let refused = [device.memory().empty_cache(), pool.empty_cache(), pool.capture(&stream).map(|_| 0)];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Graph(GraphError::CaptureUnderway))), "{refused:?}");
    }
    drop(capture);
    assert_eq!(device.memory().empty_cache().unwrap(), 0);
    drop(pool.capture(&stream).unwrap());
}

#[test]
fn a_pool_dropped_during_a_capture_frees_later() {
    let (driver, device) = device_with(64 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let [captured, dropped] = [(); 2].map(|()| MemoryPool::new(&device).unwrap());
    let guard = dropped.enter().unwrap();
    allocate_and_free(&stream, MIB);
    drop(guard);
    let capture = captured.capture(&stream).unwrap();
    driver.reset_calls();
    drop(dropped);
    assert_eq!((driver.calls(Call::MemoryFree), driver.calls(Call::StreamSynchronize)), (0, 0));
    drop(capture);
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn a_forbidding_capture_elsewhere_is_named() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    for code in [900, 901, 906] {
        driver.fail_call_with(Call::MemoryAllocate, 0, code);
        let error = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap_err();
        assert!(matches!(error, Error::CaptureForbidsAllocation { .. }), "{error}");
        assert!(error.to_string().contains("thread-local mode"), "{error}");
    }
    assert_eq!((device.memory().reserved(), device.memory().allocated()), (0, 0));
    drop(allocate(&stream, 100));
}

#[test]
fn a_lending_pool_serves_requests_without_pool() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = Stream::new(&device).unwrap();
    let lender = PoolOptions { use_on_oom: true, ..PoolOptions::default() };
    let lender = MemoryPool::with_options(&device, lender).unwrap();
    let guard = lender.enter().unwrap();
    let place = allocate_and_free(&stream, 60 * MIB);
    drop(guard);
    let pool = MemoryPool::for_graph(&device).unwrap();
    let capture = pool.capture(&stream).unwrap();
    fails(&stream, 30 * MIB);
    drop(capture);
    assert_eq!(allocate_and_free(&stream, 60 * MIB), place);
}
