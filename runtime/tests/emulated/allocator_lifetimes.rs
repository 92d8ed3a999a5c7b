//! Tests of dropping buffers, streams, pools and devices in every order, and of programs that end with all of them
//! alive.

use std::sync::OnceLock;

use crate::alone::alone;
use crate::common::{device, driver};
use crate::support::pinned::panicked;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, DevicePtr, Error, MemoryPool, Stream};

#[test]
fn handles_may_be_dropped_in_every_order() {
    for options in ["", "expandable_segments:True", "backend:cudaMallocAsync", "caching:False"] {
        for order in 0..24 {
            let driver = driver(1);
            let device = Device::with_driver(driver.clone(), 0).unwrap();
            device.memory().set_options(AllocatorOptions::default().with(options).unwrap()).unwrap();
            let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
            let buffer = DeviceBuffer::<u32>::zeros(&stream, 70_000).unwrap();
            buffer.record_stream(&other).unwrap();
            let mut things = [
                Some(Thing::Device(device)),
                Some(Thing::Stream(stream)),
                Some(Thing::Stream(other)),
                Some(Thing::Buffer(buffer)),
            ];
            let mut rest = vec![0, 1, 2, 3];
            let mut code = order;
            while !rest.is_empty() {
                let thing = rest.remove(code % rest.len());
                code /= rest.len() + 1;
                things[thing] = None;
            }
            let released = (driver.calls(Call::ContextRetain), driver.calls(Call::ContextRelease));
            assert_eq!(released, (1, 1), "options `{options}`, order {order}");
            let events = (driver.calls(Call::EventCreate), driver.calls(Call::StreamCreate));
            let gone = (driver.calls(Call::EventDestroy), driver.calls(Call::StreamDestroy));
            assert_eq!(events, gone, "options `{options}`, order {order}");
            assert_eq!(given(&driver), 0, "options `{options}`, order {order}");
        }
    }
}

#[allow(dead_code, reason = "they are only dropped")]
enum Thing {
    Device(Device),
    Stream(Stream),
    Buffer(DeviceBuffer<u32>),
}

/// Returns the number of the driver's allocations minus its releases.
fn given(driver: &warpsmith_runtime::emulated::EmulatedDriver) -> i64 {
    let calls = |call| driver.calls(call) as i64;
    calls(Call::MemoryAllocate) - calls(Call::MemoryFree) + calls(Call::PhysicalCreate)
        - calls(Call::PhysicalRelease)
        + calls(Call::VirtualReserve)
        - calls(Call::VirtualRelease)
        + calls(Call::StreamAllocate)
        - calls(Call::StreamFree)
}

#[test]
fn a_pooled_buffer_outlives_every_handle() {
    let (driver, device) = device();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let buffer = DeviceBuffer::from_host(&stream, &[1u8, 2, 3]).unwrap();
    drop(guard);
    drop((pool, stream, device));
    assert_eq!(buffer.to_host().unwrap(), [1, 2, 3]);
    assert_eq!(driver.calls(Call::ContextRelease), 0, "the buffer holds the device");
    drop(buffer);
    assert_eq!((driver.calls(Call::ContextRelease), given(&driver)), (1, 0));
}

#[test]
fn a_lost_device_reopens_with_no_memory() {
    for options in ["", "expandable_segments:True", "caching:False"] {
        let driver = driver(1);
        let open = || {
            let device = Device::with_driver(driver.clone(), 0).unwrap();
            device.memory().set_options(AllocatorOptions::default().with(options).unwrap()).unwrap();
            device
        };
        let device = open();
        let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
        let buffers: Vec<_> =
            (0..10).map(|n| DeviceBuffer::<u8>::zeros(&stream, 1000 << n).unwrap()).collect();
        buffers[3].record_stream(&other).unwrap();
        let raw = device.memory().allocate_raw(&other, 5 << 20).unwrap();
        driver.poison(0, panicked());
        assert!(device.synchronize().is_err() && device.is_lost());
        let refused = DeviceBuffer::<u8>::uninit(&stream, 1).map(drop).unwrap_err();
        assert!(matches!(refused, Error::DeviceLost { .. }), "{refused}");
        // SAFETY: the memory is not in use because the device is lost.
        unsafe { device.memory().free_raw(raw) }.unwrap();
        drop(buffers);
        assert_eq!(device.memory().allocated(), 0, "options `{options}`");
        assert!(device.take_drop_error().is_none(), "the fault is no error of the drops");
        drop((stream, other, device));
        assert_eq!(driver.calls(Call::ContextRelease), 1);
        assert_eq!(given(&driver), 0, "options `{options}`");

        let again = open();
        let buffer = DeviceBuffer::<u8>::zeros(&again.default_stream(), 100).unwrap();
        assert_eq!(buffer.to_host().unwrap(), [0; 100]);
    }
}

static ALIVE: OnceLock<(Device, Stream, DeviceBuffer<u8>, DevicePtr, MemoryPool)> = OnceLock::new();

#[test]
fn a_program_may_end_with_memory_in_statics() {
    const MARK: &str = "WARPSMITH_TEST_ENDS_WITH_LIVE_MEMORY";
    for options in ["", "expandable_segments:True", "backend:cudaMallocAsync"] {
        if alone!(MARK => options).is_some() {
            continue;
        }
        let options = std::env::var(MARK).unwrap();
        let device = Device::emulated(0).unwrap();
        device.memory().set_options(AllocatorOptions::default().with(&options).unwrap()).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffer = DeviceBuffer::<u8>::zeros(&stream, 3 << 20).unwrap();
        let raw = device.memory().allocate_raw(&stream, 1000).unwrap();
        let pool = MemoryPool::new(&device).unwrap();
        std::mem::forget(pool.enter().unwrap());
        ALIVE.set((device, stream, buffer, raw, pool)).unwrap();
        return;
    }
}
