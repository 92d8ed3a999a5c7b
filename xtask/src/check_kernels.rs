//! `cargo xtask check-kernels`: our own kernels under `warpsmith check`, and the corpus of planted faults.

use std::path::Path;
use std::time::Instant;

use warpsmith_check::{Options, run};

use crate::check::EXAMPLES;
use crate::error::{Error, Result};

/// Kernels with one fault each; the tests compare what is found with it.
const PLANTED: &[&str] = &["test", "--package", "planted-gpu", "--test", "corpus"];
/// Tests whose kernels are clean: nothing may be found in them.
const DEVICE_LIBRARY: &[&str] = &["test", "--package", "gpu-std", "--test", "emulated"];
/// Those of the facade, of kernels in tests, and of kernels that use crates from the registry.
const OPERATIONS: &[&str] =
    &["test", "--package", "warpsmith", "--test", "device", "--", "ops::", "launch::", "random::"];

/// All of them, the examples too.
pub fn check_kernels(root: &Path) -> Result<()> {
    let mut times = vec![check_device_library(root)?, timed("operations", || check(root, OPERATIONS))?];
    times.push(timed("examples", || {
        EXAMPLES.iter().try_for_each(|name| check(root, &["run", "--example", name, "--", "cpu"]))
    })?);
    println!("Nothing found: {}.", times.join(", "));
    Ok(())
}

/// The corpus, and the tests of the device library. Returns the time of each, in words.
pub fn check_device_library(root: &Path) -> Result<String> {
    let planted = timed("planted faults", || check(root, PLANTED))?;
    Ok(format!("{planted}, {}", timed("device library", || check(root, DEVICE_LIBRARY))?))
}

fn timed(name: &str, work: impl FnOnce() -> Result<()>) -> Result<String> {
    let start = Instant::now();
    work()?;
    Ok(format!("{name} {:.0} s", start.elapsed().as_secs_f64()))
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
