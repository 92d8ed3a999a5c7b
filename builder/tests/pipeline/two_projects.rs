//! Two projects with kernel crates of the same name in one target folder: cargo links one with the kernels of the
//! other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::folders;

const HOST: &str = "use gpu_spec::image::*;
use gpu_spec::AbiParam;
static IMAGE: ImageSpec = {
    #[macro_use]
    mod images { include!(concat!(env!(\"OUT_DIR\"), \"/warpsmith_images.rs\")); }
    warpsmith_image!(\"kernels\")
};
fn main() {
    let kernel = <kernels::value as gpu_std::Kernel>::spec();
    let source = IMAGE.sources.iter().find(|source| source.package.name == kernel.package).unwrap();
    let is_own = source.folders.contains(&kernel.folder);
    println!(\"{} {is_own} {:x}\", kernels::FOLDER, IMAGE.modules[0].forms[0].hash);
}
";

fn project(base: &Path, name: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = |package: &str| format!("{{ path = {:?} }}", repository.join(package));
    // Without the emulated device, which takes as long to compile as everything else.
    let host_only = |package: &str| path(package).replace('}', ", default-features = false }");
    let project = base.join(name);
    let files = [
        (
            "Cargo.toml",
            format!(
                "[workspace]\nmembers = [\"kernels\"]\n[package]\nname = \"{name}\"\nedition = \"2024\"\n\
                 [dependencies]\nkernels.path = \"kernels\"\nwarpsmith-gpu-spec = {}\nwarpsmith-gpu-std = {}\n[build-dependencies]\nwarpsmith-builder = {}\n\
                 [profile.dev]\ndebug = false\n",
                path("gpu-spec"),
                host_only("gpu-std"),
                path("builder")
            ),
        ),
        (
            "build.rs",
            "fn main() { warpsmith_builder::PtxBuilder::new(\"kernels\").build().unwrap(); }\n".to_owned(),
        ),
        ("src/main.rs", HOST.to_owned()),
        (
            "kernels/Cargo.toml",
            format!(
                "[package]\nname = \"kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\nwarpsmith-gpu-std = {}\n",
                host_only("gpu-std")
            ),
        ),
        (
            "kernels/src/lib.rs",
            format!(
                "#![no_std]\nuse gpu_std::prelude::*;\npub const FOLDER: &str = env!(\"CARGO_MANIFEST_DIR\");\n#[kernel]\n\
                 pub fn value(mut y: DisjointMut<u32>) {{\n    if let Some(y) = y.get_mut(thread::unique_index()) {{ *y = {}; }}\n}}\n",
                name.len()
            ),
        ),
    ];
    for (file, text) in files {
        let file = project.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::copy(repository.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    project
}

/// Builds and runs a project: returns the folder of the kernels that it was linked with, whether they match its image,
/// and the image's hash.
fn run(project: &Path) -> (String, bool, String) {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--color=never"])
        .current_dir(project)
        .env("CARGO_TARGET_DIR", folders("two-projects").target_dir)
        .env("WARPSMITH_GPU_ARCHS", "sm_80")
        .env_remove("WARPSMITH_SKIP_GPU_IMAGE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    (words[0].to_owned(), words[1] == "true", words[2].to_owned())
}

#[test]
fn kernels_of_the_other_project_are_told_apart() {
    // Outside the target folder: inside it, cargo would distinguish the projects' files by their paths.
    let base = std::env::temp_dir().join(format!("warpsmith-two-projects-{}", std::process::id()));
    let [one, second] = ["one", "second"].map(|name| project(&base, name));
    let mut images = Vec::new();
    for (name, folder, is_edited) in
        [("one", &one, false), ("second", &second, false), ("second", &second, true), ("one", &one, false)]
    {
        let file = folder.join("kernels/src/lib.rs");
        if is_edited {
            fs::write(&file, fs::read_to_string(&file).unwrap()).unwrap();
        }
        let (linked, is_own, image) = run(folder);
        assert_eq!(
            is_own,
            Path::new(&linked) == folder.join("kernels"),
            "{name} was linked with the kernels of {linked}"
        );
        assert!(!is_edited || is_own);
        images.push(image);
    }
    // The GPU code belongs to each project.
    assert!(images[0] == images[3] && images[1] == images[2] && images[0] != images[1], "{images:?}");
    fs::remove_dir_all(base).unwrap();
}
