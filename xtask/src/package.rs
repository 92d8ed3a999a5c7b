//! Tests the packages as published, and a new user's project that depends on them. Runs as `cargo xtask package` and as
//! a step of the check.
//!
//! [`registry`] creates a local registry that replaces crates.io and contains the packages and all dependencies.
//! [`prove`] installs the `warpsmith` command from that registry, and makes the command write a project outside the
//! repository. It builds, tests and runs the project with only that registry and without network access, and then again
//! without a device toolchain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warpsmith_builder::toolchain::find_device_toolchain;

use crate::check::{OWN_KERNELS, target_dir};
use crate::error::{Error, Result};
use crate::process::{ask, cargo, metadata, run, run_lines, step};

/// Creates the packages with their GPU images, as published. Makes Cargo unpack and build each package, and tests a
/// user's project.
pub fn package(root: &Path) -> Result<()> {
    // Build scripts compile the images; the host code is only type-checked.
    step("GPU image", || {
        image(root, &mut cargo(root, ["check", "--release", "--package", "warpsmith", "--features", "full"]))
    })?;
    let archives = step("packages", || pack(root, &[]))?;
    step("project of a user", || project(root, &archives, |command| command))
}

/// Checks that a project created by `warpsmith new` builds, tests and runs with only the published packages. `build` is
/// the Cargo command that builds the facade in the test profile. `lint` makes Cargo lint the project while compiling it.
pub fn scaffold(root: &Path, build: &[&str], lint: fn(&mut Command) -> &mut Command) -> Result<()> {
    image(root, lint(&mut cargo(root, build)))?;
    project(root, &pack(root, &["--no-verify", "--quiet"])?, lint)
}

fn project(root: &Path, archives: &[PathBuf], lint: fn(&mut Command) -> &mut Command) -> Result<()> {
    let registry = registry(root, archives)?;
    let outside = std::env::temp_dir().join(format!("warpsmith-scaffold-{}", std::process::id()));
    let result = prove(root, &registry, &outside, lint);
    let _ = fs::remove_dir_all(&outside);
    result
}

/// Maximum size of a package on crates.io, in bytes (`max_upload_size` in the source of the registry).
const LIMIT: u64 = 10 * 1024 * 1024;

/// Creates all published packages, and returns their archives.
fn pack(root: &Path, options: &[&str]) -> Result<Vec<PathBuf>> {
    let target = target_dir(root);
    let published = published(root)?;
    let mut package = cargo(root, ["package", "--allow-dirty"]);
    package.args(options).args(published.iter().flat_map(|(name, _)| ["--package", name]));
    run(package.env("CARGO_TARGET_DIR", &target))?;
    let archive = |(name, version)| target.join(format!("package/{name}-{version}.crate"));
    let archives: Vec<PathBuf> = published.into_iter().map(archive).collect();
    let mut largest = (0, Path::new(""));
    for file in &archives {
        largest = largest.max((fs::metadata(file).map_err(Error::file(file))?.len(), file));
    }
    let (bytes, file) = largest;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let text = format!("{name} has {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    if bytes > LIMIT {
        return Err(Error::Unexpected(format!(
            "{text}, and crates.io accepts 10 MiB: exclude files or split the package"
        )));
    }
    println!("    {} packages; the largest, {text}", archives.len());
    Ok(archives)
}

/// Returns names and versions of the workspace's published packages.
fn published(root: &Path) -> Result<Vec<(String, String)>> {
    let metadata = metadata(root, &["--no-deps"])?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    // Cargo represents `publish = false` as an empty list of registries.
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<_> =
        published.map(|package| (text(&package["name"]), text(&package["version"]))).collect();
    if let Some((name, _)) = names.iter().find(|(name, _)| !is_ours(name)) {
        return Err(Error::Unexpected(format!(
            "the package `{name}` lacks the prefix `{PREFIX}`, so anybody may publish that name first: rename it, and keep the library's name with `[lib] name`"
        )));
    }
    Ok(names)
}

/// Prefix of published package names.
const PREFIX: &str = "warpsmith-";

fn is_ours(package: &str) -> bool {
    package == "warpsmith" || package.starts_with(PREFIX)
}

/// Images that packages contain: the file that the builder writes, and the package's folder.
const IMAGES: [(&str, &str); 3] = [
    ("gpu_kernels_image.rs", ""),
    ("warpsmith_collective_kernels_image.rs", "collective"),
    ("warpsmith_tensor_kernels_image.rs", "tensor"),
];

/// Copies the images to where their packages expect them. `build` is the cargo command that runs the build scripts of
/// the facade and its dependencies; it does nothing if they are up to date.
fn image(root: &Path, build: &mut Command) -> Result<()> {
    build.arg("--message-format=json-render-diagnostics").env("CARGO_INCREMENTAL", "0");
    build.env("WARPSMITH_REQUIRE_GPU_IMAGE", "1").env("CARGO_TARGET_DIR", target_dir(root));
    let mut found = [const { None }; IMAGES.len()];
    run_lines(build, |line| {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        if message["reason"] == "build-script-executed" {
            let folder = message["out_dir"].as_str().map(PathBuf::from).unwrap_or_default();
            for (found, (file, _)) in found.iter_mut().zip(IMAGES) {
                *found = Some(folder.join(file)).filter(|file| file.is_file()).or(found.take());
            }
        }
    })?;
    for (found, (file, package)) in found.iter().zip(IMAGES) {
        let unknown = || Error::Unexpected(format!("cargo does not say where {file} is"));
        let exported = warpsmith_builder::export_image(
            found.as_ref().ok_or_else(unknown)?,
            &root.join(package).join("image"),
        );
        exported.map_err(|error| Error::Unexpected(error.to_string()))?;
    }
    Ok(())
}

/// Creates the local registry that replaces crates.io. It contains the packages and all dependencies.
fn registry(root: &Path, archives: &[PathBuf]) -> Result<PathBuf> {
    let folder = target_dir(root).join("registry");
    let mut vendor = cargo(root, ["vendor", "--quiet", "--versioned-dirs", "--sync", OWN_KERNELS]);
    // The device toolchain compiles core from its sources, and resolves the dependencies of the rest of the standard
    // library.
    vendor.arg("--sync").arg(standard_library()?).arg(&folder);
    vendor.env("RUSTC_BOOTSTRAP", "1").stdout(std::process::Stdio::null());
    run(&mut vendor)?;
    archives.iter().try_for_each(|archive| unpack(archive, &folder))?;
    Ok(folder)
}

/// Unpacks a package into a folder whose name depends on the contents, because Cargo never rebuilds a registry package
/// unless its path changes.
fn unpack(archive: &Path, registry: &Path) -> Result<()> {
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(registry))?;
    let unpacked = registry.join(archive.file_stem().unwrap_or_default());
    // The commit is not part of the contents.
    let commit = unpacked.join(".cargo_vcs_info.json");
    if commit.exists() {
        fs::remove_file(&commit).map_err(Error::file(&commit))?;
    }
    let sum = sum(&unpacked)?;
    let sums = unpacked.join(".cargo-checksum.json");
    let text = serde_json::json!({ "files": {}, "package": format!("{sum:064x}") }).to_string();
    fs::write(&sums, text).map_err(Error::file(&sums))?;
    let name = archive.file_stem().unwrap_or_default().to_string_lossy();
    fs::rename(&unpacked, registry.join(format!("{name}-{sum:016x}"))).map_err(Error::file(&unpacked))
}

/// Returns the manifest of the device toolchain's standard library.
fn standard_library() -> Result<PathBuf> {
    let toolchain = find_device_toolchain().found;
    let sysroot = toolchain.and_then(|found| ask(Command::new(found.rustc).args(["--print", "sysroot"])));
    let sysroot = sysroot.ok_or_else(|| Error::Missing {
        what: "there is no device toolchain".to_owned(),
        advice: "Run `cargo xtask setup`, then this again.".to_owned(),
    })?;
    Ok(Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.toml"))
}

/// Returns a checksum of all files in `folder`.
fn sum(folder: &Path) -> Result<u64> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(Error::file(&next))?.filter_map(std::result::Result::ok) {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in &files {
        let name = file.strip_prefix(folder).unwrap_or(file).to_string_lossy().into_owned();
        let contents = fs::read(file).map_err(Error::file(file))?;
        for byte in name.bytes().chain([0]).chain(contents) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    Ok(hash)
}

/// Test that is added to the project. It checks that the facade contains its image without a device toolchain.
const IMAGE_TEST: &str = "\
#[test]
fn the_packaged_facade_has_its_image() {
    assert_eq!(warpsmith::IMAGE.missing(), None);
}
";

/// Build profile for the command. It equals the project's profile, so that both share compiled dependencies.
const PROFILE: [&str; 5] = [
    "profile.dev.debug='line-tables-only'",
    "profile.dev.package.'*'.debug=false",
    "profile.dev.package.warpsmith-gpu-std.opt-level=3",
    "profile.dev.package.warpsmith-emulator.opt-level=3",
    "profile.dev.package.corosensei.opt-level=3",
];

fn prove(root: &Path, registry: &Path, outside: &Path, lint: fn(&mut Command) -> &mut Command) -> Result<()> {
    let write = |file: PathBuf, text: &str| {
        let folder = file.parent().unwrap_or(outside).to_path_buf();
        fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text)).map_err(Error::file(&file))
    };
    let config = format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n[source.packages]\ndirectory = {:?}\n[net]\noffline = true\n",
        registry.to_string_lossy()
    );
    let file = outside.join(".cargo/config.toml");
    write(file.clone(), &config)?;
    let target = target_dir(root).join("scaffold");
    let mut install = cargo(outside, ["install", "--debug", "warpsmith-cli", "--root"]);
    // Cargo ignores the folder's own configuration when it installs a package.
    install.arg(outside).arg("--config").arg(file).args(PROFILE.iter().flat_map(|of| ["--config", of]));
    run(install.env("CARGO_TARGET_DIR", &target).env("CARGO_INCREMENTAL", "0"))?;
    let warpsmith = outside.join("bin/warpsmith");
    let project = outside.join("own-kernels");
    run(Command::new(&warpsmith).args(["new", "--registry"]).arg(&project))?;
    write(project.join("tests/image.rs"), IMAGE_TEST)?;
    let command = |arguments: &[&str]| {
        let mut command = cargo(&project, arguments);
        command.env("CARGO_TARGET_DIR", &target).env("CARGO_INCREMENTAL", "0");
        command
    };
    let whole = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("WARPSMITH_REQUIRE_GPU_IMAGE", "1");
        command
    };
    run(&mut whole(&[
        "fmt",
        "--all",
        "--check",
        "--",
        "--config",
        "max_width=110,use_small_heuristics=Max",
    ]))?;
    run(lint(&mut whole(&["build", "--workspace", "--all-targets", "--features", "tune"])))?;
    run(lint(&mut whole(&["test", "--workspace", "--features", "tune"])))?;
    run(Command::new(target.join("debug/own-kernels")).arg("cpu"))?;
    // The test profile is used, because everything has been built for it.
    let tune = [
        "bench",
        "--profile",
        "dev",
        "--features",
        "tune",
        "--bench",
        "tune",
        "--",
        "tune",
        "saxpy",
        "smooth",
    ];
    let quick = ["--device", "cpu", "--sizes", "2^10", "--quick", "--no-store"];
    run(lint(whole(&[&tune[..], &quick].concat()).arg("--out").arg(outside.join("tune.json"))))?;
    name_features(
        &project,
        &mut whole(&["build", "--test", "features", "--features", "tune", "--color", "never"]),
    )?;
    // Without a device toolchain, only the project itself is rebuilt.
    let mut without = command(&["test", "--features", "tune", "--tests"]);
    without.env("WARPSMITH_DEVICE_RUSTC", "/no/such/rustc").env_remove("WARPSMITH_REQUIRE_GPU_IMAGE");
    run(lint(&mut without))?;
    find_fault(&warpsmith, &project, &target)
}

/// Uses items that require features that the project has not enabled. The compiler's errors must name these features.
fn name_features(project: &Path, build: &mut Command) -> Result<()> {
    let features = ["blas", "dnn", "fft", "sparse", "glam"];
    let file = project.join("tests/features.rs");
    let text = "use warpsmith::library::{blas, dnn, fft, sparse};\nuse warpsmith::glam;\n";
    fs::write(&file, text).map_err(Error::file(&file))?;
    let output = build.output().map_err(|source| Error::NotStarted { command: "cargo".into(), source })?;
    fs::remove_file(&file).map_err(Error::file(&file))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let is_named = |feature: &&str| said.contains(&format!("gated behind the `{feature}` feature"));
    if !output.status.success() && features.iter().all(is_named) {
        return Ok(());
    }
    Err(Error::Unexpected(format!("a feature is not named ({}):\n{said}", output.status)))
}

/// Kernel that is added to the project. A barrier is missing in this kernel.
const FAULT: &str = "
/// Reads the value of the adjacent thread. The barrier is missing.
///
/// # Safety
/// Blocks have 64 threads.
#[kernel]
pub unsafe fn neighbors(mut out: DisjointMut<u32>) {
    let tile = shared_array![u32; 64];
    let own = thread::linear_in_block() as usize;
    unsafe { tile.add(own).write(own as u32) }; // seeded
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = unsafe { tile.add(own ^ 1).read() }; // seeded
    }
}
";
/// Test that launches the faulty kernel.
const FAULT_TEST: &str = "
use warpsmith::{Device, DeviceBuffer, Error, Launch};

#[test]
fn neighbors_are_read() -> Result<(), Error> {
    let stream = Device::open(\"cpu\")?.default_stream();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 64)?;
    let kernel = stream.device().load(&own_kernels::KERNELS)?.kernel::<own_kernels_kernels::neighbors>()?;
    unsafe { kernel.launch_unsafe(&stream, Launch::linear(64, 64), (&mut out,))? };
    stream.synchronize()
}
";

/// Adds a faulty kernel to the project; `warpsmith check test` must find the fault.
fn find_fault(warpsmith: &Path, project: &Path, target: &Path) -> Result<()> {
    let kernels = project.join("kernels/src/lib.rs");
    let source = fs::read_to_string(&kernels).map_err(Error::file(&kernels))? + FAULT;
    fs::write(&kernels, &source).map_err(Error::file(&kernels))?;
    let test = project.join("tests/seeded.rs");
    fs::write(&test, FAULT_TEST).map_err(Error::file(&test))?;
    let mut check = Command::new(warpsmith);
    check.args(["check", "test", "--test", "seeded"]).current_dir(project);
    check.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0").env("WARPSMITH_SKIP_GPU_IMAGE", "1");
    println!("    $ warpsmith check test --test seeded");
    let output =
        check.output().map_err(|source| Error::NotStarted { command: "warpsmith".into(), source })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = source.lines().zip(1..).filter(|(text, _)| text.ends_with("// seeded"));
    let is_named = |line: u32| said.contains(&format!("kernels/src/lib.rs:{line} in neighbors"));
    if output.status.code() == Some(1) && lines.map(|(_, line)| line).all(is_named) {
        return Ok(());
    }
    Err(Error::Unexpected(format!("a seeded bug was not found ({}):\n{said}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_packages_have_our_prefix() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let packages = published(root).unwrap();
        assert!(packages.iter().any(|(name, _)| name == "warpsmith-gpu-std"), "{packages:?}");
        assert!(is_ours("warpsmith") && !is_ours("gpu-std") && !is_ours("warpsmithy"));
    }

    #[test]
    fn a_package_with_other_contents_lies_elsewhere() {
        let folder = std::env::temp_dir().join(format!("warpsmith-unpack-{}", std::process::id()));
        let package = folder.join("k-0.1.0");
        fs::create_dir_all(package.join("src")).unwrap();
        let mut places = Vec::new();
        for (contents, commit) in [("one", "a"), ("one", "b"), ("two", "b")] {
            fs::write(package.join("src/lib.rs"), contents).unwrap();
            fs::write(package.join(".cargo_vcs_info.json"), commit).unwrap();
            let archive = folder.join("k-0.1.0.crate");
            run(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&folder).arg("k-0.1.0")).unwrap();
            let registry = folder.join("registry");
            fs::create_dir(&registry).unwrap();
            unpack(&archive, &registry).unwrap();
            let place = fs::read_dir(&registry).unwrap().next().unwrap().unwrap();
            assert!(
                fs::read_to_string(place.path().join(".cargo-checksum.json"))
                    .unwrap()
                    .contains("\"files\":{}")
            );
            places.push(place.file_name());
            fs::remove_dir_all(registry).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(places[0], places[1], "the commit is no part of the contents");
        assert_ne!(places[1], places[2]);
        assert!(places[0].to_string_lossy().starts_with("k-0.1.0-"));
    }
}
