//! `ptxas`, libdevice and libcudadevrt: from a CUDA toolkit where there is one, else from PyPI into `target/cuda-tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_builder::toolchain::{CUDA_INSTALL_COMMANDS, cuda_tools_folder, find_cuda_tools};

use crate::error::{Error, Result};
use crate::process::{find, run};
use crate::setup::{install_packages, is_root_on_debian};

/// The wheels with their hashes: `ptxas`, `libdevice.10.bc`, and `libcudadevrt.a`.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cuda-tools.txt");

/// Finds or installs ptxas, libdevice and libcudadevrt; true when they were installed now.
pub fn ensure(target: &Path) -> Result<bool> {
    if report(target) {
        return Ok(false);
    }
    println!("    ptxas, libdevice, libcudadevrt: not all there yet");
    let folder = cuda_tools_folder(target);
    let ways = [from_environment, from_pip];
    let install = || ways.iter().any(|way| way(&folder));
    // Debian's python3 comes without the means to make a virtual environment.
    let installed = install() || (is_root_on_debian() && install_packages(&["python3-venv"]) && install());
    if installed && report(target) {
        return Ok(true);
    }
    Err(Error::Missing {
        what:
            "ptxas, libdevice and libcudadevrt could not be installed from PyPI, and there is no CUDA toolkit"
                .to_owned(),
        advice: format!("Install them so, then run this again:\n{CUDA_INSTALL_COMMANDS}"),
    })
}

/// Says what is there; true when all are.
fn report(target: &Path) -> bool {
    let tools = find_cuda_tools(Some(target));
    let (Some(ptxas), Some(libdevice), Some(cudadevrt)) = (tools.ptxas, tools.libdevice, tools.cudadevrt)
    else {
        return false;
    };
    println!("    ptxas: {} at {}", ptxas.version, ptxas.path.display());
    println!("    libdevice: {}", libdevice.display());
    println!("    libcudadevrt: {}", cudadevrt.display());
    true
}

/// Whether the wheels were installed into a new virtual environment at `folder`.
fn from_environment(folder: &Path) -> bool {
    let Some(python) = python() else { return false };
    ran(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))
        && ran(&mut pip(folder.join("bin/python")))
}

/// Whether the wheels were installed by the pip there is, in the places an environment would have.
fn from_pip(folder: &Path) -> bool {
    let Some(python) = python() else { return false };
    // The remains of a failed environment would hide the new files.
    if folder.exists() && fs::remove_dir_all(folder).is_err() {
        return false;
    }
    ran(pip(python).arg("--target").arg(folder.join("lib/python3/site-packages")))
}

fn python() -> Option<PathBuf> {
    let python = find("python3");
    if python.is_none() {
        println!("    there is no python3");
    }
    python
}

/// `python -m pip install` of the wheels, without questions. Only wheels with the hashes that the repository names are
/// installed, whatever the package index offers; nothing is built from source; and neither the environment nor the
/// user's configuration of pip can change that.
fn pip(python: PathBuf) -> Command {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--isolated",
    ]);
    command.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", REQUIREMENTS]);
    command
}

fn ran(command: &mut Command) -> bool {
    let result = run(command);
    if let Err(error) = &result {
        println!("    {error}");
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wheels of the requirements file, each with its hashes.
    fn wheels() -> Vec<(String, Vec<String>)> {
        let text = fs::read_to_string(REQUIREMENTS).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let wheel = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.collect())
        };
        lines.map(wheel).collect()
    }

    #[test]
    fn the_advice_names_the_wheels_that_setup_installs() {
        let names: Vec<String> = wheels().into_iter().map(|(name, _)| name).collect();
        assert!(CUDA_INSTALL_COMMANDS.contains(&names.join(" ")), "{names:?}");
    }

    #[test]
    fn every_wheel_has_versions_and_hashes() {
        for (name, hashes) in wheels() {
            assert!(name.contains("==") && hashes.len() == 2, "{name}: {hashes:?}");
            for hash in hashes {
                let digits = hash.strip_prefix("--hash=sha256:").unwrap_or_default();
                assert!(
                    digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
                    "{hash}"
                );
            }
        }
    }

    #[test]
    fn pip_installs_nothing_but_wheels_of_known_hashes() {
        let command = pip("python3".into());
        let given: Vec<&str> = command.get_args().filter_map(|argument| argument.to_str()).collect();
        for option in ["--require-hashes", "--only-binary=:all:", "--isolated", "--no-deps"] {
            assert!(given.contains(&option), "{option}: {given:?}");
        }
    }
}
