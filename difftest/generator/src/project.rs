//! [`Project`]: the files of a cargo project with kernels, and the program that runs them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::kernel::Kernel;

/// Number of kernels per module: each module is a separate part of the image, so that modules compile in parallel.
const MODULE: usize = 24;

/// A project of random kernels.
#[derive(Clone, Copy)]
pub struct Project<'a> {
    /// Folder of the project.
    pub folder: &'a Path,
    /// Root of the repository.
    pub repository: &'a Path,
    /// Seed of the kernels, for reports.
    pub seed: u64,
    /// Kernels of the project.
    pub kernels: &'a [Kernel],
}

/// Source text of a module of kernels.
pub fn module_of(kernels: &[Kernel]) -> String {
    let mut text = String::from("use difftest_support::*;\n\n");
    for kernel in kernels {
        text += &kernel.source();
        text.push('\n');
    }
    text
}

/// List of kernels for the runner; `path` gives the path of a module.
pub fn cases_of(kernels: &[Kernel], path: impl Fn(usize) -> String) -> String {
    let mut text = String::from("[\n");
    for (index, kernel) in kernels.iter().enumerate() {
        let (name, path) = (&kernel.name, path(index));
        _ = write!(
            text,
            "difftest_runner::generated!({path}, {name}, {}, {}, r####\"{}\"####, [",
            kernel.threads,
            kernel.grid,
            kernel.source()
        );
        for (step, part) in kernel.steps.iter().enumerate() {
            _ = match part.collective {
                Some((operation, number)) => {
                    write!(text, "Step::Collective({path}::{name}_s{step}, model::{operation}, {number}), ")
                }
                None => write!(text, "Step::Own({path}::{name}_s{step}), "),
            };
        }
        text += "]),\n";
    }
    text += "]";
    text
}

/// Lints that random code need not satisfy.
const ALLOW: &str = "#![allow(warnings, arithmetic_overflow, unconditional_panic, clippy::all)]\n";

impl Project<'_> {
    /// Writes the project. Unchanged files are not touched, so that cargo rebuilds only changed ones.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        let modules: Vec<&[Kernel]> = self.kernels.chunks(MODULE).collect();
        let kernels = self.folder.join("kernels/src");
        fs::create_dir_all(&kernels)?;
        fs::create_dir_all(self.folder.join("src"))?;
        let mut root = format!("#![cfg_attr(target_arch = \"nvptx64\", no_std)]\n{ALLOW}");
        for (index, module) in modules.iter().enumerate() {
            _ = writeln!(root, "pub mod m{index:02};");
            update(&kernels.join(format!("m{index:02}.rs")), &module_of(module))?;
        }
        update(&kernels.join("lib.rs"), &root)?;
        update(&self.folder.join("kernels/Cargo.toml"), &self.kernels_manifest())?;
        update(&self.folder.join("Cargo.toml"), &self.manifest())?;
        update(&self.folder.join("build.rs"), BUILD_SCRIPT)?;
        let cases = cases_of(self.kernels, |index| format!("difftest_kernels::m{:02}", index / MODULE));
        let main = format!(
            "{ALLOW}use difftest_runner::{{GpuImage, Step, include_image}};
use difftest_support::collective::model;

static KERNELS: GpuImage = include_image!(\"difftest_kernels\");

fn main() -> std::process::ExitCode {{
    difftest_runner::main({}, &KERNELS, &{cases})
}}
",
            self.seed
        );
        update(&self.folder.join("src/main.rs"), &main)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.repository.join("difftest").join(inside)
    }

    fn kernels_manifest(&self) -> String {
        format!(
            "[package]\nname = \"difftest_kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[lib]\ntest = false\ndoctest = false\n\n\
             [dependencies]\ndifftest-support = {{ path = {:?} }}\nwarpsmith-gpu-std = {{ path = {:?} }}\n",
            self.path("support"),
            self.repository.join("gpu-std"),
        )
    }

    fn manifest(&self) -> String {
        format!(
            "[workspace]\nmembers = [\"kernels\"]\n\n[package]\nname = \"difftest\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\ndifftest_kernels = {{ path = \"kernels\" }}\ndifftest-runner = {{ path = {:?} }}\n\
             difftest-support = {{ path = {:?} }}\n\n\
             [build-dependencies]\nwarpsmith-builder = {{ path = {:?} }}\n\n\
             [profile.dev]\nopt-level = 1\ndebug = \"line-tables-only\"\ndebug-assertions = false\noverflow-checks = false\n\
             [profile.dev.package.\"*\"]\nopt-level = 1\ndebug = false\n",
            self.path("runner"),
            self.path("support"),
            self.repository.join("builder"),
        )
    }
}

/// Build script of a project.
const BUILD_SCRIPT: &str = "fn main() -> Result<(), warpsmith_builder::Error> {
    warpsmith_builder::PtxBuilder::new(\"kernels\").allow_spills(\"\").build()?;
    Ok(())
}
";

/// Writes a file if its contents change.
fn update(file: &Path, text: &str) -> io::Result<()> {
    match fs::read_to_string(file) {
        Ok(old) if old == text => Ok(()),
        _ => fs::write(file, text),
    }
}
