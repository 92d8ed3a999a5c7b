//! Tests that every invalid request fails with an error that names the reason, and has no other effect.

use crate::alone::only_alone;
use crate::support::allocator::*;
use crate::support::pinned::panicked;
use crate::warnings::Log;
use tracing::Level;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::memory::options::Backend;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, DevicePtr, Error, MemoryPool, Stream};

#[test]
fn zero_bytes_are_the_null_address() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    driver.reset_calls();
    let empty = allocate(&stream, 0);
    assert_eq!(empty.as_device_ptr(), DevicePtr::NULL);
    let raw = device.memory().allocate_raw(&stream, 0).unwrap();
    assert_eq!(raw, DevicePtr::NULL);
    device.memory().record_stream(raw, &Stream::new(&device).unwrap()).unwrap();
    for _ in 0..2 {
        // SAFETY: the address has no memory that could be in use.
        unsafe { device.memory().free_raw(raw) }.unwrap();
    }
    drop(empty);
    assert_eq!(driver.calls(Call::MemoryAllocate), 0);
    assert_eq!(statistics(&device).allocation.all.allocated, 0);
}

#[test]
fn more_than_the_device_has_is_refused() {
    let (_, _, stream) = stream_with(64 * MIB, "");
    for bytes in [64 * MIB + 1, 800 << 30, 1 << 60] {
        let report = fails(&stream, bytes);
        assert_eq!((report.asked, report.total), (bytes as u64, 64 * MIB as u64));
        assert!(report.to_string().ends_with("allocate less than the device's memory"), "{report}");
    }
    drop(allocate(&stream, 64 * MIB));
}

#[test]
fn more_than_2_to_the_60_is_refused() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    driver.reset_calls();
    let error = DeviceBuffer::<u8>::uninit(&stream, (1 << 60) + 1).unwrap_err();
    let Error::AllocationTooLarge { bytes, largest } = error else { panic!("{error}") };
    assert_eq!((bytes, largest), ((1 << 60) + 1, 1 << 60));
    let error = device.memory().allocate_raw(&stream, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::AllocationTooLarge { .. }), "{error}");
    assert!(Call::ALL.iter().all(|call| driver.calls(*call) == 0));
}

#[test]
fn freeing_an_address_twice_is_refused() {
    let (_, device) = device_with(64 * MIB, "");
    let (memory, stream) = (device.memory(), device.default_stream());
    let ptr = memory.allocate_raw(&stream, 1000).unwrap();
    // SAFETY: the memory is not in use.
    unsafe { memory.free_raw(ptr) }.unwrap();
    // SAFETY: the call fails because the memory was already freed.
    let error = unsafe { memory.free_raw(ptr) }.unwrap_err();
    assert!(matches!(error, Error::NotAllocated { address, .. } if address == ptr.0), "{error}");
    let error = memory.record_stream(ptr, &stream).unwrap_err();
    assert!(matches!(error, Error::NotAllocated { .. }), "{error}");
    assert_eq!((memory.allocated(), statistics(&device).allocation.all.freed), (0, 1));
}

#[test]
fn an_address_of_something_else_is_refused() {
    let (driver, device) = device_with(64 * MIB, "");
    let elsewhere = Device::with_driver(driver, 0).unwrap();
    let (memory, stream) = (device.memory(), device.default_stream());
    let buffer = allocate(&stream, 1000);
    let own = memory.allocate_raw(&stream, 1000).unwrap();
    let foreign = elsewhere.memory().allocate_raw(&elsewhere.default_stream(), 1000).unwrap();
    for ptr in [DevicePtr(1), DevicePtr(u64::MAX), own.offset(512), foreign, buffer.as_device_ptr()] {
        // SAFETY: the call fails because the address is invalid.
        let error = unsafe { memory.free_raw(ptr) }.unwrap_err();
        assert!(matches!(error, Error::NotAllocated { address, .. } if address == ptr.0), "{error}");
        assert!(error.to_string().contains("free each address once"), "{error}");
    }
    assert_eq!((memory.allocated(), elsewhere.memory().allocated()), (2048, 1024));
    // SAFETY: the memory is not in use.
    unsafe { memory.free_raw(own).and(elsewhere.memory().free_raw(foreign)) }.unwrap();
}

#[test]
fn a_recorded_raw_address_waits_for_its_stream() {
    let (driver, device) = device_with(64 * MIB, "");
    let (memory, [stream, other]) = (device.memory(), [(); 2].map(|()| Stream::new(&device).unwrap()));
    let ptr = memory.allocate_raw(&stream, 1000).unwrap();
    memory.record_stream(ptr, &other).unwrap();
    let hold = driver.hold();
    // SAFETY: the only other stream that uses the memory was recorded.
    unsafe { memory.free_raw(ptr) }.unwrap();
    let next = memory.allocate_raw(&stream, 1000).unwrap();
    assert_ne!(next, ptr);
    drop(hold);
    other.synchronize().unwrap();
    assert_eq!(memory.allocate_raw(&stream, 1000).unwrap(), ptr);
    // SAFETY: the memory is not in use.
    unsafe { memory.free_raw(ptr).and(memory.free_raw(next)) }.unwrap();
}

#[test]
fn streams_of_another_device_are_refused() {
    let driver = EmulatedDriver::builder().devices(2).memory(64 * MIB as u64).unbacked().build();
    let [here, there] = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    let (stream, pool) = (there.default_stream(), MemoryPool::new(&here).unwrap());
    let buffer = allocate(&here.default_stream(), 512);
    let ptr = here.memory().allocate_raw(&here.default_stream(), 512).unwrap();
    let errors = [
        here.memory().allocate_raw(&stream, 512).map(drop),
        here.memory().record_stream(ptr, &stream),
        buffer.record_stream(&stream),
        pool.capture(&stream).map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::DifferentDevices { .. })), "{error:?}");
    }
    // SAFETY: the memory is not in use.
    unsafe { here.memory().free_raw(ptr) }.unwrap();
}

#[test]
fn a_bad_fraction_is_refused() {
    let (_, device) = device_with(64 * MIB, "");
    device.memory().set_fraction(0.75).unwrap();
    for fraction in [-0.1, 1.01, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = device.memory().set_fraction(fraction).unwrap_err();
        let Error::AllocatorOption { option, reason, .. } = &error else { panic!("{error}") };
        assert_eq!(
            (option.as_str(), reason.as_str()),
            ("per_process_memory_fraction", "must be from 0 to 1")
        );
    }
    assert_eq!(device.memory().fraction(), 0.75);
    assert_eq!(fails(&device.default_stream(), 50 * MIB).limit, Some(48 * MIB as u64));
    device.memory().set_fraction(0.0).unwrap();
    fails(&device.default_stream(), 1);
}

#[test]
fn a_pool_is_refused_after_its_release() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    allocate_and_free(&stream, 512);
    pool.clone().release().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
    let errors = [
        DeviceBuffer::<u8>::uninit(&stream, 512).map(drop),
        pool.enter().map(drop),
        pool.capture(&stream).map(drop),
        pool.empty_cache().map(drop),
    ];
    for error in errors {
        let Err(Error::PoolReleased { pool: id }) = error else { panic!("{error:?}") };
        assert_eq!(id, pool.id());
    }
    pool.release().unwrap();
    drop(guard);
    drop(allocate(&stream, 512));
}

#[test]
fn fixed_options_cannot_change_after_a_request() {
    let (_, device) = device_with(64 * MIB, "");
    let memory = device.memory();
    let changed = |change: fn(&mut AllocatorOptions)| {
        let mut options = memory.options();
        change(&mut options);
        memory.set_options(options)
    };
    changed(|options| options.caching = false).unwrap();
    changed(|options| options.caching = true).unwrap();
    drop(allocate(&device.default_stream(), 512));
    let before = memory.options();
    let error = changed(|options| options.backend = Backend::StreamOrdered).unwrap_err();
    assert!(matches!(&error, Error::AllocatorOption { option, .. } if option == "backend"), "{error}");
    let error = changed(|options| options.caching = false).unwrap_err();
    assert!(matches!(&error, Error::AllocatorOption { option, .. } if option == "caching"), "{error}");
    assert!(error.to_string().contains("at the start of the program"), "{error}");
    assert_eq!(memory.options(), before);
    changed(|options| options.max_split_size = Some(30 << 20)).unwrap();
}

#[test]
fn options_out_of_range_are_refused() {
    let (_, device) = device_with(64 * MIB, "");
    let before = device.memory().options();
    for options in [
        AllocatorOptions { max_split_size: Some(2 << 20), ..before.clone() },
        AllocatorOptions { garbage_collection_threshold: 1.2, ..before.clone() },
        AllocatorOptions { per_process_memory_fraction: f64::NAN, ..before.clone() },
        AllocatorOptions { roundup_power2_divisions: [3; 16], ..before.clone() },
        AllocatorOptions { large_segment_size: 1, ..before.clone() },
    ] {
        let error = device.memory().set_options(options).unwrap_err();
        assert!(matches!(error, Error::AllocatorOption { .. }), "{error}");
    }
    assert_eq!(device.memory().options(), before);
    for text in ["foo:1", "garbage_collection_threshold:1.2", "max_split_size_mb:2"] {
        text.parse::<AllocatorOptions>().unwrap_err();
    }
}

#[test]
fn unknown_options_suggest_the_nearest_name() {
    let read = |value: &'static str| {
        AllocatorOptions::from_variables(move |name| {
            (name == "WARPSMITH_ALLOC_CONF").then(|| value.to_owned())
        })
    };
    let error = read("max_split_size:64").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::UnknownAllocatorOption { .. }), "{text}");
    assert!(text.contains("max_split_size_mb") && text.contains("WARPSMITH_ALLOC_CONF"), "{text}");
    assert_eq!(read("max_split_size_mb:64").unwrap().max_split_size, Some(64 << 20));
}

#[test]
fn a_device_does_not_open_with_unknown_options() {
    only_alone!("WARPSMITH_ALLOC_CONF" => "foo:1");
    let driver = EmulatedDriver::builder().unbacked().build();
    let error = Device::with_driver(driver, 0).unwrap_err();
    assert!(matches!(&error, Error::UnknownAllocatorOption { option, .. } if option == "foo"), "{error}");
}

#[test]
fn unreachable_devices_are_no_peers() {
    let (_, device) = device_with(64 * MIB, "");
    let (_, stranger) = device_with(64 * MIB, "");
    device.memory().allow_peer(&device).unwrap();
    let error = device.memory().allow_peer(&stranger).unwrap_err();
    assert!(matches!(error, Error::NoPeerAccess { .. }), "{error}");
}

#[test]
fn a_lost_device_frees_but_allocates_nothing() {
    let (driver, device, [stream, other]) = streams_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let in_pool = allocate(&stream, 512);
    drop(guard);
    let (buffer, recorded) = (allocate(&stream, 512), allocate(&stream, 20 * MIB));
    recorded.record_stream(&other).unwrap();
    let raw = device.memory().allocate_raw(&stream, 100).unwrap();
    driver.poison(0, panicked());
    stream.synchronize().unwrap_err();
    let errors = [
        DeviceBuffer::<u8>::uninit(&stream, 512).map(drop),
        device.memory().allocate_raw(&stream, 512).map(drop),
        MemoryPool::new(&device).map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::DeviceLost { .. })), "{error:?}");
    }
    drop((in_pool, buffer, recorded));
    // SAFETY: no work is running on the device.
    unsafe { device.memory().free_raw(raw) }.unwrap();
    assert_eq!(device.memory().allocated(), 0);
    assert_eq!(statistics(&device).active.all.current, 0);
    assert!(device.take_drop_error().is_none(), "the fault is no error of the drops");
    drop((pool, stream, other));
    assert!(device.take_drop_error().is_none());
}

#[test]
fn options_without_effect_are_warned_of_once() {
    let events = Log::of(|| {
        for _ in 0..2 {
            let text = "pinned_num_register_threads:8,max_split_size_mb:64,release_lock_on_cudamalloc:True";
            assert_eq!(text.parse::<AllocatorOptions>().unwrap().to_string(), "max_split_size_mb:64");
        }
    });
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|(level, _)| *level == Level::WARN));
    assert!(
        events[0].1.contains("`pinned_num_register_threads` is a PyTorch option without effect"),
        "{events:?}"
    );
}

#[test]
fn errors_of_drops_are_events() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    drop(allocate(&stream, 512));
    drop(guard);
    driver.fail_call(Call::MemoryFree, 0);
    let events = Log::of(|| drop(pool));
    assert!(device.take_drop_error().is_some());
    let [(Level::ERROR, text)] = &events[..] else { panic!("{events:?}") };
    assert!(text.contains("memory_free") && text.contains("could not be released"), "{text}");
}
