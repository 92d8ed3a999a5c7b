//! Installs the device toolchain: as Debian packages, or as a rustup toolchain next to the user's own.

use std::process::Command;

use super::SetupError;
use super::process::{ask, install_debian_packages, is_root_on_debian, run, system};
use crate::toolchain::{DeviceToolchain, RUST_TO_INSTALL, find_device_toolchain};

const PACKAGES: [&str; 4] = ["rustc-web", "rust-web-src", "cargo-web", "llvm-22"];
/// Minimum version of `rust-web-src`.
const MIN_VERSION: (u32, u32) = (1, 96);

/// Installs a device toolchain, and returns the toolchain that a search now finds.
pub fn install(say: &mut dyn FnMut(&str), looked: &str) -> Result<DeviceToolchain, SetupError> {
    for variable in ["WARPSMITH_DEVICE_RUSTC", "WARPSMITH_LLVM_BIN"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            return Err(SetupError::Overridden { variable, looked: looked.to_owned() });
        }
    }
    let mut tried = Vec::new();
    for install in [from_debian, from_rustup] {
        match install(say) {
            None => continue,
            Some(Err(failure)) => tried.push(failure),
            Some(Ok(())) => {
                let search = find_device_toolchain();
                match search.found {
                    Some(found) => return Ok(found),
                    None => tried
                        .push(format!("it was installed, but cannot compile kernels:\n{}", search.explain())),
                }
            }
        }
    }
    Err(SetupError::NoToolchain { tried, looked: looked.to_owned() })
}

/// Installs the Debian packages. Returns `None` if that is not possible.
fn from_debian(say: &mut dyn FnMut(&str)) -> Option<Result<(), String>> {
    if !is_root_on_debian() {
        return None;
    }
    // A fresh machine has no package list, or an outdated one.
    let update = !candidate_serves();
    if update {
        let _ = system("apt-get").map(|mut apt| run(apt.args(["--quiet=2", "update"])));
        if !candidate_serves() {
            let (major, minor) = MIN_VERSION;
            return Some(Err(format!("apt offers no rust-web-src of {major}.{minor} or later")));
        }
    }
    say(&format!("device toolchain: installing Debian's {}", PACKAGES.join(" ")));
    Some(install_debian_packages(&PACKAGES, false))
}

fn candidate_serves() -> bool {
    let policy = |mut apt: Command| ask(apt.env("LC_ALL", "C").args(["policy", "rust-web-src"]));
    let policy = system("apt-cache").ok().and_then(policy);
    policy.and_then(|policy| candidate(&policy)).is_some_and(|version| version >= MIN_VERSION)
}

/// Returns the major and minor version of the package that `apt-cache policy` prints.
fn candidate(policy: &str) -> Option<(u32, u32)> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    let mut parts = version.split(['.', '+', '-', '~']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Installs the toolchain next to the user's own toolchain, or installs its missing components. Returns `None` if
/// rustup is not installed. rustup rolls back an installation that fails.
fn from_rustup(say: &mut dyn FnMut(&str)) -> Option<Result<(), String>> {
    let mut rustup = system("rustup").ok()?;
    say(&format!("device toolchain: installing Rust {RUST_TO_INSTALL} with rustup"));
    Some(run(rustup.args(["toolchain", "install", RUST_TO_INSTALL, "--profile", "minimal"]).args([
        "--component",
        "rust-src",
        "--component",
        "llvm-tools",
        "--no-self-update",
    ])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::INSTALL_COMMANDS;

    #[test]
    fn the_candidate_version_is_read_from_apt() {
        let policy = "rust-web-src:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n";
        assert_eq!(candidate(policy), Some((1, 96)));
        assert_eq!(candidate("rust-web-src:\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
        assert!((1, 85) < MIN_VERSION && (2, 0) >= MIN_VERSION);
    }

    #[test]
    fn the_advice_names_what_setup_itself_installs() {
        assert!(INSTALL_COMMANDS.contains(&PACKAGES.join(" ")));
        assert!(INSTALL_COMMANDS.contains(&format!("rustup toolchain install {RUST_TO_INSTALL}")));
    }
}
