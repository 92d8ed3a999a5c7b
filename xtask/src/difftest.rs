//! `cargo xtask difftest`: runs random kernels as plain Rust and on the emulated device, and compares the results. Also
//! builds a program that performs the same comparison on a GPU.
//!
//! The kernels of a seed form a Cargo project in `target/difftest/`. The project's program runs on machines without
//! Rust. A kernel whose results differ is reduced. For the emulated device, this command performs all rounds of the
//! reduction. For a GPU, each round is a separate program, and the differences that it finds are passed to the next
//! round.
//!
//! - `--seed S --count N` repeats a run.
//! - A kernel writes a hash after each step, so a report names the first incorrect step, for example `DIFFERS k0012:3`
//!   for seed 7.
//! - `--reduce 7:12:3` builds that kernel for a GPU in variants that omit parts of it, and `--reduce 7:12:3.5`
//!   continues from candidate `k0012_5`. Repeat until no candidate differs.
//! - For each incorrect result, add a test next to the faulty code, and make the generator produce this kind of kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use difftest_generator::{Kernel, Project, Reduction, kernels};

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
enum Request {
    Kernels { seed: u64, count: usize },
    Reduce { seed: u64, index: usize, step: Option<usize>, taken: Vec<usize> },
}

/// Generates, builds and runs kernels.
pub fn difftest(root: &Path, arguments: &[&str]) -> Result<()> {
    match request(arguments, seed_of_now)? {
        Request::Kernels { seed, count } => {
            println!("seed {seed}, {count} kernels");
            let program = step("build", || build_all(root, seed, &kernels(seed, count)))?;
            let differing = step("plain Rust against the emulated device", || differing(&program))?;
            println!("The same program runs on a GPU: {} cuda:0", program.display());
            let Some(name) = differing.first() else { return Ok(()) };
            if let Some((index, at)) = place(name) {
                reduce(root, seed, index, at, &[])?;
            }
            Err(Error::Unexpected(format!(
                "seed {seed}: {} kernels differ: {}",
                differing.len(),
                differing.join(" ")
            )))
        }
        Request::Reduce { seed, index, step, taken } => reduce(root, seed, index, step, &taken),
    }
}

/// Builds the program for the bundle, which contains 500 kernels from a new seed.
pub fn program(root: &Path) -> Result<PathBuf> {
    let seed = seed_of_now();
    build_all(root, seed, &kernels(seed, COUNT))
}

/// Reduces a kernel. If it differs on the emulated device, reduces it as far as possible; otherwise, performs one round
/// for a GPU.
fn reduce(root: &Path, seed: u64, index: usize, step: Option<usize>, taken: &[usize]) -> Result<()> {
    let kernel = Kernel::random(seed, index);
    let last = step.unwrap_or(kernel.steps.len() - 1);
    let mut reduction = Reduction::new(kernel, last);
    for choice in taken {
        let candidates = reduction.candidates();
        let Some(chosen) = candidates.get(*choice) else {
            return Err(Error::Unexpected(format!(
                "candidate {choice} does not exist; the number of candidates is {}",
                candidates.len()
            )));
        };
        reduction.take(vec![chosen.clone()]);
    }
    let folder = PathBuf::new();
    let program = |kernels: &[Kernel], architectures| {
        let project = Project { name: "difftest_reduced", seed, kernels, repository: root, folder: &folder };
        build(root, &project, architectures)
    };
    let mut differs_here = false;
    loop {
        println!("{}", reduction.kernel().source());
        let candidates = reduction.candidates();
        let differing = differing(&program(&candidates, Some("none"))?)?;
        let is_differing =
            |kernel: &Kernel| differing.iter().any(|name| name.split(':').next() == Some(&kernel.name));
        if !reduction.take(candidates.into_iter().filter(is_differing).collect()) {
            break;
        }
        differs_here = true;
    }
    if !differs_here {
        let program = program(&reduction.candidates(), None)?;
        println!("No smaller kernel differs here. On a GPU, run {} cuda:0", program.display());
        println!("For the smallest `kNNNN_I` that differs there, run `--reduce {seed}:{index}:{last}.I`.");
    }
    Ok(())
}

/// Writes the project of a run, and builds its program.
fn build_all(root: &Path, seed: u64, kernels: &[Kernel]) -> Result<PathBuf> {
    build(root, &Project { name: "difftest", seed, kernels, repository: root, folder: &PathBuf::new() }, None)
}

/// Writes the project into its own folder and builds its program, for the given architectures or the architectures that
/// the environment specifies.
fn build(root: &Path, project: &Project, architectures: Option<&str>) -> Result<PathBuf> {
    let target = target_dir(root).join("difftest");
    let folder = target.join(project.name);
    Project { folder: &folder, ..*project }.write().map_err(Error::file(&folder))?;
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        fs::copy(root.join("difftest/Cargo.lock"), &lock).map_err(Error::file(&lock))?;
    }
    let mut command = cargo(&folder, ["build"]);
    command.env("CARGO_TARGET_DIR", &target).env("CARGO_INCREMENTAL", "0");
    let variable = "WARPSMITH_GPU_ARCHS";
    match architectures {
        Some(architectures) => _ = command.env(variable, architectures),
        None if std::env::var_os(variable).is_some() => {}
        None => _ = command.env(variable, ARCHITECTURE).env("WARPSMITH_REQUIRE_GPU_IMAGE", "1"),
    }
    run(&mut command)?;
    Ok(target.join("debug").join(project.name))
}

/// Returns the names of the kernels that differ or fail on the emulated device, as `NAME:STEP`.
fn differing(program: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let result = run_lines(Command::new(program).arg("cpu"), |line| {
        println!("{line}");
        if let Some(rest) = line.strip_prefix("DIFFERS ").or_else(|| line.strip_prefix("FAILED ")) {
            names.extend(rest.split(' ').next().map(str::to_owned));
        }
    });
    if names.is_empty() { result.map(|()| names) } else { Ok(names) }
}

/// Returns the index of a generated kernel and the index of one of its steps.
fn place(name: &str) -> Option<(usize, Option<usize>)> {
    let (name, step) = name.split_once(':').unwrap_or((name, ""));
    Some((name.strip_prefix('k')?.parse().ok()?, step.parse().ok()))
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |time| time.as_secs())
}

fn request(arguments: &[&str], new_seed: impl FnOnce() -> u64) -> Result<Request> {
    let wrong = |what: &str| {
        Error::Unexpected(format!(
            "{what}: give --seed S, --count N, or --reduce SEED:KERNEL[:STEP[.CANDIDATE]…]"
        ))
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong(&format!("`{text}` is not a number")));
    let (mut seed, mut count, mut rest) = (None, COUNT, arguments);
    loop {
        match rest {
            [] => return Ok(Request::Kernels { seed: seed.unwrap_or_else(new_seed), count }),
            ["--seed", value, after @ ..] => {
                seed = Some(number(value)?);
                rest = after;
            }
            ["--count", value, after @ ..] => {
                count = number(value)? as usize;
                rest = after;
            }
            ["--reduce", value] => {
                let mut parts = value.splitn(3, ':');
                let mut next = || parts.next();
                let (seed, index, step) = (next(), next(), next());
                let (Some(seed), Some(index)) = (seed, index) else { return Err(wrong(value)) };
                let mut path =
                    step.unwrap_or_default().split('.').filter(|part| !part.is_empty()).map(number);
                let step = path.next().transpose()?.map(|step| step as usize);
                let taken = path.map(|choice| choice.map(|choice| choice as usize)).collect::<Result<_>>()?;
                return Ok(Request::Reduce {
                    seed: number(seed)?,
                    index: number(index)? as usize,
                    step,
                    taken,
                });
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
        assert_eq!(read(&[]), Request::Kernels { seed: 5, count: COUNT });
        assert_eq!(read(&["--seed", "7", "--count", "60"]), Request::Kernels { seed: 7, count: 60 });
        let reduce = |step, taken| Request::Reduce { seed: 7, index: 12, step, taken };
        assert_eq!(read(&["--reduce", "7:12"]), reduce(None, vec![]));
        assert_eq!(read(&["--reduce", "7:12:3"]), reduce(Some(3), vec![]));
        assert_eq!(read(&["--reduce", "7:12:3.0.5"]), reduce(Some(3), vec![0, 5]));
        for wrong in [&["--seed"][..], &["--count", "x"], &["--reduce", "7"], &["--reduce", "7:a"], &["more"]]
        {
            let error = request(wrong, || 5).unwrap_err();
            assert!(error.to_string().contains("--reduce SEED:KERNEL"), "{error}");
        }
    }

    #[test]
    fn names_of_reports_lead_back_to_kernels() {
        assert_eq!(place("k0012:3"), Some((12, Some(3))));
        assert_eq!(place("k0012"), Some((12, None)));
        assert_eq!(place("custom:-"), None);
    }
}
