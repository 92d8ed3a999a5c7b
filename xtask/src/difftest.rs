//! `cargo xtask difftest`: runs random kernels as plain Rust and on the emulated device, and compares the results. Also
//! builds a program that performs the same comparison on a GPU.
//!
//! The kernels of a seed form a Cargo project in `target/difftest/`. The project's program runs on machines without
//! Rust.
//!
//! - `--seed S --count N` repeats a run.
//! - A kernel writes a hash after each step, so a report names the first incorrect step, for example `DIFFERS k0012:3`
//!   for seed 7.
//! - For each incorrect result, add a test next to the faulty code, and make the generator produce this kind of kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use difftest_generator::{Project, kernels};

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{cargo, run, run_lines, step};

/// Kernels per run.
const COUNT: usize = 500;
/// GPU architecture for which kernels are compiled, unless `WARPSMITH_GPU_ARCHS` overrides it. There is only one,
/// because compilation dominates the time.
const ARCHITECTURE: &str = "sm_90a";

/// Request on the command line.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    seed: u64,
    count: usize,
}

/// Generates, builds and runs kernels.
pub fn difftest(root: &Path, arguments: &[&str]) -> Result<()> {
    let Request { seed, count } = request(arguments, seed_of_now)?;
    println!("seed {seed}, {count} kernels");
    let program = step("build", || build(root, seed, count))?;
    let differing = step("plain Rust against the emulated device", || differing(&program))?;
    println!("The same program runs on a GPU: {} cuda:0", program.display());
    if differing.is_empty() {
        return Ok(());
    }
    Err(Error::Unexpected(format!(
        "seed {seed}: {} kernels differ or fail: {}",
        differing.len(),
        differing.join(" ")
    )))
}

/// Builds the program for the bundle, which contains 500 kernels from a new seed.
pub fn program(root: &Path) -> Result<PathBuf> {
    build(root, seed_of_now(), COUNT)
}

/// Writes the project of a run and builds its program, for the architectures that the environment specifies or for
/// [`ARCHITECTURE`].
fn build(root: &Path, seed: u64, count: usize) -> Result<PathBuf> {
    let target = target_dir(root).join("difftest");
    let folder = target.join("difftest");
    let project = Project { folder: &folder, repository: root, seed, kernels: &kernels(seed, count) };
    project.write().map_err(Error::file(&folder))?;
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        fs::copy(root.join("difftest/Cargo.lock"), &lock).map_err(Error::file(&lock))?;
    }
    let mut command = cargo(&folder, ["build"]);
    command.env("CARGO_TARGET_DIR", &target).env("CARGO_INCREMENTAL", "0");
    if std::env::var_os("WARPSMITH_GPU_ARCHS").is_none() {
        command.env("WARPSMITH_GPU_ARCHS", ARCHITECTURE).env("WARPSMITH_REQUIRE_GPU_IMAGE", "1");
    }
    run(&mut command)?;
    Ok(target.join("debug/difftest"))
}

/// Returns the names of the kernels that differ or fail on the emulated device, as `NAME:STEP`. A kernel that ends the
/// process fails.
fn differing(program: &Path) -> Result<Vec<String>> {
    let (mut names, mut running) = (Vec::new(), None);
    let result = run_lines(Command::new(program).arg("cpu"), |line| {
        if let Some(name) = line.strip_prefix("start ") {
            running = Some(name.to_owned());
            return;
        }
        println!("{line}");
        if line.starts_with("seed ") {
            running = None;
        } else if let Some(rest) = line.strip_prefix("DIFFERS ").or_else(|| line.strip_prefix("FAILED ")) {
            names.extend(rest.split(' ').next().map(str::to_owned));
        }
    });
    if let (Err(error), Some(name)) = (&result, &running) {
        println!("FAILED {name} {error}");
        names.push(name.clone());
    }
    if names.is_empty() { result.map(|()| names) } else { Ok(names) }
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |time| time.as_secs())
}

fn request(arguments: &[&str], new_seed: impl FnOnce() -> u64) -> Result<Request> {
    let wrong = |what: &str| Error::Unexpected(format!("{what}: give --seed S or --count N"));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong(&format!("`{text}` is not a number")));
    let (mut seed, mut count, mut rest) = (None, COUNT, arguments);
    loop {
        match rest {
            [] => return Ok(Request { seed: seed.unwrap_or_else(new_seed), count }),
            ["--seed", value, after @ ..] => {
                seed = Some(number(value)?);
                rest = after;
            }
            ["--count", value, after @ ..] => {
                count = number(value)? as usize;
                rest = after;
            }
            [other, ..] => return Err(wrong(&format!("`{other}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let read = |arguments: &[&str]| request(arguments, || 5).unwrap();
        assert_eq!(read(&[]), Request { seed: 5, count: COUNT });
        assert_eq!(read(&["--seed", "7", "--count", "60"]), Request { seed: 7, count: 60 });
        for wrong in [&["--seed"][..], &["--count", "x"], &["more"]] {
            let error = request(wrong, || 5).unwrap_err();
            assert!(error.to_string().contains("--seed S or --count N"), "{error}");
        }
    }
}
