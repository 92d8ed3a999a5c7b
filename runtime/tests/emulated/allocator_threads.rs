//! Tests that several threads allocate no memory twice and lose none, and that streams served from the cache share no
//! lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use crate::common::random;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::snapshot::BlockState;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, Error, MemoryPool, Stream};

const THREADS: usize = 8;
const STEPS: usize = 1500;

fn unbacked(bytes: u64, options: &str) -> (std::sync::Arc<EmulatedDriver>, Device) {
    let driver = EmulatedDriver::builder().memory(bytes).unbacked().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    device.memory().set_options(AllocatorOptions::default().with(options).unwrap()).unwrap();
    (driver, device)
}

/// State shared by all threads of a test.
struct Shared<'a> {
    device: &'a Device,
    /// Buffers that any thread may take and drop.
    passed: Mutex<Vec<DeviceBuffer<u8>>>,
    /// Ranges in use, by start address.
    claims: Mutex<BTreeMap<u64, u64>>,
    allocated: AtomicU64,
}

impl Shared<'_> {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Option<DeviceBuffer<u8>> {
        let buffer = match DeviceBuffer::uninit(stream, bytes) {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(_)) => return None,
            Err(error) => panic!("{error}"),
        };
        let (start, end) = (buffer.as_device_ptr().0, buffer.as_device_ptr().0 + bytes as u64);
        let mut claims = self.claims.lock().unwrap();
        let before = claims.range(..end).next_back();
        assert!(before.is_none_or(|(_, last)| *last <= start), "{start:#x}..{end:#x} overlaps {before:x?}");
        claims.insert(start, end);
        self.allocated.fetch_add(1, Ordering::Relaxed);
        Some(buffer)
    }

    fn free(&self, buffer: DeviceBuffer<u8>) {
        // The claim is removed before the buffer is dropped because another thread may allocate the memory immediately
        // afterwards.
        self.claims.lock().unwrap().remove(&buffer.as_device_ptr().0);
        drop(buffer);
    }

    fn look(&self) {
        let statistics = self.device.memory().statistics();
        assert!(statistics.allocated_bytes.all.current <= statistics.active_bytes.all.current);
        for segment in self.device.memory().snapshot().segments {
            let mut next = segment.address;
            let mut free_before = false;
            for block in &segment.blocks {
                assert_eq!(block.address, next);
                let free = block.state == BlockState::Inactive;
                assert!(!(free && free_before));
                (next, free_before) = (next + block.size, free);
            }
            assert_eq!(next, segment.address + segment.total_size);
        }
    }
}

fn work(shared: &Shared<'_>, mut random: fastrand::Rng, common_stream: &Stream) {
    let mut streams = vec![common_stream.clone(), Stream::new(shared.device).unwrap()];
    let mut own: Vec<DeviceBuffer<u8>> = Vec::new();
    for step in 0..STEPS {
        let stream = streams[random.usize(..streams.len())].clone();
        match random.usize(..100) {
            0..45 => {
                let most = 1 << random.usize(..24);
                let bytes = 1 + random.usize(..most);
                if let Some(buffer) = shared.allocate(&stream, bytes) {
                    if random.usize(..3) == 0 {
                        shared.passed.lock().unwrap().push(buffer);
                    } else {
                        own.push(buffer);
                    }
                }
            }
            45..65 if !own.is_empty() => shared.free(own.swap_remove(random.usize(..own.len()))),
            65..80 => {
                let buffer = {
                    let mut passed = shared.passed.lock().unwrap();
                    let index = random.usize(..passed.len().max(1));
                    (index < passed.len()).then(|| passed.swap_remove(index))
                };
                if let Some(buffer) = buffer {
                    shared.free(buffer);
                }
            }
            80..90 => {
                if let Some(buffer) = own.last() {
                    buffer.record_stream(&stream).unwrap();
                }
            }
            90..92 => _ = shared.device.memory().empty_cache().unwrap(),
            92..94 => shared.look(),
            94..97 if streams.len() > 2 => drop(streams.swap_remove(1)),
            97 => stream.synchronize().unwrap(),
            _ if streams.len() < 4 => streams.push(Stream::new(shared.device).unwrap()),
            _ => {}
        }
        if own.len() > 40 || step + 1 == STEPS {
            own.drain(..).for_each(|buffer| shared.free(buffer));
        }
    }
}

#[test]
fn threads_that_do_everything_at_once_lose_nothing() {
    for options in ["", "expandable_segments:True", "garbage_collection_threshold:0.5"] {
        let (driver, device) = unbacked(512 << 20, options);
        let common_stream = Stream::new(&device).unwrap();
        let shared = Shared {
            device: &device,
            passed: Mutex::default(),
            claims: Mutex::default(),
            allocated: AtomicU64::new(0),
        };
        let mut seeds = random();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let random = fastrand::Rng::with_seed(seeds.u64(..));
                scope.spawn(|| work(&shared, random, &common_stream));
            }
        });
        let Shared { passed, allocated, .. } = shared;
        drop(passed);
        device.memory().empty_cache().unwrap();
        let statistics = device.memory().statistics();
        for (name, value) in statistics.to_map() {
            let expected = if name.starts_with("allocation.all") && !name.ends_with("peak") {
                if name.ends_with("current") { 0 } else { allocated.load(Ordering::Relaxed) as i64 }
            } else if name.ends_with(".current") {
                0
            } else {
                continue;
            };
            assert_eq!(value, expected, "{name}, options `{options}`");
        }
        assert!(device.memory().snapshot().segments.is_empty());
        assert_eq!((driver.live_allocations(0), driver.live_reservations(0)), (0, 0), "options `{options}`");
        assert!(device.take_drop_error().is_none());
    }
}

#[test]
fn pools_change_while_other_threads_allocate() {
    let (driver, device) = unbacked(1 << 30, "");
    let pools = Mutex::new(Vec::<MemoryPool>::new());
    let mut seeds = random();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let mut random = fastrand::Rng::with_seed(seeds.u64(..));
            let (pools, device) = (&pools, &device);
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                let mut live = Vec::new();
                for _ in 0..600 {
                    let pool = {
                        let mut pools = pools.lock().unwrap();
                        if pools.len() < 3 {
                            pools.push(MemoryPool::new(device).unwrap());
                        }
                        let index = random.usize(..pools.len());
                        if random.usize(..8) == 0 { pools.swap_remove(index) } else { pools[index].clone() }
                    };
                    let guard = pool.enter();
                    match DeviceBuffer::<u8>::uninit(&stream, 1 + random.usize(..3 << 20)) {
                        Ok(buffer) => live.push(buffer),
                        Err(Error::PoolReleased { .. } | Error::OutOfMemory(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if random.usize(..20) == 0 {
                        pool.release().unwrap();
                    }
                    drop(guard);
                    if live.len() > 10 {
                        live.swap_remove(random.usize(..live.len()));
                    }
                }
            });
        }
    });
    drop(pools);
    device.memory().empty_cache().unwrap();
    assert_eq!((device.memory().allocated(), device.memory().reserved()), (0, 0));
    assert_eq!(driver.live_allocations(0), 0);
}

#[test]
fn cached_requests_take_no_shared_lock() {
    for options in ["", "expandable_segments:True"] {
        let (_, device) = unbacked(64 << 30, options);
        let start = Barrier::new(17);
        let warm = Barrier::new(17);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let stream = Stream::new(&device).unwrap();
                        let pair = |step: usize| {
                            let bytes = [100, 70_000, 3 << 20, 40 << 20][step % 4];
                            drop(DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap());
                        };
                        (0..8).for_each(pair);
                        warm.wait();
                        start.wait();
                        (0..10_000).for_each(pair);
                        // Dropping the stream acquires a shared lock, so the stream is returned.
                        stream
                    })
                })
                .collect();
            warm.wait();
            let before = device.memory().shared_lock_acquisitions();
            start.wait();
            let streams: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(device.memory().shared_lock_acquisitions(), before, "options `{options}`");
            drop(streams);
        });
    }
}
