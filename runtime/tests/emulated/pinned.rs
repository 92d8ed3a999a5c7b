//! Tests of page-locked host memory on the emulated device: its reuse and its amount.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::support::pinned::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::memory::options::PinnedOptions;
use warpsmith_runtime::memory::statistics::{HostMemoryStatistics, Statistic};
use warpsmith_runtime::{DeviceBuffer, Error, PinnedBuffer, Stream};

#[test]
fn a_block_is_reused_after_its_copy() {
    let (driver, device, stream) = fixture();
    let target = DeviceBuffer::<u8>::zeros(&stream, 5000).unwrap();
    stream.synchronize().unwrap();
    let hold = driver.hold();
    let first = PinnedBuffer::from_slice(&device, &[7u8; 5000]).unwrap();
    let address = first.as_ptr();
    send(&stream, &first, &target);
    drop(first);
    let mut second = zeroed(&device, 5000);
    assert_ne!(second.as_ptr(), address);
    second.fill(9);
    drop(hold);
    stream.synchronize().unwrap();
    assert_eq!(target.to_host().unwrap(), [7; 5000]);
    let third = zeroed(&device, 5000);
    assert_eq!(third.as_ptr(), address);
    assert_eq!(third[..], [0; 5000], "its contents were cleared");
    assert_eq!(statistics(&device).num_host_alloc, 2);
}

#[test]
fn a_block_without_uses_is_reused_at_once() {
    let (driver, device) = device();
    let _hold = driver.hold();
    let address = zeroed(&device, 3000).as_ptr();
    assert_eq!(zeroed(&device, 3000).as_ptr(), address);
    assert_eq!(zeroed(&device, 2800).as_ptr(), address, "a quarter may be unused");
    assert_ne!(zeroed(&device, 9000).as_ptr(), address);
    assert_eq!(driver.calls(Call::EventCreate), 0);
}

#[test]
fn a_block_waits_for_all_of_its_streams() {
    let (driver, device) = device();
    let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
    let targets = [(); 3].map(|()| DeviceBuffer::<u8>::zeros(&streams[0], 4096).unwrap());
    streams[0].synchronize().unwrap();
    driver.set_stream_delay(streams[1].handle(), Duration::from_millis(400));
    let buffer = zeroed(&device, 4096);
    let address = buffer.as_ptr();
    streams.iter().zip(&targets).for_each(|(stream, target)| send(stream, &buffer, target));
    buffer.record_use(&streams[2]).unwrap();
    driver.reset_calls();
    drop(buffer);
    assert_eq!(driver.calls(Call::EventRecord), 3, "one per stream");
    streams[0].synchronize().unwrap();
    streams[2].synchronize().unwrap();
    assert_ne!(zeroed(&device, 4096).as_ptr(), address);
    streams[1].synchronize().unwrap();
    let both = [zeroed(&device, 4096), zeroed(&device, 4096)];
    assert!(both.iter().any(|buffer| buffer.as_ptr() == address));
    driver.reset_calls();
    both[0].record_use(&streams[0]).unwrap();
    drop(both);
    assert_eq!(driver.calls(Call::EventCreate), 0, "events are used again");
}

#[test]
fn a_slow_stream_keeps_only_its_blocks() {
    let (driver, device) = device();
    let [slow, fast] = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let targets = [(); 2].map(|()| DeviceBuffer::<u8>::zeros(&fast, 4096).unwrap());
    fast.synchronize().unwrap();
    driver.set_stream_delay(slow.handle(), Duration::from_millis(400));
    let [first, second] = [zeroed(&device, 4096), zeroed(&device, 4096)];
    let address = second.as_ptr();
    send(&slow, &first, &targets[0]);
    send(&fast, &second, &targets[1]);
    drop(first);
    drop(second);
    fast.synchronize().unwrap();
    assert_eq!(zeroed(&device, 4096).as_ptr(), address);
    assert!(!slow.query().unwrap(), "the test was too slow to show anything");
    slow.synchronize().unwrap();
}

#[test]
fn rounding_and_reuse_waste_little() {
    let (_, device) = device();
    let mut random = random();
    for step in 0..10_000 {
        let doublings = random.usize(..19);
        let bytes = 512 + random.usize(..1 << doublings);
        if step < 2_000 {
            device.pinned_memory().empty_cache().unwrap();
        }
        let buffer = zeroed(&device, bytes);
        let got = statistics(&device).active_bytes.current as usize;
        let most = if step < 2_000 { bytes + bytes / 8 } else { (bytes + bytes / 2).max(bytes + 4096) };
        assert!((bytes..=most).contains(&got), "{got} for {bytes}");
        drop(buffer);
    }
    let statistics = statistics(&device);
    assert!(
        statistics.num_host_alloc < 2_500,
        "{} of 10 000 were not from the cache",
        statistics.num_host_alloc
    );
}

#[test]
fn statistics_tell_what_is_held_and_used() {
    let (driver, device) = device();
    let memory = device.pinned_memory();
    assert_eq!(memory.statistics(), HostMemoryStatistics::default());
    let buffer = PinnedBuffer::<f32>::zeroed(&device, 10_000).unwrap();
    let is = |current, peak, allocated, freed| Statistic { current, peak, allocated, freed };
    let now = memory.statistics();
    assert_eq!((now.allocations, now.active_requests), (is(1, 1, 1, 0), is(1, 1, 1, 0)));
    assert_eq!(
        (now.allocated_bytes, now.active_bytes),
        (is(40960, 40960, 40960, 0), is(40960, 40960, 40960, 0))
    );
    assert_eq!((now.num_host_alloc, now.host_alloc_time.count, now.num_host_free), (1, 1, 0));
    drop(buffer);
    let buffer = zeroed(&device, 40_000);
    let small = zeroed(&device, 100);
    drop(buffer);
    let now = memory.statistics();
    assert_eq!((now.allocations, now.active_requests), (is(2, 2, 2, 0), is(1, 2, 3, 2)));
    assert_eq!(now.allocated_bytes, is(41472, 41472, 41472, 0));
    assert_eq!(now.active_bytes, is(512, 41472, 82432, 81920));
    assert_eq!(memory.empty_cache().unwrap(), 40960);
    let now = memory.statistics();
    assert_eq!((now.allocations, now.allocated_bytes), (is(1, 2, 2, 1), is(512, 41472, 41472, 40960)));
    assert_eq!((now.num_host_alloc, now.num_host_free, now.host_free_time.count), (2, 1, 1));
    assert_eq!((driver.live_pinned(), driver.calls(Call::PinnedFree)), (1, 1));
    memory.reset_peak_statistics();
    memory.reset_accumulated_statistics();
    let now = memory.statistics();
    assert_eq!((now.allocated_bytes, now.active_bytes), (is(512, 512, 0, 0), is(512, 512, 0, 0)));
    assert_eq!((now.num_host_alloc, now.num_host_free, now.host_alloc_time.count), (0, 0, 0));
    drop(small);
}

#[test]
fn large_requests_are_page_rounded_and_uncached() {
    let (driver, device) = device();
    let memory = device.pinned_memory();
    memory.configure(PinnedOptions {
        max_round_threshold: Some(1 << 20),
        max_cached_size: Some(2 << 20),
        ..PinnedOptions::default()
    });
    let of = |bytes| {
        let buffer = zeroed(&device, bytes);
        let held = statistics(&device).active_bytes.current;
        drop(buffer);
        (held, memory.empty_cache().unwrap())
    };
    assert_eq!(of((1 << 20) - 1), (1 << 20, 1 << 20));
    assert_eq!(of((1 << 20) + 1), ((1 << 20) + 4096, (1 << 20) + 4096));
    assert_eq!(of(2 << 20), (2 << 20, 2 << 20));
    assert_eq!(of((2 << 20) + 1), ((2 << 20) + 4096, 0), "freed by the drop");
    assert_eq!(driver.live_pinned(), 0);

    let stream = Stream::new(&device).unwrap();
    let hold = driver.hold();
    let buffer = zeroed(&device, 3 << 20);
    buffer.record_use(&stream).unwrap();
    drop(buffer);
    assert_eq!(driver.live_pinned(), 1, "its stream has not come past it");
    drop(hold);
    stream.synchronize().unwrap();
    drop(zeroed(&device, 512));
    assert_eq!((driver.live_pinned(), statistics(&device).allocated_bytes.current), (1, 512));
}

#[test]
fn the_reserve_is_one_allocation_that_stays() {
    let (driver, device) = device();
    let memory = device.pinned_memory();
    memory.configure(PinnedOptions { reserve_segment_size: 60_000, ..PinnedOptions::default() });
    assert_eq!(driver.live_pinned(), 0, "made at the first use");
    let buffers: Vec<_> = (0..15).map(|_| zeroed(&device, 3000)).collect();
    assert_eq!(driver.live_pinned(), 1);
    let start = buffers[0].as_ptr().addr();
    assert!(buffers.iter().enumerate().all(|(i, buffer)| buffer.as_ptr().addr() == start + 4096 * i));
    assert_eq!(statistics(&device).allocated_bytes.current, 61440);
    let outside = zeroed(&device, 3000);
    assert_eq!(driver.live_pinned(), 2, "the reserve is used up");
    drop(buffers);
    assert_eq!((memory.empty_cache().unwrap(), driver.live_pinned()), (0, 2));
    assert!((start..start + 61440).contains(&zeroed(&device, 10).as_ptr().addr()));
    drop(outside);
    assert_eq!((memory.empty_cache().unwrap(), driver.live_pinned()), (3072, 1));
    memory.configure(PinnedOptions { max_cached_size: Some(0), ..PinnedOptions::default() });
    assert!((start..start + 61440).contains(&zeroed(&device, 4000).as_ptr().addr()));
    let too_large = zeroed(&device, 61441);
    assert_eq!(driver.live_pinned(), 2);
    drop(too_large);
    assert_eq!(driver.live_pinned(), 1, "memory outside the reserve is freed");
    drop(device);
    assert_eq!(driver.live_pinned(), 0);
}

#[test]
fn a_failed_reserve_is_tried_again() {
    let (driver, device) = device();
    device
        .pinned_memory()
        .configure(PinnedOptions { reserve_segment_size: 1 << 20, ..PinnedOptions::default() });
    driver.fail_call(Call::PinnedAllocate, 0);
    let error = PinnedBuffer::<u8>::zeroed(&device, 10).unwrap_err();
    assert!(
        matches!(error, Error::PinnedOutOfMemory { asked: 0x10_0000, held: 0, limit: None, .. }),
        "{error}"
    );
    drop(zeroed(&device, 10));
    assert_eq!(statistics(&device).allocated_bytes.current, 1 << 20);
}

#[test]
fn a_background_thread_frees_blocks() {
    let (driver, device) = device();
    let options = PinnedOptions { use_background_threads: true, ..PinnedOptions::default() };
    device.pinned_memory().configure(options);
    let stream = Stream::new(&device).unwrap();
    for round in 0..20 {
        let hold = driver.hold();
        let buffer = zeroed(&device, 4096);
        let address = buffer.as_ptr();
        buffer.record_use(&stream).unwrap();
        drop(buffer);
        assert_eq!(statistics(&device).active_requests.current, 1);
        drop(hold);
        eventually("the thread frees it", || statistics(&device).active_requests.current == 0);
        driver.reset_calls();
        assert_eq!(zeroed(&device, 4096).as_ptr(), address);
        assert_eq!(driver.calls(Call::EventQuery), 0, "round {round}: the request asks nothing");
    }
    let buffer = zeroed(&device, 4096);
    buffer.record_use(&stream).unwrap();
    driver.fail_call(Call::EventQuery, 0);
    drop(buffer);
    eventually("a failed query is retried", || statistics(&device).active_requests.current == 0);

    let _hold = driver.hold();
    drop((stream, device));
    assert_eq!(driver.calls(Call::ContextRelease), 1, "the thread keeps no device alive");
    assert_eq!(driver.live_pinned(), 0);
    assert_eq!(Arc::strong_count(&driver), 1, "the thread has ended");
}

#[test]
fn the_limit_waits_and_empties_before_failing() {
    let (driver, device) = device();
    let memory = device.pinned_memory();
    memory.set_limit(Some(112 << 10));
    assert_eq!(memory.limit(), Some(112 << 10));
    let held = zeroed(&device, 64 << 10);
    let error = PinnedBuffer::<u8>::zeroed(&device, 56 << 10).unwrap_err();
    let Error::PinnedOutOfMemory { asked, held: bytes, cached, limit, .. } = error else { panic!("{error}") };
    assert_eq!((asked, bytes, cached, limit), (56 << 10, 64 << 10, 0, Some(112 << 10)));
    let text = error.to_string();
    assert!(["56.00 KiB", "64.00 KiB", "112.00 KiB", "set_limit"].iter().all(|p| text.contains(p)), "{text}");
    drop(zeroed(&device, 32 << 10));
    drop(held);
    drop(zeroed(&device, 112 << 10));
    assert_eq!(statistics(&device).allocated_bytes.current, 112 << 10, "the cache was emptied");

    let stream = Stream::new(&device).unwrap();
    let target = DeviceBuffer::<u8>::zeros(&stream, 112 << 10).unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(30));
    let [first, second] = [zeroed(&device, 112 << 10), zeroed(&device, 0)];
    let address = first.as_ptr();
    send(&stream, &first, &target);
    drop((first, second));
    assert_eq!(zeroed(&device, 112 << 10).as_ptr(), address, "it was waited for");
    assert_eq!(driver.calls(Call::PinnedAllocate), 3);
    stream.synchronize().unwrap();
}

#[test]
fn out_of_memory_empties_the_cache_first() {
    let (driver, device) = device();
    drop(zeroed(&device, 8 << 10));
    let held = zeroed(&device, 16 << 10);
    driver.fail_call(Call::PinnedAllocate, 0);
    drop(zeroed(&device, 64 << 10));
    assert_eq!(driver.calls(Call::PinnedFree), 1, "the second try succeeded");
    device.pinned_memory().empty_cache().unwrap();
    driver.fail_call(Call::PinnedAllocate, 0);
    driver.fail_call(Call::PinnedAllocate, 0);
    let error = PinnedBuffer::<u8>::zeroed(&device, 64 << 10).unwrap_err();
    let Error::PinnedOutOfMemory { asked, held: bytes, cached, limit: None, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((asked, bytes, cached), (64 << 10, 16 << 10, 0));
    assert!(error.to_string().contains("drop pinned buffers"), "{error}");
    drop((held, zeroed(&device, 64 << 10)));
}

#[test]
fn no_bytes_need_no_driver_call() {
    let (driver, device, stream) = fixture();
    driver.reset_calls();
    let mut empty = PinnedBuffer::<f64>::zeroed(&device, 0).unwrap();
    let nothings = PinnedBuffer::from_slice(&device, &[[0u16; 0]; 5]).unwrap();
    assert_eq!((empty.len(), empty.is_empty(), nothings.len()), (0, true, 5));
    assert!(empty.as_ptr().is_aligned() && empty.as_mut_ptr().is_aligned());
    assert_eq!(nothings.iter().count(), 5);
    empty.record_use(&stream).unwrap();
    nothings.record_use(&stream).unwrap();
    drop((empty, nothings));
    assert!(Call::ALL.iter().all(|call| driver.calls(*call) == 0));
    assert_eq!(statistics(&device), HostMemoryStatistics::default());
}

#[test]
fn more_than_can_be_addressed_is_refused() {
    let (_, device) = device();
    for len in [usize::MAX, usize::MAX / 8 + 2, (isize::MAX as usize) / 8 + 1] {
        let error = PinnedBuffer::<u64>::zeroed(&device, len).unwrap_err();
        assert!(matches!(error, Error::TooManyElements { element_bytes: 8, .. }), "{error}");
    }
    let error = PinnedBuffer::<u8>::zeroed(&device, isize::MAX as usize).unwrap_err();
    assert!(matches!(error, Error::PinnedOutOfMemory { .. }), "{error}");
    drop(zeroed(&device, 10));
}

#[test]
fn elements_are_aligned_and_keep_their_values() {
    #[derive(Clone, Copy)]
    #[repr(align(256))]
    struct Wide(#[allow(dead_code, reason = "bytes to align")] [u8; 256]);
    // SAFETY: the type is an array of bytes without padding.
    unsafe impl bytemuck::Zeroable for Wide {}
    // SAFETY: as above, any bit pattern is valid.
    unsafe impl bytemuck::Pod for Wide {}
    let (_, device) = device();
    let mut random = random();
    for n in ODD_SIZES {
        let data = floats(&mut random, n);
        let mut buffer = PinnedBuffer::from_slice(&device, &data).unwrap();
        assert_eq!(buffer[..], data);
        buffer.iter_mut().for_each(|value| *value += 1.0);
        assert!(buffer.iter().zip(&data).all(|(new, old)| *new == old + 1.0));
        assert!(PinnedBuffer::<Wide>::zeroed(&device, n).unwrap().as_ptr().is_aligned());
        assert_eq!(buffer.device(), &device);
        drop(buffer);
        assert!(PinnedBuffer::<u16>::zeroed(&device, 2 * n).unwrap().iter().all(|value| *value == 0));
    }
}
