//! `ptxas`, libdevice and libcudadevrt: from a CUDA toolkit where there is one, else from PyPI into `target/cuda-tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_builder::toolchain::{CUDA_INSTALL_COMMANDS, cuda_tools_folder, find_cuda_tools};

use crate::error::{Error, Result};
use crate::process::{find, run};
use crate::setup::{install_packages, is_root_on_debian};

/// The wheels: `ptxas`, `libdevice.10.bc`, and `libcudadevrt.a`.
const WHEELS: [&str; 3] =
    ["nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cuda-runtime==13.0.96"];

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
        && ran(pip(folder.join("bin/python")).args(WHEELS))
}

/// Whether the wheels were installed by the pip there is, in the places an environment would have.
fn from_pip(folder: &Path) -> bool {
    let Some(python) = python() else { return false };
    // What a failed environment left would hide the new files' place.
    if folder.exists() && fs::remove_dir_all(folder).is_err() {
        return false;
    }
    ran(pip(python).arg("--target").arg(folder.join("lib/python3/site-packages")).args(WHEELS))
}

fn python() -> Option<PathBuf> {
    let python = find("python3");
    if python.is_none() {
        println!("    there is no python3");
    }
    python
}

/// `python -m pip install`, of these wheels alone and without questions.
fn pip(python: PathBuf) -> Command {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
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

    #[test]
    fn the_advice_names_the_wheels_that_setup_installs() {
        assert!(CUDA_INSTALL_COMMANDS.contains(&WHEELS.join(" ")));
    }
}
