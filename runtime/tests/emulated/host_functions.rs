//! Tests that drops and allocations in a host function never release memory in use, and never hang. Host functions
//! cannot use devices, so objects that require one are dropped by another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use crate::support::pinned::panicked;
use warpsmith_runtime::driver::StreamDriver;
use warpsmith_runtime::{DeviceBuffer, PinnedBuffer, Stream};

const BYTES: usize = 4096;

/// Blocks a stream until a message is sent, or the result is dropped.
fn stand_still(stream: &Stream) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel::<()>();
    stream.host_function(move || _ = wait.recv()).unwrap();
    go
}

/// Drops an item in a host function, and waits until that has returned.
fn drop_there(stream: &Stream, item: impl Send + 'static) {
    stream.host_function(move || drop(item)).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn pinned_memory_dropped_there_outlives_its_copy() {
    let (_, device, [copying, other]) = streams_fixture();
    let buffer = DeviceBuffer::from_host(&copying, &[7u8; BYTES]).unwrap();
    let go = stand_still(&copying);
    let pinned = PinnedBuffer::<u8>::zeroed(&device, BYTES).unwrap();
    drop_there(&other, copying.copy_to_host_async(&buffer, pinned).unwrap());
    let next = PinnedBuffer::<u8>::zeroed(&device, BYTES).unwrap();
    go.send(()).unwrap();
    copying.synchronize().unwrap();
    assert!(next.iter().all(|byte| *byte == 0), "no other memory was written");
}

#[test]
fn waiting_there_panics_and_keeps_the_memory() {
    let (_, device, [copying, other]) = streams_fixture();
    let buffer = DeviceBuffer::from_host(&copying, &[7u8; BYTES]).unwrap();
    let go = stand_still(&copying);
    let pinned = PinnedBuffer::<u8>::zeroed(&device, BYTES).unwrap();
    let pending = copying.copy_to_host_async(&buffer, pinned).unwrap();
    let (sender, receiver) = mpsc::channel();
    other.host_function(move || _ = sender.send(pending.wait().is_ok())).unwrap();
    other.synchronize().unwrap();
    assert!(receiver.recv().is_err(), "nothing was returned");
    let next = PinnedBuffer::<u8>::zeroed(&device, BYTES).unwrap();
    go.send(()).unwrap();
    copying.synchronize().unwrap();
    assert!(next.iter().all(|byte| *byte == 0));
}

#[test]
fn a_streams_memory_dropped_there_stays_ordered() {
    let (_, device, [ending, other]) = streams_fixture();
    let mut buffer = DeviceBuffer::<u8>::uninit(&ending, BYTES).unwrap();
    let go = stand_still(&ending);
    ending.memset(&mut buffer, 7).unwrap();
    drop(buffer);
    drop_there(&other, ending);
    let sending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        go.send(()).unwrap();
    });
    let stream = Stream::new(&device).unwrap();
    let next = DeviceBuffer::from_host(&stream, &[1u8; BYTES]).unwrap();
    sending.join().unwrap();
    device.synchronize().unwrap();
    assert!(next.to_host().unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn a_remotely_used_buffer_dropped_there_is_kept() {
    let (_, [near, far]) = devices();
    let [home, other] = [(); 2].map(|()| Stream::new(&near).unwrap());
    let using = Stream::new(&far).unwrap();
    let source = DeviceBuffer::from_host(&using, &[7u8; BYTES]).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&home, BYTES).unwrap();
    let go = stand_still(&using);
    using.copy(&source, &mut target).unwrap();
    drop_there(&other, target);
    let next = DeviceBuffer::from_host(&home, &[1u8; BYTES]).unwrap();
    go.send(()).unwrap();
    using.synchronize().unwrap();
    assert!(next.to_host().unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn a_drop_there_meets_an_emptied_cache() {
    let (_, device, stream) = fixture();
    let cached = DeviceBuffer::<u8>::zeros(&stream, 32 << 20).unwrap();
    let dropped = DeviceBuffer::<u8>::zeros(&stream, 1 << 20).unwrap();
    drop(cached);
    let (begun, begins) = mpsc::channel::<()>();
    stream
        .host_function(move || {
            _ = begins.recv();
            // The sleep allows the other thread to start its wait for this stream.
            std::thread::sleep(Duration::from_millis(50));
            drop(dropped);
        })
        .unwrap();
    begun.send(()).unwrap();
    device.memory().empty_cache().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn the_last_handles_may_be_dropped_there() {
    let (driver, device, stream) = fixture();
    let buffer = DeviceBuffer::<u8>::zeros(&stream, BYTES).unwrap();
    let own = Stream::new(&device).unwrap();
    let ended = Arc::downgrade(&driver);
    let pending = stream.copy_to_host_async(&buffer, vec![0u8; BYTES]).unwrap();
    own.clone().host_function(move || drop((buffer, pending, stream, device, own))).unwrap();
    drop(driver);
    for _ in 0..500 {
        if ended.strong_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the device was not closed");
}

#[test]
fn a_lost_devices_adopted_stream_is_awaited() {
    let (driver, device) = device();
    // SAFETY: its methods receive only live handles and memory of this device.
    let handle = driver.stream_create(unsafe { device.driver() }.1, 0).unwrap();
    // SAFETY: the stream lives as long as the driver.
    let stream = unsafe { Stream::adopt(&device, handle, ()) }.unwrap();
    let running = Arc::new(AtomicBool::new(false));
    let (go, wait) = mpsc::channel::<()>();
    let (started, begins) = mpsc::channel();
    {
        let running = Arc::clone(&running);
        stream
            .host_function(move || {
                running.store(true, Ordering::SeqCst);
                started.send(()).unwrap();
                _ = wait.recv();
                running.store(false, Ordering::SeqCst);
            })
            .unwrap();
    }
    begins.recv().unwrap();
    driver.poison(0, panicked());
    let sending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        go.send(()).unwrap();
    });
    stream.synchronize().unwrap_err();
    assert!(!running.load(Ordering::SeqCst), "its work still runs");
    sending.join().unwrap();
}
