//! `cargo xtask check-kernels`: our own kernels under `warpsmith check`, and the corpus of planted faults.

use std::path::Path;

use warpsmith_check::{Finding, Options, Outcome, run};

use crate::error::{Error, Result};

/// Kernels with one fault each; the tests compare what is found with it.
const PLANTED: &[&str] = &["test", "--package", "planted-gpu", "--test", "corpus"];
/// Faults of programs with buffers and streams.
const PLANTED_PROGRAM: &[&str] = &["test", "--package", "warpsmith-runtime", "--test", "checked"];
/// A kernel of a crate that does not depend on the device library, so that it is not instrumented.
const NOT_INSTRUMENTED: &[&str] =
    &["test", "--package", "warpsmith-emulator", "--test", "emulator", "every_thread_runs_once"];
/// Tests whose kernels are clean: nothing may be found in them.
const DEVICE_LIBRARY: &[&str] = &["test", "--package", "gpu-std", "--test", "emulated"];
const OPERATIONS: &[&str] =
    &["test", "--package", "warpsmith", "--test", "device", "--", "ops::", "launch::"];

/// All of them.
pub fn check_kernels(root: &Path) -> Result<()> {
    check_device_library(root)?;
    check_not_instrumented(root)?;
    check(root, OPERATIONS)
}

/// The corpus, and the tests of the device library.
pub fn check_device_library(root: &Path) -> Result<()> {
    check(root, PLANTED)?;
    check(root, PLANTED_PROGRAM)?;
    check(root, DEVICE_LIBRARY)
}

/// A kernel that cannot be checked is a finding that names its crate.
fn check_not_instrumented(root: &Path) -> Result<()> {
    let outcome = start(root, NOT_INSTRUMENTED)?;
    let is_named = |finding: &Finding| {
        finding.kind == "not-instrumented" && finding.memory.starts_with("crate `tests` was compiled without")
    };
    match &outcome.findings[..] {
        [finding] if is_named(finding) && outcome.failure.is_some() => Ok(()),
        findings => Err(Error::Unexpected(format!("a crate without instrumentation: found {findings:?}"))),
    }
}

fn start(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    println!("    $ warpsmith check {}", arguments.join(" "));
    let options = Options {
        cargo: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        folder: Some(root.to_owned()),
        expects_findings: [PLANTED, PLANTED_PROGRAM].contains(&arguments),
        ..Options::default()
    };
    run(&options).map_err(|error| Error::Unexpected(error.to_string()))
}

fn check(root: &Path, arguments: &[&str]) -> Result<()> {
    let outcome = start(root, arguments)?;
    for finding in &outcome.findings {
        println!("kernel `{}`: {}\n", finding.kernel, finding.text);
    }
    match (outcome.findings.len(), outcome.failure) {
        (0, None) => Ok(()),
        (0, Some(status)) => Err(Error::Unexpected(format!("cargo {}: {status}", arguments.join(" ")))),
        (count, _) => Err(Error::Unexpected(format!("{count} findings in kernels that should have none"))),
    }
}
