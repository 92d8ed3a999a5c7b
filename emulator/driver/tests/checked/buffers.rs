//! Tests of the bounds and lifetimes of buffers, per element, in every kind of memory.

use gpu_std::prelude::*;
use warpsmith_runtime::check::{Finding, FindingKind};
use warpsmith_runtime::{Device, DeviceBuffer, Launch, Stream};

use crate::{caching_device, device, kernel, kinds};

/// Writes one element.
#[kernel]
unsafe fn write_at(out: *mut u32, index: usize) {
    unsafe { out.add(index).write(1) };
}

/// Reads one element.
#[kernel]
unsafe fn read_at(data: *mut u32, index: usize, out: *mut u32) {
    unsafe { out.write(data.add(index).read()) };
}

fn write(stream: &Stream, out: &DeviceBuffer<u32>, index: usize) -> Vec<Finding> {
    let checked = stream.device().checked().unwrap();
    let args = (out.as_device_ptr(), index);
    // SAFETY: elements outside the buffer are still in memory of its device.
    unsafe { kernel::<write_at>(stream.device()).launch_unsafe(stream, Launch::grid_block(1, 1), args) }
        .unwrap();
    checked.findings().unwrap()
}

fn both() -> [Device; 2] {
    [device(), caching_device()]
}

#[test]
fn one_element_past_any_length_is_found() {
    for device in both() {
        let stream = device.default_stream();
        for len in [1, 100, 127, 129, 1000, 1023, 300_000] {
            let out = DeviceBuffer::zeros(&stream, len).unwrap();
            assert!(write(&stream, &out, len - 1).is_empty(), "{len}");
            let findings = write(&stream, &out, len);
            assert_eq!(kinds(&findings), [FindingKind::OutOfBounds], "{len}");
            let text = findings[0].to_string();
            assert!(text.contains(&format!("a buffer of {} bytes", 4 * len)), "{text}");
            assert!(text.contains("argument `out`"), "{text}");
        }
    }
}

#[test]
fn a_full_block_ends_where_the_unused_segment_begins() {
    let device = caching_device();
    let stream = device.default_stream();
    let out = DeviceBuffer::zeros(&stream, 128).unwrap();
    for index in [128, 129, 5000] {
        let findings = write(&stream, &out, index);
        assert_eq!(kinds(&findings), [FindingKind::OutOfBounds], "{index}");
        assert!(findings[0].to_string().contains("a buffer of 512 bytes, argument `out`"), "{}", findings[0]);
    }
}

#[test]
fn neighbors_in_a_segment_are_buffers_of_their_own() {
    let device = caching_device();
    let stream = device.default_stream();
    let [first, second] = [100, 200].map(|len| DeviceBuffer::<u32>::zeros(&stream, len).unwrap());
    let distance = second.as_device_ptr().0 - first.as_device_ptr().0;
    assert_eq!(distance, 512, "they are neighbors");
    assert_eq!(kinds(&write(&stream, &first, 100)), [FindingKind::OutOfBounds]);
    assert!(write(&stream, &second, 199).is_empty());
    assert_eq!(kinds(&write(&stream, &second, 200)), [FindingKind::OutOfBounds]);
}

#[test]
fn a_freed_buffer_is_found_in_the_cache() {
    for device in both() {
        let stream = device.default_stream();
        let data = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
        let mut out = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
        let address = data.as_device_ptr();
        drop(data);
        let checked = device.checked().unwrap();
        // SAFETY: the allocator keeps the memory cached, and no other work uses it.
        unsafe {
            kernel::<read_at>(&device).launch_unsafe(
                &stream,
                Launch::grid_block(1, 1),
                (address, 7, &mut out),
            )
        }
        .unwrap();
        let findings = checked.findings().unwrap();
        assert_eq!(kinds(&findings), [FindingKind::Freed]);
        assert!(findings[0].to_string().contains("a freed buffer of 400 bytes"), "{}", findings[0]);
    }
}

#[test]
fn a_buffer_freed_after_its_launch_is_no_finding() {
    for device in both() {
        let stream = device.default_stream();
        let checked = device.checked().unwrap();
        for round in 0..20 {
            let mut data = DeviceBuffer::<u32>::uninit(&stream, 100).unwrap();
            data.copy_from_host(&[round; 100]).unwrap();
            let mut out = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
            // SAFETY: the accessed elements are within the buffers.
            unsafe {
                kernel::<read_at>(&device).launch_unsafe(
                    &stream,
                    Launch::grid_block(1, 1),
                    (&mut data, 99, &mut out),
                )
            }
            .unwrap();
        }
        assert!(checked.findings().unwrap().is_empty());
    }
}

#[test]
fn a_reused_block_is_uninitialized_again() {
    let device = caching_device();
    let stream = device.default_stream();
    let first = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    let address = first.as_device_ptr();
    drop(first);
    let mut second = DeviceBuffer::<u32>::uninit(&stream, 100).unwrap();
    assert_eq!(second.as_device_ptr(), address);
    let checked = device.checked().unwrap();
    // SAFETY: the accessed elements are within the buffers.
    unsafe {
        kernel::<read_at>(&device).launch_unsafe(
            &stream,
            Launch::grid_block(1, 1),
            (&mut second, 3, &mut out),
        )
    }
    .unwrap();
    assert_eq!(kinds(&checked.findings().unwrap()), [FindingKind::Uninitialized]);
}
