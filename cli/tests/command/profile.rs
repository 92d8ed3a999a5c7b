//! `warpsmith profile`, with shell scripts that write a trace to the path in the variable.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::shared::{Run, command, folder};

const KINETO: &str = include_str!("../../../profiler/trace/tests/trace/kineto.json");
/// Shell function that writes a trace as the process with ID `$1` does.
const WRITE: &str = r#"write() { cp trace.json "$(printf '%s' "$WARPSMITH_PROFILE" | sed "s/%p/$1/")"; }; "#;

/// Runs `warpsmith profile OPTIONS sh -c SCRIPT` in a folder with `trace.json`.
fn profile(options: &[&str], script: &str) -> Run {
    let folder = folder();
    std::fs::write(folder.join("trace.json"), KINETO).unwrap();
    let script = format!("{WRITE}{script}");
    let program = ["sh", "-c", &script];
    let output = command(&folder, &["profile"]).args(options).args(program).output().unwrap();
    Run { folder, output }
}

/// Returns the files in a folder, except the one that was put there.
fn files(folder: &Path) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "trace.json").collect();
    names.sort();
    names
}

#[test]
fn profile_shows_what_the_program_wrote() {
    let run = profile(&["--html", "page.html"], "echo from the program; write 7");
    assert_eq!((run.code(), run.stderr()), (Some(0), String::new()));
    let text = run.stdout();
    assert!(text.starts_with("from the program\n") && text.contains("triton_poi_fused_0"), "{text}");
    let trace = run.folder.canonicalize().unwrap().join("profile.json.gz");
    assert!(text.ends_with(&format!("The trace is in {}\n", trace.display())), "{text}");
    assert_eq!(files(&run.folder), ["page.html", "profile.json.gz"]);
    assert_eq!(std::fs::read_to_string(trace).unwrap(), KINETO);
    let page = std::fs::read_to_string(run.folder.join("page.html")).unwrap();
    assert!(page.contains("<h1>profile.json.gz</h1>") && page.contains("triton_poi_fused_0"));
}

#[test]
fn several_processes_have_several_traces() {
    let run =
        profile(&["--json", "--out", "all.json", "--html", "page.html"], "echo beside; write 11; write 12");
    assert_eq!((run.code(), run.stderr()), (Some(0), "beside\n".to_owned()), "{}", run.stdout());
    let document: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
    let traces = document["traces"].as_array().unwrap();
    assert_eq!((&document["schema"], &document["exit_code"], traces.len()), (&1.into(), &0.into(), 2));
    assert_eq!(traces[0]["kernels"][0]["total"], 20_000);
    assert_eq!(files(&run.folder), ["all.11.json", "all.12.json", "page.11.html", "page.12.html"]);
    let named = profile(&["--out", "of-%p.json"], "write 11");
    assert_eq!(files(&named.folder), ["of-11.json"]);
}

#[test]
fn each_process_has_a_page_of_its_own() {
    let run = profile(&["--out", "of-%p.json", "--html", "page.html"], "write 11; write 12");
    assert_eq!((run.code(), run.stderr()), (Some(0), String::new()));
    assert_eq!(files(&run.folder), ["of-11.json", "of-12.json", "page.11.html", "page.12.html"]);
    let run = profile(&["--html", "page-%p.html"], "write 11");
    assert_eq!(files(&run.folder), ["page-11.html", "profile.json.gz"]);
}

#[test]
fn the_exit_code_is_passed_on() {
    let run = profile(&[], "write 7; exit 37");
    assert_eq!((run.code(), run.stderr()), (Some(37), String::new()));
    assert!(run.stdout().contains("triton_poi_fused_0"));
    let killed = profile(&[], "kill -TERM $$");
    assert_eq!(killed.code(), Some(128 + 15));
}

#[test]
fn a_program_without_a_trace_is_named() {
    for (script, code) in [("true", 1), ("exit 37", 37)] {
        let run = profile(&[], script);
        assert_eq!((run.code(), run.stdout()), (Some(code), String::new()));
        let said = run.stderr();
        assert!(
            said.contains("`sh`")
                && said.contains("wrote no trace: build the program with warpsmith's feature `profiler`"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
        assert!(files(&run.folder).is_empty());
    }
}

#[test]
fn a_damaged_trace_is_shown_and_fails() {
    let run = profile(&[], r#"head -c 3000 trace.json > "${WARPSMITH_PROFILE}""#);
    assert_eq!(run.code(), Some(1));
    assert!(run.stdout().contains("cudaLaunchKernel"), "{}", run.stdout());
    assert!(run.stderr().contains("is damaged at byte 3000"), "{}", run.stderr());
}

#[test]
fn unusable_programs_and_files_are_named() {
    let folder = folder();
    for (args, words) in [
        (&["profile", "./no-such-program"][..], "cannot run `./no-such-program`"),
        (&["profile", "--out", "none/trace", "true"], "the folder does not exist"),
        (&["profile", "--out", ".", "true"], "the path is a folder"),
        (&["profile", "--out", "trace.pftrace", "true"], "give a name that ends in .json or .json.gz"),
        (&["profile"], "<PROGRAM>"),
    ] {
        let output = command(&folder, args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{words}: {said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Starts `warpsmith profile sh -c SCRIPT`, and sends it the termination signal once there is a file `ready`.
fn end_when_ready(folder: &Path, script: &str, ready: &str) -> ExitStatus {
    let mut child = command(folder, &["profile", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let wait = |what: &str, is_over: &mut dyn FnMut() -> bool| {
        while !is_over() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait("the program has not begun", &mut || folder.join(ready).exists());
    let kill = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut status = None;
    wait("the command has not ended", &mut || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// The command waits for a trace that nothing writes.
#[test]
fn signals_end_the_making_of_tables() {
    let folder = folder();
    let script = r#"mkfifo "$(printf '%s' "$WARPSMITH_PROFILE" | sed s/%p/7/)""#;
    let status = end_when_ready(&folder, script, "profile.json.gz");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn signals_reach_the_program() {
    let folder = folder();
    std::fs::write(folder.join("trace.json"), KINETO).unwrap();
    let script = format!("{WRITE}trap 'write 7; exit 5' TERM; touch ready; while true; do sleep 0.01; done");
    assert_eq!(end_when_ready(&folder, &script, "ready").code(), Some(5));
    assert_eq!(std::fs::read_to_string(folder.join("profile.json.gz")).unwrap(), KINETO);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_of_a_program_are_in_its_trace() {
    let folder = folder();
    let program = crate::shared::binary();
    let bench = ["bench", "copy", "--quick", "--sizes", "2^12", "--dtypes", "f32", "--device", "cpu"];
    let mut profile = command(&folder, &["profile", "--json", "--out", "bench.json.gz"]);
    let output = profile.arg(program).args(bench).output().unwrap();
    let run = Run { folder, output };
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    let document: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
    let trace = &document["traces"][0];
    assert_eq!(
        (&trace["damage"], trace["loss"]["issued"].as_u64()),
        (&serde_json::Value::Null, trace["loss"]["recorded"].as_u64())
    );
    let kernels = trace["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|row| row["name"].as_str().unwrap().contains("copy")), "{kernels:?}");
    assert!(run.stderr().contains("copy"), "the table of the program: {}", run.stderr());
    assert!(!run.stderr().contains("panicked"), "{}", run.stderr());
}
