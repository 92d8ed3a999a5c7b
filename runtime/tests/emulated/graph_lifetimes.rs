//! Tests of how long graphs keep the resources of their launches: after failed launches, on a lost device, and on many
//! streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use crate::support::pinned::{eventually, panicked};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphCache, GraphExec, Stream};

/// Returns an executable graph that calls a function.
fn calling(device: &Device, function: impl Fn() + Send + Sync + 'static) -> GraphExec {
    let mut graph = Graph::new(device).unwrap();
    graph.add_host_function(function, &[]).unwrap();
    graph.instantiate().unwrap()
}

#[test]
fn a_failed_launch_keeps_what_may_run() {
    let (driver, device, stream) = fixture();
    let alive = Arc::new(());
    let kept = Arc::clone(&alive);
    let exec = calling(&device, move || _ = &kept);
    let hold = driver.hold();
    driver.fail_call(Call::GraphLaunch, 0);
    assert!(exec.launch(&stream).is_err());
    drop(exec);
    assert_eq!(Arc::strong_count(&alive), 2, "kept behind what may be enqueued");
    drop(hold);
    eventually("it is dropped", || Arc::strong_count(&alive) == 1);
}

#[test]
fn running_work_of_a_lost_device_is_awaited() {
    let (driver, device, stream) = fixture();
    let (started, runs) = channel();
    let (release, released) = channel::<()>();
    let (started, released) = (Mutex::new(started), Mutex::new(released));
    let exec = calling(&device, move || {
        started.lock().unwrap().send(()).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    exec.launch(&stream).unwrap();
    runs.recv_timeout(Duration::from_secs(60)).unwrap();
    driver.poison(0, panicked());
    assert!(stream.query().is_err() && device.is_lost());
    let dropped = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&dropped);
    let drops = std::thread::spawn(move || {
        drop(exec);
        done.store(true, Ordering::Release);
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!dropped.load(Ordering::Acquire), "the function still runs");
    release.send(()).unwrap();
    drops.join().unwrap();
}

#[test]
fn running_work_is_kept_after_its_drop() {
    let (driver, device, stream) = fixture();
    let (started, runs) = channel();
    let (release, released) = channel::<()>();
    let (started, released) = (Mutex::new(started), Mutex::new(released));
    let alive = Arc::new(());
    let kept = Arc::clone(&alive);
    let exec = calling(&device, move || {
        let _kept = &kept;
        started.lock().unwrap().send(()).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    exec.launch(&stream).unwrap();
    runs.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(exec); // waits for nothing
    driver.poison(0, panicked());
    assert!(stream.query().is_err() && device.is_lost());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(Arc::strong_count(&alive), 2, "the function still runs");
    release.send(()).unwrap();
    eventually("it is dropped", || Arc::strong_count(&alive) == 1);
}

#[test]
fn finished_launches_keep_no_stream() {
    let (driver, device) = device();
    let exec = calling(&device, || ());
    let before = driver.calls(Call::StreamDestroy);
    for _ in 0..20 {
        let stream = Stream::new(&device).unwrap();
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
    }
    // The last stream is kept until the next launch.
    assert!(driver.calls(Call::StreamDestroy) - before >= 19);
}

#[test]
fn a_cache_captures_on_its_own_stream() {
    let (driver, device, stream) = fixture();
    let x = DeviceBuffer::from_host(&stream, &[1u8; 4]).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    let mut cache = GraphCache::new(&device, 4);
    let created = driver.calls(Call::StreamCreate);
    assert!(cache.is_empty() && driver.calls(Call::StreamCreate) == created);
    let mut captured = Vec::new();
    for key in 0..3 {
        let inputs = [(&x).into(), (&y).into()];
        cache
            .launch(&stream, key, &inputs, |on| {
                captured.push(on.clone());
                on.copy(&x, &mut y)
            })
            .unwrap();
    }
    assert!(captured.iter().all(|stream| *stream == captured[0]));
    for _ in 0..64 {
        assert_ne!(Stream::from_pool(&device).unwrap(), captured[0], "a stream that others are given");
    }
    // A failed capture leaves the stream unchanged.
    let failed = cache.launch(&stream, 3, &[], |_| Err(Error::NoElapsedTime("any error")));
    assert!(matches!(failed, Err(Error::NoElapsedTime(_))));
    cache.launch(&stream, 3, &[], |on| on.copy(&x, &mut y)).unwrap();
    assert_eq!((y.to_host().unwrap(), cache.len()), (vec![1; 4], 4));
}
