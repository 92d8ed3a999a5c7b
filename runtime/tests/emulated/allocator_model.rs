//! Tests of random programs against a model of a caching allocator.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use crate::support::allocator_program::{Bytes, Choices, run, uses};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer};

const STEPS: usize = 250;
const OPERATIONS: usize = 20_000;

/// Endless random decisions.
impl Choices for fastrand::Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.u64(..bound)
    }
}

/// Runs the program of one seed, and prints the seed if it fails.
fn program(seed: u64) -> usize {
    catch_unwind(AssertUnwindSafe(|| run(&mut fastrand::Rng::with_seed(seed), STEPS))).unwrap_or_else(
        |failed| {
            eprintln!("the program of seed {seed:#x} failed; ALLOCATOR_SEED={seed:#x} runs it alone");
            resume_unwind(failed)
        },
    )
}

#[test]
fn random_programs_never_break_what_the_allocator_promises() {
    if let Ok(text) = std::env::var("ALLOCATOR_SEED") {
        let digits = text.trim_start_matches("0x");
        program(u64::from_str_radix(digits, 16).expect("a number in hexadecimal"));
        return;
    }
    let start = fastrand::u64(..);
    println!("seeds from {start:#x}");
    let (mut done, mut seed, began) = (0, start, Instant::now());
    while done < OPERATIONS {
        done += program(seed);
        seed = seed.wrapping_add(1);
    }
    println!("{done} operations in {:.1} s", began.elapsed().as_secs_f64());
}

#[test]
fn programs_from_bytes_end_with_their_bytes() {
    let bytes: Vec<u8> = (0..4000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let done = run(&mut Bytes(&bytes), usize::MAX);
    assert!(done > 100, "{done} operations");
    assert_eq!(run(&mut Bytes(&[]), 10), 0);
}

#[test]
fn a_failure_while_pages_move_loses_none() {
    for call in [Call::VirtualUnmap, Call::VirtualMap, Call::VirtualSetAccess, Call::PhysicalCreate] {
        for after in (0..110).step_by(9) {
            let driver = uses::driver(2 << 30);
            let device = Device::with_driver(driver.clone(), 0).unwrap();
            let options = AllocatorOptions::default().with("expandable_segments:True").unwrap();
            device.memory().set_options(options).unwrap();
            let stream = device.default_stream();
            let buffer = |mib: usize| DeviceBuffer::<u8>::uninit(&stream, mib << 20);
            let [hole, kept, other_hole, end] = [200, 4, 200, 4].map(|mib| buffer(mib).unwrap());
            drop((hole, other_hole));
            driver.fail_call(call, after);
            let moved = buffer(300);
            driver.cancel_failures();
            assert!(!driver.failed_calls().is_empty() || moved.is_ok());
            let info = device.memory_info().unwrap();
            let used = info.total - info.free;
            assert_eq!(device.memory().reserved(), used, "{call:?} failed after {after}");
            drop((moved, kept, end));
            device.memory().empty_cache().unwrap();
            assert_eq!(
                (device.memory().reserved(), driver.live_allocations(0), driver.live_reservations(0)),
                (0, 0, 0)
            );
        }
    }
}
