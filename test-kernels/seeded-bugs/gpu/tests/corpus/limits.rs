//! Launches with more findings or more memory than a check can keep.

use std::process::Command;
use std::time::{Duration, Instant};

use gpu_std::Kernel;
use gpu_std::prelude::*;
use seeded_bugs_gpu::case::{Shape, blocks, zeros};
use warpsmith_emulator::{Fault, FaultKind, Order};

use crate::launches::launch_once;

/// Number of elements; each is in a race of two blocks.
const MANY: usize = 1 << 20;
const ENOUGH: Shape = blocks((MANY / 256) as u32, 256, &[zeros(MANY * 4)]);
const TOO_SHORT: Shape = Shape { buffers: &[zeros(512)], ..ENOUGH };

#[kernel]
unsafe fn all_race(data: *mut u32) {
    let own = thread::linear_in_block() as usize + block::linear_index() * 256;
    // SAFETY: the buffer has this many elements.
    unsafe { data.add(own % (MANY / 2)).write(own as u32) };
}

#[kernel]
unsafe fn all_out_of_bounds(data: *mut u32) {
    let own = thread::linear_in_block() as usize + block::linear_index() * 256;
    // SAFETY: after the end of the buffer, in its red zone.
    unsafe { data.add(128 + own % 512).write(own as u32) };
}

#[test]
fn a_million_faults_are_one_finding() {
    let cases = [(all_race::spec(), ENOUGH), (all_out_of_bounds::spec(), TOO_SHORT)];
    for (kernel, shape) in cases {
        let start = Instant::now();
        let Err(Fault { kind: FaultKind::Check { findings, more, .. }, .. }) =
            launch_once(kernel, shape, Order::Sequential)
        else {
            panic!("nothing was found in {}", kernel.name);
        };
        assert_eq!((findings.len(), more), (1, 0), "{findings:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    }
}

const MEMORY: &str = "WARPSMITH_CHECK_MEMORY";

/// Runs in a separate process, since the limit is read only once.
#[test]
fn too_much_memory_is_an_error() {
    if std::env::var_os(MEMORY).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "limits::too_much_memory_is_an_error"]).env(MEMORY, "4");
        let output = again.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let launch = |grid| launch_once(all_race::spec(), Shape { grid, ..ENOUGH }, Order::Sequential);
    launch(256).unwrap();
    let fault = launch(2048).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfShadow(_)), "{fault:?}");
    assert!(fault.to_string().contains("has 4 MiB"), "{fault}");
    launch(256).unwrap();
}
