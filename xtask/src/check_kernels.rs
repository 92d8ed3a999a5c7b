//! `cargo xtask check-kernels`: our own kernels under `warpsmith check`, and the corpus of planted faults.

use std::path::Path;

use warpsmith_check::{Options, run};

use crate::error::{Error, Result};

/// Kernels with one fault each; the tests compare what is found with it.
const PLANTED: &[&str] = &["test", "--package", "planted-gpu", "--test", "corpus"];
/// Tests whose kernels are clean: nothing may be found in them.
const DEVICE_LIBRARY: &[&str] = &["test", "--package", "gpu-std", "--test", "emulated"];
const OPERATIONS: &[&str] =
    &["test", "--package", "warpsmith", "--test", "device", "--", "ops::", "launch::"];

/// All of them.
pub fn check_kernels(root: &Path) -> Result<()> {
    check_device_library(root)?;
    check(root, OPERATIONS)
}

/// The corpus, and the tests of the device library.
pub fn check_device_library(root: &Path) -> Result<()> {
    check(root, PLANTED)?;
    check(root, DEVICE_LIBRARY)
}

fn check(root: &Path, arguments: &[&str]) -> Result<()> {
    println!("    $ warpsmith check {}", arguments.join(" "));
    let options = Options {
        cargo: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        folder: Some(root.to_owned()),
        expects_findings: arguments == PLANTED,
        ..Options::default()
    };
    let outcome = run(&options).map_err(|error| Error::Unexpected(error.to_string()))?;
    for finding in &outcome.findings {
        println!("kernel `{}`: {}\n", finding.kernel, finding.text);
    }
    match (outcome.findings.len(), outcome.failure) {
        (0, None) => Ok(()),
        (0, Some(status)) => Err(Error::Unexpected(format!("cargo {}: {status}", arguments.join(" ")))),
        (count, _) => Err(Error::Unexpected(format!("{count} findings in kernels that should have none"))),
    }
}
