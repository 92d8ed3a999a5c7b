//! Tests of page-locked host memory when calls fail, devices are lost or dropped, and many threads use it.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::support::pinned::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::memory::options::PinnedOptions;
use warpsmith_runtime::memory::statistics::HostMemoryStatistics;
use warpsmith_runtime::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};

#[test]
fn a_drop_that_gets_no_event_waits_instead() {
    for call in [Call::EventCreate, Call::EventRecord] {
        let (driver, device, stream) = fixture();
        let target = DeviceBuffer::<u8>::zeros(&stream, 4096).unwrap();
        driver.set_stream_delay(stream.handle(), Duration::from_millis(20));
        let buffer = PinnedBuffer::from_slice(&device, &[3u8; 4096]).unwrap();
        let address = buffer.as_ptr();
        send(&stream, &buffer, &target);
        driver.fail_call(call, 0);
        drop(buffer);
        assert!(stream.query().unwrap());
        assert_eq!(zeroed(&device, 4096).as_ptr(), address);
        assert_eq!(target.to_host().unwrap(), [3; 4096]);
        assert!(device.take_drop_error().is_none());
    }
}

#[test]
fn a_block_the_driver_keeps_stays_cached() {
    let (driver, device) = device();
    let buffers = [1 << 12, 1 << 13, 1 << 14].map(|bytes| zeroed(&device, bytes));
    drop(buffers);
    driver.fail_call(Call::PinnedFree, 1);
    let error = device.pinned_memory().empty_cache().unwrap_err();
    assert!(error.to_string().contains("pinned_free"), "{error}");
    assert_eq!((driver.live_pinned(), statistics(&device).allocations.current), (2, 2));
    device.pinned_memory().empty_cache().unwrap();
    assert_eq!((driver.live_pinned(), statistics(&device).allocated_bytes.current), (0, 0));
}

/// Runs a small program that uses every part. It either fails with an error or succeeds.
fn program(device: &Device) -> Result<(), Error> {
    let streams = [Stream::new(device)?, Stream::new(device)?];
    let targets =
        [DeviceBuffer::<u8>::zeros(&streams[0], 9000)?, DeviceBuffer::<u8>::zeros(&streams[1], 9000)?];
    let memory = device.pinned_memory();
    memory.configure(PinnedOptions { max_cached_size: Some(8000), ..PinnedOptions::default() });
    for bytes in [100, 9000, 5000, 9000, 5000] {
        let mut buffer = PinnedBuffer::<u8>::zeroed(device, bytes)?;
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(bytes as u8);
        // SAFETY: its methods receive only live handles and memory of this device.
        let (driver, context) = unsafe { device.driver() };
        for (stream, target) in streams.iter().zip(&targets) {
            buffer.record_use(stream)?;
            // SAFETY: the use was recorded, and the target waits for its own stream.
            unsafe {
                let source: *const c_void = buffer.as_ptr().cast();
                driver.copy_to_device(context, target.as_device_ptr(), source, bytes, stream.handle())?;
            }
        }
    }
    memory.empty_cache()?;
    Ok(())
}

#[test]
fn any_call_may_fail_without_a_leak() {
    let mut failed = 0;
    for &call in Call::ALL {
        for after in 0..12 {
            let driver = driver(1);
            let device = Device::with_driver(driver.clone(), 0).unwrap();
            driver.fail_call(call, after);
            let errors: Vec<Error> = (0..3)
                .filter_map(|_| {
                    let error = program(&device).err();
                    let waited = (0..2).map(|_| device.synchronize()).fold(Ok(()), Result::and);
                    error.or(waited.err())
                })
                .collect();
            assert!(errors.len() <= 1, "{}: {errors:?}", call.name());
            failed += errors.len();
            let _ = device.take_drop_error();
            device.pinned_memory().empty_cache().or_else(|_| device.pinned_memory().empty_cache()).unwrap();
            let now = statistics(&device);
            assert_eq!((now.active_requests.current, now.active_bytes.current), (0, 0), "{}", call.name());
            assert_eq!((now.allocations.current, now.allocated_bytes.current), (0, 0), "{}", call.name());
            assert_eq!(driver.live_pinned(), 0, "{} after {after}", call.name());
            drop(device);
            let lost = u64::from(call == Call::EventCreate && driver.calls(call) > after);
            assert_eq!(
                driver.calls(Call::EventCreate),
                driver.calls(Call::EventDestroy) + lost,
                "{}",
                call.name()
            );
        }
    }
    assert!(failed > 40, "only {failed} programs failed: the orders did not reach them");
}

#[test]
fn threads_get_memory_of_their_own() {
    for options in [
        PinnedOptions::default(),
        PinnedOptions {
            use_background_threads: true,
            reserve_segment_size: 300_000,
            ..PinnedOptions::default()
        },
        PinnedOptions {
            max_round_threshold: Some(20_000),
            max_cached_size: Some(30_000),
            ..PinnedOptions::default()
        },
    ] {
        let (driver, device) = device();
        device.pinned_memory().configure(options);
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (driver, device) = (&driver, &device);
                scope.spawn(move || random_steps(driver, device, seed));
            }
        });
        device.synchronize().unwrap();
        device.pinned_memory().empty_cache().unwrap();
        eventually("all blocks are freed", || {
            device.pinned_memory().empty_cache().unwrap();
            statistics(&device).active_requests.current == 0
        });
        let now = statistics(&device);
        assert_eq!(driver.live_pinned() as u64, now.allocations.current);
        assert_eq!(now.allocations.allocated - now.allocations.freed, now.allocations.current);
        assert_eq!(now.active_bytes.allocated, now.active_bytes.freed);
        assert_eq!(
            (now.num_host_alloc, now.num_host_free),
            (now.allocations.allocated, now.allocations.freed)
        );
        assert!(now.active_requests.allocated > now.num_host_alloc, "some were reused");
        assert!(device.take_drop_error().is_none());
        drop(device);
        assert_eq!(driver.live_pinned(), 0);
    }
}

fn random_steps(driver: &EmulatedDriver, device: &Device, seed: u64) {
    let mut random = random();
    let stream = Stream::new(device).unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_micros(20 * (seed % 3)));
    let target = DeviceBuffer::<u8>::zeros(&stream, 40_000).unwrap();
    let mut held: Vec<(PinnedBuffer<u8>, u8)> = Vec::new();
    for step in 0..400 {
        match random.usize(..8) {
            0..4 => {
                let bytes = random.usize(..40_001);
                let mut buffer = zeroed(device, bytes);
                assert!(buffer.iter().all(|byte| *byte == 0));
                let mark = random.u64(..) as u8;
                buffer.fill(mark);
                held.push((buffer, mark));
            }
            4..6 if !held.is_empty() => {
                let (buffer, mark) = held.swap_remove(random.usize(..held.len()));
                assert!(buffer.iter().all(|byte| *byte == mark), "step {step}: another writer changed it");
            }
            6 if !held.is_empty() => {
                let (buffer, mark) = held.swap_remove(random.usize(..held.len()));
                send(&stream, &buffer, &target);
                let bytes = buffer.len();
                drop(buffer);
                if random.usize(..2) == 0 {
                    let sent = target.to_host().unwrap();
                    assert!(sent[..bytes].iter().all(|byte| *byte == mark), "step {step}: reused too early");
                }
            }
            _ if random.usize(..20) == 0 => {
                device.pinned_memory().empty_cache().unwrap();
            }
            _ => {}
        }
    }
    stream.synchronize().unwrap();
    assert!(held.iter().all(|(buffer, mark)| buffer.iter().all(|byte| byte == mark)));
}

#[test]
fn threads_under_a_limit_never_hold_more() {
    let (driver, device) = device();
    device.pinned_memory().set_limit(Some(200_000));
    let errors: usize = std::thread::scope(|scope| {
        let threads = [(); 8].map(|()| {
            scope.spawn(|| {
                let mut random = random();
                let stream = Stream::new(&device).unwrap();
                let mut errors = 0;
                for _ in 0..300 {
                    match PinnedBuffer::<u8>::zeroed(&device, 1 + random.usize(..60_000)) {
                        Ok(buffer) if random.usize(..2) == 0 => buffer.record_use(&stream).unwrap(),
                        Ok(_) => {}
                        Err(error) => {
                            assert!(matches!(error, Error::PinnedOutOfMemory { .. }), "{error}");
                            errors += 1;
                        }
                    }
                }
                errors
            })
        });
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert!(statistics(&device).allocated_bytes.peak <= 200_000);
    assert!(errors < 8 * 300, "some requests were served");
    device.synchronize().unwrap();
    drop(zeroed(&device, 196_608));
    drop(device);
    assert_eq!(driver.live_pinned(), 0);
}

#[test]
fn a_buffer_outlives_stream_and_device_handles() {
    let (driver, device, stream) = fixture();
    let target = DeviceBuffer::<u8>::zeros(&stream, 4096).unwrap();
    let buffer = PinnedBuffer::from_slice(&device, &[5u8; 4096]).unwrap();
    let address = buffer.as_ptr();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(30));
    send(&stream, &buffer, &target);
    drop(stream);
    let mut other = zeroed(&device, 4096);
    assert_ne!(other.as_ptr(), address);
    drop(buffer);
    other.fill(6);
    device.synchronize().unwrap();
    assert_eq!(zeroed(&device, 4096).as_ptr(), address);
    assert_eq!(target.to_host().unwrap(), [5; 4096]);
    drop((target, other));

    let stream = Stream::new(&device).unwrap();
    let buffer = zeroed(&device, 9999);
    buffer.record_use(&stream).unwrap();
    drop((device, stream));
    assert_eq!(buffer[..], [0; 9999]);
    assert_eq!(driver.calls(Call::ContextRelease), 0);
    drop(buffer);
    assert_eq!((driver.calls(Call::ContextRelease), driver.live_pinned()), (1, 0));
    assert_eq!(driver.calls(Call::StreamCreate), driver.calls(Call::StreamDestroy));
    assert_eq!(driver.calls(Call::EventCreate), driver.calls(Call::EventDestroy));
}

#[test]
fn a_lost_device_hands_no_buffer_out() {
    let (driver, device, stream) = fixture();
    let memory = device.pinned_memory();
    memory.configure(PinnedOptions { max_cached_size: Some(50_000), ..PinnedOptions::default() });
    drop(zeroed(&device, 100));
    let [used, unused, large] = [4096, 8192, 60_000].map(|bytes| zeroed(&device, bytes));
    let waiting = zeroed(&device, 1000);
    waiting.record_use(&stream).unwrap();
    drop(waiting);
    driver.poison(0, panicked());
    let error = PinnedBuffer::<u8>::zeroed(&device, 10).unwrap_err();
    assert!(matches!(error, Error::KernelPanic { .. }), "{error}");
    assert!(matches!(used.record_use(&stream).unwrap_err(), Error::DeviceLost { .. }));
    for error in [
        PinnedBuffer::<u8>::zeroed(&device, 10).map(drop).unwrap_err(),
        PinnedBuffer::from_slice(&device, &[0u8; 100]).map(drop).unwrap_err(),
        memory.empty_cache().map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    }
    assert_eq!(unused[..], [0; 8192], "what is held can be read");
    drop((used, unused, large));
    assert!(device.take_drop_error().is_none(), "the fault is no error of the drops");
    drop((stream, device));
    assert_eq!(driver.live_pinned(), 0);
    assert_eq!(driver.calls(Call::PinnedFree), driver.calls(Call::PinnedAllocate));
    assert_eq!(driver.calls(Call::EventCreate), driver.calls(Call::EventDestroy));
}

#[test]
fn a_background_thread_of_a_lost_device_ends() {
    let (driver, device) = device();
    let options = PinnedOptions { use_background_threads: true, ..PinnedOptions::default() };
    device.pinned_memory().configure(options);
    let stream = Stream::new(&device).unwrap();
    let hold = driver.hold();
    let buffer = zeroed(&device, 4096);
    buffer.record_use(&stream).unwrap();
    drop(buffer);
    driver.poison(0, panicked());
    drop(hold);
    eventually("the thread asks no more", || {
        driver.reset_calls();
        std::thread::sleep(Duration::from_millis(5));
        driver.calls(Call::EventQuery) == 0
    });
    drop((stream, device));
    assert_eq!((driver.live_pinned(), Arc::strong_count(&driver)), (0, 1));
}

#[test]
fn a_block_waits_for_another_devices_stream() {
    let (driver, [own, other]) = devices();
    let stream = Stream::new(&other).unwrap();
    let target = DeviceBuffer::<u8>::zeros(&stream, 4096).unwrap();
    stream.synchronize().unwrap();
    let hold = driver.hold();
    let buffer = PinnedBuffer::from_slice(&own, &[8u8; 4096]).unwrap();
    let address = buffer.as_ptr();
    send(&stream, &buffer, &target);
    drop(buffer);
    assert_ne!(zeroed(&own, 4096).as_ptr(), address);
    drop(hold);
    stream.synchronize().unwrap();
    let both = [zeroed(&own, 4096), zeroed(&own, 4096)];
    assert!(both.iter().any(|buffer| buffer.as_ptr() == address));
    assert_eq!(target.to_host().unwrap(), [8; 4096]);
    assert_eq!(statistics(&other), HostMemoryStatistics::default());
}

#[test]
fn devices_go_in_any_order_while_blocks_wait() {
    for own_first in [true, false] {
        for lost in [true, false] {
            let (driver, [own, other]) = devices();
            let stream = Stream::new(&other).unwrap();
            let buffer = zeroed(&own, 4096);
            buffer.record_use(&stream).unwrap();
            drop(buffer);
            if lost {
                driver.poison(1, panicked());
            }
            drop(stream);
            if own_first {
                drop(own);
                assert_eq!(driver.live_pinned(), 0);
                drop(other);
            } else {
                drop(other);
                assert_eq!(own.pinned_memory().empty_cache().unwrap(), 4096);
                drop(own);
            }
            assert_eq!(driver.live_pinned(), 0);
            assert_eq!(driver.calls(Call::ContextRelease), 2);
            assert_eq!(driver.calls(Call::EventCreate), driver.calls(Call::EventDestroy));
        }
    }
}

#[test]
fn a_lost_device_keeps_no_foreign_blocks() {
    let (driver, [own, other]) = devices();
    let stream = Stream::new(&other).unwrap();
    let [before, after] = [zeroed(&own, 4096), zeroed(&own, 8192)];
    before.record_use(&stream).unwrap();
    drop(before);
    driver.poison(1, panicked());
    assert_eq!(own.pinned_memory().empty_cache().unwrap(), 4096);
    assert!(after.record_use(&stream).is_ok(), "no call has met the fault yet");
    drop(after);
    assert!(other.is_lost() && !own.is_lost());
    assert_eq!(own.pinned_memory().empty_cache().unwrap(), 8192);
    drop(zeroed(&own, 4096));
    assert!(own.take_drop_error().is_none() && other.take_drop_error().is_none());
}

#[test]
fn a_closing_device_waits_for_foreign_streams() {
    let (driver, [own, other]) = devices();
    let stream = Stream::new(&other).unwrap();
    let target = DeviceBuffer::<u8>::zeros(&stream, 4096).unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(50));
    let buffer = PinnedBuffer::from_slice(&own, &[4u8; 4096]).unwrap();
    let start = Instant::now();
    send(&stream, &buffer, &target);
    drop(buffer);
    drop(own);
    assert!(start.elapsed() >= Duration::from_millis(50), "the copy had time to run");
    assert_eq!(driver.live_pinned(), 0);
    assert_eq!(target.to_host().unwrap(), [4; 4096]);
}
