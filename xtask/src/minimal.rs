//! Checks that everything compiles with the lowest versions of direct dependencies that the manifests allow, so that a
//! project with old versions in its lock file can use these crates. `cargo xtask test` does not run this check, because
//! it recompiles all dependencies.

use std::fs;
use std::path::Path;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{cargo, run, step};

/// Checks the workspace with a lock file that contains the lowest versions, and then restores the previous lock file.
pub fn check(root: &Path) -> Result<()> {
    let lock = root.join("Cargo.lock");
    let before = fs::read(&lock).map_err(Error::file(&lock))?;
    let result = step("minimal versions", || {
        // The option requires a nightly Cargo. This variable enables it in a stable Cargo.
        let mut update = cargo(root, ["update", "-Z", "direct-minimal-versions"]);
        run(update.env("RUSTC_BOOTSTRAP", "1"))?;
        let mut check = cargo(root, ["check", "--workspace", "--all-features", "--locked"]);
        check.env("WARPSMITH_SKIP_GPU_IMAGE", "1");
        run(check.env("CARGO_TARGET_DIR", target_dir(root).join("minimal")))
    });
    fs::write(&lock, before).map_err(Error::file(&lock))?;
    result
}
