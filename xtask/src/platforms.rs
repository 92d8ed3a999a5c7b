//! `cargo xtask windows`: builds the tests for Windows and runs them on this machine under Wine. `cargo xtask types`:
//! type-checks the workspace for the platforms whose programs cannot be linked here.
//!
//! The device toolchain compiles the standard library for these platforms from its sources. The linker and Wine are
//! Debian packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_builder::toolchain::find_device_toolchain;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{find, run, step};
use crate::setup::install;

const WINDOWS: &str = "x86_64-pc-windows-gnu";
/// Platforms that are type-checked: their linkers and libraries are not available to other systems.
const CHECKED: [&str; 3] = ["x86_64-pc-windows-msvc", "aarch64-apple-darwin", "x86_64-apple-darwin"];
/// Packages that need a Python of the platform.
const WITHOUT_PYTHON: [&str; 2] = ["--exclude", "warpsmith-python"];

/// Programs that the tests need, with their Debian packages.
const PROGRAMS: [(&str, &str); 2] =
    [("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"), ("wineserver", "wine64")];
/// Wine, which Debian does not put into the search path.
const WINE: &str = "/usr/lib/wine/wine64";
/// Source of `bcryptprimitives.dll`, from which Rust's standard library takes random numbers. Wine has had this library
/// since version 9.
const RANDOM_NUMBERS: &str = "\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG bytes);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T bytes) {
    return SystemFunction036(buffer, (ULONG)bytes);
}
";

/// Packages whose tests run under Wine, and their test programs. The programs `ui` and `pipeline` are left out, because
/// they need a compiler that runs under Wine.
const PACKAGES: [&str; 15] = [
    "warpsmith",
    "warpsmith-builder",
    "warpsmith-check",
    "warpsmith-cli",
    "warpsmith-driver",
    "warpsmith-emulated",
    "warpsmith-emulator",
    "warpsmith-gpu-spec",
    "warpsmith-gpu-std",
    "warpsmith-interop",
    "warpsmith-libraries",
    "warpsmith-profiler",
    "warpsmith-runtime",
    "warpsmith-trace",
    "warpsmith-tuner",
];
const TESTS: [&str; 14] = [
    "command",
    "corpus",
    "device",
    "driver",
    "emulated",
    "emulator",
    "interop",
    "libraries",
    "on_device",
    "profiler",
    "ranges",
    "store",
    "trace",
    "tuner",
];
const GPU_CODE: &str = "examines GPU code, which is not compiled for this run";
/// Tests that do not run under Wine, with the cause.
const LEFT_OUT: [(&str, &str); 14] = [
    ("checked_project::", "`warpsmith check` supports Linux only"),
    ("package::", "needs cargo under Wine"),
    ("names_of_more_than_1024_bytes_are_read", "needs the device toolchain under Wine"),
    ("the_example_is_what_new_writes", "compares with the repository's path on the build machine"),
    ("ctrl_c_keeps_and_prints_what_was_measured", "interrupts its child by a Unix signal"),
    ("ptx_facts::", GPU_CODE),
    ("every_form_is_linked_and_runs", GPU_CODE),
    ("every_form_gives_the_same_result", GPU_CODE),
    ("the_image_records_unknown_stacks", GPU_CODE),
    (
        "functions_of_f64_are_within_their_bounds",
        "`exp10` differs from `powf` by 328 units in the last place; not yet explained",
    ),
    (
        "every_instance_is_registered_once",
        "the linker drops the records of kernels in the program's own crate",
    ),
    ("tool::", "compiles a library with rustc under Wine"),
    ("loom_streams::", "panics do not unwind through the stacks of loom's coroutines"),
    (
        "sparse_matrices_do_no_harm",
        "a thread-local device is dropped under the loader lock, where threads cannot end",
    ),
];

/// Type-checks the workspace for all platforms, or runs `cargo check` with these arguments for each of them.
pub fn types(root: &Path, arguments: &[&str]) -> Result<()> {
    let all = ["--workspace", "--lib", "--bins", WITHOUT_PYTHON[0], WITHOUT_PYTHON[1]];
    let arguments = if arguments.is_empty() { &all[..] } else { arguments };
    CHECKED.into_iter().try_for_each(|target| {
        step(target, || run(cargo(root, "check", target)?.env("RUSTFLAGS", "-Dwarnings").args(arguments)))
    })
}

/// Runs the tests under Wine, or `cargo test` with these arguments.
pub fn windows(root: &Path, arguments: &[&str]) -> Result<()> {
    PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).for_each(|(_, package)| install(package));
    let mut tests = cargo(root, "test", WINDOWS)?;
    let prefix = wine_prefix(root)?;
    // MinGW-w64's `fmaf` is not always correctly rounded; the processor's instruction is.
    tests.env("RUSTFLAGS", "-Ctarget-feature=+fma");
    tests.env("WINEPREFIX", prefix).env("WINEDEBUG", "-all");
    tests.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", WINE);
    tests.arg("--no-fail-fast");
    if arguments.is_empty() {
        tests.args(["--lib", "--bins"]);
        PACKAGES.iter().for_each(|package| _ = tests.args(["--package", package]));
        TESTS.iter().for_each(|program| _ = tests.args(["--test", program]));
    }
    tests.args(arguments);
    if !arguments.contains(&"--") {
        tests.arg("--");
    }
    LEFT_OUT.iter().for_each(|(name, _)| _ = tests.args(["--skip", name]));
    run(&mut tests)
}

/// Returns a cargo command that builds the standard library for a platform, too.
fn cargo(root: &Path, command: &str, target: &str) -> Result<Command> {
    let toolchain = find_device_toolchain().found.ok_or_else(|| Error::Missing {
        what: format!("there is no device toolchain, which compiles for {target}"),
        advice: "Run `cargo xtask setup`, then this again.".to_owned(),
    })?;
    let mut cargo = Command::new(&toolchain.cargo);
    cargo.current_dir(root).args([command, "-Zbuild-std", "--target", target]);
    cargo.env("RUSTC", &toolchain.rustc).env("RUSTC_BOOTSTRAP", "1").env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_TARGET_DIR", target_dir(root).join("platforms")).env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo.env("WARPSMITH_GPU_ARCHS", "none").env_remove("WARPSMITH_REQUIRE_GPU_IMAGE");
    Ok(cargo)
}

/// Returns the folder with Wine's Windows installation, which is created if it is missing.
fn wine_prefix(root: &Path) -> Result<PathBuf> {
    let prefix = target_dir(root).join("wine");
    let system = prefix.join("drive_c/windows/system32");
    let wine = |arguments: &[&str]| {
        let mut wine = Command::new(WINE);
        run(wine.env("WINEPREFIX", &prefix).env("WINEDEBUG", "-all").args(arguments))
    };
    let library = system.join("bcryptprimitives.dll");
    if library.exists() {
        return Ok(prefix);
    }
    fs::create_dir_all(&prefix).map_err(Error::file(&prefix))?;
    wine(&["wineboot", "--init"])?;
    // The standard library requires Windows 10.
    wine(&["reg", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f"])?;
    let source = prefix.join("random.c");
    fs::write(&source, RANDOM_NUMBERS).map_err(Error::file(&source))?;
    let mut compile = Command::new(PROGRAMS[0].0);
    run(compile.args(["-shared", "-O1", "-o"]).arg(&library).arg(&source).arg("-ladvapi32"))?;
    Ok(prefix)
}
