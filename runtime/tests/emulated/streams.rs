//! Tests of streams: pools, priorities, the current stream, adopted streams, host functions, and uses from several
//! threads.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::driver::{StreamDriver, StreamHandle};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch, Stream};

#[test]
fn a_pool_makes_32_streams_in_turn() {
    let (driver, device) = device();
    assert_eq!(driver.calls(Call::StreamCreate), 1, "the default stream");
    let first: Vec<_> = (0..32).map(|_| Stream::from_pool(&device).unwrap()).collect();
    assert_eq!(driver.calls(Call::StreamCreate), 33);
    assert_eq!(first.iter().map(Stream::id).collect::<HashSet<_>>().len(), 32, "all differ");
    let again: Vec<_> = (0..32).map(|_| Stream::from_pool(&device).unwrap()).collect();
    assert_eq!(first, again, "the 33rd is the first again");
    assert_eq!(driver.calls(Call::StreamCreate), 33);
    assert!(!first.contains(&device.default_stream()));
}

#[test]
fn pool_streams_live_as_long_as_the_device() {
    let (driver, device) = device();
    let ids: Vec<_> = (0..32).map(|_| Stream::from_pool(&device).unwrap().id()).collect();
    assert_eq!(driver.calls(Call::StreamDestroy), 0);
    let again: Vec<_> = (0..32).map(|_| Stream::from_pool(&device).unwrap().id()).collect();
    assert_eq!(ids, again);
    let stream = Stream::from_pool(&device).unwrap();
    drop(device);
    assert_eq!(driver.calls(Call::ContextRelease), 0, "the stream's handle keeps the device");
    let buffer = DeviceBuffer::from_host(&stream, &[1u32, 2]).unwrap();
    drop(stream);
    assert_eq!(buffer.to_host().unwrap(), [1, 2]);
    drop(buffer);
    assert_eq!((driver.calls(Call::StreamDestroy), driver.calls(Call::ContextRelease)), (33, 1));
}

#[test]
fn a_failed_stream_is_tried_next_turn() {
    let (driver, device) = device();
    driver.fail_call(Call::StreamCreate, 0);
    assert!(matches!(Stream::from_pool(&device).unwrap_err(), Error::Driver { .. }));
    let made: HashSet<_> = (0..32).map(|_| Stream::from_pool(&device).unwrap().id()).collect();
    assert_eq!(made.len(), 32);
}

#[test]
fn each_priority_has_its_pool() {
    let (_, device) = device();
    assert_eq!(device.stream_priorities(), (0, -5), "of an H200 too");
    let of = |priority| Stream::from_pool_with_priority(&device, priority).unwrap();
    let priorities = [3, 0, -1, -2, -3, -4, -10, i32::MIN, i32::MAX].map(|priority| of(priority).priority());
    assert_eq!(priorities, [0, 0, -1, -2, -3, -3, -3, -3, 0]);
    let urgent: HashSet<_> = (0..32).map(|_| of(-1).id()).collect();
    let usual: HashSet<_> = (0..32).map(|_| of(0).id()).collect();
    assert!(urgent.is_disjoint(&usual) && urgent.len() == 32 && usual.len() == 32);
    assert_eq!(Stream::from_pool(&device).unwrap().priority(), 0);
}

#[test]
fn many_threads_get_streams_from_one_pool() {
    let (driver, device) = device();
    let ids: Vec<HashSet<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..64).map(|_| Stream::from_pool(&device).unwrap().id()).collect()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: HashSet<u64> = ids.into_iter().flatten().collect();
    assert_eq!((all.len(), driver.calls(Call::StreamCreate)), (32, 33), "none was made twice");
}

#[test]
fn one_stream_may_be_used_from_many_threads() {
    let (driver, device) = device();
    driver.set_delay(Duration::from_micros(20));
    let stream = Stream::from_pool(&device).unwrap();
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 50]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut y = DeviceBuffer::zeros(&stream, 50).unwrap();
                for _ in 0..20 {
                    kernel.launch(&stream, Launch::auto(50), (2.0, &x, &mut y)).unwrap();
                }
                assert_eq!(y.to_host().unwrap(), [40.0; 50]);
            });
        }
    });
    assert_eq!(driver.calls(Call::EventRecord), 0);
}

#[test]
fn the_current_stream_is_per_thread_and_device() {
    let (_, [first, second]) = devices();
    let [of_first, of_second] = [&first, &second].map(|device| Stream::from_pool(device).unwrap());
    assert_eq!(Stream::current(&first), first.default_stream());
    of_first.set_current();
    assert_eq!(Stream::current(&first), of_first);
    assert_eq!(Stream::current(&second), second.default_stream(), "each device has its own");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(Stream::current(&first), first.default_stream(), "each thread has its own");
            of_second.set_current();
        });
    });
    assert_eq!(Stream::current(&second), second.default_stream());
    first.default_stream().set_current();
    assert_eq!(Stream::current(&first), first.default_stream());
}

#[test]
fn a_guard_restores_device_and_streams() {
    let (_, [first, second]) = devices();
    let [a, b] = [(); 2].map(|()| Stream::from_pool(&first).unwrap());
    let [c, d] = [(); 2].map(|()| Stream::from_pool(&second).unwrap());
    let state = || (Device::current().unwrap(), Stream::current(&first), Stream::current(&second));
    let outer = a.guard();
    assert_eq!(state(), (first.clone(), a.clone(), second.default_stream()));
    {
        let _inner = c.guard();
        assert_eq!(state(), (second.clone(), a.clone(), c.clone()));
        b.set_current();
        assert_eq!(state(), (second.clone(), b.clone(), c.clone()), "setting a stream sets no device");
        {
            let _innermost = d.guard();
            assert_eq!(state(), (second.clone(), b.clone(), d.clone()));
        }
        assert_eq!(state(), (second.clone(), b.clone(), c.clone()));
    }
    assert_eq!(state(), (first.clone(), a.clone(), second.default_stream()));
    drop(outer);
    assert_eq!(Stream::current(&first), first.default_stream());
}

#[test]
fn a_stream_waits_for_streams_of_any_device() {
    let (driver, [first, second]) = devices();
    let [slow, fast] = [&first, &second].map(|device| Stream::from_pool(device).unwrap());
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(name)
    };
    let hold = driver.hold();
    slow.host_function(note("slow")).unwrap();
    fast.wait_stream(&slow).unwrap();
    fast.host_function(note("fast")).unwrap();
    driver.set_stream_delay(slow.handle(), Duration::from_millis(20));
    drop(hold);
    fast.synchronize().unwrap();
    assert_eq!(*order.lock().unwrap(), ["slow", "fast"]);
    driver.reset_calls();
    slow.wait_stream(&slow).unwrap();
    assert_eq!(driver.calls(Call::StreamWaitEvent), 0, "a stream need not wait for itself");
}

#[test]
fn a_destroyed_adopted_stream_is_an_error() {
    let (driver, device) = device();
    // SAFETY: its methods receive only live handles and memory of this device.
    let context = unsafe { device.driver() }.1;
    let raw = driver.stream_create(context, 0).unwrap();
    // SAFETY: the stream belongs to this context; its early destruction is the subject of the test, on the emulated
    // device.
    let stream = unsafe { Stream::adopt(&device, raw, ()) }.unwrap();
    let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 3).unwrap();
    // SAFETY: as above.
    unsafe { driver.stream_destroy(context, raw) };
    let kernel = module(&device).kernel::<Iota>().unwrap();
    let is_told = |error: Error| {
        assert!(matches!(error, Error::StreamDestroyed { .. }), "{error}");
        assert!(error.to_string().contains("keep it until"), "{error}");
    };
    is_told(kernel.launch(&stream, Launch::auto(3), (&mut buffer,)).unwrap_err());
    is_told(stream.synchronize().unwrap_err());
    is_told(stream.record_event().unwrap_err());
    is_told(stream.query().unwrap_err());
    is_told(device.default_stream().wait_stream(&stream).unwrap_err());
    // SAFETY: the call fails, so the handle is not used.
    is_told(unsafe { Stream::adopt(&device, raw, ()) }.unwrap_err());
    // SAFETY: as above.
    is_told(unsafe { Stream::adopt(&device, StreamHandle(u64::MAX), ()) }.unwrap_err());
    drop((buffer, stream));
    assert!(!device.is_lost());
    let other = DeviceBuffer::from_host(&device.default_stream(), &[1u8]).unwrap();
    assert_eq!(other.to_host().unwrap(), [1], "the device goes on");
}

#[test]
fn an_adopted_streams_owner_is_dropped_after_its_last_use() {
    let (_, device) = device();
    let theirs = Arc::new(Stream::new(&device).unwrap());
    // SAFETY: the owner keeps the stream, or the call fails.
    let adopt = |handle, owner: &Arc<Arc<Stream>>| unsafe { Stream::adopt(&device, handle, owner.clone()) };
    // SAFETY: `theirs` outlives the handle.
    let without = unsafe { Stream::adopt(&device, theirs.handle(), ()) }.unwrap();
    let owners = [(); 3].map(|()| theirs.clone()).map(Arc::new);
    let ours = adopt(theirs.handle(), &owners[0]).unwrap();
    assert_eq!(ours, without);
    assert_eq!(adopt(theirs.handle(), &owners[1]).unwrap(), ours);
    adopt(StreamHandle(u64::MAX), &owners[2]).unwrap_err();
    let counts = || owners.each_ref().map(Arc::strong_count);
    assert_eq!(counts(), [2, 1, 1], "the first owner is kept");
    let buffer = DeviceBuffer::from_host(&ours, &[1u8; 3]).unwrap();
    drop((ours, without));
    assert_eq!(counts(), [2, 1, 1], "the buffer uses the stream");
    drop(buffer);
    assert_eq!(counts(), [1, 1, 1]);
    // A new adoption has an owner of its own.
    let again = adopt(theirs.handle(), &owners[1]).unwrap();
    assert_eq!(counts(), [1, 2, 1]);
    drop(again);
    assert_eq!(counts(), [1, 1, 1]);
    theirs.synchronize().unwrap();
}

#[test]
fn an_owned_stream_goes_with_its_last_user() {
    let (driver, _device, stream) = fixture();
    let clone = stream.clone();
    let buffer = DeviceBuffer::from_host(&stream, &[1u8; 3]).unwrap();
    drop(stream);
    drop(clone);
    assert_eq!(driver.calls(Call::StreamDestroy), 0);
    assert_eq!(buffer.to_host().unwrap(), [1; 3]);
    drop(buffer);
    assert_eq!(driver.calls(Call::StreamDestroy), 1);
}

#[test]
fn a_lost_device_gives_no_streams() {
    let (_, device) = device();
    let stream = Stream::from_pool(&device).unwrap();
    module(&device).kernel::<PanicAt>().unwrap().launch(&stream, Launch::auto(1), (0,)).unwrap();
    assert!(stream.synchronize().unwrap_err().is_device_lost());
    assert!(matches!(Stream::from_pool(&device).unwrap_err(), Error::DeviceLost { .. }));
    assert!(matches!(stream.host_function(|| ()).unwrap_err(), Error::DeviceLost { .. }));
    assert!(matches!(stream.record_event().unwrap_err(), Error::DeviceLost { .. }));
}
