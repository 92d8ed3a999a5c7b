//! Errors of kernels that panic, read out of bounds, deadlock or never end.
//!
//! A fault stops the device for the whole process, so each case runs in a separate process: this test binary again,
//! with `WARPSMITH_FAULT_CASE` set.

use std::time::Duration;

use crate::alone;
use crate::common::{device, device_name, stream};
use test_kernels::IMAGE;
use test_kernels::diagnostic::{
    diagnose_deadlock, diagnose_index, diagnose_panic, diagnose_print, diagnose_wait,
};
use warpsmith::prelude::*;

const CASE: &str = "WARPSMITH_FAULT_CASE";

/// Runs `case` on the device under test in a separate process, and returns its output.
fn run(case: &str) -> String {
    run_on(&device_name(), case)
}

/// Same as [`run`], on a given device.
fn run_on(device: &str, case: &str) -> String {
    let output = alone::command("faults::fault_case")
        .env(CASE, case)
        .env("WARPSMITH_TEST_DEVICE", device)
        .output()
        .expect("this test can be run again");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    assert!(output.status.success(), "case {case} failed:\n{text}");
    text
}

/// Runs one case on the device under test; the calling test checks the printed output.
#[test]
#[ignore = "run by the other tests, one case a process"]
fn fault_case() {
    let case = std::env::var(CASE).expect("the other tests run this one, with a case to run");
    // The output of the test harness so far does not end with a newline.
    println!();
    if let Err(error) = launch(&case) {
        println!("error: {error}");
    }
}

fn launch(case: &str) -> warpsmith::Result<()> {
    let device = device();
    let stream = stream();
    let module = device.load(&IMAGE)?;
    let data = DeviceBuffer::from_host(&stream, &[5u32, 6, 7])?;
    match case {
        "panic" => module.kernel::<diagnose_panic>()?.launch(&stream, Launch::linear(256, 64), (77u32,))?,
        "index" => {
            let mut out = DeviceBuffer::<u32>::zeros(&stream, 1)?;
            let kernel = module.kernel::<diagnose_index>()?;
            kernel.launch(&stream, Launch::linear(32, 32), (&data, 2usize, &mut out))?;
            println!("in bounds: {:?}", out.to_host()?);
            kernel.launch(&stream, Launch::linear(32, 32), (&data, 7usize, &mut out))?;
        }
        "deadlock" => {
            let kernel = module.kernel::<diagnose_deadlock>()?;
            // SAFETY: only run on the emulated device, which finds the deadlock.
            unsafe { kernel.launch_unsafe(&stream, Launch::linear(64, 64), ())? };
        }
        "wait" => {
            let mut flag = DeviceBuffer::<u32>::zeros(&stream, 1)?;
            module.kernel::<diagnose_wait>()?.launch(&stream, Launch::linear(1, 1), (&mut flag,))?;
            let outcome = stream.synchronize_timeout(Duration::from_millis(500));
            println!("timeout: {}", outcome.expect_err("the kernel cannot end by itself"));
            // The kernel still runs: only ending the process stops it.
            std::process::exit(0);
        }
        "print" => {
            module.kernel::<diagnose_print>()?.launch(&stream, Launch::linear(64, 32), (2.5f64,))?;
        }
        other => panic!("no such case: {other}"),
    }
    let outcome = stream.synchronize();
    if let Err(error) = outcome {
        println!("error: {error}");
        // The device is lost: the next call reports it with the cause, and dropping the buffers is harmless.
        let next = DeviceBuffer::<u32>::zeros(&stream, 1).expect_err("the device is lost");
        println!("next: {next}");
    }
    Ok(())
}

#[test]
fn a_panic_names_text_kernel_place_and_thread() {
    let text = run("panic");
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(error.contains("the diagnostic kernel panics as it was asked to"), "{error}");
    assert!(error.contains("diagnose_panic"), "{error}");
    assert!(error.contains("diagnostic.rs:"), "{error}");
    assert!(error.contains("block [1, 0, 0], thread [13, 0, 0]"), "{error}");
    let next = text.lines().find(|line| line.starts_with("next: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(next.contains("lost") && next.contains("panics as it was asked to"), "{next}");
}

#[test]
fn a_bad_index_names_index_and_place() {
    let text = run("index");
    assert!(text.contains("in bounds: [7]"), "{text}");
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(error.contains("index out of bounds: the len is 3 but the index is 7"), "{error}");
    assert!(error.contains("diagnose_index") && error.contains("diagnostic.rs:"), "{error}");
}

#[test]
fn an_emulated_deadlock_names_who_waits() {
    // A GPU cannot detect a deadlock; `an_endless_kernel_times_out_by_name` tests the timeout instead.
    let text = run_on("cpu", "deadlock");
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(error.contains("diagnose_deadlock") && error.contains("deadlock"), "{error}");
    for waiting in ["16 threads are in sync_threads at", "16 threads are in sync_warp"] {
        assert!(text.contains(waiting), "`{waiting}` is missing: {text}");
    }
}

#[test]
fn an_endless_kernel_times_out_by_name() {
    let text = run("wait");
    let error = text.lines().find(|line| line.starts_with("timeout: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(error.contains("diagnose_wait"), "{error}");
}

#[test]
fn a_kernel_prints() {
    let text = run("print");
    assert!(text.contains("block 0 of 2: value 2.5"), "{text}");
}
