//! Builds the documentation and runs its examples, reusing the artifacts of the tests. For the examples of each
//! library, Cargo runs this program in place of rustdoc. This program first makes rustdoc check the links and markup of
//! the same library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{beside_cargo, cargo, metadata, run};

/// Variable that passes the path of the real rustdoc to the stand-in.
const RUSTDOC: &str = "WARPSMITH_XTASK_RUSTDOC";
/// Variable that passes the folder for the pages to the stand-in.
const PAGES: &str = "WARPSMITH_XTASK_PAGES";

/// Runs `tests`, a `cargo test --doc` command. Treats rustdoc warnings as errors.
pub fn check(tests: &mut Command, pages: PathBuf) -> Result<()> {
    let rustdoc = beside_cargo("rustdoc").ok_or_else(|| Error::Missing {
        what: "rustdoc was not found".to_owned(),
        advice: "Install it with the toolchain.".to_owned(),
    })?;
    let own = std::env::current_exe().map_err(Error::file("the running program"))?;
    run(tests.env("RUSTDOC", own).env(RUSTDOC, rustdoc).env(PAGES, pages))
}

/// Builds the documentation of the published packages as docs.rs does: with `cfg(docsrs)` and unstable features, and
/// without network access and device toolchain. Checks that items name the features that enable them.
pub fn docs_rs(root: &Path) -> Result<()> {
    let metadata = metadata(root, &["--no-deps"])?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let folder = target_dir(root).join("docs-rs");
    let mut doc = cargo(root, ["doc", "--no-deps", "--lib"]);
    for package in packages.iter().filter(|package| package["publish"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        doc.args(["--package", name]);
        let settings = &package["metadata"]["docs"]["rs"];
        let all = package["features"].as_object().filter(|_| settings["all-features"] == true);
        let some = settings["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for feature in all.into_iter().flat_map(|all| all.keys().map(String::as_str)).chain(some) {
            doc.arg("--features").arg(format!("{name}/{feature}"));
        }
    }
    doc.env("DOCS_RS", "1").env("CARGO_NET_OFFLINE", "true").env("RUSTC_BOOTSTRAP", "1");
    doc.env("RUSTDOCFLAGS", "--cfg=docsrs -Dwarnings");
    doc.env("WARPSMITH_DEVICE_RUSTC", "/no/such/rustc").env("CARGO_TARGET_DIR", &folder);
    run(&mut doc)?;
    let page = folder.join("doc/warpsmith/index.html");
    let text = std::fs::read_to_string(&page).map_err(Error::file(&page))?;
    if text.contains("Available on crate feature `") {
        return Ok(());
    }
    Err(Error::Unexpected(format!("{} does not name the features of its items", page.display())))
}

/// Performs rustdoc's work if Cargo has started this program in place of rustdoc.
pub fn stand_in() -> Option<ExitCode> {
    let [rustdoc, pages] = [RUSTDOC, PAGES].map(std::env::var_os);
    let rustdoc = rustdoc?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut calls = vec![(arguments.clone(), None)];
    if let (Some(pages), true) = (pages, arguments.iter().any(|argument| argument == "--test")) {
        // `cfg(docsrs)` enables unstable features.
        calls.insert(0, (of_pages(arguments, pages), Some(("RUSTC_BOOTSTRAP", "1"))));
    }
    for (call, variable) in calls {
        match Command::new(&rustdoc).args(call).envs(variable).status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Some(ExitCode::from(status.code().map_or(1, |code| code as u8))),
            Err(error) => {
                eprintln!("error: {} could not be started: {error}", rustdoc.display());
                return Some(ExitCode::FAILURE);
            }
        }
    }
    Some(ExitCode::SUCCESS)
}

/// Returns the rustdoc arguments that build the pages, as on docs.rs, of the library whose examples `arguments` run.
fn of_pages(arguments: Vec<OsString>, pages: OsString) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str().unwrap_or_default() {
            "--test" | "--no-run" | "--nocapture" => {}
            "--test-run-directory"
            | "--test-args"
            | "--test-runtool"
            | "--test-runtool-arg"
            | "--test-builder"
            | "--doctest-compilation-args" => _ = arguments.next(),
            _ => kept.push(argument),
        }
    }
    kept.extend(["-Dwarnings".into(), "--cfg=docsrs".into(), "--out-dir".into(), pages]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_of_the_same_library() {
        let arguments =
            ["--crate-name", "k", "--test", "src/lib.rs", "--test-run-directory", "/k", "-L", "deps"];
        let of = of_pages(arguments.map(OsString::from).to_vec(), "pages".into());
        let expected = [
            "--crate-name",
            "k",
            "src/lib.rs",
            "-L",
            "deps",
            "-Dwarnings",
            "--cfg=docsrs",
            "--out-dir",
            "pages",
        ];
        assert_eq!(of, expected.map(OsString::from));
    }
}
