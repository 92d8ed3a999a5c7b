//! `cargo xtask check-kernels`: runs this repository's kernels and the corpus of seeded bugs under `warpsmith check`.
//! The corpus also runs as a release build and with each installed host compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use warpsmith_check::{Finding, Options, Outcome, run};

use crate::check::EXAMPLES;
use crate::error::{Error, Result};
use crate::process::{ask, find};

/// Kernels with one seeded bug each. The tests compare the findings with the seeded bug.
const SEEDED: &[&str] = &["test", "--package", "seeded-bugs-gpu", "--test", "corpus"];
const SEEDED_RELEASE: &[&str] = &["test", "--release", "--package", "seeded-bugs-gpu", "--test", "corpus"];
/// Seeded bugs in programs with buffers and streams.
const SEEDED_PROGRAM: &[&str] = &["test", "--package", "warpsmith-emulated", "--test", "checked"];
/// A kernel in a crate that does not depend on the device library and is therefore not instrumented.
const NOT_INSTRUMENTED: &[&str] =
    &["test", "--package", "warpsmith-emulator", "--test", "emulator", "every_thread_runs_once"];
/// Tests whose kernels must not have findings.
const DEVICE_LIBRARY: &[&str] = &[
    "test",
    "--package",
    "warpsmith-gpu-std",
    "--test",
    "emulated",
    "--",
    // The race in this kernel is intended and is reported as a finding.
    "--skip",
    "tiles_overwritten_while_read",
];
/// Tests of the facade, tests of kernels that are defined in tests, and tests of kernels that use crates from the
/// registry.
const OPERATIONS: &[&str] =
    &["test", "--package", "warpsmith", "--test", "device", "--", "ops::", "launch::", "random::"];
/// Tests of attention, and of GEMMs with operands in registers.
const FROM_REGISTERS: &[&str] = &[
    "test",
    "--package",
    "warpsmith-tensor",
    "--test",
    "on_device",
    "--",
    "attention::",
    "attention_decode::",
    "mma::",
    "quantized::",
    "rotary_append::",
    "skinny::",
    "simt::",
];
/// Tests of the kernels in the guide's projects.
const PROJECTS: &[&str] =
    &["test", "--package", "softmax", "--package", "matmul", "--package", "regression", "--tests"];
/// Tests in which ranks read each other's memory.
const PEERS: &[&str] =
    &["test", "--package", "warpsmith-collective", "--test", "ranks", "--", "peer::", "peer_exchange::"];

/// Checks all kernels, including the examples.
pub fn check_kernels(root: &Path) -> Result<()> {
    let mut times = vec![check_device_library(root)?, timed("operations", || check(root, OPERATIONS, None))?];
    times.push(timed("examples", || {
        EXAMPLES.iter().try_for_each(|name| check(root, &["run", "--example", name, "--", "cpu"], None))
    })?);
    times.push(timed("projects of the guide", || check(root, PROJECTS, None))?);
    times.push(timed("products from registers", || check(root, FROM_REGISTERS, None))?);
    times.push(timed("kernels of ranks", || check(root, PEERS, None))?);
    times.push(timed("a crate without instrumentation", || check_not_instrumented(root))?);
    times.push(timed("seeded bugs in release", || check(root, SEEDED_RELEASE, None))?);
    let own = version(&mut Command::new("rustc"));
    for (rustc, version) in compilers() {
        if own.as_ref() != Some(&version) {
            println!("==> {version}");
            times.push(timed(&version, || check(root, SEEDED, Some(rustc)))?);
        }
    }
    println!("Nothing found: {}.", times.join(", "));
    Ok(())
}

/// Runs the corpus and the device library's tests. Returns the duration of each run, as text.
pub fn check_device_library(root: &Path) -> Result<String> {
    let seeded = timed("seeded bugs", || check(root, SEEDED, None))?;
    let program = timed("seeded bugs of programs", || check(root, SEEDED_PROGRAM, None))?;
    Ok(format!("{seeded}, {program}, {}", timed("device library", || check(root, DEVICE_LIBRARY, None))?))
}

fn timed(name: &str, work: impl FnOnce() -> Result<()>) -> Result<String> {
    let start = Instant::now();
    work()?;
    Ok(format!("{name} {:.0} s", start.elapsed().as_secs_f64()))
}

/// Returns the accepted host compilers with their versions. Searches rustup's toolchains and the system.
fn compilers() -> Vec<(PathBuf, String)> {
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    let toolchains = ask(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let of_rustup = toolchains.lines().filter_map(|line| {
        let name = line.split_whitespace().next()?;
        ask(Command::new("rustup").args(["which", "rustc", "--toolchain", name])).map(PathBuf::from)
    });
    for rustc in of_rustup.chain(find("rustc")).chain([PathBuf::from("/usr/bin/rustc")]) {
        let Some(version) = version(&mut Command::new(&rustc)) else { continue };
        if is_accepted(&version) && !found.iter().any(|(_, other)| *other == version) {
            found.push((rustc, version));
        }
    }
    found
}

/// Returns the compiler's version text.
fn version(rustc: &mut Command) -> Option<String> {
    ask(rustc.arg("--version"))
}

/// Returns true if `rustc 1.96.0 (…)` is at least the version in the manifest.
fn is_accepted(version: &str) -> bool {
    let numbers = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    version.split(' ').nth(1).and_then(numbers) >= numbers(env!("CARGO_PKG_RUST_VERSION"))
}

/// Checks that a kernel that cannot be checked results in a finding that names the kernel's crate.
fn check_not_instrumented(root: &Path) -> Result<()> {
    let outcome = start(root, NOT_INSTRUMENTED, None)?;
    let is_named = |finding: &Finding| {
        finding.kind == "not-instrumented" && finding.memory.starts_with("crate `tests` was compiled without")
    };
    match &outcome.findings[..] {
        [finding] if is_named(finding) && outcome.failure.is_some() => Ok(()),
        findings => Err(Error::Unexpected(format!("a crate without instrumentation: found {findings:?}"))),
    }
}

fn start(root: &Path, arguments: &[&str], rustc: Option<PathBuf>) -> Result<Outcome> {
    println!("    $ warpsmith check {}", arguments.join(" "));
    let options = Options {
        cargo: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        folder: Some(root.to_owned()),
        expects_findings: arguments.contains(&"seeded-bugs-gpu") || arguments == SEEDED_PROGRAM,
        rustc,
        ..Options::default()
    };
    run(&options).map_err(|error| Error::Unexpected(error.to_string()))
}

fn check(root: &Path, arguments: &[&str], rustc: Option<PathBuf>) -> Result<()> {
    let outcome = start(root, arguments, rustc)?;
    for finding in &outcome.findings {
        println!("kernel `{}`: {}\n", finding.kernel, finding.text);
    }
    match (outcome.findings.len(), outcome.failure) {
        (0, None) => Ok(()),
        (0, Some(status)) => Err(Error::Unexpected(format!("cargo {}: {status}", arguments.join(" ")))),
        (count, _) => Err(Error::Unexpected(format!("{count} findings in kernels that should have none"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_older_than_the_manifest_says_are_left_out() {
        assert!(is_accepted("rustc 1.96.0 (ac68faa20 2026-05-25)"));
        assert!(is_accepted("rustc 2.0.0-nightly (x)"));
        assert!(!is_accepted("rustc 1.94.1 (x)"));
        assert!(!is_accepted("something else"));
    }
}
