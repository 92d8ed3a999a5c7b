//! `warpsmith new`: creates a project with its own kernels that builds, tests and runs immediately.
//!
//! The project is either complete or absent. It is written into a temporary folder next to its destination, which is
//! then renamed.

mod name;
mod source;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use warpsmith::bench::command::failure::Failure;

use crate::args::NewArgs;
use name::Name;
use source::Source;

/// Files of one kind of project, keyed by their path in the project. `{{crate}}` in a path stands for the library's
/// name. The template manifests have other names because cargo excludes folders that contain a manifest from a package.
type Files = [(&'static str, &'static str)];

const RUST: &Files = &[
    ("Cargo.toml", include_str!("../../template/manifest.toml")),
    (".gitignore", "/target\n"),
    ("build.rs", include_str!("../../template/build.rs")),
    ("src/lib.rs", include_str!("../../template/lib.rs")),
    ("tests/kernels.rs", include_str!("../../template/tests.rs")),
    ("benches/tune.rs", include_str!("../../template/tune.rs")),
    ("kernels/Cargo.toml", include_str!("../../template/kernels/manifest.toml")),
    ("kernels/src/lib.rs", include_str!("../../template/kernels/lib.rs")),
];
const OF_PROGRAM: &Files = &[
    ("src/main.rs", include_str!("../../template/main.rs")),
    ("README.md", include_str!("../../template/README.program.md")),
];
const OF_LIBRARY: &Files = &[("README.md", include_str!("../../template/README.library.md"))];
const PYTHON: &Files = &[
    ("Cargo.toml", include_str!("../../template/python/manifest.toml")),
    (".gitignore", "/target\n.venv/\n__pycache__/\n*.so\n"),
    ("README.md", include_str!("../../template/python/README.md")),
    ("build.rs", include_str!("../../template/build.rs")),
    ("kernels/Cargo.toml", include_str!("../../template/kernels/manifest.toml")),
    ("kernels/src/lib.rs", include_str!("../../template/python/kernels.rs")),
    ("pyproject.toml", include_str!("../../template/python/pyproject.toml")),
    ("python/{{crate}}/__init__.py", include_str!("../../template/python/package/__init__.py")),
    ("python/{{crate}}/_native.pyi", include_str!("../../template/python/package/_native.pyi")),
    ("python/{{crate}}/py.typed", ""),
    ("python/{{crate}}/torch.py", include_str!("../../template/python/package/torch.py")),
    ("src/lib.rs", include_str!("../../template/python/lib.rs")),
    ("tests/test_functions.py", include_str!("../../template/python/tests.py")),
    ("tests/test_torch.py", include_str!("../../template/python/tests_torch.py")),
];

/// Writes the project.
pub fn run(args: &NewArgs) -> Result<(), Failure> {
    let name = Name::of(&args.path, args.name.as_deref(), args.python).map_err(Failure::Use)?;
    let source = Source::of(args).map_err(Failure::Use)?;
    let (files, next): (&[&Files], _) = match args {
        NewArgs { python: true, .. } => (&[PYTHON], "maturin develop && pytest"),
        NewArgs { lib: true, .. } => (&[RUST, OF_LIBRARY], "cargo test"),
        _ => (&[RUST, OF_PROGRAM], "cargo test && cargo run"),
    };
    write(&args.path, &name, &source, files, args.lib)?;
    let folder = args.path.display();
    println!("Wrote {folder}. Next: cd {folder} && {next}");
    Ok(())
}

fn write(
    folder: &Path,
    name: &Name,
    source: &Source,
    files: &[&Files],
    is_library: bool,
) -> Result<(), Failure> {
    if fs::symlink_metadata(folder).is_ok() {
        let place = folder.display();
        return Err(Failure::Use(format!("{place} already exists; choose another name, or remove it first")));
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let cannot = |error: std::io::Error| {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "; choose a writable folder",
            ErrorKind::NotFound | ErrorKind::NotADirectory => "; create that folder first",
            _ => "",
        };
        Failure::Use(format!("cannot write to {}: {error}{advice}", parent.display()))
    };
    let temporary = Temporary::new(parent).map_err(cannot)?;
    for (place, template) in files.iter().copied().flatten() {
        let place = place.replace("{{crate}}", &name.library());
        let depth = usize::from(place.starts_with("kernels/"));
        let text = fill(template, name, source, folder, depth, is_library);
        let file = temporary.0.join(&place);
        fs::create_dir_all(file.parent().unwrap_or(&temporary.0))
            .and_then(|()| fs::write(&file, text))
            .map_err(cannot)?;
    }
    fs::rename(&temporary.0, folder).map_err(cannot)
}

/// Fills in a template's names and dependencies; `depth` is the depth of the template's manifest below the project
/// folder.
fn fill(
    template: &str,
    name: &Name,
    source: &Source,
    folder: &Path,
    depth: usize,
    is_library: bool,
) -> String {
    let kernels = name.kernels();
    let publish = if is_library { "" } else { "publish = false\n" };
    let version = if is_library { ", version = \"0.1.0\"" } else { "" };
    template
        .replace("{{name}}", &name.package)
        .replace("{{crate}}", &name.library())
        .replace("{{kernels}}", &kernels)
        .replace("{{kernels_crate}}", &kernels.replace('-', "_"))
        .replace("{{publish}}\n", publish)
        .replace("{{kernels_version}}", version)
        .replace("{{warpsmith}}", &source.dependency("", folder, depth))
        .replace("{{builder}}", &source.dependency("builder", folder, depth))
        .replace("{{python}}", &source.dependency("python", folder, depth))
        .replace("{{gpu_std}}", &source.dependency("gpu-std", folder, depth))
}

/// A folder that is deleted unless it is renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn new(parent: &Path) -> std::io::Result<Temporary> {
        let path = parent.join(format!(".warpsmith-new-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
