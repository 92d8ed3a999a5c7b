//! Generates the kernels of the tests.

use std::path::Path;
use std::{env, fs};

/// Seed of the kernels, and their number.
const SEED: u64 = 36;
const COUNT: usize = 50;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let kernels = difftest_generator::kernels(SEED, COUNT);
    fs::write(Path::new(&out).join("kernels.rs"), difftest_generator::module_of(&kernels))?;
    fs::write(
        Path::new(&out).join("cases.rs"),
        difftest_generator::cases_of(&kernels, |_| "kernels".to_owned()),
    )
}
