//! `warpsmith check` on a project with faulty kernels; each test runs some of the project's tests. It is built once, in
//! a folder that persists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use super::shared::{command, folder};

const MANIFEST: &str = r#"
[package]
name = "faulty"
version = "0.1.0"
edition = "2024"

[lib]
test = false
doctest = false

[dependencies]
warpsmith-gpu-std = { path = "REPOSITORY/gpu-std" }
warpsmith-emulator = { path = "REPOSITORY/emulator" }

[profile.dev.package.warpsmith-emulator]
opt-level = 1

[workspace]
"#;

/// Kernels of the project. Tests find line numbers by the comments.
const KERNELS: &str = r#"//! Kernels.
use gpu_std::prelude::*;

#[kernel]
pub unsafe fn neighbors(out: *mut u32) {
    let tile = shared_array![u32; 64];
    let own = thread::linear_in_block() as usize;
    unsafe {
        tile.add(own).write(0);
        thread::sync_threads();
        tile.add(own).write(own as u32); // write
        out.add(own).write(tile.add(own ^ 1).read()); // read
    }
}

#[kernel]
pub unsafe fn two_faults(out: *mut u32) {
    unsafe {
        out.write(1); // first
        out.add(1).write(2); // second
    }
}

#[kernel]
pub unsafe fn allowed(out: *mut u32) {
    // warpsmith-check: allow every thread writes the same
    unsafe { out.write(1) };
}

#[kernel]
pub unsafe fn allowed_without_reason(out: *mut u32) {
    // warpsmith-check: allow
    unsafe { out.write(1) };
}

#[kernel]
pub unsafe fn clean(out: *mut u32) {
    unsafe { out.add(thread::linear_in_block() as usize).write(1) };
}

#[kernel]
pub unsafe fn many(out: *mut u32) {
    unsafe {
MANY
    }
}
"#;

const TESTS: &str = r#"//! One test for each kernel.
use std::ffi::c_void;

use gpu_std::Kernel;
use warpsmith_emulator::{Launch, Order};

fn launch<K: Kernel>() {
    let mut memory = vec![0u32; 4096];
    let pointer = memory.as_mut_ptr() as u64;
    let args = [(&raw const pointer).cast::<c_void>()];
    let launch = Launch {
        kernel: K::spec(),
        grid: [1; 3],
        block: [64, 1, 1],
        shared_bytes: 0,
        cluster: [1; 3],
        cooperative: false,
        args: &args,
        order: Order::Sequential,
    };
    println!("a line of the program");
    let result = unsafe { warpsmith_emulator::run(&launch) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    if let Err(fault) = result {
        panic!("{fault}");
    }
}

macro_rules! tests {
    ($($kernel:ident)*) => { $(#[test] fn $kernel() { launch::<faulty::$kernel>() })* };
}
tests!(neighbors two_faults allowed allowed_without_reason clean many);
"#;

fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faulty");
        let many: Vec<String> = (0..1500).map(|i| format!("        out.add({i}).write({i});")).collect();
        for (file, text) in [
            ("Cargo.toml", MANIFEST.replace("REPOSITORY", repository.to_str().unwrap())),
            ("Cargo.lock", fs::read_to_string(repository.join("Cargo.lock")).unwrap()),
            ("src/lib.rs", KERNELS.replace("MANY", &many.join("\n"))),
            ("tests/kernels.rs", TESTS.to_owned()),
        ] {
            let file = project.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            // Cargo rebuilds files that are newer.
            let is_lock = file.ends_with("Cargo.lock") && file.exists();
            if !is_lock && fs::read_to_string(&file).ok().as_deref() != Some(&text) {
                fs::write(file, text).unwrap();
            }
        }
        project
    })
}

/// Checks some tests of the project.
fn check(options: &[&str], tests: &[&str]) -> Output {
    let cargo = ["test", "--quiet", "--test", "kernels", "--", "--exact"];
    let mut command = command(project(), &[&["check"], options, &cargo, tests].concat());
    command.env("CARGO_TARGET_DIR", project().join("target")).env("CARGO_NET_OFFLINE", "true");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the line of the kernels that ends in a comment.
fn line(comment: &str) -> u64 {
    1 + KERNELS.lines().position(|line| line.ends_with(comment)).unwrap() as u64
}

fn findings(output: &Output) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["ok"], output.status.success());
    document["findings"].as_array().unwrap().clone()
}

#[test]
fn a_race_is_listed_with_both_lines() {
    let output = check(&[], &["neighbors"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let list = said.rsplit_once("\n\nkernel `neighbors`: data race").unwrap().1;
    for comment in ["// write", "// read"] {
        assert!(list.contains(&format!("at src/lib.rs:{} in neighbors", line(comment))), "{list}");
    }
    assert!(
        list.contains("sync_threads") && list.ends_with("warpsmith check: 1 finding in 1 run\n"),
        "{list}"
    );
    // The test fails with it too.
    assert!(text(&output.stdout).contains("kernel `neighbors`: data race"));
}

#[test]
fn clean_kernels_pass_with_all_seeds() {
    let output = check(&["--seeds", "2"], &["clean"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.ends_with("warpsmith check: nothing found in 3 runs\n"), "{said}");
}

#[test]
fn json_is_one_document_without_the_program() {
    let output = check(&["--json"], &["neighbors"]);
    assert_eq!(output.status.code(), Some(1));
    let found = findings(&output);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["kind"], &found[0]["kernel"]), (&"race".into(), &"neighbors".into()));
    let lines: Vec<u64> = ["access", "other"]
        .map(|access| {
            let access = &found[0][access];
            access["frames"][access["place"].as_u64().unwrap() as usize]["line"].as_u64().unwrap()
        })
        .into();
    assert!(lines.contains(&line("// write")) && lines.contains(&line("// read")), "{lines:?}");
    assert!(text(&output.stderr).contains("a line of the program"));

    let output = check(&["--json"], &["clean"]);
    assert!(output.status.success() && findings(&output).is_empty());
}

/// Fields that the schema of SARIF 2.1.0 requires, and those that code hosts require in addition.
#[test]
fn sarif_has_what_its_schema_requires() {
    let folder = folder();
    let file = folder.join("findings.sarif");
    let output = check(&["--sarif", file.to_str().unwrap()], &["neighbors", "two_faults"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    fs::remove_dir_all(folder).unwrap();
    assert_eq!(document["version"], "2.1.0");
    let run = &document["runs"][0];
    assert!(run["tool"]["driver"]["name"].is_string());
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "{result}");
        assert_eq!(result["level"], "error");
        assert!(result["message"]["text"].as_str().unwrap().contains("data race"));
        for location in [&result["locations"][0], &result["relatedLocations"][0]] {
            let place = &location["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "src/lib.rs", "{result}");
            assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
        }
        assert!(result["relatedLocations"][0]["message"]["text"].is_string());
    }
}

#[test]
fn a_comment_accepts_only_with_a_reason() {
    assert!(check(&[], &["allowed"]).status.success());
    let output = check(&[], &["allowed_without_reason"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("1 finding"));
}

#[test]
fn the_first_finding_can_be_the_last() {
    assert_eq!(findings(&check(&["--json"], &["two_faults"])).len(), 2);
    let found = findings(&check(&["--json", "--first"], &["two_faults"]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["access"]["frames"][0]["line"], line("// first"));
}

#[test]
fn thousands_of_findings_are_bounded() {
    let output = check(&["--json"], &["many"]);
    assert_eq!((output.status.code(), findings(&output).len()), (Some(1), 100));
    let output = check(&["--json", "--limit", "7"], &["many"]);
    assert_eq!(findings(&output).len(), 7);
    let said = text(&output.stderr);
    let more = said.split_once(" more").unwrap().0.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    assert!(more.parse::<u32>().unwrap() > 1000, "{said}");
    assert!(said.len() < 16 << 10, "{} bytes", said.len());
    let peak = said.split_once("VmHWM:").unwrap().1.split_whitespace().next().unwrap();
    assert!(peak.parse::<u64>().unwrap() < 200 << 10, "{peak} KiB");
}

#[test]
fn a_program_without_symbols_says_so() {
    check(&[], &["clean"]);
    let built = project().join("target/check/debug/deps");
    let is_program = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("kernels-") && path.extension().is_none()
    };
    let programs = fs::read_dir(built).unwrap().map(|entry| entry.unwrap().path()).filter(is_program);
    let newest = programs.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let folder = folder();
    let stripped = folder.join("stripped");
    assert!(Command::new("strip").arg("-o").args([&stripped, &newest]).status().unwrap().success());
    let mut command = Command::new(&stripped);
    let output = command.args(["--exact", "neighbors"]).env("WARPSMITH_CHECK", "1").output().unwrap();
    fs::remove_dir_all(folder).unwrap();
    assert!(!output.status.success());
    let said = text(&output.stdout);
    assert!(said.contains("kernel `neighbors`: data race"), "{said}");
    assert!(said.contains("no line information"), "{said}");
}

#[test]
fn what_cargo_refuses_is_no_finding() {
    let output = command(project(), &["check", "test", "--test", "none"])
        .env("CARGO_TARGET_DIR", project().join("target"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no test target named `none`"), "{said}");
}
