//! Tests that findings are returned as errors to the thread that enqueued the launch, and that the device remains
//! usable.

use std::sync::mpsc;

use gpu_std::prelude::*;
use warpsmith_runtime::check::FindingKind;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch, Result, Stream};

use crate::{device, kernel};

/// Writes the same element from every thread.
#[kernel]
unsafe fn crowd(out: *mut u32) {
    unsafe { out.write(thread::linear_in_block()) };
}

#[kernel]
unsafe fn own_elements(out: *mut u32) {
    unsafe { out.add(thread::unique_index().get()).write(1) };
}

#[kernel]
fn panics(out: &[u32]) {
    assert!(out.len() == 7, "the kernel's own failure");
}

fn launch_crowd(stream: &Stream, out: &mut DeviceBuffer<u32>) -> Result<()> {
    // SAFETY: `out` contains one element, and its value does not matter.
    unsafe { kernel::<crowd>(stream.device()).launch_unsafe(stream, Launch::grid_block(1, 32), (out,)) }
}

fn found(result: Result<()>) -> Vec<FindingKind> {
    match result {
        Err(Error::Findings { findings, .. }) => crate::kinds(&findings.findings),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_finding_is_an_error_once_and_the_device_goes_on() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 64).unwrap();
    for _ in 0..2 {
        launch_crowd(&stream, &mut out).unwrap();
        assert!(format!("{out:?}").contains("; 64] on cpu"), "printing leaves the finding");
        let error = stream.synchronize().unwrap_err();
        assert!(!error.is_device_lost());
        assert!(error.to_string().contains("kernel `crowd`: data race"), "{error}");
        assert_eq!(found(Err(error)), [FindingKind::Race]);
        stream.synchronize().unwrap();
    }
    // SAFETY: `out` contains as many elements as there are threads.
    unsafe { kernel::<own_elements>(&device).launch_unsafe(&stream, Launch::grid_block(2, 32), (&mut out,)) }
        .unwrap();
    assert_eq!(out.to_host().unwrap(), [1; 64]);
}

#[test]
fn each_way_of_waiting_reports_a_finding() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 1).unwrap();
    let ways: [fn(&Device, &Stream, &DeviceBuffer<u32>) -> Result<()>; 5] = [
        |_, stream, _| stream.synchronize(),
        |device, _, _| device.synchronize(),
        |_, stream, _| stream.record_event()?.synchronize(),
        |_, _, out| out.to_host().map(drop),
        |_, stream, _| {
            while !stream.query()? {}
            Ok(())
        },
    ];
    for way in ways {
        launch_crowd(&stream, &mut out).unwrap();
        assert_eq!(found(way(&device, &stream, &out)), [FindingKind::Race]);
    }
    stream.synchronize().unwrap();
}

#[test]
fn a_dropped_buffer_takes_no_finding() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 1).unwrap();
    launch_crowd(&stream, &mut out).unwrap();
    drop(out);
    assert_eq!(found(stream.synchronize()), [FindingKind::Race]);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn a_finding_is_an_error_of_the_thread_that_launched() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 1).unwrap();
    let ((launched, launch), (waited, wait)) = (mpsc::channel(), mpsc::channel());
    std::thread::scope(|scope| {
        let stream = &stream;
        scope.spawn(move || {
            launch_crowd(stream, &mut out).unwrap();
            launched.send(()).unwrap();
            wait.recv().unwrap();
            assert_eq!(found(stream.synchronize()), [FindingKind::Race]);
        });
        launch.recv().unwrap();
        stream.synchronize().unwrap();
        waited.send(()).unwrap();
    });
}

#[test]
fn checked_collects_findings_instead() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 1).unwrap();
    let checked = device.checked().unwrap();
    launch_crowd(&stream, &mut out).unwrap();
    stream.synchronize().unwrap();
    let findings = checked.findings().unwrap();
    assert_eq!((findings.len(), findings[0].kind, findings[0].kernel), (1, FindingKind::Race, "crowd"));
    assert!(checked.findings().unwrap().is_empty());
    drop(checked);
    stream.synchronize().unwrap();
}

#[test]
fn findings_that_were_not_taken_are_errors() {
    let device = device();
    let stream = device.default_stream();
    let mut out = DeviceBuffer::zeros(&stream, 1).unwrap();
    let outer = device.checked().unwrap();
    let inner = device.checked().unwrap();
    launch_crowd(&stream, &mut out).unwrap();
    drop(inner);
    assert_eq!(outer.findings().unwrap().len(), 1);
    launch_crowd(&stream, &mut out).unwrap();
    drop(outer);
    assert_eq!(found(stream.synchronize()), [FindingKind::Race]);
}

#[test]
fn a_panic_still_loses_the_device() {
    let device = device();
    let stream = device.default_stream();
    let out = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    kernel::<panics>(&device).launch(&stream, Launch::grid_block(1, 1), (&out,)).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.is_device_lost(), "{error}");
}
