//! Devices with given options whose addresses have no memory, and short helpers to inspect the allocator.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;

use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::memory::statistics::MemoryStatistics;
use warpsmith_runtime::snapshot::{Block, Segment, Snapshot};
use warpsmith_runtime::{Device, DeviceBuffer, Error, OutOfMemory, Stream};

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// Sets the options of a device that has not allocated yet, overriding the environment.
pub fn set_options(device: &Device, options: &str) {
    device.memory().set_options(options.parse().unwrap()).unwrap();
}

/// Returns a device of `memory` bytes that allocates according to `options`. The addresses have no memory.
pub fn device_with(memory: usize, options: &str) -> (Arc<EmulatedDriver>, Device) {
    let driver = EmulatedDriver::builder().memory(memory as u64).unbacked().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    set_options(&device, options);
    (driver, device)
}

/// Same as [`device_with`], with the device's default stream.
pub fn stream_with(memory: usize, options: &str) -> (Arc<EmulatedDriver>, Device, Stream) {
    let (driver, device) = device_with(memory, options);
    let stream = device.default_stream();
    (driver, device, stream)
}

/// Same as [`device_with`], with separate streams.
pub fn streams_with<const N: usize>(
    memory: usize,
    options: &str,
) -> (Arc<EmulatedDriver>, Device, [Stream; N]) {
    let (driver, device) = device_with(memory, options);
    let streams = std::array::from_fn(|_| Stream::new(&device).unwrap());
    (driver, device, streams)
}

/// Same as [`device_with`], but with memory at its addresses, for tests that run work.
pub fn backed_device_with(memory: usize, options: &str) -> (Arc<EmulatedDriver>, Device) {
    let driver = EmulatedDriver::builder().memory(memory as u64).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    set_options(&device, options);
    (driver, device)
}

#[track_caller]
pub fn allocate(stream: &Stream, bytes: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::uninit(stream, bytes).unwrap()
}

/// Allocates and immediately frees memory, which remains in the cache. Returns its address.
#[track_caller]
pub fn allocate_and_free(stream: &Stream, bytes: usize) -> u64 {
    address(&allocate(stream, bytes))
}

pub fn address(buffer: &DeviceBuffer<u8>) -> u64 {
    buffer.as_device_ptr().0
}

/// Returns the report of a request that must fail for lack of memory.
#[track_caller]
pub fn fails(stream: &Stream, bytes: usize) -> OutOfMemory {
    match DeviceBuffer::<u8>::uninit(stream, bytes) {
        Err(Error::OutOfMemory(report)) => *report,
        Err(error) => panic!("{error}"),
        Ok(buffer) => panic!("{bytes} bytes were allocated: {buffer:?}"),
    }
}

pub fn statistics(device: &Device) -> MemoryStatistics {
    device.memory().statistics()
}

/// Returns the number of segments that the driver has allocated for a device.
pub fn segments(device: &Device) -> u64 {
    statistics(device).segment.all.current
}

/// Returns the segment and the block that contain a buffer.
#[track_caller]
pub fn find(snapshot: &Snapshot, address: u64) -> (&Segment, &Block) {
    let found = snapshot.segments.iter().find_map(|segment| {
        let block = segment.blocks.iter().find(|block| block.address == address)?;
        Some((segment, block))
    });
    found.unwrap_or_else(|| panic!("no block at {address:#x}"))
}

/// Returns the size of a buffer's block.
#[track_caller]
pub fn block_size(buffer: &DeviceBuffer<u8>) -> usize {
    let snapshot = buffer.device().memory().snapshot();
    find(&snapshot, address(buffer)).1.size as usize
}
