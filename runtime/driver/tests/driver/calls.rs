//! Streams' priorities and identities, host functions, events of other devices and processes, on the emulated driver.
//!
//! Safety, everywhere here: the emulated driver checks device memory and refuses what is wrong; host memory of copies
//! is alive until the stream was waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use crate::rig::*;
use warpsmith_runtime::driver::emulated::Call;
use warpsmith_runtime::driver::{Driver, HostFunction};

const INVALID_HANDLE: u32 = 400;
const ASSERT: u32 = 710;
const NOT_PERMITTED: u32 = 800;

#[test]
fn handles_that_stand_for_nothing_are_invalid_handles() {
    let rig = Rig::new();
    let (driver, context) = (&rig.driver, rig.context);
    let event = rig.event();
    unsafe { driver.event_destroy(context, event) };
    let stream = driver.stream_create(context, 0).unwrap();
    unsafe { driver.stream_destroy(context, stream) };
    let block = rig.block(&[0; 16]);
    let name = "CUDA_ERROR_INVALID_HANDLE";

    refused(driver.event_query(context, event), INVALID_HANDLE, name);
    refused(driver.event_synchronize(context, event), INVALID_HANDLE, name);
    refused(driver.event_record(context, event, rig.stream), INVALID_HANDLE, name);
    refused(driver.stream_wait_event(context, rig.stream, event), INVALID_HANDLE, name);
    refused(driver.event_export(context, event), INVALID_HANDLE, name);
    refused(driver.stream_query(context, stream), INVALID_HANDLE, name);
    refused(driver.stream_synchronize(context, stream), INVALID_HANDLE, name);
    refused(driver.stream_priority(context, stream), INVALID_HANDLE, name);
    refused(driver.event_record(context, rig.event(), stream), INVALID_HANDLE, name);
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
fn a_panic_in_a_host_function_is_forgotten() {
    let rig = Rig::new();
    let owned = Arc::new(());
    let inner = Arc::clone(&owned);
    rig.call(move || {
        let _inner = inner;
        panic!("in a host function");
    })
    .unwrap();
    let (called, was_called) = channel();
    rig.call(move || called.send(()).unwrap()).unwrap();
    rig.wait().unwrap();
    was_called.try_recv().unwrap();
    assert_eq!(Arc::strong_count(&owned), 1);
    assert_eq!(rig.driver.take_fault(rig.context), None);
    let block = rig.block(&[5; 3]);
    assert_eq!(rig.read(block, 3), [5; 3]);
}

#[test]
fn a_stopped_context_drops_host_functions_without_a_call() {
    let rig = Rig::new();
    let owned = Arc::new(AtomicU32::new(0));
    let counting = || {
        let owned = Arc::clone(&owned);
        move || _ = owned.fetch_add(1, Ordering::Relaxed)
    };
    let hold = rig.driver.hold();
    rig.call(counting()).unwrap();
    rig.call(counting()).unwrap();
    rig.poison();
    refused(rig.call(counting()), ASSERT, "stopped the context");
    assert_eq!(Arc::strong_count(&owned), 3, "the refused one is gone, the others wait");
    drop(hold);
    refused(rig.wait(), ASSERT, "stopped the context");
    assert_eq!((owned.load(Ordering::Relaxed), Arc::strong_count(&owned)), (0, 1));

    rig.driver.context_release(0);
    let fresh = Rig::of(&rig.driver, 0);
    fresh.call(counting()).unwrap();
    fresh.wait().unwrap();
    assert_eq!((owned.load(Ordering::Relaxed), Arc::strong_count(&owned)), (1, 1));
}

#[test]
fn a_function_whose_captures_panic_when_dropped_stops_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    let rig = Rig::new();
    let hold = rig.driver.hold();
    for _ in 0..2 {
        let bomb = Bomb;
        rig.call(move || drop(bomb)).unwrap();
    }
    let event = rig.event();
    rig.driver.event_record(rig.context, event, rig.stream).unwrap();
    rig.poison();
    drop(hold);
    refused(rig.wait(), ASSERT, "stopped the context");
    refused(rig.driver.event_synchronize(rig.context, event), ASSERT, "stopped the context");
    rig.driver.context_release(0);
}

#[test]
fn a_host_function_cannot_call_the_driver() {
    let rig = Rig::new();
    let (context, stream, event) = (rig.context, rig.stream, rig.event());
    let idle = rig.driver.stream_create(context, 0).unwrap();
    let block = rig.block(&[9; 8]);
    let (codes, said) = channel();
    let driver = Arc::clone(&rig.driver);
    rig.call(move || {
        let code = |error: Option<warpsmith_runtime::DriverError>| error.and_then(|error| error.code());
        let answers = [
            code(driver.context_retain(0).err()),
            code(driver.context_synchronize(context).err()),
            code(driver.memory_allocate(context, 8).err()),
            code(unsafe { driver.memory_free(context, block) }.err()),
            code(driver.stream_synchronize(context, stream).err()),
            code(driver.stream_query(context, stream).err()),
            code(driver.event_record(context, event, stream).err()),
            code(driver.event_synchronize(context, event).err()),
            code(driver.host_function(context, stream, Box::new(|| ())).err()),
            code(unsafe { driver.memset(context, block, 0, 8, idle) }.err()),
        ];
        // These cannot say so, and do nothing.
        unsafe {
            driver.stream_destroy(context, stream);
            driver.stream_destroy(context, idle);
            driver.event_destroy(context, event);
        }
        driver.context_release(0);
        codes.send(answers).unwrap();
    })
    .unwrap();
    assert_eq!(receive(&said), [Some(NOT_PERMITTED); 10]);

    rig.wait().unwrap();
    assert_eq!(rig.read(block, 8), [9; 8]);
    assert!(rig.driver.stream_query(context, idle).unwrap());
    assert!(rig.driver.event_query(context, event).unwrap());
    rig.free(block).unwrap();
    assert_eq!(rig.driver.calls(Call::ContextRelease), 1, "refused calls count");
}

#[test]
fn a_host_function_can_be_the_last_owner_of_the_driver() {
    let Rig { driver, context, stream, .. } = Rig::new();
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

#[test]
fn events_of_one_device_order_and_tell_the_work_of_another() {
    let [first, second] = Rig::pair();
    let (from, to) = (first.block(&[1; 8]), second.block(&[2; 8]));
    let event = first.event();
    assert!(second.driver.event_query(second.context, event).unwrap(), "never recorded");

    let (proceed, may_proceed) = channel();
    first.call(move || receive(&may_proceed)).unwrap();
    unsafe { first.driver.memset(first.context, from, 7, 8, first.stream) }.unwrap();
    first.driver.event_record(first.context, event, first.stream).unwrap();
    second.driver.stream_wait_event(second.context, second.stream, event).unwrap();
    second.copy_peer((&second, to), (&first, from), 8).unwrap();
    // Meanwhile a stream that waits for nothing goes on.
    let third = Rig::of(&second.driver, 1);
    assert_eq!(third.read(to, 8), [2; 8]);
    assert!(!second.driver.event_query(second.context, event).unwrap());
    assert!(!second.driver.stream_query(second.context, second.stream).unwrap());
    proceed.send(()).unwrap();
    second.driver.event_synchronize(second.context, event).unwrap();
    assert!(second.driver.event_query(second.context, event).unwrap());
    assert_eq!(second.read(to, 8), [7; 8], "the copy waited for the other device");
}
