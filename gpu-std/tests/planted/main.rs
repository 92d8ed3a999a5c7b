//! Kernels with one fault each, and kernels that look alike and have none, in a program that `warpsmith check` builds:
//! `cargo xtask check-kernels`. Without it there is nothing here.
//!
//! A line that takes part in the fault of a kernel ends in `//~`. What is found has to be of the kind that the table says, at
//! such lines of that kernel alone, whatever the order of blocks and threads.
#![cfg(warpsmith_check)]
#![allow(clippy::missing_safety_doc, reason = "each kernel is launched in one way, by the table beside it")]

mod atomics;
mod bounds;
mod clean;
mod global;
mod launches;
mod shared;
mod speed;

use warpsmith_emulator::check::FindingKind::*;

use launches::{launch, launch_clusters, one_block};

#[test]
fn every_planted_fault_is_found() {
    let cases = [shared::cases(), global::cases(), atomics::cases(), bounds::cases()].concat();
    let mut wrong = Vec::new();
    for case in &cases {
        wrong.extend(case.verify().err());
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn nothing_is_found_in_clean_kernels() {
    let cases = clean::cases();
    let wrong: Vec<String> = cases.iter().filter_map(|case| case.verify().err()).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
