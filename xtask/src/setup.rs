//! Installs what is missing to compile kernels for the GPU, and nothing that is there.
//!
//! The device toolchain is a rustc of a tested version with its source and the LLVM tools it was built with;
//! the user's own toolchain, which compiles the host side, is never touched. Each way to get one is tried in
//! turn: what is there, Debian's packages, rustup. When none works the exact commands are printed.

use std::fs;
use std::path::Path;
use std::process::Command;

use warpsmith_builder::toolchain::{
    DeviceToolchain, INSTALL_COMMANDS, RUST_TO_INSTALL, find_device_toolchain, setup_stamp,
};

use crate::check::target_dir;
use crate::cuda_tools;
use crate::error::{Error, Result};
use crate::process::{ask, find, run, step};

/// Debian's packages of the device toolchain.
const PACKAGES: [&str; 4] = ["rustc-web", "rust-web-src", "cargo-web", "llvm-22"];
/// The least version of `rust-web-src` that serves.
const LEAST_VERSION: (u32, u32) = (1, 96);

/// Makes this machine able to compile kernels for the GPU. Quick when nothing is to do.
pub fn setup(root: &Path) -> Result<()> {
    step("setup", || {
        let target = target_dir(root);
        mark(&target)?;
        let toolchain_installed = device_toolchain()?;
        let tools_installed = cuda_tools::ensure(&target)?;
        if toolchain_installed || tools_installed {
            // A build that found no toolchain looks again when this file is newer.
            let stamp = setup_stamp(&target);
            fs::write(&stamp, "").map_err(Error::file(&stamp))?;
        }
        Ok(())
    })
}

/// Marks the target folder, by which the builder knows it. Cargo does so only when it makes the folder itself.
fn mark(target: &Path) -> Result<()> {
    let tag = target.join("CACHEDIR.TAG");
    if tag.exists() {
        return Ok(());
    }
    let text = "Signature: 8a477f597d28d172789f06886806bc55\n# What is in this folder can be built again.\n";
    fs::create_dir_all(target).and_then(|()| fs::write(&tag, text)).map_err(Error::file(&tag))
}

/// Finds or installs the device toolchain; true when it was installed now.
fn device_toolchain() -> Result<bool> {
    let search = find_device_toolchain();
    if let Some(toolchain) = search.found {
        report(&toolchain);
        return Ok(false);
    }
    println!("    device toolchain: none yet");
    for install in [from_debian, from_rustup] {
        if !install() {
            continue;
        }
        if let Some(toolchain) = find_device_toolchain().found {
            report(&toolchain);
            return Ok(true);
        }
    }
    Err(Error::Missing {
        what: format!("there is no toolchain for device code:\n{}", find_device_toolchain().explain()),
        advice: format!("Install one in one of these ways, then run this again:\n{INSTALL_COMMANDS}"),
    })
}

fn report(toolchain: &DeviceToolchain) {
    println!(
        "    device toolchain: Rust {} at {}, LLVM {} in {}",
        toolchain.rust_version,
        toolchain.rustc.display(),
        toolchain.llvm.version,
        toolchain.llvm.folder.display()
    );
}

/// Whether Debian's packages were installed.
fn from_debian() -> bool {
    if !is_root_on_debian() {
        return false;
    }
    if !candidate_serves() {
        // A fresh machine has no package list, or an old one.
        let _ = run(apt_get().arg("update"));
        if !candidate_serves() {
            println!("    apt offers no rust-web-src of {}.{} or later", LEAST_VERSION.0, LEAST_VERSION.1);
            return false;
        }
    }
    install_packages(&PACKAGES)
}

/// Installs Debian packages; false when that failed. Removes nothing to make room.
pub fn install_packages(packages: &[&str]) -> bool {
    let result =
        run(apt_get().args(["install", "--yes", "--no-install-recommends", "--no-remove"]).args(packages));
    if let Err(error) = &result {
        println!("    {error}");
    }
    result.is_ok()
}

/// `apt-get` without prompts.
pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
    command
}

/// Whether apt can install packages here without a prompt.
pub fn is_root_on_debian() -> bool {
    let is_root = ask(Command::new("id").arg("-u")).as_deref() == Some("0");
    is_root && Path::new("/etc/debian_version").exists() && find("apt-get").is_some()
}

fn candidate_serves() -> bool {
    ask(Command::new("apt-cache").env("LC_ALL", "C").args(["policy", "rust-web-src"]))
        .and_then(|policy| candidate(&policy))
        .is_some_and(|version| version >= LEAST_VERSION)
}

/// Major and minor version of the candidate that `apt-cache policy` prints.
fn candidate(policy: &str) -> Option<(u32, u32)> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    let mut parts = version.split(['.', '+', '-', '~']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether rustup installed the toolchain, beside the user's own.
fn from_rustup() -> bool {
    if find("rustup").is_none() {
        return false;
    }
    let result = run(Command::new("rustup")
        .args(["toolchain", "install", RUST_TO_INSTALL, "--profile", "minimal"])
        .args(["--component", "rust-src", "--component", "llvm-tools", "--no-self-update"]));
    if let Err(error) = &result {
        println!("    {error}");
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_version_is_read_from_apt() {
        let policy = "rust-web-src:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n";
        assert_eq!(candidate(policy), Some((1, 96)));
        assert_eq!(candidate("rust-web-src:\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
        assert!((1, 85) < LEAST_VERSION && (2, 0) >= LEAST_VERSION);
    }

    #[test]
    fn the_advice_names_what_setup_itself_installs() {
        assert!(INSTALL_COMMANDS.contains(&PACKAGES.join(" ")));
        assert!(INSTALL_COMMANDS.contains(&format!("rustup toolchain install {RUST_TO_INSTALL}")));
    }
}
