//! Tests that a request served from the cache, and its free, allocate nothing on the host heap.

use crate::heap::allocations;
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule};
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, MemoryPool, Stream};

fn device(options: &str) -> Device {
    let driver = EmulatedDriver::builder().memory(16 << 30).unbacked().stepped(Schedule::Oldest).build();
    let device = Device::with_driver(driver, 0).unwrap();
    device.memory().set_options(AllocatorOptions::default().with(options).unwrap()).unwrap();
    device
}

const OPTIONS: [&str; 3] = ["", "expandable_segments:True", "garbage_collection_threshold:0.9"];

#[test]
fn a_cached_buffer_allocates_nothing_on_the_heap() {
    for options in OPTIONS {
        let device = device(options);
        let stream = Stream::new(&device).unwrap();
        let pairs = || {
            for bytes in [1, 4096, 1 << 20, 3 << 20, 64 << 20] {
                drop(DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap());
            }
        };
        (0..3).for_each(|_| pairs());
        let count = allocations(|| (0..1000).for_each(|_| pairs()));
        assert_eq!(count, 0, "options `{options}`");
    }
}

#[test]
fn a_warm_random_live_set_allocates_nothing() {
    for options in OPTIONS {
        let device = device(options);
        let stream = Stream::new(&device).unwrap();
        // Fill the cache with memory for all requests, and create more concurrently live blocks than are needed later.
        let buffer = |bytes| DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap();
        drop((0..2000).map(|_| buffer(512)).chain((0..700).map(|_| buffer(1 << 20))).collect::<Vec<_>>());
        drop(buffer(8 << 30));

        let mut live: Vec<Option<DeviceBuffer<u8>>> = (0..300).map(|_| None).collect();
        let mut round = |steps: usize| {
            let mut random = fastrand::Rng::with_seed(1);
            live.iter_mut().for_each(|slot| *slot = None);
            for _ in 0..steps {
                let slot = random.usize(..300);
                let bytes = (1 << random.u32(..25)) + random.usize(..5000);
                live[slot] = None;
                live[slot] = Some(buffer(bytes));
            }
        };
        round(1000);
        let segments = device.memory().statistics().num_device_alloc;
        let count = allocations(|| round(20_000));
        assert_eq!(device.memory().statistics().num_device_alloc, segments, "all was cached");
        assert_eq!(count, 0, "options `{options}`");
    }
}

#[test]
fn a_private_pool_allocates_nothing_either() {
    let device = device("");
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    drop(DeviceBuffer::<u8>::uninit(&stream, 4096).unwrap());
    let pair = || drop(DeviceBuffer::<u8>::uninit(&stream, 4096).unwrap());
    assert_eq!(allocations(|| (0..1000).for_each(|_| pair())), 0);
    drop(guard);
}
