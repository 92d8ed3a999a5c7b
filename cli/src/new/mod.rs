//! `warpsmith new`: creates a project with its own kernels, which builds, tests and runs at once.
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

/// Files in every project, keyed by their path in the project. The template manifests have other names because cargo
/// excludes folders that contain a manifest from a package.
const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../../template/manifest.toml")),
    (".gitignore", "/target\n"),
    ("build.rs", include_str!("../../template/build.rs")),
    ("src/lib.rs", include_str!("../../template/lib.rs")),
    ("tests/kernels.rs", include_str!("../../template/tests.rs")),
    ("benches/tune.rs", include_str!("../../template/tune.rs")),
    ("kernels/Cargo.toml", include_str!("../../template/kernels/manifest.toml")),
    ("kernels/src/lib.rs", include_str!("../../template/kernels/lib.rs")),
];
/// Additional files in a program project.
const OF_PROGRAM: [(&str, &str); 2] = [
    ("src/main.rs", include_str!("../../template/main.rs")),
    ("README.md", include_str!("../../template/README.program.md")),
];
/// Additional files in a library project.
const OF_LIBRARY: [(&str, &str); 1] = [("README.md", include_str!("../../template/README.library.md"))];

/// Writes the project.
pub fn run(args: &NewArgs) -> Result<(), Failure> {
    let name = Name::of(&args.path, args.name.as_deref()).map_err(Failure::Use)?;
    let source = Source::of(args).map_err(Failure::Use)?;
    write(&args.path, &name, &source, args.lib)?;
    let folder = args.path.display();
    let run = if args.lib { "" } else { " && cargo run" };
    println!("Wrote {folder}. Next: cd {folder} && cargo test{run}");
    Ok(())
}

fn write(folder: &Path, name: &Name, source: &Source, is_library: bool) -> Result<(), Failure> {
    if fs::symlink_metadata(folder).is_ok() {
        let place = folder.display();
        return Err(Failure::Use(format!(
            "{place} is there already; choose another name, or remove it first"
        )));
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let cannot = |error: std::io::Error| {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "; choose a folder that you may write to"
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory => "; make that folder first",
            _ => "",
        };
        Failure::Use(format!("cannot write to {}: {error}{advice}", parent.display()))
    };
    let temporary = Temporary::new(parent).map_err(cannot)?;
    let files = FILES.iter().chain(if is_library { &OF_LIBRARY[..] } else { &OF_PROGRAM[..] });
    for (place, template) in files {
        let depth = usize::from(place.starts_with("kernels/"));
        let text = fill(template, name, source, folder, depth, is_library);
        let file = temporary.0.join(place);
        fs::create_dir_all(file.parent().unwrap_or(&temporary.0))
            .and_then(|()| fs::write(&file, text))
            .map_err(cannot)?;
    }
    fs::rename(&temporary.0, folder).map_err(cannot)
}

/// Fills in a template's names and dependencies; `depth` is the depth of its manifest below the project folder.
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
