//! `cargo xtask aarch64`: builds the workspace's tests for aarch64 Linux, and runs them on this machine under QEMU.
//!
//! The device toolchain compiles the tests, because Debian provides its standard library for aarch64. That library is
//! unpacked into the user's data folder; the linker and QEMU are Debian packages. The kernel starts QEMU for each
//! aarch64 program, including the programs that tests start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_builder::toolchain::{DeviceToolchain, data_folder, find_device_toolchain};

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{ask, run};
use crate::setup::install;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Debian packages: the linker, the C library, and QEMU.
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"];
/// The C library's loader.
const LOADER: &str = "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1";
/// Folder in which the kernel registers interpreters for foreign programs.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";
/// Registration of QEMU for aarch64 programs, in the package `qemu-user-static`.
const REGISTRATION: &str = "/usr/lib/binfmt.d/qemu-aarch64.conf";

/// Test programs of the complete check. They take about two minutes.
const QUICK: [&str; 15] = [
    "--package",
    "warpsmith-emulator",
    "--package",
    "warpsmith-emulated",
    "--package",
    "warpsmith-driver",
    "--package",
    "warpsmith-runtime",
    "--lib",
    "--test",
    "emulator",
    "--test",
    "driver",
    "--test",
    "store",
];
/// Packages whose tests run compilers and build programs for this machine, or link Python, which would have to be
/// installed for aarch64. The builder's unit tests run separately.
const EXCLUDED: [&str; 4] = ["xtask", "warpsmith-builder", "warpsmith-cli", "warpsmith-python"];
/// Tests that are not run under QEMU, because they would fail for reasons that do not concern aarch64.
const LEFT_OUT: [&str; 15] = [
    // These tests load a library that the compiler builds for this machine.
    "tool::libcupti_is_refused",
    "tool::tools_",
    // QEMU is not informed by the kernel that a program has more privileges than its user.
    "tool::programs_with_more_rights",
    // These tests limit the memory of a process to less than QEMU needs.
    "bombs::compressed_bombs",
    "bombs::damaged_files",
    "bombs::texts_have_a_budget",
    // These tests inspect the GPU image, which is not compiled.
    "ptx_facts::",
    "launch::stack::the_image_records_unknown_stacks",
    "launch::typed::every_form_gives_the_same_result",
    // QEMU starts a missing program, and reports the error in the child process.
    "cargo::tests::a_compiler_that_is_not_there_is_named",
    "tools::tests::a_failure_has_the_tools_words_and_name",
    // These tests measure memory, and QEMU 7.2 retains 280 KiB of each finished thread.
    "lives::communicators_of_threads_leave_nothing",
    "processes::communicators_of_processes_leave_nothing",
    // Time limits.
    "devices_are_warmed_up_by_device_time",
    "a_million_events_export_in_seconds",
];

/// Runs the tests of the whole workspace, or `cargo test` with these arguments.
pub fn aarch64(root: &Path, arguments: &[&str]) -> Result<()> {
    let target = Target::new()?;
    if !arguments.is_empty() {
        return target.test(root, arguments);
    }
    let excluded = EXCLUDED.iter().flat_map(|package| ["--exclude", package]);
    let all: Vec<&str> = ["--workspace", "--lib", "--bins", "--tests"].into_iter().chain(excluded).collect();
    target.test(root, &all)?;
    target.test(root, &["--package", "warpsmith-builder", "--lib"])
}

/// Runs the tests that belong to the complete check.
pub fn quick(root: &Path) -> Result<()> {
    Target::new()?.test(root, &QUICK)
}

/// Everything that builds and runs programs for aarch64.
struct Target {
    toolchain: DeviceToolchain,
    /// Arguments for cargo. Unlike variables, programs that tests start do not inherit them.
    settings: Vec<String>,
}

impl Target {
    /// Installs what is missing.
    fn new() -> Result<Self> {
        let toolchain = find_device_toolchain().found.ok_or_else(|| Error::Missing {
            what: "there is no device toolchain, which compiles for aarch64".to_owned(),
            advice: "Run `cargo xtask setup`, then this again.".to_owned(),
        })?;
        PACKAGES.into_iter().filter(|package| !is_installed(package)).for_each(install);
        start_qemu_for_programs()?;
        let libraries = Path::new(LOADER).parent().unwrap_or(Path::new("/")).display();
        let mut flags = vec![format!("-Clink-arg=-Wl,--dynamic-linker={LOADER},-rpath,{libraries}")];
        if let Some(sysroot) = sysroot(&toolchain)? {
            flags.push(format!("--sysroot={}", sysroot.display()));
        }
        let options = [
            format!("target.{TARGET}.linker={LINKER:?}"),
            format!("target.{TARGET}.rustflags={flags:?}"),
            format!("target.{TARGET}.rustdocflags={flags:?}"),
            // Optimized dependencies, above all those of macros, take longer to compile than they save.
            "profile.dev.package.\"*\".opt-level=0".to_owned(),
        ];
        let options = options.into_iter().flat_map(|option| ["--config".to_owned(), option]);
        let settings = ["--target".to_owned(), TARGET.to_owned()].into_iter().chain(options).collect();
        Ok(Self { toolchain, settings })
    }

    fn test(&self, root: &Path, arguments: &[&str]) -> Result<()> {
        let mut tests = Command::new(&self.toolchain.cargo);
        tests.current_dir(root).args(["test", "--no-fail-fast"]).args(&self.settings).args(arguments);
        if !arguments.contains(&"--") {
            tests.arg("--");
        }
        LEFT_OUT.iter().for_each(|name| _ = tests.args(["--skip", name]));
        tests.env("RUSTC", &self.toolchain.rustc).env("WARPSMITH_GPU_ARCHS", "none");
        tests.env_remove("WARPSMITH_REQUIRE_GPU_IMAGE").env("CARGO_INCREMENTAL", "0");
        run(tests.env("CARGO_TARGET_DIR", target_dir(root).join("aarch64")))
    }
}

fn is_installed(package: &str) -> bool {
    let query = ["--show", "--showformat=${db:Status-Status}", package];
    ask(Command::new("dpkg-query").args(query)).as_deref() == Some("installed")
}

/// Makes the kernel run aarch64 programs. If it does not yet, registers QEMU, until the machine is restarted.
fn start_qemu_for_programs() -> Result<()> {
    let runs = || ask(Command::new(LOADER).arg("--version")).is_some();
    if runs() {
        return Ok(());
    }
    let register = Path::new(BINFMT).join("register");
    if !register.exists() {
        // The test below reports a failure.
        let _ = ask(Command::new("mount").args(["-t", "binfmt_misc", "none", BINFMT]));
    }
    let _ = fs::read(REGISTRATION).and_then(|text| fs::write(&register, text));
    if runs() {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("the kernel cannot run aarch64 programs: `{LOADER} --version` fails"),
        advice: format!(
            "As root on Debian, run `apt-get install {}` and `cat {REGISTRATION} > {}`. A container needs the latter on \
             its host.",
            PACKAGES.join(" "),
            register.display()
        ),
    })
}

/// Returns the folder with the standard library for aarch64; `None` if the toolchain itself contains one.
fn sysroot(toolchain: &DeviceToolchain) -> Result<Option<PathBuf>> {
    let query = ["--print", "target-libdir", "--target", TARGET];
    if ask(Command::new(&toolchain.rustc).args(query)).is_some_and(|folder| Path::new(&folder).exists()) {
        return Ok(None);
    }
    let missing = |what: String| Error::Missing {
        what,
        advice: format!(
            "With rustup, run `rustup target add {TARGET}` for the device toolchain. On Debian, install the newest \
             `rustc-web`, and run this again."
        ),
    };
    let package = "libstd-rust-web-dev";
    let query = ["--show", "--showformat=${Version}", package];
    let version = ask(Command::new("dpkg-query").args(query));
    let version = version.ok_or_else(|| {
        missing(format!("{} has no standard library for {TARGET}", toolchain.rustc.display()))
    })?;
    let data = data_folder().ok_or(Error::Setup(warpsmith_builder::setup::SetupError::NoDataFolder))?;
    let folder = data.join("aarch64").join(&version);
    if !folder.exists() {
        let temporary = data.join("aarch64/part");
        download(&format!("{package}:arm64={version}"), &temporary)
            .map_err(|error| missing(format!("{package} {version} for arm64 cannot be had: {error}")))?;
        fs::rename(temporary.join("unpacked"), &folder).map_err(Error::file(&folder))?;
        fs::remove_dir_all(&temporary).map_err(Error::file(&temporary))?;
    }
    Ok(Some(folder.join("usr")))
}

/// Downloads a Debian package and unpacks it into `unpacked` in `folder`. apt's own lists of packages are not changed.
fn download(package: &str, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::file(folder))?;
    }
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial")).map_err(Error::file(&lists))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(folder).args(["--quiet=2", "-o", "APT::Architectures::=arm64"]);
        command.arg("-o").arg(format!("Dir::State::lists={}/", lists.display()));
        run(command.arg("-o").arg(format!("Dir::Cache={}/", folder.display())).args(arguments))
    };
    apt(&["update"])?;
    apt(&["download", package])?;
    let files = fs::read_dir(folder).map_err(Error::file(folder))?;
    let mut archives =
        files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "deb"));
    let archive =
        archives.next().ok_or_else(|| Error::Unexpected(format!("apt-get stored no file of {package}")))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(folder.join("unpacked")))
}
