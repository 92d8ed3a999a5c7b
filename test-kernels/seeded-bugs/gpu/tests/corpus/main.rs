//! The whole corpus on the emulated device, in a program built by `warpsmith check`: `cargo xtask check-kernels`.
//! Otherwise this program is empty.
//!
//! A finding must be of the kind in the table, and only at lines of its kernel that end in `//~`, for any order of
//! blocks and threads.
#![cfg(warpsmith_check)]

mod launches;
mod limits;
mod verify;

use seeded_bugs_gpu::case::Found;

fn verify(is_wanted: fn(Found) -> bool) {
    let cases: Vec<_> = seeded_bugs_gpu::cases().filter(|case| is_wanted(case.found)).collect();
    let wrong: Vec<String> = cases.iter().filter_map(|case| verify::verify(case).err()).collect();
    assert!(!cases.is_empty());
    assert!(wrong.is_empty(), "{} of {} kernels:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_seeded_bug_is_found() {
    verify(|found| found != Found::Nothing);
}

#[test]
fn nothing_is_found_in_clean_kernels() {
    verify(|found| found == Found::Nothing);
}

#[test]
fn kernels_have_different_names() {
    let mut names: Vec<&str> = seeded_bugs_gpu::cases().map(|case| case.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
