//! Tests that copies between host memory and a device return immediately, copy the right data at the right time, and
//! always return the host memory.

use std::ops::Deref;
use std::sync::mpsc;

use crate::common::*;
use crate::support::pinned::{panicked, statistics};
use crate::transfers::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::{
    CopyFailed, Device, DeviceBuffer, Error, HostMemory, Launch, Pending, PinnedBuffer, PinnedRange, Result,
    Stream,
};

/// Runs code for each kind of host memory.
macro_rules! each_kind {
    ($check:ident($($argument:expr),*)) => {
        $check::<PinnedBuffer<u8>>($($argument),*);
        $check::<PinnedRange<u8>>($($argument),*);
        $check::<Vec<u8>>($($argument),*);
        $check::<Box<[u8]>>($($argument),*);
    };
}

fn up_and_down<H: Kind>(driver: &EmulatedDriver, device: &Device, length: usize) {
    let what = format!("{} of {length}", H::NAME);
    let stream = Stream::new(device).unwrap();
    let bytes = pattern(length, 5);
    let mut buffer = DeviceBuffer::from_host(&stream, &vec![9u8; length + 2]).unwrap();
    let (source, target) = (H::make(device, &bytes), H::make(device, &vec![0; length]));
    let hold = driver.hold();
    let up = stream.copy_from_host_async(source, buffer.slice_mut(1..length + 1)).unwrap();
    let down = stream.copy_to_host_async(buffer.slice(1..length + 1), target).unwrap();
    assert_eq!((up.is_done().unwrap(), down.is_done().unwrap()), (false, false), "{what}: nothing ran");
    drop(hold);
    assert_same(&up.wait().unwrap(), &bytes, &what);
    assert_same(&down.wait().unwrap(), &bytes, &what);
    let all = buffer.to_host().unwrap();
    assert_eq!((all[0], all[length + 1]), (9, 9), "{what}: nothing beside it");
    assert_same(&all[1..length + 1], &bytes, &what);
}

#[test]
fn every_kind_and_length_copies_without_waiting() {
    let (driver, device) = device();
    for length in LENGTHS {
        each_kind!(up_and_down(&driver, &device, length));
    }
}

#[test]
fn only_the_range_is_copied() {
    let (_, device, stream) = fixture();
    let mut buffer = DeviceBuffer::<u16>::zeros(&stream, 3).unwrap();
    let range = PinnedBuffer::from_slice(&device, &[1u16, 2, 3, 4, 5]).unwrap().into_range(1..=3);
    assert_eq!((range.range(), &range[..]), (1..4, &[2u16, 3, 4][..]));
    let range = stream.copy_from_host_async(range, &mut buffer).unwrap().wait().unwrap();
    assert_eq!(buffer.to_host().unwrap(), [2, 3, 4]);
    let mut all = range.into_buffer();
    all.fill(7);
    let mut range = stream.copy_to_host_async(&buffer, all.into_range(2..)).unwrap().wait().unwrap();
    range[0] = 1;
    assert_eq!(range.into_buffer()[..], [7, 7, 1, 3, 4]);
}

#[test]
#[should_panic(expected = "not within 5 elements")]
fn a_range_out_of_bounds_panics() {
    let (_, device) = device();
    let _ = PinnedBuffer::<u8>::zeroed(&device, 5).unwrap().into_range(3..6);
}

#[test]
fn elements_of_any_size_and_none_are_copied() {
    let (_, _, stream) = fixture();
    let wide = [3u8; 40];
    let mut buffer = DeviceBuffer::uninit(&stream, 3).unwrap();
    let _ = stream.copy_from_host_async(vec![wide; 3], &mut buffer).unwrap();
    assert_eq!(stream.copy_to_host_async(&buffer, vec![[0; 40]; 3]).unwrap().wait().unwrap(), [wide; 3]);
    let mut units = DeviceBuffer::<()>::uninit(&stream, 3).unwrap();
    let _ = stream.copy_from_host_async(vec![(); 3], &mut units).unwrap();
    assert_eq!(stream.copy_to_host_async(&units, vec![(); 3]).unwrap().wait().unwrap(), [(); 3]);
}

fn between_kernels<H>(
    driver: &EmulatedDriver,
    device: &Device,
    streams: [&Stream; 2],
    make: impl Fn(Vec<f32>) -> H,
) where
    H: HostMemory<Element = f32> + Deref<Target = [f32]>,
{
    let kernel = module(device).kernel::<Axpy>().unwrap();
    let [first, second] = streams;
    // This size is copied in four chunks.
    let n = ((2 << 20) + 400) / 4;
    let ones = DeviceBuffer::from_host(first, &vec![1.0f32; n]).unwrap();
    let mut y = DeviceBuffer::from_host(first, &vec![5.0f32; n]).unwrap();
    let mut early = DeviceBuffer::<f32>::uninit(first, n).unwrap();
    let hold = driver.hold();
    // `y` becomes 6, and then 10 is copied from the host. `y` becomes 12, which is copied to the host, and then 13.
    kernel.launch(first, Launch::auto(n), (1.0, &ones, &mut y)).unwrap();
    first.copy(&y, &mut early).unwrap();
    let up = second.copy_from_host_async(make(vec![10.0; n]), &mut y).unwrap();
    kernel.launch(first, Launch::auto(n), (2.0, &ones, &mut y)).unwrap();
    let down = second.copy_to_host_async(&y, make(vec![0.0; n])).unwrap();
    kernel.launch(first, Launch::auto(n), (1.0, &ones, &mut y)).unwrap();
    drop(hold);
    let all = |elements: &[f32], value| elements.iter().all(|element| *element == value);
    assert!(all(&early.to_host().unwrap(), 6.0), "the upload came after the kernel");
    assert!(all(&up.wait().unwrap(), 10.0));
    assert!(all(&down.wait().unwrap(), 12.0));
    assert!(all(&y.to_host().unwrap(), 13.0));
}

#[test]
fn copies_are_ordered_with_kernels() {
    let (driver, device, [first, second]) = streams_fixture();
    for streams in [[&first, &first], [&first, &second]] {
        between_kernels(&driver, &device, streams, |values| values);
        between_kernels(&driver, &device, streams, Vec::into_boxed_slice);
        let pinned = |values: Vec<f32>| PinnedBuffer::from_slice(&device, &values).unwrap();
        between_kernels(&driver, &device, streams, pinned);
    }
    assert!(device.take_drop_error().is_none());
}

#[test]
fn a_copy_pins_at_most_two_chunks() {
    let (driver, device, stream) = fixture();
    let length = 10 * CHUNK_BYTES + 1;
    let mut buffer = DeviceBuffer::<u8>::uninit(&stream, length).unwrap();
    let bytes = pattern(length, 1);
    let hold = driver.hold();
    let pending = stream.copy_from_host_async(bytes.clone(), &mut buffer).unwrap();
    let held = statistics(&device);
    assert_eq!(
        (held.active_requests.current, held.active_bytes.current),
        (2, 2 * CHUNK_BYTES as u64),
        "for ten chunks"
    );
    drop(hold);
    assert_same(&pending.wait().unwrap(), &bytes, "upload");
    for round in 0..3 {
        let down = stream.copy_to_host_async(&buffer, vec![0; length]).unwrap().wait().unwrap();
        assert_same(&down, &bytes, "download");
        assert_eq!(statistics(&device).allocated_bytes.peak, 2 * CHUNK_BYTES as u64, "round {round}");
    }
    assert_eq!(driver.calls(Call::PinnedAllocate), 2);
}

#[test]
fn large_pieces_need_a_function_a_chunk() {
    let (driver, _, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 10 * CHUNK_BYTES).unwrap();
    let mut calls = |length: usize| {
        driver.reset_calls();
        let _ = stream.copy_from_host_async(vec![1; length], buffer.slice_mut(..length)).unwrap();
        let up = driver.calls(Call::HostFunction);
        let _ = stream.copy_to_host_async(buffer.slice(..length), vec![0; length]).unwrap().wait().unwrap();
        assert_eq!(driver.calls(Call::StreamSynchronize), 0, "nothing waits for the stream");
        (up, driver.calls(Call::HostFunction) - up)
    };
    assert_eq!(calls(2 << 20), (0, 0));
    assert_eq!(calls((2 << 20) + 1), (4, 4), "so that host and device work side by side");
    assert_eq!(calls(12 << 20), (4, 4));
    assert_eq!(calls(10 * CHUNK_BYTES), (10, 10));
}

#[test]
fn chunks_alternate_between_two_streams() {
    let (driver, _, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::uninit(&stream, 6 * CHUNK_BYTES).unwrap();
    driver.reset_calls();
    let pending = stream.copy_from_host_async(vec![1; 6 * CHUNK_BYTES], &mut buffer).unwrap();
    assert_eq!(driver.calls(Call::CopyToDevice), 6);
    assert_eq!(
        driver.calls(Call::StreamWaitEvent),
        2,
        "a wait in between would keep host and device in turn"
    );
    pending.wait().unwrap();
}

#[test]
fn a_pool_stream_alternates_with_another() {
    let (driver, device) = device();
    let stream = Stream::from_pool(&device).unwrap();
    let mut buffer = DeviceBuffer::<u8>::uninit(&stream, CHUNK_BYTES + 1).unwrap();
    driver.reset_calls();
    // There are as many rounds as streams in the pool, so that this stream is also selected.
    for round in 1..=32 {
        drop(stream.copy_from_host_async(vec![1; CHUNK_BYTES + 1], &mut buffer).unwrap());
        assert_eq!(driver.calls(Call::StreamWaitEvent), 2 * round);
    }
    stream.synchronize().unwrap();
}

#[test]
fn small_pieces_in_flight_do_not_share_memory() {
    let (driver, _, stream) = fixture();
    let mut buffers = [(); 4].map(|()| DeviceBuffer::<u8>::zeros(&stream, 1000).unwrap());
    let hold = driver.hold();
    for (value, buffer) in buffers.iter_mut().enumerate() {
        drop(stream.copy_from_host_async(vec![value as u8 + 1; 1000], &mut *buffer).unwrap());
    }
    let downs = buffers.each_ref().map(|buffer| stream.copy_to_host_async(buffer, vec![0; 1000]).unwrap());
    let dropped = stream.copy_to_host_async(&buffers[0], vec![0; 1000]).unwrap();
    drop(dropped);
    drop(stream.copy_from_host_async(vec![9; 1000], &mut buffers[0]).unwrap());
    drop(hold);
    for (value, down) in downs.into_iter().enumerate() {
        assert_eq!(down.wait().unwrap(), [value as u8 + 1; 1000]);
    }
    assert_eq!(buffers[0].to_host().unwrap(), [9; 1000]);
}

#[test]
fn dropping_a_pending_copy_lets_it_run() {
    let (driver, device, stream) = fixture();
    for length in [1000, 2 * CHUNK_BYTES + 1] {
        let bytes = pattern(length, 3);
        let mut buffer = DeviceBuffer::<u8>::zeros(&stream, length).unwrap();
        let hold = driver.hold();
        drop(stream.copy_from_host_async(bytes.clone(), &mut buffer).unwrap());
        drop(stream.copy_to_host_async(&buffer, vec![0; length]).unwrap());
        let mut again = DeviceBuffer::<u8>::zeros(&stream, length).unwrap();
        let pinned = PinnedBuffer::from_slice(&device, &bytes).unwrap();
        drop(stream.copy_from_host_async(pinned, &mut again).unwrap());
        drop(
            stream.copy_to_host_async(&again, PinnedBuffer::<u8>::zeroed(&device, length).unwrap()).unwrap(),
        );
        std::mem::forget(stream.copy_to_host_async(&again, vec![0; length]).unwrap());
        drop(hold);
        assert_same(&buffer.to_host().unwrap(), &bytes, "staged");
        assert_same(&again.to_host().unwrap(), &bytes, "pinned");
    }
    stream.synchronize().unwrap();
    assert!(device.take_drop_error().is_none());
}

#[test]
fn device_memory_is_reusable_behind_a_copy() {
    let (driver, device, stream) = fixture();
    let length = 2 * CHUNK_BYTES + 3;
    let bytes = pattern(length, 8);
    let buffer = DeviceBuffer::from_host(&stream, &bytes).unwrap();
    let (address, hold) = (buffer.as_device_ptr(), driver.hold());
    let pending = stream.copy_to_host_async(&buffer, vec![0; length]).unwrap();
    drop(buffer);
    let mut next = DeviceBuffer::<u8>::uninit(&stream, length).unwrap();
    assert_eq!(next.as_device_ptr(), address, "the same memory, behind the copy");
    stream.memset(&mut next, 0xEE).unwrap();
    drop(hold);
    assert_same(&pending.wait().unwrap(), &bytes, "before it was set");
    assert!(next.to_host().unwrap().iter().all(|byte| *byte == 0xEE));
    drop(next);
    device.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
}

#[track_caller]
fn failed<H>(result: std::result::Result<Pending<H>, CopyFailed<H>>) -> (Error, H) {
    match result {
        Ok(_) => panic!("the copy was enqueued"),
        Err(CopyFailed { error, memory }) => (error, memory),
    }
}

fn bad_input<H: Kind>(driver: &EmulatedDriver, here: &Device, there: &Device) {
    let stream = Stream::new(here).unwrap();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 10).unwrap();
    let mut other = DeviceBuffer::<u8>::zeros(&there.default_stream(), 9).unwrap();
    let memory = H::make(here, &[4; 9]);
    driver.reset_calls();
    let (error, memory) = failed(stream.copy_from_host_async(memory, &mut buffer));
    assert!(matches!(error, Error::LengthMismatch { left: 10, right: 9, .. }), "{error}");
    let (error, memory) = failed(stream.copy_to_host_async(&buffer, memory));
    assert!(matches!(error, Error::LengthMismatch { left: 9, right: 10, .. }), "{error}");
    let (error, memory) = failed(stream.copy_from_host_async(memory, &mut other));
    assert!(error.to_string().contains("the target is on cpu:1, but the stream is on cpu:0"), "{error}");
    let (error, memory) = failed(stream.copy_to_host_async(&other, memory));
    assert!(error.to_string().contains("the source is on cpu:1, but the stream is on cpu:0"), "{error}");
    assert_eq!(memory[..], [4; 9]);
    let calls: u64 = Call::ALL.iter().map(|call| driver.calls(*call)).sum();
    assert_eq!(calls, 0, "nothing reached the driver");
}

#[test]
fn mismatched_copies_return_the_memory() {
    let (driver, [here, there]) = devices();
    each_kind!(bad_input(&driver, &here, &there));
}

/// Fails one call after the other until the copy succeeds although a failure is still pending.
fn failing_calls<H: Kind>(length: usize, down: bool) -> usize {
    let calls = [
        Call::PinnedAllocate,
        Call::StreamCreate,
        Call::EventCreate,
        Call::EventRecord,
        Call::StreamWaitEvent,
        Call::HostFunction,
        Call::CopyToDevice,
        Call::CopyToHost,
    ];
    let mut failures = 0;
    for call in calls {
        for after in 0.. {
            let what = format!("{} of {length}, down: {down}, {} {after}", H::NAME, call.name());
            let (driver, device, [home, stream]) = streams_fixture();
            let bytes = pattern(length, 1);
            let mut buffer = DeviceBuffer::<u8>::zeros(&home, length).unwrap();
            let memory = H::make(&device, &bytes);
            let before = driver.calls(call);
            driver.fail_call(call, after);
            let result = if down {
                stream.copy_to_host_async(&buffer, memory)
            } else {
                stream.copy_from_host_async(memory, &mut buffer)
            };
            // The copy must not fail because freeing staging memory failed.
            let done = match result {
                Ok(pending) => {
                    assert_eq!(pending.wait().unwrap().len(), length, "{what}");
                    driver.calls(call) - before <= after
                }
                Err(CopyFailed { error, memory }) => {
                    // For other kinds of memory, the event of the staging memory may be pending.
                    let pinned = H::NAME.starts_with("Pinned");
                    assert!(!pinned || stream.query().unwrap(), "{what}: nothing uses the memory");
                    let text = error.to_string();
                    let said = text.contains(call.name()) || text.contains("out of page-locked");
                    assert!(said, "{what}: {text}");
                    assert!(down || memory[..] == bytes, "{what}: the source is as it was");
                    failures += 1;
                    false
                }
            };
            assert!(!device.is_lost(), "{what}");
            // If the injected failure is still pending, it occurs here exactly once.
            let mut again = || -> Result<Vec<u8>> {
                let _ = stream.copy_from_host_async(bytes.clone(), &mut buffer)?.wait()?;
                buffer.to_host()
            };
            assert_same(&again().or_else(|_| again()).unwrap(), &bytes, &what);
            drop(buffer);
            drop([home, stream]);
            device.synchronize().unwrap();
            device.memory().empty_cache().unwrap();
            device.pinned_memory().empty_cache().unwrap();
            assert_eq!((driver.live_allocations(0), driver.live_pinned()), (0, 0), "{what}: a leak");
            if done {
                break;
            }
        }
    }
    failures
}

#[test]
fn any_call_may_fail_and_memory_returns() {
    let large = 2 * CHUNK_BYTES + 1;
    for down in [false, true] {
        assert!(failing_calls::<PinnedRange<u8>>(1000, down) >= 4, "pinned, down: {down}");
        assert!(failing_calls::<Vec<u8>>(1000, down) >= 5, "small, down: {down}");
        assert!(failing_calls::<Vec<u8>>(large, down) >= 14, "large, down: {down}");
    }
}

#[test]
fn a_failed_copy_returns_memory_when_done() {
    let (driver, device, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 100).unwrap();
    stream.synchronize().unwrap();
    let source = PinnedBuffer::from_slice(&device, &[6u8; 100]).unwrap();
    let hold = driver.hold();
    // The copy is enqueued, and the event after it fails.
    driver.fail_call(Call::EventRecord, 0);
    std::thread::scope(|scope| {
        let (back, came) = mpsc::channel();
        let (stream, buffer) = (&stream, &mut buffer);
        scope.spawn(move || {
            let (error, mut memory) = failed(stream.copy_from_host_async(source, buffer));
            memory.fill(0);
            back.send(error).unwrap();
        });
        while driver.calls(Call::StreamSynchronize) < 2 {
            assert!(came.try_recv().is_err(), "the memory was returned before the copy had run");
            std::thread::yield_now();
        }
        assert!(came.try_recv().is_err(), "the memory was returned before the copy had run");
        drop(hold);
        assert!(came.recv().unwrap().to_string().contains("event_record"));
    });
    assert_eq!(buffer.to_host().unwrap(), [6; 100], "the copy read what was there before");
}

#[test]
fn without_pinned_memory_a_vec_comes_back() {
    let (driver, device, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 2 * CHUNK_BYTES).unwrap();
    device.pinned_memory().set_limit(Some(3 << 19));
    let (error, memory) = failed(stream.copy_from_host_async(vec![1; 2 * CHUNK_BYTES], &mut buffer));
    assert!(matches!(error, Error::PinnedOutOfMemory { .. }), "{error}");
    assert_eq!((memory.len(), driver.calls(Call::HostFunction)), (2 * CHUNK_BYTES, 0));
    let length = 1 << 20;
    let memory =
        stream.copy_from_host_async(vec![1; length], buffer.slice_mut(..length)).unwrap().wait().unwrap();
    assert_eq!(memory.len(), length, "a small piece is within the limit");
    device.pinned_memory().set_limit(None);
    stream.copy_from_host_async(vec![1; 2 * CHUNK_BYTES], &mut buffer).unwrap().wait().unwrap();
}

fn lost<H: Kind>(length: usize, down: bool, before: bool) {
    let what = format!("{} of {length}, down: {down}, lost before: {before}", H::NAME);
    let (driver, device, stream) = fixture();
    let bytes = pattern(length, 2);
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, length).unwrap();
    stream.synchronize().unwrap();
    let memory = H::make(&device, &bytes);
    let memory = if before {
        driver.poison(0, panicked());
        stream.synchronize().unwrap_err();
        let (error, memory) = failed(if down {
            stream.copy_to_host_async(&buffer, memory)
        } else {
            stream.copy_from_host_async(memory, &mut buffer)
        });
        assert!(matches!(error, Error::DeviceLost { .. }), "{what}: {error}");
        memory
    } else {
        let hold = driver.hold();
        let pending = if down {
            stream.copy_to_host_async(&buffer, memory)
        } else {
            stream.copy_from_host_async(memory, &mut buffer)
        }
        .unwrap();
        driver.poison(0, panicked());
        drop(hold);
        let CopyFailed { error, memory } = pending.wait().unwrap_err();
        assert!(error.is_device_lost() && error.to_string().contains("told to"), "{what}: {error}");
        memory
    };
    assert_eq!(memory.len(), length, "{what}");
    assert!(down || memory[..] == bytes, "{what}");
    drop((memory, buffer, stream));
    drop(device);
    assert_eq!(driver.live_pinned(), 0, "{what}");
    let device = Device::with_driver(driver, 0).unwrap();
    let stream = device.default_stream();
    let mut buffer = DeviceBuffer::<u8>::uninit(&stream, length).unwrap();
    let _ = stream.copy_from_host_async(bytes.clone(), &mut buffer).unwrap().wait().unwrap();
    assert_same(&buffer.to_host().unwrap(), &bytes, "reopened");
}

#[test]
fn a_lost_device_returns_the_memory() {
    for before in [false, true] {
        for down in [false, true] {
            each_kind!(lost(1000, down, before));
            lost::<Vec<u8>>(3 * CHUNK_BYTES, down, before);
        }
    }
}

#[test]
fn a_lost_device_is_waited_for_too() {
    // The device is lost by a fault of another stream, which the program observes first. The memory must be returned
    // only when its copy has finished.
    let (driver, device, [stream, other]) = streams_fixture();
    let buffer = DeviceBuffer::<u8>::zeros(&stream, 100).unwrap();
    stream.synchronize().unwrap();
    let hold = driver.hold();
    let pending =
        stream.copy_to_host_async(&buffer, PinnedBuffer::<u8>::zeroed(&device, 100).unwrap()).unwrap();
    driver.poison(0, panicked());
    other.record_event().map(drop).unwrap_err();
    assert!(device.is_lost());
    let before = driver.calls(Call::StreamSynchronize);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pending.wait().unwrap_err().error);
        while driver.calls(Call::StreamSynchronize) == before {
            assert!(!waiter.is_finished(), "it returned without waiting");
            std::thread::yield_now();
        }
        drop(hold);
        assert!(waiter.join().unwrap().is_device_lost());
    });
}

#[test]
fn threads_copy_on_shared_and_own_streams() {
    let (driver, device) = device();
    let shared = Stream::new(&device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (device, shared) = (&device, &shared);
            scope.spawn(move || {
                let own = Stream::new(device).unwrap();
                let stream = if thread % 2 == 0 { shared } else { &own };
                for round in 0..4 {
                    let length = [10, 3_000_000, CHUNK_BYTES + 9][(usize::from(thread) + round) % 3];
                    let bytes = pattern(length, thread);
                    let mut buffer = DeviceBuffer::<u8>::uninit(stream, length).unwrap();
                    let _ = stream.copy_from_host_async(bytes.clone(), &mut buffer).unwrap();
                    let back = stream.copy_to_host_async(&buffer, vec![0; length]).unwrap();
                    drop(buffer);
                    assert_same(&back.wait().unwrap(), &bytes, "thread");
                }
            });
        }
    });
    drop(shared);
    device.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    device.pinned_memory().empty_cache().unwrap();
    assert_eq!((driver.live_allocations(0), driver.live_pinned()), (0, 0));
}
