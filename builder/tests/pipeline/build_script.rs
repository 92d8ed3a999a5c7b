//! A host package with a build script, built by cargo: the image is embedded, and nothing is built twice.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{folders, image_types, scratch_crate};

const HOST: &str = "\
#[allow(unused_imports)]
static IMAGE: ImageSpec = include!(concat!(env!(\"OUT_DIR\"), \"/scratch_build_script_image.rs\"));
fn main() {
    for compiler in [IMAGE.compilers.device, IMAGE.compilers.host] {
        assert!(compiler.starts_with(\"rustc 1.\") && compiler.contains(\", LLVM \"), \"{compiler}\");
    }
    println!(\"{} {}\", IMAGE.modules[0].forms.len(), IMAGE.kernels[0].symbol);
}
";

const BUILD: &str = "\
fn main() -> Result<(), warpsmith_builder::Error> {
    warpsmith_builder::PtxBuilder::new(\"../crate\").build()?;
    Ok(())
}
";

fn kernels(name: &str) -> String {
    format!(
        "#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! {{ loop {{}} }}\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}() {{}}\n"
    )
}

fn host_package() -> PathBuf {
    let folder = folders("build-script").out_dir.join("host");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let builder = env!("CARGO_MANIFEST_DIR");
    let manifest = format!(
        "[package]\nname = \"scratch-host\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [build-dependencies]\nwarpsmith-builder = {{ path = {builder:?} }}\n[workspace]\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join("build.rs"), BUILD).unwrap();
    std::fs::write(folder.join("src/main.rs"), image_types("image") + HOST).unwrap();
    // The versions of this workspace, which are already downloaded.
    let lock = Path::new(builder).parent().unwrap().join("Cargo.lock");
    if lock.is_file() {
        std::fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    }
    folder
}

/// Builds for all architectures and runs the host package: returns its output, and whether cargo had nothing to do.
fn run(host: &Path) -> (String, bool) {
    run_with(host, &[("WARPSMITH_GPU_ARCHS", "all")])
}

fn run_with(host: &Path, environment: &[(&str, &str)]) -> (String, bool) {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let output = Command::new(cargo)
        .args(["run", "-v", "--color=never"])
        .current_dir(host)
        .env("CARGO_TARGET_DIR", folders("build-script").target_dir)
        .env_remove("WARPSMITH_SKIP_GPU_IMAGE")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    (String::from_utf8_lossy(&output.stdout).trim().to_owned(), log.contains("Fresh scratch-host"))
}

#[test]
fn cargo_rebuilds_exactly_when_something_changed() {
    let crate_dir = scratch_crate("build-script", &kernels("one"));
    let host = host_package();
    assert_eq!(run(&host).0, "2 one");
    assert_eq!(run(&host), ("2 one".to_owned(), true), "a second build had something to do");

    std::fs::write(crate_dir.join("README.md"), "not a source").unwrap();
    assert!(run(&host).1, "a file that is no source caused a build");

    scratch_crate("build-script", &kernels("another"));
    assert_eq!(run(&host), ("2 another".to_owned(), false));
    assert!(run(&host).1);

    // An editor that skips the image leaves the existing one in place.
    let all = ("WARPSMITH_GPU_ARCHS", "all");
    let skipped = run_with(&host, &[all, ("WARPSMITH_SKIP_GPU_IMAGE", "1")]);
    assert_eq!(skipped, ("2 another".to_owned(), true));
    assert!(run(&host).1);

    // A development build for one device has the code of one architecture.
    assert_eq!(run_with(&host, &[("WARPSMITH_GPU_ARCHS", "sm_80")]), ("1 another".to_owned(), false));
}
