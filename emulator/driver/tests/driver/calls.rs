//! Tests of stream priorities and IDs, host functions, and events of other devices and processes, on the emulated
//! driver.
//!
//! Safety, everywhere in this file: the emulated driver checks device memory and rejects invalid accesses. Host memory
//! of copies lives until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use crate::fixture::*;
use warpsmith_runtime::driver::{Driver, HostFunction, StreamDriver};

const INVALID_HANDLE: u32 = 400;
const ASSERT: u32 = 710;

#[test]
fn handles_that_stand_for_nothing_are_invalid_handles() {
    let fixture = Fixture::new();
    let (driver, context) = (&fixture.driver, fixture.context);
    let event = fixture.event();
    unsafe { driver.event_destroy(context, event) };
    let stream = driver.stream_create(context, 0).unwrap();
    unsafe { driver.stream_destroy(context, stream) };
    let block = fixture.block(&[0; 16]);
    let name = "CUDA_ERROR_INVALID_HANDLE";

    refused(driver.event_query(context, event), INVALID_HANDLE, name);
    refused(driver.event_synchronize(context, event), INVALID_HANDLE, name);
    refused(driver.event_record(context, event, fixture.stream), INVALID_HANDLE, name);
    refused(driver.stream_wait_event(context, fixture.stream, event), INVALID_HANDLE, name);
    refused(driver.stream_query(context, stream), INVALID_HANDLE, name);
    refused(driver.stream_synchronize(context, stream), INVALID_HANDLE, name);
    refused(driver.stream_priority(context, stream), INVALID_HANDLE, name);
    refused(driver.event_record(context, fixture.event(), stream), INVALID_HANDLE, name);
    refused(unsafe { driver.memset(context, block, 0, 16, stream) }, INVALID_HANDLE, name);
    let (dst, src) = ((context, block), (context, block.offset(8)));
    refused(unsafe { driver.copy_peer(context, dst, src, 8, stream) }, INVALID_HANDLE, name);
    let called = Arc::new(AtomicU32::new(0));
    let inner = Arc::clone(&called);
    let function: HostFunction = Box::new(move || _ = inner.fetch_add(1, Ordering::Relaxed));
    refused(driver.host_function(context, stream, function), INVALID_HANDLE, name);
    assert_eq!((called.load(Ordering::Relaxed), Arc::strong_count(&called)), (0, 1), "dropped at once");
}

#[test]
fn a_stopped_context_drops_host_functions_uncalled() {
    let fixture = Fixture::new();
    let owned = Arc::new(AtomicU32::new(0));
    let counting = || {
        let owned = Arc::clone(&owned);
        move || _ = owned.fetch_add(1, Ordering::Relaxed)
    };
    let hold = fixture.driver.hold();
    fixture.call(counting()).unwrap();
    fixture.call(counting()).unwrap();
    fixture.poison();
    refused(fixture.call(counting()), ASSERT, "stopped the context");
    assert_eq!(Arc::strong_count(&owned), 3, "the refused one was dropped, the others wait");
    drop(hold);
    refused(fixture.wait(), ASSERT, "stopped the context");
    assert_eq!((owned.load(Ordering::Relaxed), Arc::strong_count(&owned)), (0, 1));

    fixture.driver.context_release(0);
    let fresh = Fixture::of(&fixture.driver, 0);
    fresh.call(counting()).unwrap();
    fresh.wait().unwrap();
    assert_eq!((owned.load(Ordering::Relaxed), Arc::strong_count(&owned)), (1, 1));
}

#[test]
fn captures_that_panic_on_drop_stop_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    let fixture = Fixture::new();
    let hold = fixture.driver.hold();
    for _ in 0..2 {
        let bomb = Bomb;
        fixture.call(move || drop(bomb)).unwrap();
    }
    let event = fixture.event();
    fixture.driver.event_record(fixture.context, event, fixture.stream).unwrap();
    fixture.poison();
    drop(hold);
    refused(fixture.wait(), ASSERT, "stopped the context");
    refused(fixture.driver.event_synchronize(fixture.context, event), ASSERT, "stopped the context");
    fixture.driver.context_release(0);
}

#[test]
fn a_host_function_may_own_the_driver() {
    let Fixture { driver, context, stream, .. } = Fixture::new();
    let (dropped, was_dropped) = channel();
    let hold = driver.hold();
    let inner = Arc::clone(&driver);
    let function = move || {
        let weak = Arc::downgrade(&inner);
        drop(inner);
        dropped.send(weak.strong_count()).unwrap();
    };
    driver.host_function(context, stream, Box::new(function)).unwrap();
    drop(driver);
    drop(hold);
    assert_eq!(receive(&was_dropped), 0);
}
