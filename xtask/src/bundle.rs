//! Builds `target/bundle/`: the tests that use the device under test, the benches, the examples, the seeded bugs and
//! the `warpsmith` command as stripped programs, with scripts that unpack and run them. The program with random kernels
//! is as large as ten other programs, so it is packed only if it is named. The bundle requires x86-64 Linux and at
//! least the build machine's glibc version, but not Rust. The scripts require `tar` and `xz`. Each program contains its
//! GPU image and loads the NVIDIA driver when it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::check::{OWN_KERNELS, target_dir};
use crate::difftest;
use crate::error::{Error, Result};
use crate::process::{ask, cargo, metadata, run, run_lines, step};
use crate::setup::setup;

/// Name that selects the facade, whose tests cover `ops`.
const FACADE: &str = "ops";
/// Name of the program that contains random kernels.
const DIFFTEST: &str = "difftest";

/// Maximum size of the whole bundle, in bytes.
const LIMIT: u64 = 60 << 20;
/// Dictionary size of the archive in bytes, which is the maximum distance between repetitions. Unpacking requires the
/// same amount of memory.
const DICTIONARY: u64 = 256 << 20;

/// Packages whose tests are not useful on a GPU machine or require a compiler.
const LEFT_OUT: [&str; 16] = [
    "xtask",
    "difftest-generator",
    "difftest-runner",
    "difftest-support",
    "warpsmith-builder",
    "warpsmith-check",
    "warpsmith-emulated",
    "warpsmith-emulator",
    "warpsmith-trace",
    "warpsmith-gpu-macros",
    "warpsmith-gpu-std",
    "seeded-bugs-gpu",
    "warpsmith-compat-macros",
    "warpsmith-cuda-builder",
    "warpsmith-cuda-std",
    "warpsmith-cust-core",
];
/// Crates that belong to the runtime. Most of their test programs use only emulated devices and are excluded from the
/// bundle.
const RUNTIME: [&str; 4] =
    ["warpsmith-runtime", "warpsmith-driver", "warpsmith-collective", "warpsmith-libraries"];
/// Test programs, in those crates, that use the device under test.
const ON_DEVICE: [&str; 3] = ["on_device", "libraries", "ranks"];

/// Returns true if a test program is useful on a GPU machine.
fn asks_for_the_device(package: &str, test: &str) -> bool {
    !RUNTIME.contains(&package) || ON_DEVICE.contains(&test)
}

/// Returns true if a test program (`ui`, `ui_…`) requires sources or a compiler, which a GPU machine does not have.
fn needs_sources(test: &str) -> bool {
    test == "ui" || test.starts_with("ui_")
}

/// Builds the named packages in release mode and packs them. If no package is named, packs all packages except
/// [`DIFFTEST`].
pub fn bundle(root: &Path, names: &[&str]) -> Result<()> {
    let packages = chosen(&metadata(root, &["--no-deps"])?, names)?;
    setup(root)?;
    let programs = step("build", || {
        let mut programs = Vec::new();
        if !packages.is_empty() {
            let names = packages.iter().flat_map(|package| ["--package", &package.name]);
            let names: Vec<&str> = names.collect();
            let tests = packages.iter().flat_map(|package| &package.tests).flat_map(|test| ["--test", test]);
            let tests: Vec<&str> = tests.collect();
            if !tests.is_empty() {
                programs.extend(build(root, "test", &[&names[..], &["--no-run"], &tests].concat())?);
            }
            programs.extend(build(
                root,
                "build",
                &[&names[..], &["--benches", "--examples", "--bins"]].concat(),
            )?);
        }
        if names.is_empty() {
            programs.extend(build(root, "build", &["--manifest-path", OWN_KERNELS, "--bins"])?);
        }
        if names.contains(&DIFFTEST) {
            programs.push(Program { built: difftest::program(root)?, place: DIFFTEST.to_owned() });
        }
        programs.sort_by(|a, b| a.place.cmp(&b.place));
        programs.dedup();
        Ok(programs)
    })?;
    step("pack", || pack(&target_dir(root).join("bundle"), &programs))
}

/// A package with programs for the bundle.
#[derive(Debug, PartialEq)]
struct Package {
    name: String,
    /// Test programs that belong in the bundle. Most of the runtime's test programs do not, and they take a long time
    /// to build.
    tests: Vec<String>,
}

fn packages(metadata: &Value) -> Vec<Package> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: Value| {
        let name = text(&package["name"]);
        let targets = all(&package["targets"]);
        let names =
            targets.iter().filter(|target| target["kind"][0] == "test").map(|target| text(&target["name"]));
        let tests = names.filter(|test| !needs_sources(test) && asks_for_the_device(&name, test)).collect();
        Package { name, tests }
    };
    let packages = all(&metadata["packages"]).into_iter().map(package);
    packages.filter(|package| !LEFT_OUT.contains(&package.name.as_str())).collect()
}

/// Returns the named packages, or all packages if `names` is empty. A name is a package name without `warpsmith-`, or
/// [`FACADE`].
fn chosen(metadata: &Value, names: &[&str]) -> Result<Vec<Package>> {
    fn short(package: &Package) -> &str {
        match package.name.as_str() {
            "warpsmith" => FACADE,
            name => name.strip_prefix("warpsmith-").unwrap_or(name),
        }
    }
    let mut packages = packages(metadata);
    let is_known = |name: &str| name == DIFFTEST || packages.iter().any(|package| short(package) == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = packages.iter().map(short).chain([DIFFTEST]).collect();
        return Err(Error::Missing {
            what: format!("the bundle has no part named `{unknown}`"),
            advice: format!("There are {}.", known.join(", ")),
        });
    }
    packages.retain(|package| names.is_empty() || names.contains(&short(package)));
    Ok(packages)
}

/// A program in the bundle.
#[derive(Debug, PartialEq)]
struct Program {
    built: PathBuf,
    /// Path in the bundle.
    place: String,
}

fn build(root: &Path, verb: &str, what: &[&str]) -> Result<Vec<Program>> {
    let mut command = cargo(root, [verb, "--release"]);
    command.args(what).arg("--message-format=json-render-diagnostics");
    command.env("WARPSMITH_REQUIRE_GPU_IMAGE", "1").env("CARGO_TARGET_DIR", target_dir(root));
    // As in `profile.bench`.
    command.env("CARGO_PROFILE_RELEASE_LTO", "false");
    let mut programs = Vec::new();
    run_lines(&mut command, |line| {
        programs.extend(serde_json::from_str(line).ok().and_then(|message| program(&message)));
    })?;
    Ok(programs)
}

/// Returns the program that a Cargo message announces, if the program belongs in the bundle.
fn program(message: &Value) -> Option<Program> {
    let built = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let package = package(message["manifest_path"].as_str()?, message["package_id"].as_str()?);
    let place = match (kind, message["profile"]["test"].as_bool()?) {
        ("bench", _) => format!("benches/{target}"),
        ("example", _) => format!("examples/{target}"),
        ("bin", false) if package == "own-kernels" => "examples/own-kernels".to_owned(),
        ("bin", false) if target == "warpsmith" || target == "seeded-bugs" => target.to_owned(),
        ("bin", false) => return None,
        ("test", true) if needs_sources(target) || !asks_for_the_device(&package, target) => return None,
        ("test", true) => format!("tests/{package}.{target}"),
        _ => return None,
    };
    Some(Program { built, place })
}

/// Returns a package's name, taken from the identifier after `#` or, if that identifier is only a version, from the
/// folder name.
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
    for part in ["tests", "benches", "examples", "peers"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(Error::file(part))?;
    }
    let mut packed = Vec::new();
    for Program { built, place } in programs {
        if place.starts_with("tests/") && !has_tests(built) {
            continue;
        }
        let stripped = folder.join(place);
        run(Command::new("strip").arg("-o").args([&stripped, built]))?;
        packed.push((size(&stripped)?, place.as_str()));
    }
    let total = compress(folder, packed)?;
    for (name, text) in [
        ("run-tests", include_str!("../bundle/run-tests")),
        ("run-sanitizers", include_str!("../bundle/run-sanitizers")),
        ("run-agreement", include_str!("../bundle/run-agreement")),
        ("run-benches", include_str!("../bundle/run-benches")),
        ("run-difftest", include_str!("../bundle/run-difftest")),
        ("run-kernels", include_str!("../bundle/run-kernels")),
        ("run-tensor", include_str!("../bundle/run-tensor")),
        ("run-collective", include_str!("../bundle/run-collective")),
        ("peers/kernels.cu", include_str!("../../benches/peers/kernels.cu")),
        ("peers/kernels.py", include_str!("../../benches/peers/kernels.py")),
        ("peers/attention.py", include_str!("../../benches/peers/attention.py")),
        ("peers/gemm_mma.py", include_str!("../../benches/peers/gemm_mma.py")),
        ("peers/all_reduce.py", include_str!("../../benches/peers/all_reduce.py")),
        ("README.txt", include_str!("../bundle/README.txt")),
    ] {
        let file = folder.join(name);
        fs::write(&file, text).map_err(Error::file(&file))?;
        if name.starts_with("run-") {
            make_executable(&file)?;
        }
    }
    println!("    {} in {}", mebibytes(total), folder.display());
    if total > LIMIT {
        return Err(Error::Unexpected(format!("the bundle may take at most {}", mebibytes(LIMIT))));
    }
    Ok(())
}

/// Moves programs of these sizes into one archive, and returns the archive's size. Programs with the same GPU image
/// have similar sizes and are therefore adjacent in the archive. The dictionary is larger than a program, so the image
/// is stored about once.
fn compress(folder: &Path, mut programs: Vec<(u64, &str)>) -> Result<u64> {
    programs.sort_unstable_by(|a, b| b.cmp(a));
    let largest = programs.first().map_or(0, |program| program.0);
    println!(
        "    {} programs, {}",
        programs.len(),
        mebibytes(programs.iter().map(|program| program.0).sum())
    );
    if largest > DICTIONARY {
        let problem =
            format!("the largest program has {}, which exceeds the dictionary size", mebibytes(largest));
        return Err(Error::Unexpected(problem));
    }
    let mut tar = Command::new("tar");
    tar.current_dir(folder).arg("-I").arg(format!("xz --lzma2=preset=3,dict={DICTIONARY}"));
    tar.args(["--remove-files", "-cf", "programs.tar.xz"]).args(programs.iter().map(|program| program.1));
    run(&mut tar)?;
    size(&folder.join("programs.tar.xz"))
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).map_err(Error::file(file))?.len())
}

/// Returns true if a test program contains any tests.
fn has_tests(program: &Path) -> bool {
    ask(Command::new(program).arg("--list"))
        .is_some_and(|list| list.lines().any(|line| line.ends_with(": test")))
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).map_err(Error::file(file))
}

/// Does nothing: other systems have no such permission.
#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
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
        assert_eq!(place(facade, "test", "device", true).unwrap(), "tests/warpsmith.device");
        assert_eq!(place(facade, "lib", "warpsmith", true), None, "unit tests need no device");
        assert_eq!(
            place("path+file:///src/gpu-std#0.1.0", "test", "warps", true).unwrap(),
            "tests/gpu-std.warps"
        );
        assert_eq!(place(facade, "example", "nbody", false).unwrap(), "examples/nbody");
        assert_eq!(place(facade, "bench", "tiles", true).unwrap(), "benches/tiles");
        let command = "path+file:///src/cli#warpsmith-cli@0.1.0";
        assert_eq!(place(command, "bin", "warpsmith", false).unwrap(), "warpsmith");
        assert_eq!(
            place("path+file:///src#seeded-bugs@0.1.0", "bin", "seeded-bugs", false).unwrap(),
            "seeded-bugs"
        );
        assert_eq!(place(command, "bin", "warpsmith", true), None);
    }

    #[test]
    fn only_tests_that_belong_in_the_bundle_are_built() {
        let target = |kind: &str, name: &str| serde_json::json!({ "kind": [kind], "name": name });
        let metadata = serde_json::json!({ "packages": [
            { "name": "warpsmith", "targets": [target("lib", "warpsmith"), target("test", "device"), target("test", "ui")] },
            { "name": "warpsmith-runtime", "targets": [target("test", "core"), target("test", "on_device"), target("test", "libraries")] },
            { "name": "xtask", "targets": [target("test", "pages")] },
        ] });
        let names = |wanted: &[&str]| -> Vec<(String, Vec<String>)> {
            let chosen = chosen(&metadata, wanted).unwrap();
            chosen.into_iter().map(|package| (package.name, package.tests)).collect()
        };
        let facade = ("warpsmith".to_owned(), vec!["device".to_owned()]);
        let runtime = ("warpsmith-runtime".to_owned(), vec!["on_device".to_owned(), "libraries".to_owned()]);
        assert_eq!(names(&[]), [facade.clone(), runtime.clone()]);
        assert_eq!(names(&["ops"]), [facade]);
        assert_eq!(names(&["runtime", "difftest"]), [runtime]);
        let text = chosen(&metadata, &["sparse"]).unwrap_err().to_string();
        assert!(text.contains("`sparse`") && text.contains("ops, runtime, difftest"), "{text}");
    }

    #[test]
    fn only_tests_without_sources_are_bundled() {
        let facade = "path+file:///src#warpsmith@0.1.0";
        assert_eq!(program(&message(facade, "test", "ui", true)), None);
        assert_eq!(program(&message(facade, "test", "ui_launch", true)), None);
        assert_eq!(program(&message(facade, "custom-build", "build-script-build", false)), None);
        let runtime = "path+file:///src/runtime#warpsmith-runtime@0.1.0";
        assert_eq!(program(&message(runtime, "test", "core", true)), None);
        assert_eq!(program(&message(runtime, "lib", "warpsmith_runtime", true)), None);
        let on_device = program(&message(runtime, "test", "on_device", true)).unwrap();
        assert_eq!(on_device.place, "tests/warpsmith-runtime.on_device");
        let mut library = message(facade, "lib", "warpsmith", false);
        library["executable"] = Value::Null;
        assert_eq!(program(&library), None);
    }
}
