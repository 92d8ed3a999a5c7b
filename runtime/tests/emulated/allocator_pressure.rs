//! Tests of the fallback order when no free block fits: the driver, freeing, waiting, the error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::allocator::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{DeviceBuffer, OutOfMemory, Stream};

/// Returns the number of the driver's memory allocations and frees.
fn calls(driver: &EmulatedDriver) -> (u64, u64) {
    (driver.calls(Call::MemoryAllocate), driver.calls(Call::MemoryFree))
}

#[test]
fn the_cache_is_freed_for_a_full_driver() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    drop([&stream, &Stream::new(&device).unwrap()].map(|stream| allocate(stream, 32 * MIB)));
    driver.reset_calls();
    let both = allocate(&stream, 64 * MIB);
    assert_eq!(calls(&driver), (2, 2));
    assert_eq!(statistics(&device).num_alloc_retries, 1);
    drop(both);
}

#[test]
fn a_failed_request_leaves_blocks_in_use() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let held = [30, 3].map(|mib| allocate(&stream, mib * MIB));
    let before = (held.each_ref().map(address), device.memory().allocated());
    let report = fails(&stream, 40 * MIB);
    assert_eq!((report.asked, report.allocated), (40 * MIB as u64, 33 * MIB as u64));
    assert_eq!((held.each_ref().map(address), device.memory().allocated()), before);
    assert_eq!(driver.live_allocations(0), 2);
    let next = allocate(&stream, 9 * MIB);
    assert_eq!(statistics(&device).num_ooms, 1, "the program goes on");
    drop((held, next));
}

#[test]
fn free_blocks_are_searched_again_after_the_wait() {
    let (driver, device) = device_with(64 * MIB, "");
    let (stream, other) = (device.default_stream(), Stream::new(&device).unwrap());
    let buffer = allocate(&stream, 40 * MIB);
    let place = address(&buffer);
    buffer.record_stream(&other).unwrap();
    let hold = driver.hold();
    drop(buffer);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(hold);
    });
    let again = allocate(&stream, 38 * MIB);
    assert_eq!(address(&again), place);
    assert_eq!(calls(&driver), (2, 0), "asked in vain once, and nothing went back");
    let now = statistics(&device);
    assert_eq!((now.num_sync_all_streams, now.num_alloc_retries, now.num_ooms), (1, 0, 0));
    release.join().unwrap();
    drop(again);
}

#[test]
fn the_block_alone_is_requested_last() {
    let (driver, device, stream) = stream_with(8 * MIB, "");
    let buffer = allocate(&stream, 3 * MIB);
    assert_eq!((device.memory().reserved(), calls(&driver)), (3 * MIB as u64, (3, 0)));
    let small = [(); 5].map(|()| allocate(&stream, MIB));
    assert_eq!(device.memory().reserved(), 8 * MIB as u64, "two of 2 MiB and one of exactly 1 MiB");
    assert_eq!(fails(&stream, 1).free, 0);
    drop((buffer, small));
}

#[test]
fn the_memory_fraction_is_kept() {
    let (driver, device) = device_with(200 * MIB, "");
    let (memory, stream) = (device.memory(), device.default_stream());
    assert_eq!(memory.fraction(), 1.0);
    memory.set_fraction(0.5).unwrap();
    assert_eq!(memory.fraction(), 0.5);
    drop(allocate(&stream, 99 * MIB + 512 * KIB));
    memory.empty_cache().unwrap();
    let exactly = allocate(&stream, 100 * MIB);
    driver.reset_calls();
    let report = fails(&stream, 512);
    assert_eq!(report.limit, Some(100 * MIB as u64));
    assert_eq!(calls(&driver), (0, 0), "beyond the limit the driver is not asked");
    drop(exactly);
    memory.set_fraction(1.0).unwrap();
    assert_eq!(block_size(&allocate(&stream, 200 * MIB)), 200 * MIB);
}

#[test]
fn options_leave_the_memory_fraction() {
    let (_, device) = device_with(200 * MIB, "");
    let (memory, stream) = (device.memory(), device.default_stream());
    memory.set_fraction(0.5).unwrap();
    for text in ["expandable_segments:True", "", "per_process_memory_fraction:1.0,max_split_size_mb:64"] {
        memory.set_options(text.parse().unwrap()).unwrap();
        assert_eq!((memory.fraction(), memory.options().per_process_memory_fraction), (0.5, 0.5), "{text}");
        assert_eq!(fails(&stream, 120 * MIB).limit, Some(100 * MIB as u64), "{text}");
    }
    // A fraction in the options takes effect if it is not the default.
    memory.set_options("per_process_memory_fraction:0.75".parse().unwrap()).unwrap();
    drop(allocate(&stream, 120 * MIB));
    memory.set_options("".parse().unwrap()).unwrap();
    assert_eq!(fails(&stream, 160 * MIB).limit, Some(150 * MIB as u64));
    memory.set_fraction(1.0).unwrap();
    drop(allocate(&stream, 160 * MIB));
}

#[test]
fn a_low_fraction_takes_nothing_away() {
    let (_, device, stream) = stream_with(200 * MIB, "");
    let held = allocate(&stream, 100 * MIB);
    device.memory().set_fraction(0.1).unwrap();
    assert_eq!(device.memory().reserved(), 100 * MIB as u64);
    fails(&stream, MIB);
    drop(held);
    allocate_and_free(&stream, 100 * MIB);
    device.memory().empty_cache().unwrap();
    fails(&stream, 100 * MIB);
}

#[test]
fn requests_over_the_limit_count_as_rejections() {
    for (options, rejections) in [("", 0), ("throw_on_cudamalloc_oom:True", 1)] {
        let (_, device) = device_with(100 * MIB, options);
        device.memory().set_fraction(0.2).unwrap();
        fails(&device.default_stream(), 30 * MIB);
        let now = statistics(&device);
        assert_eq!((now.num_ooms, now.num_oom_rejections), (1, rejections));
    }
}

#[test]
fn one_large_enough_oversize_block_is_freed() {
    let (driver, device, stream) = stream_with(128 * MIB, "max_split_size_mb:20");
    let [normal, small, large] = [12, 30, 80].map(|mib| allocate(&stream, mib * MIB));
    let kept = [address(&normal), address(&large)];
    drop((normal, small, large));
    driver.reset_calls();
    let buffer = allocate(&stream, 29 * MIB);
    drop(buffer);
    assert_eq!(calls(&driver), (0, 0), "the block of 30 MiB serves 29");
    let held = allocate(&stream, 30 * MIB);
    let buffer = allocate(&stream, 32 * MIB);
    assert_eq!(calls(&driver), (2, 1), "the block of 80 MiB went back for 32");
    assert_eq!(statistics(&device).num_alloc_retries, 0);
    assert_eq!(address(&allocate(&stream, 12 * MIB)), kept[0]);
    drop((held, buffer));
}

#[test]
fn oversize_blocks_are_freed_largest_first() {
    let (driver, device, stream) = stream_with(128 * MIB, "max_split_size_mb:20");
    let held = [22, 40, 30, 30].map(|mib| allocate(&stream, mib * MIB));
    let smallest = address(&held[0]);
    drop(held);
    driver.reset_calls();
    let buffer = allocate(&stream, 70 * MIB);
    assert_eq!(calls(&driver), (2, 2));
    assert_eq!(statistics(&device).num_alloc_retries, 0);
    assert_eq!(address(&allocate(&stream, 22 * MIB)), smallest);
    drop(buffer);
}

#[test]
fn observers_see_a_failed_request_once() {
    let (_, device) = device_with(64 * MIB, "");
    let (stream, other) = (device.default_stream(), Stream::new(&device).unwrap());
    let seen: Arc<Mutex<Vec<OutOfMemory>>> = Arc::default();
    let (reports, inner) = (Arc::clone(&seen), Stream::new(&device).unwrap());
    device.memory().on_out_of_memory(move |report| {
        reports.lock().unwrap().push(report.clone());
        // The callback can use the allocator because no lock is held.
        allocate_and_free(&inner, 512);
    });
    let held = allocate(&stream, 40 * MIB);
    allocate_and_free(&stream, 600);
    let held_elsewhere = allocate(&other, 700);
    assert!(seen.lock().unwrap().is_empty());
    let report = fails(&stream, 50 * MIB);
    assert_eq!(seen.lock().unwrap().as_slice(), std::slice::from_ref(&report));
    assert_eq!((report.asked, report.total), (50 * MIB as u64, 64 * MIB as u64));
    assert_eq!((report.allocated, report.reserved), (40 * MIB as u64 + 1024, 42 * MIB as u64));
    assert_eq!((report.free, report.cached), (22 * MIB as u64, 0), "what was free as a whole went back");
    assert_eq!(report.cached_by_other_streams, 2 * MIB as u64 - 1024);
    drop((held, held_elsewhere));
}

#[test]
fn the_report_names_other_processes() {
    let (driver, device) = device_with(64 * MIB, "");
    driver.set_process_memory(vec![(std::process::id(), 5), (4_000_001, 60 * MIB as u64)]);
    let report = fails(&device.default_stream(), 100 * MIB);
    assert_eq!(report.other_processes, [(4_000_001, 60 * MIB as u64)]);
    assert!(report.to_string().contains("process 4000001 has 60.00 MiB"), "{report}");
    let processes = device.processes().unwrap();
    let processes: Vec<_> = processes.iter().map(|process| (process.pid, process.memory)).collect();
    assert_eq!(processes, [(std::process::id(), 5), (4_000_001, 60 * MIB as u64)]);
}

/// Advances the clock of garbage collection by `times` requests that the cache serves.
fn pass_time(stream: &Stream, times: usize) {
    for _ in 0..times {
        allocate_and_free(stream, 10 * MIB);
    }
}

#[test]
fn unused_segments_above_the_threshold_are_freed() {
    // The threshold is 100 MiB in both cases: half of the device, and half of the program's fraction of the device.
    for (memory, options) in [
        (200, "garbage_collection_threshold:0.5"),
        (400, "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5"),
    ] {
        let (driver, device, stream) = stream_with(memory * MIB, options);
        let [clock, old, young] = [10, 50, 40].map(|mib| allocate(&stream, mib * MIB));
        let held = allocate(&stream, 20 * MIB);
        drop(clock);
        drop(old);
        pass_time(&stream, 20);
        let of_young = address(&young);
        drop(young);
        driver.reset_calls();
        let more = allocate(&stream, 60 * MIB);
        assert_eq!(calls(&driver), (1, 1), "{options}");
        assert_eq!(address(&allocate(&stream, 40 * MIB)), of_young, "the younger one stayed");
        assert_eq!(statistics(&device).num_alloc_retries, 0, "it was not for lack of memory");
        drop((held, more));
    }
}

#[test]
fn nothing_is_collected_below_the_threshold() {
    for options in ["garbage_collection_threshold:0.6", ""] {
        let (driver, _, stream) = stream_with(200 * MIB, options);
        drop([(); 3].map(|()| allocate(&stream, 40 * MIB)));
        pass_time(&stream, 20);
        driver.reset_calls();
        let more = allocate(&stream, 60 * MIB);
        assert_eq!(calls(&driver), (1, 0), "{options}: 120 MiB were reserved");
        drop(more);
    }
}

#[test]
fn small_and_used_segments_are_never_collected() {
    let (driver, _, stream) = stream_with(200 * MIB, "garbage_collection_threshold:0.1");
    let large = allocate(&stream, 20 * MIB);
    let part = allocate(&stream, 4 * MIB);
    allocate_and_free(&stream, 512);
    drop(large);
    let large = allocate(&stream, 20 * MIB);
    driver.reset_calls();
    let more = allocate(&stream, 60 * MIB);
    assert_eq!(calls(&driver), (1, 0));
    drop((large, part, more));
}

#[test]
fn emptying_the_cache_returns_the_freed_bytes() {
    let (driver, device) = device_with(128 * MIB, "");
    let (stream, other) = (device.default_stream(), Stream::new(&device).unwrap());
    let part = allocate(&stream, 3 * MIB);
    drop([allocate(&stream, 4 * MIB), allocate(&stream, 30 * MIB), allocate(&other, 100)]);
    assert_eq!(device.memory().empty_cache().unwrap(), 32 * MIB as u64);
    assert_eq!((device.memory().reserved(), driver.live_allocations(0)), (20 * MIB as u64, 1));
    assert_eq!(device.memory().empty_cache().unwrap(), 0);
    drop(part);
    assert_eq!(device.memory().empty_cache().unwrap(), 20 * MIB as u64);
    assert_eq!((device.memory().reserved(), driver.live_allocations(0)), (0, 0));
}

#[test]
fn emptying_the_cache_waits_for_other_streams() {
    let (driver, device) = backed_device_with(64 * MIB, "");
    let (stream, other) = (device.default_stream(), Stream::new(&device).unwrap());
    driver.set_stream_delay(other.handle(), Duration::from_millis(20));
    let source = DeviceBuffer::from_host(&stream, &[7u8; 5000]).unwrap();
    let target = source.clone_on(&other).unwrap();
    drop(source);
    assert_eq!(statistics(&device).active.all.current, 2);
    assert_eq!(device.memory().empty_cache().unwrap(), 2 * MIB as u64);
    assert_eq!(statistics(&device).active.all.current, 1);
    assert_eq!(target.to_host().unwrap(), [7; 5000]);
}

#[test]
fn other_driver_failures_are_reported_unchanged() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    driver.fail_call_with(Call::MemoryAllocate, 0, 999);
    let error = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap_err();
    assert_eq!(error.driver_code(), Some(999), "{error}");
    assert_eq!((calls(&driver), device.memory().reserved()), ((1, 0), 0));
    drop(allocate(&stream, 100));
}

#[test]
fn memory_the_driver_keeps_stays_usable() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let place = allocate_and_free(&stream, 30 * MIB);
    driver.fail_call(Call::MemoryFree, 0);
    device.memory().empty_cache().unwrap_err();
    assert_eq!(device.memory().reserved(), 30 * MIB as u64);
    assert_eq!(allocate_and_free(&stream, 30 * MIB), place);
    assert_eq!(device.memory().empty_cache().unwrap(), 30 * MIB as u64);
}

#[test]
fn requests_of_observers_call_no_observers() {
    let (_, device) = device_with(64 * MIB, "");
    let calls = Arc::new(AtomicUsize::new(0));
    let (observed, inner) = (Arc::clone(&calls), Stream::new(&device).unwrap());
    device.memory().on_out_of_memory(move |_| {
        observed.fetch_add(1, Ordering::Relaxed);
        DeviceBuffer::<u8>::uninit(&inner, 100 * MIB).unwrap_err();
    });
    for times in 1..3 {
        fails(&device.default_stream(), 100 * MIB);
        assert_eq!(calls.load(Ordering::Relaxed), times);
    }
}
