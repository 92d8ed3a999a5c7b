//! Tests of driver calls that the tests of higher layers do not cover, on the device under test:
//! `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set. A missing device fails the tests.
//!
//! Safety, everywhere in this file: memory of copies lives until the stream has been waited for, and handles are not
//! used after they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::*;
use warpsmith_runtime::driver::{DevicePtr, Place, RowsCopy};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const NOT_PERMITTED: u32 = 800;

#[test]
fn priorities_are_a_range_and_streams_keep_theirs() {
    let fixture = Fixture::new();
    let (least, most) = fixture.driver().stream_priorities(fixture.context()).unwrap();
    assert!(most <= least, "lower is more urgent: {most} to {least}");
    for (asked, given) in [(least, least), (most, most), (most - 1, most), (least + 1, least)] {
        let stream = fixture.driver().stream_create(fixture.context(), asked).unwrap();
        assert_eq!(fixture.driver().stream_priority(fixture.context(), stream).unwrap(), given, "{asked}");
        unsafe { fixture.driver().stream_destroy(fixture.context(), stream) };
    }
}

#[test]
fn identities_differ_when_handles_come_again() {
    let fixture = Fixture::new();
    let mut seen = vec![fixture.driver().stream_unique_id(fixture.context(), fixture.stream).unwrap()];
    for _ in 0..20 {
        let stream = fixture.driver().stream_create(fixture.context(), 0).unwrap();
        let id = fixture.driver().stream_unique_id(fixture.context(), stream).unwrap();
        assert!(!seen.contains(&id), "{id} again");
        seen.push(id);
        unsafe { fixture.driver().stream_destroy(fixture.context(), stream) };
    }
    if let Some(peer) = fixture.peer() {
        let foreign = peer.driver().stream_unique_id(peer.context(), fixture.stream);
        assert_eq!(code(foreign), Some(INVALID_HANDLE));
    }
}

#[test]
fn host_functions_run_in_order_despite_panics() {
    let fixture = Fixture::new();
    let block = fixture.block(&[1; 4]);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (proceed, may_proceed) = channel::<()>();
    fixture.call(move || may_proceed.recv_timeout(Duration::from_secs(60)).unwrap());
    unsafe { fixture.driver().memset(fixture.context(), block, 2, 4, fixture.stream) }.unwrap();
    for number in 0..10 {
        let log = Arc::clone(&log);
        fixture.call(move || {
            log.lock().unwrap().push(number);
            assert_ne!(number, 5, "a panic of the test's");
        });
    }
    assert!(!fixture.driver().stream_query(fixture.context(), fixture.stream).unwrap());
    let other = fixture.beside();
    assert_eq!(other.read(block, 4), [1; 4], "the fill waits for the function");
    proceed.send(()).unwrap();
    fixture.wait();
    let log =
        Arc::try_unwrap(log).expect("all functions are gone").into_inner().unwrap_or_else(|e| e.into_inner());
    assert!(log.iter().copied().eq(0..10), "{log:?}");
    assert_eq!(fixture.read(block, 4), [2; 4]);
}

#[test]
fn a_host_function_cannot_call_the_driver() {
    let fixture = Fixture::new();
    let (driver, context) = (Arc::clone(unsafe { fixture.device.driver() }.0), fixture.context());
    let stream = fixture.stream;
    let (codes, said) = channel();
    fixture.call(move || {
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
    fixture.wait();
}

#[test]
fn rows_are_copied_and_what_lies_between_stays() {
    let fixture = Fixture::new();
    let rows =
        |dst, dst_pitch, src, src_pitch| RowsCopy { dst, dst_pitch, src, src_pitch, row_bytes: 3, rows: 3 };
    let mut host: Vec<u8> = (1..=11).collect();
    let block = fixture.block(&[0; 13]);
    let on_host = Place::Host(host.as_mut_ptr().cast());
    fixture.copy_rows(rows(Place::Device(block), 5, on_host, 4));
    assert_eq!(fixture.read(block, 13), [1, 2, 3, 0, 0, 5, 6, 7, 0, 0, 9, 10, 11]);

    let second = fixture.block(&[100; 19]);
    fixture.copy_rows(rows(Place::Device(second), 8, Place::Device(block), 5));
    let between = [100; 5];
    let expected = [&[1, 2, 3][..], &between, &[5, 6, 7], &between, &[9, 10, 11]].concat();
    assert_eq!(fixture.read(second, 19), expected);

    let mut back = vec![50u8; 11];
    fixture.copy_rows(rows(Place::Host(back.as_mut_ptr().cast()), 4, Place::Device(second), 8));
    fixture.wait();
    assert_eq!(back, [1, 2, 3, 50, 5, 6, 7, 50, 9, 10, 11]);

    let overlapping = rows(Place::Device(second), 2, Place::Device(block), 5);
    let refused = unsafe { fixture.driver().copy_rows(fixture.context(), overlapping, fixture.stream) };
    assert_eq!(code(refused), Some(INVALID_VALUE));

    // The pitches exceed the limit of copy engines, but a single row requires no pitch.
    let mut out = [0u8; 3];
    let (to_host, far) = (Place::Host(out.as_mut_ptr().cast()), 1 << 33);
    fixture.copy_rows(RowsCopy { rows: 1, ..rows(to_host, 3, Place::Device(second.offset(8)), far) });
    fixture.copy_rows(RowsCopy {
        rows: 1,
        ..rows(Place::Device(block), far, Place::Device(second.offset(16)), 3)
    });
    fixture.copy_rows(RowsCopy { rows: 1, ..rows(Place::Device(block.offset(5)), far, on_host, far) });
    fixture.wait();
    assert_eq!(out, [5, 6, 7]);
    assert_eq!(fixture.read(block, 13), [9, 10, 11, 0, 0, 1, 2, 3, 0, 0, 9, 10, 11]);
}

#[test]
fn copies_go_within_a_device_and_between_two() {
    let fixture = Fixture::new();
    let copy = |on: &Fixture, dst: (&Fixture, DevicePtr), src: (&Fixture, DevicePtr), bytes| {
        let (dst, src) = ((dst.0.context(), dst.1), (src.0.context(), src.1));
        unsafe { on.driver().copy_peer(on.context(), dst, src, bytes, on.stream) }.unwrap();
        on.wait();
    };
    let here = fixture.block(&[1, 2, 3, 4, 5, 6]);
    copy(&fixture, (&fixture, here), (&fixture, here.offset(3)), 3);
    assert_eq!(fixture.read(here, 6), [4, 5, 6, 4, 5, 6]);
    if let Some(peer) = fixture.peer() {
        let there = peer.block(&[0; 6]);
        copy(&fixture, (&peer, there), (&fixture, here), 3);
        copy(&peer, (&peer, there.offset(4)), (&fixture, here), 2);
        assert_eq!(peer.read(there, 6), [4, 5, 6, 0, 4, 5]);
        copy(&fixture, (&fixture, here.offset(2)), (&peer, there.offset(3)), 1);
        assert_eq!(fixture.read(here, 6), [4, 5, 0, 4, 5, 6]);
    }
}

#[test]
fn nvlinks_are_the_same_in_both_directions() {
    let fixture = Fixture::new();
    if let Some(peer) = fixture.peer() {
        let [from, to] = [&fixture, &peer].map(|fixture| fixture.device.id().ordinal());
        let links = fixture.driver().peer_nvlinks(from, to);
        println!("{from} to {to}: {links} NVLinks");
        assert_eq!(fixture.driver().peer_nvlinks(to, from), links);
    }
}
