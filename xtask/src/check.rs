//! Runs all checks that a change must pass. Stops at the first failure.
//!
//! All steps share one profile and one target folder, and incremental compilation is disabled. Clippy compiles the
//! tests, so that each crate is compiled once; see [`with_clippy`]. The documentation is built from the same libraries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::aarch64;
use crate::book;
use crate::browser;
use crate::check_kernels::check_device_library;
use crate::documentation;
use crate::error::{Error, Result};
use crate::layers;
use crate::licenses;
use crate::package;
use crate::process::{beside_cargo, cargo, run, step};
use crate::python;
use crate::reference;
use crate::setup::{debugger, setup};
use crate::words;

/// Examples of the root package. Each example checks its own result.
pub const EXAMPLES: [&str; 12] = [
    "saxpy",
    "reduce",
    "nbody",
    "overlap",
    "memory",
    "graphs",
    "mlp",
    "profile",
    "ranks",
    "data-parallel",
    "own-operations",
    "tensor-cores",
];
/// Packages in `examples/` whose programs check their own results.
pub const PROJECTS: [&str; 5] = ["softmax", "matmul", "regression", "lattice-boltzmann", "llm"];
/// Package outside the workspace that represents a user's own package.
pub const OWN_KERNELS: &str = "examples/own-kernels/Cargo.toml";

/// `-D warnings` in the form in which `cargo clippy` passes its arguments on.
const CLIPPY_ARGUMENTS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Runs the set-up, followed by the checks: format, lints, documentation, tests, examples, and a user's package. With
/// `from`, the checks start at this step.
pub fn check(root: &Path, from: Option<&str>) -> Result<()> {
    let workspace = |arguments: &[&str]| workspace(root, arguments);
    let linted = |arguments: &[&str]| linted(root, arguments);
    let format = || run(&mut workspace(&["fmt", "--all", "--check"]));
    // `--all-targets` would build the examples as tests, without executables to run.
    let build = || {
        run(&mut linted(&["test", "--workspace", "--no-run", "--no-fail-fast"]))?;
        run(&mut linted(&["test", "--workspace", "--benches", "--no-run", "--no-fail-fast"]))
    };
    let tests = || run(&mut linted(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]));
    let documentation = || {
        let mut examples = linted(&["test", "--workspace", "--no-fail-fast", "--doc"]);
        documentation::check(&mut examples, target_dir(root).join("doc"))
    };
    // `cargo test` excludes them, because it must pass on machines without a browser.
    let page = || {
        browser::ensure()?;
        let programs = ["test", "--workspace", "--test", "tuner", "--test", "trace"];
        run(linted(&programs).args(["--", "--ignored", "in_browser::"]))
    };
    // Kernels with full debug information and without optimization, as a user compiles them for a debugger.
    let in_debugger = || {
        debugger();
        let settings =
            ["opt-level=0", "debug=2"].map(|of| format!("profile.dev.package.warpsmith-gpu-std.{of}"));
        let program = ["test", "--package", "warpsmith-gpu-std", "--test", "emulated"];
        let mut test = linted(&program);
        test.args(settings.iter().flat_map(|setting| ["--config", setting]));
        run(test.args(["--", "--ignored", "in_gdb::"]))
    };
    let examples = || {
        EXAMPLES.iter().try_for_each(|name| run(Command::new(built_example(root, name)).arg("cpu")))?;
        let built = |name: &str| target_dir(root).join("debug").join(name);
        PROJECTS.iter().try_for_each(|name| run(Command::new(built(name)).arg("cpu")))?;
        [built_example(root, "data-parallel"), built("regression")].into_iter().try_for_each(|program| {
            run(Command::new(built("warpsmith")).args(["launch", "-n", "2"]).arg(program).arg("cpu"))
        })
    };
    // The user's workflow: `examples/own-kernels`, as `warpsmith new` writes it, built with the packages in their
    // published form.
    let scaffold = || package::scaffold(root, &["test", "--workspace", "--no-run"], with_clippy);
    let python = || python::python(root, false);
    // Detects features that depend on another feature without enabling it. GPU code is compiled only as far as rustc's
    // checks.
    let features = || {
        ["histogram", "rows", "scan", "sort", "emulated,command"].into_iter().try_for_each(|some| {
            let features = ["--no-default-features", "--features", some, "--", "-D", "warnings"];
            let mut clippy = workspace(&["clippy", "--package", "warpsmith", "--lib"]);
            clippy.env_remove("WARPSMITH_REQUIRE_GPU_IMAGE").env("WARPSMITH_GPU_ARCHS", "none");
            run(clippy.args(features))
        })
    };
    let layers = || layers::check(root);
    let licenses = || licenses::check(root);
    let words = || words::check(root);
    let guide = || book::check(root).and_then(|()| reference::check(root));
    let checked_kernels = || check_device_library(root).map(drop);
    let aarch64 = || aarch64::quick(root);
    let steps: [(&str, &dyn Fn() -> Result<()>); 16] = [
        ("format", &format),
        ("layers", &layers),
        ("licenses", &licenses),
        ("words", &words),
        ("guide", &guide),
        ("features", &features),
        ("build", &build),
        ("tests", &tests),
        ("documentation", &documentation),
        ("checked kernels", &checked_kernels),
        ("kernels in a debugger", &in_debugger),
        ("pages in a browser", &page),
        ("examples", &examples),
        ("project of a user", &scaffold),
        ("Python", &python),
        ("aarch64", &aarch64),
    ];

    let first = from.map_or(Some(0), |from| steps.iter().position(|(name, _)| *name == from));
    let steps = first.map(|first| &steps[first..]).ok_or_else(|| Error::Missing {
        what: format!("the check has no step `{}`", from.unwrap_or_default()),
        advice: format!("The steps are: {}.", steps.map(|(name, _)| name).join(", ")),
    })?;

    let start = Instant::now();
    setup(root)?;
    let mut times = vec![format!("setup {:.0} s", start.elapsed().as_secs_f64())];
    for &(name, work) in steps {
        let begun = Instant::now();
        step(name, work)?;
        times.push(format!("{name} {:.0} s", begun.elapsed().as_secs_f64()));
    }
    println!("Passed: {}; together {:.0} s.", times.join(", "), start.elapsed().as_secs_f64());
    Ok(())
}

fn workspace(root: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo(root, arguments);
    command.env("WARPSMITH_REQUIRE_GPU_IMAGE", "1").env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_TARGET_DIR", target_dir(root));
    command
}

/// Returns a cargo command that compiles the workspace's packages with clippy's compiler. The compiler is set with an
/// option, because programs that tests start do not inherit options. See [`with_clippy`].
pub fn linted(root: &Path, arguments: &[&str]) -> Command {
    let wrapper =
        beside_cargo("clippy-driver").map(|driver| format!("build.rustc-workspace-wrapper={driver:?}"));
    let option = wrapper.iter().flat_map(|wrapper| ["--config", wrapper]);
    let mut command = workspace(root, &option.chain(arguments.iter().copied()).collect::<Vec<_>>());
    command.env("CLIPPY_ARGS", CLIPPY_ARGUMENTS);
    command
}

/// Makes cargo compile the workspace's packages with clippy's compiler, in the same way as `cargo clippy -- -D
/// warnings`. The results are reused, and all compiled code is linted.
fn with_clippy(command: &mut Command) -> &mut Command {
    if let Some(driver) = beside_cargo("clippy-driver") {
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", CLIPPY_ARGUMENTS);
    }
    command
}

/// Returns cargo's target folder.
pub fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Returns the path of an example built by `cargo test`. `cargo run` would rebuild the example's dependencies with one
/// package's features instead of the workspace's.
fn built_example(root: &Path, name: &str) -> PathBuf {
    target_dir(root).join("debug/examples").join(name)
}
