//! `target/bundle/`: the tests, the benches, the examples and the `warpsmith` command as stripped programs, with
//! scripts that unpack and run them. Needs an x86-64 Linux with the glibc of the machine that built it or a later one, and no
//! Rust. The scripts need `xz`. Each program carries its GPU image; the NVIDIA driver is loaded when it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::check::{OWN_KERNELS, target_dir};
use crate::error::{Error, Result};
use crate::process::{ask, cargo, run, run_lines, step};
use crate::setup::setup;

/// The most that the whole bundle may take, in bytes.
const LIMIT: u64 = 60 << 20;

/// Packages whose tests say nothing on a GPU machine, or need a compiler.
const LEFT_OUT: [&str; 4] = ["xtask", "warpsmith-builder", "warpsmith-emulator", "gpu-macros"];
/// Whether a test of the runtime says something on a GPU machine: most have an emulated device of their own.
fn asks_for_the_device(package: &str, test: &str) -> bool {
    package != "warpsmith-runtime" || test.ends_with("_on_device")
}

/// Whether a test needs sources or a compiler, which a GPU machine does not have: `ui`, `ui_…`.
fn needs_sources(test: &str) -> bool {
    test == "ui" || test.starts_with("ui_")
}

/// Builds everything in release and packs it.
pub fn bundle(root: &Path) -> Result<()> {
    setup(root)?;
    let programs = step("build", || {
        let mut what = vec!["--workspace", "--all-targets"];
        what.extend(LEFT_OUT.iter().flat_map(|package| ["--exclude", package]));
        let mut programs = build(root, &what)?;
        programs.extend(build(root, &["--manifest-path", OWN_KERNELS, "--bins"])?);
        Ok(programs)
    })?;
    step("pack", || pack(&target_dir(root).join("bundle"), &programs))
}

/// One program of the bundle.
#[derive(Debug, PartialEq)]
struct Program {
    built: PathBuf,
    /// Its place in the bundle.
    place: String,
}

fn build(root: &Path, what: &[&str]) -> Result<Vec<Program>> {
    let mut command = cargo(root, ["build", "--release"]);
    command.args(what).arg("--message-format=json-render-diagnostics");
    command.env("WARPSMITH_REQUIRE_GPU_IMAGE", "1").env("CARGO_TARGET_DIR", target_dir(root));
    let mut programs = Vec::new();
    run_lines(&mut command, |line| {
        programs.extend(serde_json::from_str(line).ok().and_then(|message| program(&message)));
    })?;
    Ok(programs)
}

/// The program that a message of cargo announces, if it belongs in the bundle.
fn program(message: &Value) -> Option<Program> {
    let built = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let package = package(message["manifest_path"].as_str()?, message["package_id"].as_str()?);
    let place = match (kind, message["profile"]["test"].as_bool()?) {
        ("bench", _) => format!("benches/{target}"),
        ("example", _) => format!("examples/{target}"),
        ("bin", false) if package == "own-kernels" => "examples/own-kernels".to_owned(),
        ("bin", false) if target == "warpsmith" => "warpsmith".to_owned(),
        ("bin", false) => return None,
        ("test", true) if needs_sources(target) || !asks_for_the_device(&package, target) => return None,
        ("lib", true) if !asks_for_the_device(&package, target) => return None,
        ("test", true) => format!("tests/{package}.{target}"),
        (_, true) => format!("tests/{package}.unit"),
        _ => return None,
    };
    Some(Program { built, place })
}

/// A package's name: in the identifier after `#`, or, when that is only a version, the folder's name.
fn package(manifest: &str, id: &str) -> String {
    let last = id.rsplit('#').next().unwrap_or(id);
    match last.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => Path::new(manifest)
            .parent()
            .and_then(Path::file_name)
            .map_or_else(|| last.to_owned(), |name| name.to_string_lossy().into_owned()),
    }
}

fn pack(folder: &Path, programs: &[Program]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::file(folder))?;
    }
    for part in ["tests", "benches", "examples"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(Error::file(part))?;
    }
    let mut total = 0;
    for Program { built, place } in programs {
        if place.starts_with("tests/") && !has_tests(built) {
            continue;
        }
        let packed = folder.join(place);
        run(Command::new("strip").arg("-o").args([&packed, built]))?;
        let size = compress(&packed)?;
        println!("    {:>9}  {place}", mebibytes(size));
        total += size;
    }
    for (name, text) in [
        ("run-tests", include_str!("../bundle/run-tests")),
        ("run-benches", include_str!("../bundle/run-benches")),
        ("README.txt", include_str!("../bundle/README.txt")),
    ] {
        let file = folder.join(name);
        fs::write(&file, text).map_err(Error::file(&file))?;
        if !name.ends_with(".txt") {
            make_executable(&file)?;
        }
    }
    println!("    {} in {}", mebibytes(total), folder.display());
    if total > LIMIT {
        return Err(Error::Unexpected(format!("the bundle may take at most {}", mebibytes(LIMIT))));
    }
    Ok(())
}

/// Compresses a program in place, which takes the image that each carries to a fraction; the scripts unpack it
/// before they run it.
fn compress(program: &Path) -> Result<u64> {
    run(Command::new("xz").args(["-5", "--force"]).arg(program))?;
    size(&program.with_added_extension("xz"))
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).map_err(Error::file(file))?.len())
}

/// Whether a test program has any test.
fn has_tests(program: &Path) -> bool {
    ask(Command::new(program).arg("--list"))
        .is_some_and(|list| list.lines().any(|line| line.ends_with(": test")))
}

fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).map_err(Error::file(file))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package_id: &str, kind: &str, name: &str, test: bool) -> Value {
        serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": package_id,
            "manifest_path": "/src/gpu-std/Cargo.toml",
            "target": { "kind": [kind], "name": name },
            "profile": { "test": test },
            "executable": "/target/release/deps/built",
        })
    }

    #[test]
    fn every_program_has_its_place() {
        let facade = "path+file:///src#warpsmith@0.1.0";
        let place = |id, kind, name, test| program(&message(id, kind, name, test)).map(|p| p.place);
        assert_eq!(place(facade, "test", "ops", true).unwrap(), "tests/warpsmith.ops");
        assert_eq!(place(facade, "lib", "warpsmith", true).unwrap(), "tests/warpsmith.unit");
        assert_eq!(
            place("path+file:///src/gpu-std#0.1.0", "lib", "gpu_std", true).unwrap(),
            "tests/gpu-std.unit"
        );
        assert_eq!(place(facade, "example", "nbody", false).unwrap(), "examples/nbody");
        assert_eq!(place(facade, "bench", "ops", true).unwrap(), "benches/ops");
        let command = "path+file:///src/cli#warpsmith-cli@0.1.0";
        assert_eq!(place(command, "bin", "warpsmith", false).unwrap(), "warpsmith");
        assert_eq!(place(command, "bin", "warpsmith", true).unwrap(), "tests/warpsmith-cli.unit");
    }

    #[test]
    fn what_needs_sources_or_is_no_test_stays_at_home() {
        let facade = "path+file:///src#warpsmith@0.1.0";
        assert_eq!(program(&message(facade, "test", "ui", true)), None);
        assert_eq!(program(&message(facade, "test", "ui_launch", true)), None);
        assert_eq!(program(&message(facade, "custom-build", "build-script-build", false)), None);
        let runtime = "path+file:///src/runtime#warpsmith-runtime@0.1.0";
        assert_eq!(program(&message(runtime, "test", "faults", true)), None);
        assert_eq!(program(&message(runtime, "lib", "warpsmith_runtime", true)), None);
        let on_device = program(&message(runtime, "test", "allocator_on_device", true)).unwrap();
        assert_eq!(on_device.place, "tests/warpsmith-runtime.allocator_on_device");
        let mut library = message(facade, "lib", "warpsmith", false);
        library["executable"] = Value::Null;
        assert_eq!(program(&library), None);
    }
}
