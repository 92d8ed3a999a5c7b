//! `cargo xtask tsan`: runs the host side's multithreaded tests on the emulated device under ThreadSanitizer.
//!
//! The whole program is instrumented, including the standard library. Otherwise ThreadSanitizer would not see the
//! library's locks and reference counts, and would report races. The device toolchain compiles the program, because it
//! has the source of the standard library. The device toolchain lacks the sanitizer's runtime, so the runtime comes
//! from a rustup toolchain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_builder::toolchain::find_device_toolchain;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{ask, run, step};

/// Platform for which the sanitizer's runtime is searched. Other platforms are not supported.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Test programs to run, by package and name. The emulator's own tests are excluded, because they require more stacks
/// than ThreadSanitizer can map.
const PROGRAMS: [(&str, &str); 2] = [("warpsmith-emulated", "driver"), ("warpsmith-runtime", "emulated")];
/// Tests whose names contain one of these texts are skipped. Some of these tests fork, count the process's allocations,
/// or race intentionally (tests of the emulated device's own checker). Others run for a long time on one thread, or
/// expect a thread to finish sooner than it does under ThreadSanitizer.
const LEFT_OUT: [&str; 7] = [
    "no_heap",
    "fork",
    "races::",
    "corpora::",
    "allocator_model::",
    "loom_streams::",
    "a_background_thread_frees_blocks",
];
/// ThreadSanitizer's options: stop at the first report, which names both locations.
const OPTIONS: &str = "halt_on_error=1 second_deadlock_stack=1";

/// Builds and runs the tests.
pub fn tsan(root: &Path) -> Result<()> {
    let toolchain = find_device_toolchain().found.ok_or_else(|| Error::Missing {
        what: "the device toolchain, whose standard library is instrumented, was not found".to_owned(),
        advice: "Run `cargo xtask setup`, then run this command again.".to_owned(),
    })?;
    let runtime = runtime().ok_or_else(|| Error::Missing {
        what: format!("librustc-*_rt.tsan.a for {TARGET} was not found"),
        advice: "Install a toolchain with rustup, which contains this file.".to_owned(),
    })?;
    // The entire sanitizer runtime is linked before everything else, as its own toolchain links it.
    let link = format!("-Zpre-link-args=-Wl,--whole-archive {} -Wl,--no-whole-archive", runtime.display());
    let flags = [
        "-Zsanitizer=thread",
        "-Zexternal-clangrt",
        "-Cforce-frame-pointers=yes",
        // With this option, the emulator reports to ThreadSanitizer which coroutine runs.
        "--cfg=warpsmith_tsan",
        &link,
    ];
    step("ThreadSanitizer", || {
        let mut tests = Command::new(&toolchain.cargo);
        tests.current_dir(root).args(["test", "--no-fail-fast", "--target", TARGET]);
        tests.arg("-Zbuild-std=std,panic_abort,test");
        for (package, program) in PROGRAMS {
            tests.args(["--package", package, "--test", program]);
        }
        tests
            .env("RUSTC", &toolchain.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        tests.env("CARGO_TARGET_DIR", target_dir(root).join("tsan")).env("TSAN_OPTIONS", OPTIONS);
        tests.arg("--");
        LEFT_OUT.iter().for_each(|name| _ = tests.args(["--skip", name]));
        run(&mut tests)
    })
}

/// Returns ThreadSanitizer's runtime from the toolchain that compiles the host side.
fn runtime() -> Option<PathBuf> {
    let libraries = ask(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    let files = fs::read_dir(libraries).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_runtime = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("librustc-") && name.ends_with("_rt.tsan.a")
    };
    files.into_iter().find(is_runtime)
}
