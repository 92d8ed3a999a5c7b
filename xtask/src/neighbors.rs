//! Implements `cargo xtask neighbors`, which tests `examples/neighbors` on the emulated device, and compiles this
//! repository's crates for a build in which candle links the CUDA libraries.

use std::path::Path;
use std::process::Command;

use crate::check::{linted, target_dir};
use crate::error::Result;
use crate::process::{cargo, run, step};

/// Manifest of the package, which is outside the workspace so that other builds do not compile candle.
const MANIFEST: &str = "examples/neighbors/Cargo.toml";

/// Formats, lints and tests the package, runs its program, and checks the linked build.
pub fn check(root: &Path) -> Result<()> {
    step("format", || run(&mut cargo(root, ["fmt", "--all", "--check", "--manifest-path", MANIFEST])))?;
    step("tests", || {
        run(&mut emulated(linted(root, &["test", "--locked", "--workspace", "--manifest-path", MANIFEST])))?;
        run(Command::new(target_dir(root).join("debug/candle")).env_remove("WARPSMITH_TEST_DEVICE"))
    })?;
    // candle's feature `cuda` enables the same feature of cudarc. A build of candle requires nvcc; this check does not.
    let all = ["check", "--package", "warpsmith-libraries", "--features"];
    let features = "blas,dnn,fft,sparse,cudarc/dynamic-linking";
    step("linked libraries", || run(linted(root, &all).arg(features)))
}

fn emulated(mut command: Command) -> Command {
    command.env_remove("WARPSMITH_REQUIRE_GPU_IMAGE").env("WARPSMITH_SKIP_GPU_IMAGE", "1");
    command
}
