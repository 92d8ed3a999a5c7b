//! Tests of writes beyond the ends of device memory and page-locked memory, on the emulated driver.
//!
//! Safety, everywhere in this file: the written bytes are in allocated memory or in the red zones around it.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use crate::fixture::*;
use warpsmith_runtime::driver::{DevicePtr, Driver, MemoryDriver, StreamDriver};

const LAUNCH_FAILED: u32 = 719;

/// Waits without checking memory.
fn finish(fixture: &Fixture) {
    while !fixture.driver.stream_query(fixture.context, fixture.stream).unwrap() {
        std::thread::yield_now();
    }
}

/// Returns the report of the fault that stopped the device.
fn report(fixture: &Fixture) -> String {
    fixture.driver.take_fault(fixture.context).expect("the context was stopped").message
}

#[test]
fn a_wait_reports_writes_beyond_a_block() {
    let fixture = Fixture::new();
    let block = fixture.block(&[0; 16]);
    fixture.launch(block, 4).unwrap();
    fixture.wait().unwrap();
    fixture.launch(block, 6).unwrap();
    refused(fixture.wait(), LAUNCH_FAILED, "stopped the context");
    let expected = format!(
        "8 bytes beyond the end of device memory of 16 bytes at {:#x} were overwritten, starting at byte 16, since the \
         last check; kernels since: `iota__u32`; run under `warpsmith check` to find the line",
        block.0
    );
    assert_eq!(report(&fixture), expected);
}

#[test]
fn a_free_reports_writes_before_a_block() {
    let fixture = Fixture::new();
    let block = fixture.block(&[0; 16]);
    fixture.launch(DevicePtr(block.0 - 8), 2).unwrap();
    finish(&fixture);
    refused(fixture.free(block), LAUNCH_FAILED, "stopped the context");
    let report = report(&fixture);
    assert!(report.starts_with("8 bytes before the start of device memory of 16 bytes"), "{report}");
    assert!(report.contains("starting at byte -8"), "{report}");
    assert_eq!(fixture.driver.live_allocations(0), 0, "the memory is free all the same");
}

#[test]
fn a_free_in_stream_order_reports_writes() {
    let fixture = Fixture::new();
    let block = fixture.driver.stream_allocate(fixture.context, 16, fixture.stream).unwrap();
    fixture.launch(block, 5).unwrap();
    // If the free has run when the call ends, the call returns the error.
    let _ = unsafe { fixture.driver.stream_free(fixture.context, block, fixture.stream) };
    refused(fixture.wait(), LAUNCH_FAILED, "stopped the context");
    assert!(report(&fixture).contains("starting at byte 16"));
}

#[test]
fn waits_look_at_many_blocks_in_turn() {
    let fixture = Fixture::new();
    let blocks: Vec<_> = (0..100).map(|_| fixture.block(&[0; 16])).collect();
    fixture.launch(blocks[57], 5).unwrap();
    let reported = (0..100).find_map(|_| fixture.wait().err());
    assert!(reported.is_some());
    assert!(report(&fixture).contains(&format!("{:#x}", blocks[57].0)));
}

#[test]
fn a_free_of_page_locked_memory_reports_writes() {
    let fixture = Fixture::new();
    let memory = fixture.driver.pinned_allocate(fixture.context, 10).unwrap();
    unsafe {
        memory.cast::<u8>().add(10).write(0);
        refused(fixture.driver.pinned_free(fixture.context, memory), LAUNCH_FAILED, "stopped the context");
    }
    let report = report(&fixture);
    assert!(report.starts_with("1 byte beyond the end of page-locked memory of 10 bytes"), "{report}");
}
