//! A request that is served from what is cached, and giving it back, allocates nothing on the host's heap.

#[path = "common/ordered_driver.rs"]
mod ordered_driver;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ordered_driver::OrderedDriver;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, MemoryPool, Stream};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // While a thread ends it has no count any more, and nobody reads it.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all is done by the system's allocator; counting touches a thread's own integer only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn heap_allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

fn device(options: &str) -> Device {
    let device = Device::with_driver(OrderedDriver::new(16 << 30), 0).unwrap();
    device.memory().set_options(AllocatorOptions::default().with(options).unwrap()).unwrap();
    device
}

const OPTIONS: [&str; 3] = ["", "expandable_segments:True", "garbage_collection_threshold:0.9"];

#[test]
fn the_count_counts() {
    assert!(heap_allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

#[test]
fn a_buffer_and_its_drop_allocate_nothing_when_a_block_is_cached() {
    for options in OPTIONS {
        let device = device(options);
        let stream = Stream::new(&device).unwrap();
        let pairs = || {
            for bytes in [1, 4096, 1 << 20, 3 << 20, 64 << 20] {
                drop(DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap());
            }
        };
        (0..3).for_each(|_| pairs());
        let count = heap_allocations(|| (0..1000).for_each(|_| pairs()));
        assert_eq!(count, 0, "options `{options}`");
    }
}

#[test]
fn a_random_live_set_with_splits_and_merges_allocates_nothing_once_it_is_warm() {
    for options in OPTIONS {
        let device = device(options);
        let stream = Stream::new(&device).unwrap();
        // Memory for whatever comes, and more blocks at once than will be needed.
        let buffer = |bytes| DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap();
        drop((0..2000).map(|_| buffer(512)).chain((0..700).map(|_| buffer(1 << 20))).collect::<Vec<_>>());
        drop(buffer(8 << 30));

        let mut live: Vec<Option<DeviceBuffer<u8>>> = (0..300).map(|_| None).collect();
        let mut round = |steps: u64| {
            let mut state = 1u64;
            let mut next = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            live.iter_mut().for_each(|slot| *slot = None);
            for _ in 0..steps {
                let slot = next(300) as usize;
                let bytes = (1 << next(25)) + next(5000);
                live[slot] = None;
                live[slot] = Some(buffer(bytes as usize));
            }
        };
        round(1000);
        let segments = device.memory().statistics().num_device_alloc;
        let count = heap_allocations(|| round(20_000));
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
    assert_eq!(heap_allocations(|| (0..1000).for_each(|_| pair())), 0);
    drop(guard);
}
