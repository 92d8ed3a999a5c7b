//! `cargo xtask COMMAND`: the repository's tasks that require more than a plain Cargo command.
//!
//! | module | job |
//! | --- | --- |
//! | [`setup`] | installs missing tools, as `warpsmith setup` does |
//! | [`quickstart`] | runs the set-up, a release build and the main benchmark |
//! | [`check`] | runs all checks that a change must pass (`cargo xtask test`, `.ci/run`) |
//! | [`check_kernels`] | runs this repository's kernels and the corpus of seeded bugs under `warpsmith check` |
//! | [`documentation`] | builds the documentation and runs its examples |
//! | [`difftest`] | compares random kernels as plain Rust, on the emulated device and on a GPU |
//! | [`reference`], [`environment`] | checks that the reference pages list the names in the code |
//! | [`quick`] | runs the checks that a change affects (`cargo xtask test --quick`) |
//! | [`layers`] | checks that no module imports upwards |
//! | [`book`], [`markdown`] | checks the pages of the guide |
//! | [`benchmarks`] | checks that measurements are on separate pages and state their provenance |
//! | [`fuzz`] | runs the fuzz targets |
//! | [`aarch64`] | builds the tests for aarch64 Linux and runs them under QEMU |
//! | [`tsan`] | runs the host side under ThreadSanitizer |
//! | [`words`] | checks that doc comments begin with a noun or a verb, that names and texts use standard terms, and that sentences are short |
//! | [`browser`] | finds or installs the browser in which the page tests run |
//! | [`bundle`] | packs tests, benches and the command into one folder, for a GPU machine without Rust |
//! | [`python`] | builds, installs and tests the Python wheel and a package of `warpsmith new --python` |
//! | [`licenses`] | checks that `deny.toml` allows the dependencies' licenses |
//! | [`neighbors`] | tests the example that exchanges memory with candle and cudarc |
//! | [`minimal`] | checks that the minimum versions in the manifests are not too low |
//! | [`package`] | tests the packages as published, and a user's project that depends on them |
//! | [`platforms`] | runs the tests for Windows under Wine; type-checks for Windows and macOS |
//! | [`process`] | runs other programs and prints each command |
//!
//! Exit codes: 0 for success, 1 for a failure, and 2 for incorrect usage or for a missing tool that you must install
//! yourself.

mod aarch64;
mod benchmarks;
mod book;
mod browser;
mod bundle;
mod check;
mod check_kernels;
mod difftest;
mod documentation;
mod environment;
mod error;
mod fuzz;
mod layers;
mod licenses;
mod markdown;
mod minimal;
mod neighbors;
mod package;
mod platforms;
mod process;
mod python;
mod quick;
mod quickstart;
mod reference;
mod setup;
mod tsan;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup        install the missing tools that compile GPU kernels
  quickstart   setup, build, and run the main benchmark on the best device
  test         the complete check: setup, format, lint, tests, documentation
  test --from STEP
               the steps of the complete check from STEP on, such as documentation
  test --quick format, lint and tests of changed packages; lint of their direct dependents
  check-kernels
               find data races and invalid memory accesses in the repository's kernels
  difftest [--seed S] [--count N]
               compare random kernels on the emulated device with plain Rust
  layers       fail on imports from a higher layer and on large import cycles
  book         check the guide in docs/
  fuzz [S]     run every fuzz target for S seconds, 60 by default
  tsan         run the host's ordering and allocator tests under ThreadSanitizer
  aarch64 [ARGUMENTS]
               build the tests for aarch64 Linux and run them under QEMU: all, or those of `cargo test ARGUMENTS`
  licenses     fail on dependencies whose license deny.toml does not allow
  neighbors    test the example that exchanges memory with candle and cudarc, on the emulated device
  minimal      check the workspace with the lowest dependency versions that the manifests allow
  package      build and verify the published packages with their GPU image, install the command from them, and
               build, test and run a project from `warpsmith new` with the packages alone
  docs-rs      build the documentation of the published packages as docs.rs does
  windows [ARGUMENT…]
               run the tests for Windows under Wine, or `cargo test` with these arguments
  types [ARGUMENT…]
               type-check the workspace for Windows (MSVC) and macOS, or `cargo check` with these arguments
  python [--torch]
               build, install and test the Python wheel and a package from `warpsmith new --python`, with NumPy and,
               if --torch is given, with PyTorch (downloads about 3 GB)
  bundle [NAME…]
               pack tests, benches and the command into target/bundle/ for a GPU machine without Rust; only those
               of the packages NAME, such as ops, tensor, runtime
";

fn main() -> ExitCode {
    // In some steps, Cargo starts this program in place of rustc or rustdoc.
    if let Some(code) = warpsmith_check::wrapper() {
        return code;
    }
    if let Some(code) = documentation::stand_in() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let result = match arguments.as_slice() {
        ["setup"] => setup::setup(&root).inspect(|()| setup::debugger()),
        ["quickstart"] => quickstart::quickstart(&root),
        ["test"] => check::check(&root, None),
        ["test", "--from", step] => check::check(&root, Some(step)),
        ["test", "--quick"] => quick::quick(&root),
        ["check-kernels"] => check_kernels::check_kernels(&root),
        ["difftest", arguments @ ..] => difftest::difftest(&root, arguments),
        ["layers"] => layers::check(&root),
        ["book"] => book::check(&root).and_then(|()| reference::check(&root)),
        ["fuzz"] => fuzz::fuzz(&root, None),
        ["fuzz", seconds] => fuzz::fuzz(&root, Some(seconds)),
        ["aarch64", arguments @ ..] => aarch64::aarch64(&root, arguments),
        ["tsan"] => tsan::tsan(&root),
        ["licenses"] => licenses::check(&root),
        ["minimal"] => minimal::check(&root),
        ["neighbors"] => neighbors::check(&root),
        ["windows", arguments @ ..] => platforms::windows(&root, arguments),
        ["types", arguments @ ..] => platforms::types(&root, arguments),
        ["package"] => package::package(&root),
        ["docs-rs"] => documentation::docs_rs(&root),
        ["python"] => python::python(&root, false),
        ["python", "--torch"] => python::python(&root, true),
        ["bundle", names @ ..] => bundle::bundle(&root, names),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Returns the repository's folder, which is the parent of this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflows_pin_actions_and_use_the_msrv() {
        let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
        let manifest = read("Cargo.toml");
        let msrv =
            manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
        let image = format!("rust:{msrv}-bookworm");
        assert!(read(".devcontainer/devcontainer.json").contains(&image), "{image}");
        for file in [".github/workflows/ci.yml", ".github/workflows/release.yml"] {
            let text = read(file);
            assert!(text.contains(&image), "{file}: {image}");
            let actions: Vec<&str> =
                text.lines().filter_map(|line| line.trim().strip_prefix("- uses: ")).collect();
            assert!(!actions.is_empty(), "{file}");
            for action in actions {
                let commit =
                    action.split_once('@').map_or("", |(_, rest)| rest.split(' ').next().unwrap_or(rest));
                let is_pinned = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_pinned, "{file}: {action} is not pinned by a commit hash");
            }
        }
    }
}
