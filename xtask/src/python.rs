//! Tests what Python users get: a package of `warpsmith new --python`, the `warpsmith` wheel, and the listings of
//! `docs/python.md`. Both packages are built as wheels, installed in a virtual environment, and tested on the emulated
//! device with NumPy; with `--torch`, also as operators of PyTorch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::markdown::Page;
use crate::process::{find, run};

/// Page whose Python listings run, each block after those before it. Blocks of `python,torch` need PyTorch.
const PAGE: &str = "docs/python.md";

/// Builds, installs and tests both packages. The `warpsmith` command must be in the target folder.
pub fn python(root: &Path, with_torch: bool) -> Result<()> {
    let folder = target_dir(root).join("python");
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let environment = Environment::new(&folder, with_torch)?;
    let project = folder.join("fused");
    if project.exists() {
        fs::remove_dir_all(&project).map_err(Error::file(&project))?;
    }
    let mut new = Command::new(target_dir(root).join("debug/warpsmith"));
    run(new.args(["new", "--python"]).arg(&project).arg("--path").arg(root))?;
    let wheel = root.join("python/wheel");
    // Of one version, the dependencies are compiled once for both.
    fs::copy(wheel.join("Cargo.lock"), project.join("Cargo.lock")).map_err(Error::file(&project))?;
    for package in [project, wheel] {
        environment.install(root, &package)?;
        environment.test(&package, with_torch)?;
    }
    environment.run_page(root, with_torch)
}

/// A virtual environment.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Makes the environment, or completes it.
    fn new(folder: &Path, with_torch: bool) -> Result<Self> {
        let environment = Self { folder: folder.join("venv") };
        if !environment.program("python").is_file() {
            let python = find("python3").ok_or_else(|| Error::Missing {
                what: "`python3` is not on the search path".to_owned(),
                advice: "Install Python 3.10 or later with its `venv` module.".to_owned(),
            })?;
            run(Command::new(python).args(["-m", "venv"]).arg(&environment.folder))?;
        }
        let packages: &[&str] = &["maturin>=1.9,<2", "numpy>=2.1", "pytest", "apache-tvm-ffi"];
        let torch: &[&str] = if with_torch { &["torch>=2.10"] } else { &[] };
        let mut install = environment.pip();
        run(install.args(packages).args(torch))?;
        Ok(environment)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
    }

    fn pip(&self) -> Command {
        let mut pip = Command::new(self.program("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// Builds the wheel of a package, checks the name that says where it runs, and installs it.
    fn install(&self, root: &Path, package: &Path) -> Result<()> {
        let wheels = self.folder.with_file_name("wheels");
        if wheels.exists() {
            fs::remove_dir_all(&wheels).map_err(Error::file(&wheels))?;
        }
        let mut build = Command::new(self.program("maturin"));
        build.current_dir(package).args(["build", "--quiet", "--out"]).arg(&wheels);
        // The device libraries are compiled for GPUs elsewhere. A user's project shares the dependencies.
        build.env("CARGO_TARGET_DIR", target_dir(root).join("scaffold")).env("CARGO_INCREMENTAL", "0");
        build.env("WARPSMITH_GPU_ARCHS", "none").env_remove("WARPSMITH_REQUIRE_GPU_IMAGE");
        run(build.env("PYO3_PYTHON", self.program("python")))?;
        let entries = fs::read_dir(&wheels).map_err(Error::file(&wheels))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let wheel = names.pop().filter(|_| names.is_empty());
        let wheel = wheel.ok_or_else(|| Error::Unexpected("maturin made no wheel, or several".to_owned()))?;
        let is_portable =
            wheel.contains("-cp310-abi3-") && (!cfg!(target_os = "linux") || wheel.contains("manylinux"));
        if !is_portable {
            let text = format!(
                "the wheel {wheel} is not for all Python versions (abi3) and Linux systems (manylinux)"
            );
            return Err(Error::Unexpected(text));
        }
        println!("    {wheel}");
        run(self.pip().args(["--no-deps", "--force-reinstall"]).arg(wheels.join(wheel)))
    }

    fn test(&self, package: &Path, with_torch: bool) -> Result<()> {
        let folder = package.join("tests");
        let listed = fs::read_dir(&folder).map_err(Error::file(&folder))?;
        // A file that only skips itself proves nothing.
        let is_run = |name: &str| name.starts_with("test_") && (with_torch || !name.contains("torch"));
        let files = listed.flatten().filter(|file| is_run(&file.file_name().to_string_lossy()));
        let mut tests = Command::new(self.program("pytest"));
        // Not in the package's folder, whose sources would hide the installed module.
        tests.current_dir(&self.folder).args(["-q", "-p", "no:cacheprovider"]);
        run(tests.args(files.map(|file| file.path())))
    }

    fn run_page(&self, root: &Path, with_torch: bool) -> Result<()> {
        let text = fs::read_to_string(root.join(PAGE)).map_err(Error::file(root.join(PAGE)))?;
        let is_run = |info: &str| info == "python" || (with_torch && info == "python,torch");
        let listings: Vec<String> = Page::new(&text)
            .listings()
            .into_iter()
            .filter(|(info, _)| is_run(info))
            .map(|(_, text)| text)
            .collect();
        let file = self.folder.with_file_name("listings.py");
        fs::write(&file, listings.join("\n")).map_err(Error::file(&file))?;
        println!("    {} listings of {PAGE}", listings.len());
        run(Command::new(self.program("python")).current_dir(&self.folder).arg(&file))
    }
}
