//! `cargo xtask test --quick`: checks the format, layers and lints, and runs the CPU tests, of everything that has
//! changed since the main branch, committed or not. Also lints the libraries and programs that directly depend on
//! changed packages. Skips documentation, browser tests, examples, and packages outside the workspace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::book;
use crate::check;
use crate::error::{Error, Result};
use crate::layers;
use crate::process::{ask, cargo, metadata, run, step};
use crate::reference;
use crate::words;

/// Candidate names for the main branch. The first name that exists is used.
const MAIN: [&str; 4] = ["origin/main", "main", "origin/master", "master"];

/// Checks everything that was changed.
pub fn quick(root: &Path) -> Result<()> {
    let start = Instant::now();
    let packages = packages(root)?;
    let files = changed_files(root)?;
    let changed = owners(&files, &packages);
    let dependents = dependents(&changed, &packages);
    step("words", || words::check(root))?;
    step("guide", || book::check(root).and_then(|()| reference::check(root)))?;
    if changed.is_empty() {
        println!("No compiled file has changed.");
        return Ok(());
    }
    let names = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    println!("changed: {}; checked with them: {}", names(&changed), names(&dependents));
    let linted = |verb: &[&str], packages: &BTreeSet<&str>, rest: &[&str]| {
        let packages = packages.iter().flat_map(|package| ["--package", package]);
        let arguments: Vec<&str> = verb.iter().copied().chain(packages).chain(rest.iter().copied()).collect();
        check::linted(root, &arguments)
    };
    step("format", || run(&mut cargo(root, ["fmt", "--all", "--check"])))?;
    step("layers", || layers::check(root))?;
    step("tests", || {
        run(&mut linted(&["test", "--no-fail-fast"], &changed, &["--lib", "--bins", "--tests"]))
    })?;
    if !dependents.is_empty() {
        step("dependents", || run(&mut linted(&["check"], &dependents, &["--lib", "--bins"])))?;
    }
    println!("Passed in {:.0} s. `cargo xtask test` is the whole check.", start.elapsed().as_secs_f64());
    Ok(())
}

/// A package of the workspace.
#[derive(Debug)]
struct Package {
    name: String,
    /// Folder in the repository; empty for the root package.
    folder: PathBuf,
    /// Workspace packages on which this package depends, including dependencies of its tests.
    uses: Vec<String>,
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    Ok(packages_of(&metadata(root, &["--no-deps"])?, root))
}

fn packages_of(metadata: &Value, root: &Path) -> Vec<Package> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: &Value| {
        let folder = PathBuf::from(text(&package["manifest_path"])).parent().map(Path::to_path_buf)?;
        let uses = all(&package["dependencies"]);
        let uses = uses.iter().filter(|used| !used["path"].is_null()).map(|used| text(&used["name"]));
        let folder = folder.strip_prefix(root).ok()?.to_path_buf();
        Some(Package { name: text(&package["name"]), folder, uses: uses.collect() })
    };
    all(&metadata["packages"]).iter().filter_map(package).collect()
}

/// Returns the files that differ from the merge base with the main branch, and untracked files.
fn changed_files(root: &Path) -> Result<Vec<PathBuf>> {
    let git = |arguments: &[&str]| ask(Command::new("git").current_dir(root).args(arguments));
    let base = MAIN.iter().find_map(|branch| git(&["merge-base", "HEAD", branch]));
    let base = base.unwrap_or_else(|| "HEAD".to_owned());
    let differ = git(&["diff", "--name-only", &base]);
    let new = git(&["ls-files", "--others", "--exclude-standard"]);
    match (differ, new) {
        (Some(differ), Some(new)) => Ok(differ.lines().chain(new.lines()).map(PathBuf::from).collect()),
        _ => Err(Error::Missing {
            what: "git could not list the changed files".to_owned(),
            advice: "Run this in a clone of the repository, or `cargo xtask test` anywhere.".to_owned(),
        }),
    }
}

/// Returns the packages to which the files belong. The innermost package folder takes precedence. Prose files do not
/// belong to a package.
fn owners<'a>(files: &[PathBuf], packages: &'a [Package]) -> BTreeSet<&'a str> {
    let is_prose = |file: &Path| file.extension().is_some_and(|extension| extension == "md");
    let owner = |file: &PathBuf| {
        let around = packages.iter().filter(|package| file.starts_with(&package.folder));
        let owner = around.max_by_key(|package| package.folder.components().count())?;
        // The root package has a few folders of its own. The rest of the repository does not belong to a package.
        let first = file.components().next()?.as_os_str().to_str()?;
        let is_roots = ["src", "tests", "benches", "examples", "build.rs", "Cargo.toml"].contains(&first);
        (owner.folder != Path::new("") || is_roots).then_some(owner.name.as_str())
    };
    files.iter().filter(|file| !is_prose(file)).filter_map(owner).collect()
}

/// Returns the packages that directly depend on one of these packages.
fn dependents<'a>(changed: &BTreeSet<&str>, packages: &'a [Package]) -> BTreeSet<&'a str> {
    let uses = |package: &&Package| package.uses.iter().any(|used| changed.contains(used.as_str()));
    let others = packages.iter().filter(|package| !changed.contains(package.name.as_str()));
    others.filter(uses).map(|package| package.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Package> {
        let package = |folder: &str, name: &str, uses: &[&str]| {
            let uses: Vec<Value> =
                uses.iter().map(|used| serde_json::json!({ "name": used, "path": "/r" })).collect();
            serde_json::json!({ "name": name, "manifest_path": format!("/r/{folder}Cargo.toml"), "dependencies": uses })
        };
        let packages = [
            package("", "facade", &["runtime", "tuner"]),
            package("runtime/", "runtime", &[]),
            package("runtime/driver/", "driver", &[]),
            package("tuner/", "tuner", &["runtime"]),
            package("cli/", "cli", &["facade"]),
        ];
        packages_of(&serde_json::json!({ "packages": packages }), Path::new("/r"))
    }

    #[test]
    fn files_belong_to_the_innermost_package() {
        let all = all();
        let of = |files: &[&str]| -> Vec<String> {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            owners(&files, &all).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(of(&["runtime/src/lib.rs", "runtime/driver/src/lib.rs"]), ["driver", "runtime"]);
        assert_eq!(of(&["src/lib.rs", "cli/Cargo.toml"]), ["cli", "facade"]);
        assert!(
            of(&["README.md", "docs/a.png", "fuzz/fuzz_targets/a.rs", "tuner/README.md", "Cargo.lock"])
                .is_empty()
        );
    }

    #[test]
    fn only_direct_dependents_are_checked_too() {
        let all = all();
        let of = |changed: &[&str]| {
            dependents(&changed.iter().copied().collect(), &all).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&["runtime"]), ["facade", "tuner"]);
        assert_eq!(of(&["runtime", "tuner"]), ["facade"]);
        assert_eq!(of(&["cli"]), Vec::<&str>::new());
    }
}
