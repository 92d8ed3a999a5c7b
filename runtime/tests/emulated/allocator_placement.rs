//! Tests that blocks are placed as in PyTorch and are densely packed.
//!
//! The fingerprints and ratios of [`CASES`] and [`TRACES`] come from a plain simulation of PyTorch's allocator. When
//! they were recorded, the simulation was compared with this allocator address by address.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

use crate::support::allocator::set_options;
use crate::support::allocator_program::uses;
use crate::traces::{Event, Trace, recorded, rmm_random};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, DevicePtr, Stream};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Far more than any trace needs, so that memory never runs out.
const CAPACITY: u64 = 512 * GIB;

/// Options, and the fingerprints of the recorded trace on one stream, and on three streams that also use each other's
/// blocks.
const CASES: [(&str, [u64; 2]); 8] = [
    ("", [0x1d5f_3d6f_ec9e_eeff, 0x6105_f82f_fd59_e320]),
    ("max_split_size_mb:64", [0xe8df_2815_36c4_81a4, 0x207f_e1ec_18c9_8792]),
    ("max_split_size_mb:20,max_non_split_rounding_mb:40", [0x97c9_6f8b_3855_1fa1, 0xab2d_23ee_699d_3993]),
    ("roundup_power2_divisions:8", [0xd227_07c5_2209_0335, 0xb428_b62f_dfc7_979a]),
    ("roundup_power2_divisions:[1:2,4:4,16:8,>:1]", [0x487d_4b12_91e3_6827, 0xbd0a_121a_fba0_5a30]),
    ("large_segment_size_mb:12", [0x7b06_c090_6c9b_4b5b, 0x2924_73a9_5617_93a3]),
    (
        "garbage_collection_threshold:0.1,per_process_memory_fraction:0.0625",
        [0x4ce9_e2dd_5733_e93f, 0x60da_3784_5ef4_a97f],
    ),
    ("expandable_segments:True,large_segment_size_mb:4", [0x6450_29fc_95c9_50c0, 0x6022_4cf3_438a_ca7e]),
];

struct Replay {
    driver: Arc<EmulatedDriver>,
    /// Start addresses of the driver's blocks and reservations, in order.
    starts: Vec<u64>,
    device: Device,
    streams: Vec<Stream>,
}

impl Replay {
    fn new(options: &str, streams: usize) -> Self {
        let driver = uses::driver(CAPACITY);
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        set_options(&device, options);
        let streams = (0..streams).map(|_| Stream::new(&device).unwrap()).collect();
        Self { driver, device, streams, starts: Vec::new() }
    }

    fn allocate(&self, stream: usize, bytes: u64) -> DevicePtr {
        self.device.memory().allocate_raw(&self.streams[stream], bytes as usize).unwrap()
    }

    /// Returns the index of the driver's block or reservation that contains a newly allocated address, and the offset
    /// in it. The index counts all blocks and reservations so far. An allocation for which the driver provides a new
    /// one is at its start.
    fn place(&mut self, address: u64) -> (u64, u64) {
        let made = self.driver.calls(Call::MemoryAllocate) + self.driver.calls(Call::VirtualReserve);
        if self.starts.len() < made as usize {
            self.starts.push(address);
        }
        // The driver never reuses an address, and later addresses are higher.
        let number = self.starts.partition_point(|start| *start <= address);
        (number as u64, address - self.starts[number - 1])
    }

    fn free(&self, ptr: DevicePtr) {
        // SAFETY: the address has no memory, and every other stream that uses it was recorded.
        unsafe { self.device.memory().free_raw(ptr) }.unwrap();
    }

    /// Enqueues work that never ends on its own, to prevent pages from being moved.
    fn busy(&self) {
        self.streams.iter().for_each(uses::busy);
    }
}

/// Returns a fingerprint of the trace's block addresses. With several streams, each fourth block is used by another
/// stream, and at each thousandth event the host waits for all streams.
fn fingerprint(trace: &Trace, options: &str, streams: usize) -> u64 {
    let mut replay = Replay::new(options, streams);
    replay.busy();
    let mut live = BTreeMap::new();
    let mut places = Fnv(0xcbf2_9ce4_8422_2325);
    for (step, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Alloc { id, bytes } => {
                let (stream, other) = (id as usize % streams, (id as usize / 4) % streams);
                let ptr = replay.allocate(stream, bytes);
                let (number, offset) = replay.place(ptr.0);
                places.write_u64(number);
                places.write_u64(offset);
                live.insert(id, ptr);
                if streams > 1 && id % 4 == 0 {
                    let (home, other) = (&replay.streams[stream], &replay.streams[other]);
                    replay.device.memory().record_stream(ptr, other).unwrap();
                    uses::read(other, home, ptr, bytes).unwrap();
                }
            }
            Event::Free { id } => replay.free(live.remove(&id).expect("the trace is well formed")),
        }
        if step % 1000 == 999 {
            if streams > 1 {
                replay.device.synchronize().unwrap();
                replay.busy();
            }
            if step % 3000 == 2999 {
                replay.device.memory().empty_cache().unwrap();
                replay.busy();
            }
        }
    }
    live.into_values().for_each(|ptr| replay.free(ptr));
    replay.device.memory().empty_cache().unwrap();
    assert_eq!(replay.device.memory().reserved(), 0);
    assert_eq!(replay.driver.take_races(), [""; 0]);
    places.finish()
}

/// FNV-1a hash, which is the same on every machine.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn training() -> Trace {
    recorded(include_str!("../data/training.trace")).expect("every line is an event")
}

#[test]
fn every_block_is_where_pytorch_puts_it() {
    let trace = training();
    for (options, expected) in CASES {
        assert_eq!([1, 3].map(|streams| fingerprint(&trace, options, streams)), expected, "{options}");
    }
}

/// Returns the ratio of peak reserved to peak allocated memory.
fn ratio(trace: &Trace, options: &str) -> f64 {
    let replay = Replay::new(options, 1);
    let mut live = BTreeMap::new();
    for event in &trace.events {
        match *event {
            Event::Alloc { id, bytes } => _ = live.insert(id, replay.allocate(0, bytes)),
            Event::Free { id } => replay.free(live.remove(&id).expect("the trace is well formed")),
        }
    }
    let reserved = replay.device.memory().max_reserved();
    live.into_values().for_each(|ptr| replay.free(ptr));
    reserved as f64 / trace.peak_live() as f64
}

#[test]
fn little_more_is_reserved_than_is_used() {
    let random = |max| rmm_random(1, 10_000, max, 16_000 * MIB);
    // Each trace is paired with PyTorch's ratio for native segments.
    let traces =
        [(random(64 * MIB), 1.034), (random(GIB), 1.173), (random(4 * GIB), 1.318), (training(), 1.026)];
    for (trace, pytorch) in traces {
        let (native, expandable) = (ratio(&trace, ""), ratio(&trace, "expandable_segments:True"));
        println!("native {native:.3}, expandable {expandable:.3}, PyTorch native {pytorch}");
        assert!(expandable <= 1.10, "{expandable}");
        assert!(native <= pytorch + 0.001, "{native}, {pytorch}");
    }
}
