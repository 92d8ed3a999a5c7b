//! Tests of random kernels as plain Rust and on the emulated device.

#[allow(warnings, arithmetic_overflow, unconditional_panic, clippy::all, clippy::undocumented_unsafe_blocks)]
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

use difftest_runner::{Case, Device, GpuImage, Session, Step, compare};
use difftest_support::collective::model;

static KERNELS: GpuImage =
    GpuImage::without_code("difftest-runner", "0.1.0", "of these kernels there is none");

fn cases() -> Vec<Case> {
    Vec::from(include!(concat!(env!("OUT_DIR"), "/cases.rs")))
}

#[test]
fn plain_rust_and_the_emulated_device_agree() {
    let session = Session::new(Device::emulated(0).unwrap(), &KERNELS).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for case in cases() {
        let (expected, found) = (case.expected(), case.found(&session).unwrap());
        if let Some(difference) = compare(&case, &expected, &found) {
            panic!("{}: {}\n{}", case.name, difference.text, case.source);
        }
        assert!(seen.insert(expected), "{} writes what another kernel writes", case.name);
    }
    assert_eq!(seen.len(), 50);
}

#[test]
fn a_wrong_word_is_named_by_its_step() {
    let case = &cases()[0];
    let expected = case.expected();
    let mut found = expected.clone();
    assert_eq!(compare(case, &expected, &found), None);
    // Thread 1 after its steps 1 and 2, and thread 2 after its step 0.
    for word in [9, 10, 16] {
        found[word] ^= 1 << 40;
    }
    let difference = compare(case, &expected, &found).unwrap();
    assert_eq!((difference.index, difference.step), (16, Some(0)));
    assert!(difference.text.starts_with("thread 2, step 0 of "), "{}", difference.text);
    assert!(difference.text.contains("3 of "), "{}", difference.text);
    let last = expected.len() - 1;
    let mut found = expected.clone();
    found[last] = !found[last];
    let difference = compare(case, &expected, &found).unwrap();
    assert_eq!((difference.index, difference.step), (last, None));
    assert!(difference.text.starts_with("atomic 23: "), "{}", difference.text);
}
