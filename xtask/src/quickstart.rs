//! Runs set-up, a release build, and the main benchmark on the best device.

use std::path::Path;
use std::process::Command;

use crate::check::target_dir;
use crate::error::Result;
use crate::process::{cargo, run, step};
use crate::setup::setup;

/// Kernels that the benchmark measures.
const KERNELS: [&str; 3] = ["copy", "axpy", "reduce_sum"];

/// Runs the set-up, builds for this machine's devices, measures, and prints where the results are stored.
pub fn quickstart(root: &Path) -> Result<()> {
    setup(root)?;
    let target = target_dir(root);
    step("build", || {
        let mut build = cargo(root, ["build", "--release", "--package", "warpsmith-cli"]);
        run(build.env("WARPSMITH_GPU_ARCHS", "native").env("CARGO_TARGET_DIR", &target))
    })?;
    let command = target.join("release/warpsmith");
    let results = target.join("quickstart.json");
    step("benchmark", || run(Command::new(&command).arg("bench").args(KERNELS).arg("--out").arg(&results)))?;
    println!("Results: {}", results.display());
    println!("More: {} help", command.display());
    Ok(())
}
