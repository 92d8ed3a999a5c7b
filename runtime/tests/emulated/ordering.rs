//! Tests that buffers do not race when they are used on several streams, from several threads, and dropped while in
//! use.
//!
//! The emulated driver runs streams independently, delays them at random, and rejects a free of memory that enqueued
//! work uses, so a missing wait is detected.

use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::extension::Access;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Error, Graph, Launch, Stream};

#[test]
fn one_stream_needs_no_event_and_no_wait() {
    let (driver, _, stream, kernel) = kernel_fixture::<Axpy>();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 100]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 100).unwrap();
    driver.reset_calls();
    for _ in 0..20 {
        kernel.launch(&stream, Launch::auto(100), (1.0, &x, &mut y)).unwrap();
        stream.copy(&x, &mut y).unwrap();
    }
    let calls = [Call::EventCreate, Call::EventRecord, Call::StreamWaitEvent, Call::StreamSynchronize];
    assert_eq!(calls.map(|call| driver.calls(call)), [0; 4]);
    assert_eq!((driver.calls(Call::Launch), driver.calls(Call::CopyDevice)), (20, 20));
    drop((x, y));
    let all: u64 = Call::ALL.iter().map(|call| driver.calls(*call)).sum();
    assert_eq!(all, 40, "dropping calls nothing");
}

#[test]
fn elements_are_settled_unless_a_write_may_be_running() {
    let (driver, device, [first, second]) = streams_fixture();
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let [x, mut y] = [(); 2].map(|()| DeviceBuffer::from_host(&first, &[1.0f32; 64]).unwrap());
    let is_settled =
        |x: DeviceSlice<'_, f32>| [&first, &second].map(|stream| x.used(Access::Read).is_settled(stream));
    assert_eq!(is_settled(y.as_slice()), [true; 2]);
    let hold = driver.hold();
    kernel.launch(&first, Launch::auto(64), (1.0, &x, &mut y)).unwrap();
    assert_eq!(is_settled(x.as_slice()), [true; 2], "it is only read");
    assert_eq!(is_settled(y.as_slice()), [false; 2]);
    drop(hold);
    first.synchronize().unwrap();
    assert_eq!(is_settled(y.as_slice()), [true; 2]);

    let hold = driver.hold();
    second.copy(x.slice(..8), y.slice_mut(..8)).unwrap();
    assert_eq!(is_settled(y.slice(4..16)), [false; 2]);
    assert_eq!(is_settled(y.slice(8..)), [true; 2]);
    drop(hold);

    let captured = Graph::capture(&first, || {
        let is_settled = |x: DeviceSlice<'_, f32>| x.used(Access::Read).is_settled(&first);
        assert!(is_settled(y.as_slice()), "a launch of the graph waits for the copy");
        kernel.launch(&first, Launch::auto(64), (1.0, &x, &mut y))?;
        assert!(is_settled(x.as_slice()) && !is_settled(y.as_slice()));
        Ok::<(), Error>(())
    });
    captured.unwrap();
}

#[test]
fn a_drop_waits_for_nothing_and_frees_later() {
    let (driver, device, [first, second]) = streams_fixture();
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let x = DeviceBuffer::from_host(&first, &[1.0f32; 64]).unwrap();
    let own = DeviceBuffer::from_host(&first, &[1.0f32; 64]).unwrap();
    let [mut y, mut z] = [(); 2].map(|()| DeviceBuffer::from_host(&second, &[1.0f32; 64]).unwrap());
    let hold = driver.hold();
    kernel.launch(&second, Launch::auto(64), (1.0, &x, &mut y)).unwrap();
    kernel.launch(&first, Launch::auto(64), (1.0, &own, &mut z)).unwrap();
    let [of_x, of_y, of_z, of_own] = [&x, &y, &z, &own].map(DeviceBuffer::as_device_ptr);
    drop((x, y, z, own));
    let make = |stream| DeviceBuffer::<f32>::uninit(stream, 64).unwrap();
    let [on_first, on_second] = [&first, &second].map(make);
    assert_eq!(
        [on_first.as_device_ptr(), on_second.as_device_ptr()],
        [of_own, of_y],
        "their work is on their own stream, where what follows is ordered behind it"
    );
    let more = [&first, &second].map(make);
    assert!(!more.iter().any(|buffer| [of_x, of_z].contains(&buffer.as_device_ptr())), "still in use");
    drop((on_first, on_second, more));
    let statistics = device.memory().statistics();
    assert_eq!((statistics.allocation.all.current, statistics.active.all.current), (0, 2));
    drop(hold);
    device.synchronize().unwrap();
    let [on_first, on_second] = [&first, &second].map(|stream| [make(stream), make(stream)]);
    let among =
        |buffers: &[DeviceBuffer<f32>; 2], address| buffers.iter().any(|b| b.as_device_ptr() == address);
    assert!(among(&on_first, of_x) && among(&on_second, of_z));
    drop((on_first, on_second));
    assert_eq!(device.memory().statistics().active.all.current, 0);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn a_first_use_elsewhere_waits_for_old_work() {
    let (driver, device, [slow, fast]) = streams_fixture();
    let mut before = DeviceBuffer::<u32>::zeros(&slow, 100).unwrap();
    let source = DeviceBuffer::from_host(&slow, &[7u32; 100]).unwrap();
    let address = before.as_device_ptr();
    driver.set_stream_delay(slow.handle(), Duration::from_millis(20));
    slow.copy(&source, &mut before).unwrap();
    drop(before);
    let mut after = DeviceBuffer::<u32>::uninit(&slow, 100).unwrap();
    assert_eq!(after.as_device_ptr(), address);
    let kernel = module(&device).kernel::<Iota>().unwrap();
    kernel.launch(&fast, Launch::auto(100), (&mut after,)).unwrap();
    assert_eq!(after.to_host().unwrap(), (0..100).collect::<Vec<u32>>());
}

#[test]
fn threads_may_read_one_buffer() {
    for _ in 0..60 {
        let (driver, device) = device();
        driver.set_delay(Duration::from_micros(50));
        let kernel = module(&device).kernel::<Axpy>().unwrap();
        let stream = Stream::new(&device).unwrap();
        let x = DeviceBuffer::from_host(&stream, &[3.0f32; 500]).unwrap();
        let results = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| {
                scope.spawn(|| {
                    let stream = Stream::new(&device).unwrap();
                    let mut y = DeviceBuffer::zeros(&stream, 500).unwrap();
                    for _ in 0..5 {
                        kernel.launch(&stream, Launch::auto(500), (1.0, &x, &mut y)).unwrap();
                    }
                    y
                })
            });
            while !threads.iter().all(|thread| thread.is_finished()) {
                assert_eq!(x.to_host().unwrap(), [3.0; 500]);
            }
            threads.map(|thread| thread.join().unwrap())
        });
        drop(x);
        assert!(device.take_drop_error().is_none(), "every reader was waited for");
        for y in results {
            assert_eq!(y.to_host().unwrap(), [15.0; 500]);
        }
        device.memory().empty_cache().unwrap();
        assert_eq!(driver.live_allocations(0), 0);
    }
}

#[test]
fn threads_may_write_the_halves_of_one_buffer() {
    for round in 0..30 {
        let (driver, device) = device();
        let kernel = module(&device).kernel::<Iota>().unwrap();
        let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
        driver.set_stream_delay(streams[round % 2].handle(), Duration::from_micros(300));
        let mut buffer = DeviceBuffer::<u32>::zeros(&streams[0], 600).unwrap();
        let (low, high) = buffer.split_at_mut(200);
        std::thread::scope(|scope| {
            for (stream, mut part) in streams.iter().zip([low, high]) {
                let kernel = &kernel;
                scope.spawn(move || {
                    for _ in 0..4 {
                        kernel.launch(stream, Launch::auto(part.len()), (&mut part,)).unwrap();
                    }
                });
            }
        });
        if round % 3 == 0 {
            let expected: Vec<u32> = (0..200).chain(0..400).collect();
            assert_eq!(buffer.to_host().unwrap(), expected);
        }
        drop(buffer);
        assert!(device.take_drop_error().is_none());
        device.memory().empty_cache().unwrap();
        assert_eq!(driver.live_allocations(0), 0);
    }
}
