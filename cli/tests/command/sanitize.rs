//! `warpsmith sanitize`, with a shell script in place of compute-sanitizer: it runs the program as that does, and
//! writes the report that the test gives it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::shared::{Run, command, folder};

/// Notes its arguments, writes the report to the file after `--log-file`, and runs what follows.
const SANITIZER: &str = r#"#!/bin/sh
echo "$@" >arguments
while [ "$1" != --log-file ]; do shift; done
cat report >"$2" 2>/dev/null
shift 2
exec "$@"
"#;
const CLEAN: &str = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n";
const ONE: &str = "========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at past_end+0xb0 in kernels/src/lib.rs:74
=========     by thread (63,0,0) in block (2,0,0)
=========     Access at 0x7f3b52000100 is out of bounds
=========
========= ERROR SUMMARY: 1 error
";

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// `warpsmith sanitize` in a folder whose `bin/` is all of its PATH, but for the system's.
fn sanitize(folder: &Path, args: &[&str]) -> Command {
    let mut command = command(folder, &["sanitize"]);
    command.args(args).env_remove("CUDA_PATH").env_remove("CUDA_HOME");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display()));
    command
}

/// Runs `warpsmith sanitize OPTIONS sh -c SCRIPT` with this report of compute-sanitizer.
fn run(report: &str, options: &[&str], script: &str) -> Run {
    let folder = folder();
    fs::create_dir(folder.join("bin")).unwrap();
    write(&folder.join("bin/compute-sanitizer"), SANITIZER, 0o755);
    fs::write(folder.join("report"), report).unwrap();
    let output = sanitize(&folder, options).args(["sh", "-c", script]).output().unwrap();
    Run { folder, output }
}

#[test]
fn a_clean_program_keeps_its_output() {
    let run = run(CLEAN, &[], "echo from the program; echo \"caching $WARPSMITH_NO_MEMORY_CACHING\" >&2");
    assert_eq!((run.code(), run.stdout().as_str()), (Some(0), "from the program\n"));
    assert_eq!(run.stderr(), "caching 1\n\nwarpsmith sanitize: memcheck found nothing\n");
    let arguments = fs::read_to_string(run.folder.join("arguments")).unwrap();
    assert!(arguments.starts_with("--tool memcheck --strip-paths no --print-limit "), "{arguments}");
    let log = arguments.split("--log-file ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(!Path::new(log).exists(), "{log} is left over");
}

#[test]
fn findings_fail_with_or_without_the_program() {
    for exit in ["exit 0", "exit 37"] {
        let run = run(ONE, &[], exit);
        assert_eq!((run.code(), run.stdout()), (Some(1), String::new()));
        let said = run.stderr();
        assert!(
            said.starts_with(
                "\nkernel `past_end`: access out of bounds: 4 bytes of global memory at 0x7f3b52000100\n"
            ),
            "{said}"
        );
        assert!(said.contains("\n    at kernels/src/lib.rs:74 in past_end\n"), "{said}");
        assert!(said.ends_with("\n\nwarpsmith sanitize: 1 memcheck finding\n"), "{said}");
    }
}

#[test]
fn a_program_that_fails_without_findings_is_named() {
    let run = run(CLEAN, &["--tool", "initcheck"], "exit 37");
    assert_eq!(run.code(), Some(1));
    assert!(
        run.stderr().ends_with("initcheck found nothing\nwarpsmith: `sh` failed: exit status: 37\n"),
        "{}",
        run.stderr()
    );
}

#[test]
fn the_json_document_is_alone_on_standard_output() {
    let run = run(ONE, &["--json", "--leaks"], "echo beside; exit 3");
    assert_eq!((run.code(), run.stderr().as_str()), (Some(1), "beside\n"));
    let document: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
    assert_eq!((&document["ok"], &document["exit_code"]), (&false.into(), &3.into()));
    let finding = &document["findings"][0];
    assert_eq!((&finding["kind"], &finding["count"]), (&"out-of-bounds".into(), &1.into()));
    assert_eq!(finding["access"]["thread"], serde_json::json!([63, 0, 0]));
    assert_eq!(finding["access"]["frames"][0]["line"], 74);
    assert!(fs::read_to_string(run.folder.join("arguments")).unwrap().contains("--leak-check full"));
}

#[test]
fn an_unreadable_report_is_shown_as_it_is() {
    let strange = "========= COMPUTE-SANITIZER\n========= a format of the future\n";
    let strange = run(strange, &[], "true");
    assert_eq!(strange.code(), Some(1));
    assert!(strange.stderr().contains("\n========= a format of the future\n"), "{}", strange.stderr());
    assert!(strange.stderr().ends_with("could not be parsed completely; it is shown above unchanged\n"));

    let no_gpu = "========= COMPUTE-SANITIZER\n========= Error: Target application terminated before first instrumented \
                  API call\n";
    let no_gpu = run(no_gpu, &[], "exit 255");
    assert_eq!(no_gpu.code(), Some(1));
    let said = no_gpu.stderr();
    assert!(said.contains("checked nothing because `sh` (exit code 255) made no CUDA call"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_missing_sanitizer_or_program_is_named() {
    let folder = folder();
    fs::create_dir(folder.join("bin")).unwrap();
    let said = |args: &[&str], toolkit: &str| {
        let output = sanitize(&folder, args).env("CUDA_HOME", toolkit).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    // A machine with a toolkit in its usual folder has the sanitizer.
    if !Path::new("/usr/local/cuda").exists() {
        let missing = said(&["true"], "none");
        assert!(missing.contains("pip install nvidia-cuda-sanitizer-api"), "{missing}");
    }
    fs::create_dir_all(folder.join("toolkit/compute-sanitizer")).unwrap();
    write(&folder.join("toolkit/compute-sanitizer/compute-sanitizer"), SANITIZER, 0o755);
    write(&folder.join("data"), "no program", 0o644);
    for (program, words) in [
        ("./none", "cannot run `./none`"),
        ("none", "`none` was not found in PATH: give the path"),
        ("data", "write `./data`"),
        ("./data", "it is not executable"),
        ("./bin", "it is a folder"),
    ] {
        let said = said(&[program], "toolkit");
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said(&["--tool", "leakcheck", "true"], "toolkit").contains("leakcheck"));
    fs::write(folder.join("report"), CLEAN).unwrap();
    let output = sanitize(&folder, &["true"]).env("CUDA_HOME", "toolkit").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_dir_all(folder).unwrap();
}
