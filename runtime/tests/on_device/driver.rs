//! Tests of driver calls that no layer above tests, on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated
//! device if it is not set. A missing device fails the tests.
//!
//! Safety, everywhere in this file: memory of copies lives until the stream has been waited for, and handles are not
//! used after they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::rig::*;
use warpsmith_runtime::driver::{DevicePtr, Place, RowsCopy};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const NOT_PERMITTED: u32 = 800;

#[test]
fn priorities_are_a_range_and_streams_keep_theirs() {
    let rig = Rig::new();
    let (least, most) = rig.driver().stream_priorities(rig.context()).unwrap();
    assert!(most <= least, "lower is more urgent: {most} to {least}");
    for (asked, given) in [(least, least), (most, most), (most - 1, most), (least + 1, least)] {
        let stream = rig.driver().stream_create(rig.context(), asked).unwrap();
        assert_eq!(rig.driver().stream_priority(rig.context(), stream).unwrap(), given, "{asked}");
        unsafe { rig.driver().stream_destroy(rig.context(), stream) };
    }
}

#[test]
fn identities_differ_when_handles_come_again() {
    let rig = Rig::new();
    let mut seen = vec![rig.driver().stream_unique_id(rig.context(), rig.stream).unwrap()];
    for _ in 0..20 {
        let stream = rig.driver().stream_create(rig.context(), 0).unwrap();
        let id = rig.driver().stream_unique_id(rig.context(), stream).unwrap();
        assert!(!seen.contains(&id), "{id} again");
        seen.push(id);
        unsafe { rig.driver().stream_destroy(rig.context(), stream) };
    }
    if let Some(peer) = rig.peer() {
        let foreign = peer.driver().stream_unique_id(peer.context(), rig.stream);
        assert_eq!(code(foreign), Some(INVALID_HANDLE));
    }
}

#[test]
fn host_functions_run_in_order_despite_panics() {
    let rig = Rig::new();
    let block = rig.block(&[1; 4]);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (proceed, may_proceed) = channel::<()>();
    rig.call(move || may_proceed.recv_timeout(Duration::from_secs(60)).unwrap());
    unsafe { rig.driver().memset(rig.context(), block, 2, 4, rig.stream) }.unwrap();
    for number in 0..10 {
        let log = Arc::clone(&log);
        rig.call(move || {
            log.lock().unwrap().push(number);
            assert_ne!(number, 5, "a panic of the test's");
        });
    }
    assert!(!rig.driver().stream_query(rig.context(), rig.stream).unwrap());
    let other = rig.beside();
    assert_eq!(other.read(block, 4), [1; 4], "the fill waits for the function");
    proceed.send(()).unwrap();
    rig.wait();
    let log =
        Arc::try_unwrap(log).expect("all functions are gone").into_inner().unwrap_or_else(|e| e.into_inner());
    assert!(log.iter().copied().eq(0..10), "{log:?}");
    assert_eq!(rig.read(block, 4), [2; 4]);
}

#[test]
fn a_host_function_cannot_call_the_driver() {
    let rig = Rig::new();
    let (driver, context) = (Arc::clone(unsafe { rig.device.driver() }.0), rig.context());
    let stream = rig.stream;
    let (codes, said) = channel();
    rig.call(move || {
        let answers = [
            code(driver.memory_allocate(context, 8)),
            code(driver.stream_synchronize(context, stream)),
            code(driver.context_synchronize(context)),
            code(driver.context_retain(0)),
            code(driver.host_function(context, stream, Box::new(|| ()))),
        ];
        unsafe { driver.stream_destroy(context, stream) };
        codes.send(answers).unwrap();
    });
    assert_eq!(said.recv_timeout(Duration::from_secs(60)).unwrap(), [Some(NOT_PERMITTED); 5]);
    rig.wait();
}

#[test]
fn rows_are_copied_and_what_lies_between_stays() {
    let rig = Rig::new();
    let rows =
        |dst, dst_pitch, src, src_pitch| RowsCopy { dst, dst_pitch, src, src_pitch, row_bytes: 3, rows: 3 };
    let mut host: Vec<u8> = (1..=11).collect();
    let block = rig.block(&[0; 13]);
    let on_host = Place::Host(host.as_mut_ptr().cast());
    rig.copy_rows(rows(Place::Device(block), 5, on_host, 4));
    assert_eq!(rig.read(block, 13), [1, 2, 3, 0, 0, 5, 6, 7, 0, 0, 9, 10, 11]);

    let second = rig.block(&[100; 19]);
    rig.copy_rows(rows(Place::Device(second), 8, Place::Device(block), 5));
    let between = [100; 5];
    let expected = [&[1, 2, 3][..], &between, &[5, 6, 7], &between, &[9, 10, 11]].concat();
    assert_eq!(rig.read(second, 19), expected);

    let mut back = vec![50u8; 11];
    rig.copy_rows(rows(Place::Host(back.as_mut_ptr().cast()), 4, Place::Device(second), 8));
    rig.wait();
    assert_eq!(back, [1, 2, 3, 50, 5, 6, 7, 50, 9, 10, 11]);

    let overlapping = rows(Place::Device(second), 2, Place::Device(block), 5);
    let refused = unsafe { rig.driver().copy_rows(rig.context(), overlapping, rig.stream) };
    assert_eq!(code(refused), Some(INVALID_VALUE));

    // Pitches beyond the limit of copy engines; a single row needs none.
    let mut out = [0u8; 3];
    let (to_host, far) = (Place::Host(out.as_mut_ptr().cast()), 1 << 33);
    rig.copy_rows(RowsCopy { rows: 1, ..rows(to_host, 3, Place::Device(second.offset(8)), far) });
    rig.copy_rows(RowsCopy {
        rows: 1,
        ..rows(Place::Device(block), far, Place::Device(second.offset(16)), 3)
    });
    rig.copy_rows(RowsCopy { rows: 1, ..rows(Place::Device(block.offset(5)), far, on_host, far) });
    rig.wait();
    assert_eq!(out, [5, 6, 7]);
    assert_eq!(rig.read(block, 13), [9, 10, 11, 0, 0, 1, 2, 3, 0, 0, 9, 10, 11]);
}

#[test]
fn copies_go_within_a_device_and_between_two() {
    let rig = Rig::new();
    let copy = |on: &Rig, dst: (&Rig, DevicePtr), src: (&Rig, DevicePtr), bytes| {
        let (dst, src) = ((dst.0.context(), dst.1), (src.0.context(), src.1));
        unsafe { on.driver().copy_peer(on.context(), dst, src, bytes, on.stream) }.unwrap();
        on.wait();
    };
    let here = rig.block(&[1, 2, 3, 4, 5, 6]);
    copy(&rig, (&rig, here), (&rig, here.offset(3)), 3);
    assert_eq!(rig.read(here, 6), [4, 5, 6, 4, 5, 6]);
    if let Some(peer) = rig.peer() {
        let there = peer.block(&[0; 6]);
        copy(&rig, (&peer, there), (&rig, here), 3);
        copy(&peer, (&peer, there.offset(4)), (&rig, here), 2);
        assert_eq!(peer.read(there, 6), [4, 5, 6, 0, 4, 5]);
        copy(&rig, (&rig, here.offset(2)), (&peer, there.offset(3)), 1);
        assert_eq!(rig.read(here, 6), [4, 5, 0, 4, 5, 6]);
    }
}

#[test]
fn nvlinks_are_the_same_in_both_directions() {
    let rig = Rig::new();
    if let Some(peer) = rig.peer() {
        let [from, to] = [&rig, &peer].map(|rig| rig.device.id().ordinal());
        let links = rig.driver().peer_nvlinks(from, to);
        println!("{from} to {to}: {links} NVLinks");
        assert_eq!(rig.driver().peer_nvlinks(to, from), links);
    }
}
