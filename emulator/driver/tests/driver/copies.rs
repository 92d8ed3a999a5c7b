//! Tests of peer copies, pitched copies and peer access on the emulated driver.
//!
//! Safety, everywhere in this file: the emulated driver checks device memory and rejects invalid accesses. Host memory
//! of copies lives until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::mpsc::channel;

use crate::common::driver;
use crate::fixture::*;
use warpsmith_runtime::driver::{Context, DevicePtr, Driver, MemoryDriver, Place, RowsCopy, StreamDriver};
use warpsmith_runtime::emulated::EmulatedDriver;

const INVALID_VALUE: u32 = 1;
const PEER_ACCESS_UNSUPPORTED: u32 = 217;
const INVALID_HANDLE: u32 = 400;
const ASSERT: u32 = 710;

#[test]
fn a_peer_copy_names_memory_of_both() {
    let driver = driver(3);
    let [first, second, third] = [0, 1, 2].map(|ordinal| Fixture::of(&driver, ordinal));
    let (here, there) = (first.block(&[1; 6]), second.block(&[2; 6]));
    let not_within = "not within a live block";
    refused(first.copy_peer((&second, there), (&first, here), 7), INVALID_VALUE, not_within);
    refused(first.copy_peer((&second, there.offset(1)), (&first, here), 6), INVALID_VALUE, not_within);
    refused(first.copy_peer((&second, here), (&first, there), 6), INVALID_VALUE, not_within);
    refused(
        third.copy_peer((&second, there), (&first, here), 6),
        INVALID_VALUE,
        "neither side of the copy is on the stream's device",
    );
    let (dst, src) = ((second.context, there), (first.context, here));
    let foreign = unsafe { driver.copy_peer(first.context, dst, src, 6, second.stream) };
    refused(foreign, INVALID_HANDLE, "belongs to device 1");
    let unknown = unsafe { driver.copy_peer(first.context, (Context(77), there), src, 6, first.stream) };
    refused(unknown, INVALID_VALUE, "context 77");

    // Neither side can be freed while the copy waits.
    let hold = driver.hold();
    first.copy_peer((&second, there), (&first, here), 6).unwrap();
    refused(first.free(here), INVALID_VALUE, "still used");
    refused(second.free(there), INVALID_VALUE, "still used");
    drop(hold);
    first.wait().unwrap();
    first.free(here).unwrap();
    assert_eq!(second.read(there, 6), [1; 6]);

    let here = first.block(&[1; 6]);
    second.poison();
    refused(first.copy_peer((&second, there), (&first, here), 6), ASSERT, "stopped the context");
    assert_eq!(first.read(here, 6), [1; 6], "the other device works on");
}

#[test]
fn a_free_during_a_peer_copy_stops_it() {
    let [first, second] = Fixture::pair();
    let here = first.block(&[1; 6]);
    let pooled = second.driver.stream_allocate(second.context, 6, second.stream).unwrap();
    let (proceed, may_proceed) = channel();
    first.call(move || receive(&may_proceed)).unwrap();
    first.copy_peer((&first, here), (&second, pooled), 6).unwrap();
    // This call may already report the error.
    let _ = unsafe { second.driver.stream_free(second.context, pooled, second.stream) };
    second.wait().unwrap_err();
    proceed.send(()).unwrap();
    first.wait().unwrap();
    let fault = second.driver.take_fault(second.context).unwrap();
    assert!(fault.message.contains("did not wait for the work that uses it"), "{fault:?}");
}

#[test]
fn mapped_memory_is_copied_without_peer_access() {
    const PAGE: usize = 2 << 20;
    let [first, second] = Fixture::pair();
    let (driver, context) = (&first.driver, first.context);
    let base = driver.virtual_reserve(context, PAGE).unwrap();
    let handle = driver.physical_create(context, PAGE).unwrap();
    unsafe { driver.virtual_map(context, base, PAGE, handle) }.unwrap();
    let there = second.block(&[3; 5]);
    refused(first.copy_peer((&first, base), (&second, there), 5), INVALID_VALUE, "accessible");
    unsafe { driver.virtual_set_access(context, base, PAGE, &[0]) }.unwrap();
    first.copy_peer((&first, base), (&second, there), 5).unwrap();
    assert_eq!(first.read(base, 5), [3; 5]);
    second.copy_peer((&second, there), (&first, base.offset(4)), 1).unwrap();
    second.wait().unwrap();
}

/// Rows of 3 bytes, with a pitch of 5 on the device and 4 on the host.
fn three_rows(dst: Place, dst_pitch: usize, src: Place, src_pitch: usize) -> RowsCopy {
    RowsCopy { dst, dst_pitch, src, src_pitch, row_bytes: 3, rows: 3 }
}

#[test]
fn what_is_no_copy_of_rows_is_refused() {
    let fixture = Fixture::new();
    let (dst, src) = (fixture.block(&[0; 13]), fixture.block(&[0; 11]));
    let good = three_rows(Place::Device(dst), 5, Place::Device(src), 4);
    let bad = |rows: RowsCopy, text| refused(fixture.copy_rows(rows), INVALID_VALUE, text);
    bad(RowsCopy { rows: 0, ..good }, "0 rows of 3 bytes have no bytes to copy");
    bad(RowsCopy { row_bytes: 0, ..good }, "3 rows of 0 bytes have no bytes to copy");
    bad(RowsCopy { dst_pitch: 2, ..good }, "a pitch of 2 bytes is less than a row of 3");
    bad(RowsCopy { src_pitch: 0, ..good }, "a pitch of 0 bytes is less than a row of 3");
    bad(RowsCopy { dst_pitch: 6, ..good }, "15 bytes");
    bad(RowsCopy { src_pitch: 5, ..good }, "13 bytes");
    bad(RowsCopy { rows: 4, ..good }, "not within a live block");
    bad(RowsCopy { dst: Place::Device(dst.offset(1)), ..good }, "not within a live block");
    bad(RowsCopy { src: Place::Device(DevicePtr::NULL), ..good }, "not within a live block");
    bad(RowsCopy { dst_pitch: usize::MAX / 4, ..good }, "not within a live block");
    bad(RowsCopy { dst_pitch: usize::MAX / 2, ..good }, "exceed the address space");
    bad(RowsCopy { src_pitch: usize::MAX, ..good }, "exceed the address space");
    assert!(fixture.driver.stream_query(fixture.context, fixture.stream).unwrap(), "nothing was enqueued");
    fixture.copy_rows(good).unwrap();
    fixture.wait().unwrap();

    let hold = fixture.driver.hold();
    fixture.copy_rows(good).unwrap();
    refused(fixture.free(dst), INVALID_VALUE, "still used");
    refused(fixture.free(src), INVALID_VALUE, "still used");
    drop(hold);
    fixture.wait().unwrap();
    fixture.free(dst).unwrap();
    fixture.free(src).unwrap();
}

#[test]
fn a_stopped_context_copies_no_rows() {
    let fixture = Fixture::new();
    let block = fixture.block(&[8; 13]);
    let mut host = vec![1u8; 11];
    let hold = fixture.driver.hold();
    let to_host = Place::Host(host.as_mut_ptr().cast());
    fixture.copy_rows(three_rows(to_host, 4, Place::Device(block), 5)).unwrap();
    fixture.poison();
    drop(hold);
    refused(fixture.wait(), ASSERT, "stopped the context");
    assert_eq!(host, [1; 11]);
}

#[test]
fn devices_without_access_to_each_other_say_so() {
    const PAGE: usize = 2 << 20;
    let driver = EmulatedDriver::builder().devices(2).without_peer_access().build();
    let [first, second] = [0, 1].map(|ordinal| Fixture::of(&driver, ordinal));
    assert!(!driver.peer_can_access(0, 1).unwrap() && !driver.peer_can_access(1, 0).unwrap());
    let name = "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    refused(driver.peer_enable(first.context, second.context), PEER_ACCESS_UNSUPPORTED, name);
    let base = driver.virtual_reserve(first.context, PAGE).unwrap();
    let handle = driver.physical_create(first.context, PAGE).unwrap();
    unsafe { driver.virtual_map(first.context, base, PAGE, handle) }.unwrap();
    let access = |ordinals: &[u32]| unsafe { driver.virtual_set_access(first.context, base, PAGE, ordinals) };
    refused(access(&[0, 1]), PEER_ACCESS_UNSUPPORTED, "device 1 cannot access the memory of device 0");
    assert!(driver.accessible_from(base).is_empty(), "a refused call changes nothing");
    access(&[0]).unwrap();
}

#[test]
fn kernels_use_peer_memory_with_access_only() {
    let [first, second] = Fixture::pair();
    let there = second.block(&[0; 16]);
    refused(first.launch(there, 4), INVALID_VALUE, "peer access from device");
    first.driver.peer_enable(second.context, first.context).unwrap();
    refused(first.launch(there, 4), INVALID_VALUE, "peer access from device");
    first.driver.peer_enable(first.context, second.context).unwrap();
    first.launch(there, 4).unwrap();
    first.wait().unwrap();
    let numbers: Vec<u8> = (0..4u32).flat_map(u32::to_ne_bytes).collect();
    assert_eq!(second.read(there, 16), numbers);
}
