//! Installs missing tools for compiling GPU kernels, as `warpsmith setup` does.

use std::fs;
use std::path::Path;

use warpsmith_builder::setup::{install_debian_packages, is_root_on_debian};

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{find, step};

/// Enables this machine to compile GPU kernels. Fast if everything is already installed.
pub fn setup(root: &Path) -> Result<()> {
    step("setup", || {
        mark(&target_dir(root))?;
        warpsmith_builder::setup::install(&mut |line| println!("    {line}")).map_err(Error::Setup)
    })
}

/// Installs gdb, if it is missing, for the test that debugs kernels. Everything else works without gdb.
pub fn debugger() {
    if find("gdb").is_none() {
        install("gdb");
    }
}

/// Installs a Debian package if this process has permission. If the installation fails, prints the reason.
pub fn install(package: &str) {
    // A fresh machine has no package list or an old one, so the second attempt updates the list first.
    if is_root_on_debian()
        && let Err(failure) =
            install_debian_packages(&[package], false).or_else(|_| install_debian_packages(&[package], true))
    {
        println!("    {failure}");
    }
}

/// Marks the target folder, so that the builder recognizes it. Cargo marks it only when it creates the folder itself.
fn mark(target: &Path) -> Result<()> {
    let tag = target.join("CACHEDIR.TAG");
    if tag.exists() {
        return Ok(());
    }
    let text = "Signature: 8a477f597d28d172789f06886806bc55\n# What is in this folder can be built again.\n";
    fs::create_dir_all(target).and_then(|()| fs::write(&tag, text)).map_err(Error::file(&tag))
}
