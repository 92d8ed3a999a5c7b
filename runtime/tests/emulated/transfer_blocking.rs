//! Tests that blocking copies of host slices copy the right data for every size and kind of slice, and wait for the
//! copy to finish.

use crate::common::*;
use crate::transfers::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::{DeviceBuffer, PinnedBuffer, Result};

/// Sizes around those at which the number or the size of the chunks changes.
const SIZES: [usize; 8] = [
    1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    (2 << 20) + 4097,
    3 * CHUNK_BYTES,
    8 * CHUNK_BYTES + 1,
    11 * CHUNK_BYTES - 3,
];

#[test]
fn ranges_of_every_size_are_copied() {
    let (_, _, stream) = fixture();
    for size in SIZES {
        let bytes = pattern(size, 3);
        let mut buffer = DeviceBuffer::from_host(&stream, &vec![9u8; size + 2]).unwrap();
        buffer.slice_mut(1..size + 1).copy_from_host(&bytes).unwrap();
        assert_same(&buffer.slice(1..size + 1).to_host().unwrap(), &bytes, &format!("{size} bytes"));
        let mut all = vec![0; size + 2];
        buffer.copy_to_host(&mut all).unwrap();
        assert_eq!((all[0], all[size + 1]), (9, 9), "{size} bytes: nothing beside them");
        assert_same(&all[1..size + 1], &bytes, &format!("{size} bytes, into a slice"));
    }
}

#[test]
fn large_pageable_slices_are_staged_in_chunks() {
    let (driver, _, stream) = fixture();
    let bytes = pattern(9 * CHUNK_BYTES, 1);
    let buffer = DeviceBuffer::from_host(&stream, &bytes).unwrap();
    assert_eq!((driver.calls(Call::PinnedAllocate), driver.calls(Call::CopyToDevice)), (3, 9));
    assert_same(&buffer.to_host().unwrap(), &bytes, "staged both ways");
    assert_eq!((driver.calls(Call::PinnedAllocate), driver.calls(Call::CopyToHost)), (3, 9));
}

#[test]
fn page_locked_and_small_slices_are_copied_directly() {
    let (driver, device, stream) = fixture();
    let source = PinnedBuffer::from_slice(&device, &pattern(3 * CHUNK_BYTES, 2)).unwrap();
    let before = driver.calls(Call::PinnedAllocate);
    let buffer = DeviceBuffer::from_host(&stream, &source).unwrap();
    let mut target = PinnedBuffer::zeroed(&device, source.len()).unwrap();
    buffer.copy_to_host(&mut target).unwrap();
    assert_same(&target, &source, "page-locked");
    let small = DeviceBuffer::from_host(&stream, &vec![7u8; (1 << 20) - 1]).unwrap();
    assert_eq!(small.to_host().unwrap(), vec![7; (1 << 20) - 1]);
    assert_eq!(driver.calls(Call::PinnedAllocate), before + 1, "the target alone");
    assert_eq!((driver.calls(Call::CopyToDevice), driver.calls(Call::CopyToHost)), (2, 2));
}

#[test]
fn without_page_locked_memory_the_driver_copies() {
    let (driver, device, stream) = fixture();
    device.pinned_memory().set_limit(Some(1 << 19));
    let bytes = pattern(2 * CHUNK_BYTES, 4);
    let buffer = DeviceBuffer::from_host(&stream, &bytes).unwrap();
    assert_same(&buffer.to_host().unwrap(), &bytes, "copied by the driver");
    assert_eq!((driver.calls(Call::CopyToDevice), driver.calls(Call::CopyToHost)), (1, 1));
}

#[test]
fn staged_copies_follow_earlier_work_of_other_streams() {
    let (driver, device, stream) = fixture();
    let other = warpsmith_runtime::Stream::new(&device).unwrap();
    let bytes = pattern(3 * CHUNK_BYTES, 5);
    let source = DeviceBuffer::from_host(&stream, &bytes).unwrap();
    let mut target = DeviceBuffer::<u8>::zeros(&stream, bytes.len()).unwrap();
    let hold = driver.hold();
    other.copy(&source, &mut target).unwrap();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| target.to_host());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!copied.is_finished(), "the copy on the other stream has not run");
        drop(hold);
        assert_same(&copied.join().unwrap().unwrap(), &bytes, "after the other stream");
    });
}

/// Injects failures at increasing positions until the copy succeeds, and returns the number of failures.
fn failing_calls(down: bool) -> usize {
    let size = 5 * CHUNK_BYTES + 1;
    let bytes = pattern(size, 6);
    let mut failures = 0;
    for call in
        [Call::PinnedAllocate, Call::EventCreate, Call::EventRecord, Call::CopyToDevice, Call::CopyToHost]
    {
        for after in 0.. {
            let what = format!("down: {down}, {} {after}", call.name());
            let (driver, device, stream) = fixture();
            let mut buffer = DeviceBuffer::<u8>::zeros(&stream, size).unwrap();
            let before = driver.calls(call);
            driver.fail_call(call, after);
            let done = if down { buffer.to_host().map(drop) } else { buffer.copy_from_host(&bytes) };
            if let Err(error) = &done {
                assert!(error.to_string().contains(call.name()), "{what}: {error}");
                failures += 1;
            }
            let is_last = done.is_ok() && driver.calls(call) - before <= after;
            let mut again = || -> Result<Vec<u8>> {
                buffer.copy_from_host(&bytes)?;
                buffer.to_host()
            };
            // If the injected failure is still pending, it occurs here exactly once.
            assert_same(&again().or_else(|_| again()).unwrap(), &bytes, &what);
            drop((buffer, stream));
            device.synchronize().unwrap();
            device.memory().empty_cache().unwrap();
            device.pinned_memory().empty_cache().unwrap();
            assert_eq!((driver.live_allocations(0), driver.live_pinned()), (0, 0), "{what}: a leak");
            if is_last {
                break;
            }
        }
    }
    failures
}

#[test]
fn a_failed_chunk_is_the_error_of_the_copy() {
    for down in [false, true] {
        // The copy consists of six chunks, each with an event.
        assert!(failing_calls(down) >= 12, "down: {down}");
    }
}
